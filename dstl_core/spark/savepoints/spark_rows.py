"""Rows of a DataFrame from which state is built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from dstl_core.codec.declared_type import TypeLike
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError, InvariantViolation
from dstl_core.job.spec.fingerprint import SUBTASK_COLUMN
from dstl_core.job.task.reports import REPORT_SCHEMA, SubtaskReport, encode_state
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.key_group import compute_key_group_range_for_operator_index
from dstl_core.savepoint.bootstrap.bootstrap_rows import NewOperator
from dstl_core.savepoint.bootstrap.column_runs import ColumnRuns
from dstl_core.savepoint.bootstrap.keyed_functions import KeyedFunction
from dstl_core.savepoint.bootstrap.operator_bootstrap import MakeState
from dstl_core.savepoint.write.folder import KeyedForm, StateFiles
from dstl_core.spark.engine.key_groups import partition_by_subtask, split_by_subtask
from dstl_core.spark.engine.parquet_rows import ParquetRows, read_parquet
from dstl_core.spark.engine.schema import (
    arrow_type_from_spark,
    holds,
    is_ordered,
    quoted,
    spark_schema_of,
    type_of_column,
)
from dstl_core.spark.engine.session import described
from dstl_core.spark.engine.table_frames import SMALL_BYTES, map_in_arrow, parallelism_of
from dstl_core.spark.engine.workers import report_of
from dstl_core.spark.savepoints.column_stages import write_columns

_NUMBER = "__dstl_row"


@dataclass(frozen=True)
class SparkRows:
    """The rows of a DataFrame, as ``BootstrapRows``.

    Args:
        frame: The DataFrame.
        files: The same rows as files, if tasks read them without Spark.
    """

    frame: DataFrame
    files: ParquetRows | None = None
    what = "the DataFrame"

    @classmethod
    def of(cls, frame: DataFrame) -> SparkRows:
        """The rows of a DataFrame.

        Raises:
            ConfigError: It is a stream.
        """
        if frame.isStreaming:
            raise ConfigError("A bootstrap starts from a DataFrame of a batch, got a stream.")
        return cls(frame)

    @classmethod
    def at(cls, spark: SparkSession, paths: Sequence[str]) -> SparkRows:
        """The rows of Parquet files."""
        return cls(*read_parquet(spark, paths))

    @property
    def columns(self) -> Sequence[str]:
        """As ``BootstrapRows.columns``."""
        return self.frame.columns

    def on_engine(self, engine: Any) -> SparkRows:
        """The same rows: their session reads them."""
        return self

    def flink_type(self, column: str, declared: TypeLike | None = None) -> AnySerializer:
        """As ``BootstrapRows.flink_type``."""
        return type_of_column(self.frame.schema, column, declared)

    def arrow_type(self, column: str) -> pa.DataType | None:
        """As ``BootstrapRows.arrow_type``."""
        try:
            return arrow_type_from_spark(self.frame.schema[column].dataType)
        except ConfigError:
            return None

    def last_of_keys(
        self, key_column: str, key_type: AnySerializer, order_by: Sequence[str]
    ) -> SparkRows:
        """As ``BootstrapRows.last_of_keys``."""
        self._check_files()
        schema = self.frame.schema
        ties = [
            field.name
            for field in schema
            if field.name not in (*order_by, key_column) and is_ordered(field.dataType)
        ]
        last = (F.desc(quoted(each)) for each in (*order_by, *ties))
        key = F.col(quoted(key_column))
        # Spark treats 0.0 and -0.0 as equal. They are two keys, so their texts are compared.
        has_floats = holds(schema[key_column].dataType, (T.FloatType, T.DoubleType))
        apart = [key.cast("string")] if has_floats else []
        latest = Window.partitionBy(key, *apart).orderBy(*last)
        numbered = self.frame.withColumn(_NUMBER, F.row_number().over(latest))
        return SparkRows(numbered.where(f"{_NUMBER} = 1").drop(_NUMBER))

    def subtasks(self, wanted: int | None, max_parallelism: int) -> int:
        """As ``BootstrapRows.subtasks``."""
        if wanted is None:
            wanted = parallelism_of(self.frame.sparkSession, SMALL_BYTES + 1)
        return max(1, min(wanted, max_parallelism))

    def write_columns(self, columns: ColumnRuns, new: NewOperator) -> list[OperatorSubtaskState]:
        """As ``BootstrapRows.write_columns``."""
        return write_columns(self.frame, self.files, columns, new)

    def repeated_keys(self, key_column: str, key_type: AnySerializer, most: int) -> list[Any]:
        """As ``BootstrapRows.repeated_keys``."""
        counted = self.frame.groupBy(quoted(key_column)).count().where("count > 1")
        with described(self.frame.sparkSession, "dstl: look for duplicate keys"):
            return [row[0] for row in counted.limit(most).collect()]

    def write_function(
        self, function: KeyedFunction, order_by: Sequence[str], new: NewOperator
    ) -> list[OperatorSubtaskState]:
        """As ``BootstrapRows.write_function``."""
        self._check_files()
        placed = partition_by_subtask(
            self.frame,
            function.key_column,
            function.key_type,
            max_parallelism=new.max_parallelism,
            parallelism=new.parallelism,
        )
        if order_by:
            placed = placed.sortWithinPartitions(*self._order(order_by))
        files = new.files
        task = _RunKeyed(
            str(files.folder), function, new.parallelism, new.max_parallelism, files.form
        )
        what = f"dstl: operator {new.identifier}: run its function and write its state"
        states = self._states(placed, task, what, new)
        if not states:  # there are no rows, so the function is asked for its states
            empty = function.state(new.key_groups(0), new.max_parallelism, ())
            handle = files.add_keyed_state(empty)
            states = [OperatorSubtaskState(0, managed_keyed_state=handle)]
        return states

    def _check_files(self) -> None:
        """Checks the columns of Parquet files that Spark reads."""
        if self.files is not None:
            self.files.check_same_columns()

    def _order(self, order_by: Sequence[str]) -> list[Any]:
        """The requested order. All other sortable columns break ties."""
        rest = [
            field.name
            for field in self.frame.schema
            if field.name not in order_by and not holds(field.dataType, (T.MapType,))
        ]
        return [F.col(quoted(name)) for name in (*order_by, *rest)]

    def write_elements(
        self, make: MakeState, columns: Sequence[str] | None, new: NewOperator
    ) -> list[OperatorSubtaskState]:
        """As ``BootstrapRows.write_elements``: one partition per subtask."""
        self._check_files()
        rows = self.frame if columns is None else self.frame.select(*map(quoted, columns))
        number = new.parallelism
        spread = rows.coalesce(1) if number == 1 else rows.repartition(number)
        task = _RunOperatorState(str(new.files.folder), make)
        what = f"dstl: operator {new.identifier}: write its operator state"
        return self._states(spread, task, what, new)

    def _states(
        self, rows: DataFrame, task: Any, what: str, new: NewOperator
    ) -> list[OperatorSubtaskState]:
        """Runs a task on each partition of rows."""
        with described(self.frame.sparkSession, what):
            collected = map_in_arrow(rows, task, spark_schema_of(REPORT_SCHEMA)).collect()
        reports = [report_of(row) for row in collected]
        new.files.learn(file for report in reports for file in report.written)
        return [report.subtask_state for report in reports]


@dataclass(frozen=True)
class _RunKeyed:
    """Runs in tasks: builds the keyed state of a subtask from its rows."""

    folder: str
    function: KeyedFunction
    parallelism: int
    max_parallelism: int
    form: KeyedForm

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for subtask, rows in split_by_subtask(batches):
            files = StateFiles(self.folder, form=self.form)
            key_groups = compute_key_group_range_for_operator_index(
                self.max_parallelism, self.parallelism, subtask
            )
            values = (batch.drop_columns([SUBTASK_COLUMN]) for batch in rows)
            state = self.function.state(key_groups, self.max_parallelism, values)
            handle = files.add_keyed_state(state)
            yield SubtaskReport.of_keyed(subtask, handle, files.written.values()).to_batch()


@dataclass(frozen=True)
class _RunOperatorState:
    """Runs in tasks: builds the state of a subtask from the partition with its number."""

    folder: str
    make: MakeState

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is None:
            raise InvariantViolation("operator state is bootstrapped inside a task")
        files = StateFiles(self.folder)
        handle = files.add_operator_state(self.make(batches))
        state = OperatorSubtaskState(context.partitionId(), managed_operator_state=handle)
        written = list(files.written.values())
        yield SubtaskReport("", state.index, encode_state(state), written=written).to_batch()
