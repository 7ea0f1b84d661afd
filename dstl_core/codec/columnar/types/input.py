"""Prepares Arrow arrays for a kernel: addresses of values, offsets, data and validity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.layouts import (
    Bool,
    Fixed,
    Layout,
    NoColumn,
    Repeated,
    Variable,
    Wrapper,
)
from dstl_core.codec.columnar.types.parts import KEY, USER_KEY
from dstl_core.codec.columnar.types.program import FIELDS, Field, Int64s
from dstl_core.codec.columnar.types.sql_layouts import SlotBool, SlotLayout
from dstl_core.codec.columnar.types.value_layouts import Names
from dstl_core.errors import ColumnValueError

_KEYS = (KEY, USER_KEY)
_NOTHING = np.zeros(16, np.uint8)
"""Stands in for a buffer that Arrow omits."""

NO_FIT = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    pa.ArrowCapacityError,
)
"""What Arrow says of values and types that do not fit. Its other errors are not about values, for
example memory that ran out.
"""

Column: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"


def one_array(column: Column) -> pa.Array:
    array_of_chunks: Any = (
        column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    )
    return array_of_chunks


class InputColumns:
    """The columns of some layouts; keeps their memory alive.

    Args:
        layouts: Registered layouts of a program, by the name of their column. In layouts of keys,
            every NaN is replaced by Java's NaN, because keys are compared by their bytes.
        arrays: One column each, of the same length. Its type is that of the layout or casts to it.
        columns: Number of columns of the program.

    Raises:
        ColumnValueError: A column has another type, or is damaged.
    """

    def __init__(
        self, layouts: Mapping[str, Layout], arrays: Sequence[pa.Array], columns: int
    ) -> None:
        self.table: Int64s = np.zeros((columns, FIELDS), np.int64)
        self.bytes = 0
        self._kept: list[Any] = []
        for (name, layout), array in zip(layouts.items(), arrays, strict=True):
            self._is_key = name in _KEYS
            if not isinstance(layout, NoColumn):
                what = "The key" if name == KEY else "A column"
                column = as_type(array, layout.arrow_type, what)
                self.bytes += column.nbytes
                self._add(layout, column)

    def _add(self, layout: Layout, array: pa.Array) -> None:
        if isinstance(layout, NoColumn):
            return
        if isinstance(layout, Wrapper):
            self._add(layout.inner, array)
            return
        row = self.table[layout.column]
        row[Field.EXTRA] = layout.column
        row[Field.WANTED] = 1
        self._kept.append(array)
        if array.null_count:
            row[Field.VALID] = self._array(_bits(array.buffers()[0], array.offset, len(array)))
        match layout:
            case Fixed():
                row[Field.VALUES] = self._values(layout, array)
            case Variable():
                row[Field.VALUES] = self._offsets(array)
                data = array.buffers()[2]
                row[Field.DATA] = self._address(data)
                row[Field.LIMIT] = data.size if data is not None else len(_NOTHING)
            case Repeated():
                row[Field.VALUES] = self._offsets(array)
                self._add(layout.item, array.values)
            case _:
                for at, part in enumerate(layout.parts):
                    self._add(part, array.field(at))

    def _values(self, layout: Fixed, array: pa.Array) -> int:
        if isinstance(layout, Names):
            return self._array(_numbers(layout, array))
        buffer = array.buffers()[1]
        if isinstance(layout, Bool | SlotBool):
            if buffer is None:
                return self._address(None)
            return self._array(_bits(buffer, array.offset, len(array)))
        if self._is_key and not isinstance(layout, SlotLayout):
            canonical = _with_one_nan(array)
            if canonical is not None:
                return self._array(canonical)
        return self._address(buffer) + int(array.offset) * layout.width

    def _offsets(self, array: pa.Array) -> int:
        return self._address(array.buffers()[1]) + 4 * int(array.offset)

    def _array(self, values: Any) -> int:
        self._kept.append(values)
        return address_of(values) if len(values) else address_of(_NOTHING)

    def _address(self, buffer: pa.Buffer | None) -> int:
        if buffer is None or buffer.size == 0:
            return address_of(_NOTHING)
        return address_of(np.frombuffer(buffer, np.uint8))


def as_type(array: pa.Array, wanted: pa.DataType, what: str = "A column") -> pa.Array:
    """Casts an array to a type and validates its buffers: later code does not check offsets and
    text.

    Raises:
        ColumnValueError: The type is another one, or a buffer is damaged. The message begins with
            ``what``.
    """
    try:
        if not array.type.equals(wanted):
            array = array.cast(wanted)
        array.validate(full=True)
    except NO_FIT as error:
        if "UTF8" in str(error):
            raise ColumnValueError(
                f"{what} cannot be written: it has text that is not UTF-8 ({error}); replace such "
                f"bytes (in Spark, make_valid_utf8), or cast the column to binary."
            ) from error
        raise ColumnValueError(
            f"{what} cannot be written: expected {wanted}, got {array.type} ({error})."
        ) from error
    return array


def _with_one_nan(array: pa.Array) -> Any | None:
    """Replaces every NaN of a floating-point column by Java's NaN; returns None if nothing
    changes.
    """
    kind = {pa.float32(): np.float32, pa.float64(): np.float64}.get(array.type)
    buffer = array.buffers()[1]
    if kind is None or buffer is None:
        return None
    values = np.frombuffer(buffer, kind)[array.offset : array.offset + len(array)]
    is_nan = np.isnan(values)
    if not is_nan.any():
        return None
    changed = values.copy()
    changed[is_nan] = np.nan
    return changed


def _bits(buffer: pa.Buffer, offset: int, length: int) -> Any:
    """Converts bits to bytes 0 and 1."""
    first = offset // 8
    raw = np.frombuffer(buffer, np.uint8)[first : (offset + length + 7) // 8]
    return np.unpackbits(raw, bitorder="little")[offset % 8 : offset % 8 + length]


def _numbers(layout: Names, array: pa.Array) -> Any:
    """Converts texts to the numbers that stand for them; null becomes 0."""
    numbers = pc.index_in(array, pa.array(layout.names, pa.string()))
    strangers = numbers.null_count - array.null_count
    if strangers:
        known = ", ".join(layout.names)
        raise ColumnValueError(
            f"A column has {strangers} names that its type does not have; expected: {known}."
        )
    kind = np.int8 if layout.width == 1 else np.int32
    return numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(kind)
