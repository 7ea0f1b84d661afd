"""Builds state with bootstrap functions. Rows with a key go to the subtask of the key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dstl_core.codec.operator_state import OperatorStream
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError, InvariantViolation
from dstl_core.functions import KeyedStateBootstrapFunction
from dstl_core.job.spec.fingerprint import SUBTASK_COLUMN
from dstl_core.job.task.reports import REPORT_SCHEMA, SubtaskReport, encode_state
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.model.key_group import compute_key_group_range_for_operator_index
from dstl_core.savepoint.write.bootstrap import (
    KeyedBootstrapOperator,
    WindowBootstrapOperator,
    WindowOperation,
    rows_of,
)
from dstl_core.savepoint.write.folder import KeyedForm, StateFiles
from dstl_core.spark.engine.key_groups import (
    partition_by_subtask,
    split_by_subtask,
)
from dstl_core.spark.engine.parallelism import subtasks_of
from dstl_core.spark.engine.schema import quoted, spark_schema_of
from dstl_core.spark.engine.session import described
from dstl_core.spark.engine.table_frames import map_in_arrow
from dstl_core.spark.engine.workers import report_of
from dstl_core.state.backends.function_state import StateAccess
from dstl_core.state.columns.column_fit import values_of_column
from dstl_core.state.tables.keyed_state import KeyedState

# ------------------------------------------------------------------------------------ keyed


@dataclass(frozen=True)
class KeyedFunctionBootstrap:
    """Passes the rows of a key, in order, to a bootstrap function or a window operation."""

    rows: DataFrame
    key_column: str
    key_type: AnySerializer
    function: KeyedStateBootstrapFunction | WindowOperation
    order_by: Sequence[str]
    parallelism: int | None

    def write_operator(
        self,
        identifier: OperatorIdentifier,
        files: StateFiles,
        max_parallelism: int,
        parallelism: int | None = None,
    ) -> OperatorState:
        """Writes the state files; returns their entry in ``_metadata``."""
        parallelism = subtasks_of(self, max_parallelism, parallelism)
        placed = partition_by_subtask(
            self.rows,
            self.key_column,
            self.key_type,
            max_parallelism=max_parallelism,
            parallelism=parallelism,
        )
        if self.order_by:
            placed = placed.sortWithinPartitions(*self._order())
        task = _RunKeyed(
            str(files.folder),
            self.key_column,
            self.key_type,
            self.function,
            parallelism,
            max_parallelism,
            files.form,
        )
        what = f"dstl: operator {identifier}: run its function and write its state"
        with described(self.rows.sparkSession, what):
            rows = map_in_arrow(placed, task, spark_schema_of(REPORT_SCHEMA)).collect()
        reports = [report_of(row) for row in rows]
        files.learn(file for report in reports for file in report.written)
        states_by_index = {state.index: state for state in (each.subtask_state for each in reports)}
        if not states_by_index:  # there are no rows, so the function is asked for its states
            empty = files.add_keyed_state(task.run(0, ()))
            states_by_index[0] = OperatorSubtaskState(0, managed_keyed_state=empty)
        states = [
            states_by_index.get(index, OperatorSubtaskState(index)) for index in range(parallelism)
        ]
        return OperatorState(
            identifier.operator_id,
            parallelism,
            max_parallelism,
            tuple(states),
            uid=identifier.uid or "",
        )

    def _order(self) -> list[Any]:
        """The requested order. All other sortable columns break ties."""
        rest = [
            field.name
            for field in self.rows.schema
            if field.name not in self.order_by and not _has_map(field.dataType)
        ]
        return [F.col(quoted(name)) for name in (*self.order_by, *rest)]


def _has_map(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, T.StructType):
        return any(_has_map(each.dataType) for each in kind)
    return isinstance(kind, T.MapType)


@dataclass(frozen=True)
class _RunKeyed:
    """Runs in tasks: builds the keyed state of a subtask from its rows."""

    folder: str
    key_column: str
    key_type: AnySerializer
    function: KeyedStateBootstrapFunction | WindowOperation
    parallelism: int
    max_parallelism: int
    form: KeyedForm

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for subtask, rows in split_by_subtask(batches):
            files = StateFiles(self.folder, form=self.form)
            handle = files.add_keyed_state(self.run(subtask, rows))
            yield SubtaskReport.of_keyed(subtask, handle, files.written.values()).to_batch()

    def run(self, subtask: int, batches: Iterable[pa.RecordBatch]) -> KeyedState:
        """The state of a subtask."""
        key_groups = compute_key_group_range_for_operator_index(
            self.max_parallelism, self.parallelism, subtask
        )
        state = KeyedState(key_groups, self.max_parallelism)
        access = StateAccess(state, self.key_type)
        operator = (
            WindowBootstrapOperator(self.function, access)
            if isinstance(self.function, WindowOperation)
            else KeyedBootstrapOperator(self.function, access)
        )
        for batch in batches:
            column = batch.column(self.key_column)
            if column.null_count:
                raise ConfigError("A key is null; keyed state needs a key.")
            keys = values_of_column(self.key_type, column, "The key")
            rows = self._with_elements(batch, rows_of(batch.drop_columns([SUBTASK_COLUMN])))
            for key, row in zip(keys, rows, strict=True):
                operator.process(key, row)
        operator.close()
        return state

    def _with_elements(self, batch: pa.RecordBatch, rows: list[Any]) -> list[Any]:
        """Rows with the elements in the form that windows store."""
        if not isinstance(self.function, WindowOperation):
            return rows
        function = self.function.function
        column, is_kept = (
            function.element,
            function.aggregate is None or function.evictor is not None,
        )
        if not isinstance(column, str) or not is_kept:
            return rows
        elements = values_of_column(function.type, batch.column(column), f"Column {column!r}")
        return [{**row, column: each} for row, each in zip(rows, elements, strict=True)]


# --------------------------------------------------------------------------- operator state

MakeState = Callable[[Iterable[pa.RecordBatch]], OperatorStream | None]


@dataclass(frozen=True)
class OperatorStateBootstrap:
    """Builds list, union or broadcast state from rows: one partition per subtask."""

    rows: DataFrame
    make: MakeState
    parallelism: int | None

    def write_operator(
        self,
        identifier: OperatorIdentifier,
        files: StateFiles,
        max_parallelism: int,
        parallelism: int | None = None,
    ) -> OperatorState:
        """Writes the state files; returns their entry in ``_metadata``."""
        parallelism = subtasks_of(self, max_parallelism, parallelism)
        spread = self.rows.coalesce(1) if parallelism == 1 else self.rows.repartition(parallelism)
        task = _RunOperatorState(str(files.folder), self.make)
        what = f"dstl: operator {identifier}: write its operator state"
        with described(self.rows.sparkSession, what):
            rows = map_in_arrow(spread, task, spark_schema_of(REPORT_SCHEMA)).collect()
        reports = [report_of(row) for row in rows]
        files.learn(file for report in reports for file in report.written)
        states_by_index = {state.index: state for state in (each.subtask_state for each in reports)}
        states = tuple(
            states_by_index.get(index, OperatorSubtaskState(index)) for index in range(parallelism)
        )
        return OperatorState(
            identifier.operator_id, parallelism, max_parallelism, states, uid=identifier.uid or ""
        )


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
