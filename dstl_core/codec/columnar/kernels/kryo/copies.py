"""Copies values of Flink that stay, from the input to the output.

A value is copied if it has the only bytes that Flink writes for it. Any other is unsupported: read
and written anew, it has other bytes, or it is damaged.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.kryo import codes as k
from dstl_core.codec.columnar.kernels.kryo.codes import give8, has, take8, unsupported
from dstl_core.codec.columnar.kernels.kryo.write_objects import give_bytes
from dstl_core.codec.columnar.kernels.memory import (
    get64,
    load8,
    load16,
    load32,
    load64,
    put64,
)
from dstl_core.codec.columnar.kernels.values import (
    MAX_YEAR,
    NULL_BYTE_BITS,
    NULL_INT,
    days_in_month,
)

SMALLEST = -0x8000000000000000
NULL_SHORT_BITS = 0x8000
DATE_BYTES = 6
TIME_BYTES = 7


@kernel
def copy_input(c: int, size: int) -> int:
    if size < 0 or not has(c, size):
        return unsupported(c)
    at = get64(c + k.AT)
    put64(c + k.AT, at + size)
    return give_bytes(c, at, size)


@kernel
def copy_count(c: int) -> int:
    """Copies a number of parts; returns it."""
    if not has(c, 4):
        return unsupported(c)
    count = load32(get64(c + k.AT))
    if count < 0 or count > get64(c + k.END) - get64(c + k.AT) - 4:
        return unsupported(c)
    return -1 if copy_input(c, 4) < 0 else count


@kernel
def copy_flag(c: int) -> int:
    """Copies a boolean; returns it."""
    flag = take8(c)
    if flag < 0 or flag > 1:
        return unsupported(c)
    return -1 if give8(c, flag) < 0 else flag


@kernel
def is_wrong_null(c: int) -> bool:
    """Whether a null here contradicts the flag in front: written anew, the flag changes."""
    return get64(c + k.NEVER_NULL) != 0


@kernel
def copy_text(c: int) -> int:
    """Copies a text whose numbers have their shortest form."""
    start = get64(c + k.AT)
    end = get64(c + k.END)
    at = start
    units = 0
    shift = 0
    while True:
        if at >= end or shift > 28:
            return unsupported(c)
        byte = load8(at)
        at += 1
        units |= (byte & 0x7F) << shift
        shift += 7
        if byte < k.MORE:
            break
    if (shift > 7 and byte == 0) or units > 1 + end - at or (units == 0 and is_wrong_null(c)):
        return unsupported(c)
    for _ in range(units - 1):
        if at >= end:
            return unsupported(c)
        byte = load8(at)
        at += 1
        if byte < k.MORE:
            continue
        if at >= end:
            return unsupported(c)
        byte = load8(at)
        at += 1
        if byte >= k.MORE:
            if at >= end:
                return unsupported(c)
            byte = load8(at)
            at += 1
            if byte > 3:
                return unsupported(c)
        if byte == 0:
            return unsupported(c)
    return copy_input(c, at - start)


@kernel
def copy_big_integer(c: int) -> int:
    """Copies a number; returns 1 if it is null."""
    if not has(c, 4):
        return unsupported(c)
    size = load32(get64(c + k.AT))
    if size < 0 or size == 4 or (size == 0 and is_wrong_null(c)):
        return unsupported(c)
    if size > 4:
        start = get64(c + k.AT) + 4
        if not has(c, size):
            return unsupported(c)
        first = load8(start)
        second = load8(start + 1) if size > 5 else 0x40
        if (first == 0 and second < 0x80) or (first == 0xFF and second >= 0x80):
            return unsupported(c)
        if size == 5 and (first == 1 or first == 10 or first == 0):
            return unsupported(c)
    if copy_input(c, 4 + max(0, size - 4)) < 0:
        return -1
    return 1 if size == 0 else 0


@kernel
def copy_numbers(c: int, size: int) -> int:
    if not has(c, 4):
        return unsupported(c)
    count = load32(get64(c + k.AT))
    return unsupported(c) if count < 0 else copy_input(c, 4 + count * size)


@kernel
def copy_millis(c: int) -> int:
    """Copies milliseconds; the smallest number means null."""
    if not has(c, 8) or (load64(get64(c + k.AT)) == SMALLEST and is_wrong_null(c)):
        return unsupported(c)
    return copy_input(c, 8)


@kernel
def copy_nanos(c: int, null_nanos: int) -> int:
    """Copies milliseconds or seconds, and nanoseconds."""
    if not has(c, 12):
        return unsupported(c)
    at = get64(c + k.AT)
    nanos = load32(at + 8)
    if load64(at) == SMALLEST:
        if nanos != null_nanos or is_wrong_null(c):
            return unsupported(c)
    elif nanos < 0 or nanos >= 1_000_000_000:
        return unsupported(c)
    return copy_input(c, 12)


@kernel
def date_kind(at: int) -> int:
    """0 for a date, 1 for null, -1 for anything else."""
    year = load32(at)
    month = load8(at + 4)
    day = load8(at + 5)
    if year == NULL_INT:
        return 1 if load16(at + 4) == NULL_SHORT_BITS else -1
    if year < -MAX_YEAR or year > MAX_YEAR or month < 1 or month > 12:
        return -1
    return -1 if day < 1 or day > days_in_month(year, month) else 0


@kernel
def time_kind(at: int) -> int:
    """0 for a time of the day, 1 for null, -1 for anything else."""
    hour = load8(at)
    nano = load32(at + 3)
    if hour == NULL_BYTE_BITS:
        return 1 if load16(at + 1) == NULL_SHORT_BITS and nano == NULL_INT else -1
    if hour >= 24 or load8(at + 1) >= 60 or load8(at + 2) >= 60:
        return -1
    return -1 if nano < 0 or nano >= 1_000_000_000 else 0


@kernel
def copy_local(c: int, has_date: int, has_time: int) -> int:
    """Copies a date, a time of the day, or both."""
    date_bytes = DATE_BYTES if has_date != 0 else 0
    size = date_bytes + (TIME_BYTES if has_time != 0 else 0)
    if not has(c, size):
        return unsupported(c)
    at = get64(c + k.AT)
    null = date_kind(at) if has_date != 0 else time_kind(at)
    if has_date != 0 and has_time != 0 and time_kind(at + date_bytes) != null:
        return unsupported(c)
    if null < 0 or (null == 1 and is_wrong_null(c)):
        return unsupported(c)
    return copy_input(c, size)


@kernel
def copy_mask(c: int, bits: int) -> int:
    """Copies a mask, which starts with the highest bit of its first byte."""
    size = (bits + 7) // 8
    if not has(c, size):
        return unsupported(c)
    if bits & 7 != 0 and load8(get64(c + k.AT) + size - 1) & (0xFF >> (bits & 7)) != 0:
        return unsupported(c)
    return copy_input(c, size)
