"""Finds equal byte strings by hash, for joins, look-ups and comparisons.

A table uses open addressing with linear probing. Its slots are int64, -1 if empty, and at most half
of them are used. A slot holds half of a string's hash, and the number of the string. Rows are
ranges in memory.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get64, load8, prefetch, put8, put64

MULTIPLIER = -0x61C8864680B583EB
"""2^64 / golden ratio, odd."""
HASHES = 64
"""Hashes of rows that come next; a power of two."""
SLOT_AHEAD, SPAN_AHEAD = 48, 16
"""Rows before its turn that memory of a row is brought into the cache. Measured: with a million
rows on half as many keys, a row takes 25 ns instead of 123."""

_VALUE = 0x165667B19E3779F9
"""Odd, as ``MULTIPLIER``: hashes of values are not those of keys."""

_SIGN = -(1 << 63)
"""Hashes are unsigned, and numbers of kernels are signed: without it the order would differ."""


@kernel
def hash_bytes(start: int, end: int, seed: int) -> int:
    """A 64-bit hash. It includes the length, so trailing zeros change it."""
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
    """Writes the hash of each row, as int64 at ``hashes``."""
    for row in range(rows):
        start = get64(starts + stride * row)
        put64(hashes + 8 * row, hash_bytes(start, get64(ends + stride * row), seed))


@kernel
def sum_records(spans: int, stride: int, rows: int, seed: int, sums: int) -> None:
    """Adds each record to the sums of its state. The order of the records does not matter.

    Args:
        spans: Address of the spans of ``scan``.
        stride: Bytes of a span.
        rows: Number of records.
        seed: Seed of the hashes.
        sums: Two int64 for each state: the number of records, and the sum of their hashes.
    """
    for row in range(rows):
        span = spans + stride * row
        tag = get64(span + 32)
        h = hash_bytes(get64(span), get64(span + 8), seed) + (tag >> 16) * MULTIPLIER
        # Sums of both hashes alone would not see two values that change places.
        h = (h ^ hash_bytes(get64(span + 16), get64(span + 24), seed) * _VALUE) * MULTIPLIER
        h = (h ^ (h >> 32)) * _VALUE
        at = sums + 16 * (tag & 0xFFFF)
        put64(at, get64(at) + 1)
        put64(at + 8, get64(at + 8) + h)


@kernel
def _hash_ahead(
    starts: int, ends: int, row: int, rows: int, seed: int, table: int, mask: int, hashes: int
) -> None:
    """Keeps the hash of a later row, and brings its slot into the cache."""
    if row < rows:
        row_hash = hash_bytes(get64(starts + 8 * row), get64(ends + 8 * row), seed)
        put64(hashes + 8 * (row & (HASHES - 1)), row_hash)
        prefetch(table + 8 * (row_hash & mask))


@kernel
def _entry_ahead(row: int, rows: int, table: int, mask: int, hashes: int) -> int:
    """The entry where the look-up of a later row begins; -1 if there is none."""
    if row >= rows:
        return -1
    return get64(table + 8 * (get64(hashes + 8 * (row & (HASHES - 1))) & mask))


@kernel
def _span_ahead(row: int, rows: int, table: int, mask: int, spans: int, hashes: int) -> None:
    """Brings the place of the string of a later row's slot into the cache."""
    entry = _entry_ahead(row, rows, table, mask, hashes)
    if entry != -1:
        prefetch(spans + 16 * (entry & 0xFFFFFFFF))


@kernel
def _slot_of(row_hash: int, start: int, end: int, table: int, mask: int, spans: int) -> int:
    """The address of the slot of a string, or of the empty slot where it belongs."""
    slot = row_hash & mask
    while True:
        at = table + 8 * slot
        entry = get64(at)
        if entry == -1:
            return at
        if entry >> 32 << 32 == row_hash >> 32 << 32:
            span = spans + 16 * (entry & 0xFFFFFFFF)
            other = get64(span)
            if get64(span + 8) - other == end - start and equal_bytes(other, start, end - start):
                return at
        slot = (slot + 1) & mask


@kernel
def number_rows(
    starts: int,
    ends: int,
    rows: int,
    seed: int,
    table: int,
    mask: int,
    spans: int,
    hashes: int,
    firsts: int,
    numbers: int,
) -> int:
    """Numbers distinct strings in order of first use; returns the number of them.

    A large table is not in the processor's cache, and waiting for memory would take most of the
    time. So the slot of a row is brought there ``SLOT_AHEAD`` rows before it is needed.

    Args:
        starts: Address of the start of each row, int64.
        ends: Address of the end of each row.
        rows: Number of rows, below 2^32 - 1.
        seed: Seed of the hash.
        table: Address of the empty slots, int64, all -1; each gets 32 bits of a hash, and a number.
        mask: Number of slots - 1. The number of slots is a power of two, above the number of rows.
        spans: Receives the start and the end (int64) of the string of each number.
        hashes: Memory for ``HASHES`` int64.
        firsts: Receives the first row (int64) of each number.
        numbers: Receives the number (int64) of each row.
    """
    distinct = 0
    for row in range(min(SLOT_AHEAD, rows)):
        _hash_ahead(starts, ends, row, rows, seed, table, mask, hashes)
    for row in range(rows):
        row_hash = get64(hashes + 8 * (row & (HASHES - 1)))
        _hash_ahead(starts, ends, row + SLOT_AHEAD, rows, seed, table, mask, hashes)
        _span_ahead(row + SPAN_AHEAD, rows, table, mask, spans, hashes)
        start = get64(starts + 8 * row)
        end = get64(ends + 8 * row)
        slot = _slot_of(row_hash, start, end, table, mask, spans)
        entry = get64(slot)
        if entry == -1:
            entry = row_hash >> 32 << 32 | distinct
            put64(slot, entry)
            put64(spans + 16 * distinct, start)
            put64(spans + 16 * distinct + 8, end)
            put64(firsts + 8 * distinct, row)
            distinct += 1
        put64(numbers + 8 * row, entry & 0xFFFFFFFF)
    return distinct


@kernel
def find_rows(
    starts: int,
    ends: int,
    rows: int,
    seed: int,
    table: int,
    mask: int,
    spans: int,
    hashes: int,
    numbers: int,
) -> None:
    """Looks up the number of each row's string in a table of ``number_rows``; -1 if it is
    missing. The arguments are those of ``number_rows``.
    """
    for row in range(min(SLOT_AHEAD, rows)):
        _hash_ahead(starts, ends, row, rows, seed, table, mask, hashes)
    for row in range(rows):
        row_hash = get64(hashes + 8 * (row & (HASHES - 1)))
        _hash_ahead(starts, ends, row + SLOT_AHEAD, rows, seed, table, mask, hashes)
        _span_ahead(row + SPAN_AHEAD, rows, table, mask, spans, hashes)
        start = get64(starts + 8 * row)
        entry = get64(_slot_of(row_hash, start, get64(ends + 8 * row), table, mask, spans))
        put64(numbers + 8 * row, -1 if entry == -1 else entry & 0xFFFFFFFF)


@kernel
def mark_different(spans: int, others: int, stride: int, rows: int, marks: int) -> None:
    """Marks rows whose string differs from the other row's string.

    Args:
        spans: Address of start and end of row 0.
        others: The same for the other rows.
        stride: Bytes from one row to the next, in both.
        rows: Number of rows.
        marks: Receives one byte per row: 1 if the strings differ.
    """
    for row in range(rows):
        start = get64(spans + stride * row)
        size = get64(spans + stride * row + 8) - start
        other = get64(others + stride * row)
        same = size == get64(others + stride * row + 8) - other
        put8(marks + row, 0 if same and equal_bytes(start, other, size) else 1)


@kernel
def _grouped_hash_ahead(
    starts: int,
    ends: int,
    groups: int,
    row: int,
    rows: int,
    seed: int,
    table: int,
    mask: int,
    hashes: int,
) -> None:
    """As ``_hash_ahead``, for a string of a group."""
    if row < rows:
        own = seed + get64(groups + 8 * row) * MULTIPLIER
        _hash_ahead(starts, ends, row, rows, own, table, mask, hashes)


@kernel
def _grouped_row_ahead(
    starts: int, ends: int, groups: int, row: int, rows: int, table: int, mask: int, hashes: int
) -> None:
    """Brings the string and the group of a later row's slot into the cache."""
    entry = _entry_ahead(row, rows, table, mask, hashes)
    if entry != -1:
        other = 8 * (entry & 0xFFFFFFFF)
        prefetch(starts + other)
        prefetch(ends + other)
        prefetch(groups + other)


@kernel
def mark_last_rows(
    starts: int,
    ends: int,
    groups: int,
    rows: int,
    seed: int,
    table: int,
    mask: int,
    hashes: int,
    marks: int,
) -> int:
    """Marks the last row of each string; returns the number of distinct strings.

    Args:
        starts: Address of the start of each row, int64.
        ends: Address of the end of each row.
        groups: Address of an int64 for each row; only strings of one group are equal.
        rows: Number of rows, below 2^32.
        seed: Seed of the hash.
        table: Address of the slots, int64, all -1. A slot has 32 bits of a hash, and a row.
        mask: Number of slots - 1. The number of slots is a power of two, above the number of rows.
        hashes: Memory for ``HASHES`` int64.
        marks: Receives one byte per row: 1 for the last row of its string.
    """
    distinct = 0
    for row in range(min(SLOT_AHEAD, rows)):
        _grouped_hash_ahead(starts, ends, groups, row, rows, seed, table, mask, hashes)
    for row in range(rows):
        row_hash = get64(hashes + 8 * (row & (HASHES - 1)))
        ahead = row + SLOT_AHEAD
        _grouped_hash_ahead(starts, ends, groups, ahead, rows, seed, table, mask, hashes)
        _grouped_row_ahead(starts, ends, groups, row + SPAN_AHEAD, rows, table, mask, hashes)
        start = get64(starts + 8 * row)
        end = get64(ends + 8 * row)
        group = get64(groups + 8 * row)
        high = row_hash >> 32 << 32
        slot = row_hash & mask
        put8(marks + row, 1)
        while True:
            entry = get64(table + 8 * slot)
            if entry == -1:
                distinct += 1
                break
            if entry >> 32 << 32 == high:
                other = entry & 0xFFFFFFFF
                first = get64(starts + 8 * other)
                is_same = get64(ends + 8 * other) - first == end - start
                is_same = is_same and get64(groups + 8 * other) == group
                if is_same and equal_bytes(first, start, end - start):
                    put8(marks + other, 0)
                    break
            slot = (slot + 1) & mask
        put64(table + 8 * slot, high | row)
    return distinct


@kernel
def order_hashes(hashes: int, rows: int, shift: int, ends: int, order: int, in_order: int) -> None:
    """Sorts hashes, as unsigned numbers.

    Their first bits give each of them a bucket. Hashes are spread evenly, so a bucket has few, and
    moving each one back to its place takes few steps.

    Args:
        hashes: Address of the hashes, int64.
        rows: Number of hashes.
        shift: 64 - the number of bits of a bucket, which are at least 1.
        ends: Address of an int64 0 for each bucket, and one more.
        order: Receives the row (int64) of each hash, in the order of the hashes.
        in_order: Receives the hashes in their order.
    """
    mask = (1 << (64 - shift)) - 1
    for row in range(rows):
        at = ends + 8 * ((get64(hashes + 8 * row) >> shift & mask) + 1)
        put64(at, get64(at) + 1)
    for bucket in range(mask + 1):
        at = ends + 8 * (bucket + 1)
        put64(at, get64(at) + get64(at - 8))
    for row in range(rows):
        row_hash = get64(hashes + 8 * row)
        at = ends + 8 * (row_hash >> shift & mask)
        place = get64(at)
        put64(at, place + 1)
        put64(in_order + 8 * place, row_hash)
        put64(order + 8 * place, row)
    for place in range(1, rows):
        row_hash, row, at = get64(in_order + 8 * place), get64(order + 8 * place), place
        while at > 0 and get64(in_order + 8 * at - 8) ^ _SIGN > row_hash ^ _SIGN:
            put64(in_order + 8 * at, get64(in_order + 8 * at - 8))
            put64(order + 8 * at, get64(order + 8 * at - 8))
            at -= 1
        put64(in_order + 8 * at, row_hash)
        put64(order + 8 * at, row)


@kernel
def place_hashes(wanted: int, count: int, hashes: int, rows: int, places: int) -> None:
    """Writes, for each of ``count`` hashes, the first of ``rows`` hashes that is not below it.

    Both are in the order of ``order_hashes``. The result is an int64 for each.
    """
    at = 0
    for number in range(count):
        wanted_hash = get64(wanted + 8 * number) ^ _SIGN
        while at < rows and get64(hashes + 8 * at) ^ _SIGN < wanted_hash:
            at += 1
        put64(places + 8 * number, at)
