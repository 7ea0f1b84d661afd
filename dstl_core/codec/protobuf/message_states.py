"""States whose values are messages: bytes, or what a serializer of the job writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.protobuf.descriptors import Messages, MessageType
from dstl_core.codec.protobuf.message_text import message_text
from dstl_core.codec.protobuf.wire import read_sized
from dstl_core.codec.serializers.base import AnySerializer, JsonValue, OpaqueValue, value_text
from dstl_core.codec.serializers.collections import text_key
from dstl_core.codec.serializers.runtime import TtlValue
from dstl_core.errors import FormatError, UnreadableValueError
from dstl_core.model.shown_state import ShownState

_FRAMINGS = ("i32 length", "varint length", "no length")


@dataclass(frozen=True)
class MessageStates:
    """How the states of one operator that hold messages are read.

    Args:
        messages: All messages that are known.
        types: The message of a state, by its name.
    """

    messages: Messages
    types: Mapping[str, MessageType]

    def key_text(self, key_type: AnySerializer, key: Any) -> JsonValue:
        return value_text(key_type, key)

    def reader(self, name: str) -> MessageReader | None:
        """What reads the values of a state; None for other states."""
        message = self.types.get(name)
        return None if message is None else MessageReader(self.messages, message)

    def shown(
        self, name: str, kind: str, value_type: AnySerializer, value: Any
    ) -> ShownState | None:
        """A state's value; None for other states.

        Raises:
            FormatError: The bytes are no such message.
        """
        message = self.types.get(name)
        reader = self.reader(name)
        if message is None or reader is None:
            return None
        if kind == "map" and isinstance(value, list):
            key_type = value_type.nested[-2]
            pairs = [[value_text(key_type, key), reader.of(each)] for key, each in value]
            text: JsonValue = sorted(pairs, key=lambda pair: text_key(pair[0]))
        elif kind == "list" and isinstance(value, list):
            text = [reader.of(each) for each in value]
        else:
            text = reader.of(value)
        framing = f", {reader.framing}" if reader.framing else ""
        return ShownState(name, kind, text, f"{message.name}{framing}" if framing else None)


@dataclass
class MessageReader:
    """Reads the values of a state as one message. ``framing`` is what the last one had in front."""

    messages: Messages
    message: MessageType
    framing: str = ""

    def of(self, value: Any) -> JsonValue:
        if value is None:
            return None
        if isinstance(value, TtlValue):
            return {"v": self.of(value.value), "ts": value.last_access}
        if isinstance(value, bytes):
            return message_text(self.messages, self.message, value)
        if isinstance(value, OpaqueValue) and value.raw:
            return self._framed(value.raw)
        raise UnreadableValueError(
            f"The values are no bytes, so that they cannot be read as {self.message.name}"
        )

    def _framed(self, raw: bytes) -> JsonValue:
        """What a serializer of the job wrote: nothing says how long a message is, or that it has a
        length at all. The first way that fits to the last byte is taken, and named.
        """
        for framing in _FRAMINGS:
            try:
                text = message_text(self.messages, self.message, _body(raw, framing))
            except FormatError:
                continue
            self.framing = framing
            return text
        raise UnreadableValueError(
            f"The values are no {self.message.name}, neither with a length in front nor without one"
        )


def _body(raw: bytes, framing: str) -> bytes:
    data = DataInput(raw)
    if framing == _FRAMINGS[0]:
        body = data.read_bytes(data.read_length("length"), "message")
    elif framing == _FRAMINGS[1]:
        body = read_sized(data)
    else:
        return raw
    data.expect_end("a message")
    return body
