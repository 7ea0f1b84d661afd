"""The memory layout of SQL rows, arrays and maps: little-endian, 8-byte slots.

    row   := u8 kind, null bits (field i is bit 8 + i, lowest first), padded to 8 bytes,
             a slot of 8 bytes a field, variable part
    slot  := the value | u32 size, u32 offset of a value in the variable part
             | up to 7 bytes of text, then u8 0x80 + number of bytes
    array := i32 n, null bits in words of 4 bytes, n slots of the element's size, variable part
    map   := i32 size of the key array, key array, value array

Timestamps with a precision above 3 keep their milliseconds in the variable part, and the
nanoseconds within the millisecond in the slot. Decimals with a precision above 18 keep their bytes
in the variable part.
Source: ``BinaryRowData``, ``BinaryArrayData``, ``BinaryMapData``, ``BinaryRowWriter`` and
``BinaryArrayWriter`` of Flink 2.2.1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dstl_core.codec.big_decimal import BigDecimal, two_s_complement
from dstl_core.codec.logical_types import LogicalType
from dstl_core.errors import FormatError

ROW_KIND_BYTES = range(4)
COMPACT_DECIMAL = 18
COMPACT_TIMESTAMP = 3

_FIXED = {
    "BOOLEAN": struct.Struct("<?"),
    "TINYINT": struct.Struct("<b"),
    "SMALLINT": struct.Struct("<h"),
    "INT": struct.Struct("<i"),
    "DATE": struct.Struct("<i"),
    "TIME": struct.Struct("<i"),
    "INTERVAL_YEAR_MONTH": struct.Struct("<i"),
    "BIGINT": struct.Struct("<q"),
    "INTERVAL_DAY_TIME": struct.Struct("<q"),
    "FLOAT": struct.Struct("<f"),
    "DOUBLE": struct.Struct("<d"),
}
_TEXTS = ("CHAR", "VARCHAR", "BINARY", "VARBINARY")
_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_TZ")
_SLOT = struct.Struct("<II")
_I64 = struct.Struct("<q")
_I32 = struct.Struct("<i")


@dataclass(frozen=True)
class RowData:
    """A SQL row; ``kind`` is 0 for +I.

    ``raw`` is the memory that the row was read from, and is written back unchanged: two equal rows
    may have different bytes in the slots of null fields.
    """

    kind: int
    fields: tuple[Any, ...]
    raw: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True)
class ArrayData:
    """A SQL array; ``raw`` as in ``RowData``."""

    items: tuple[Any, ...]
    raw: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True)
class MapData:
    """A SQL map or multiset, as key-value pairs; ``raw`` as in ``RowData``."""

    pairs: tuple[tuple[Any, Any], ...]
    raw: bytes = field(default=b"", compare=False, repr=False)


class TimestampData(NamedTuple):
    """Milliseconds since 1970, and the nanoseconds within that millisecond."""

    millis: int
    nanos: int


class RawValue(NamedTuple):
    """A value of SQL's RAW type, which SQL stores without interpreting it."""

    raw: bytes


def multiset_count() -> LogicalType:
    return LogicalType("INT", nullable=False)


# ----------------------------------------------------------------------------------- reading


def _bad(what: str, expected: object, got: object, base: int) -> FormatError:
    return FormatError(what, offset=base, expected=expected, got=got)


class _Memory:
    """The bytes of one row or array. ``base`` is their offset in the file, for error messages.

    Values in the variable part must not overlap: their total size is at most the size of the
    memory. Otherwise a few bytes could claim gigabytes of values.
    """

    __slots__ = ("base", "left", "raw")

    def __init__(self, raw: bytes, base: int) -> None:
        self.raw = raw
        self.base = base
        self.left = len(raw)

    def check(self, start: int, size: int) -> None:
        if size < 0 or start < 0 or start + size > len(self.raw):
            raise _bad(
                "A SQL value lies outside its row",
                f"within {len(self.raw)} bytes",
                (start, size),
                self.base,
            )

    def part(self, start: int, size: int) -> bytes:
        """The bytes of a value in the variable part."""
        self.check(start, size)
        self.left -= size
        if self.left < 0:
            raise _bad(
                "The values of a SQL row overlap", f"<= {len(self.raw)} bytes", "more", self.base
            )
        return self.raw[start : start + size]


def row_header_bytes(arity: int) -> int:
    return (arity + 8 + 63) // 64 * 8


def read_row(raw: bytes, types: Sequence[LogicalType], base: int) -> RowData:
    """Reads the row in ``raw``; ``base`` is its offset in the file, for error messages."""
    memory = _Memory(raw, base)
    header = row_header_bytes(len(types))
    memory.check(0, header + 8 * len(types))
    if raw[0] >= len(ROW_KIND_BYTES):
        raise _bad("A SQL row has an unknown kind", "0..3", raw[0], base)
    values = tuple(
        None if raw[(8 + at) // 8] >> at % 8 & 1 else _read_slot(memory, header + 8 * at, slot_type)
        for at, slot_type in enumerate(types)
    )
    return RowData(raw[0], values, raw)


def _slot_bytes(element: LogicalType) -> int:
    fixed = _FIXED.get(element.root)
    return fixed.size if fixed is not None else 8


def read_array(raw: bytes, element: LogicalType, base: int) -> ArrayData:
    memory = _Memory(raw, base)
    memory.check(0, 4)
    count = _I32.unpack_from(raw)[0]
    size = _slot_bytes(element)
    if not 0 <= count <= len(raw) // size:
        raise _bad("A SQL array has a wrong size", f"0..{len(raw) // size}", count, base)
    start = 4 + (count + 31) // 32 * 4
    memory.check(start, count * size)
    items = tuple(
        None if raw[4 + at // 8] >> at % 8 & 1 else _read_slot(memory, start + at * size, element)
        for at in range(count)
    )
    return ArrayData(items, raw)


def read_map(raw: bytes, key: LogicalType, value: LogicalType, base: int) -> MapData:
    memory = _Memory(raw, base)
    memory.check(0, 4)
    size = _I32.unpack_from(raw)[0]
    keys = read_array(memory.part(4, size), key, base)
    values = read_array(memory.part(4 + size, len(raw) - 4 - size), value, base)
    if len(keys.items) != len(values.items):
        raise _bad(
            "A SQL map has different numbers of keys and values",
            len(keys.items),
            len(values.items),
            base,
        )
    return MapData(tuple(zip(keys.items, values.items, strict=True)), raw)


def _read_slot(memory: _Memory, at: int, kind: LogicalType) -> Any:
    root, raw = kind.root, memory.raw
    fixed = _FIXED.get(root)
    if fixed is not None:
        return fixed.unpack_from(raw, at)[0]
    if root == "NULL":
        return None
    if root == "DECIMAL" and kind.precision <= COMPACT_DECIMAL:
        return BigDecimal(_I64.unpack_from(raw, at)[0], kind.scale)
    if root in _TIMESTAMPS and kind.precision <= COMPACT_TIMESTAMP:
        return TimestampData(_I64.unpack_from(raw, at)[0], 0)
    size, offset = _SLOT.unpack_from(raw, at)
    if root in _TIMESTAMPS:
        return TimestampData(_I64.unpack(memory.part(offset, 8))[0], size)
    if root == "DECIMAL":
        return BigDecimal(int.from_bytes(memory.part(offset, size), "big", signed=True), kind.scale)
    if root in _TEXTS and raw[at + 7] & 0x80:
        length = raw[at + 7] & 0x7F
        if length > 7:
            raise _bad("A SQL text is too long for its slot", "<= 7", length, memory.base)
        return _of_bytes(raw[at : at + length], kind, memory.base)
    return _of_bytes(memory.part(offset, size), kind, memory.base)


def _of_bytes(raw: bytes, kind: LogicalType, base: int) -> Any:
    match kind.root:
        case "CHAR" | "VARCHAR":
            return raw.decode("utf-8", "surrogateescape")
        case "BINARY" | "VARBINARY":
            return raw
        case "ROW":
            return read_row(raw, kind.children, base)
        case "ARRAY":
            return read_array(raw, kind.children[0], base)
        case "MAP":
            return read_map(raw, kind.children[0], kind.children[1], base)
        case "MULTISET":
            return read_map(raw, kind.children[0], multiset_count(), base)
        case _:
            return RawValue(raw)


# ----------------------------------------------------------------------------------- writing


def write_row(row: RowData, types: Sequence[LogicalType]) -> bytes:
    """The memory of a row: as it was read, otherwise in the layout of ``BinaryRowWriter``."""
    if row.raw:
        return row.raw
    if len(row.fields) != len(types):
        raise TypeError(f"expected {len(types)} fields, got {len(row.fields)}")
    header = row_header_bytes(len(types))
    memory = bytearray(header + 8 * len(types))
    memory[0] = row.kind
    for at, (value, kind) in enumerate(zip(row.fields, types, strict=True)):
        if value is None:
            memory[(8 + at) // 8] |= 1 << at % 8
        else:
            _write_slot(memory, header + 8 * at, value, kind)
    return bytes(memory)


def write_array(array: ArrayData, element: LogicalType) -> bytes:
    if array.raw:
        return array.raw
    count, size = len(array.items), _slot_bytes(element)
    start = 4 + (count + 31) // 32 * 4
    memory = bytearray((start + count * size + 7) // 8 * 8)
    memory[:4] = _I32.pack(count)
    for at, value in enumerate(array.items):
        if value is None:
            memory[4 + at // 8] |= 1 << at % 8
        else:
            _write_slot(memory, start + at * size, value, element)
    return bytes(memory)


def write_map(value: MapData, key: LogicalType, item: LogicalType) -> bytes:
    if value.raw:
        return value.raw
    keys = write_array(ArrayData(tuple(pair[0] for pair in value.pairs)), key)
    items = write_array(ArrayData(tuple(pair[1] for pair in value.pairs)), item)
    return _I32.pack(len(keys)) + keys + items


def _write_slot(memory: bytearray, at: int, value: Any, kind: LogicalType) -> None:
    root = kind.root
    fixed = _FIXED.get(root)
    if fixed is not None:
        fixed.pack_into(memory, at, value)
    elif root == "NULL":
        raise TypeError("a value of type NULL must be null")
    elif root == "DECIMAL" and kind.precision <= COMPACT_DECIMAL:
        _I64.pack_into(memory, at, value.unscaled)
    elif root in _TIMESTAMPS and kind.precision <= COMPACT_TIMESTAMP:
        _I64.pack_into(memory, at, value.millis)
    elif root in _TIMESTAMPS:
        _SLOT.pack_into(memory, at, value.nanos, len(memory))
        memory += _I64.pack(value.millis)
    elif root == "DECIMAL":
        raw = two_s_complement(value.unscaled)
        _SLOT.pack_into(memory, at, len(raw), len(memory))
        memory += raw.ljust(16, b"\0")
    else:
        _write_bytes(memory, at, _to_bytes(value, kind), root)


def _write_bytes(memory: bytearray, at: int, raw: bytes, root: str) -> None:
    if len(raw) <= 7 and root in _TEXTS:
        memory[at : at + len(raw)] = raw
        memory[at + 7] = 0x80 | len(raw)
        return
    _SLOT.pack_into(memory, at, len(raw), len(memory))
    memory += raw.ljust((len(raw) + 7) // 8 * 8, b"\0")


def _to_bytes(value: Any, kind: LogicalType) -> bytes:
    match kind.root:
        case "CHAR" | "VARCHAR":
            return bytes(value.encode("utf-8", "surrogateescape"))
        case "BINARY" | "VARBINARY":
            return bytes(value)
        case "ROW":
            return write_row(value, kind.children)
        case "ARRAY":
            return write_array(value, kind.children[0])
        case "MAP":
            return write_map(value, kind.children[0], kind.children[1])
        case "MULTISET":
            return write_map(value, kind.children[0], multiset_count())
        case _:
            return bytes(value.raw)


# -------------------------------------------------------------------------------------- hash


def row_java_hash(memory: bytes) -> int:
    """``BinaryRowData.hashCode``: Murmur3 over 4-byte words, seed 42."""
    h = 42
    for word in struct.unpack(f"<{len(memory) // 4}I", memory[: len(memory) // 4 * 4]):
        k = word * 0xCC9E2D51 & 0xFFFFFFFF
        k = (k << 15 | k >> 17) & 0xFFFFFFFF
        h ^= k * 0x1B873593 & 0xFFFFFFFF
        h = (h << 13 | h >> 19) & 0xFFFFFFFF
        h = (h * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= len(memory)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16
