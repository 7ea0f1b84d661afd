"""Byte strings by hash: which of them are the same, for joins, look-ups and comparisons.

A table is open-addressed with linear probing: int32 slots, -1 for empty, at most half full, that
hold the first row of each distinct string. Rows are ranges in memory.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get32, get64, load8, put8, put32, put64

MULTIPLIER = -0x61C8864680B583EB
"""2^64 / golden ratio, odd."""


@kernel
def hash_bytes(start: int, end: int, seed: int) -> int:
    """A 64-bit hash; strings of different length differ even if the longer one ends in zeros."""
    h = seed ^ ((end - start) * MULTIPLIER)
    at = start
    while end - at >= 8:
        h = (h ^ get64(at)) * MULTIPLIER
        h ^= h >> 29
        at += 8
    rest = 0
    while at < end:
        rest = rest << 8 | load8(at)
        at += 1
    h = (h ^ rest) * MULTIPLIER
    h ^= h >> 32
    h *= MULTIPLIER
    return h ^ (h >> 29)


@kernel
def equal_bytes(a: int, b: int, size: int) -> bool:
    done = 0
    while size - done >= 8:
        if get64(a + done) != get64(b + done):
            return False
        done += 8
    while done < size:
        if load8(a + done) != load8(b + done):
            return False
        done += 1
    return True


@kernel
def hash_rows(starts: int, ends: int, stride: int, rows: int, seed: int, hashes: int) -> None:
    """The hash of each row, as int64 at ``hashes``."""
    for row in range(rows):
        start = get64(starts + stride * row)
        put64(hashes + 8 * row, hash_bytes(start, get64(ends + stride * row), seed))


@kernel
def number_rows(
    starts: int,
    ends: int,
    stride: int,
    rows: int,
    seed: int,
    table: int,
    mask: int,
    firsts: int,
    numbers: int,
) -> int:
    """Numbers distinct strings in the order in which they come; how many there are.

    Args:
        starts: Address of where row 0 starts.
        ends: Address of where it ends.
        stride: Bytes from a row's addresses to the next one's.
        rows: How many.
        seed: Of the hash.
        table: Empty slots, which hold numbers.
        mask: Slots - 1; the slots are a power of two and more than the rows.
        firsts: Gets the first row (int64) of each number.
        numbers: Gets the number (int64) of each row.
    """
    distinct = 0
    for row in range(rows):
        start = get64(starts + stride * row)
        end = get64(ends + stride * row)
        slot = hash_bytes(start, end, seed) & mask
        while True:
            number = get32(table + 4 * slot)
            if number < 0:
                put32(table + 4 * slot, distinct)
                put64(firsts + 8 * distinct, row)
                number = distinct
                distinct += 1
                break
            first = get64(firsts + 8 * number)
            other = get64(starts + stride * first)
            if get64(ends + stride * first) - other == end - start and equal_bytes(
                other, start, end - start
            ):
                break
            slot = (slot + 1) & mask
        put64(numbers + 8 * row, number)
    return distinct


@kernel
def find_rows(
    starts: int,
    ends: int,
    stride: int,
    rows: int,
    known_starts: int,
    known_ends: int,
    known_stride: int,
    seed: int,
    table: int,
    mask: int,
    firsts: int,
    numbers: int,
) -> None:
    """The number of each row among strings that ``number_rows`` has numbered, or -1."""
    for row in range(rows):
        start = get64(starts + stride * row)
        end = get64(ends + stride * row)
        slot = hash_bytes(start, end, seed) & mask
        while True:
            number = get32(table + 4 * slot)
            if number < 0:
                break
            first = get64(firsts + 8 * number)
            other = get64(known_starts + known_stride * first)
            if get64(known_ends + known_stride * first) - other == end - start and equal_bytes(
                other, start, end - start
            ):
                break
            slot = (slot + 1) & mask
        put64(numbers + 8 * row, number)


@kernel
def mark_different(spans: int, others: int, stride: int, rows: int, marks: int) -> None:
    """Sets a byte at ``marks`` for each row whose string differs from that of the other row.

    Args:
        spans: Address of where row 0 starts, followed by where it ends.
        others: The same of the other rows.
        stride: Bytes from a row to the next one, of both.
        rows: How many.
        marks: A byte a row.
    """
    for row in range(rows):
        start = get64(spans + stride * row)
        size = get64(spans + stride * row + 8) - start
        other = get64(others + stride * row)
        same = size == get64(others + stride * row + 8) - other
        put8(marks + row, 0 if same and equal_bytes(start, other, size) else 1)
