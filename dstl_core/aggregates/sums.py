"""Sums and averages of whole numbers, floating-point numbers and decimals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.aggregates.aggregate import Kept, Typed
from dstl_core.aggregates.aggregate_merge import (
    Columns,
    Merge,
    became_infinite,
    int64s_of,
    summed,
)
from dstl_core.aggregates.column_checks import FLOATING, NUMBERS, WHOLE, adds_up, check_number
from dstl_core.aggregates.counts import CountMerge
from dstl_core.aggregates.rows_of_keys import HALF, LOW, Numbers, RowsOfKeys, longs_of
from dstl_core.aggregates.wide_sums import added, joined, tiers_of
from dstl_core.codec.columnar.types.java_decimals import (
    BIG_DECIMAL,
    DIGITS,
    decimals_of,
    largest_scale,
)
from dstl_core.codec.declared_type import TypeLike
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError


class OfNumbers(Typed):
    """An aggregate that adds up numbers, in a type that is declared."""

    takes = NUMBERS

    def check_declared(self, where: str, field: pa.Field, kinds: Sequence[AnySerializer]) -> None:
        super().check_declared(where, field, kinds)
        [state] = kinds
        if not adds_up(field.type, state):
            raise ConfigError(
                f"{where} has the type {state.type_name}, and the schema has {field.type} for the "
                f"column {field.name!r}; declare another type, or cast the column."
            )


@dataclass(frozen=True)
class sum(OfNumbers):
    """The sum. One that does not fit its type fails the epoch and names the state.

    Args:
        column: Numbers.
        type: ``"bigint"``, ``"double"``, ``"decimal(38, 2)"``, ..; by the schema: the widest of
            the column's kind.
    """

    column: str
    type: TypeLike | None = None
    of_keys: ClassVar = "sum"
    example: ClassVar = {"column": "amount", "type": "bigint"}

    @property
    def kept(self) -> tuple[Kept, ...]:
        return (Kept(self.column, self.type, widest=True),)

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        [kind] = kinds
        return sum_of(uid, name, kind)


@dataclass(frozen=True)
class avg(OfNumbers):
    """The average, as ``<name>_sum`` and ``<name>_count``.

    Args:
        column: Numbers.
        type: Of the sum; ``"double"`` by default.
    """

    column: str
    type: TypeLike | None = None
    of_keys: ClassVar = "sum"
    example: ClassVar = {"column": "amount", "type": "double"}

    @property
    def kept(self) -> tuple[Kept, ...]:
        return (Kept(self.column, "double" if self.type is None else self.type),)

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        [kind] = kinds
        return Average(uid, name, sum_of(uid, f"{name}_sum", kind))


def sum_of(uid: str, state: str, kind: AnySerializer) -> Merge:
    """The merge of a sum with a type.

    Raises:
        ConfigError: It is not the type of a number.
    """
    if kind in WHOLE:
        return WholeSum(uid, state, kind)
    if kind in FLOATING:
        return FloatSum(uid, state, kind)
    if kind == Types.BIG_DEC:
        return DecimalSum(uid, state, kind)
    raise ConfigError(
        f"The state {state!r} adds up numbers: expected the type of a whole number, a float, a "
        f"double or a decimal, got {kind.type_name}."
    )


class NumberMerge(Merge):
    """A merge of numbers that are added up."""

    def check(self, fields: Sequence[pa.Field]) -> None:
        check_number(self.where, fields[0], self.kinds[0])


class WholeSum(NumberMerge):
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
        return summed(parts, numbers, keys)

    def merge(self, held: Columns, parts: Columns) -> Columns:
        has_sum = pc.or_(held[0].is_valid(), parts[1].is_valid())
        old, high, low = (int64s_of(each) for each in (held[0], *parts))
        low = low + (old & LOW)
        high = high + (old >> HALF) + (low >> HALF)
        if len(high) and (high.min() < -(1 << 31) or high.max() >= 1 << 31):
            raise self._overflow()
        total = pa.array((high << HALF) | (low & LOW))
        try:
            sums = total.cast(self.types[0])
        except pa.ArrowInvalid:
            raise self._overflow() from None
        return [pc.if_else(has_sum, sums, None)]

    def parts_of(self, held: Columns) -> Columns:
        longs = held[0].cast(pa.int64())
        return [pc.shift_right(longs, HALF), pc.bit_wise_and(longs, LOW)]


class FloatSum(NumberMerge):
    """A sum of floating-point numbers, in the two tiers of ``wide_sums``."""

    parts = ("high", "low")

    def __init__(self, uid: str, name: str, kind: AnySerializer) -> None:
        super().__init__(uid, name, {"": kind})

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        doubles = rows.column.cast(pa.float64(), safe=False)
        return [rows.of(tier).sums() for tier in tiers_of(doubles)]

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return summed(parts, numbers, keys)

    def merge(self, held: Columns, parts: Columns) -> Columns:
        tiers = zip(self.parts_of(held), parts, strict=True)
        total, overflowed = joined(*(added(old, new) for old, new in tiers))
        sums = total.cast(self.types[0])
        if overflowed or became_infinite(total, sums):
            raise self._overflow("double")
        return [sums]

    def parts_of(self, held: Columns) -> Columns:
        return list(tiers_of(held[0].cast(pa.float64())))


class DecimalSum(NumberMerge):
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
            try:
                return [_added(old, new, pa.decimal128(DIGITS - 1, scale))]
            except pa.ArrowInvalid:  # a number has 38 digits
                return [_added(old, new, pa.decimal256(DIGITS + 1, scale))]
        except pa.ArrowInvalid:
            raise self._overflow("double") from None

    def parts_of(self, held: Columns) -> Columns:
        return [held[0], held[0].is_valid().cast(pa.int64())]


def _added(old: pa.Array, new: pa.Array, kind: pa.DataType) -> pa.Array:
    """The sums of decimals that are added as one type; null is nothing.

    Raises:
        pa.ArrowInvalid: A number or a sum does not fit.
    """
    old, new = old.cast(kind), new.cast(kind)
    total = pc.coalesce(pc.add(old, new), old, new)
    return total.cast(pa.decimal128(DIGITS, kind.scale))


class Average(NumberMerge):
    """A sum and the number of its values."""

    def __init__(self, uid: str, name: str, total: Merge) -> None:
        self.total, self.count = total, CountMerge(uid, f"{name}_count")
        self.uid, self.name = uid, name
        self.parts = (*total.parts, "values")  # type: ignore[misc]  # by what is added up
        self.states = (*total.states, *self.count.states)
        self.types = [*total.types, *self.count.types]
        self.kinds = total.kinds

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


def _doubles(numbers: pa.Array) -> pa.Array:
    if numbers.type == BIG_DECIMAL:
        largest = pc.max(pc.struct_field(numbers, "scale")).as_py()
        numbers = decimals_of(numbers, largest or 0)
    return numbers.cast(pa.float64(), safe=False)
