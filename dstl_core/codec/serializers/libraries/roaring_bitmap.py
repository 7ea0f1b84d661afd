"""A set of unsigned 32-bit integers: Flink 2.3's bitmap, in the portable format of RoaringBitmap.

    value     := i32 length, bitmap                          the bitmap is little-endian
    bitmap    := u32 12346, u32 n, heads, offsets, containers
              | u16 12347, u16 n - 1, run flags, heads, [offsets], containers
    heads     := n x (u16 high half, u16 members - 1);  offsets := n x u32, absent for runs if n < 4
    container := sorted u16 (at most 4096 members) | 8192 bytes of bits
              | u16 runs, runs x (u16 start, u16 length - 1)

Source: RoaringFormatSpec, and a savepoint of Flink 2.3.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    JsonValue,
    TypeSerializer,
    bad_value,
    readers_of,
)
from dstl_core.errors import UnreadableValueError

MAX_SHOWN_MEMBERS = 1 << 20
"""A run of 4 bytes stands for 65,536 members."""
_NO_RUNS, _WITH_RUNS = 12346, 12347
_MAX_CONTAINERS = 1 << 16
_MAX_ARRAY = 4096
_BIT_BYTES = 8192
_FEWEST_WITH_OFFSETS = 4


@dataclass(frozen=True)
class BitmapSerializer(TypeSerializer[bytes]):
    """A value is the bytes of the bitmap; a text is the list of its members."""

    snapshot_class: ClassVar[str] = (
        "org.apache.flink.api.common.typeutils.base.BitmapSerializer$BitmapSerializerSnapshot"
    )
    type_name: ClassVar[str] = "Bitmap"

    def serialize(self, value: bytes, out: DataOutput) -> None:
        out.write_sized(value)

    def deserialize(self, data: DataInput) -> bytes:
        start = data.position + 4
        raw = data.read_bytes(data.read_length("bitmap size"), "bitmap")
        count = _Bitmap(raw, start).check()
        if count > MAX_SHOWN_MEMBERS:
            raise UnreadableValueError(
                f"A bitmap has {count} members; expected at most {MAX_SHOWN_MEMBERS} to list",
                offset=start,
            )
        return raw

    def to_text(self, value: bytes) -> JsonValue:
        return list(_Bitmap(value, 0).members())


class _Bitmap:
    """A bitmap in some bytes, which start at ``offset`` of a larger input."""

    def __init__(self, raw: bytes, offset: int) -> None:
        self._raw = raw
        self._offset = offset
        self._at = 0

    def check(self) -> int:
        """The number of members. It raises FormatError for wrong bytes."""
        self._at = 0
        total = sum(count for _, count, _ in self._containers())
        if self._at != len(self._raw):
            raise self._bad("Bytes are left after a bitmap", "none", len(self._raw) - self._at)
        return total

    def members(self) -> Iterator[int]:
        self._at = 0
        for high, _, lows in self._containers():
            base = high << 16
            for first, last in lows:
                yield from range(base + first, base + last + 1)

    def _containers(self) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
        """High half, number of members, and their low halves as ranges."""
        flags = b""
        cookie = self._take("<I")[0]
        if cookie & 0xFFFF == _WITH_RUNS:
            number = (cookie >> 16) + 1
            flags = self._bytes((number + 7) // 8)
        elif cookie == _NO_RUNS:
            number = self._take("<I")[0]
        else:
            raise self._bad(
                "A bitmap starts with wrong bytes", f"{_NO_RUNS} or {_WITH_RUNS}", cookie
            )
        if number > _MAX_CONTAINERS:
            raise self._bad("A bitmap has too many containers", f"<= {_MAX_CONTAINERS}", number)
        heads = list(struct.iter_unpack("<HH", self._bytes(4 * number)))
        if not flags or number >= _FEWEST_WITH_OFFSETS:
            self._bytes(4 * number)
        before = -1
        for index, (high, less) in enumerate(heads):
            if high <= before:
                raise self._bad("Containers of a bitmap are not in order", f"> {before}", high)
            before = high
            has_runs = bool(flags and flags[index // 8] >> index % 8 & 1)
            yield high, less + 1, self._lows(less + 1, has_runs=has_runs)

    def _lows(self, count: int, *, has_runs: bool) -> list[tuple[int, int]]:
        if has_runs:
            runs = self._take("<H")[0]
            ranges = [
                (start, start + less)
                for start, less in struct.iter_unpack("<HH", self._bytes(4 * runs))
            ]
        elif count <= _MAX_ARRAY:
            lows = struct.unpack(f"<{count}H", self._bytes(2 * count))
            ranges = [(low, low) for low in lows]
        else:
            bits = int.from_bytes(self._bytes(_BIT_BYTES), "little")
            ranges = _ranges(bits)
        ends = [-1, *(last for _, last in ranges)]
        in_order = all(first > end for end, (first, _) in zip(ends, ranges, strict=False))
        members = sum(last - first + 1 for first, last in ranges)
        if not in_order or ends[-1] > 0xFFFF or members != count:
            raise self._bad("A container of a bitmap has other members", count, members)
        return ranges

    def _take(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))

    def _bytes(self, size: int) -> bytes:
        raw = self._raw[self._at : self._at + size]
        if len(raw) < size:
            raise self._bad("A bitmap ends too early", f"{size} more bytes", len(raw))
        self._at += size
        return raw

    def _bad(self, what: str, expected: object, got: object) -> Exception:
        return bad_value(what, self._offset + self._at, expected, got)


def _ranges(bits: int) -> list[tuple[int, int]]:
    """The set bits, as ranges."""
    ranges: list[tuple[int, int]] = []
    for low, sign in enumerate(f"{bits:0{8 * _BIT_BYTES}b}"[::-1]):
        if sign == "0":
            continue
        if ranges and ranges[-1][1] == low - 1:
            ranges[-1] = ranges[-1][0], low
        else:
            ranges.append((low, low))
    return ranges


READERS = readers_of(BitmapSerializer)
