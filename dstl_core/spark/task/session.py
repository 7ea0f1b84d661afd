"""Spark jobs with a name in the UI, that end when who waits for them does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pickle import PicklingError
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from dstl_core.errors import ConfigError
from dstl_core.spark.engine.schema import spark_schema_of
from dstl_core.spark.engine.table_frames import map_in_arrow
from dstl_core.spark.engine.worker_errors import errors_of_workers
from dstl_core.spark.engine.workers import settle, settled, uncounted_bytes
from dstl_core.spark.task.reports import REPORT_SCHEMA, SubtaskReport

_LOG = logging.getLogger(__name__)
_DESCRIPTION = "spark.job.description"

RunPartition = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class SparkTasks:
    """Runs the Spark jobs of one pipeline; ``cancel`` may be called from any thread.

    Args:
        spark: Classic or Spark Connect.
        name: Of the pipeline; part of what the Spark UI shows.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        self._tag = f"dstl-{uuid4().hex}"

    def beside(self) -> SparkTasks:
        """The same for work that goes on when this is cancelled."""
        return SparkTasks(self._spark, self._name)

    def cancel(self) -> None:
        """Ends the Spark jobs that are running; whoever waits for them gets Spark's error."""
        _cancel(self._spark, self._tag)

    def per_subtask(
        self, run: Callable[[int], SubtaskReport], subtasks: list[int], description: str
    ) -> list[SubtaskReport]:
        """Runs a function for some subtasks, each in a task of its own."""
        if not subtasks:
            return []

        def run_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for place in batch.column(0).to_pylist():
                    yield run(subtasks[place]).to_batch()

        places = self._spark.range(0, len(subtasks), 1, len(subtasks))
        return self.collect(places, run_partition, description)

    def collect(
        self, rows: DataFrame, run_partition: RunPartition, description: str
    ) -> list[SubtaskReport]:
        """Runs a function over each partition and gives the reports."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            settle()
            yield from settled(run_partition(batches))

        _LOG.info("job %s: %s", self._name, description)
        what = f"{self._name}: {description}"
        with described(self._spark, what, self._tag), uncounted_bytes(rows), _errors_of_shipping():
            reports = map_in_arrow(rows, run, spark_schema_of(REPORT_SCHEMA)).collect()
        return [SubtaskReport.of(row) for row in reports]


@contextmanager
def described(spark: SparkSession, description: str, tag: str | None = None) -> Iterator[None]:
    """Says in the Spark UI what the Spark jobs of this block are for. They end if who waits for
    them is interrupted, and raise the errors that our tasks raised.

    Args:
        spark: Classic, or Spark Connect: there the description is a tag, since there is no other.
        description: For people; names operators, and neither paths nor values.
        tag: To cancel the jobs by; one of their own if not given.
    """
    with _Described(spark, description, tag or f"dstl-{uuid4().hex}"), errors_of_workers():
        yield


@contextmanager
def _errors_of_shipping() -> Iterator[None]:
    """Says what to do about a function that cannot travel."""
    try:
        yield
    except PicklingError as error:
        raise ConfigError(
            f"A function cannot be sent to the workers ({error}); let its open() make what belongs "
            f"to a process: connections, locks, sessions."
        ) from error


class _Described:
    """A job description and a tag for the Spark jobs of this thread, taken back at the end."""

    def __init__(self, spark: SparkSession, description: str, tag: str) -> None:
        self._spark = spark
        self._description = description
        self._tag = tag
        self._tags = (tag, description.replace(",", ";"))  # Spark wants no commas in a tag
        self._before: str | None = None

    def __enter__(self) -> None:
        if is_remote():
            for tag in self._tags:
                self._spark.addTag(tag)
        else:
            context = self._spark.sparkContext
            context.addJobTag(self._tag)
            self._before = context.getLocalProperty(_DESCRIPTION)
            context.setJobDescription(self._description)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, Exception):
            # The user's interrupt, or the end of the process: Spark must not go on alone.
            _cancel(self._spark, self._tag)
        if is_remote():
            for tag in self._tags:
                self._spark.removeTag(tag)
            return
        context = self._spark.sparkContext
        context.removeJobTag(self._tag)
        context.setLocalProperty(_DESCRIPTION, self._before)  # type: ignore[arg-type]  # None clears it


def _cancel(spark: SparkSession, tag: str) -> None:
    """Ends the jobs with a tag. The session's own tags do not reach jobs of other threads in
    classic Spark.
    """
    if is_remote():
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)
