"""Messages as ``dstl dump`` prints them: the fields that are set, by their names.

A map is a list of pairs, bytes are hex, a constant is its name, and numbers are numbers. Fields
that the descriptor does not have are hex under ``@unknown``, by their numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.protobuf.descriptors import FieldType, Messages, MessageType
from dstl_core.codec.protobuf.wire import (
    FIXED_32,
    FIXED_64,
    SIZED,
    VARINT,
    WireField,
    read_fields,
    read_varint,
)
from dstl_core.codec.serializers.base import JsonValue
from dstl_core.codec.serializers.collections import text_key
from dstl_core.codec.serializers.primitives import float_text
from dstl_core.errors import FormatError, UnreadableValueError

MAX_DEPTH = 64
UNKNOWN = "@unknown"
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(10, 19)
_FORMATS = {_DOUBLE: "<d", _FLOAT: "<f"} | {_FIXED64: "<Q", _FIXED32: "<I"}
_FORMATS |= {_SFIXED64: "<q", _SFIXED32: "<i"}
_WIRE_TYPES = {
    **dict.fromkeys((_DOUBLE, _FIXED64, _SFIXED64), FIXED_64),
    **dict.fromkeys((_FLOAT, _FIXED32, _SFIXED32), FIXED_32),
    **dict.fromkeys((_STRING, _MESSAGE, _BYTES), SIZED),
}
_ZERO: dict[int, JsonValue] = {_BOOL: False, _STRING: "", _BYTES: "", _DOUBLE: 0.0, _FLOAT: 0.0}


def message_text(messages: Messages, message: MessageType, raw: bytes) -> dict[str, JsonValue]:
    """The text form of a message.

    Raises:
        FormatError: The bytes are no message of this type.
    """
    return _MessageTexts(messages).message(message, raw, 0)


class _MessageTexts:
    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    def message(self, message: MessageType, raw: bytes, depth: int) -> dict[str, JsonValue]:
        if depth > MAX_DEPTH:
            raise UnreadableValueError(f"A message nests more than {MAX_DEPTH} levels")
        by_number: dict[int, list[WireField]] = {}
        unknown: dict[str, JsonValue] = {}
        for field in read_fields(raw):
            declared = message.fields.get(field.number)
            if declared is not None and fits(declared, field):
                by_number.setdefault(field.number, []).append(field)
            else:
                unknown.setdefault(str(field.number), []).append(_hex(field))
        shown: dict[str, JsonValue] = {}
        for number in sorted(by_number):
            declared = message.fields[number]
            value = self._field(declared, by_number[number], depth)
            is_default = value == _zero(declared, self) and str(value) != "-0.0"
            if declared.is_repeated or declared.has_presence or not is_default:
                shown[declared.name] = value
        return shown | ({UNKNOWN: unknown} if unknown else {})

    def _field(self, declared: FieldType, wires: list[WireField], depth: int) -> JsonValue:
        if declared.is_repeated:
            entry = self._messages.messages.get(declared.type_name)
            if declared.type == _MESSAGE and entry is not None and entry.is_map_entry:
                return self._map(entry, wires, depth)
            return [self.value(declared, each, depth) for each in _each(declared, wires)]
        if declared.type == _MESSAGE:
            # A field that comes twice is merged, which is to read the bytes of both as one.
            merged = b"".join(each.value for each in wires if isinstance(each.value, bytes))
            return self.value(declared, merged, depth)
        return self.value(declared, wires[-1].value, depth)

    def _map(self, entry: MessageType, wires: list[WireField], depth: int) -> JsonValue:
        pairs: dict[bytes, list[JsonValue]] = {}
        for wire in wires:
            parts = read_fields(wire.value if isinstance(wire.value, bytes) else b"")
            pair = []
            for number in (1, 2):
                declared = entry.fields[number]
                occurrences = [
                    part for part in parts if part.number == number and fits(declared, part)
                ]
                is_set = bool(occurrences) or declared.type == _MESSAGE
                pair.append(
                    self._field(declared, occurrences, depth) if is_set else _zero(declared, self)
                )
            pairs[text_key(pair[0])] = pair
        return [pairs[key] for key in sorted(pairs)]

    def value(self, declared: FieldType, value: int | bytes, depth: int) -> JsonValue:
        if declared.type == _MESSAGE:
            message = self._messages.messages[declared.type_name]
            return self.message(message, value if isinstance(value, bytes) else b"", depth + 1)
        if isinstance(value, int):
            return self._varint(declared, value)
        if declared.type == _BYTES:
            return value.hex()
        if declared.type == _STRING:
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise FormatError(f"Field {declared.name} of a message is not UTF-8") from error
        [number] = struct.unpack(_FORMATS[declared.type], value)
        return float_text(number) if isinstance(number, float) else number

    def _varint(self, declared: FieldType, value: int) -> JsonValue:
        match declared.type:
            case 8:
                return value != 0
            case 13:
                return value & 0xFFFFFFFF
            case 4:
                return value
            case 17 | 18:
                value &= 0xFFFFFFFF if declared.type == _SINT32 else (1 << 64) - 1
                return value >> 1 ^ -(value & 1)
            case 3:
                return value - (1 << 64) if value >> 63 else value
        low = value & 0xFFFFFFFF
        number = low - (1 << 32) if low >> 31 else low
        return self.constant(declared, number) if declared.type == _ENUM else number

    def constant(self, declared: FieldType, number: int) -> JsonValue:
        """The name of a constant; the number of one that the descriptor does not have."""
        return self._messages.enums.get(declared.type_name, {}).get(number, number)


def _zero(declared: FieldType, texts: _MessageTexts) -> JsonValue:
    if declared.type == _ENUM:
        return texts.constant(declared, 0)
    return _ZERO.get(declared.type, 0)


def wire_type_of(declared: FieldType) -> int:
    return _WIRE_TYPES.get(declared.type, VARINT)


def fits(declared: FieldType, wire: WireField) -> bool:
    """Whether a field has the wire type of its declaration; numbers may be packed."""
    is_packed = declared.is_repeated and wire.wire_type == SIZED
    return is_packed or wire.wire_type == wire_type_of(declared)


def _each(declared: FieldType, wires: list[WireField]) -> Iterator[Any]:
    """The values of a repeated field, packed or not."""
    wire_type = wire_type_of(declared)
    for wire in wires:
        if wire_type == SIZED or wire.wire_type != SIZED or not isinstance(wire.value, bytes):
            yield wire.value
            continue
        data = DataInput(wire.value)
        while data.remaining:
            size = 4 if wire_type == FIXED_32 else 8
            yield read_varint(data) if wire_type == VARINT else data.read_bytes(size, "number")


def _hex(wire: WireField) -> str:
    return wire.value.hex() if isinstance(wire.value, bytes) else f"{wire.value:x}"
