"""Packs and unpacks the blocks of RocksDB's table files by Snappy, with checksums, many at a time.

    block   := payload, u8 compression, u32 checksum
    packed  := varint size, element*
    element := literal: its size - 1 << 2, bytes
             | copy:    its size and how far back it begins, in two, three or five bytes

Source: Snappy's ``format_description.txt`` and ``snappy.cc`` (1.1.10); ``codec.checksums``.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import (
    copy,
    get16,
    get32,
    get64,
    load8,
    put8,
    put16,
    put32,
    put64,
)
from dstl_core.codec.columnar.kernels.tables.table_blocks import read_varint
from dstl_core.codec.columnar.kernels.write import put_varint
from dstl_core.codec.columnar.kernels.write_runs import copy_short

NOT_PACKED, SNAPPY = 0, 1
CHECKSUM_BYTES = 4
ROOM_BYTES = 40
"""Room for a block with its trailer, beside 7/6 of its payload: Snappy's largest, and some."""
LINE_BYTES = 32
"""Bytes of the places of a payload: its start and end, packed and unpacked."""

_U32 = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
_FRAGMENT_BYTES = 1 << 16
"""No copy reaches further back."""
_MARGIN = 15
"""At the end of a fragment, all is literal."""
_MULTIPLIER = 0x1E35A7BD
_SMALL_HASH_BITS, _LARGE_HASH_BITS = 8, 12
"""Snappy takes up to 14. More find a hundredth more in blocks of 4 KiB, and are slower to clear."""
HASH_TABLE_BYTES = 2 << _LARGE_HASH_BITS
"""Room for the places of bytes, two bytes each."""


@kernel
def crc32c(at: int, end: int, tables: int) -> int:
    """The CRC-32C of bytes.

    Args:
        at: Their start.
        end: Their end.
        tables: Address of eight tables of 256 u32: that of ``n`` zero bytes after a byte at ``n``.
    """
    crc = _U32
    while end - at >= 8:
        word = get64(at) ^ crc
        crc = get32(tables + 7168 + 4 * (word & 0xFF)) ^ get32(
            tables + 6144 + 4 * (word >> 8 & 0xFF)
        )
        crc ^= get32(tables + 5120 + 4 * (word >> 16 & 0xFF))
        crc ^= get32(tables + 4096 + 4 * (word >> 24 & 0xFF))
        crc ^= get32(tables + 3072 + 4 * (word >> 32 & 0xFF))
        crc ^= get32(tables + 2048 + 4 * (word >> 40 & 0xFF))
        crc ^= get32(tables + 1024 + 4 * (word >> 48 & 0xFF))
        crc ^= get32(tables + 4 * (word >> 56 & 0xFF))
        crc &= _U32
        at += 8
    while at < end:
        crc = (get32(tables + 4 * ((crc ^ load8(at)) & 0xFF)) & _U32) ^ (crc >> 8)
        at += 1
    return crc ^ _U32


@kernel
def masked_crc32c(at: int, end: int, tables: int) -> int:
    """As ``crc32c``, in the form that is stored."""
    crc = crc32c(at, end, tables)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _U32


@kernel
def put_literal(at: int, start: int, size: int) -> int:
    """Writes a literal of 1 to 65,536 bytes; returns its end."""
    if size <= 60:
        put8(at, (size - 1) << 2)
        at += 1
    elif size <= 256:
        put8(at, 60 << 2)
        put8(at + 1, size - 1)
        at += 2
    else:
        put8(at, 61 << 2)
        put16(at + 1, size - 1)
        at += 3
    copy_short(at, start, size)
    return at + size


@kernel
def put_copy(at: int, offset: int, size: int) -> int:
    """Writes copies of 4 bytes and more from at most 65,535 bytes before; returns their end."""
    while size >= 68:
        put8(at, 63 << 2 | 2)
        put16(at + 1, offset)
        at += 3
        size -= 64
    if size > 64:
        put8(at, 59 << 2 | 2)
        put16(at + 1, offset)
        at += 3
        size -= 60
    if size < 12 and offset < 2048:
        put8(at, 1 | (size - 4) << 2 | (offset >> 8) << 5)
        put8(at + 1, offset & 0xFF)
        return at + 2
    put8(at, (size - 1) << 2 | 2)
    put16(at + 1, offset)
    return at + 3


@kernel
def equal_size(a: int, b: int, end: int) -> int:
    """How many bytes from ``a`` and from ``b`` on are equal; those of ``b`` stop at ``end``."""
    first = b
    while end - b >= 8:
        x = get64(a) ^ get64(b)
        if x != 0:
            if x & _U32 == 0:
                x >>= 32
                b += 4
            if x & 0xFFFF == 0:
                x >>= 16
                b += 2
            return b - first + (x & 0xFF == 0)
        a += 8
        b += 8
    while b < end and load8(a) == load8(b):
        a += 1
        b += 1
    return b - first


@kernel
def pack_fragment(start: int, end: int, at: int, table: int) -> int:
    """Writes the elements of 1 to 65,536 bytes; returns their end.

    Args:
        start: Start of the bytes.
        end: Their end.
        at: Room for ``packed_room`` bytes.
        table: Room for ``HASH_TABLE_BYTES``.
    """
    bits = _SMALL_HASH_BITS
    while bits < _LARGE_HASH_BITS and (1 << bits) < end - start:
        bits += 1
    for word in range(1 << bits >> 2):
        put64(table + 8 * word, 0)
    shift = 32 - bits
    limit = end - _MARGIN
    written = start
    here = start + 1
    while here <= limit:
        skip = 32
        back = here
        is_equal = False
        while here <= limit:
            four = get32(here)
            entry = table + 2 * ((four * _MULTIPLIER & _U32) >> shift)
            back = start + get16(entry)
            put16(entry, here - start)
            if get32(back) == four:
                is_equal = True
                break
            here += skip >> 5
            skip += skip >> 5
        if not is_equal:
            break
        if here > written:
            at = put_literal(at, written, here - written)
        while True:
            size = 4 + equal_size(back + 4, here + 4, end)
            at = put_copy(at, here - back, size)
            here += size
            written = here
            if here > limit:
                break
            before = get32(here - 1)
            put16(table + 2 * ((before * _MULTIPLIER & _U32) >> shift), here - 1 - start)
            four = get32(here)
            entry = table + 2 * ((four * _MULTIPLIER & _U32) >> shift)
            back = start + get16(entry)
            put16(entry, here - start)
            if get32(back) != four:
                here += 1
                break
    if written < end:
        at = put_literal(at, written, end - written)
    return at


@kernel
def checksums_of(places: int, count: int, most: int, tables: int, checksums: int) -> None:
    """Writes the masked CRC-32C of ranges of at most ``most`` bytes, and leaves others out.

    Args:
        places: Address of the start and the end of each.
        count: Number of ranges.
        most: See above.
        tables: As in ``crc32c``.
        checksums: Receives a u32 for each.
    """
    for row in range(count):
        start, end = get64(places + 16 * row), get64(places + 16 * row + 8)
        if end - start <= most:
            put32(checksums + 4 * row, masked_crc32c(start, end, tables))


@kernel
def pack_blocks(
    payloads: int, ends: int, blocks: int, table: int, target: int, target_ends: int
) -> None:
    """Writes blocks one after the other, with room for the checksum in each trailer.

    Args:
        payloads: Address of the payloads, which follow each other.
        ends: The end of each among them.
        blocks: Number of blocks.
        table: Room for ``HASH_TABLE_BYTES``.
        target: Room for 7/6 of each payload and ``ROOM_BYTES``.
        target_ends: Receives the end of each block in the target.
    """
    at = target
    start = payloads
    for block in range(blocks):
        end = payloads + get64(ends + 8 * block)
        size = end - start
        stop = put_varint(at, size)
        piece = start
        while piece < end:
            piece_end = min(end, piece + _FRAGMENT_BYTES)
            stop = pack_fragment(piece, piece_end, stop, table)
            piece = piece_end
        if stop - at < size - size // 8:  # as RocksDB decides
            put8(stop, SNAPPY)
        else:
            copy(at, start, size)
            stop = at + size
            put8(stop, NOT_PACKED)
        at = stop + 1 + CHECKSUM_BYTES
        put64(target_ends + 8 * block, at - target)
        start = end


@kernel
def copy_back(at: int, offset: int, size: int, room_end: int) -> None:
    """Copies bytes that begin ``offset`` bytes before; they may overlap what they become. Bytes
    behind it, before ``room_end``, may change.
    """
    if offset >= 8 and room_end - at >= size + 8:
        end = at + size
        while at < end:
            put64(at, get64(at - offset))
            at += 8
    else:
        for byte in range(size):
            put8(at + byte, load8(at + byte - offset))


@kernel
def unpack_snappy(at: int, end: int, target: int, target_end: int, room_end: int) -> bool:
    """Unpacks a payload; returns whether it is right and fills its room.

    Args:
        at: Its start.
        end: Its end.
        target: The start of its room.
        target_end: The end of its room.
        room_end: Bytes from there up to here may change.
    """
    size, at = read_varint(at, end, 5)
    if at < 0 or size != target_end - target:
        return False
    out = target
    while at < end:
        tag = load8(at)
        at += 1
        if tag & 3 == 0:
            size = (tag >> 2) + 1
            if size > 60:
                width = size - 60
                if width > end - at:
                    return False
                size = 1
                for byte in range(width):
                    size += load8(at + byte) << 8 * byte
                at += width
            if size > end - at or size > target_end - out:
                return False
            if size <= 16 and end - at >= 16 and room_end - out >= 16:
                put64(out, get64(at))
                put64(out + 8, get64(at + 8))
            else:
                copy_short(out, at, size)
            at += size
            out += size
            continue
        if tag & 3 == 1:
            if end - at < 1:
                return False
            size = (tag >> 2 & 7) + 4
            offset = tag >> 5 << 8 | load8(at)
            at += 1
        elif tag & 3 == 2:
            if end - at < 2:
                return False
            size = (tag >> 2) + 1
            offset = get16(at)
            at += 2
        else:
            if end - at < 4:
                return False
            size = (tag >> 2) + 1
            offset = get32(at) & _U32
            at += 4
        if offset == 0 or offset > out - target or size > target_end - out:
            return False
        copy_back(out, offset, size, room_end)
        out += size
    return out == target_end


@kernel
def unpack_payloads(lines: int, first: int, count: int, room_end: int) -> int:
    """Unpacks payloads; returns the number of the first one that is wrong, or ``count``.

    Args:
        lines: Address of ``LINE_BYTES`` for each: start and end, and start and end of its target.
        first: The number of the first one.
        count: The number after the last one.
        room_end: End of the room that the targets are in.
    """
    for row in range(first, count):
        line = lines + LINE_BYTES * row
        target, target_end = get64(line + 16), get64(line + 24)
        if not unpack_snappy(get64(line), get64(line + 8), target, target_end, room_end):
            return row
    return count
