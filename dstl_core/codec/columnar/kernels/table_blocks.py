"""Reads entries of RocksDB's data blocks in kernels, and restores keys with shared prefixes.

    entry := varint shared, varint rest, varint size of the value, rest of the key, value
    key   := user key, u64 little-endian (sequence number << 8 | kind)

An entry becomes a line of ``ENTRY_WORDS`` words: start and end of the user key, start and end of
the value, and the last eight bytes of the key.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import copy, get64, load8, load16, put64

ENTRY_WORDS = 5
KEY_START, KEY_END, VALUE_START, VALUE_END, TRAILER = range(ENTRY_WORDS)
ENTRY_BYTES = 8 * ENTRY_WORDS
TRAILER_BYTES = 8


@kernel
def read_small_varint(at: int, end: int, result: int) -> int:
    """Reads a varint of at most 5 bytes to ``result``; returns the position after it, or -1."""
    value = 0
    for i in range(5):
        if at + i >= end:
            return -1
        byte = load8(at + i)
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            put64(result, value)
            return at + i + 1
    return -1


@kernel
def measure_block(at: int, end: int, result: int) -> int:
    """Returns the number of entries, or -1 if one does not fit; ``result`` receives the total size
    of the keys.
    """
    count = 0
    total = 0
    key = 0
    while at < end:
        at = read_small_varint(at, end, result)
        if at < 0:
            return -1
        shared = get64(result)
        at = read_small_varint(at, end, result)
        if at < 0:
            return -1
        rest = get64(result)
        at = read_small_varint(at, end, result)
        if at < 0:
            return -1
        size = get64(result)
        if shared > key or rest + size > end - at or shared + rest < TRAILER_BYTES:
            return -1
        key = shared + rest
        total += key
        count += 1
        at += rest + size
    put64(result, total)
    return count


@kernel
def unpack_block_entries(at: int, end: int, keys: int, entries: int, result: int) -> None:
    """Writes whole keys one after the other, and one line for each entry.

    ``measure_block`` must have checked the block; it also returns the needed room.
    """
    before = keys
    while at < end:
        at = read_small_varint(at, end, result)
        shared = get64(result)
        at = read_small_varint(at, end, result)
        rest = get64(result)
        at = read_small_varint(at, end, result)
        size = get64(result)
        copy(keys, before, shared)
        copy(keys + shared, at, rest)
        key_end = keys + shared + rest - TRAILER_BYTES
        put64(entries, keys)
        put64(entries + 8, key_end)
        put64(entries + 16, at + rest)
        put64(entries + 24, at + rest + size)
        put64(entries + 32, get64(key_end))
        before = keys
        keys += shared + rest
        entries += ENTRY_BYTES
        at += rest + size


@kernel
def read_prefixes(entries: int, rows: int, prefix: int, groups: int) -> None:
    """Writes the key group of each key as int64; -1 if the key is too short."""
    for row in range(rows):
        start = get64(entries + ENTRY_BYTES * row)
        if get64(entries + ENTRY_BYTES * row + 8) - start < prefix:
            put64(groups + 8 * row, -1)
        elif prefix == 2:
            put64(groups + 8 * row, load16(start))
        else:
            put64(groups + 8 * row, load8(start))
