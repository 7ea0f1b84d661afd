"""Runs a compiled type over bytes and appends to columns.

Every read is checked against ``end`` and every write against the capacity of its column before it
is made; what does not fit is reported and nothing is lost: the caller grows a buffer and goes on at
the same record, because everything that a record appends is found by its row alone.
"""

from __future__ import annotations

from dstl_core.codec.columnar.instructions import (
    BAD_DELIMITER,
    BAD_DIGITS,
    BAD_LENGTH,
    BOOL,
    BYTES,
    COPY1,
    COPY2,
    COPY4,
    COPY8,
    DELIMITED,
    END,
    ENDLESS_NUMBER,
    FLIP8,
    INSTRUCTION_BYTES,
    JUMP,
    LEFT_OVER,
    LENGTH_DIGITS,
    LIST,
    LOOP,
    MARK,
    MARKER,
    NEXT_DELIMITED,
    NULL_FIXED,
    NULL_FLAG,
    NULL_KEY,
    NULL_OFFSETS,
    NULL_STRUCT,
    POSITION,
    PRESENT_FLAG,
    REQUIRE,
    SKIP_REST,
    TEXT,
    TEXT_UTF16,
    TEXT_WITHOUT_NULL,
    TOO_LARGE,
    TRUNCATED,
    UNKNOWN_INSTRUCTION,
    VALID,
)
from dstl_core.codec.columnar.jit import kernel
from dstl_core.codec.columnar.memory import (
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
from dstl_core.codec.columnar.text_kernel import (
    copy_if_ascii,
    fail,
    need_space,
    skip_if_ascii,
    skip_units,
    units_to_utf8,
    units_to_utf16,
)

SIGN_BIT = -0x8000000000000000
LIST_DELIMITER = 0x2C
MAX_OFFSET = 0x7FFFFFFF


@kernel
def read_text_length(at: int, end: int, status: int) -> int:
    """A varint of at most 5 bytes: ``value << 3 | bytes``, or -1."""
    value = 0
    for i in range(5):
        if at + i >= end:
            return fail(status, TRUNCATED, at + i)
        byte = load8(at + i)
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value << 3 | (i + 1)
    return fail(status, ENDLESS_NUMBER, at)


@kernel
def read_text(ip: int, at: int, end: int, n: int, readable: int, status: int) -> int:
    """One string value into a column; the new position."""
    start = at
    if at >= end:
        return fail(status, TRUNCATED, at)
    size = load8(at)
    at += 1
    if size >= 0x80:
        read = read_text_length(start, end, status)
        if read < 0:
            return -1
        size = read >> 3
        at = start + (read & 7)
    how = get64(ip + 40)
    offsets = get64(ip + 8)
    if how & TEXT_WITHOUT_NULL == 0:
        if size == 0:
            if offsets != 0:
                put32(offsets + 4 * n + 4, get32(offsets + 4 * n))
                put8(get64(ip + 16) + n, 0)
            return at
        size -= 1
    if size > end - at:
        return fail(status, BAD_LENGTH, start)
    if offsets == 0:
        if skip_if_ascii(at, size):
            return at + size
        return skip_units(at, end, size, status)
    offset = get32(offsets + 4 * n)
    capacity = get64(ip + 32)
    target = get64(ip + 24) + offset
    if offset + size > capacity:
        if offset + size > MAX_OFFSET:
            return fail(status, TOO_LARGE, start)
        return need_space(status, get64(ip + 56), offset + size)
    if how & TEXT_UTF16 == 0 and copy_if_ascii(at, target, size, readable):
        at += size
    else:
        most = 2 * size if how & TEXT_UTF16 != 0 else 3 * size
        if offset + most > capacity:
            if offset + most > MAX_OFFSET:
                return fail(status, TOO_LARGE, start)
            return need_space(status, get64(ip + 56), offset + most)
        if how & TEXT_UTF16 != 0:
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
    """``i32 length, bytes`` into a column; the new position."""
    if end - at < 4:
        return fail(status, TRUNCATED, at)
    size = load32(at)
    if size < 0 or size > end - at - 4:
        return fail(status, BAD_LENGTH, at)
    offsets = get64(ip + 8)
    if offsets != 0:
        offset = get32(offsets + 4 * n)
        if offset + size > get64(ip + 32):
            if offset + size > MAX_OFFSET:
                return fail(status, TOO_LARGE, at)
            return need_space(status, get64(ip + 56), offset + size)
        copy(get64(ip + 24) + offset, at + 4, size)
        put32(offsets + 4 * n + 4, offset + size)
        valid = get64(ip + 16)
        if valid != 0:
            put8(valid + n, 1)
    return at + 4 + size


@kernel
def check_digits(at: int, end: int, size: int, status: int) -> int:
    """The digits of ``size``, lowest first, at least one; the position after them."""
    digits = 1
    while size >> 8 * digits != 0:
        digits += 1
    if end - at < digits:
        return fail(status, TRUNCATED, at)
    for i in range(digits):
        if load8(at + i) != size >> 8 * i & 0xFF:
            return fail(status, BAD_DIGITS, at)
    return at + digits


@kernel
def put_null_fixed(ip: int, n: int) -> None:
    values = get64(ip + 8)
    width = get64(ip + 32)
    if values != 0:
        if width == 8:
            put64(values + 8 * n, 0)
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
def decode_rows(
    program: int, spans: int, stride: int, row: int, rows: int, readable: int, status: int
) -> int:
    """Reads the values whose start and end stand at ``spans + stride * row``; the number of rows
    that are complete, which is ``rows`` unless the status says why not.
    """
    if row == rows:
        return row
    ip = program
    n = row
    span = spans + stride * row
    at = get64(span)
    end = get64(span + 8)
    while True:
        op = get64(ip)
        if op == END:
            if at != end:
                fail(status, LEFT_OVER, at)
                return row
            row += 1
            if row == rows:
                return row
            n = row
            span += stride
            at = get64(span)
            end = get64(span + 8)
            ip = program
        elif op == TEXT:
            at = read_text(ip, at, end, n, readable, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == COPY8 or op == FLIP8:
            if end - at < 8:
                fail(status, TRUNCATED, at)
                return row
            values = get64(ip + 8)
            if values != 0:
                put64(values + 8 * n, load64(at) if op == COPY8 else load64(at) ^ SIGN_BIT)
                valid = get64(ip + 16)
                if valid != 0:
                    put8(valid + n, 1)
            at += 8
            ip += INSTRUCTION_BYTES
        elif op == COPY4:
            if end - at < 4:
                fail(status, TRUNCATED, at)
                return row
            values = get64(ip + 8)
            if values != 0:
                put32(values + 4 * n, load32(at))
                valid = get64(ip + 16)
                if valid != 0:
                    put8(valid + n, 1)
            at += 4
            ip += INSTRUCTION_BYTES
        elif op == COPY2:
            if end - at < 2:
                fail(status, TRUNCATED, at)
                return row
            values = get64(ip + 8)
            if values != 0:
                put16(values + 2 * n, load16(at))
                valid = get64(ip + 16)
                if valid != 0:
                    put8(valid + n, 1)
            at += 2
            ip += INSTRUCTION_BYTES
        elif op == COPY1 or op == BOOL:
            if at >= end:
                fail(status, TRUNCATED, at)
                return row
            values = get64(ip + 8)
            if values != 0:
                byte = load8(at)
                if op == BOOL and byte != 0:
                    byte = 1
                put8(values + n, byte)
                valid = get64(ip + 16)
                if valid != 0:
                    put8(valid + n, 1)
            at += 1
            ip += INSTRUCTION_BYTES
        elif op == MARKER:
            if at >= end:
                fail(status, TRUNCATED, at)
                return row
            if load8(at) != get64(ip + 8):
                fail(status, get64(ip + 24), at)
                return row
            at += 1
            ip += INSTRUCTION_BYTES
        elif op == LIST:
            if end - at < 4:
                fail(status, TRUNCATED, at)
                return row
            count = load32(at)
            if count < 0 or count > (end - at - 4) // get64(ip + 32):
                fail(status, BAD_LENGTH, at)
                return row
            at += 4
            offsets = get64(ip + 8)
            first = 0
            if offsets != 0:
                first = get32(offsets + 4 * n)
                if first + count > get64(ip + 24):
                    if first + count > MAX_OFFSET:
                        fail(status, TOO_LARGE, at - 4)
                        return row
                    need_space(status, get64(ip + 56), first + count)
                    return row
                put32(offsets + 4 * n + 4, first + count)
                valid = get64(ip + 16)
                if valid != 0:
                    put8(valid + n, 1)
            loop = program + get64(ip + 40)
            if count == 0:
                ip = loop + INSTRUCTION_BYTES
            else:
                put64(loop + 8, count)
                put64(loop + 16, n)
                n = first
                ip += INSTRUCTION_BYTES
        elif op == LOOP:
            left = get64(ip + 8) - 1
            if left != 0:
                put64(ip + 8, left)
                n += 1
                ip = program + get64(ip + 24)
            else:
                n = get64(ip + 16)
                ip += INSTRUCTION_BYTES
        elif op == DELIMITED:
            offsets = get64(ip + 8)
            put64(program + get64(ip + 40) + 16, n)
            if offsets != 0:
                n = get32(offsets + 4 * n)
                if n >= get64(ip + 24):
                    need_space(status, get64(ip + 56), n + 1)
                    return row
            ip += INSTRUCTION_BYTES
        elif op == NEXT_DELIMITED:
            start = program + get64(ip + 24)
            offsets = get64(start + 8)
            n += 1
            if at < end:
                if load8(at) != LIST_DELIMITER:
                    fail(status, BAD_DELIMITER, at)
                    return row
                at += 1
                if offsets != 0 and n >= get64(start + 24):
                    if n >= MAX_OFFSET:
                        fail(status, TOO_LARGE, at)
                        return row
                    need_space(status, get64(start + 56), n + 1)
                    return row
                ip = program + get64(ip + 8)
            else:
                row = get64(ip + 16)
                if offsets != 0:
                    put32(offsets + 4 * row + 4, n)
                    valid = get64(start + 16)
                    if valid != 0:
                        put8(valid + row, 1)
                n = row
                ip += INSTRUCTION_BYTES
        elif op == NULL_FLAG or op == PRESENT_FLAG:
            if at >= end:
                fail(status, TRUNCATED, at)
                return row
            flag = load8(at)
            at += 1
            if (flag == 0) == (op == NULL_FLAG):
                ip = program + get64(ip + 8)
            else:
                padding = get64(ip + 24)
                if end - at < padding:
                    fail(status, TRUNCATED, at)
                    return row
                at += padding
                ip += INSTRUCTION_BYTES
        elif op == SKIP_REST:
            at = end
            ip += INSTRUCTION_BYTES
        elif op == JUMP:
            ip = program + get64(ip + 8)
        elif op == NULL_FIXED:
            put_null_fixed(ip, n)
            ip += INSTRUCTION_BYTES
        elif op == NULL_OFFSETS:
            put_null_offsets(ip, n)
            ip += INSTRUCTION_BYTES
        elif op == NULL_STRUCT or op == VALID:
            valid = get64(ip + 16)
            if valid != 0:
                put8(valid + n, 1 if op == VALID else 0)
            ip += INSTRUCTION_BYTES
        elif op == BYTES:
            at = read_bytes(ip, at, end, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == MARK:
            put64(program + get64(ip + 8) + 8, at)
            ip += INSTRUCTION_BYTES
        elif op == LENGTH_DIGITS:
            at = check_digits(at, end, at - get64(ip + 8), status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == POSITION:
            put64(get64(ip + 8) + 8 * n, at)
            ip += INSTRUCTION_BYTES
        elif op == REQUIRE:
            valid = get64(ip + 16)
            if valid != 0 and load8(valid + n) == 0:
                fail(status, NULL_KEY, at)
                return row
            ip += INSTRUCTION_BYTES
        else:
            fail(status, UNKNOWN_INSTRUCTION, ip)
            return row
