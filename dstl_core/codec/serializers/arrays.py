"""Arrays of primitives, of strings and of objects: ``i32 count`` and the items.

Source: ``BytePrimitiveArraySerializer`` and its siblings, ``StringArraySerializer`` and
``GenericArraySerializer`` of Flink 2.2.1. Flink refuses arrays as keys, since an array's Java hash
depends on its identity.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dstl_core.codec.data_io import (
    DataInput,
    DataOutput,
    float32_from_bits,
    float32_to_bits,
)
from dstl_core.codec.serializers.base import (
    AnySerializer,
    CompositeSerializer,
    JsonValue,
    SnapshotContext,
    TypeSerializer,
    read_composite_header,
    readers_of,
)
from dstl_core.codec.serializers.primitives import float_text
from dstl_core.codec.serializers.strings import read_string_value, write_string_value

_BASE = "org.apache.flink.api.common.typeutils.base."


def _array_class(name: str) -> str:
    return f"{_BASE}array.{name}ArraySerializer${name}ArraySerializerSnapshot"


@dataclass(frozen=True)
class BytePrimitiveArraySerializer(TypeSerializer[bytes]):
    snapshot_class: ClassVar[str] = _array_class("BytePrimitive")
    type_name: ClassVar[str] = "byte[]"

    def serialize(self, value: bytes, out: DataOutput) -> None:
        out.write_sized(value)

    def deserialize(self, data: DataInput) -> bytes:
        return data.read_bytes(data.read_length("byte[] size"), "byte[]")

    def to_text(self, value: bytes) -> JsonValue:
        return value.hex()


@dataclass(frozen=True)
class ByteArrayWrapperSerializer(BytePrimitiveArraySerializer):
    """Bytes of PyFlink: keys and values that Python pickled."""

    snapshot_class: ClassVar[str] = (
        "org.apache.flink.streaming.api.utils."
        "ByteArrayWrapperSerializer$ByteArrayWrapperSerializerSnapshot"
    )


class _PackedArraySerializer(TypeSerializer[list[Any]]):
    """Items of one fixed size, without gaps."""

    item_format: ClassVar[str]

    def serialize(self, value: list[Any], out: DataOutput) -> None:
        out.write_i32(len(value))
        out.write_bytes(struct.pack(f">{len(value)}{self.item_format}", *value))

    def deserialize(self, data: DataInput) -> list[Any]:
        size = struct.calcsize(f">{self.item_format}")
        count = data.read_count("array size", size)
        raw = data.read_bytes(count * size, "array")
        return list(struct.unpack(f">{count}{self.item_format}", raw))


@dataclass(frozen=True)
class BooleanPrimitiveArraySerializer(_PackedArraySerializer):
    snapshot_class: ClassVar[str] = _array_class("BooleanPrimitive")
    type_name: ClassVar[str] = "boolean[]"
    item_format: ClassVar[str] = "?"


@dataclass(frozen=True)
class ShortPrimitiveArraySerializer(_PackedArraySerializer):
    snapshot_class: ClassVar[str] = _array_class("ShortPrimitive")
    type_name: ClassVar[str] = "short[]"
    item_format: ClassVar[str] = "h"


@dataclass(frozen=True)
class IntPrimitiveArraySerializer(_PackedArraySerializer):
    snapshot_class: ClassVar[str] = _array_class("IntPrimitive")
    type_name: ClassVar[str] = "int[]"
    item_format: ClassVar[str] = "i"


@dataclass(frozen=True)
class LongPrimitiveArraySerializer(_PackedArraySerializer):
    snapshot_class: ClassVar[str] = _array_class("LongPrimitive")
    type_name: ClassVar[str] = "long[]"
    item_format: ClassVar[str] = "q"


@dataclass(frozen=True)
class FloatPrimitiveArraySerializer(_PackedArraySerializer):
    snapshot_class: ClassVar[str] = _array_class("FloatPrimitive")
    type_name: ClassVar[str] = "float[]"
    item_format: ClassVar[str] = "I"

    def serialize(self, value: list[Any], out: DataOutput) -> None:
        super().serialize([float32_to_bits(item) for item in value], out)

    def deserialize(self, data: DataInput) -> list[Any]:
        return [float32_from_bits(bits) for bits in super().deserialize(data)]

    def to_text(self, value: list[Any]) -> JsonValue:
        return [float_text(item) for item in value]


@dataclass(frozen=True)
class DoublePrimitiveArraySerializer(_PackedArraySerializer):
    snapshot_class: ClassVar[str] = _array_class("DoublePrimitive")
    type_name: ClassVar[str] = "double[]"
    item_format: ClassVar[str] = "d"

    def to_text(self, value: list[Any]) -> JsonValue:
        return [float_text(item) for item in value]


@dataclass(frozen=True)
class CharPrimitiveArraySerializer(_PackedArraySerializer):
    """Each item is one UTF-16 code unit, as a text of length 1."""

    snapshot_class: ClassVar[str] = _array_class("CharPrimitive")
    type_name: ClassVar[str] = "char[]"
    item_format: ClassVar[str] = "H"

    def serialize(self, value: list[Any], out: DataOutput) -> None:
        super().serialize([ord(item) for item in value], out)

    def deserialize(self, data: DataInput) -> list[Any]:
        return [chr(unit) for unit in super().deserialize(data)]


@dataclass(frozen=True)
class StringArraySerializer(TypeSerializer[list[str | None]]):
    snapshot_class: ClassVar[str] = _array_class("String")
    type_name: ClassVar[str] = "String[]"

    def serialize(self, value: list[str | None], out: DataOutput) -> None:
        out.write_i32(len(value))
        for item in value:
            write_string_value(out, item)

    def deserialize(self, data: DataInput) -> list[str | None]:
        return [read_string_value(data) for _ in range(data.read_count("String[] size", 1))]


@dataclass(frozen=True)
class GenericArraySerializer(CompositeSerializer[list[Any]]):
    """A byte before each item says whether it is present: 1 is present. Elsewhere 1 means null."""

    component_class: str
    component: AnySerializer
    snapshot_class: ClassVar[str] = _BASE + "GenericArraySerializerSnapshot"
    part_names: ClassVar[tuple[str, ...]] = ("component",)

    @property
    def type_name(self) -> str:
        return f"{self.component.type_name}[]"

    def serialize(self, value: list[Any], out: DataOutput) -> None:
        out.write_i32(len(value))
        for item in value:
            out.write_bool(item is not None)
            if item is not None:
                self.component.serialize(item, out)

    def deserialize(self, data: DataInput) -> list[Any]:
        return [
            self.component.deserialize(data) if data.read_bool("array item is there") else None
            for _ in range(data.read_count("array size", 1))
        ]

    def write_outer_fields(self, out: DataOutput) -> None:
        out.write_utf(self.component_class)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        read_composite_header(data, 1)
        return cls(data.read_utf("component class"), *context.read_nested(data, 1))

    def to_text(self, value: list[Any]) -> JsonValue:
        return [None if item is None else self.component.to_text(item) for item in value]


READERS = readers_of(
    BytePrimitiveArraySerializer,
    ByteArrayWrapperSerializer,
    BooleanPrimitiveArraySerializer,
    ShortPrimitiveArraySerializer,
    IntPrimitiveArraySerializer,
    LongPrimitiveArraySerializer,
    FloatPrimitiveArraySerializer,
    DoublePrimitiveArraySerializer,
    CharPrimitiveArraySerializer,
    StringArraySerializer,
    GenericArraySerializer,
)
