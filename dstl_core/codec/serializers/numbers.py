"""``BigInteger`` and ``BigDecimal``.

    integer := i32 0 null | 1 zero | 2 one | 3 ten | n + 4, then n bytes (two's complement)
    decimal := integer (the unscaled value; 0 = null, and nothing follows), i32 scale

Source: ``BigIntSerializer`` and ``BigDecSerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dstl_core.codec.big_decimal import BigDecimal, integer_text, two_s_complement
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import JsonValue, TypeSerializer, bad_value, readers_of

_BASE = "org.apache.flink.api.common.typeutils.base."
_SHORT_CODES = {0: 1, 1: 2, 10: 3}
_SHORT_VALUES = {code: value for value, code in _SHORT_CODES.items()}


def big_integer_java_hash(value: int) -> int:
    """Applies ``31 * h + word`` to the 32-bit words of the magnitude, then multiplies by the
    sign.
    """
    magnitude = abs(value)
    h = 0
    words = (magnitude.bit_length() + 31) // 32
    for at in range(words - 1, -1, -1):
        h = (31 * h + (magnitude >> 32 * at & 0xFFFFFFFF)) & 0xFFFFFFFF
    return -h if value < 0 else h


def big_decimal_java_hash(value: BigDecimal) -> int:
    unscaled, scale = value
    if abs(unscaled) < 1 << 63:
        magnitude = abs(unscaled)
        h = 31 * (magnitude >> 32) + (magnitude & 0xFFFFFFFF)
        return 31 * (-h if unscaled < 0 else h) + scale
    return 31 * big_integer_java_hash(unscaled) + scale


def write_big_integer(out: DataOutput, value: int | None) -> None:
    if value is None:
        out.write_i32(0)
        return
    code = _SHORT_CODES.get(value)
    if code is not None:
        out.write_i32(code)
        return
    raw = two_s_complement(value)
    out.write_i32(len(raw) + 4)
    out.write_bytes(raw)


def read_big_integer(data: DataInput) -> int | None:
    at = data.position
    code = data.read_i32("BigInteger length")
    if code == 0:
        return None
    if code in _SHORT_VALUES:
        return _SHORT_VALUES[code]
    if code < 5:
        raise bad_value("A BigInteger has no bytes", at, "0..3 or more than 4", code)
    return int.from_bytes(data.read_bytes(code - 4, "BigInteger"), "big", signed=True)


@dataclass(frozen=True)
class BigIntSerializer(TypeSerializer[int | None]):
    snapshot_class: ClassVar[str] = _BASE + "BigIntSerializer$BigIntSerializerSnapshot"
    type_name: ClassVar[str] = "BigInteger"

    def serialize(self, value: int | None, out: DataOutput) -> None:
        write_big_integer(out, value)

    def deserialize(self, data: DataInput) -> int | None:
        return read_big_integer(data)

    def java_hash(self, value: int | None) -> int:
        return big_integer_java_hash(value) if value is not None else 0

    def to_text(self, value: int | None) -> JsonValue:
        return None if value is None else integer_text(value)


@dataclass(frozen=True)
class BigDecSerializer(TypeSerializer[BigDecimal | None]):
    snapshot_class: ClassVar[str] = _BASE + "BigDecSerializer$BigDecSerializerSnapshot"
    type_name: ClassVar[str] = "BigDecimal"

    def serialize(self, value: BigDecimal | None, out: DataOutput) -> None:
        if value is None:
            out.write_i32(0)
            return
        write_big_integer(out, value.unscaled)
        out.write_i32(value.scale)

    def deserialize(self, data: DataInput) -> BigDecimal | None:
        unscaled = read_big_integer(data)
        return None if unscaled is None else BigDecimal(unscaled, data.read_i32("scale"))

    def java_hash(self, value: BigDecimal | None) -> int:
        return big_decimal_java_hash(value) if value is not None else 0

    def to_text(self, value: BigDecimal | None) -> JsonValue:
        return None if value is None else str(value)


READERS = readers_of(BigIntSerializer, BigDecSerializer)
