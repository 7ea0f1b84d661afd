"""Reduces the rows of a subtask to a row per key, for an operator with declared aggregates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from dstl_core.aggregates import Aggregate
from dstl_core.job.task.waiting_rows import WaitingRows
from dstl_core.operators.aggregate_merge import Merge, part_name
from dstl_core.operators.row_reduction import Numbers, combined_parts, parts_of_rows

ROWS_PER_CALL = 2_000_000
MOST_BYTES = 512 << 20
"""Reduced rows that wait; with more, a key may be merged into its state more than once."""


class DistinctKeys(Protocol):
    """Keys, once each."""

    @property
    def values(self) -> pa.Array: ...

    def __len__(self) -> int: ...


K = TypeVar("K", bound=DistinctKeys)


class ReducedRows(Generic[K]):
    """Rows of an operator, reduced to a row per key as soon as there are many.

    Args:
        key_by: The column with the key.
        aggregates: The aggregates, with the merge of each.
        number_keys: Returns the distinct keys of a column, and the number of the key of each row.
    """

    def __init__(
        self,
        key_by: str,
        aggregates: Sequence[tuple[Aggregate, Merge]],
        number_keys: Callable[[pa.Array], tuple[K, Numbers]],
    ) -> None:
        self._key_by = key_by
        self._aggregates = aggregates
        self._number_keys = number_keys
        self._rows = WaitingRows(ROWS_PER_CALL)
        self._reduced: list[tuple[K, pa.RecordBatch]] = []

    def takes(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch has rows; else Spark reduced them, and has a key once in all batches."""
        return part_name(0, self._aggregates[0][1].parts[0]) not in batch.schema.names

    def add(self, batch: pa.RecordBatch) -> tuple[K, pa.RecordBatch] | None:
        """Adds rows. Returns keys with a row for each of them, if they are too many to wait."""
        if self._rows.add(batch):
            self._reduce()
            if sum(rows.nbytes for _, rows in self._reduced) > MOST_BYTES:
                self._reduced = [self._combined()]
                if self._reduced[0][1].nbytes > MOST_BYTES // 2:
                    return self._reduced.pop()
        return None

    def take(self) -> tuple[K, pa.RecordBatch] | None:
        """Removes the rows that wait. Returns keys with a row for each; None without rows."""
        self._reduce()
        if not self._reduced:
            return None
        found = self._combined()
        self._reduced = []
        return found

    def _reduce(self) -> None:
        rows = self._rows.take()
        if rows is None:
            return
        keys, numbers = self._number_keys(rows.column(self._key_by))
        columns = {self._key_by: keys.values}
        for at, (aggregate, merge) in enumerate(self._aggregates):
            values = None if aggregate.column is None else rows.column(aggregate.column)
            parts = parts_of_rows(merge, aggregate.how, values, numbers, len(keys))
            for name, part in zip(merge.parts, parts, strict=True):
                columns[part_name(at, name)] = part
        self._reduced.append((keys, pa.RecordBatch.from_pydict(columns)))

    def _combined(self) -> tuple[K, pa.RecordBatch]:
        """The reduced rows as one batch, with each key once."""
        if len(self._reduced) == 1:
            return self._reduced[0]
        table = pa.Table.from_batches([rows for _, rows in self._reduced]).combine_chunks()
        [rows] = table.to_batches()
        keys, numbers = self._number_keys(rows.column(self._key_by))
        columns = {self._key_by: keys.values}
        for at, (_, merge) in enumerate(self._aggregates):
            names = [part_name(at, each) for each in merge.parts]
            parts = [rows.column(each) for each in names]
            found = combined_parts(merge, parts, numbers, len(keys))
            columns |= dict(zip(names, found, strict=True))
        return keys, pa.RecordBatch.from_pydict(columns)
