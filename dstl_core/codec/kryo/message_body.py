"""Messages of Protocol Buffers in Kryo, as chill-protobuf stores them: a count, and the message.

Kryo of Flink 2.x has no chill. What an upgrade can keep are the bytes of the messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_records import LIST_DELIMITER
from dstl_core.codec.kryo.kryo_input import KryoInput, KryoOutput
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_reader import Arguments, Body, KryoValueReader, KryoValueWriter
from dstl_core.codec.protobuf.descriptors import Messages, MessageType
from dstl_core.codec.protobuf.message_text import message_text
from dstl_core.codec.serializers.base import JsonValue
from dstl_core.display import option_text
from dstl_core.errors import FormatError, UnreadableValueError

MESSAGE_SERIALIZER = "ProtobufSerializer"
"""The name of chill's class, and of those that are made like it."""
MESSAGE_TYPES = tuple(
    f"com.google.protobuf.{name}"
    for name in (
        *("GeneratedMessageV3", "GeneratedMessage", "AbstractMessage", "Message"),
        *("AbstractMessageLite", "MessageLite"),
    )
)
"""What generated classes are of: a job may have a default serializer for one of these."""
_NAMED, _NEW = 1, 1
"""A class by its name, and an object that is not a reference to another one."""


class StoredMessage(NamedTuple):
    """A message: its bytes, and its text form."""

    raw: bytes
    text: JsonValue


@dataclass(frozen=True)
class MessageBody(Body):
    """A class of messages."""

    class_name: str
    messages: Messages
    message: MessageType

    def read(self, reader: KryoValueReader, arguments: Arguments) -> StoredMessage:
        if not reader.is_old:
            raise UnreadableValueError(
                f"Class {self.class_name} has a Kryo serializer of the job, which only Java can run"
            )
        size = reader.input.count("size of a message", item_bytes=1)
        raw = reader.input.take(size, "message")
        return StoredMessage(raw, message_text(self.messages, self.message, raw))

    def write(self, writer: KryoValueWriter, value: StoredMessage) -> None:
        raise self.not_in_flink_2()

    def not_in_flink_2(self) -> FormatError:
        named = option_text("--type", "STATE=byte[]")
        return UnreadableValueError(
            f"Class {self.class_name} is a message that a Kryo serializer of the job stores, which "
            f"only Java can run; keep the bytes of the messages ({named}, also of the "
            f"elements of a list state, and Map<KEY, byte[]> of a map), or leave the state out"
        )


def with_messages(raw: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Kryo's bytes of a message, or of all elements of a list, with other messages in them.

    Args:
        raw: The bytes of Kryo 2.24.
        change: Gives the bytes of a message in place of those of another one.

    Raises:
        FormatError: The bytes are no such values.
    """
    source, out = KryoInput(DataInput(raw), Dialect.KRYO_2), KryoOutput()
    while True:
        start = source.position
        number = source.varint("class")
        if number == _NAMED:
            source.varint("number of a class name")
            source.text("class name")
        if number and source.varint("reference") != _NEW:
            raise FormatError("A message of Kryo is a reference to another object", offset=start)
        out.bytes(raw[start : source.position])
        if number:
            size = source.count("size of a message", item_bytes=1)
            message = change(source.take(size, "message"))
            out.varint(len(message))
            out.bytes(message)
        if source.position == source.end:
            return bytes(out.buffer)
        at = source.position
        got = source.u8("list delimiter")
        if got != LIST_DELIMITER:
            raise FormatError("Bytes follow a message of Kryo", offset=at, expected=",", got=got)
        out.u8(got)
