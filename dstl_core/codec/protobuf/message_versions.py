"""Messages of one version of a descriptor set as those of another one, by the numbers of fields.

A field keeps its number, whatever its name. Numbers and texts are written as the new type stores
them, if the value fits. What only one of the versions knows, or neither of them, keeps its bytes: a
field that is gone is an unknown one of the new message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.protobuf.descriptors import FieldType, Messages, MessageType
from dstl_core.codec.protobuf.message_text import MAX_DEPTH, fits, wire_type_of
from dstl_core.codec.protobuf.wire import (
    FIXED_32,
    SIZED,
    VARINT,
    WireField,
    read_fields,
    read_varint,
)
from dstl_core.errors import ConfigError, FormatError, UnreadableValueError

_DOUBLE, _FLOAT, _BOOL, _STRING, _MESSAGE, _BYTES, _ENUM = 1, 2, 8, 9, 11, 12, 14
_ZIGZAG = (17, 18)
_FIXED = {1: "<d", 2: "<f", 6: "<Q", 7: "<I", 15: "<i", 16: "<q"}
_RANGES = {
    **dict.fromkeys((5, 15, 17), (-(1 << 31), 1 << 31)),
    **dict.fromkeys((3, 16, 18), (-(1 << 63), 1 << 63)),
    **dict.fromkeys((7, 13), (0, 1 << 32)),
    **dict.fromkeys((4, 6), (0, 1 << 64)),
    _BOOL: (0, 2),
    _ENUM: (-(1 << 31), 1 << 31),
}
"""Of whole numbers, by type."""
_MASK_64 = (1 << 64) - 1


def message_recoder(
    old: tuple[Messages, MessageType], new: tuple[Messages, MessageType]
) -> Callable[[bytes], bytes]:
    """What turns the bytes of a message into those of a message of the other version.

    Raises:
        ConfigError: A field of a number has types that do not become each other.
    """
    recoding = _Recoding(old[0], new[0])
    recoding.check(old[1], new[1], set())
    return lambda raw: recoding.message(old[1], new[1], raw, 0)


class _Recoding:
    def __init__(self, old: Messages, new: Messages) -> None:
        self._old = old
        self._new = new

    def check(self, old: MessageType, new: MessageType, seen: set[tuple[str, str]]) -> None:
        if (old.name, new.name) in seen:
            return
        seen.add((old.name, new.name))
        for number, before in old.fields.items():
            after = new.fields.get(number)
            if after is None:
                continue
            if before.type == after.type == _MESSAGE:
                self.check(*self._inner(before, after), seen)
            fits = _kind(before) == _kind(after) and (after.is_repeated or not before.is_repeated)
            if not fits:
                raise ConfigError(
                    f"Field {number} of {old.name} ({before.name}) does not become {after.name} of "
                    f"{new.name}: expected whole numbers, fractions, texts or messages on both "
                    f"sides, and no single value for a repeated one."
                )

    def _inner(self, before: FieldType, after: FieldType) -> tuple[MessageType, MessageType]:
        return self._old.messages[before.type_name], self._new.messages[after.type_name]

    def message(self, old: MessageType, new: MessageType, raw: bytes, depth: int) -> bytes:
        if depth > MAX_DEPTH:
            raise UnreadableValueError(f"A message nests more than {MAX_DEPTH} levels")
        out = bytearray()
        for wire in read_fields(raw):
            before, after = old.fields.get(wire.number), new.fields.get(wire.number)
            if before is None or after is None or not fits(before, wire):
                _put(out, wire)
            elif before.type == _MESSAGE:
                inner = wire.value if isinstance(wire.value, bytes) else b""
                contents = self.message(*self._inner(before, after), inner, depth + 1)
                _put(out, WireField(wire.number, SIZED, contents))
            elif before.type == after.type:
                _put(out, wire)
            elif wire.wire_type == SIZED and wire_type_of(before) != SIZED:
                packed = b"".join(_encoded(after, each) for each in _packed(before, wire.value))
                _put(out, WireField(wire.number, SIZED, packed))
            else:
                _put_one(out, before, after, wire)
        return bytes(out)


def _put_one(out: bytearray, before: FieldType, after: FieldType, wire: WireField) -> None:
    if wire_type_of(before) == SIZED:
        if after.type == _STRING:
            _check_text(after, wire.value)
        _put(out, wire)
        return
    out += _varint(wire.number << 3 | wire_type_of(after))
    out += _encoded(after, _number(before, wire.value))


def _check_text(after: FieldType, value: int | bytes) -> None:
    try:
        (value if isinstance(value, bytes) else b"").decode()
    except UnicodeDecodeError as error:
        raise FormatError(
            f"Bytes of a message are no text, as which field {after.name} has them"
        ) from error


def _packed(before: FieldType, value: int | bytes) -> list[int | float]:
    data = DataInput(value if isinstance(value, bytes) else b"")
    wire_type = wire_type_of(before)
    numbers = []
    while data.remaining:
        size = 4 if wire_type == FIXED_32 else 8
        raw = read_varint(data) if wire_type == VARINT else data.read_bytes(size, "number")
        numbers.append(_number(before, raw))
    return numbers


def _number(before: FieldType, value: int | bytes) -> int | float:
    if isinstance(value, bytes):
        [number] = struct.unpack(_FIXED[before.type], value)
        return number if isinstance(number, float) else int(number)
    if before.type in _ZIGZAG:
        value &= 0xFFFFFFFF if before.type == _ZIGZAG[0] else _MASK_64
        return value >> 1 ^ -(value & 1)
    low, high = _RANGES.get(before.type, (0, 1 << 64))
    if before.type == _BOOL:
        return int(value != 0)
    bits = high.bit_length() - (0 if low else 1)
    value &= (1 << bits) - 1
    return value - (1 << bits) if low and value >> bits - 1 else value


def _encoded(after: FieldType, number: int | float) -> bytes:
    """A number as its type stores it.

    Raises:
        FormatError: The type does not have it.
    """
    if after.type in (_DOUBLE, _FLOAT):
        return _float(after, number)
    low, high = _RANGES[after.type]
    if isinstance(number, float) or not low <= number < high:
        raise FormatError(f"A number of a message does not fit into field {after.name}")
    if after.type in _FIXED:
        return struct.pack(_FIXED[after.type], number)
    if after.type in _ZIGZAG:
        return _varint((number << 1 ^ number >> 63) & _MASK_64)
    return _varint(number & _MASK_64)


def _float(after: FieldType, number: int | float) -> bytes:
    try:
        raw = struct.pack(_FIXED[after.type], number)
        [read] = struct.unpack(_FIXED[after.type], raw)
    except (OverflowError, struct.error):
        read = None
    if read is None or (read != number and number == number):
        raise FormatError(f"A number of a message does not fit into field {after.name}")
    return raw


def _kind(field: FieldType) -> str:
    if field.type in (_DOUBLE, _FLOAT):
        return "float"
    if field.type in _RANGES:
        return "whole"
    return {_STRING: "text", _BYTES: "text", _MESSAGE: "message"}.get(field.type, "other")


def _put(out: bytearray, wire: WireField) -> None:
    out += _varint(wire.number << 3 | wire.wire_type)
    if isinstance(wire.value, int):
        out += _varint(wire.value)
        return
    if wire.wire_type == SIZED:
        out += _varint(len(wire.value))
    out += wire.value


def _varint(number: int) -> bytes:
    raw = bytearray()
    while number > 0x7F:
        raw.append(number & 0x7F | 0x80)
        number >>= 7
    raw.append(number)
    return bytes(raw)
