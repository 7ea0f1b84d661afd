"""Layouts of SQL's binary rows, arrays and maps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from dstl_core.codec.columnar.kernels import instructions as i
from dstl_core.codec.columnar.types.choice_layouts import kind, refuses
from dstl_core.codec.columnar.types.layouts import (
    Fixed,
    Layout,
    NoColumn,
    PartsLayout,
    Repeated,
    Struct,
    Variable,
    emit_choice,
    map_type,
)
from dstl_core.codec.columnar.types.program import Code, Field, Label
from dstl_core.codec.columnar.types.value_layouts import RowKind, SecondsNanos

SLOT_BYTES = 8


class SlotLayout(Layout):
    """A value in a slot of a row or array. ``slot_bytes`` is the size of a slot in an array."""

    slot_bytes: int = SLOT_BYTES

    @abstractmethod
    def emit_slot(self, code: Code, frame: Label, slot: int) -> None:
        """Adds the instructions for the value in a frame's slot; ``slot`` is a byte offset."""

    def emit(self, code: Code) -> None:
        raise TypeError("a slot value exists only inside a row or array")


class SlotNothing(NoColumn, SlotLayout):
    """A slot without content."""

    always_null = True

    def emit_slot(self, code: Code, frame: Label, slot: int) -> None:
        pass

    def emit(self, code: Code) -> None:
        pass


class SlotFixed(Fixed, SlotLayout):
    """A little-endian value."""

    def __init__(self, arrow_type: pa.DataType, width: int) -> None:
        super().__init__(arrow_type, i.SLOT, width)
        self.slot_bytes = width

    def emit_slot(self, code: Code, frame: Label, slot: int) -> None:
        code.emit(i.SLOT, *self.operands(frame, self.width, slot))


class SlotBool(SlotFixed):
    """One byte in the slot, one bit in the column."""

    def __init__(self) -> None:
        super().__init__(pa.bool_(), 1)

    def emit_slot(self, code: Code, frame: Label, slot: int) -> None:
        code.emit(i.SLOT, *self.operands(frame, self.width, slot, 1))

    def to_arrow(
        self, length: int, bitmap: pa.Buffer | None, values: pa.Buffer, nulls: int
    ) -> pa.Array:
        flags = pa.Array.from_buffers(pa.uint8(), length, [bitmap, values], nulls)
        return flags.cast(pa.bool_())


class SlotBytes(Variable, SlotLayout):
    """Text, bytes, or a value of SQL's RAW type. ``how`` is one of ``SLOT_*``."""

    def __init__(self, arrow_type: pa.DataType, how: int) -> None:
        super().__init__(arrow_type, i.SLOT_BYTES, how)

    def emit_slot(self, code: Code, frame: Label, slot: int) -> None:
        data, limit = self.operand(Field.DATA), self.operand(Field.LIMIT)
        code.emit(
            i.SLOT_BYTES, *self.operands(data, limit, slot << i.SLOT_SHIFT | self._how, frame)
        )


class SlotDecimal(Fixed, SlotLayout):
    """A decimal: up to ``compact`` digits in the slot, more digits in the variable part."""

    def __init__(self, precision: int, scale: int, *, compact: bool) -> None:
        super().__init__(pa.decimal128(precision, scale), i.SLOT_DECIMAL, 16)
        self._compact = compact

    def emit_slot(self, code: Code, frame: Label, slot: int) -> None:
        code.emit(i.SLOT_DECIMAL, *self.operands(frame, 16, slot, int(not self._compact)))


class SlotTime(Fixed, SlotLayout):
    """Microseconds in one column."""

    def __init__(self, arrow_type: pa.DataType, *, compact: bool) -> None:
        super().__init__(arrow_type, i.SLOT_TIMESTAMP, 8)
        self._compact = compact

    def emit_slot(self, code: Code, frame: Label, slot: int) -> None:
        how, apart = _time_how(self._compact)
        code.emit(i.SLOT_TIMESTAMP, *self.operands(0, frame, slot << i.SLOT_SHIFT | how, apart))


class SlotSecondsNanos(SecondsNanos, SlotLayout):
    """Seconds and nanoseconds in two columns."""

    def __init__(self, *, compact: bool) -> None:
        self._compact = compact
        super().__init__(_time_how(compact)[0], nullable=False)

    def emit_slot(self, code: Code, frame: Label, slot: int) -> None:
        how, apart = _time_how(self._compact)
        place = slot << i.SLOT_SHIFT | how | i.TIME_EXACT
        self.emit_as(code, i.SLOT_TIMESTAMP, self.nanos_operand, frame, place, apart)


def _time_how(compact: bool) -> tuple[int, int]:
    return (i.TIME_DATA_MS, 0) if compact else (i.TIME_DATA, 1)


def emit_field(code: Code, field: SlotLayout, frame: Label, slot: int, bit: int) -> None:
    """Adds a field or item with its null bit."""
    emit_choice(code, _InSlot(field, frame, slot), i.SLOT_NULL, frame, bit)


class _InSlot(Layout):
    """A layout with its slot."""

    def __init__(self, inner: SlotLayout, frame: Label, slot: int) -> None:
        self._inner = inner
        self._place = frame, slot
        self.column = inner.column
        self.always_null = inner.always_null

    def emit(self, code: Code) -> None:
        self._inner.emit_slot(code, *self._place)

    def emit_null(self, code: Code) -> None:
        self._inner.emit_null(code)


class InMemory(SlotLayout):
    """A row, array or map: memory after a size, or in the variable part of an enclosing one."""

    def emit(self, code: Code) -> None:
        frame = code.add_frame()
        code.emit(i.REGION, frame, i.REGION_AT)
        self.emit_memory(code, frame)
        code.emit(i.REGION_END, frame, i.REGION_AT)

    def emit_slot(self, code: Code, frame: Label, slot: int) -> None:
        slot_frame = code.add_frame()
        code.emit(i.REGION, slot_frame, i.REGION_SLOT, frame, slot)
        self.emit_memory(code, slot_frame)
        code.emit(i.REGION_END, slot_frame, i.REGION_SLOT, frame, slot)

    @abstractmethod
    def emit_memory(self, code: Code, frame: Label) -> None:
        """Adds the instructions for the memory of a frame."""


class SqlRow(PartsLayout, InMemory):
    """A binary row."""

    def __init__(self, fields: Sequence[tuple[str, SlotLayout]], row_kind: RowKind | None) -> None:
        self._fields = [layout for _, layout in fields]
        for layout in self._fields:
            layout.nullable = True
        self._kind = row_kind
        first: list[tuple[str, Layout]] = [("$row_kind", row_kind)] if row_kind is not None else []
        super().__init__([*first, *fields])

    def emit(self, code: Code) -> None:
        InMemory.emit(self, code)

    def emit_memory(self, code: Code, frame: Label) -> None:
        self.emit_valid(code)
        code.emit(
            i.SQL_ROW,
            frame,
            self.operand(Field.VALID),
            len(self._fields),
            *kind(self._kind),
            refuses(self, self._kind),
            self.operand(Field.EXTRA),
        )
        for at, field in enumerate(self._fields):
            emit_field(code, field, frame, SLOT_BYTES * at, at)


class SqlArray(Repeated, InMemory):
    """A binary array."""

    def __init__(self, item: SlotLayout) -> None:
        item.nullable = True
        self._item = item
        super().__init__(item, item.slot_bytes)

    def emit(self, code: Code) -> None:
        InMemory.emit(self, code)

    def emit_memory(self, code: Code, frame: Label) -> None:
        emit_items(code, self, self._item, frame, None)


class SqlMap(Repeated, InMemory):
    """A binary map: an array of keys and an array of values, in the same rows."""

    def __init__(self, key: SlotLayout, value: SlotLayout, *, as_map: bool) -> None:
        key.nullable = value.nullable = True
        self._key, self._value = key, value
        self._as_map = as_map
        super().__init__(Struct([("key", key), ("value", value)]), key.slot_bytes)
        if as_map:
            self.arrow_type = map_type(key, value)

    def emit(self, code: Code) -> None:
        InMemory.emit(self, code)

    def emit_memory(self, code: Code, frame: Label) -> None:
        keys, values = code.add_frame(), code.add_frame()
        code.emit(i.REGION, keys, i.REGION_KEYS, frame)
        emit_items(code, self, self._key, keys, None, required=self._as_map)
        code.emit(i.REGION_END, keys, i.REGION_KEYS, frame)
        code.emit(i.REGION, values, i.REGION_VALUES, frame)
        emit_items(code, self, self._value, values, keys)
        code.emit(i.REGION_END, values, i.REGION_VALUES, frame)


def emit_items(
    code: Code,
    owner: Repeated,
    item: SlotLayout,
    frame: Label,
    keys: Label | None,
    *,
    required: bool = False,
) -> None:
    """Adds the items of an array: of a list column, or the values of a map next to its keys."""
    first, loop = Label(), Label()
    size = item.slot_bytes
    if keys is None:
        limit = owner.operand(Field.LIMIT)
        code.emit(i.SQL_ARRAY, *owner.operands(limit, size, loop, frame))
    else:
        values = owner.operand(Field.VALUES)
        code.emit(i.SQL_ARRAY, keys, values, -1, size, loop, frame, owner.operand(Field.EXTRA))
    code.place(first)
    emit_field(code, item, frame, 0, 0)
    if required:
        code.emit(i.REQUIRE, *item.operands())
    code.place(loop)
    code.emit(i.NEXT_SLOT, 0, 0, first, size, frame)
