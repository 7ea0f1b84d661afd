"""Layouts whose bytes select one of several forms: unions, rows with null masks, POJOs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dstl_core.codec.columnar.kernels import instructions as i
from dstl_core.codec.columnar.types.layouts import (
    Bool,
    Fixed,
    Layout,
    PartsLayout,
    Variable,
    emit_choice,
)
from dstl_core.codec.columnar.types.program import Code, Field, Label, Word
from dstl_core.codec.columnar.types.value_layouts import Names, RowKind
from dstl_core.codec.data_io import encode_modified_utf8


class EmptyLayout(PartsLayout):
    """A struct without fields: one constant byte."""

    def __init__(self, byte: int) -> None:
        super().__init__([])
        self._byte = byte

    def emit(self, code: Code) -> None:
        self.emit_valid(code)
        code.emit(i.MARKER, self._byte)


class EitherOf(PartsLayout):
    """A byte that selects one of two values. ``tagged``: 1 and 2 instead of 1 and 0."""

    def __init__(self, left: Layout, right: Layout, *, tagged: bool = False) -> None:
        left.nullable = right.nullable = True
        self._left, self._right = left, right
        self._tagged = tagged
        self._is_left = Bool()
        super().__init__([("is_left", self._is_left), ("left", left), ("right", right)])

    def emit(self, code: Code) -> None:
        left, end = Label(), Label()
        self.emit_valid(code)
        code.emit(i.EITHER, *self._is_left.operands(left, 0, int(self._tagged)))
        self._left.emit_null(code)
        self._right.emit(code)
        code.emit(i.JUMP, end)
        code.place(left)
        self._left.emit(code)
        self._right.emit_null(code)
        code.place(end)


class MaskedRow(PartsLayout):
    """A mask with two bits for the row kind and one bit per field (1 = null), then the fields.

    Args:
        fields: Names and values.
        with_kind: Whether the mask has the bits of the row kind.
        kind: The column of the row kind; without it, row kinds except +I are refused.
    """

    def __init__(
        self, fields: Sequence[tuple[str, Layout]], *, with_kind: bool, kind: RowKind | None
    ) -> None:
        for _, layout in fields:
            layout.nullable = True
        self._fields = [layout for _, layout in fields]
        self._with_kind = with_kind
        self._kind = kind
        first = [("$row_kind", kind)] if kind is not None else []
        super().__init__([*first, *fields])

    def emit(self, code: Code) -> None:
        mask = Label()
        head = 2 if self._with_kind else 0
        self.emit_valid(code)
        code.place(mask)
        code.emit(
            i.MASK,
            head // 2,
            refuses(self, self._kind),
            head + len(self._fields),
            *kind(self._kind),
        )
        for at, field in enumerate(self._fields):
            emit_choice(code, field, i.MASK_FIELD, mask, head + at)


def refuses(row: Layout, row_kind: RowKind | None) -> Word:
    """1 if row kinds except +I must be refused because no column keeps them."""
    return row.operand(Field.WANTED) if row_kind is None else 0


def kind(row_kind: RowKind | None) -> tuple[Word, Word]:
    """The target of a row kind, and its validity."""
    if row_kind is None:
        return 0, 0
    return row_kind.operand(Field.VALUES), row_kind.operand(Field.VALID)


class StreamElement(PartsLayout):
    """A tag, the timestamp if the record has one, and the value of the record."""

    def __init__(self, value: Layout) -> None:
        self._value = value
        self._timestamp = Fixed(pa.int64(), i.STREAM_TAG, 8)
        self._timestamp.nullable = True
        super().__init__([("value", value), ("ts", self._timestamp)])

    def emit(self, code: Code) -> None:
        self.emit_valid(code)
        self._timestamp.emit(code)
        self._value.emit(code)


class TwoSizes(PartsLayout):
    """Two lengths, then the bytes of both parts."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__([(name, Variable(pa.binary(), i.BYTES, i.BYTES_SIZED)) for name in names])

    def emit(self, code: Code) -> None:
        labels = [Label(), Label()]
        self.emit_valid(code)
        code.emit(i.SIZES, *self.parts[0].operands(*labels))
        for label, part in zip(labels, self.parts, strict=True):
            code.place(label)
            part.emit(code)


@dataclass
class PojoClass:
    """A class of a POJO: its fields in the order of the bytes."""

    name: str
    fields: Sequence[tuple[str, Layout]]


class PojoOf(PartsLayout):
    """A POJO: flags, then a null flag and the value of each field.

    For a subclass, its tag or name and its own flags come first.

    Args:
        classes: The class itself, registered subclasses in the order of their tags, then others.
        registered: Number of subclasses with a tag.
        columns: Name and layout of every column; fields of several classes may share one.
    """

    def __init__(
        self, classes: Sequence[PojoClass], registered: int, columns: Mapping[str, Layout]
    ) -> None:
        self._classes = classes
        self._registered = registered
        self._class = (
            None if len(classes) == 1 else Names([c.name for c in classes], i.CONSTANT4, 4)
        )
        for layout in columns.values():
            layout.nullable = True
        first = [("@class", self._class)] if self._class is not None else []
        super().__init__([*first, *columns.items()])
        self.nullable = True

    def register(self, code: Code) -> None:
        super().register(code)
        for pojo in self._classes:
            for name, layout in pojo.fields:
                adopt(layout, self._parts[self.names.index(name)])

    def emit(self, code: Code) -> None:
        of_class, end, pojo = Label(), Label(), Label()
        subclasses = [Label() for _ in self._classes[1:]]
        dispatch = Label()
        class_number = 0 if self._class is None else self._class.operand(Field.VALUES)
        code.place(pojo)
        self._emit_flags(code, of_class, dispatch, self._registered, class_number)
        code.emit(i.JUMP, end)
        code.place(of_class)
        self._emit_fields(code, 0)
        code.emit(i.JUMP, end)
        code.place(dispatch)
        for at, label in enumerate(subclasses):
            if at < self._registered:
                code.emit(i.TAG_IS, label, 0, pojo, at)
            else:
                name = encode_modified_utf8(self._classes[at + 1].name)
                code.emit(i.CLASS_IS, label, 0, pojo, len(name), code.add_constant(name), at + 1)
        code.emit(i.REFUSE, 0, 0, i.UNREADABLE)
        for at, label in enumerate(subclasses):
            self._emit_subclass(code, at + 1, label, end)
        code.place(end)

    def _emit_flags(
        self, code: Code, of_class: Label, subclass: Label, registered: int, class_number: Word
    ) -> None:
        """Adds the instructions of the flags; after them must come the instructions of a null."""
        valid, extra = self.operand(Field.VALID), self.operand(Field.EXTRA)
        code.emit(i.POJO, of_class, valid, subclass, registered, 0, class_number, extra)
        self.emit_null(code)

    def _emit_subclass(self, code: Code, at: int, label: Label, end: Label) -> None:
        of_class, refuse = Label(), Label()
        code.place(label)
        self._emit_flags(code, of_class, refuse, 0, 0)
        code.emit(i.JUMP, end)
        code.place(refuse)
        code.emit(i.REFUSE, 0, 0, i.UNREADABLE)
        code.place(of_class)
        self._emit_fields(code, at)
        code.emit(i.JUMP, end)

    def _emit_fields(self, code: Code, at: int) -> None:
        code.emit(i.VALID, *self.operands())
        if self._class is not None:
            code.emit(i.CONSTANT4, *self._class.operands(0, 4, at))
        fields = self._classes[at].fields
        for _, layout in fields:
            emit_choice(code, layout, i.NULL_FLAG)
        names = {name for name, _ in fields} | {"@class"}
        for name, part in zip(self.names, self.parts, strict=True):
            if name not in names:
                part.emit_null(code)


def adopt(layout: Layout, owner: Layout) -> None:
    """Makes a layout use the columns of another layout of the same shape."""
    layout.column = owner.column
    layout.nullable = owner.nullable
    for part, other in zip(layout.parts, owner.parts, strict=True):
        adopt(part, other)


def same_shape(a: Layout, b: Layout) -> bool:
    """Whether one column can hold the values of both layouts."""
    return (
        type(a) is type(b)
        and a.arrow_type == b.arrow_type
        and a.nullable == b.nullable
        and len(a.parts) == len(b.parts)
        and all(same_shape(x, y) for x, y in zip(a.parts, b.parts, strict=True))
    )
