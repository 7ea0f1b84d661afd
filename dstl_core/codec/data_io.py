"""Java's ``DataInput`` and ``DataOutput`` over bytes: big-endian primitives, modified UTF-8.

Every length and count is checked against what remains before anything is allocated.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Iterable
from typing import Protocol

from dstl_core.errors import FormatError, InvariantViolation, TruncatedDataError

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_U32 = struct.Struct(">I")
_F32 = struct.Struct(">f")
_F64 = struct.Struct(">d")

MAX_UTF_BYTES = 0xFFFF
MAX_FREE_VALUES = 1 << 22
"""Values of one input that take no bytes, or that repeat others, on top of some for each byte. The
bytes that remain do not limit how many of them a count announces.
"""
_FREE_VALUES_OF_A_BYTE = 8
CANONICAL_NAN_32 = 0x7FC00000
CANONICAL_NAN_64 = 0x7FF8000000000000
"""The bits of every NaN that Java compares, hashes or writes."""


class _ValueReader(Protocol):
    """A reader of one value, which thereby finds the end of the value."""

    def deserialize(self, data: DataInput) -> object: ...


class DataInput:
    """Reads from ``buffer[start:end]``; positions count from the start of ``buffer``."""

    __slots__ = ("_buffer", "_end", "_free_values", "_position")

    def __init__(self, buffer: bytes, start: int = 0, end: int | None = None) -> None:
        self._buffer = buffer
        self._free_values = 0
        self._position = start
        self._end = len(buffer) if end is None else end

    @property
    def position(self) -> int:
        return self._position

    @property
    def remaining(self) -> int:
        return self._end - self._position

    def seek(self, position: int) -> None:
        """Goes back to a position that was already read."""
        if not 0 <= position <= self._position:
            raise InvariantViolation("seek only moves an input back; use rewind")
        self._position = position

    def rewind(self, position: int) -> None:
        """Goes to any position between the start and the end of this input."""
        if not 0 <= position <= self._end:
            raise InvariantViolation("the position lies outside this input")
        self._position = position

    def peek(self, position: int) -> bytes:
        """The bytes from a position to the end, without moving."""
        return self._buffer[position : self._end]

    def window(self) -> tuple[bytes, int, int]:
        """The buffer, the position in it, and its end, for readers that keep their own place."""
        return self._buffer, self._position, self._end

    def count_free(self, values: int) -> None:
        """Counts values that take no bytes, or that repeat others.

        Raises:
            FormatError: This input has too many of them.
        """
        self._free_values += values
        most = MAX_FREE_VALUES + _FREE_VALUES_OF_A_BYTE * self._end
        if self._free_values > most:
            raise FormatError(
                "Too many values take no bytes of their own",
                offset=self._position,
                expected=f"<= {most}",
                got=self._free_values,
            )

    def _take(self, size: int, field: str) -> int:
        start = self._position
        if size > self._end - start:
            raise TruncatedDataError(
                "The data ends too early",
                offset=start,
                field=field,
                expected=f"{size} more bytes",
                got=self._end - start,
            )
        self._position = start + size
        return start

    def read_i8(self, field: str = "byte") -> int:
        value: int = _I8.unpack_from(self._buffer, self._take(1, field))[0]
        return value

    def read_u8(self, field: str = "byte") -> int:
        return self._buffer[self._take(1, field)]

    def read_i16(self, field: str = "short") -> int:
        value: int = _I16.unpack_from(self._buffer, self._take(2, field))[0]
        return value

    def read_u16(self, field: str = "unsigned short") -> int:
        value: int = _U16.unpack_from(self._buffer, self._take(2, field))[0]
        return value

    def read_i32(self, field: str = "int") -> int:
        value: int = _I32.unpack_from(self._buffer, self._take(4, field))[0]
        return value

    def read_i64(self, field: str = "long") -> int:
        value: int = _I64.unpack_from(self._buffer, self._take(8, field))[0]
        return value

    def read_i64s(self, count: int, field: str = "long") -> tuple[int, ...]:
        """Reads ``count`` longs; ``count`` is not negative."""
        start = self._take(8 * count, field)
        return struct.unpack_from(f">{count}q", self._buffer, start)

    def read_counted_i64s(self, field: str) -> tuple[int, ...]:
        """Reads an i32 count and that many longs."""
        return self.read_i64s(self.read_count(field, 8), field)

    def read_f32(self, field: str = "float") -> float:
        return float32_from_bits(_U32.unpack_from(self._buffer, self._take(4, field))[0])

    def read_f64(self, field: str = "double") -> float:
        value: float = _F64.unpack_from(self._buffer, self._take(8, field))[0]
        return value

    def read_bool(self, field: str = "boolean") -> bool:
        """Reads one byte: 0 is false, every other value is true, as in Java."""
        return self._buffer[self._take(1, field)] != 0

    def read_bytes(self, size: int, field: str = "bytes") -> bytes:
        if size < 0:
            raise FormatError(
                "A length is negative",
                offset=self._position,
                field=field,
                expected=">= 0",
                got=size,
            )
        start = self._take(size, field)
        return self._buffer[start : start + size]

    def read_length(self, field: str, *, limit: int | None = None) -> int:
        """Reads an i32 byte length and checks that this many bytes remain."""
        return self.read_count(field, 1, limit=limit)

    def read_count(self, field: str, item_bytes: int, *, limit: int | None = None) -> int:
        """Reads an i32 count and checks that this many items of ``item_bytes`` can follow."""
        at = self._position
        count = self.read_i32(field)
        most = self.remaining // item_bytes if item_bytes else 2**31
        if limit is not None:
            most = min(most, limit)
        if not 0 <= count <= most:
            raise FormatError(
                "A count does not fit into the data",
                offset=at,
                field=field,
                expected=f"0..{most}",
                got=count,
            )
        return count

    def read_expected_i32(self, field: str, expected: int) -> None:
        at = self._position
        got = self.read_i32(field)
        if got != expected:
            raise FormatError(
                "A fixed value differs", offset=at, field=field, expected=expected, got=got
            )

    def read_utf(self, field: str = "text") -> str:
        """``DataInput.readUTF``: u16 byte length, then modified UTF-8."""
        size = self.read_u16(field)
        start = self._take(size, field)
        return decode_modified_utf8(self._buffer[start : start + size], start, field)

    @staticmethod
    def decode_utf(raw: bytes, offset: int, field: str) -> str:
        """Decodes modified UTF-8 that is already read."""
        return decode_modified_utf8(raw, offset, field)

    def sub_input(self, size: int, field: str = "section") -> DataInput:
        """The next ``size`` bytes as a separate input. Positions still count from ``buffer``."""
        if size < 0:
            raise FormatError(
                "A length is negative",
                offset=self._position,
                field=field,
                expected=">= 0",
                got=size,
            )
        start = self._take(size, field)
        return DataInput(self._buffer, start, start + size)

    def read_value(self, serializer: _ValueReader) -> bytes:
        """Reads the bytes of the next value of a serializer."""
        start = self._position
        serializer.deserialize(self)
        return self._buffer[start : self._position]

    def expect_end(self, what: str) -> None:
        if self.remaining:
            raise FormatError(
                f"Bytes are left after {what}",
                offset=self._position,
                expected="the end",
                got=f"{self.remaining} more bytes",
            )


class DataOutput:
    """Collects bytes; ``position`` is the number of bytes written."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def position(self) -> int:
        return len(self._buffer)

    def to_bytes(self) -> bytes:
        return bytes(self._buffer)

    def write_i8(self, value: int) -> None:
        self._buffer += _I8.pack(value)

    def write_u8(self, value: int) -> None:
        self._buffer.append(value)

    def write_i16(self, value: int) -> None:
        self._buffer += _I16.pack(value)

    def write_u16(self, value: int) -> None:
        self._buffer += _U16.pack(value)

    def write_i32(self, value: int) -> None:
        self._buffer += _I32.pack(value)

    def write_i64(self, value: int) -> None:
        self._buffer += _I64.pack(value)

    def write_f32(self, value: float) -> None:
        self._buffer += _U32.pack(float32_to_bits(value))

    def write_f64(self, value: float) -> None:
        self._buffer += _F64.pack(value)

    def write_bool(self, value: bool) -> None:
        self._buffer.append(1 if value else 0)

    def write_bytes(self, value: bytes) -> None:
        self._buffer += value

    def write_sized(self, value: bytes) -> None:
        """Appends the bytes after their number (i32)."""
        self.write_i32(len(value))
        self.write_bytes(value)

    def write_utf(self, value: str) -> None:
        raw = encode_modified_utf8(value)
        if len(raw) > MAX_UTF_BYTES:
            raise FormatError(
                "A text is too long for this field",
                expected=f"<= {MAX_UTF_BYTES} bytes of modified UTF-8",
                got=len(raw),
            )
        self.write_u16(len(raw))
        self._buffer += raw


class KeyOutput(DataOutput):
    """Collects the bytes of keys, which are compared byte by byte.

    Every NaN is written with the bits that Java's ``DataOutput`` writes. So all NaNs are one key,
    as in ``Double.equals`` and ``Float.equals``. 0.0 and -0.0 are two keys, as in Java.
    """

    __slots__ = ()

    def write_f32(self, value: float) -> None:
        if math.isnan(value):
            self.write_bytes(CANONICAL_NAN_32.to_bytes(4, "big"))
        else:
            super().write_f32(value)

    def write_f64(self, value: float) -> None:
        if math.isnan(value):
            self.write_bytes(CANONICAL_NAN_64.to_bytes(8, "big"))
        else:
            super().write_f64(value)


def float32_from_bits(bits: int) -> float:
    """The float of 32 bits. A NaN keeps its payload; a hardware conversion would change it."""
    if bits & 0x7F800000 == 0x7F800000 and bits & 0x007FFFFF:
        wide = (bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x007FFFFF) << 29
        nan: float = _F64.unpack(wide.to_bytes(8, "big"))[0]
        return nan
    value: float = _F32.unpack(bits.to_bytes(4, "big"))[0]
    return value


def float32_to_bits(value: float) -> int:
    """The 32 bits of a float: the inverse of ``float32_from_bits``.

    Raises:
        OverflowError: The value does not fit into 32 bits.
    """
    if math.isnan(value):
        wide = int.from_bytes(_F64.pack(value), "big")
        payload = (wide >> 29) & 0x007FFFFF
        return (wide >> 63) << 31 | 0x7F800000 | (payload or 0x00400000)
    return int.from_bytes(_F32.pack(value), "big")


def utf16_units(text: str) -> Iterable[int]:
    """The UTF-16 code units of a text; unpaired surrogates are kept."""
    raw = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(raw) // 2}H", raw)


def from_utf16_units(units: Iterable[int]) -> str:
    """The text of UTF-16 code units; unpaired surrogates are kept."""
    encoding = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
    return array("H", units).tobytes().decode(encoding, "surrogatepass")


def encode_modified_utf8(text: str) -> bytes:
    """Java's modified UTF-8: NUL as two bytes, supplementary characters as two surrogates."""
    if text.isascii() and "\0" not in text:
        return text.encode("ascii")
    out = bytearray()
    for unit in utf16_units(text):
        if 0 < unit < 0x80:
            out.append(unit)
        elif unit < 0x800:
            out += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            out += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    return bytes(out)


def decode_modified_utf8(raw: bytes, offset: int = 0, field: str = "text") -> str:
    """Decodes modified UTF-8; ``offset`` is the offset of ``raw`` in the file."""
    if raw.isascii():
        return raw.decode("ascii")
    units = array("H")
    at = 0
    while at < len(raw):
        first = raw[at]
        size = (
            1 if first < 0x80 else 2 if first & 0xE0 == 0xC0 else 3 if first & 0xF0 == 0xE0 else 0
        )
        rest = raw[at + 1 : at + size]
        if size == 0 or len(rest) != size - 1 or any(byte & 0xC0 != 0x80 for byte in rest):
            raise FormatError(
                "A text is not modified UTF-8",
                offset=offset + at,
                field=field,
                expected="a 1-3 byte character",
                got=f"byte 0x{first:02x}",
            )
        unit = first if size == 1 else first & (0x1F if size == 2 else 0x0F)
        for byte in rest:
            unit = unit << 6 | byte & 0x3F
        units.append(unit)
        at += size
    return from_utf16_units(units)
