"""The engine that runs jobs on Spark, classic or Spark Connect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from dstl_core.errors import ConfigError
from dstl_core.job.spec.fingerprint import FINGERPRINT_VERSION, Fingerprint
from dstl_core.job.spec.given_rows import arrow_of, in_stored_types, paths_of, stored_schema
from dstl_core.job.spec.job_spec import EpochSpec, TaskSpec
from dstl_core.job.spec.operators import Operator
from dstl_core.job.spec.output_types import stored_arrow_schema
from dstl_core.job.spec.read_columns import ALL_COLUMNS, ReadColumns
from dstl_core.job.task.reports import SubtaskReport
from dstl_core.job.task.subtask import run_epoch_subtask
from dstl_core.spark.engine.key_groups import split_by_subtask
from dstl_core.spark.engine.parquet_rows import ParquetRows, read_parquet
from dstl_core.spark.engine.schema import quoted, spark_schema_of
from dstl_core.spark.engine.session import SparkTasks, of_attempt
from dstl_core.spark.job.batch_checks import check_rows, checked_batch
from dstl_core.spark.job.inputs import fingerprint_of, in_types, latest_time_of, place
from dstl_core.spark.job.sent_rows import received
from dstl_core.spark.job.small_batches import applied_by_one_task


class SparkRunner(SparkTasks):
    """Runs the tasks of one pipeline as Spark jobs."""

    def beside(self) -> SparkRunner:
        """A copy whose Spark jobs continue when this object is cancelled."""
        return SparkRunner(self._spark, self._name)

    def apply(
        self,
        rows: DataFrame,
        operator: Operator,
        order_by: Sequence[str],
        task: TaskSpec,
        epoch: EpochSpec,
        description: str,
    ) -> list[SubtaskReport]:
        """As ``TaskRunner.apply``: one shuffle sends the rows to their subtasks."""
        by_one_task = applied_by_one_task(rows, operator, order_by, task, epoch)
        if by_one_task is not None:
            return self.collect(*by_one_task, description, rows)
        placed = place(
            rows,
            operator,
            order_by,
            parallelism=task.job.parallelism,
            max_parallelism=task.job.max_parallelism,
        )
        in_messages = placed.in_messages

        def run_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for subtask, rows in split_by_subtask(batches):
                sent = received(rows) if in_messages else rows
                report = run_epoch_subtask(task, epoch, subtask, sent)
                yield of_attempt(report).to_batch()

        return self.collect(placed.frame, run_partition, description, rows)


@dataclass(frozen=True)
class SparkEngine:
    """Runs jobs on Spark. Rows are DataFrames.

    Args:
        spark: The session, classic or Spark Connect; None for a job that only shows what it is.
    """

    spark: SparkSession

    def __post_init__(self) -> None:
        if self.spark is not None and not hasattr(self.spark, "createDataFrame"):
            raise ConfigError(
                f"The engine of a job is wrong: expected a SparkSession, as getOrCreate() returns "
                f"it, or a LocalEngine(), got {self.spark!r}."
            )

    def runner(self, name: str) -> SparkRunner:
        """Runs the tasks of the pipeline of this name; the Spark UI shows the name."""
        return SparkRunner(self.spark, name)

    def batch_of(self, rows: Any, what: str, reads: ReadColumns = ALL_COLUMNS) -> DataFrame:
        """As ``Engine.batch_of``; it takes the rows of a local engine, too."""
        return checked_batch(frame_of(self.spark, rows, what, reads), what, reads)

    def columns_of(self, rows: DataFrame) -> dict[str, str]:
        return {each.name: each.dataType.simpleString() for each in rows.schema}

    def select(self, rows: DataFrame, names: Sequence[str]) -> DataFrame:
        return rows if list(names) == rows.columns else rows.select(*map(quoted, names))

    def in_types(self, rows: DataFrame, types: Mapping[str, str]) -> DataFrame | None:
        return in_types(rows, types)

    def check_input(
        self, rows: DataFrame, operator: Operator, order_by: Sequence[str] | None
    ) -> None:
        check_rows(rows, operator, order_by)

    def fingerprint(self, rows: DataFrame, version: int = FINGERPRINT_VERSION) -> Fingerprint:
        return fingerprint_of(rows, version)

    def latest_time(self, rows: DataFrame, column: str) -> int | None:
        return latest_time_of(rows, column)

    def stream_of(self, rows: DataFrame) -> str | None:
        """The id of the query in whose ``foreachBatch`` this is called: that of its checkpoint
        folder (``StreamExecution.QUERY_ID_KEY``). Spark Connect does not tell it.
        """
        if is_remote():
            return None
        return rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")

    def to_arrow(self, rows: DataFrame) -> pa.Table:
        return rows.toArrow()

    def read(self, files: Sequence[str], schema: pa.Schema) -> DataFrame:
        return ParquetRows(tuple(files), stored_arrow_schema(schema)).frame(self.spark)


def frame_of(spark: SparkSession, rows: Any, what: str, reads: ReadColumns = ALL_COLUMNS) -> Any:
    """A DataFrame of rows in any form that the local engine takes; others are returned as they are.

    Rows of Arrow go through the memory of this process.

    Args:
        spark: The session.
        rows: The rows.
        what: Their name, for errors.
        reads: The columns that are read. Others are left out if Spark has no type for them.

    Raises:
        ConfigError: Spark has no type for a column or a value, or there is no file.
    """
    if isinstance(rows, DataFrame):
        return rows
    paths = paths_of(rows)
    if paths is not None:
        frame, _ = read_parquet(spark, paths)
        return frame
    arrow_rows = arrow_of(rows)
    if arrow_rows is None:
        return rows
    table = arrow_rows if isinstance(arrow_rows, pa.Table) else arrow_rows.read_all()
    schema = stored_schema(table.schema, what, reads.reads)
    stored = in_stored_types(table, schema, what)
    return spark.createDataFrame(stored, spark_schema_of(schema))
