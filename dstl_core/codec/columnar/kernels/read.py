"""Reads single values in kernels: from ``at`` into row ``n`` of a column.

This module reads text, bytes, flags and nulls; ``kernels.values`` reads numbers and dates.
Functions return the position after the value, or -1 after a report.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels import instructions as ops
from dstl_core.codec.columnar.kernels.hashing import equal_bytes
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import (
    copy,
    get32,
    get64,
    load8,
    load16,
    load32,
    load64,
    put8,
    put16,
    put32,
    put64,
)
from dstl_core.codec.columnar.kernels.sql import (
    read_slot_bytes,
    read_slot_decimal,
    read_slot_timestamp,
)
from dstl_core.codec.columnar.kernels.text import (
    copy_if_ascii,
    fail,
    is_utf8,
    need_space,
    skip_if_ascii,
    skip_units,
    units_to_utf8,
    units_to_utf16,
)
from dstl_core.codec.columnar.kernels.values import (
    MAX_OFFSET,
    read_big_int,
    read_decimal,
    read_local_date,
    read_local_time,
    read_timestamp,
)


@kernel
def read_varint(at: int, end: int, status: int) -> int:
    """Reads a varint of at most 5 bytes to status word 4; returns the position after it, or -1."""
    value = 0
    for i in range(5):
        if at + i >= end:
            return fail(status, ops.TRUNCATED, at + i)
        byte = load8(at + i)
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            put64(status + 32, value)
            return at + i + 1
    return fail(status, ops.ENDLESS_NUMBER, at)


@kernel
def read_text(ip: int, at: int, end: int, n: int, readable: int, status: int) -> int:
    """Reads one string value into a column; returns the position after it."""
    start = at
    if at >= end:
        return fail(status, ops.TRUNCATED, at)
    size = load8(at)
    at += 1
    if size >= 0x80:
        at = read_varint(start, end, status)
        if at < 0:
            return -1
        size = get64(status + 32)
    how = get64(ip + 40)
    offsets = get64(ip + 8)
    if how & ops.TEXT_WITHOUT_NULL == 0:
        if size == 0:
            if offsets != 0:
                put32(offsets + 4 * n + 4, get32(offsets + 4 * n))
                put8(get64(ip + 16) + n, 0)
            return at
        size -= 1
    if size > end - at:
        return fail(status, ops.BAD_LENGTH, start)
    if offsets == 0:
        if skip_if_ascii(at, size):
            return at + size
        return skip_units(at, end, size, status)
    offset = get32(offsets + 4 * n)
    capacity = get64(ip + 32)
    target = get64(ip + 24) + offset
    if offset + size > capacity:
        if offset + size > MAX_OFFSET:
            return fail(status, ops.TOO_LARGE, start)
        return need_space(status, get64(ip + 56), offset + size)
    if how & ops.TEXT_UTF16 == 0 and copy_if_ascii(at, target, size, readable):
        at += size
    else:
        most = 2 * size if how & ops.TEXT_UTF16 != 0 else 3 * size
        if offset + most > capacity:
            if offset + most > MAX_OFFSET:
                return fail(status, ops.TOO_LARGE, start)
            return need_space(status, get64(ip + 56), offset + most)
        if how & ops.TEXT_UTF16 != 0:
            at = units_to_utf16(at, end, size, target, status)
        else:
            at = units_to_utf8(at, end, size, target, status)
        if at < 0:
            return -1
        size = get64(status + 32)
    put32(offsets + 4 * n + 4, offset + size)
    valid = get64(ip + 16)
    if valid != 0:
        put8(valid + n, 1)
    return at


@kernel
def read_bytes(ip: int, at: int, end: int, n: int, status: int) -> int:
    """Reads bytes into a column; returns the position after them."""
    how = get64(ip + 40)
    start = at
    if how == ops.BYTES_REST:
        size = end - at
    elif how == ops.BYTES_COUNTED or how == ops.BYTES_COUNTED_TEXT:
        if end - at < 4:
            return fail(status, ops.TRUNCATED, at)
        size = load32(at)
        if size < 0 or size > end - at - 4:
            return fail(status, ops.BAD_LENGTH, at)
        start = at + 4
    else:
        size = get64(ip + 48)
        if size > end - at:
            return fail(status, ops.TRUNCATED, at)
    offsets = get64(ip + 8)
    if offsets != 0:
        if how == ops.BYTES_COUNTED_TEXT and not is_utf8(start, size):
            return fail(status, ops.NO_UTF8, at)
        offset = get32(offsets + 4 * n)
        if offset + size > get64(ip + 32):
            if offset + size > MAX_OFFSET:
                return fail(status, ops.TOO_LARGE, at)
            return need_space(status, get64(ip + 56), offset + size)
        copy(get64(ip + 24) + offset, start, size)
        put32(offsets + 4 * n + 4, offset + size)
        valid = get64(ip + 16)
        if valid != 0:
            put8(valid + n, 1)
    return start + size


@kernel
def read_pojo_flags(program: int, ip: int, at: int, end: int, status: int) -> int:
    """Reads the flags of a POJO; returns the position after them, or -1.

    Status word 4 receives their meaning: 0 null, 1 the class itself, 2 a subclass.
    """
    if at >= end:
        return fail(status, ops.TRUNCATED, at)
    flags = load8(at)
    put64(status + 32, 2)
    if flags & 1 != 0:
        put64(status + 32, 0)
        return at + 1
    if flags & 4 != 0:
        if end - at < 3:
            return fail(status, ops.TRUNCATED, at + 1)
        size = load16(at + 1)
        if end - at - 3 < size:
            return fail(status, ops.TRUNCATED, at + 3)
        put64(ip + 40, -1)
        put64(ip + 48, at + 3)
        return at + 3 + size
    if flags & 8 != 0:
        if end - at < 2:
            return fail(status, ops.TRUNCATED, at + 1)
        tag = load8(at + 1)
        if tag >= get64(ip + 32):
            return fail(status, ops.BAD_VALUE, at)
        put64(ip + 40, tag)
        put64(ip + 48, 0)
        return at + 2
    if flags & 2 == 0:
        return fail(status, ops.BAD_VALUE, at)
    put64(status + 32, 1)
    return at + 1


@kernel
def is_class(pojo: int, name: int, size: int) -> bool:
    """Whether the class name just read is the one of this instruction."""
    start = get64(pojo + 48)
    if start == 0 or load16(start - 2) != size:
        return False
    return equal_bytes(start, name, size)


@kernel
def put_flag(values: int, valid: int, n: int, flag: int) -> None:
    if values != 0:
        put8(values + n, flag)
        if valid != 0:
            put8(valid + n, 1)


@kernel
def check_digits(at: int, end: int, size: int, status: int) -> int:
    """Checks the little-endian base-256 digits of ``size``, at least one; returns the position
    after them.
    """
    digits = 1
    while size >> 8 * digits != 0:
        digits += 1
    if end - at < digits:
        return fail(status, ops.TRUNCATED, at)
    for i in range(digits):
        if load8(at + i) != size >> 8 * i & 0xFF:
            return fail(status, ops.BAD_DIGITS, at)
    return at + digits


@kernel
def put_null_fixed(ip: int, n: int) -> None:
    values = get64(ip + 8)
    width = get64(ip + 32)
    if values != 0:
        if width == 8:
            put64(values + 8 * n, 0)
        elif width == 16:
            put64(values + 16 * n, 0)
            put64(values + 16 * n + 8, 0)
        elif width == 4:
            put32(values + 4 * n, 0)
        elif width == 2:
            put16(values + 2 * n, 0)
        else:
            put8(values + n, 0)
        valid = get64(ip + 16)
        if valid != 0:
            put8(valid + n, 0)


@kernel
def put_null_offsets(ip: int, n: int) -> None:
    offsets = get64(ip + 8)
    if offsets != 0:
        put32(offsets + 4 * n + 4, get32(offsets + 4 * n))
        valid = get64(ip + 16)
        if valid != 0:
            put8(valid + n, 0)


@kernel
def read_index(ip: int, at: int, end: int, n: int, status: int) -> int:
    if end - at < 4:
        return fail(status, ops.TRUNCATED, at)
    index = load32(at)
    if index < 0 or index >= get64(ip + 40):
        return fail(status, ops.BAD_VALUE, at)
    values = get64(ip + 8)
    if values != 0:
        put32(values + 4 * n, index)
        valid = get64(ip + 16)
        if valid != 0:
            put8(valid + n, 1)
    at += 4
    return at


@kernel
def read_stream_tag(ip: int, at: int, end: int, n: int, status: int) -> int:
    if at >= end:
        return fail(status, ops.TRUNCATED, at)
    tag = load8(at)
    if tag > 6:
        return fail(status, ops.BAD_VALUE, at)
    if tag > 1:
        return fail(status, ops.NOT_A_COLUMN, at)
    at += 1
    values = get64(ip + 8)
    if tag == 0:
        if end - at < 8:
            return fail(status, ops.TRUNCATED, at)
        if values != 0:
            put64(values + 8 * n, load64(at))
            put8(get64(ip + 16) + n, 1)
        at += 8
    else:
        put_null_fixed(ip, n)
    return at


@kernel
def read_sizes(program: int, ip: int, at: int, end: int, status: int) -> int:
    if end - at < 4:
        return fail(status, ops.TRUNCATED, at)
    size = load32(at)
    if size < 0 or size > end - at - 4:
        return fail(status, ops.BAD_LENGTH, at)
    put64(program + get64(ip + 24) + 48, size)
    at += 4
    if end - at < 4:
        return fail(status, ops.TRUNCATED, at)
    size = load32(at)
    if size < 0 or size > end - at - 4:
        return fail(status, ops.BAD_LENGTH, at)
    put64(program + get64(ip + 32) + 48, size)
    at += 4
    return at


@kernel
def read_value(op: int, program: int, ip: int, at: int, end: int, n: int, status: int) -> int:
    """Runs an instruction that reads one value and then continues with the next instruction."""
    if op == ops.TIMESTAMP:
        return read_timestamp(ip, at, end, n, status)
    if op == ops.BIG_INT:
        return read_big_int(ip, at, end, n, status)
    if op == ops.DECIMAL:
        return read_decimal(ip, at, end, n, status)
    if op == ops.LOCAL_DATE:
        return read_local_date(ip, at, end, n, status)
    if op == ops.LOCAL_TIME:
        return read_local_time(ip, at, end, n, status)
    if op == ops.INDEX4:
        return read_index(ip, at, end, n, status)
    if op == ops.STREAM_TAG:
        return read_stream_tag(ip, at, end, n, status)
    if op == ops.SIZES:
        return read_sizes(program, ip, at, end, status)
    if op == ops.SLOT_BYTES:
        return at if read_slot_bytes(program, ip, n, status) == 0 else -1
    if op == ops.SLOT_DECIMAL:
        return at if read_slot_decimal(program, ip, n, status) == 0 else -1
    if op == ops.SLOT_TIMESTAMP:
        return at if read_slot_timestamp(program, ip, n, status) == 0 else -1
    return fail(status, ops.UNKNOWN_INSTRUCTION, ip)
