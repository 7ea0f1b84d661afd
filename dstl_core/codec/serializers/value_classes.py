"""Flink's mutable value classes (``org.apache.flink.types``).

The bytes equal those of the plain types, except for ``StringValue``: a varint count of UTF-16 code
units, without a null, then the units. Source: ``StringValueSerializer``, ``LongValueSerializer``
and their siblings of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import TypeSerializer, readers_of
from dstl_core.codec.serializers.primitives import (
    BooleanSerializer,
    ByteSerializer,
    CharSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from dstl_core.codec.serializers.strings import (
    read_units,
    read_varint,
    string_java_hash,
    write_units,
)


def _value_class(name: str) -> str:
    return (
        f"org.apache.flink.api.common.typeutils.base.{name}ValueSerializer$"
        f"{name}ValueSerializerSnapshot"
    )


@dataclass(frozen=True)
class BooleanValueSerializer(BooleanSerializer):
    snapshot_class: ClassVar[str] = _value_class("Boolean")
    type_name: ClassVar[str] = "BooleanValue"

    def java_hash(self, value: bool) -> int:
        return 1 if value else 0


@dataclass(frozen=True)
class ByteValueSerializer(ByteSerializer):
    snapshot_class: ClassVar[str] = _value_class("Byte")
    type_name: ClassVar[str] = "ByteValue"


@dataclass(frozen=True)
class ShortValueSerializer(ShortSerializer):
    snapshot_class: ClassVar[str] = _value_class("Short")
    type_name: ClassVar[str] = "ShortValue"


@dataclass(frozen=True)
class IntValueSerializer(IntSerializer):
    snapshot_class: ClassVar[str] = _value_class("Int")
    type_name: ClassVar[str] = "IntValue"


@dataclass(frozen=True)
class LongValueSerializer(LongSerializer):
    snapshot_class: ClassVar[str] = _value_class("Long")
    type_name: ClassVar[str] = "LongValue"

    def java_hash(self, value: int) -> int:
        return 43 + super().java_hash(value)


@dataclass(frozen=True)
class FloatValueSerializer(FloatSerializer):
    snapshot_class: ClassVar[str] = _value_class("Float")
    type_name: ClassVar[str] = "FloatValue"


@dataclass(frozen=True)
class DoubleValueSerializer(DoubleSerializer):
    snapshot_class: ClassVar[str] = _value_class("Double")
    type_name: ClassVar[str] = "DoubleValue"

    def java_hash(self, value: float) -> int:
        return 31 + super().java_hash(value)


@dataclass(frozen=True)
class CharValueSerializer(CharSerializer):
    snapshot_class: ClassVar[str] = _value_class("Char")
    type_name: ClassVar[str] = "CharValue"


@dataclass(frozen=True)
class NullValueSerializer(TypeSerializer[None]):
    """One byte, 0."""

    snapshot_class: ClassVar[str] = _value_class("Null")
    type_name: ClassVar[str] = "NullValue"
    length: ClassVar[int] = 1

    def serialize(self, value: None, out: DataOutput) -> None:
        out.write_bool(False)

    def deserialize(self, data: DataInput) -> None:
        data.read_bool("NullValue")

    def java_hash(self, value: None) -> int:
        return 53


@dataclass(frozen=True)
class StringValueSerializer(TypeSerializer[str]):
    snapshot_class: ClassVar[str] = _value_class("String")
    type_name: ClassVar[str] = "StringValue"

    def serialize(self, value: str, out: DataOutput) -> None:
        write_units(out, value, 0)

    def deserialize(self, data: DataInput) -> str:
        at = data.position
        return read_units(data, at, read_varint(data, "string length", 5))

    def java_hash(self, value: str) -> int:
        return string_java_hash(value)


READERS = readers_of(
    BooleanValueSerializer,
    ByteValueSerializer,
    ShortValueSerializer,
    IntValueSerializer,
    LongValueSerializer,
    FloatValueSerializer,
    DoubleValueSerializer,
    CharValueSerializer,
    NullValueSerializer,
    StringValueSerializer,
)
