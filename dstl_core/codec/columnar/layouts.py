"""Building blocks of types: how bytes and columns correspond.

A layout says how a value lies in bytes (``emit``) and which Arrow column it is. Every Flink type is
made of a few of them, in ``type_layouts``; both directions follow from the one description.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar import instructions as i
from dstl_core.codec.columnar.program import Code, Field, Label, Operand


class Layout(ABC):
    """A value in bytes and as a column. A tree of layouts belongs to one program.

    ``nullable`` is set by whoever can leave the value out; ``column`` when the tree is registered.
    """

    arrow_type: pa.DataType
    nullable: bool = False
    column: int = -1

    @property
    def parts(self) -> Sequence[Layout]:
        """The layouts inside, in the order of their columns."""
        return ()

    def register(self, code: Code) -> None:
        """Numbers the columns of the tree, before anything is emitted."""
        self.column = code.add_column()
        for part in self.parts:
            part.register(code)

    @abstractmethod
    def emit(self, code: Code) -> None:
        """Adds the instructions for one value."""

    @abstractmethod
    def emit_null(self, code: Code) -> None:
        """Adds the instructions that append a null without touching bytes."""

    def operand(self, field: Field) -> Operand:
        return Operand(self.column, field)

    def operands(self, *middle: int | Operand | Label) -> list[int | Operand | Label]:
        """The seven operands of an instruction on this column; ``middle`` are words 3 to 6."""
        rest = [*middle, 0, 0, 0, 0][:4]
        return [
            self.operand(Field.VALUES),
            self.operand(Field.VALID),
            *rest,
            self.operand(Field.EXTRA),
        ]


class Fixed(Layout):
    """A value of fixed size in the column; ``op`` reads and writes it."""

    def __init__(self, arrow_type: pa.DataType, op: int, width: int) -> None:
        self.arrow_type = arrow_type
        self.width = width
        self._op = op

    def emit(self, code: Code) -> None:
        code.emit(self._op, *self.operands(0, self.width))

    def emit_null(self, code: Code) -> None:
        code.emit(i.NULL_FIXED, *self.operands(0, self.width))

    def to_arrow(
        self, length: int, bitmap: pa.Buffer | None, values: pa.Buffer, nulls: int
    ) -> pa.Array:
        """The array of decoded values."""
        return pa.Array.from_buffers(self.arrow_type, length, [bitmap, values], nulls)


class Bool(Fixed):
    """A byte in the bytes, a bit in the column."""

    def __init__(self) -> None:
        super().__init__(pa.bool_(), i.BOOL, 1)

    def to_arrow(
        self, length: int, bitmap: pa.Buffer | None, values: pa.Buffer, nulls: int
    ) -> pa.Array:
        flags = np.frombuffer(values, np.uint8)[:length]
        bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
        return pa.Array.from_buffers(self.arrow_type, length, [bitmap, bits], nulls)


class Variable(Layout):
    """Text or bytes: offsets and data."""

    def __init__(self, arrow_type: pa.DataType, op: int, how: int = 0) -> None:
        self.arrow_type = arrow_type
        self._op = op
        self._how = how

    def emit(self, code: Code) -> None:
        code.emit(
            self._op,
            *self.operands(self.operand(Field.DATA), self.operand(Field.LIMIT), self._how),
        )

    def emit_null(self, code: Code) -> None:
        code.emit(i.NULL_OFFSETS, *self.operands())


class Text(Variable):
    """Flink's string value, nullable by itself."""

    def __init__(self, *, utf16: bool) -> None:
        how = i.TEXT_UTF16 if utf16 else 0
        super().__init__(pa.binary() if utf16 else pa.string(), i.TEXT, how)
        self.nullable = True


class Marker(Layout):
    """One byte that is always the same and no column."""

    arrow_type = pa.null()

    def __init__(self, byte: int, error: int = i.BAD_MARKER) -> None:
        self._byte = byte
        self._error = error

    def register(self, code: Code) -> None:
        pass

    def emit(self, code: Code) -> None:
        code.emit(i.MARKER, self._byte, 0, self._error)

    def emit_null(self, code: Code) -> None:
        pass


class Position(Fixed):
    """No bytes: the address that is reached. Must be wanted."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), i.POSITION, 8)


class Rest(Layout):
    """All that is left, ignored, and no column."""

    arrow_type = pa.null()

    def register(self, code: Code) -> None:
        pass

    def emit(self, code: Code) -> None:
        code.emit(i.SKIP_REST)

    def emit_null(self, code: Code) -> None:
        pass


class Struct(Layout):
    """Parts back to back. ``order`` gives the order of the columns where it is not that of the
    bytes.
    """

    def __init__(
        self, fields: Sequence[tuple[str, Layout]], order: Sequence[str] | None = None
    ) -> None:
        self._in_bytes = [layout for _, layout in fields]
        by_name = dict(fields)
        self.names = list(order or by_name)
        self._parts = [by_name[name] for name in self.names]
        self.arrow_type = pa.struct(
            [(name, part.arrow_type) for name, part in zip(self.names, self._parts, strict=True)]
        )

    @property
    def parts(self) -> Sequence[Layout]:
        return self._parts

    def emit(self, code: Code) -> None:
        if self.nullable or code.encoding:
            code.emit(i.VALID, *self.operands())
        for part in self._in_bytes:
            part.emit(code)

    def emit_null(self, code: Code) -> None:
        code.emit(i.NULL_STRUCT, *self.operands())
        for part in self._parts:
            part.emit_null(code)


class Nullable(Layout):
    """A flag byte before a value; the column is that of the value.

    Args:
        inner: The value.
        op: NULL_FLAG or PRESENT_FLAG.
        padding: Bytes that follow the flag of a null.
        skip_rest: Whether everything after the flag of a null is ignored.
    """

    def __init__(
        self, inner: Layout, op: int = i.NULL_FLAG, *, padding: int = 0, skip_rest: bool = False
    ) -> None:
        self.inner = inner
        inner.nullable = True
        self.nullable = True
        self.arrow_type = inner.arrow_type
        self._op = op
        self._padding = padding
        self._skip_rest = skip_rest

    @property
    def parts(self) -> Sequence[Layout]:
        return (self.inner,)

    def register(self, code: Code) -> None:
        self.inner.register(code)
        self.column = self.inner.column

    def emit(self, code: Code) -> None:
        present, end = Label(), Label()
        valid, extra = self.inner.operand(Field.VALID), self.inner.operand(Field.EXTRA)
        code.emit(self._op, present, valid, self._padding, 0, 0, 0, extra)
        self.inner.emit_null(code)
        if self._skip_rest:
            code.emit(i.SKIP_REST)
        code.emit(i.JUMP, end)
        code.place(present)
        self.inner.emit(code)
        code.place(end)

    def emit_null(self, code: Code) -> None:
        self.inner.emit_null(code)


class Repeated(Layout):
    """Any number of items: a list, or the entries of a map.

    Args:
        item: One item.
        item_bytes: Bytes of an item at least, for the check of the count.
        delimited: Items joined by a byte up to the end, instead of a count.
    """

    def __init__(self, item: Layout, item_bytes: int, *, delimited: bool = False) -> None:
        self.item = item
        self.item_bytes = item_bytes
        self.arrow_type = pa.list_(item.arrow_type)
        self._delimited = delimited

    @property
    def parts(self) -> Sequence[Layout]:
        return (self.item,)

    def emit(self, code: Code) -> None:
        first, loop, start = Label(), Label(), Label()
        limit = self.operand(Field.LIMIT)
        code.place(start)
        op = i.DELIMITED if self._delimited else i.LIST
        code.emit(op, *self.operands(limit, self.item_bytes, loop))
        code.place(first)
        self.item.emit(code)
        code.place(loop)
        if self._delimited:
            code.emit(i.NEXT_DELIMITED, first, 0, start)
        else:
            code.emit(i.LOOP, 0, 0, first)

    def emit_null(self, code: Code) -> None:
        code.emit(i.NULL_OFFSETS, *self.operands())


class Required(Layout):
    """A value that must not be null here, though its type allows it."""

    def __init__(self, inner: Layout) -> None:
        self.inner = inner
        self.arrow_type = inner.arrow_type

    @property
    def parts(self) -> Sequence[Layout]:
        return (self.inner,)

    def register(self, code: Code) -> None:
        self.inner.register(code)
        self.column = self.inner.column

    def emit(self, code: Code) -> None:
        self.inner.emit(code)
        if self.inner.nullable:
            code.emit(i.REQUIRE, *self.inner.operands())

    def emit_null(self, code: Code) -> None:
        self.inner.emit_null(code)


class MapOf(Repeated):
    """Entries of key and value; as an Arrow map, or as a list of structs where keys may be null."""

    def __init__(self, key: Layout, value: Layout, *, as_map: bool) -> None:
        entry = Struct([("key", Required(key) if as_map else key), ("value", value)])
        super().__init__(entry, 1)
        if as_map:
            self.arrow_type = pa.map_(key.arrow_type, value.arrow_type)
