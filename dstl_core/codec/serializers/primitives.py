"""Fixed-size numbers, booleans and characters.

Bytes are big-endian, as ``DataOutput`` writes them. Hashes are those of Java's boxed types.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import ClassVar

from dstl_core.codec.data_io import (
    CANONICAL_NAN_32,
    CANONICAL_NAN_64,
    DataInput,
    DataOutput,
    float32_to_bits,
)
from dstl_core.codec.serializers.base import JsonValue, TypeSerializer, bad_value, readers_of

_BASE = "org.apache.flink.api.common.typeutils.base."
_F64 = struct.Struct(">d")


def long_java_hash(value: int) -> int:
    """``(int) (v ^ (v >>> 32))`` of a signed 64-bit value."""
    bits = value & 0xFFFFFFFFFFFFFFFF
    return (bits ^ bits >> 32) & 0xFFFFFFFF


def float_text(value: float) -> JsonValue:
    """NaN and infinity as texts, since JSON does not have them; other numbers as they are."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


@dataclass(frozen=True)
class BooleanSerializer(TypeSerializer[bool]):
    snapshot_class: ClassVar[str] = _BASE + "BooleanSerializer$BooleanSerializerSnapshot"
    type_name: ClassVar[str] = "Boolean"
    length: ClassVar[int] = 1

    def serialize(self, value: bool, out: DataOutput) -> None:
        out.write_bool(value)

    def deserialize(self, data: DataInput) -> bool:
        return data.read_bool("Boolean")

    def java_hash(self, value: bool) -> int:
        return 1231 if value else 1237


@dataclass(frozen=True)
class ByteSerializer(TypeSerializer[int]):
    snapshot_class: ClassVar[str] = _BASE + "ByteSerializer$ByteSerializerSnapshot"
    type_name: ClassVar[str] = "Byte"
    length: ClassVar[int] = 1
    packed: ClassVar[struct.Struct | None] = struct.Struct(">b")

    def serialize(self, value: int, out: DataOutput) -> None:
        out.write_i8(value)

    def deserialize(self, data: DataInput) -> int:
        return data.read_i8("Byte")

    def java_hash(self, value: int) -> int:
        return value


@dataclass(frozen=True)
class ShortSerializer(TypeSerializer[int]):
    snapshot_class: ClassVar[str] = _BASE + "ShortSerializer$ShortSerializerSnapshot"
    type_name: ClassVar[str] = "Short"
    length: ClassVar[int] = 2
    packed: ClassVar[struct.Struct | None] = struct.Struct(">h")

    def serialize(self, value: int, out: DataOutput) -> None:
        out.write_i16(value)

    def deserialize(self, data: DataInput) -> int:
        return data.read_i16("Short")

    def java_hash(self, value: int) -> int:
        return value


@dataclass(frozen=True)
class IntSerializer(TypeSerializer[int]):
    snapshot_class: ClassVar[str] = _BASE + "IntSerializer$IntSerializerSnapshot"
    type_name: ClassVar[str] = "Integer"
    length: ClassVar[int] = 4
    packed: ClassVar[struct.Struct | None] = struct.Struct(">i")

    def serialize(self, value: int, out: DataOutput) -> None:
        out.write_i32(value)

    def deserialize(self, data: DataInput) -> int:
        return data.read_i32("Integer")

    def java_hash(self, value: int) -> int:
        return value


@dataclass(frozen=True)
class LongSerializer(TypeSerializer[int]):
    snapshot_class: ClassVar[str] = _BASE + "LongSerializer$LongSerializerSnapshot"
    type_name: ClassVar[str] = "Long"
    length: ClassVar[int] = 8
    packed: ClassVar[struct.Struct | None] = struct.Struct(">q")

    def serialize(self, value: int, out: DataOutput) -> None:
        out.write_i64(value)

    def deserialize(self, data: DataInput) -> int:
        return data.read_i64("Long")

    def java_hash(self, value: int) -> int:
        return long_java_hash(value)


@dataclass(frozen=True)
class FloatSerializer(TypeSerializer[float]):
    """Values are Python floats that hold a 32-bit value exactly."""

    snapshot_class: ClassVar[str] = _BASE + "FloatSerializer$FloatSerializerSnapshot"
    type_name: ClassVar[str] = "Float"
    length: ClassVar[int] = 4

    def serialize(self, value: float, out: DataOutput) -> None:
        out.write_f32(value)

    def deserialize(self, data: DataInput) -> float:
        return data.read_f32("Float")

    def java_hash(self, value: float) -> int:
        return CANONICAL_NAN_32 if math.isnan(value) else float32_to_bits(value)

    def to_text(self, value: float) -> JsonValue:
        # Prints the decimal digits of the 64-bit value, as Flink's dumps do; it reads back exactly.
        return float_text(value)


@dataclass(frozen=True)
class DoubleSerializer(TypeSerializer[float]):
    snapshot_class: ClassVar[str] = _BASE + "DoubleSerializer$DoubleSerializerSnapshot"
    type_name: ClassVar[str] = "Double"
    length: ClassVar[int] = 8
    packed: ClassVar[struct.Struct | None] = _F64
    packed_class: ClassVar[type] = float

    def serialize(self, value: float, out: DataOutput) -> None:
        out.write_f64(value)

    def deserialize(self, data: DataInput) -> float:
        return data.read_f64("Double")

    def java_hash(self, value: float) -> int:
        bits: int = struct.unpack(">q", _F64.pack(value))[0]
        return long_java_hash(CANONICAL_NAN_64 if math.isnan(value) else bits)

    def to_text(self, value: float) -> JsonValue:
        return float_text(value)


@dataclass(frozen=True)
class CharSerializer(TypeSerializer[str]):
    """One UTF-16 code unit, as a text of length 1; it may be a lone surrogate."""

    snapshot_class: ClassVar[str] = _BASE + "CharSerializer$CharSerializerSnapshot"
    type_name: ClassVar[str] = "Character"
    length: ClassVar[int] = 2

    def serialize(self, value: str, out: DataOutput) -> None:
        out.write_u16(ord(value))

    def deserialize(self, data: DataInput) -> str:
        return chr(data.read_u16("Character"))

    def java_hash(self, value: str) -> int:
        return ord(value)


@dataclass(frozen=True)
class VoidSerializer(TypeSerializer[None]):
    """Only null: one byte, 0."""

    snapshot_class: ClassVar[str] = _BASE + "VoidSerializer$VoidSerializerSnapshot"
    type_name: ClassVar[str] = "Void"
    length: ClassVar[int] = 1

    def serialize(self, value: None, out: DataOutput) -> None:
        out.write_u8(0)

    def deserialize(self, data: DataInput) -> None:
        at = data.position
        got = data.read_u8("Void")
        if got != 0:
            raise bad_value("A Void is not 0", at, 0, got)


READERS = readers_of(
    BooleanSerializer,
    ByteSerializer,
    ShortSerializer,
    IntSerializer,
    LongSerializer,
    FloatSerializer,
    DoubleSerializer,
    CharSerializer,
    VoidSerializer,
)
