"""A subtask whose function processes columns, without Python per row or key."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.types.input import one_array
from dstl_core.errors import ConfigError, UserFunctionError
from dstl_core.functions import KEY_INDEX, ColumnResult, KeyedColumnFunction, RuntimeContext
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.job.task.column_state import Changed, StateInColumns, with_state
from dstl_core.job.task.output_files import OutputFiles
from dstl_core.job.task.reduced_rows import ReducedRows
from dstl_core.job.task.restore import Assigned
from dstl_core.operators.aggregate_function import AggregateMerge
from dstl_core.operators.user_code import user_code
from dstl_core.state.columns.column_fit import fit
from dstl_core.state.columns.column_store import Keys

_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


@dataclass(frozen=True)
class _Merged:
    """What a function made of rows and the states of their keys.

    Args:
        known: Which keys had state before.
        after: The new states.
        changes: Which keys changed, for each state.
        output: The output of the function.
    """

    known: Changed
    after: pa.Table
    changes: Sequence[Changed]
    output: pa.RecordBatch | pa.Table | None


class ColumnSubtask(StateInColumns):
    """One subtask of one task, whose function processes columns. One thread.

    Args:
        task: The operator, and the folders of its files.
        subtask: Index of this subtask, from 0.
        assigned: The state that it restores.
    """

    def __init__(self, task: TaskSpec, subtask: int, assigned: Assigned) -> None:
        operator, function = task.operator, task.operator.function
        if not isinstance(function, KeyedColumnFunction):
            raise ConfigError(f"The operator {operator.uid!r} has no column function.")
        super().__init__(task, subtask, assigned, function.states)
        self._function = function
        self._reduced_rows: ReducedRows[Keys] | None = (
            ReducedRows(operator, self._number_keys)
            if isinstance(operator, AggregateOperator)
            else None
        )
        with user_code(function, "open"):
            function.open(RuntimeContext(None, subtask, task.job.parallelism))

    def apply(self, batch: pa.RecordBatch, output: OutputFiles) -> None:
        if self._reduced_rows is not None:
            self._reduced_rows.add(batch)
        else:
            super().apply(batch, output)

    def finish(self, watermark: int, output: OutputFiles) -> None:
        """Processes the waiting rows, and closes the function."""
        reduced = None if self._reduced_rows is None else self._reduced_rows.take()
        if reduced is not None:
            keys, rows = reduced
            merged = self._merged(keys, np.arange(len(keys)), rows)
            del reduced, rows  # the log and the store need the new states alone
            self._keep_merged(keys, merged, output)
        super().finish(watermark, output)
        with user_code(self._function, "close"):
            self._function.close()

    def _process_rows(self, rows: pa.RecordBatch, output: OutputFiles) -> None:
        keys, numbers = self._number_keys(rows.column(self._key_by))
        self._keep_merged(keys, self._merged(keys, numbers, rows), output)

    def _merged(self, keys: Keys, numbers: npt.NDArray[np.int64], rows: pa.RecordBatch) -> _Merged:
        """Calls the function with rows and the states of their keys."""
        before = self._store.lookup(keys)
        with_index = rows.append_column(KEY_INDEX, pa.array(numbers, pa.int64()))
        with self._calling("process_batch"):
            result = self._function.process_batch(keys.values, _batch(before), with_index)
            after = self._checked(result, before)
        changes = [
            differ(one_array(old), one_array(new))
            for old, new in zip(before.columns, after.columns, strict=True)
        ]
        return _Merged(with_state(before), after, changes, result.output)

    def _keep_merged(self, keys: Keys, merged: _Merged, output: OutputFiles) -> None:
        """Keeps the new states of keys, and gives the output."""
        known, after = merged.known, merged.after
        changed = self._keep(keys, known, after, merged.changes)
        output.add_columns(merged.output)
        if output.schema is None or not changed.any():
            return
        inserted = np.flatnonzero(changed & ~known)
        places = pa.array(np.concatenate([inserted, np.flatnonzero(changed & known)]))
        new = after.take(places).combine_chunks()
        with self._calling("output_of_changes"):
            rows_of_changes = self._function.output_of_changes(
                keys.values.take(places), _batch(new)
            )
        # A user's function may leave out rows, so it is not known which ones are of new keys.
        is_merge = isinstance(self._function, AggregateMerge)
        output.add_columns(rows_of_changes, inserted=len(inserted) if is_merge else None)

    def _calling(self, method: str) -> AbstractContextManager[None]:
        """Names the function in errors of a user's code; declared aggregates are dstl's code."""
        is_merge = isinstance(self._function, AggregateMerge)
        return nullcontext() if is_merge else user_code(self._function, method)

    def _checked(self, result: Any, before: pa.Table) -> pa.Table:
        """The new state of every key; columns that the function left out are unchanged."""
        if not isinstance(result, ColumnResult):
            raise UserFunctionError(f"expected a ColumnResult, got a {type(result).__name__}")
        state, after = result.state, before
        if not isinstance(state, pa.RecordBatch | pa.Table):
            raise UserFunctionError(
                f"expected the new state as a record batch, got a {type(state).__name__}"
            )
        unknown = set(state.schema.names) - set(before.schema.names)
        if unknown or state.num_rows != before.num_rows:
            raise UserFunctionError(
                f"expected columns out of {before.schema.names} with {before.num_rows} rows, got "
                f"{state.schema.names} with {state.num_rows}"
            )
        for name in state.schema.names:
            at = before.schema.get_field_index(name)
            kind = before.schema.field(at)
            column = state.column(name)
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            after = after.set_column(at, kind, fit(column, kind.type, f"State {name!r}"))
        return after


def _batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [one_array(column) for column in table.columns], schema=table.schema
    )


def differ(old: pa.Array, new: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each value was changed, set or cleared.

    Values are compared by their bits, so 0.0 and -0.0 differ. Values that Arrow cannot compare
    count as changed.
    """
    differs: npt.NDArray[np.bool_] = _other(old, new).to_numpy(zero_copy_only=False)
    return differs


def _other(old: pa.Array, new: pa.Array) -> pa.Array:
    was, now = old.is_valid(), new.is_valid()
    other = pc.not_equal(was, now)
    if pa.types.is_struct(old.type):
        for at in range(old.type.num_fields):
            parts = pc.struct_field(old, [at]), pc.struct_field(new, [at])
            other = pc.or_(other, pc.and_(now, _other(*parts)))
        return other
    if pa.types.is_list(old.type):
        return pc.or_(other, _other_elements(old, new))
    bits = _BITS.get(old.type)
    try:
        if bits is not None:
            old, new = old.view(bits), new.view(bits)
        return pc.or_(other, pc.fill_null(pc.not_equal(old, new), False))
    except pa.ArrowNotImplementedError:  # Arrow compares no maps: such a value counts as changed
        return pc.or_(other, now)


def _other_elements(old: pa.Array, new: pa.Array) -> pa.Array:
    """Whether two lists, both not null, have different elements."""
    length = pc.list_value_length(new)
    same = pc.fill_null(pc.equal(pc.list_value_length(old), length), False)
    both = pc.and_(old.is_valid(), new.is_valid())
    changed = pc.and_not(both, same).to_numpy(zero_copy_only=False).copy()
    lengths = length.filter(same).to_numpy()
    elements = differ(pc.list_flatten(old.filter(same)), pc.list_flatten(new.filter(same)))
    owners = np.repeat(np.flatnonzero(same), lengths)
    changed[owners[elements]] = True
    return pa.array(changed)
