"""Messages as structs of Arrow: a field for each of the descriptor, in the order of their numbers.

A field that has no default on the wire is null if it is not set, and so is a message. All others
have their default. A map is a map, a constant its name, and bytes are bytes. A message that holds
itself, one without fields, and one whose struct would be too wide, is the text of its JSON. Fields
that the descriptor does not have are in no column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dstl_core.codec.protobuf.descriptors import FieldType, Messages, MessageType
from dstl_core.codec.serializers.base import JsonValue

_ENUM, _MESSAGE, _BYTES, _STRING, _BOOL = 14, 11, 12, 9, 8
_FLOATS = {1: pa.float64(), 2: pa.float32()}
_NUMBERS = {
    **_FLOATS,
    **dict.fromkeys((3, 16, 18), pa.int64()),
    **dict.fromkeys((4, 6), pa.uint64()),
    **dict.fromkeys((5, 15, 17), pa.int32()),
    **dict.fromkeys((7, 13), pa.uint32()),
}
_TYPES = {**_NUMBERS, _BOOL: pa.bool_(), _STRING: pa.string(), _BYTES: pa.binary()}
_ZERO: dict[int, Any] = {_BOOL: False, _STRING: "", _BYTES: b""}
MAX_FIELDS = 10_000
"""Of a struct with those inside: messages in each other have one for each way through them."""


class MessageColumns:
    """The structs of one message.

    Args:
        messages: All messages that are known.
        message: The message of a value.
    """

    def __init__(self, messages: Messages, message: MessageType) -> None:
        self._messages = messages
        self._message = message
        self._is_wide = self._fields_left(message, (), MAX_FIELDS) < 0
        self.type: pa.DataType = self._type_of(message, ())

    def array(self, texts: list[JsonValue]) -> pa.Array:
        """A column of the text forms of messages, of which each may be null."""
        return pa.array([self._value(self._message, text, ()) for text in texts], self.type)

    def _fields_left(self, message: MessageType, around: tuple[str, ...], left: int) -> int:
        """How many more fields a struct may have behind those of a message; it stops below 0."""
        if message.name in around:
            return left
        inside = (*around, message.name)
        for declared in message.fields.values():
            left -= 1
            if left >= 0 and declared.type == _MESSAGE:
                left = self._fields_left(self._messages.messages[declared.type_name], inside, left)
            if left < 0:
                break
        return left

    def _is_text(self, message: MessageType, around: tuple[str, ...]) -> bool:
        return self._is_wide or message.name in around or not message.fields

    def _type_of(self, message: MessageType, around: tuple[str, ...]) -> pa.DataType:
        if self._is_text(message, around):
            return pa.string()
        inside = (*around, message.name)
        return pa.struct(
            [(each.name, self._field_type(each, inside)) for each in _in_order(message)]
        )

    def _field_type(self, declared: FieldType, around: tuple[str, ...]) -> pa.DataType:
        entry = self._entry(declared)
        if entry is not None:
            key, value = (self._one_type(entry.fields[number], around) for number in (1, 2))
            return pa.map_(key, value)
        one = self._one_type(declared, around)
        return pa.list_(one) if declared.is_repeated else one

    def _one_type(self, declared: FieldType, around: tuple[str, ...]) -> pa.DataType:
        if declared.type == _MESSAGE:
            return self._type_of(self._messages.messages[declared.type_name], around)
        return _TYPES.get(declared.type, pa.string())

    def _entry(self, declared: FieldType) -> MessageType | None:
        """The entries of a field that is a map."""
        if declared.type != _MESSAGE or not declared.is_repeated:
            return None
        entry = self._messages.messages[declared.type_name]
        return entry if entry.is_map_entry else None

    # ------------------------------------------------------------------------------- values

    def _value(self, message: MessageType, text: JsonValue, around: tuple[str, ...]) -> Any:
        if text is None:
            return None
        if self._is_text(message, around) or not isinstance(text, Mapping):
            return json.dumps(text, ensure_ascii=False)
        inside = (*around, message.name)
        return {
            field.name: self._field(field, text.get(field.name), inside)
            for field in message.fields.values()
        }

    def _field(self, declared: FieldType, text: JsonValue, around: tuple[str, ...]) -> Any:
        entry = self._entry(declared)
        if entry is not None:
            key, value = entry.fields[1], entry.fields[2]
            return [
                (self._one(key, pair[0], around), self._one(value, pair[1], around))
                for pair in text or ()
            ]
        if declared.is_repeated:
            return [self._one(declared, each, around) for each in text or ()]
        if text is None:
            return None if declared.has_presence else self._default(declared)
        return self._one(declared, text, around)

    def _one(self, declared: FieldType, text: JsonValue, around: tuple[str, ...]) -> Any:
        if declared.type == _MESSAGE:
            message = self._messages.messages[declared.type_name]
            # A value of a map that is not set is an empty message.
            return self._value(message, text if isinstance(text, Mapping) else {}, around)
        if declared.type == _BYTES:
            return bytes.fromhex(str(text))
        if declared.type in _FLOATS:
            return float(str(text))
        return text if declared.type in _TYPES else str(text)

    def _default(self, declared: FieldType) -> Any:
        if declared.type == _ENUM:
            return str(self._messages.enums.get(declared.type_name, {}).get(0, 0))
        return _ZERO.get(declared.type, 0)


def _in_order(message: MessageType) -> list[FieldType]:
    return [message.fields[number] for number in sorted(message.fields)]
