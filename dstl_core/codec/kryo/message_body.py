"""Messages of Protocol Buffers in Kryo, as chill-protobuf stores them: a count, and the message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dstl_core.codec.kryo.kryo_reader import Arguments, KryoValueReader, KryoValueWriter
from dstl_core.codec.protobuf.descriptors import Messages, MessageType
from dstl_core.codec.protobuf.message_text import message_text
from dstl_core.codec.serializers.base import JsonValue
from dstl_core.errors import FormatError, UnreadableValueError

MESSAGE_SERIALIZER = "ProtobufSerializer"
"""The name of chill's class, and of those that are made like it."""


@dataclass(frozen=True)
class MessageBody:
    """A message; a value is its text form, which no upgrade writes."""

    class_name: str
    messages: Messages
    message: MessageType
    is_plain: ClassVar[bool] = False
    is_enum: ClassVar[bool] = False

    def read(self, reader: KryoValueReader, arguments: Arguments) -> JsonValue:
        if not reader.is_old:
            raise self._not_in_flink_2()
        size = reader.input.count("size of a message", item_bytes=1)
        return message_text(self.messages, self.message, reader.input.take(size, "message"))

    def write(self, writer: KryoValueWriter, value: JsonValue) -> None:
        raise self._not_in_flink_2()

    def _not_in_flink_2(self) -> FormatError:
        return UnreadableValueError(
            f"Class {self.class_name} has a Kryo serializer of the job, which only Java can run"
        )
