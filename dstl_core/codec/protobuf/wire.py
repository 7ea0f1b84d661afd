"""Protocol Buffers' wire format: fields of a number, a wire type and a value.

    message := (varint number << 3 | wire type, value)*
    value   := varint | 8 bytes, little-endian | varint length, bytes | 4 bytes, little-endian

Source: the encoding page of Protocol Buffers.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.codec.data_io import DataInput
from dstl_core.errors import FormatError, UnreadableValueError

VARINT, FIXED_64, SIZED, FIXED_32 = 0, 1, 2, 5
_GROUPS = (3, 4)
_MAX_VARINT_BYTES = 10
_MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class WireField:
    """A field: ``value`` is a number for a varint, else its bytes."""

    number: int
    wire_type: int
    value: int | bytes


def read_varint(data: DataInput, field: str = "varint") -> int:
    """A number below 2 ** 64."""
    at = data.position
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        byte = data.read_u8(field)
        value |= (byte & 0x7F) << 7 * index
        if not byte & 0x80:
            return value & _MASK_64
    raise FormatError(
        "A varint of a message is too long",
        offset=at,
        field=field,
        expected=f"<= {_MAX_VARINT_BYTES} bytes",
    )


def read_fields(raw: bytes) -> list[WireField]:
    """All fields of a message, in their order."""
    data = DataInput(raw)
    fields = []
    while data.remaining:
        at = data.position
        tag = read_varint(data, "tag")
        number, wire_type = tag >> 3, tag & 7
        if number == 0 or number >= 1 << 29:
            raise FormatError("A message has a wrong field number", offset=at, got=number)
        value: int | bytes
        if wire_type == VARINT:
            value = read_varint(data)
        elif wire_type == SIZED:
            value = read_sized(data)
        elif wire_type in (FIXED_32, FIXED_64):
            value = data.read_bytes(4 if wire_type == FIXED_32 else 8, "number")
        elif wire_type in _GROUPS:
            raise UnreadableValueError("A message has a group, which dstl does not read", offset=at)
        else:
            raise FormatError("A message has an unknown wire type", offset=at, got=wire_type)
        fields.append(WireField(number, wire_type, value))
    return fields


def read_sized(data: DataInput) -> bytes:
    """A varint length, and that many bytes."""
    at = data.position
    size = read_varint(data, "length")
    if size > data.remaining:
        raise FormatError(
            "A length of a message is too large",
            offset=at,
            expected=f"<= {data.remaining}",
            got=size,
        )
    return data.read_bytes(size, "bytes")
