"""Kryo's primitives: numbers of variable length, texts, and numbers of fixed width."""

from __future__ import annotations

import struct

from dstl_core.codec.data_io import (
    DataInput,
    float32_from_bits,
    float32_to_bits,
    from_utf16_units,
    utf16_units,
)
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.errors import FormatError, TruncatedDataError

_MORE = 0x80
_LONGEST_ASCII = 32
"""UTF-16 units of a text in the short form, as Kryo 5 writes it."""


class KryoInput:
    """Reads from bytes of a ``DataInput``; ``commit`` moves that input behind what was read."""

    __slots__ = ("_data", "_order", "buffer", "dialect", "end", "position")

    def __init__(self, data: DataInput, dialect: Dialect) -> None:
        self._data = data
        self.buffer, self.position, self.end = data.window()
        self.dialect = dialect
        self._order = ">" if dialect is Dialect.KRYO_2 else "<"

    def commit(self) -> None:
        self._data.rewind(self.position)

    def count_free(self, values: int) -> None:
        """Counts values that take no bytes, or that repeat others.

        Raises:
            FormatError: There are too many of them.
        """
        self._data.count_free(values)

    def take(self, size: int, field: str = "bytes") -> bytes:
        start = self.position
        if size > self.end - start:
            raise TruncatedDataError(
                "A Kryo value ends too early",
                offset=start,
                field=field,
                expected=f"{size} more bytes",
                got=self.end - start,
            )
        self.position = start + size
        return self.buffer[start : start + size]

    def u8(self, field: str = "byte") -> int:
        at = self.position
        if at >= self.end:
            self.take(1, field)
        self.position = at + 1
        return self.buffer[at]

    def boolean(self) -> bool:
        return self.u8("boolean") != 0

    def varint(self, field: str = "number") -> int:
        """A number of at most 32 bits that is not negative, 7 bits a byte."""
        first = self.u8(field)
        if first < _MORE:
            return first
        number, shift = first & 0x7F, 7
        while True:
            byte = self.u8(field)
            number |= (byte & 0x7F) << shift
            if byte < _MORE:
                return number & 0xFFFFFFFF
            shift += 7
            if shift > 28:
                raise FormatError("A number of Kryo is too long", offset=self.position, field=field)

    def varlong(self, field: str = "number") -> int:
        """64 bits as a signed number; the ninth byte has 8 bits."""
        number = shift = 0
        for _ in range(8):
            byte = self.u8(field)
            number |= (byte & 0x7F) << shift
            if byte < _MORE:
                return number
            shift += 7
        number |= self.u8(field) << shift
        return number - (1 << 64) if number >> 63 else number

    def zigzag(self, field: str = "int") -> int:
        number = self.varint(field)
        return (number >> 1) ^ -(number & 1)

    def zigzag_long(self, field: str = "long") -> int:
        number = self.varlong(field) & 0xFFFFFFFFFFFFFFFF
        return (number >> 1) ^ -(number & 1)

    def count(self, field: str, minus: int = 0, item_bytes: int = 1) -> int:
        """A count of items that can still follow; ``minus`` is what is stored on top of it."""
        at = self.position
        return self.checked(self.varint(field) - minus, at, field, item_bytes)

    def checked(self, count: int, at: int, field: str, item_bytes: int = 1) -> int:
        if not 0 <= count * item_bytes <= self.end - self.position:
            raise FormatError(
                "A count of Kryo does not fit into the data",
                offset=at,
                field=field,
                expected=f"0..{(self.end - self.position) // item_bytes}",
                got=count,
            )
        return count

    def flagged_count(self, field: str) -> tuple[int, bool]:
        """A count plus 1, with a flag in the highest bit of its first byte."""
        first = self.u8(field)
        count = first & 0x3F
        if first & 0x40:
            shift = 6
            while True:
                byte = self.u8(field)
                count |= (byte & 0x7F) << shift
                if byte < _MORE:
                    break
                shift += 7
                if shift > 27:
                    raise FormatError(
                        "A number of Kryo is too long", offset=self.position, field=field
                    )
        return count, first >= _MORE

    def string(self, field: str = "text") -> str | None:
        at = self.position
        if self.u8(field) < _MORE:
            return self._ascii(at, field)
        self.position = at
        count, _ = self.flagged_count(field)
        if count == 0:
            return None
        return self._units(self.checked(count - 1, at, field), field)

    def _ascii(self, start: int, field: str) -> str:
        """The last byte has the highest bit."""
        buffer, end = self.buffer, self.end
        at = start
        while at < end and buffer[at] < _MORE:
            at += 1
        self.position = at
        self.u8(field)
        raw = bytearray(buffer[start : self.position])
        raw[-1] &= 0x7F
        return raw.decode("ascii")

    def _units(self, count: int, field: str) -> str:
        start = self.position
        raw = self.buffer[start : min(start + count, self.end)]
        if raw.isascii():
            self.position = start + count
            return raw.decode("ascii")
        units = []
        for _ in range(count):
            at = self.position
            first = self.u8(field)
            if first < 0x80:
                units.append(first)
            elif first >> 5 == 0b110:
                units.append((first & 0x1F) << 6 | self._more(field))
            elif first >> 4 == 0b1110:
                units.append((first & 0x0F) << 12 | self._more(field) << 6 | self._more(field))
            else:
                raise FormatError(
                    "A text of Kryo is malformed", offset=at, field=field, got=f"byte 0x{first:02x}"
                )
        return from_utf16_units(units)

    def _more(self, field: str) -> int:
        return self.u8(field) & 0x3F

    def text(self, field: str = "text") -> str:
        """A text that is not null."""
        at = self.position
        text = self.string(field)
        if text is None:
            raise FormatError("A text of Kryo is null", offset=at, field=field)
        return text

    def fixed(self, code: str, field: str = "number") -> int | float:
        """A number of fixed width, by its code in ``struct``."""
        size = struct.calcsize(f"={code}")
        raw = self.take(size, field)
        if code == "f":
            return float32_from_bits(struct.unpack(f"{self._order}I", raw)[0])
        number: int | float = struct.unpack(f"{self._order}{code}", raw)[0]
        return number

    def fixed_many(self, code: str, count: int) -> list[int | float]:
        size = struct.calcsize(f"={code}")
        raw = self.take(size * count, "array")
        if code == "f":
            bits = struct.unpack(f"{self._order}{count}I", raw)
            return [float32_from_bits(each) for each in bits]
        return list(struct.unpack(f"{self._order}{count}{code}", raw))


class KryoOutput:
    """Collects bytes as Kryo 5 writes them."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = bytearray()

    def u8(self, value: int) -> None:
        self.buffer.append(value)

    def boolean(self, value: bool) -> None:
        self.buffer.append(1 if value else 0)

    def bytes(self, value: bytes) -> None:
        self.buffer += value

    def varint(self, value: int) -> None:
        value &= 0xFFFFFFFF
        while value >= _MORE:
            self.buffer.append(value & 0x7F | _MORE)
            value >>= 7
        self.buffer.append(value)

    def varlong(self, value: int) -> None:
        value &= 0xFFFFFFFFFFFFFFFF
        for _ in range(8):
            if value < _MORE:
                self.buffer.append(value)
                return
            self.buffer.append(value & 0x7F | _MORE)
            value >>= 7
        self.buffer.append(value)

    def zigzag(self, value: int) -> None:
        self.varint(value << 1 if value >= 0 else ~(value << 1))

    def zigzag_long(self, value: int) -> None:
        self.varlong(value << 1 if value >= 0 else ~(value << 1))

    def flagged_count(self, count: int, flag: bool) -> None:
        first = count & 0x3F | (_MORE if flag else 0)
        rest = count >> 6
        if not rest:
            self.buffer.append(first)
            return
        self.buffer.append(first | 0x40)
        while rest >= _MORE:
            self.buffer.append(rest & 0x7F | _MORE)
            rest >>= 7
        self.buffer.append(rest)

    def string(self, value: str) -> None:
        if 1 < len(value) <= _LONGEST_ASCII and value.isascii():
            raw = bytearray(value, "ascii")
            raw[-1] |= _MORE
            self.buffer += raw
            return
        units = list(utf16_units(value))
        self.flagged_count(len(units) + 1, True)
        for unit in units:
            if unit < 0x80:
                self.buffer.append(unit)
            elif unit < 0x800:
                self.buffer += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
            else:
                self.buffer += bytes(
                    (0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F)
                )

    def fixed(self, code: str, value: int | float) -> None:
        if code == "f":
            self.buffer += struct.pack("<I", float32_to_bits(value))
        else:
            self.buffer += struct.pack(f"<{code}", value)
