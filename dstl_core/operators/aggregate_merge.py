"""Merges the aggregates of a batch into their states, by columns, without Python per row or key.

A task reduces a batch to a row per key. In it, each aggregate has some columns, its *parts*, and it
has some states. A ``Merge`` class makes the parts from rows, and the new states from the parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.types.java_decimals import (
    BIG_DECIMAL,
    DIGITS,
    decimals_of,
    largest_scale,
    with_scale,
)
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError
from dstl_core.operators.rows_of_keys import HALF, LOW, Numbers, RowsOfKeys, longs_of, one_zero
from dstl_core.operators.session_sets import folded
from dstl_core.operators.wide_sums import SCALE, added, joined, tiers_of
from dstl_core.state.tables.descriptor import ValueStateDescriptor

WHOLE = (Types.BYTE, Types.SHORT, Types.INT, Types.LONG)
FLOATING = (Types.FLOAT, Types.DOUBLE)
ORDER_SUFFIX = "_order"
"""Ends the name of the state with the order of a kept value."""
Columns = list[pa.Array]


class Merge(ABC):
    """Merges one aggregate into its states.

    Args:
        uid: The uid of the operator, for errors.
        name: The name of the aggregate.
        states: Suffixes of the names of its states, with their types.
    """

    parts: ClassVar[tuple[str, ...]]
    """Suffixes of the names of its columns in a reduced batch."""

    def __init__(self, uid: str, name: str, states: Mapping[str, AnySerializer]) -> None:
        self.uid = uid
        self.name = name
        self.states = tuple(
            ValueStateDescriptor(f"{name}{ending}", kind) for ending, kind in states.items()
        )
        self.types = [layout_of(each.serializer).arrow_type for each in self.states]

    def reduced(self, rows: RowsOfKeys) -> Columns:
        """The parts of rows, with an element for each key.

        A whole number is a double if the state has doubles, and -0.0 is 0.0.
        """
        if rows.values is None:
            return self._reduced(rows)
        values = rows.values
        if pa.types.is_integer(values.type) and self.states[0].serializer in FLOATING:
            values = values.cast(pa.float64(), safe=False)
        orders = [one_zero(order) for order in rows.orders]
        return self._reduced(RowsOfKeys(rows.numbers, rows.keys, one_zero(values), orders))

    @abstractmethod
    def _reduced(self, rows: RowsOfKeys) -> Columns:
        """As ``reduced``."""

    @abstractmethod
    def merge(self, held: Columns, parts: Columns) -> Columns:
        """The new states of the keys; ``held`` is null for a key without state."""

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        """The parts of keys, from parts of which several may be of one key."""
        empty = [pa.nulls(len(numbers), kind) for kind in self.types]
        names = [state.name for state in self.states]
        states = pa.RecordBatch.from_arrays(self.merge(empty, parts), names=names)

        def combined(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
            columns = self.combined(one.columns, other.columns)
            return pa.RecordBatch.from_arrays(columns, names=names)

        of_keys = folded(combined, states, numbers).columns
        scale = max(map(largest_scale, of_keys))
        return self.parts_of([with_scale(column, scale) for column in of_keys])

    def combined(self, one: Columns, other: Columns) -> Columns:
        """The states of keys, from two states of each. ``other`` is the newer one."""
        scale = max(map(largest_scale, (*one, *other)))
        return self.merge(one, self.parts_of([with_scale(each, scale) for each in other]))

    def parts_of(self, held: Columns) -> Columns:
        """States as the parts of a batch; Java's decimals are decimals of one scale."""
        return held

    @property
    def definition(self) -> str:
        """What its states mean beyond their types, as a text; empty if the types say it all.

        States of one definition cannot be merged with those of another one.
        """
        return ""

    @property
    def final_type(self) -> pa.DataType:
        """The type of ``final``."""
        return self.types[0]

    def final(self, held: Columns) -> pa.Array:
        """The values of the aggregate, computed from its states."""
        return held[0]

    def _comparable(self, held: pa.Array, part: pa.Array) -> tuple[pa.Array, pa.Array]:
        """State and part, cast to one type that has an order."""
        try:
            if pa.types.is_struct(held.type):
                scale = max(part.type.scale, largest_scale(held))
                return decimals_of(held, scale), part.cast(pa.decimal128(DIGITS, scale))
            found = part.cast(held.type)
        except pa.ArrowInvalid:
            raise self._does_not_fit("A value", "") from None
        if _became_infinite(part, found):
            raise self._does_not_fit("A value", ", for example 'double'")
        return held, found

    def _overflow(self, wider: str = "decimal(38, 0)") -> ConfigError:
        is_widest = self.states[0].serializer == Types.DOUBLE
        return self._does_not_fit("The sum", "" if is_widest else f", for example {wider!r}")

    def _does_not_fit(self, what: str, example: str) -> ConfigError:
        return ConfigError(
            f"{what} of state {self.name!r} of operator {self.uid!r} does not fit its type, "
            f"{self.states[0].serializer.type_name}, and nothing is committed; give the aggregate "
            f"a wider type{example}, or correct the rows."
        )


class CountMerge(Merge):
    """A number of rows."""

    parts = ("count",)

    def __init__(self, uid: str, name: str, *, of_nulls: bool = False) -> None:
        super().__init__(uid, name, {"": Types.LONG})
        self._of_nulls = of_nulls

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        if rows.values is None:
            return [rows.counts()]
        return [(rows.where(rows.values.is_null()) if self._of_nulls else rows.present).counts()]

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return _summed(parts, numbers, keys)

    def merge(self, held: Columns, parts: Columns) -> Columns:
        return [pc.add(pc.fill_null(held[0], 0), parts[0])]

    def parts_of(self, held: Columns) -> Columns:
        return [pc.fill_null(held[0], 0)]


class WholeSum(Merge):
    """An exact sum of whole numbers: the batch has the sums of the upper and lower halves."""

    parts = ("high", "low")

    def __init__(self, uid: str, name: str, kind: AnySerializer) -> None:
        super().__init__(uid, name, {"": kind})

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        rows = rows.present
        longs = longs_of(rows.column)
        # Sums of halves of 32 bits do not overflow.
        return [rows.of(pa.array(half)).sums() for half in (longs >> HALF, longs & LOW)]

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return _summed(parts, numbers, keys)

    def merge(self, held: Columns, parts: Columns) -> Columns:
        there = pc.or_(held[0].is_valid(), parts[1].is_valid())
        old, high, low = (_longs(each) for each in (held[0], *parts))
        low = low + (old & LOW)
        high = high + (old >> HALF) + (low >> HALF)
        if len(high) and (high.min() < -(1 << 31) or high.max() >= 1 << 31):
            raise self._overflow()
        total = pa.array((high << HALF) | (low & LOW))
        try:
            found = total.cast(self.types[0])
        except pa.ArrowInvalid:
            raise self._overflow() from None
        return [pc.if_else(there, found, None)]

    def parts_of(self, held: Columns) -> Columns:
        longs = held[0].cast(pa.int64())
        return [pc.shift_right(longs, HALF), pc.bit_wise_and(longs, LOW)]


class FloatSum(Merge):
    """A sum of floating-point numbers, in the two tiers of ``wide_sums``."""

    parts = ("high", "low")

    def __init__(self, uid: str, name: str, kind: AnySerializer) -> None:
        super().__init__(uid, name, {"": kind})

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        doubles = rows.column.cast(pa.float64(), safe=False)
        return [rows.of(tier).sums() for tier in tiers_of(doubles)]

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return _summed(parts, numbers, keys)

    def merge(self, held: Columns, parts: Columns) -> Columns:
        tiers = zip(self.parts_of(held), parts, strict=True)
        total, overflowed = joined(*(added(old, new) for old, new in tiers))
        found = total.cast(self.types[0])
        if overflowed or _became_infinite(total, found):
            raise self._overflow("double")
        return [found]

    def parts_of(self, held: Columns) -> Columns:
        return list(tiers_of(held[0].cast(pa.float64())))


class DecimalSum(Merge):
    """A sum of decimals; the batch has null for a sum of more than 38 digits."""

    parts = ("sum", "count")

    def __init__(self, uid: str, name: str, kind: AnySerializer) -> None:
        super().__init__(uid, name, {"": kind})

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        if pa.types.is_integer(rows.column.type):
            rows = rows.of(rows.column.cast(pa.int64()).cast(pa.decimal128(DIGITS)))
        return [rows.decimal_sums(), rows.present.counts()]

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        sums, counts = (RowsOfKeys(numbers, keys, part) for part in parts)
        is_too_large = pc.and_(sums.column.is_null(), pc.greater(counts.column, 0))
        fits = pc.equal(sums.where(is_too_large).counts(), 0)
        total = sums.decimal_sums()
        return [pc.if_else(fits, total, pa.scalar(None, total.type)), counts.sums()]

    def merge(self, held: Columns, parts: Columns) -> Columns:
        new, counts = parts
        if pc.any(pc.and_(new.is_null(), pc.greater(counts, 0))).as_py():
            raise self._overflow("double")
        scale = max(new.type.scale, largest_scale(held[0]))
        try:
            old = decimals_of(held[0], scale)
            wide = pa.decimal256(DIGITS + 1, scale)
            total = pc.coalesce(
                pc.add(old.cast(wide), new.cast(wide)), old.cast(wide), new.cast(wide)
            )
            return [total.cast(pa.decimal128(DIGITS, scale))]
        except pa.ArrowInvalid:
            raise self._overflow("double") from None

    def parts_of(self, held: Columns) -> Columns:
        return [held[0], held[0].is_valid().cast(pa.int64())]


class Extreme(Merge):
    """The smallest or the largest value; NaN is the largest number."""

    parts = ("value",)

    def __init__(self, uid: str, name: str, kind: AnySerializer, *, largest: bool) -> None:
        super().__init__(uid, name, {"": kind})
        self.largest = largest

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        return [rows.extremes(largest=self.largest)]

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return self._reduced(RowsOfKeys(numbers, keys, parts[0]))

    def merge(self, held: Columns, parts: Columns) -> Columns:
        old, new = self._comparable(held[0], parts[0])
        better = beyond(new, old, largest=self.largest)
        take = pc.and_(new.is_valid(), pc.or_(old.is_null(), better))
        return [pc.if_else(take, new, old)]


class ByOrder(Merge):
    """The value with the smallest or largest order, and that order.

    Args:
        uid: The uid of the operator, for errors.
        name: The name of the aggregate.
        kind: The type of the value.
        order: The type of the order.
        largest: Whether the largest order counts.
        skips_nulls: Whether rows without a value are passed over.
    """

    parts = ("value", "order")

    def __init__(
        self,
        uid: str,
        name: str,
        kind: AnySerializer,
        order: AnySerializer,
        *,
        largest: bool,
        skips_nulls: bool,
    ) -> None:
        super().__init__(uid, name, {"": kind, ORDER_SUFFIX: order})
        self.largest = largest
        self._skips_nulls = skips_nulls

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        best = rows.present if self._skips_nulls else rows
        best = best.where(best.orders[0].is_valid()).best(largest=self.largest)
        return [best.at_keys(best.column), best.at_keys(best.orders[0])]

    def merge(self, held: Columns, parts: Columns) -> Columns:
        old, new = self._comparable(held[0], parts[0])
        old_order, new_order = self._comparable(held[1], parts[1])
        better = beyond(new_order, old_order, largest=self.largest)
        equal = pc.invert(pc.or_(better, beyond(old_order, new_order, largest=self.largest)))
        # Among rows with the same order, null is the smallest value.
        gone, came = (new, old) if not self.largest else (old, new)
        by_value = pc.or_(
            beyond(new, old, largest=self.largest), pc.and_(gone.is_null(), came.is_valid())
        )
        take = pc.and_(
            new_order.is_valid(),
            pc.or_(old_order.is_null(), pc.or_(better, pc.and_(equal, by_value))),
        )
        return [pc.if_else(take, new, old), pc.if_else(take, new_order, old_order)]


class ByBatch(Merge):
    """The first or the last value, batch by batch; within a batch, by the columns of an order.

    Args:
        uid: The uid of the operator, for errors.
        name: The name of the aggregate.
        kind: The type of the value.
        orders: How many columns the order has.
        last: Whether the last value counts.
    """

    def __init__(
        self, uid: str, name: str, kind: AnySerializer, *, orders: int, last: bool
    ) -> None:
        super().__init__(uid, name, {"": kind})
        self.parts = ("value", *(f"order{at}" for at in range(orders)))  # type: ignore[misc]
        self._last = last

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        best = rows.present.best(largest=self._last)
        return [best.at_keys(column) for column in (best.column, *best.orders)]

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return self._reduced(RowsOfKeys(numbers, keys, parts[0], parts[1:]))

    def merge(self, held: Columns, parts: Columns) -> Columns:
        old, new = self._comparable(held[0], parts[0])
        winner, other = (new, old) if self._last else (old, new)
        return [pc.if_else(winner.is_valid(), winner, other)]


class Average(Merge):
    """A sum and the number of its values."""

    def __init__(self, uid: str, name: str, total: Merge) -> None:
        self.total, self.count = total, CountMerge(uid, f"{name}_count")
        self.uid, self.name = uid, name
        self.parts = (*total.parts, "values")  # type: ignore[misc]  # by what is added up
        self.states = (*total.states, *self.count.states)
        self.types = [*total.types, *self.count.types]

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        return [*self.total.reduced(rows), *self.count.reduced(rows)]

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return [
            *self.total.joined(parts[:-1], numbers, keys),
            *self.count.joined(parts[-1:], numbers, keys),
        ]

    def merge(self, held: Columns, parts: Columns) -> Columns:
        return [
            *self.total.merge(held[:1], parts[:-1]),
            *self.count.merge(held[1:], parts[-1:]),
        ]

    def parts_of(self, held: Columns) -> Columns:
        return [*self.total.parts_of(held[:1]), *self.count.parts_of(held[1:])]

    @property
    def final_type(self) -> pa.DataType:
        return pa.float64()

    def final(self, held: Columns) -> pa.Array:
        total, count = held
        # If the count is 0, the sum is null.
        return pc.divide(_doubles(total), count.cast(pa.float64()))


class Moments(Merge):
    """Count, mean and the sum of squared distances from it, merged by Chan's rule.

    A batch has them for each tier of ``wide_sums``, scaled in the upper one, and the sum of the
    values that are not finite. With such a value the mean is their sum, and there is no distance.
    """

    parts = ("count", "mean", "m2", "high_count", "high_mean", "high_m2", "not_finite")

    def __init__(self, uid: str, name: str, *, root: bool) -> None:
        states: dict[str, AnySerializer] = {
            "_count": Types.LONG,
            "_mean": Types.DOUBLE,
            "_m2": Types.DOUBLE,
        }
        super().__init__(uid, name, states)
        self._root = root

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        rows = rows.of(rows.column.cast(pa.float64(), safe=False)).present
        is_finite = pc.is_finite(rows.column)
        high, low = (
            rows.of(tier).present for tier in tiers_of(pc.if_else(is_finite, rows.column, None))
        )
        high_moments = _moments_of(high)
        count = pc.subtract(rows.counts(), high_moments[0])
        not_finite = rows.where(pc.invert(is_finite)).sums()
        return [count, *_moments_of(low)[1:], *high_moments, not_finite]

    def merge(self, held: Columns, parts: Columns) -> Columns:
        old_count, old_mean, old_m2 = _moments(held)
        count, mean, m2 = _moments(parts[:3])
        high_count, high_mean, high_m2 = _moments(parts[3:6])
        old_is_finite = np.isfinite(old_mean)
        not_finite = parts[6].is_valid().to_numpy(zero_copy_only=False) | ~old_is_finite
        with np.errstate(invalid="ignore", over="ignore"):
            extra = np.where(old_is_finite, 0.0, old_mean) + _floats(parts[6])
            total = (old_count, np.where(old_is_finite, old_mean, 0.0), old_m2)
            total = _both(total, (count, mean, m2))
            total = _both(total, (high_count, high_mean * SCALE, high_m2 * SCALE * SCALE))
        counts = total[0]
        means = np.where(not_finite, extra, total[1])
        distances = np.where(not_finite, np.nan, total[2])
        there = pa.array(counts > 0)
        return [pc.if_else(there, pa.array(each), None) for each in (counts, means, distances)]

    def parts_of(self, held: Columns) -> Columns:
        mean = held[1]
        not_finite = pc.if_else(pc.is_finite(mean), pa.scalar(None, pa.float64()), mean)
        finite = pc.if_else(pc.is_finite(mean), mean, 0.0)
        none = [pa.nulls(len(mean), each.type) for each in held]
        return [held[0], finite, held[2], *none, not_finite]

    @property
    def final_type(self) -> pa.DataType:
        return pa.float64()

    def final(self, held: Columns) -> pa.Array:
        """The variance or standard deviation of the sample; null for a single value."""
        count, _, m2 = held
        several = pc.if_else(pc.greater(count, 1), count, None).cast(pa.float64())
        variance = pc.divide(m2, pc.subtract(several, 1.0))
        return pc.sqrt(variance) if self._root else variance


# --------------------------------------------------------------------------------- columns


_Moments = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Counts, means and sums of squared distances."""


def _moments(columns: Columns) -> _Moments:
    return _longs(columns[0]), _floats(columns[1]), _floats(columns[2])


def _summed(parts: Columns, numbers: Numbers, keys: int) -> Columns:
    return [RowsOfKeys(numbers, keys, part).sums() for part in parts]


def _moments_of(rows: RowsOfKeys) -> Columns:
    """Count, mean and sum of squared distances of finite doubles; no mean without a value."""
    count = rows.counts()
    mean = pc.divide(rows.sums(), count.cast(pa.float64()))
    distance = pc.subtract(rows.column, mean.take(pa.array(rows.numbers)))
    return [count, mean, rows.of(pc.multiply(distance, distance)).sums()]


def _both(one: _Moments, other: _Moments) -> _Moments:
    """The moments of the values of both, by Chan's rule. A difference of means may overflow."""
    (n, mean, m2), (new, new_mean, new_m2) = one, other
    total = n + new
    some = np.maximum(total, 1)
    delta = new_mean - mean
    moved = np.where(
        np.isfinite(delta),
        mean + delta * (new / some),
        mean * (n / some) + new_mean * (new / some),
    )
    both = (n > 0) & (new > 0)
    between = np.where(both, delta * (n * (new / some)) * delta, 0.0)
    return total, np.where(both, moved, np.where(n > 0, mean, new_mean)), m2 + new_m2 + between


def _floats(column: pa.Array) -> npt.NDArray[np.float64]:
    found: npt.NDArray[np.float64] = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
    return found


def _longs(column: pa.Array) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(
        zero_copy_only=False
    )
    return found


def beyond(one: pa.Array, other: pa.Array, *, largest: bool) -> pa.Array:
    """Whether ``one`` is larger, or smaller, than ``other``; false if one of them is null."""
    if not largest:
        one, other = other, one
    larger = pc.greater(one, other)
    if pa.types.is_floating(one.type):
        larger = pc.or_(larger, pc.and_not(pc.is_nan(one), pc.is_nan(other)))
    return pc.fill_null(larger, False)


def _became_infinite(numbers: pa.Array, narrow: pa.Array) -> bool:
    """Whether a cast to floats of less range made a number infinite."""
    if numbers.type == narrow.type or not pa.types.is_floating(numbers.type):
        return False
    lost = pc.and_(pc.is_finite(numbers), pc.invert(pc.is_finite(narrow)))
    return bool(pc.any(lost).as_py())


def _doubles(numbers: pa.Array) -> pa.Array:
    """Converts numbers of any type to doubles."""
    if numbers.type == BIG_DECIMAL:
        largest = pc.max(pc.struct_field(numbers, "scale")).as_py()
        numbers = decimals_of(numbers, largest or 0)
    return numbers.cast(pa.float64(), safe=False)
