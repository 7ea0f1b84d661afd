"""Strings as Flink stores values: ``StringValue.writeString`` of Flink 2.2.1.

varint(n + 1), then n UTF-16 code units, each a varint (little-endian base 128, high bit = more).
A length of 0 is null, 1 the empty string.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import ClassVar

from dstl_core.codec.data_io import DataInput, DataOutput, from_utf16_units, utf16_units
from dstl_core.codec.serializers.base import TypeSerializer, readers_of
from dstl_core.errors import FormatError


def write_varint(out: DataOutput, value: int) -> None:
    while value >= 0x80:
        out.write_u8(value & 0x7F | 0x80)
        value >>= 7
    out.write_u8(value)


def read_varint(data: DataInput, field: str, max_bytes: int) -> int:
    at = data.position
    value = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = data.read_u8(field)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise FormatError(
        "A variable-length number does not end",
        offset=at,
        field=field,
        expected=f"{max_bytes} bytes",
    )


def write_string_value(out: DataOutput, value: str | None) -> None:
    if value is None:
        out.write_u8(0)
        return
    write_units(out, value, 1)


def write_units(out: DataOutput, value: str, extra: int) -> None:
    """Writes the number of code units plus ``extra``, then the code units."""
    if value.isascii():
        write_varint(out, len(value) + extra)
        out.write_bytes(value.encode("ascii"))
        return
    units = tuple(utf16_units(value))
    write_varint(out, len(units) + extra)
    for unit in units:
        write_varint(out, unit)


def read_string_value(data: DataInput) -> str | None:
    at = data.position
    length = read_varint(data, "string length", 5)
    return None if length == 0 else read_units(data, at, length - 1)


def read_units(data: DataInput, at: int, size: int) -> str:
    """Reads ``size`` code units; ``at`` is the offset of their number."""
    if size > data.remaining:
        raise FormatError(
            "A string is longer than the data",
            offset=at,
            field="string length",
            expected=f"<= {data.remaining}",
            got=size,
        )
    start = data.position
    plain = data.read_bytes(size, "string")
    if plain.isascii():
        return plain.decode("ascii")
    data.seek(start)
    units = _short_units(data, size)
    while len(units) < size:
        unit = read_varint(data, "string character", 3)
        if unit > 0xFFFF:
            raise FormatError(
                "A string holds a number that is not a UTF-16 unit",
                offset=data.position,
                expected="<= 65535",
                got=unit,
            )
        units.append(unit)
    return from_utf16_units(units)


def _short_units(data: DataInput, size: int) -> array[int]:
    """Reads up to ``size`` code units while they are well formed and whole.

    It stands at the first one that is not, for a reader that says what is wrong.
    """
    buffer, at, end = data.window()
    units = array("H")
    append = units.append
    for _ in range(size):
        if end - at < 3:
            break
        unit = buffer[at]
        length = 1
        if unit >= 0x80:
            middle = buffer[at + 1]
            unit = unit & 0x7F | (middle & 0x7F) << 7
            length = 2
            if middle >= 0x80:
                last = buffer[at + 2]
                if last > 3:
                    break
                unit |= last << 14
                length = 3
        append(unit)
        at += length
    data.rewind(at)
    return units


def string_java_hash(value: str) -> int:
    """Applies ``31 * h + unit`` to the UTF-16 code units, in 32 bits."""
    h = 0
    for unit in utf16_units(value):
        h = (31 * h + unit) & 0xFFFFFFFF
    return h


@dataclass(frozen=True)
class StringSerializer(TypeSerializer[str | None]):
    """Nullable. Lone surrogates are kept."""

    snapshot_class: ClassVar[str] = (
        "org.apache.flink.api.common.typeutils.base.StringSerializer$StringSerializerSnapshot"
    )
    type_name: ClassVar[str] = "String"

    def serialize(self, value: str | None, out: DataOutput) -> None:
        write_string_value(out, value)

    def deserialize(self, data: DataInput) -> str | None:
        return read_string_value(data)

    def java_hash(self, value: str | None) -> int:
        return string_java_hash(value) if value is not None else 0


READERS = readers_of(StringSerializer)
