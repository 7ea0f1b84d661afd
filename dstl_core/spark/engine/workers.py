"""Avoids expensive work that Spark does around the batches of Python workers.

Spark's daemon collects garbage after every task of a worker, and Spark's JVM computes the size of a
batch after every row: ``docs/decisions/0008-spark-transport.md``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as T

from dstl_core.job.task.held_state import holds_state
from dstl_core.job.task.reports import SubtaskReport
from dstl_core.storage.profiles import profile_file, use_profile_file

MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
UNLIMITED = 2**31 - 1
"""The limit in bytes with which Spark does not compute sizes (``BatchedPythonArrowInput``)."""
SENT_ROWS = 1000
"""Rows of a batch without a limit in bytes: 64 MB, Spark's own limit, for rows of 64 KB."""
_FEW_OBJECTS = 20_000
_FIXED = (T.NumericType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType)

Batches = Iterable[pa.RecordBatch]


def settle() -> None:
    """Excludes all loaded objects from garbage collection, e.g. libraries and compiled kernels.

    It does nothing while the worker holds state for a later task: state may have reference cycles,
    which only the collector frees.
    """
    if not holds_state() and len(gc.get_objects()) > _FEW_OBJECTS:
        gc.collect()
        gc.freeze()


def settled(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a task, then calls ``settle``."""
    try:
        yield from batches
    finally:
        settle()


def report_of(row: Row) -> SubtaskReport:
    """The report of a task, from a row of ``REPORT_SCHEMA`` that Spark collected."""
    return SubtaskReport.of(row.asDict(recursive=True))


def label_of(function: object) -> str:
    """The name of a function in Spark's plans: its ``label``, or the name of its class."""
    return str(getattr(function, "label", None) or type(function).__name__)


@dataclass(frozen=True)
class Settled:
    """A function over the batches of a task. The worker calls ``settle`` after it."""

    function: Callable[[Batches], Batches]

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        return settled(self.function(batches))

    @property
    def label(self) -> str:
        """The name of the function in Spark's plans."""
        return label_of(self.function)


@dataclass(frozen=True)
class WithProfiles:
    """A function over the batches of a task, with the storage profiles of the driver."""

    function: Callable[[Batches], Batches]
    profiles: str = field(default_factory=profile_file)

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        use_profile_file(self.profiles)
        return iter(self.function(batches))

    @property
    def __name__(self) -> str:
        # Spark's plan names a function by this.
        return label_of(self.function)


_LIMITS = Lock()
"""A thread sees both limits of another one, or none: it would put back half of them."""


@contextmanager
def uncounted_bytes(rows: DataFrame) -> Iterator[None]:
    """In this block, Spark makes batches of ``rows`` without computing their size in bytes.

    Batches have few rows unless all types have a fixed size. A limit in bytes that the session sets
    stays in force.
    """
    conf = rows.sparkSession.conf
    with _LIMITS:
        is_limited = conf.get(MAX_BYTES, None) is not None
        before = conf.get(MAX_RECORDS, None)
        if not is_limited:
            conf.set(MAX_BYTES, str(UNLIMITED))
            if not all(isinstance(each.dataType, _FIXED) for each in rows.schema):
                conf.set(MAX_RECORDS, str(_fewer(before)))
    try:
        yield
    finally:
        if not is_limited:
            with _LIMITS:
                conf.unset(MAX_BYTES)
                _put_back(rows.sparkSession, before)


def _fewer(limit: str | None) -> int:
    shown_rows = int(limit or 0)  # 0 or less means no limit
    return min(shown_rows, SENT_ROWS) if shown_rows > 0 else SENT_ROWS


def _put_back(spark: SparkSession, limit: str | None) -> None:
    if limit is None:
        spark.conf.unset(MAX_RECORDS)
    else:
        spark.conf.set(MAX_RECORDS, limit)
