"""Column buffers that a kernel fills, converted to Arrow arrays.

The room for text and list items is the most that the bytes of a batch can hold, or what earlier
batches needed. The kernel asks for more if that is too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.columnar.types.layouts import (
    Fixed,
    Layout,
    NoColumn,
    Repeated,
    Variable,
    Wrapper,
)
from dstl_core.codec.columnar.types.program import FIELDS, Field, Int64s
from dstl_core.errors import InvariantViolation

SPILL = 16
"""Number of bytes after the capacity of a data buffer that a kernel may write."""
_LEAST_BYTES = 256


class Allocator(Protocol):
    """Allocates buffers. The damage tests use one with guarded memory."""

    def allocate(self, size: int) -> pa.Buffer: ...

    def grow(self, buffer: pa.Buffer, size: int) -> pa.Buffer:
        """A larger buffer with the same content."""
        ...


class ArrowAllocator:
    """Allocates buffers from Arrow's memory pool."""

    def allocate(self, size: int) -> pa.Buffer:
        return pa.allocate_buffer(max(size, 8), resizable=True)

    def grow(self, buffer: pa.Buffer, size: int) -> pa.Buffer:
        buffer.resize(max(size, 8))
        return buffer


@dataclass(slots=True)
class _OutputColumn:
    """Buffers of one layout.

    ``values`` are offsets if values vary in size. ``limit`` bounds the data of text and bytes, or
    the items of a list.
    """

    layout: Layout
    values: pa.Buffer | None = None
    valid: pa.Buffer | None = None
    data: pa.Buffer | None = None
    limit: int = 0


@dataclass
class Densities:
    """Bytes or items per byte of input that each column has needed so far."""

    seen: dict[int, float] = field(default_factory=dict)

    def guess(self, column: int, most: int, input_bytes: int) -> int:
        """Room for a batch: at most ``most``, which is always enough for ASCII."""
        if column not in self.seen:
            return most if most <= 1 << 20 else most // 4
        return min(most, int(self.seen[column] * input_bytes) + _LEAST_BYTES)

    def note(self, column: int, used: int, input_bytes: int) -> None:
        needed = 1.1 * used / max(1, input_bytes)
        self.seen[column] = max(self.seen.get(column, 0.0), needed)


class OutputColumns:
    """Buffers for ``rows`` values of some layouts.

    Args:
        roots: The layouts of a program; those outside ``wanted`` get no buffers.
        rows: Number of values of each root.
        input_bytes: Total bytes of all values.
    """

    def __init__(
        self,
        roots: Sequence[Layout],
        wanted: Iterable[int],
        columns: int,
        rows: int,
        input_bytes: int,
        densities: Densities,
        allocator: Allocator,
    ) -> None:
        self._allocator = allocator
        self._densities = densities
        self._input_bytes = input_bytes
        self._columns: dict[int, _OutputColumn] = {}
        self.table: Int64s = np.zeros((columns, FIELDS), np.int64)
        self._rows = rows
        for index in wanted:
            self._add(roots[index], rows)

    # --------------------------------------------------------------------------- allocation

    def _add(self, layout: Layout, capacity: int) -> None:
        match layout:
            case NoColumn():
                return
            case Wrapper():
                self._add(layout.inner, capacity)
                return
            case Fixed():
                column = _OutputColumn(layout, self._allocator.allocate(capacity * layout.width))
            case Variable():
                column = _OutputColumn(layout, self._offsets(capacity))
                self._add_data(column)
            case Repeated():
                column = _OutputColumn(layout, self._offsets(capacity))
                column.limit = self._items(layout, capacity)
                self._add(layout.item, column.limit)
            case _:
                column = _OutputColumn(layout)
                for part in layout.parts:
                    self._add(part, capacity)
        if layout.nullable:
            column.valid = self._allocator.allocate(capacity)
        self._columns[layout.column] = column
        self._describe(column)

    def _offsets(self, capacity: int) -> pa.Buffer:
        buffer = self._allocator.allocate(4 * (capacity + 1))
        _view(buffer, np.int32)[0] = 0
        return buffer

    def _add_data(self, column: _OutputColumn) -> None:
        most = self._input_bytes
        column.limit = self._densities.guess(column.layout.column, most, self._input_bytes)
        column.data = self._allocator.allocate(column.limit + SPILL)

    def _items(self, layout: Repeated, capacity: int) -> int:
        most = self._input_bytes // layout.item_bytes + capacity
        return self._densities.guess(layout.column, most, self._input_bytes)

    def _describe(self, column: _OutputColumn) -> None:
        number = column.layout.column
        row = self.table[number]
        row[Field.VALUES] = column.values.address if column.values is not None else 0
        row[Field.VALID] = column.valid.address if column.valid is not None else 0
        row[Field.DATA] = column.data.address if column.data is not None else 0
        row[Field.LIMIT] = column.limit
        row[Field.EXTRA] = number
        row[Field.WANTED] = 1

    def grow(self, number: int, needed: int) -> None:
        """Enlarges one column to ``needed`` bytes of data or items."""
        column = self._columns[number]
        room = max(needed, 2 * column.limit)
        if column.data is not None:
            column.data = self._allocator.grow(column.data, room + SPILL)
        elif isinstance(column.layout, Repeated):
            self._grow_level(column.layout.item, room)
        else:
            raise InvariantViolation(f"column {number} cannot grow")
        column.limit = room
        self._describe(column)

    def _grow_level(self, layout: Layout, capacity: int) -> None:
        """Makes room for more values of a layout, but not for more items of its lists."""
        match layout:
            case NoColumn():
                return
            case Wrapper():
                self._grow_level(layout.inner, capacity)
                return
            case Repeated():
                pass
            case _:
                for part in layout.parts:
                    self._grow_level(part, capacity)
        column = self._columns[layout.column]
        if column.values is not None:
            width = layout.width if isinstance(layout, Fixed) else 4
            size = width * (capacity + (0 if isinstance(layout, Fixed) else 1))
            column.values = self._allocator.grow(column.values, size)
        if column.valid is not None:
            column.valid = self._allocator.grow(column.valid, capacity)
        self._describe(column)

    # ----------------------------------------------------------------------------- results

    def finish(self, root: Layout) -> pa.Array:
        """The array of a wanted root."""
        return self._finish(root, self._rows)

    def _finish(self, layout: Layout, length: int) -> pa.Array:
        match layout:
            case NoColumn():
                return pa.nulls(length)
            case Wrapper():
                return self._finish(layout.inner, length)
        column = self._columns[layout.column]
        bitmap, nulls = _bitmap(column.valid, length)
        if isinstance(layout, Fixed):
            return layout.to_arrow(
                length, bitmap, _cut(column.values, length * layout.width), nulls
            )
        buffers = [bitmap]
        children: list[pa.Array] = []
        if column.values is not None:
            end = int(_view(column.values, np.int32)[length])
            self._densities.note(layout.column, end, self._input_bytes)
            buffers.append(_cut(column.values, 4 * (length + 1)))
            if column.data is not None:
                buffers.append(_cut(column.data, end))
            elif isinstance(layout, Repeated):
                children = [self._finish(layout.item, end)]
        else:
            children = [self._finish(part, length) for part in layout.parts]
        return pa.Array.from_buffers(layout.arrow_type, length, buffers, nulls, 0, children or None)


def _view(buffer: pa.Buffer, kind: Any) -> npt.NDArray[Any]:
    return np.frombuffer(buffer, kind)


def _cut(buffer: pa.Buffer | None, size: int) -> pa.Buffer:
    return pa.py_buffer(b"") if buffer is None else buffer.slice(0, size)


def _bitmap(valid: pa.Buffer | None, length: int) -> tuple[pa.Buffer | None, int]:
    """Arrow's validity bitmap, or None without nulls, and the number of nulls."""
    if valid is None:
        return None, 0
    flags = _view(valid, np.uint8)[:length]
    nulls = length - int(np.count_nonzero(flags))
    if nulls == 0:
        return None, 0
    return pa.py_buffer(np.packbits(flags, bitorder="little")), nulls
