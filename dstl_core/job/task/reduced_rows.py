"""Reduces the rows of a subtask to a row per key, for an operator with declared aggregates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex
from dstl_core.codec.columnar.keyed.encoder import EncodeProgram
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.job.rows.keys import fitted_keys
from dstl_core.job.rows.row_buffer import RowBuffer, one_batch
from dstl_core.job.spec.fingerprint import FINGERPRINT_COLUMN, ROWS_COLUMN
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.job.task.reduced_pieces import ReducedPieces
from dstl_core.operators.aggregate_function import part_name

ROWS_PER_CALL = 2_000_000
UNREDUCED_BYTES = 1 << 30
"""Rows that wait if they have too many keys to become far fewer: so they are reduced once."""
LEAST_ROWS = 20_000
"""Fewer rows are not reduced on their way."""
SAMPLED_ROWS = 10_000
LEAST_ROWS_PER_KEY = 3
"""With fewer rows per key, reducing twice costs more than sending rows."""


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
        read = {name for _, aggregate in operator.items for name in aggregate.columns}
        self._values = sorted(read)
        self._rows = RowBuffer(ROWS_PER_CALL)
        self._reduced: ReducedPieces[tuple[K, pa.RecordBatch]] = ReducedPieces(
            self._joined, lambda piece: piece[1].nbytes
        )

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows, or rows that ``reduced_on_the_way`` has reduced."""
        if is_reduced(self._operator, batch):
            keys, _ = self._number_keys(batch.column(self._operator.key_by))
            self._reduced.add((keys, batch))
        elif self._rows.add(batch) and (self._pays() or self._rows.limit_by_bytes(UNREDUCED_BYTES)):
            self._reduce()

    def _pays(self) -> bool:
        """Whether the rows that wait are likely to become far fewer."""
        sample = self._rows.sample(self._operator.key_by, SAMPLED_ROWS)
        keys, _ = self._number_keys(sample)
        return _is_far_fewer(len(keys), len(sample), self._rows.rows)

    def take(self) -> tuple[K, pa.RecordBatch] | None:
        """Removes the rows that wait. Returns keys with a row for each; None without rows."""
        self._reduce()
        return self._reduced.take()

    def _reduce(self) -> None:
        rows = self._rows.take()
        if rows is not None:
            keys, numbers = self._number_keys(rows.column(self._operator.key_by))
            rows = rows.select(self._values)  # lets go of the keys of all rows
            parts = parts_of(self._operator, rows, numbers, len(keys))
            self._reduced.add((keys, _batch_of(self._operator, keys, parts)))

    def _joined(self, pieces: Sequence[tuple[K, pa.RecordBatch]]) -> tuple[K, pa.RecordBatch]:
        """Pieces as one, with each key once."""
        rows = one_batch([rows for _, rows in pieces])
        keys, numbers = self._number_keys(rows.column(self._operator.key_by))
        parts = joined_parts(self._operator, rows, numbers, len(keys))
        return keys, _batch_of(self._operator, keys, parts)


def is_reduced(operator: AggregateOperator, batch: pa.RecordBatch) -> bool:
    """Whether a batch has the parts of aggregates instead of the columns of rows."""
    [first, *_] = operator.function.merges
    return part_name(0, first.parts[0]) in batch.schema.names


def reduced_on_the_way(
    operator: AggregateOperator, rows: pa.RecordBatch, hashes: pa.Array
) -> pa.RecordBatch | None:
    """Rows that an engine is about to send, as a row per key, if this makes them far fewer.

    Args:
        operator: The operator, without windows.
        rows: The rows.
        hashes: A hash of each row.

    Returns:
        The keys, the parts of their aggregates, the sums of their hashes and the numbers of their
        rows; None if the rows should be sent as they are.
    """
    if rows.num_rows < LEAST_ROWS:
        return None
    values = fitted_keys(rows.column(operator.key_by), operator.key_by, operator.key_type)
    program = EncodeProgram([("key", layout_of(operator.key_type))])

    def index_of(keys: pa.Array) -> ByteIndex:
        encoded = program.encode({"key": keys}, len(keys))  # it owns the memory of the ranges
        return ByteIndex(encoded.ranges)

    places = np.arange(0, len(values), len(values) // SAMPLED_ROWS + 1)
    sampled = len(index_of(values.take(pa.array(places))))
    if not _is_far_fewer(sampled, len(places), len(values)):
        return None
    index = index_of(values)
    keys, numbers = len(index), index.numbers
    fingerprints_of_keys = RowsOfKeys(numbers, keys, hashes)
    columns = {
        operator.key_by: values.take(pa.array(index.firsts)),
        **parts_of(operator, rows, numbers, keys),
        FINGERPRINT_COLUMN: fingerprints_of_keys.sums(),
        ROWS_COLUMN: fingerprints_of_keys.counts(),
    }
    return pa.RecordBatch.from_pydict(columns)


def _is_far_fewer(sampled: int, sample: int, rows: int) -> bool:
    """Whether rows are likely to have far fewer keys, if a sample has so many distinct ones."""
    return distinct_of(sampled, sample, rows) * LEAST_ROWS_PER_KEY <= rows


def distinct_of(sampled: int, sample: int, rows: int) -> float:
    """About how many distinct keys rows have, if a sample of them has so many.

    It assumes keys of equal frequency: with few frequent keys, there are more.
    """
    if sampled == sample:
        return rows
    low, high = 1.0, float(sample) ** 2
    while high / low > 1.01:
        keys = math.sqrt(low * high)
        low, high = (keys, high) if -keys * math.expm1(-sample / keys) < sampled else (low, keys)
    return -high * math.expm1(-rows / high)


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


def _batch_of(
    operator: AggregateOperator, keys: DistinctKeys, parts: dict[str, pa.Array]
) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({operator.key_by: keys.values, **parts})
