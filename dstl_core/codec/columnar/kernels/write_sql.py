"""Writes SQL's binary rows, arrays and maps in kernels: the inverse of ``kernels.sql``.

The fixed part of a row or array is written first, with zeros. Values that do not fit into their
slot follow in the order of the fields, padded to 8 bytes. Source: ``BinaryRowWriter``
and ``BinaryArrayWriter`` of Flink 2.2.1.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.instructions import (
    BAD_ROW_KIND,
    NOT_EXACT,
    REGION_AT,
    REGION_KEYS,
    REGION_SLOT,
    SLOT_RAW,
    SLOT_SHIFT,
    TIME_DATA_MS,
    TIME_EXACT,
    TIME_KIND,
    TOO_LARGE,
)
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
from dstl_core.codec.columnar.kernels.sql import (
    FIRST_BIT,
    FIRST_ROW,
    ITEMS,
    NULLS,
    SLOTS,
    START,
)
from dstl_core.codec.columnar.kernels.text import fail
from dstl_core.codec.columnar.kernels.values import MICROS, NANOS
from dstl_core.codec.columnar.kernels.write import (
    DECIMAL_BYTES,
    MAX_EXACT_SECONDS,
    no_room,
    put_minimal,
    put_zeros,
)

MAX_SLOT_TEXT = 7


@kernel
def padded(size: int) -> int:
    return (size + 7) // 8 * 8


@kernel
def begin_region(program: int, ip: int, at: int, limit: int, status: int) -> int:
    """Leaves room for the size, if the region starts with one."""
    frame = program + get64(ip + 8)
    mode = get64(ip + 16)
    if mode == REGION_AT or mode == REGION_KEYS:
        if no_room(at, limit, 4, status):
            return -1
        at += 4
    put64(frame + START, at)
    return at


@kernel
def end_region(program: int, ip: int, at: int, limit: int, status: int) -> int:
    """Writes the size of a region to its place."""
    start = get64(program + get64(ip + 8) + START)
    mode = get64(ip + 16)
    size = at - start
    if mode == REGION_AT:
        put8(start - 4, size >> 24 & 0xFF)
        put8(start - 3, size >> 16 & 0xFF)
        put8(start - 2, size >> 8 & 0xFF)
        put8(start - 1, size & 0xFF)
    elif mode == REGION_KEYS:
        put32(start - 4, size)
    elif mode == REGION_SLOT:
        around = program + get64(ip + 24)
        if no_room(at, limit, 8, status):
            return -1
        put_slot_part(around, get64(ip + 32), start, size)
        put_zeros(at, padded(size) - size)
        return start + padded(size)
    return at


@kernel
def put_slot_part(frame: int, slot: int, start: int, size: int) -> None:
    """Writes size and offset of a part into its slot."""
    at = get64(frame + SLOTS) + slot
    put32(at, size)
    put32(at + 4, start - get64(frame + START))


@kernel
def begin_row(program: int, ip: int, at: int, limit: int, n: int, status: int) -> int:
    frame = program + get64(ip + 8)
    arity = get64(ip + 24)
    header = (arity + 71) // 64 * 8
    size = header + 8 * arity
    if no_room(at, limit, size, status):
        return -1
    put_zeros(at, size)
    kinds = get64(ip + 32)
    if kinds != 0:
        kind = load8(kinds + n)
        if kind > 3:
            return fail(status, BAD_ROW_KIND, 0)
        put8(at, kind)
    put64(frame + SLOTS, at + header)
    put64(frame + NULLS, at)
    put64(frame + FIRST_BIT, 8)
    return at + size


@kernel
def begin_array(
    program: int, ip: int, at: int, limit: int, first: int, count: int, status: int
) -> int:
    frame = program + get64(ip + 48)
    header = 4 + (count + 31) // 32 * 4
    size = padded(header + count * get64(ip + 32))
    if no_room(at, limit, size, status):
        return -1
    put_zeros(at, size)
    put32(at, count)
    put64(frame + SLOTS, at + header)
    put64(frame + NULLS, at + 4)
    put64(frame + FIRST_BIT, 0)
    put64(frame + ITEMS, count)
    put64(frame + FIRST_ROW, first)
    return at + size


@kernel
def set_slot_null(frame: int, bit: int) -> None:
    bit += get64(frame + FIRST_BIT)
    at = get64(frame + NULLS) + (bit >> 3)
    put8(at, load8(at) | 1 << (bit & 7))


@kernel
def write_slot(program: int, ip: int, n: int) -> None:
    values = get64(ip + 8)
    at = get64(program + get64(ip + 24) + SLOTS) + get64(ip + 40)
    width = get64(ip + 32)
    if width == 8:
        put64(at, get64(values + 8 * n))
    elif width == 4:
        put32(at, get32(values + 4 * n))
    elif width == 2:
        put16(at, get16(values + 2 * n))
    else:
        put8(at, load8(values + n))


@kernel
def write_slot_bytes(program: int, ip: int, at: int, limit: int, n: int, status: int) -> int:
    frame = program + get64(ip + 48)
    how = get64(ip + 40) & ((1 << SLOT_SHIFT) - 1)
    slot = get64(ip + 40) >> SLOT_SHIFT
    offsets = get64(ip + 8)
    start = get32(offsets + 4 * n)
    size = get32(offsets + 4 * n + 4) - start
    start += get64(ip + 24)
    if how != SLOT_RAW and size <= MAX_SLOT_TEXT:
        target = get64(frame + SLOTS) + slot
        copy(target, start, size)
        put8(target + 7, 0x80 | size)
        return at
    if no_room(at, limit, padded(size), status):
        return -1
    put_slot_part(frame, slot, at, size)
    copy(at, start, size)
    put_zeros(at + size, padded(size) - size)
    return at + padded(size)


@kernel
def write_slot_decimal(program: int, ip: int, at: int, limit: int, n: int, status: int) -> int:
    frame = program + get64(ip + 24)
    slot = get64(ip + 40)
    source = get64(ip + 8) + DECIMAL_BYTES * n
    if get64(ip + 48) == 0:
        low = get64(source)
        if get64(source + 8) != low >> 63:
            return fail(status, TOO_LARGE, 0)
        put64(get64(frame + SLOTS) + slot, low)
        return at
    if no_room(at, limit, DECIMAL_BYTES, status):
        return -1
    put_zeros(at, DECIMAL_BYTES)
    put_slot_part(frame, slot, at, put_minimal(at, source))
    return at + DECIMAL_BYTES


@kernel
def write_slot_timestamp(program: int, ip: int, at: int, limit: int, n: int, status: int) -> int:
    frame = program + get64(ip + 32)
    how = get64(ip + 40) & ((1 << SLOT_SHIFT) - 1)
    slot = get64(ip + 40) >> SLOT_SHIFT
    value = get64(get64(ip + 8) + 8 * n)
    if how & TIME_EXACT != 0:
        seconds = value
        nanos = get32(get64(ip + 24) + 4 * n)
    else:
        seconds = value // MICROS
        nanos = value % MICROS * 1000
    if abs(seconds) > MAX_EXACT_SECONDS or nanos < 0 or nanos >= NANOS:
        return fail(status, NOT_EXACT, 0)
    millis = seconds * 1000 + nanos // MICROS
    target = get64(frame + SLOTS) + slot
    if how & TIME_KIND == TIME_DATA_MS:
        put64(target, millis)
        return at if nanos % MICROS == 0 else fail(status, NOT_EXACT, 0)
    if no_room(at, limit, 8, status):
        return -1
    put64(at, millis)
    put32(target, nanos % MICROS)
    put32(target + 4, at - get64(frame + START))
    return at + 8
