"""The rows of some keys, and what an aggregate needs of them: counts, sums, extremes, best rows.

All of it works on whole columns. Keys are numbers from 0. Source of the order of values: Spark
4.3.0 and Java, where NaN is the largest number, and null is smaller than any value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from dstl_core.codec.columnar.types.input import one_array
from dstl_core.codec.columnar.types.java_decimals import DIGITS

Numbers = npt.NDArray[np.int64]
"""The number of the key of each row, from 0."""
HALF = 32
LOW = (1 << HALF) - 1
_FIXED_WIDTH = (kinds.is_integer, kinds.is_boolean, kinds.is_date32, kinds.is_timestamp)


@dataclass(frozen=True)
class RowsOfKeys:
    """Rows that are reduced to an element per key.

    Args:
        numbers: ``[rows]`` the number of the key of each row.
        keys: How many keys there are.
        values: ``[rows]`` values of the column of an aggregate; None: it has no column.
        orders: ``[rows]`` columns of its order.
    """

    numbers: Numbers
    keys: int
    values: pa.Array | None = None
    orders: Sequence[pa.Array] = ()

    @property
    def column(self) -> pa.Array:
        """The values, if the aggregate has a column."""
        assert self.values is not None
        return self.values

    @property
    def sorted_by(self) -> Sequence[pa.Array]:
        """The columns that put rows into an order: those of the order, then the values."""
        return [part for column in (*self.orders, self.column) for part in _flat(column)]

    def where(self, chosen: pa.Array) -> RowsOfKeys:
        """The rows of which a column of booleans is true; null is false."""
        chosen = pc.fill_null(chosen, False)
        return RowsOfKeys(
            self.numbers[chosen.to_numpy(zero_copy_only=False)],
            self.keys,
            None if self.values is None else self.values.filter(chosen),
            [order.filter(chosen) for order in self.orders],
        )

    def take(self, places: Numbers) -> RowsOfKeys:
        """The rows at some positions."""
        at = pa.array(places)
        return RowsOfKeys(
            self.numbers[places],
            self.keys,
            None if self.values is None else self.values.take(at),
            [order.take(at) for order in self.orders],
        )

    @property
    def present(self) -> RowsOfKeys:
        return self.where(self.column.is_valid()) if self.column.null_count else self

    def of(self, values: pa.Array) -> RowsOfKeys:
        """The same rows with other values."""
        return replace(self, values=values)

    @property
    def without(self) -> npt.NDArray[np.bool_]:
        """Which keys have no row."""
        without = np.ones(self.keys, np.bool_)
        without[self.numbers] = False
        return without

    def counts(self) -> pa.Array:
        """How many rows each key has."""
        return pa.array(np.bincount(self.numbers, minlength=self.keys))

    def sums(self) -> pa.Array:
        """The sum of the longs or doubles of each key; null for a key without a value."""
        rows = self.present
        totals = np.zeros(self.keys, rows.column.type.to_pandas_dtype())
        with np.errstate(invalid="ignore"):
            np.add.at(totals, rows.numbers, rows.column.to_numpy())
        return pa.array(totals, mask=rows.without)

    def decimal_sums(self) -> pa.Array:
        """The exact sum of the decimals of each key; null if it has more than 38 digits."""
        rows = self.present
        scale = rows.column.type.scale
        halves = _halves_of(rows.column.cast(pa.decimal128(DIGITS, scale)))
        totals = [np.zeros(self.keys, np.int64) for _ in halves]
        for total, half in zip(totals, halves, strict=True):
            np.add.at(total, rows.numbers, half)
        for lower, upper in pairwise(totals):
            upper += lower >> HALF
            lower &= LOW
        raw = np.stack([total.astype(np.uint32) for total in totals], axis=1)
        fits = totals[-1] == totals[-1].astype(np.int32)
        whole = pa.Array.from_buffers(
            pa.decimal128(DIGITS), self.keys, [None, pa.py_buffer(np.ascontiguousarray(raw))]
        )
        most = pa.scalar(10**DIGITS - 1, whole.type)
        in_range = pc.and_(pc.less_equal(whole, most), pc.greater_equal(whole, pc.negate(most)))
        known = pc.and_(pc.and_(in_range, pa.array(fits)), pa.array(~rows.without))
        sums = pa.Array.from_buffers(
            pa.decimal128(DIGITS, scale), self.keys, [None, whole.buffers()[1]]
        )
        return pc.if_else(known, sums, pa.scalar(None, sums.type))

    def extremes(self, *, largest: bool) -> pa.Array:
        """The largest or the smallest value of each key; null for a key without a value."""
        rows = self.present
        kind = rows.column.type
        if any(test(kind) for test in _FIXED_WIDTH):
            return _extreme_longs(rows, largest=largest)
        if kinds.is_floating(kind):
            return _extreme_floats(rows, largest=largest)
        table = pa.table({"number": pa.array(rows.numbers), "value": rows.column})
        which = "max" if largest else "min"
        best = table.group_by("number").aggregate([("value", which)])
        places = np.full(self.keys, -1, np.int64)
        places[best.column("number").to_numpy()] = np.arange(best.num_rows)
        at = pa.array(places, mask=places < 0)
        return one_array(best.column(f"value_{which}")).take(at)

    def best(self, *, largest: bool) -> RowsOfKeys:
        """One row per key: that with the largest or smallest order, and among these value."""
        rows = self
        for at in range(len(self.sorted_by)):
            if np.bincount(rows.numbers).max(initial=0) <= 1:
                break
            if rows.sorted_by[at].null_count:
                rows = _with_extreme(rows, rows.sorted_by[at].is_valid(), largest=largest)
            rows = _with_extreme(rows, rows.sorted_by[at], largest=largest)
        _, first = np.unique(rows.numbers, return_index=True)
        return rows.take(first)

    def at_keys(self, column: pa.Array) -> pa.Array:
        """A column of rows, of which no two are of one key, at the numbers of their keys."""
        places = np.full(self.keys, -1, np.int64)
        places[self.numbers] = np.arange(len(self.numbers))
        return column.take(pa.array(places, mask=places < 0))

    def lists(self, *columns: pa.Array) -> list[pa.Array]:
        """The elements of columns as a list per key, in the order of the rows."""
        at = pa.array(np.argsort(self.numbers, kind="stable"))
        sizes = np.bincount(self.numbers, minlength=self.keys)
        return [lists_of(sizes, column.take(at)) for column in columns]


def _extreme_longs(rows: RowsOfKeys, *, largest: bool) -> pa.Array:
    bounds = np.iinfo(np.int64)
    best = np.full(rows.keys, bounds.min if largest else bounds.max)
    (np.maximum if largest else np.minimum).at(best, rows.numbers, longs_of(rows.column))
    missing = rows.without
    best[missing] = 0
    extremes = pa.array(best, mask=missing)
    is_date = kinds.is_date32(rows.column.type)
    return (extremes.cast(pa.int32()) if is_date else extremes).cast(rows.column.type)


def _extreme_floats(rows: RowsOfKeys, *, largest: bool) -> pa.Array:
    values = rows.column.to_numpy()
    # fmin passes over NaN, and maximum does not: NaN is the largest number.
    best = np.full(rows.keys, -np.inf if largest else np.nan, values.dtype)
    with np.errstate(invalid="ignore"):
        (np.maximum if largest else np.fmin).at(best, rows.numbers, values)
    return pa.array(best, rows.column.type, mask=rows.without, from_pandas=False)


def _with_extreme(rows: RowsOfKeys, column: pa.Array, *, largest: bool) -> RowsOfKeys:
    """The rows with the extreme of a column, and rows of keys that have only nulls."""
    wanted = rows.of(column).extremes(largest=largest).take(pa.array(rows.numbers))
    equal = pc.equal(column, wanted)
    if kinds.is_floating(column.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(column), pc.is_nan(wanted)))
    return rows.where(pc.or_kleene(wanted.is_null(), equal))


def _flat(column: pa.Array) -> list[pa.Array]:
    """A column, or the columns that sort a struct: whether it is null, and its fields."""
    if not kinds.is_struct(column.type):
        return [column]
    return [column.is_valid(), *(part for field in column.flatten() for part in _flat(field))]


def lists_of(sizes: Numbers, elements: pa.Array) -> pa.Array:
    """Lists of these sizes; null instead of an empty list."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=pa.array(sizes == 0))


def longs_of(values: pa.Array) -> Numbers:
    """Values of fixed width without nulls as whole numbers in the same order."""
    if kinds.is_date32(values.type):
        values = values.cast(pa.int32())
    longs: Numbers = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return longs


def one_zero(column: pa.Array) -> pa.Array:
    """0.0 and -0.0 are the same number, so only 0.0 is kept. Other types stay as they are."""
    return pc.add(column, pa.scalar(0, column.type)) if kinds.is_floating(column.type) else column


def _halves_of(decimals: pa.Array) -> list[Numbers]:
    """Unscaled decimals as four words of 32 bits: the lowest first, and the last with the sign."""
    raw = np.frombuffer(decimals.buffers()[1], np.uint32)
    words = raw[4 * decimals.offset : 4 * (decimals.offset + len(decimals))].reshape(-1, 4)
    last = np.ascontiguousarray(words[:, 3]).view(np.int32).astype(np.int64)
    return [*(words[:, at].astype(np.int64) for at in range(3)), last]
