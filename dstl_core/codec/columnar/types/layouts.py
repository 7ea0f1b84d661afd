"""Layouts: how bytes and columns of a type correspond.

A layout defines the bytes of a value (``emit``) and its Arrow column. ``type_layouts`` composes
every Flink type from layouts; decoding and encoding both follow from the one description. This
module has the common ones; ``value_layouts``, ``choice_layouts`` and ``sql_layouts`` have the
others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.kernels import instructions as i
from dstl_core.codec.columnar.types.program import Code, Field, Label, Operand, Word


class Layout(ABC):
    """A value in bytes and as a column. A tree of layouts belongs to one program.

    ``nullable`` is set by the enclosing layout if the value may be absent. ``column`` is set when
    the tree is registered. ``always_null`` is true for a type whose only value is null.
    ``metadata`` is that of the Arrow field of the column.
    """

    arrow_type: pa.DataType
    nullable: bool = False
    column: int = -1
    always_null: bool = False
    metadata: Mapping[str, str] | None = None

    @property
    def parts(self) -> Sequence[Layout]:
        """The nested layouts, in the order of their columns."""
        return ()

    def register(self, code: Code) -> None:
        """Numbers the columns of the tree. Called before any instruction is emitted."""
        self.column = code.add_column()
        for part in self.parts:
            part.register(code)

    @abstractmethod
    def emit(self, code: Code) -> None:
        """Adds the instructions for one value."""

    @abstractmethod
    def emit_null(self, code: Code) -> None:
        """Adds the instructions that append a null without reading bytes."""

    def field(self, name: str) -> pa.Field:
        return pa.field(name, self.arrow_type, metadata=self.metadata)

    def operand(self, field: Field) -> Word:
        return Operand(self.column, field) if self.column >= 0 else 0

    def operands(self, *middle: Word) -> list[Word]:
        """The seven operands of an instruction on this column; ``middle`` are words 3 to 6."""
        rest: list[Word] = [*middle, 0, 0, 0, 0][:4]
        values, valid = self.operand(Field.VALUES), self.operand(Field.VALID)
        return [values, valid, *rest, self.operand(Field.EXTRA)]


# ------------------------------------------------------------------------- without a column


class NoColumn(Layout):
    """Bytes that are not stored in a column."""

    arrow_type = pa.null()

    def register(self, code: Code) -> None:
        pass

    def emit_null(self, code: Code) -> None:
        pass


class Marker(NoColumn):
    """One constant byte; None allows any value."""

    def __init__(self, byte: int | None, *, always_null: bool = False) -> None:
        self._byte = -1 if byte is None else byte
        self.always_null = always_null

    def emit(self, code: Code) -> None:
        code.emit(i.MARKER, self._byte)


class Nothing(NoColumn):
    """No bytes and no column."""

    def emit(self, code: Code) -> None:
        pass


class Rest(NoColumn):
    """All remaining bytes, ignored."""

    def emit(self, code: Code) -> None:
        code.emit(i.SKIP_REST)


# ------------------------------------------------------------------------------------ leaves


class Fixed(Layout):
    """A value of fixed size in the column; ``op`` reads and writes it."""

    def __init__(self, arrow_type: pa.DataType, op: int, width: int, how: int = 0) -> None:
        self.arrow_type = arrow_type
        self.width = width
        self._op = op
        self._how = how

    def emit(self, code: Code) -> None:
        code.emit(self._op, *self.operands(0, self.width, self._how))

    def emit_null(self, code: Code) -> None:
        code.emit(i.NULL_FIXED, *self.operands(0, self.width))

    def to_arrow(
        self, length: int, bitmap: pa.Buffer | None, values: pa.Buffer, nulls: int
    ) -> pa.Array:
        return pa.Array.from_buffers(self.arrow_type, length, [bitmap, values], nulls)


class Bool(Fixed):
    """One byte in the bytes, one bit in the column."""

    def __init__(self) -> None:
        super().__init__(pa.bool_(), i.BOOL, 1)

    def to_arrow(
        self, length: int, bitmap: pa.Buffer | None, values: pa.Buffer, nulls: int
    ) -> pa.Array:
        flags = np.frombuffer(values, np.uint8)[:length]
        bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
        return pa.Array.from_buffers(self.arrow_type, length, [bitmap, bits], nulls)


class AddressLayout(Fixed):
    """No bytes: the current address."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), i.POSITION, 8)


class Variable(Layout):
    """Text or bytes: a column with offsets and data."""

    def __init__(self, arrow_type: pa.DataType, op: int, how: int = 0, size: int = 0) -> None:
        self.arrow_type = arrow_type
        self._op = op
        self._how = how
        self._size = size

    def emit(self, code: Code) -> None:
        data, limit = self.operand(Field.DATA), self.operand(Field.LIMIT)
        code.emit(self._op, *self.operands(data, limit, self._how, self._size))

    def emit_null(self, code: Code) -> None:
        code.emit(i.NULL_OFFSETS, *self.operands())


class Text(Variable):
    """Flink's string value; nullable by itself unless ``without_null``."""

    def __init__(self, *, utf16: bool, without_null: bool = False) -> None:
        how = (i.TEXT_UTF16 if utf16 else 0) | (i.TEXT_WITHOUT_NULL if without_null else 0)
        super().__init__(pa.binary() if utf16 else pa.string(), i.TEXT, how)
        self.nullable = not without_null


class Opaque(Variable):
    """All remaining bytes: a value that only Java can read."""

    def __init__(self, java_class: str) -> None:
        super().__init__(pa.binary(), i.BYTES, i.BYTES_REST)
        self.metadata = {"flink.class": java_class}


# --------------------------------------------------------------------------------- wrappers


class Wrapper(Layout):
    """Adds bytes around a value. The column is that of the value."""

    def __init__(self, inner: Layout) -> None:
        self.inner = inner
        self.arrow_type = inner.arrow_type
        self.metadata = inner.metadata
        self.always_null = inner.always_null

    @property
    def parts(self) -> Sequence[Layout]:
        return (self.inner,)

    def register(self, code: Code) -> None:
        self.inner.register(code)
        self.column = self.inner.column

    def emit_null(self, code: Code) -> None:
        self.inner.emit_null(code)


class Nullable(Wrapper):
    """A null flag and a value.

    Args:
        inner: The value.
        op: NULL_FLAG, PRESENT_FLAG or ZERO_IS_NULL.
        padding: Number of bytes after the flag of a null.
        skip_rest: Whether all bytes after the flag of a null are ignored.
    """

    def __init__(
        self, inner: Layout, op: int = i.NULL_FLAG, *, padding: int = 0, skip_rest: bool = False
    ) -> None:
        super().__init__(inner)
        inner.nullable = True
        self.nullable = True
        self._op = op
        self._padding = padding
        self._skip_rest = skip_rest

    def emit(self, code: Code) -> None:
        emit_choice(
            code, self.inner, self._op, self._padding, after_null=i.SKIP_REST * self._skip_rest
        )


def emit_choice(code: Code, inner: Layout, op: int, *words: Word, after_null: int = 0) -> None:
    """Adds a value with an instruction that detects null.

    Word 1 of the instruction is the position that reads the value, word 2 its validity; ``words``
    follow.
    """
    present, end = Label(), Label()
    middle: list[Word] = [*words, 0, 0, 0, 0][:4]
    valid: Word = i.ALWAYS_NULL if inner.always_null else inner.operand(Field.VALID)
    code.emit(op, present, valid, *middle, inner.operand(Field.EXTRA))
    inner.emit_null(code)
    if after_null:
        code.emit(after_null)
    code.emit(i.JUMP, end)
    code.place(present)
    inner.emit(code)
    code.place(end)


class Required(Wrapper):
    """A value that must not be null here, although its type allows null."""

    def emit(self, code: Code) -> None:
        self.inner.emit(code)
        if self.inner.nullable:
            code.emit(i.REQUIRE, *self.inner.operands())


# ------------------------------------------------------------------------------- containers


class PartsLayout(Layout):
    """A struct. Its subclass defines the order of the parts in the bytes."""

    def __init__(self, fields: Sequence[tuple[str, Layout]]) -> None:
        self.names = [name for name, _ in fields]
        self._parts = [layout for _, layout in fields]
        self.arrow_type = struct_type(self.names, self._parts)

    @property
    def parts(self) -> Sequence[Layout]:
        return self._parts

    def emit_valid(self, code: Code) -> None:
        if self.nullable or code.encoding:
            code.emit(i.VALID, *self.operands())

    def emit_null(self, code: Code) -> None:
        code.emit(i.NULL_STRUCT, *self.operands())
        for part in self.parts:
            part.emit_null(code)


class Struct(PartsLayout):
    """Parts without gaps. ``order`` is the order of the columns if it differs from that of the
    bytes.
    """

    def __init__(
        self, fields: Sequence[tuple[str, Layout]], order: Sequence[str] | None = None
    ) -> None:
        by_name = dict(fields)
        super().__init__([(name, by_name[name]) for name in order or by_name])
        self._in_bytes = [layout for _, layout in fields]

    def emit(self, code: Code) -> None:
        self.emit_valid(code)
        for part in self._in_bytes:
            part.emit(code)


def struct_type(names: Sequence[str], parts: Sequence[Layout]) -> pa.DataType:
    return pa.struct([part.field(name) for name, part in zip(names, parts, strict=True)])


class Repeated(Layout):
    """Any number of items: a list, or the entries of a map.

    Args:
        item: One item.
        item_bytes: Least bytes of an item, to check the count.
        op: LIST, or DELIMITED (items up to the end, without a count).
    """

    def __init__(self, item: Layout, item_bytes: int, op: int = i.LIST) -> None:
        self.item = item
        self.item_bytes = item_bytes
        self.arrow_type = pa.list_(item.field("item"))
        self._op = op

    @property
    def parts(self) -> Sequence[Layout]:
        return (self.item,)

    def emit(self, code: Code) -> None:
        first, loop, start = Label(), Label(), Label()
        code.place(start)
        code.emit(self._op, *self.operands(self.operand(Field.LIMIT), self.item_bytes, loop))
        code.place(first)
        self.item.emit(code)
        code.place(loop)
        match self._op:
            case i.DELIMITED:
                code.emit(i.NEXT_DELIMITED, first, 0, start)
            case _:
                code.emit(i.LOOP, 0, 0, first)

    def emit_null(self, code: Code) -> None:
        code.emit(i.NULL_OFFSETS, *self.operands())


class LinkedListOf(Repeated):
    """A count, a bit mask of nulls if ``masked``, and the items that are not null.

    A null takes only one bit of the mask, so the count may be up to 8 times the remaining bytes.
    """

    def __init__(self, item: Layout, *, masked: bool) -> None:
        item.nullable = item.nullable or masked
        super().__init__(item, 1)
        self._masked = masked

    def emit(self, code: Code) -> None:
        first, loop = Label(), Label()
        limit = self.operand(Field.LIMIT)
        form = i.LIST_MASKED if self._masked else i.LIST_LOOSE
        code.emit(i.LIST, *self.operands(limit, self.item_bytes, loop, form))
        code.place(first)
        if self._masked:
            emit_choice(code, self.item, i.MASK_FIELD, loop, -1)
        else:
            self.item.emit(code)
        code.place(loop)
        code.emit(i.LOOP, 0, 0, first)


class MapOf(Repeated):
    """Entries of key and value: an Arrow map, or a list of structs where keys may be null."""

    def __init__(
        self, key: Layout, value: Layout, *, as_map: bool, item_bytes: int = 1, op: int = i.LIST
    ) -> None:
        entry = Struct([("key", Required(key) if as_map else key), ("value", value)])
        super().__init__(entry, item_bytes, op)
        if as_map:
            self.arrow_type = map_type(key, value)


def map_type(key: Layout, value: Layout) -> pa.DataType:
    key_field = pa.field("key", key.arrow_type, False, metadata=key.metadata)
    return pa.map_(key_field, value.field("value"))


class SetOf(Repeated):
    """A list that is a set, as the metadata of its field says."""

    def __init__(self, item: Layout) -> None:
        super().__init__(item, 1)
        self.metadata = {"flink.type": "Set"}
