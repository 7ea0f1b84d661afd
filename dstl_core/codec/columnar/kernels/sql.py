"""Reads SQL's binary rows, arrays and maps in kernels: little-endian memory with slots.

``codec.binary_row`` describes the format. A frame (two lines of the program) describes the memory
of a row or array. Inconsistent memory is reported at the start of the outermost row, as by the
record-wise decoder. Functions return 0 (or a count), or -1 after a report.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.instructions import (
    BAD_LENGTH,
    BAD_MEMORY,
    NO_UTF8,
    NOT_EXACT,
    REGION_AT,
    REGION_KEYS,
    REGION_SLOT,
    SLOT_RAW,
    SLOT_SHIFT,
    SLOT_TEXT,
    TIME_DATA_MS,
    TIME_KIND,
    TOO_LARGE,
    TRUNCATED,
)
from dstl_core.codec.columnar.kernels.instructions import ROW_KIND as ROW_KIND_REPORT
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import (
    copy,
    get32,
    get64,
    load8,
    load32,
    put8,
    put32,
    put64,
)
from dstl_core.codec.columnar.kernels.text import fail, is_utf8, need_space
from dstl_core.codec.columnar.kernels.values import (
    MAX_OFFSET,
    MICROS,
    put_decimal,
    put_decimal8,
    put_time,
)

# Byte offsets of a frame's words.
START, SIZE, LEFT, SLOTS, NULLS, FIRST_BIT, ITEMS, FIRST_ROW, OUTERMOST = (
    8,
    16,
    24,
    32,
    40,
    48,
    56,
    72,
    80,
)


@kernel
def set_frame(frame: int, start: int, size: int, outermost: int) -> None:
    put64(frame + START, start)
    put64(frame + SIZE, size)
    put64(frame + LEFT, size)
    put64(frame + OUTERMOST, outermost)


@kernel
def part_of_frame(frame: int, offset: int, size: int, status: int) -> int:
    """Takes a value from the variable part; returns its address, or -1."""
    if size < 0 or offset < 0 or offset + size > get64(frame + SIZE):
        return fail(status, BAD_MEMORY, get64(frame + OUTERMOST))
    left = get64(frame + LEFT) - size
    if left < 0:
        return fail(status, BAD_MEMORY, get64(frame + OUTERMOST))
    put64(frame + LEFT, left)
    return get64(frame + START) + offset


@kernel
def unsigned(value: int) -> int:
    return value & 0xFFFFFFFF


@kernel
def slot_part(frame: int, slot: int, status: int) -> int:
    """Takes the part that a slot points to; status word 4 receives its size."""
    at = get64(frame + SLOTS) + slot
    size = unsigned(get32(at))
    start = part_of_frame(frame, unsigned(get32(at + 4)), size, status)
    put64(status + 32, size)
    return start


@kernel
def enter_region(program: int, ip: int, at: int, end: int, status: int) -> int:
    """Sets the frame of a REGION. Returns the position after it if it starts at ``at``, else
    ``at``.
    """
    frame = program + get64(ip + 8)
    mode = get64(ip + 16)
    if mode == REGION_AT:
        if end - at < 4:
            return fail(status, TRUNCATED, at)
        size = load32(at)
        if size < 0 or size > end - at - 4:
            return fail(status, BAD_LENGTH, at)
        set_frame(frame, at + 4, size, at + 4)
        return at + 4 + size
    around = program + get64(ip + 24)
    outermost = get64(around + OUTERMOST)
    if mode == REGION_SLOT:
        start = slot_part(around, get64(ip + 32), status)
        if start < 0:
            return -1
        set_frame(frame, start, get64(status + 32), outermost)
        return at
    # The two arrays of a map: i32 size of the keys, keys, values.
    start = get64(around + START)
    total = get64(around + SIZE)
    if total < 4:
        return fail(status, BAD_MEMORY, outermost)
    size = get32(start)
    if size < 0 or size > total - 4:
        return fail(status, BAD_MEMORY, outermost)
    if mode == REGION_KEYS:
        set_frame(frame, start + 4, size, outermost)
    else:
        set_frame(frame, start + 4 + size, total - 4 - size, outermost)
    return at


@kernel
def enter_row(program: int, ip: int, n: int, status: int) -> int:
    frame = program + get64(ip + 8)
    arity = get64(ip + 24)
    start = get64(frame + START)
    header = (arity + 71) // 64 * 8
    if header + 8 * arity > get64(frame + SIZE):
        return fail(status, BAD_MEMORY, get64(frame + OUTERMOST))
    kind = load8(start)
    if kind > 3:
        return fail(status, BAD_MEMORY, get64(frame + OUTERMOST))
    if put_row_kind(get64(ip + 32), get64(ip + 40), kind, n) == 0 and get64(ip + 48) != 0:
        return fail(status, ROW_KIND_REPORT, start)
    put64(frame + SLOTS, start + header)
    put64(frame + NULLS, start)
    put64(frame + FIRST_BIT, 8)
    return 0


@kernel
def put_row_kind(values: int, valid: int, kind: int, n: int) -> int:
    """Writes a row kind into its column; returns 0 if the kind needs a column and there is none."""
    if values != 0:
        put8(values + n, kind)
        if valid != 0:
            put8(valid + n, 1)
        return 1
    return 1 if kind == 0 else 0


@kernel
def enter_array(program: int, ip: int, status: int) -> int:
    """Returns the number of items, or -1."""
    frame = program + get64(ip + 48)
    start = get64(frame + START)
    size = get64(frame + SIZE)
    slot_bytes = get64(ip + 32)
    outermost = get64(frame + OUTERMOST)
    if size < 4:
        return fail(status, BAD_MEMORY, outermost)
    count = get32(start)
    if count < 0 or count > size // slot_bytes:
        return fail(status, BAD_MEMORY, outermost)
    slots = 4 + (count + 31) // 32 * 4
    if slots + count * slot_bytes > size:
        return fail(status, BAD_MEMORY, outermost)
    put64(frame + SLOTS, start + slots)
    put64(frame + NULLS, start + 4)
    put64(frame + FIRST_BIT, 0)
    put64(frame + ITEMS, count)
    return count


@kernel
def is_slot_null(frame: int, bit: int) -> bool:
    bit += get64(frame + FIRST_BIT)
    return load8(get64(frame + NULLS) + (bit >> 3)) >> (bit & 7) & 1 != 0


@kernel
def read_slot(program: int, ip: int, n: int) -> None:
    values = get64(ip + 8)
    if values == 0:
        return
    at = get64(program + get64(ip + 24) + SLOTS) + get64(ip + 40)
    width = get64(ip + 32)
    if width == 8:
        put64(values + 8 * n, get64(at))
    elif width == 4:
        put32(values + 4 * n, get32(at))
    elif width == 2:
        put8(values + 2 * n, load8(at))
        put8(values + 2 * n + 1, load8(at + 1))
    else:
        byte = load8(at)
        if get64(ip + 48) == 1 and byte != 0:
            byte = 1
        put8(values + n, byte)
    valid = get64(ip + 16)
    if valid != 0:
        put8(valid + n, 1)


@kernel
def read_slot_bytes(program: int, ip: int, n: int, status: int) -> int:
    frame = program + get64(ip + 48)
    how = get64(ip + 40) & ((1 << SLOT_SHIFT) - 1)
    slot = get64(ip + 40) >> SLOT_SHIFT
    at = get64(frame + SLOTS) + slot
    last = load8(at + 7)
    if how != SLOT_RAW and last >= 0x80:
        size = last & 0x7F
        start = at
        if size > 7:
            return fail(status, BAD_MEMORY, get64(frame + OUTERMOST))
    else:
        start = slot_part(frame, slot, status)
        if start < 0:
            return -1
        size = get64(status + 32)
    offsets = get64(ip + 8)
    if offsets != 0:
        if how == SLOT_TEXT and not is_utf8(start, size):
            return fail(status, NO_UTF8, start)
        offset = get32(offsets + 4 * n)
        if offset + size > get64(ip + 32):
            if offset + size > MAX_OFFSET:
                return fail(status, TOO_LARGE, start)
            return need_space(status, get64(ip + 56), offset + size)
        copy(get64(ip + 24) + offset, start, size)
        put32(offsets + 4 * n + 4, offset + size)
        valid = get64(ip + 16)
        if valid != 0:
            put8(valid + n, 1)
    return 0


@kernel
def read_slot_decimal(program: int, ip: int, n: int, status: int) -> int:
    frame = program + get64(ip + 24)
    slot = get64(ip + 40)
    if get64(ip + 48) == 0:
        put_decimal8(ip, n, get64(get64(frame + SLOTS) + slot))
        return 0
    start = slot_part(frame, slot, status)
    if start < 0:
        return -1
    return put_decimal(ip, n, start, get64(status + 32), status)


@kernel
def read_slot_timestamp(program: int, ip: int, n: int, status: int) -> int:
    frame = program + get64(ip + 32)
    how = get64(ip + 40) & ((1 << SLOT_SHIFT) - 1)
    slot = get64(ip + 40) >> SLOT_SHIFT
    at = get64(frame + SLOTS) + slot
    exact = get64(ip + 24)
    if how & TIME_KIND == TIME_DATA_MS:
        millis = get64(at)
        return put_time(ip, n, millis // 1000, millis % 1000 * MICROS, how, exact, at, status)
    nanos = unsigned(get32(at))
    start = part_of_frame(frame, unsigned(get32(at + 4)), 8, status)
    if start < 0:
        return -1
    millis = get64(start)
    if nanos >= MICROS:
        return 0 if get64(ip + 8) == 0 else fail(status, NOT_EXACT, at)
    return put_time(ip, n, millis // 1000, millis % 1000 * MICROS + nanos, how, exact, at, status)
