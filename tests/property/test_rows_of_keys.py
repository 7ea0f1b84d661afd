"""Rows are reduced to the parts of aggregates, wherever a batch is cut into pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core import aggregates
from dstl_core.aggregates import Aggregate
from dstl_core.aggregates.by_order import ByBatch
from dstl_core.aggregates.rows_of_keys import RowsOfKeys
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.job.spec.fingerprint import FINGERPRINT_COLUMN, HASHES, ROWS_COLUMN
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.job.task import reduced_pieces, reduced_rows
from dstl_core.job.task.reduced_rows import ReducedRows, distinct_of, reduced_on_the_way
from tests.property.test_aggregate_merge import halves

Given = list[int | None]


def some(drawn: Given) -> list[int]:
    return [each for each in drawn if each is not None]


OF_ROWS: list[tuple[Aggregate, AnySerializer, pa.DataType, int, Callable[[Given], Any]]] = [
    (aggregates.count(), Types.LONG, pa.int64(), 63, lambda drawn: (len(drawn),)),
    (aggregates.count("v"), Types.LONG, pa.bool_(), 0, lambda drawn: (len(some(drawn)),)),
    (
        aggregates.count_null("v"),
        Types.LONG,
        pa.float64(),
        9,
        lambda drawn: (len(drawn) - len(some(drawn)),),
    ),
    (aggregates.sum("v"), Types.LONG, pa.int64(), 63, lambda drawn: halves(some(drawn) or None)),
    (
        aggregates.sum("v"),
        Types.DOUBLE,
        pa.float32(),
        9,
        lambda drawn: (None, sum(some(drawn)) if some(drawn) else None),
    ),
    (
        aggregates.avg("v"),
        Types.INT,
        pa.int32(),
        31,
        lambda drawn: (*halves(some(drawn) or None), len(some(drawn))),
    ),
    (aggregates.min("v"), Types.LONG, pa.int64(), 63, lambda drawn: (least(drawn),)),
    (aggregates.max("v"), Types.LOCAL_DATE, pa.date32(), 31, lambda drawn: (most(drawn),)),
    (aggregates.min("v"), Types.INSTANT, pa.timestamp("us"), 63, lambda drawn: (least(drawn),)),
    (aggregates.bool_or("v"), Types.BOOLEAN, pa.bool_(), 0, lambda drawn: (most(drawn),)),
]


def least(drawn: Given) -> int | None:
    return min(some(drawn), default=None)


def most(drawn: Given) -> int | None:
    return max(some(drawn), default=None)


@pytest.mark.parametrize("aggregate, kind, column, bits, expected", OF_ROWS)
@given(data=st.data())
def test_rows_are_reduced_to_the_same_parts_wherever_they_are_cut(
    aggregate: Aggregate,
    kind: AnySerializer,
    column: pa.DataType,
    bits: int,
    expected: Callable[[Given], Any],
    data: st.DataObject,
) -> None:
    has_type = aggregate.how in ("sum", "avg", "min", "max")
    typed = replace(aggregate, type=kind) if has_type else aggregate
    operator = AggregateOperator("u", "k", {"a": typed}, "bigint")
    values = st.none() | st.integers(-(1 << bits) if bits else 0, max(1, (1 << bits) - 1))
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), values), max_size=30))
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=2).map(sorted))
    wanted = {key: expected([value for each, value in rows if each == key]) for key in dict(rows)}
    bounds = [0, *cuts, len(rows)]
    most_bytes = data.draw(st.sampled_from([1, reduced_pieces.MOST_BYTES]))
    # Rows of many keys wait for more of them.
    rows_per_key, waiting_bytes = data.draw(st.sampled_from([(0, 1), (99, 200), (99, 1 << 30)]))
    with (
        mock.patch.object(reduced_rows, "ROWS_PER_CALL", 1),
        mock.patch.object(reduced_rows, "LEAST_ROWS", 1),
        mock.patch.object(reduced_rows, "LEAST_ROWS_PER_KEY", rows_per_key),
        mock.patch.object(reduced_rows, "UNREDUCED_BYTES", waiting_bytes),
        mock.patch.object(reduced_pieces, "MOST_BYTES", most_bytes),
    ):
        waiting = ReducedRows(operator, numbered)
        for start, end in pairwise(bounds):
            if start < end:
                piece = batch_of(rows[start:end], column)
                if not rows_per_key and data.draw(st.booleans(), "on the way"):
                    piece = on_the_way(operator, piece)
                waiting.add(piece)
    taken = waiting.take()
    assert waiting.take() is None
    got = {} if taken is None else {row.pop("k"): tuple(row.values()) for row in plain(taken[1])}
    assert got == wanted


def on_the_way(operator: AggregateOperator, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Reduced rows, whose hashes and numbers of rows are checked."""
    hashes = [(1 << 63) - 1 - row for row in range(rows.num_rows)]
    reduced = reduced_on_the_way(operator, rows, pa.array(hashes))
    assert reduced is not None
    sums = {key: [0, 0] for key in rows.column("k").to_pylist()}
    for key, own in zip(rows.column("k").to_pylist(), hashes, strict=True):
        sums[key][0] += own
        sums[key][1] += 1
    for row in reduced.select(["k", FINGERPRINT_COLUMN, ROWS_COLUMN]).to_pylist():
        wanted, count = sums.pop(row["k"])
        assert (row[FINGERPRINT_COLUMN] - wanted) % HASHES == 0
        assert row[ROWS_COLUMN] == count
    assert not sums
    return reduced.drop_columns([FINGERPRINT_COLUMN, ROWS_COLUMN])


@pytest.mark.parametrize("keys, rows", [(1, 50_000), (30, 50_000), (3_000, 50_000), (40_000, 9**6)])
def test_the_number_of_keys_is_estimated_from_a_sample(keys: int, rows: int) -> None:
    random = np.random.default_rng(1)
    sampled = len(np.unique(random.integers(0, keys, 10_000)))
    distinct = len(np.unique(random.integers(0, keys, rows)))
    assert abs(distinct_of(sampled, 10_000, rows) - distinct) <= 1 + distinct / 20


def test_keys_that_are_all_different_in_a_sample_are_all_different() -> None:
    assert distinct_of(10_000, 10_000, 500_000) == 500_000


@dataclass
class Distinct:
    values: pa.Array

    def __len__(self) -> int:
        return len(self.values)


def numbered(keys: pa.Array) -> tuple[Distinct, Any]:
    encoded = keys.dictionary_encode()
    return Distinct(encoded.dictionary), encoded.indices.to_numpy()


def batch_of(rows: list[tuple[int, int | None]], column: pa.DataType) -> pa.RecordBatch:
    longs = pa.array([value for _, value in rows], pa.int64())
    narrow = longs.cast(pa.int32()) if column == pa.date32() else longs
    keys = pa.array([key for key, _ in rows], pa.int64())
    return pa.record_batch({"k": keys, "v": narrow.cast(column)})


def plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows with dates and times as whole numbers."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        narrow = column.cast(pa.int32()) if column.type == pa.date32() else column
        is_number = pa.types.is_floating(column.type)
        columns[name] = narrow if is_number else narrow.cast(pa.int64())
    rows: list[dict[str, Any]] = pa.table(columns).to_pylist()
    return rows


ORDERS = st.none() | st.integers(0, 2)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), ORDERS, st.none() | st.tuples(ORDERS, ORDERS), ORDERS),
        min_size=1,
        max_size=20,
    ),
    st.booleans(),
    st.integers(0, 20),
)
def test_within_a_batch_the_first_or_last_value_goes_by_all_columns_of_its_order(
    rows: list[tuple[int, int | None, tuple[int | None, int | None] | None, int | None]],
    last: bool,
    cut: int,
) -> None:
    def size(row: Any) -> Any:
        """Nulls are the smallest, of a struct and of its fields."""
        _, order, struct, value = row
        parts = (-1, -1, -1) if struct is None else (0, *(-1 if p is None else p for p in struct))
        return -1 if order is None else order, parts, value

    kind = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    structs = [None if row[2] is None else dict(zip("ab", row[2], strict=True)) for row in rows]
    orders = [pa.array([row[1] for row in rows], pa.int64()), pa.array(structs, kind)]
    values = pa.array([row[3] for row in rows], pa.int64())
    merge = ByBatch("u", "s", Types.LONG, orders=2, last=last)
    keys = np.array([row[0] for row in rows])
    # Pieces of the batch are reduced apart, and joined.
    pieces = keys + 3 * (np.arange(len(rows)) >= cut)
    parts = merge.reduced(RowsOfKeys(pieces, 6, values, orders))
    joined = merge.joined(parts, np.arange(6) % 3, 3)[0].to_pylist()
    for key in range(3):
        some = [row for row in rows if row[0] == key and row[3] is not None]
        best = (max if last else min)(some, key=size, default=None)
        assert joined[key] == (None if best is None else best[3])
