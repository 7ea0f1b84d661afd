"""Runs units of savepoints as Spark tasks: what reads, checks or writes keyed state by units."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import SparkSession

from dstl_core.errors import DstlError
from dstl_core.savepoint.access.unit_pool import keep_freed_memory
from dstl_core.savepoint.access.units import Unit
from dstl_core.savepoint.write.work_record import TRY
from dstl_core.spark.engine.schema import spark_schema_of
from dstl_core.spark.engine.table_frames import (
    SMALL_BYTES,
    frame_of_splits,
    parallelism_of,
    split_numbers,
)
from dstl_core.spark.engine.worker_errors import errors_of_workers

_UNITS_OF_A_CORE = 4
"""Units of the first Spark job for each core. A job has its start and its end alone, when cores
wait, and the driver plans it; so each one has as many units as fit into the two limits that follow,
by the pace of the one before.
"""
_MOST_TIMES = 8
"""A job has at most so many times the units of the one before: their pace may differ."""
_JOB_SECONDS = 5.0
"""Seconds of a Spark job: progress is known when it is done."""
_MOST_RESULT_BYTES = 64 << 20
"""Bytes of the results of a Spark job, which are in memory here."""
_MANY_WORKERS = 1 << 10
_LONGEST_REASON = 300
_EXCEPTION = "SparkException: "
_SCHEMA = pa.schema([("place", pa.int64()), ("result", pa.binary())])

_KEPT: dict[str, Callable[[Unit], Any]] = {}
"""The task of the last call, in a process of a worker."""


@dataclass(frozen=True)
class _RunUnits:
    """Runs in tasks: gives the result of each unit, or the error of dstl that it raised.

    ``call`` names the call. A process of Python keeps what it has unpickled for the next unit of
    the same call, with the files that are open.
    """

    task: Callable[[Unit], Any]
    units: Sequence[Unit]
    call: str

    @property
    def label(self) -> str:
        return "units of keyed state"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.call not in _KEPT:
            keep_freed_memory()
            _KEPT.clear()
            _KEPT[self.call] = self.task
        task, context = _KEPT[self.call], TaskContext.get()
        TRY.set(0 if context is None else context.attemptNumber())
        for place in split_numbers(batches):
            try:
                result: Any = task(self.units[place])
            except DstlError as error:
                result = error
            packed = cloudpickle.dumps(result)  # type: ignore[no-untyped-call]
            yield pa.RecordBatch.from_pydict({"place": [place], "result": [packed]}, _SCHEMA)


class SparkUnits:
    """Runs units of a snapshot as tasks of a session, classic or Spark Connect. It stands where a
    number of processes (``jobs``) does. Workers must reach the snapshot, and the output, by their
    paths.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def workers(self) -> int:
        """The cores of the cluster. Spark Connect does not tell them: they may be many."""
        try:
            return int(self._spark.sparkContext.defaultParallelism)
        except PySparkAttributeError:
            return _MANY_WORKERS

    def __call__(
        self, task: Callable[[Unit], Any], units: Sequence[Unit]
    ) -> Generator[tuple[Unit, Any], None, None]:
        call = uuid4().hex
        count = _UNITS_OF_A_CORE * parallelism_of(self._spark, SMALL_BYTES + 1)
        start = 0
        while start < len(units):
            part = units[start : start + count]
            began = time.monotonic()
            results, size = self._results(_RunUnits(task, part, call))
            seconds = time.monotonic() - began
            yield from zip(part, results, strict=True)
            start += count
            times = min(_MOST_TIMES, _JOB_SECONDS / seconds, _MOST_RESULT_BYTES / max(1, size))
            count = int(count * max(1, times))

    def _results(self, function: _RunUnits) -> tuple[list[Any], int]:
        """The results of the units of one Spark job, and their bytes."""
        from py4j.protocol import Py4JError  # it comes with pyspark, which is missed by its name

        units, schema = function.units, spark_schema_of(_SCHEMA)
        try:
            with errors_of_workers():
                rows = frame_of_splits(self._spark, len(units), function, schema).collect()
        except (PySparkException, Py4JError) as error:
            raise DstlError(
                f"Spark did not finish {len(units)} units of keyed state ({_reason_of(error)}); "
                f"run it again, with more memory for a worker if one was killed."
            ) from error
        results: dict[int, Any] = {}
        for row in rows:
            # Bytes of this session's own workers, which run the task; nothing of a file.
            results[row["place"]] = cloudpickle.loads(bytes(row["result"]))
        for place in range(len(units)):
            if isinstance(results[place], DstlError):
                raise results[place]
        size = sum(len(row["result"]) for row in rows)
        return [results[place] for place in range(len(units))], size


def _reason_of(error: Exception) -> str:
    """What Spark says first, in the many lines of an error of Java."""
    lines = str(error).splitlines() or [type(error).__name__]
    said = next((line for line in lines if _EXCEPTION in line), lines[0])
    return said.rpartition(_EXCEPTION)[2][:_LONGEST_REASON]
