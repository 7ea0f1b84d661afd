"""Runs a compiled type over bytes and appends to columns.

Every read is checked against ``end`` and every write against the capacity of its column before it
is made; what does not fit is reported and nothing is lost: the caller grows a buffer and goes on at
the same record, because everything that a record appends is found by its row alone.
"""

from __future__ import annotations

from dstl_core.codec.columnar.hash_kernel import equal_bytes
from dstl_core.codec.columnar.instructions import (
    BAD_DELIMITER,
    BAD_DIGITS,
    BAD_LENGTH,
    BAD_MARKER,
    BAD_MEMORY,
    BAD_VALUE,
    BIG_INT,
    BOOL,
    BYTES,
    BYTES_COUNTED,
    BYTES_COUNTED_TEXT,
    BYTES_REST,
    CLASS_IS,
    CONSTANT4,
    COPY1,
    COPY2,
    COPY4,
    COPY8,
    DECIMAL,
    DELIMITED,
    EITHER,
    END,
    ENDLESS_NUMBER,
    FLIP8,
    INDEX4,
    INSTRUCTION_BYTES,
    JUMP,
    LEFT_OVER,
    LENGTH_DIGITS,
    LIST,
    LIST_MASKED,
    LOCAL_DATE,
    LOCAL_TIME,
    LOOP,
    MARK,
    MARKER,
    MASK,
    MASK_FIELD,
    NEXT_DELIMITED,
    NEXT_SLOT,
    NO_UTF8,
    NOT_A_COLUMN,
    NULL_FIXED,
    NULL_FLAG,
    NULL_KEY,
    NULL_OFFSETS,
    NULL_STRUCT,
    POJO,
    POSITION,
    PRESENT_FLAG,
    REFUSE,
    REGION,
    REGION_END,
    REQUIRE,
    ROW_KIND,
    SIZES,
    SKIP_REST,
    SLOT,
    SLOT_BYTES,
    SLOT_DECIMAL,
    SLOT_NULL,
    SLOT_TIMESTAMP,
    SQL_ARRAY,
    SQL_ROW,
    STREAM_TAG,
    TAG_IS,
    TEXT,
    TEXT_UTF16,
    TEXT_WITHOUT_NULL,
    TIMESTAMP,
    TOO_LARGE,
    TRUNCATED,
    UNKNOWN_INSTRUCTION,
    VALID,
    ZERO_IS_NULL,
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
from dstl_core.codec.columnar.sql_kernel import (
    FIRST_BIT,
    FIRST_ROW,
    ITEMS,
    OUTERMOST,
    SLOTS,
    enter_array,
    enter_region,
    enter_row,
    is_slot_null,
    put_row_kind,
    read_slot,
    read_slot_bytes,
    read_slot_decimal,
    read_slot_timestamp,
)
from dstl_core.codec.columnar.text_kernel import (
    copy_if_ascii,
    fail,
    is_utf8,
    need_space,
    skip_if_ascii,
    skip_units,
    units_to_utf8,
    units_to_utf16,
)
from dstl_core.codec.columnar.value_kernel import (
    MAX_OFFSET,
    read_big_int,
    read_decimal,
    read_local_date,
    read_local_time,
    read_timestamp,
)

SIGN_BIT = -0x8000000000000000
LIST_DELIMITER = 0x2C


@kernel
def read_varint(at: int, end: int, status: int) -> int:
    """The position after a varint of at most 5 bytes, or -1; it goes to status word 4."""
    value = 0
    for i in range(5):
        if at + i >= end:
            return fail(status, TRUNCATED, at + i)
        byte = load8(at + i)
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            put64(status + 32, value)
            return at + i + 1
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
        at = read_varint(start, end, status)
        if at < 0:
            return -1
        size = get64(status + 32)
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
    """Bytes into a column; the new position."""
    how = get64(ip + 40)
    start = at
    if how == BYTES_REST:
        size = end - at
    elif how == BYTES_COUNTED or how == BYTES_COUNTED_TEXT:
        if end - at < 4:
            return fail(status, TRUNCATED, at)
        size = load32(at)
        if size < 0 or size > end - at - 4:
            return fail(status, BAD_LENGTH, at)
        start = at + 4
    else:
        size = get64(ip + 48)
        if size > end - at:
            return fail(status, TRUNCATED, at)
    offsets = get64(ip + 8)
    if offsets != 0:
        if how == BYTES_COUNTED_TEXT and not is_utf8(start, size):
            return fail(status, NO_UTF8, at)
        offset = get32(offsets + 4 * n)
        if offset + size > get64(ip + 32):
            if offset + size > MAX_OFFSET:
                return fail(status, TOO_LARGE, at)
            return need_space(status, get64(ip + 56), offset + size)
        copy(get64(ip + 24) + offset, start, size)
        put32(offsets + 4 * n + 4, offset + size)
        valid = get64(ip + 16)
        if valid != 0:
            put8(valid + n, 1)
    return start + size


@kernel
def read_pojo_flags(program: int, ip: int, at: int, end: int, status: int) -> int:
    """The position after the flags, or -1. Status word 4 says what they mean: 0 null, 1 the class
    itself, 2 a subclass.
    """
    if at >= end:
        return fail(status, TRUNCATED, at)
    flags = load8(at)
    put64(status + 32, 2)
    if flags & 1 != 0:
        put64(status + 32, 0)
        return at + 1
    if flags & 4 != 0:
        if end - at < 3:
            return fail(status, TRUNCATED, at + 1)
        size = load16(at + 1)
        if end - at - 3 < size:
            return fail(status, TRUNCATED, at + 3)
        put64(ip + 40, -1)
        put64(ip + 48, at + 3)
        return at + 3 + size
    if flags & 8 != 0:
        if end - at < 2:
            return fail(status, TRUNCATED, at + 1)
        tag = load8(at + 1)
        if tag >= get64(ip + 32):
            return fail(status, BAD_VALUE, at)
        put64(ip + 40, tag)
        put64(ip + 48, 0)
        return at + 2
    if flags & 2 == 0:
        return fail(status, BAD_VALUE, at)
    put64(status + 32, 1)
    return at + 1


@kernel
def is_class(pojo: int, name: int, size: int) -> bool:
    """Whether the class name that was read is this one."""
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
            expected = get64(ip + 8)
            if expected >= 0 and load8(at) != expected:
                fail(status, BAD_MARKER, at)
                return row
            at += 1
            ip += INSTRUCTION_BYTES
        elif op == LIST:
            if end - at < 4:
                fail(status, TRUNCATED, at)
                return row
            count = load32(at)
            mask = get64(ip + 48)
            most = 8 * (end - at - 4) if mask != 0 else (end - at - 4) // get64(ip + 32)
            if count < 0 or count > most:
                fail(status, BAD_LENGTH, at)
                return row
            at += 4
            if mask == LIST_MASKED:
                if end - at < (count + 7) // 8:
                    fail(status, TRUNCATED, at)
                    return row
                mask = at
                at += (count + 7) // 8
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
                put64(loop + 32, mask)
                put64(loop + 40, 0)
                n = first
                ip += INSTRUCTION_BYTES
        elif op == LOOP:
            left = get64(ip + 8) - 1
            if left != 0:
                put64(ip + 8, left)
                put64(ip + 40, get64(ip + 40) + 1)
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
            values = get64(ip + 8)
            if values != 0:
                put64(values + 8 * n, at)
            ip += INSTRUCTION_BYTES
        elif op == REQUIRE:
            valid = get64(ip + 16)
            if valid != 0 and load8(valid + n) == 0:
                fail(status, NULL_KEY, at)
                return row
            ip += INSTRUCTION_BYTES
        elif op == TIMESTAMP:
            at = read_timestamp(ip, at, end, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == BIG_INT:
            at = read_big_int(ip, at, end, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == DECIMAL:
            at = read_decimal(ip, at, end, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == LOCAL_DATE:
            at = read_local_date(ip, at, end, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == LOCAL_TIME:
            at = read_local_time(ip, at, end, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == ZERO_IS_NULL:
            if end - at < 4:
                fail(status, TRUNCATED, at)
                return row
            if load32(at) == 0:
                at += 4
                ip += INSTRUCTION_BYTES
            else:
                ip = program + get64(ip + 8)
        elif op == INDEX4:
            if end - at < 4:
                fail(status, TRUNCATED, at)
                return row
            index = load32(at)
            if index < 0 or index >= get64(ip + 40):
                fail(status, BAD_VALUE, at)
                return row
            values = get64(ip + 8)
            if values != 0:
                put32(values + 4 * n, index)
                valid = get64(ip + 16)
                if valid != 0:
                    put8(valid + n, 1)
            at += 4
            ip += INSTRUCTION_BYTES
        elif op == MASK:
            size = (get64(ip + 24) + 7) // 8
            if end - at < size:
                fail(status, TRUNCATED, at)
                return row
            if get64(ip + 8) != 0:
                bits = load8(at)
                kind = bits >> 7 | bits >> 5 & 2
                known = put_row_kind(get64(ip + 32), get64(ip + 40), kind, n)
                if known == 0 and get64(ip + 16) != 0:
                    fail(status, ROW_KIND, at)
                    return row
            put64(ip + 48, at)
            at += size
            ip += INSTRUCTION_BYTES
        elif op == MASK_FIELD:
            mask = program + get64(ip + 24)
            bit = get64(ip + 32)
            if bit < 0:
                bit = get64(mask + 40)
                start = get64(mask + 32)
            else:
                start = get64(mask + 48)
            if load8(start + (bit >> 3)) >> (7 - (bit & 7)) & 1 != 0:
                ip += INSTRUCTION_BYTES
            else:
                ip = program + get64(ip + 8)
        elif op == EITHER:
            if at >= end:
                fail(status, TRUNCATED, at)
                return row
            flag = load8(at)
            if get64(ip + 40) == 1:
                if flag != 1 and flag != 2:
                    fail(status, BAD_VALUE, at)
                    return row
                flag = 2 - flag
            at += 1
            put_flag(get64(ip + 8), get64(ip + 16), n, 1 if flag != 0 else 0)
            if flag != 0:
                ip = program + get64(ip + 24)
            else:
                ip += INSTRUCTION_BYTES
        elif op == POJO:
            at = read_pojo_flags(program, ip, at, end, status)
            if at < 0:
                return row
            meaning = get64(status + 32)
            if meaning == 0:
                ip += INSTRUCTION_BYTES
            elif meaning == 1:
                ip = program + get64(ip + 8)
            else:
                ip = program + get64(ip + 24)
        elif op == CONSTANT4:
            values = get64(ip + 8)
            if values != 0:
                put32(values + 4 * n, get64(ip + 40))
                valid = get64(ip + 16)
                if valid != 0:
                    put8(valid + n, 1)
            ip += INSTRUCTION_BYTES
        elif op == TAG_IS:
            if get64(program + get64(ip + 24) + 40) == get64(ip + 32):
                ip = program + get64(ip + 8)
            else:
                ip += INSTRUCTION_BYTES
        elif op == CLASS_IS:
            if is_class(program + get64(ip + 24), get64(ip + 40), get64(ip + 32)):
                ip = program + get64(ip + 8)
            else:
                ip += INSTRUCTION_BYTES
        elif op == REFUSE:
            fail(status, get64(ip + 24), at)
            return row
        elif op == STREAM_TAG:
            if at >= end:
                fail(status, TRUNCATED, at)
                return row
            tag = load8(at)
            if tag > 6:
                fail(status, BAD_VALUE, at)
                return row
            if tag > 1:
                fail(status, NOT_A_COLUMN, at)
                return row
            at += 1
            values = get64(ip + 8)
            if tag == 0:
                if end - at < 8:
                    fail(status, TRUNCATED, at)
                    return row
                if values != 0:
                    put64(values + 8 * n, load64(at))
                    put8(get64(ip + 16) + n, 1)
                at += 8
            else:
                put_null_fixed(ip, n)
            ip += INSTRUCTION_BYTES
        elif op == SIZES:
            if end - at < 4:
                fail(status, TRUNCATED, at)
                return row
            size = load32(at)
            if size < 0 or size > end - at - 4:
                fail(status, BAD_LENGTH, at)
                return row
            put64(program + get64(ip + 24) + 48, size)
            at += 4
            if end - at < 4:
                fail(status, TRUNCATED, at)
                return row
            size = load32(at)
            if size < 0 or size > end - at - 4:
                fail(status, BAD_LENGTH, at)
                return row
            put64(program + get64(ip + 32) + 48, size)
            at += 4
            ip += INSTRUCTION_BYTES
        elif op == REGION:
            at = enter_region(program, ip, at, end, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == REGION_END:
            ip += INSTRUCTION_BYTES
        elif op == SQL_ROW:
            if enter_row(program, ip, n, status) < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == SQL_ARRAY:
            count = enter_array(program, ip, status)
            if count < 0:
                return row
            offsets = get64(ip + 8)
            first = 0
            frame = program + get64(ip + 48)
            if get64(ip + 24) < 0:
                # The values of a map stand in the rows of its keys.
                keys = program + offsets
                if count != get64(keys + ITEMS):
                    fail(status, BAD_MEMORY, get64(frame + OUTERMOST))
                    return row
                first = get64(keys + FIRST_ROW)
            elif offsets != 0:
                first = get32(offsets + 4 * n)
                if first + count > get64(ip + 24):
                    if first + count > MAX_OFFSET:
                        fail(status, TOO_LARGE, get64(frame + OUTERMOST))
                        return row
                    need_space(status, get64(ip + 56), first + count)
                    return row
                put32(offsets + 4 * n + 4, first + count)
                valid = get64(ip + 16)
                if valid != 0:
                    put8(valid + n, 1)
            put64(frame + FIRST_ROW, first)
            loop = program + get64(ip + 40)
            if count == 0:
                ip = loop + INSTRUCTION_BYTES
            else:
                put64(loop + 8, count)
                put64(loop + 16, n)
                n = first
                ip += INSTRUCTION_BYTES
        elif op == NEXT_SLOT:
            left = get64(ip + 8) - 1
            if left != 0:
                put64(ip + 8, left)
                n += 1
                frame = program + get64(ip + 40)
                put64(frame + SLOTS, get64(frame + SLOTS) + get64(ip + 32))
                put64(frame + FIRST_BIT, get64(frame + FIRST_BIT) + 1)
                ip = program + get64(ip + 24)
            else:
                n = get64(ip + 16)
                ip += INSTRUCTION_BYTES
        elif op == SLOT_NULL:
            if is_slot_null(program + get64(ip + 24), get64(ip + 32)):
                ip += INSTRUCTION_BYTES
            else:
                ip = program + get64(ip + 8)
        elif op == SLOT:
            read_slot(program, ip, n)
            ip += INSTRUCTION_BYTES
        elif op == SLOT_BYTES:
            if read_slot_bytes(program, ip, n, status) < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == SLOT_DECIMAL:
            if read_slot_decimal(program, ip, n, status) < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == SLOT_TIMESTAMP:
            if read_slot_timestamp(program, ip, n, status) < 0:
                return row
            ip += INSTRUCTION_BYTES
        else:
            fail(status, UNKNOWN_INSTRUCTION, ip)
            return row
