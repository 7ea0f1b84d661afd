"""Layouts of numbers, dates and enums."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dstl_core.codec.columnar.kernels import instructions as i
from dstl_core.codec.columnar.types.layouts import (
    Fixed,
    Layout,
    Nullable,
    PartsLayout,
    Struct,
    Variable,
)
from dstl_core.codec.columnar.types.program import Code, Field, Word
from dstl_core.codec.serializers.structs import ROW_KINDS


class BigInt(Variable):
    """Two's complement, big-endian."""

    def __init__(self, *, nullable: bool) -> None:
        super().__init__(pa.binary(), i.BIG_INT, 0 if nullable else 1)
        self.nullable = nullable


def big_decimal() -> Layout:
    """Unscaled value and scale; length 0 is null, without a scale."""
    parts = [("unscaled", BigInt(nullable=False)), ("scale", Fixed(pa.int32(), i.COPY4, 4))]
    return Nullable(Struct(parts), i.ZERO_IS_NULL)


class Decimal(Fixed):
    """An unscaled value in 16 bytes."""

    def __init__(self, precision: int, scale: int, how: int) -> None:
        super().__init__(pa.decimal128(precision, scale), i.DECIMAL, 16, how)


class Names(Fixed):
    """A number that represents a text."""

    def __init__(self, names: Sequence[str], op: int, width: int, how: int = 0) -> None:
        super().__init__(pa.string(), op, width, how)
        self.names = list(names)

    def to_arrow(
        self, length: int, bitmap: pa.Buffer | None, values: pa.Buffer, nulls: int
    ) -> pa.Array:
        index = pa.int8() if self.width == 1 else pa.int32()
        numbers = pa.Array.from_buffers(index, length, [bitmap, values], nulls)
        return pa.array(self.names, pa.string()).take(numbers)


class RowKind(Names):
    """The kind of a row; the layout of the row reads and writes it."""

    def __init__(self) -> None:
        super().__init__(ROW_KINDS, i.COPY1, 1)

    def emit(self, code: Code) -> None:
        pass


class Time(Fixed):
    """Microseconds (or milliseconds) in one column."""

    def __init__(self, arrow_type: pa.DataType, how: int, *, nullable: bool) -> None:
        super().__init__(arrow_type, i.TIMESTAMP, 8, how)
        self.nullable = nullable


class SecondsNanos(PartsLayout):
    """Seconds and nanoseconds in two columns, which hold every value of every type of time."""

    def __init__(self, how: int, *, nullable: bool) -> None:
        self._seconds = Fixed(pa.int64(), i.COPY8, 8)
        self._nanos = Fixed(pa.int32(), i.COPY4, 4)
        self._how = how | i.TIME_EXACT
        self.nullable = nullable
        super().__init__([("seconds", self._seconds), ("nanos", self._nanos)])

    def emit(self, code: Code) -> None:
        self.emit_as(code, i.TIMESTAMP, self.nanos_operand, 8, self._how)

    def emit_as(self, code: Code, op: int, *middle: Word) -> None:
        """Adds an instruction that fills both columns; ``middle`` are its words 3 to 6."""
        words: list[Word] = [*middle, 0, 0, 0, 0][:4]
        values, valid = self._seconds.operand(Field.VALUES), self.operand(Field.VALID)
        code.emit(op, values, valid, *words, self.operand(Field.EXTRA))

    @property
    def nanos_operand(self) -> Word:
        return self._nanos.operand(Field.VALUES)


def time_layout(
    how: int, *, exact: bool, nullable: bool, utc: bool = False, coarse: bool = False
) -> Layout:
    """The layout of a type of time.

    Args:
        how: One of ``TIME_*``.
        exact: Whether the column must hold every value.
        nullable: Whether the type has a byte pattern for null.
        utc: Whether it is a point in time, not a local time.
        coarse: Whether microseconds hold every value (except years beyond 290,000).
    """
    zone = "UTC" if utc else None
    if how == i.TIME_MS:
        unit = "ms" if exact else "us"
        flag = i.TIME_EXACT if exact else 0
        return Time(pa.timestamp(unit, zone), how | flag, nullable=nullable)
    if exact and not coarse:
        return SecondsNanos(how, nullable=nullable)
    return Time(pa.timestamp("us", zone), how, nullable=nullable)
