"""Reduces the rows of a subtask to a row per key, for an operator with declared aggregates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.job.rows.waiting_rows import WaitingRows
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.job.task.reduced_pieces import ReducedPieces
from dstl_core.operators.aggregate_function import part_name

ROWS_PER_CALL = 2_000_000


class DistinctKeys(Protocol):
    """Keys, once each."""

    @property
    def values(self) -> pa.Array: ...

    def __len__(self) -> int: ...


K = TypeVar("K", bound=DistinctKeys)


class ReducedRows(Generic[K]):
    """Rows of an operator, reduced to a row per key as soon as there are many.

    Args:
        operator: The operator.
        number_keys: Returns the distinct keys of a column, and the number of the key of each row.
    """

    def __init__(
        self,
        operator: AggregateOperator,
        number_keys: Callable[[pa.Array], tuple[K, Numbers]],
    ) -> None:
        self._operator = operator
        self._number_keys = number_keys
        self._rows = WaitingRows(ROWS_PER_CALL)
        self._reduced: ReducedPieces[tuple[K, pa.RecordBatch]] = ReducedPieces(
            self._joined, lambda piece: piece[1].nbytes
        )

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        if self._rows.add(batch):
            self._reduce()

    def take(self) -> tuple[K, pa.RecordBatch] | None:
        """Removes the rows that wait. Returns keys with a row for each; None without rows."""
        self._reduce()
        return self._reduced.take()

    def _reduce(self) -> None:
        rows = self._rows.take()
        if rows is not None:
            keys, numbers = self._number_keys(rows.column(self._operator.key_by))
            parts = parts_of(self._operator, rows, numbers, len(keys))
            self._reduced.add((keys, _batch_of(self._operator, keys, parts)))

    def _joined(self, pieces: Sequence[tuple[K, pa.RecordBatch]]) -> tuple[K, pa.RecordBatch]:
        """Pieces as one, with each key once."""
        rows = one_batch([rows for _, rows in pieces])
        keys, numbers = self._number_keys(rows.column(self._operator.key_by))
        parts = joined_parts(self._operator, rows, numbers, len(keys))
        return keys, _batch_of(self._operator, keys, parts)


def parts_of(
    operator: AggregateOperator, rows: pa.RecordBatch, numbers: Numbers, keys: int
) -> dict[str, pa.Array]:
    """The parts of all aggregates, by name, from rows and the number of the key of each."""
    columns: dict[str, pa.Array] = {}
    for at, (_, aggregate) in enumerate(operator.items):
        merge = operator.function.merges[at]
        values, *orders = [rows.column(name) for name in aggregate.columns] or [None]
        parts = merge.reduced(RowsOfKeys(numbers, keys, values, orders))
        for name, part in zip(merge.parts, parts, strict=True):
            columns[part_name(at, name)] = part
    return columns


def joined_parts(
    operator: AggregateOperator, rows: pa.RecordBatch, numbers: Numbers, keys: int
) -> dict[str, pa.Array]:
    """The parts of all aggregates, by name, from reduced rows of which several may be of a key."""
    columns: dict[str, pa.Array] = {}
    for at, merge in enumerate(operator.function.merges):
        names = [part_name(at, name) for name in merge.parts]
        joined = merge.joined([rows.column(name) for name in names], numbers, keys)
        columns |= dict(zip(names, joined, strict=True))
    return columns


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema as one."""
    [batch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def _batch_of(
    operator: AggregateOperator, keys: DistinctKeys, parts: dict[str, pa.Array]
) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({operator.key_by: keys.values, **parts})
