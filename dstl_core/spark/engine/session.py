"""Spark jobs with a description in the UI. They end when their caller is interrupted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pickle import PicklingError
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from dstl_core.errors import ConfigError
from dstl_core.job.coordination.engine import RunTask
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.job.task.reports import REPORT_SCHEMA, SubtaskReport
from dstl_core.spark.engine.schema import spark_schema_of
from dstl_core.spark.engine.table_frames import map_in_arrow
from dstl_core.spark.engine.worker_errors import errors_of_workers
from dstl_core.spark.engine.workers import report_of, settle, settled, uncounted_bytes

_LOG = logging.getLogger(__name__)
_DESCRIPTION = "spark.job.description"

RunPartition = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class SparkTasks:
    """Runs the Spark jobs of one pipeline; ``cancel`` may be called from any thread.

    Args:
        spark: The session, classic or Spark Connect.
        name: Name of the pipeline; a part of the descriptions in the Spark UI.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        self._tag = f"dstl-{uuid4().hex}"

    def beside(self) -> SparkTasks:
        """A copy whose Spark jobs continue when this object is cancelled."""
        return SparkTasks(self._spark, self._name)

    def cancel(self) -> None:
        """Cancels the running Spark jobs; their callers get Spark's error."""
        _cancel(self._spark, self._tag)

    def per_subtask(
        self, run: RunTask, task: TaskSpec, subtasks: Sequence[int], description: str
    ) -> list[SubtaskReport]:
        """Runs a function for some subtasks of a task, one Spark task per subtask."""
        if not subtasks:
            return []

        def run_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for place in batch.column(0).to_pylist():
                    yield of_attempt(run(task, subtasks[place])).to_batch()

        places = self._spark.range(0, len(subtasks), 1, len(subtasks))
        return self.collect(places, run_partition, description)

    def collect(
        self,
        rows: DataFrame,
        run_partition: RunPartition,
        description: str,
        sized_by: DataFrame | None = None,
    ) -> list[SubtaskReport]:
        """Runs a function over each partition; returns the reports.

        Args:
            rows: The rows.
            run_partition: The function.
            description: A text for people.
            sized_by: The rows from which others make ``rows``; their types tell how many are sent
                to a worker at a time.
        """

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            settle()
            yield from settled(run_partition(batches))

        _LOG.info("job %s: %s", self._name, description)
        what = f"{self._name}: {description}"
        with (
            described(self._spark, what, self._tag),
            uncounted_bytes(rows if sized_by is None else sized_by),
            _errors_of_shipping(),
        ):
            reports = map_in_arrow(rows, run, spark_schema_of(REPORT_SCHEMA)).collect()
        return [report_of(row) for row in reports]


def of_attempt(report: SubtaskReport) -> SubtaskReport:
    """The report with the number of the attempt of the Spark task that calls."""
    context = TaskContext.get()
    return report if context is None else replace(report, attempt=context.attemptNumber())


@contextmanager
def described(spark: SparkSession, description: str, tag: str | None = None) -> Iterator[None]:
    """Describes the Spark jobs of this block in the Spark UI.

    The jobs are cancelled if the block is interrupted. Errors of dstl in tasks are raised as
    themselves.

    Args:
        spark: The session, classic or Spark Connect. Connect shows the description as a tag.
        description: A text for people. It may name operators, but no paths and no values.
        tag: A tag to cancel the jobs by; None: a new one.
    """
    with _Described(spark, description, tag or f"dstl-{uuid4().hex}"), errors_of_workers():
        yield


@contextmanager
def _errors_of_shipping() -> Iterator[None]:
    """Explains the error for a function that cannot be sent to workers."""
    try:
        yield
    except PicklingError as error:
        raise ConfigError(
            f"A function cannot be sent to the workers ({error}); let its open() make objects that "
            f"belong to a process: connections, locks, sessions."
        ) from error


class _Described:
    """Sets a job description and a tag for the Spark jobs of this thread, and resets them."""

    def __init__(self, spark: SparkSession, description: str, tag: str) -> None:
        self._spark = spark
        self._description = description
        self._tag = tag
        self._tags = (tag, description.replace(",", ";"))  # Spark allows no commas in a tag
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
            # The user has interrupted, or the process ends: the Spark jobs must end, too.
            _cancel(self._spark, self._tag)
        if is_remote():
            for tag in self._tags:
                self._spark.removeTag(tag)
            return
        context = self._spark.sparkContext
        context.removeJobTag(self._tag)
        context.setLocalProperty(_DESCRIPTION, self._before)  # type: ignore[arg-type]  # None clears it


def _cancel(spark: SparkSession, tag: str) -> None:
    """Cancels the jobs with a tag, in all threads. Tags of a classic session miss other threads."""
    if is_remote():
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)
