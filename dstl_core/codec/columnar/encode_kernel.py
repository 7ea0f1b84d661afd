"""Runs a compiled type over columns and writes bytes: the other direction of ``decode_kernel``.

Every write is checked against the room that is left before it is made. If there is too little, the
kernel reports how much it needs and nothing is lost: the caller gives more and goes on at the same
row. Columns are read by row number alone; that their offsets are in order was checked before.
"""

from __future__ import annotations

from dstl_core.codec.columnar.instructions import (
    BAD_ROW_KIND,
    BAD_VALUE,
    BIG_INT,
    BOOL,
    BYTES,
    CLASS_IS,
    CONSTANT4,
    COPY2,
    COPY4,
    COPY8,
    DECIMAL,
    DELIMITED,
    EITHER,
    EMPTY_LIST,
    END,
    FLIP8,
    INDEX4,
    INSTRUCTION_BYTES,
    JUMP,
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
    NULL_FIXED,
    NULL_FLAG,
    NULL_OFFSETS,
    NULL_STRUCT,
    NULL_VALUE,
    POJO,
    POSITION,
    PRESENT_FLAG,
    REFUSE,
    REGION,
    REGION_END,
    REQUIRE,
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
    TIMESTAMP,
    UNKNOWN_INSTRUCTION,
    VALID,
    ZERO_IS_NULL,
)
from dstl_core.codec.columnar.jit import kernel
from dstl_core.codec.columnar.memory import (
    copy,
    get16,
    get32,
    get64,
    load8,
    put8,
    put64,
    store16,
    store32,
    store64,
)
from dstl_core.codec.columnar.sql_kernel import FIRST_BIT, FIRST_ROW, ITEMS, SLOTS
from dstl_core.codec.columnar.text_kernel import fail
from dstl_core.codec.columnar.write_kernel import (
    is_null,
    no_room,
    put_zeros,
    write_big_int,
    write_bytes,
    write_decimal,
    write_list_size,
    write_local_date,
    write_local_time,
    write_text,
    write_timestamp,
)
from dstl_core.codec.columnar.write_sql_kernel import (
    begin_array,
    begin_region,
    begin_row,
    end_region,
    set_slot_null,
    write_slot,
    write_slot_bytes,
    write_slot_decimal,
    write_slot_timestamp,
)

SIGN_BIT = -0x8000000000000000
LIST_DELIMITER = 0x2C
POJO_NULL, POJO_ITSELF, POJO_SUBCLASS, POJO_TAGGED = 1, 2, 4, 8


@kernel
def write_digits(at: int, limit: int, size: int, status: int) -> int:
    """The digits of ``size``, lowest first, at least one; the position after them."""
    if no_room(at, limit, 8, status):
        return -1
    put8(at, size & 0xFF)
    at += 1
    size >>= 8
    while size != 0:
        put8(at, size & 0xFF)
        at += 1
        size >>= 8
    return at


@kernel
def write_mask(ip: int, at: int, limit: int, n: int, status: int) -> int:
    """A mask without nulls, with the row's kind in front if the type has it."""
    size = (get64(ip + 24) + 7) // 8
    if no_room(at, limit, size, status):
        return -1
    put_zeros(at, size)
    kinds = get64(ip + 32)
    if get64(ip + 8) != 0 and kinds != 0:
        kind = load8(kinds + n)
        if kind > 3:
            return fail(status, BAD_ROW_KIND, 0)
        put8(at, (kind & 1) << 7 | (kind & 2) << 5)
    put64(ip + 48, at)
    return at + size


@kernel
def mark_null(program: int, ip: int) -> None:
    """Sets the bit of a MASK_FIELD."""
    mask = program + get64(ip + 24)
    bit = get64(ip + 32)
    if bit < 0:
        bit = get64(mask + 40)
        start = get64(mask + 32)
    else:
        start = get64(mask + 48)
    at = start + (bit >> 3)
    put8(at, load8(at) | 0x80 >> (bit & 7))


@kernel
def class_number(pojo: int, n: int) -> int:
    numbers = get64(pojo + 48)
    return 0 if numbers == 0 else get32(numbers + 4 * n)


@kernel
def write_pojo_flags(ip: int, at: int, limit: int, n: int, status: int) -> int:
    """Status word 4 says what was written: 0 null, 1 the class itself, 2 a subclass."""
    if no_room(at, limit, 2, status):
        return -1
    if is_null(get64(ip + 16), n):
        put8(at, POJO_NULL)
        put64(status + 32, 0)
        return at + 1
    number = class_number(ip, n)
    if number == 0:
        put8(at, POJO_ITSELF)
        put64(status + 32, 1)
        return at + 1
    put64(status + 32, 2)
    if number <= get64(ip + 32):
        put8(at, POJO_TAGGED)
        put8(at + 1, number - 1)
        put64(ip + 40, number - 1)
        return at + 2
    put8(at, POJO_SUBCLASS)
    put64(ip + 40, -1)
    return at + 1


@kernel
def write_class_name(ip: int, at: int, limit: int, status: int) -> int:
    size = get64(ip + 32)
    if no_room(at, limit, 2 + size, status):
        return -1
    store16(at, size)
    copy(at + 2, get64(ip + 40), size)
    return at + 2 + size


@kernel
def write_sizes(program: int, ip: int, at: int, limit: int, n: int, status: int) -> int:
    if no_room(at, limit, 8, status):
        return -1
    for word in range(3, 5):
        offsets = get64(program + get64(ip + 8 * word) + 8)
        store32(at, get32(offsets + 4 * n + 4) - get32(offsets + 4 * n))
        at += 4
    return at


@kernel
def encode_rows(
    program: int, row: int, rows: int, out: int, limit: int, ends: int, status: int
) -> int:
    """Writes rows from ``row`` on; the number of rows that are complete, which is ``rows`` unless
    the status says why not.

    Args:
        program: Address of the bound program.
        row: The first row; its bytes go to ``out``.
        rows: Where to stop.
        out: Address of the output.
        limit: Where the output ends.
        ends: Gets the address where each row ends, as int64.
        status: What a refusal was.
    """
    if row == rows:
        return row
    ip = program
    n = row
    at = out
    while True:
        op = get64(ip)
        if op == END:
            put64(ends + 8 * row, at)
            row += 1
            if row == rows:
                return row
            n = row
            ip = program
        elif op == TEXT:
            at = write_text(ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op <= BOOL:
            # COPY8, COPY4, COPY2, COPY1, BOOL
            if is_null(get64(ip + 16), n):
                fail(status, NULL_VALUE, 0)
                return row
            if no_room(at, limit, 8, status):
                return row
            values = get64(ip + 8)
            if op == COPY8:
                store64(at, get64(values + 8 * n))
                at += 8
            elif op == COPY4:
                store32(at, get32(values + 4 * n))
                at += 4
            elif op == COPY2:
                store16(at, get16(values + 2 * n))
                at += 2
            else:
                put8(at, load8(values + n))
                at += 1
            ip += INSTRUCTION_BYTES
        elif op == FLIP8:
            if is_null(get64(ip + 16), n):
                fail(status, NULL_VALUE, 0)
                return row
            if no_room(at, limit, 8, status):
                return row
            store64(at, get64(get64(ip + 8) + 8 * n) ^ SIGN_BIT)
            at += 8
            ip += INSTRUCTION_BYTES
        elif op == MARKER:
            if no_room(at, limit, 1, status):
                return row
            put8(at, max(0, get64(ip + 8)))
            at += 1
            ip += INSTRUCTION_BYTES
        elif op == LIST:
            if is_null(get64(ip + 16), n):
                fail(status, NULL_VALUE, 0)
                return row
            offsets = get64(ip + 8)
            first = get32(offsets + 4 * n)
            count = get32(offsets + 4 * n + 4) - first
            masked = get64(ip + 48) == LIST_MASKED
            mask = at + 4
            at = write_list_size(at, limit, count, masked, status)
            if at < 0:
                return row
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
            loop = program + get64(ip + 40)
            first = get32(offsets + 4 * n)
            end = get32(offsets + 4 * n + 4)
            if is_null(get64(ip + 16), n) or first == end:
                fail(status, EMPTY_LIST, 0)
                return row
            put64(loop + 16, n)
            put64(loop + 32, end)
            n = first
            ip += INSTRUCTION_BYTES
        elif op == NEXT_DELIMITED:
            n += 1
            if n < get64(ip + 32):
                if no_room(at, limit, 1, status):
                    return row
                put8(at, LIST_DELIMITER)
                at += 1
                ip = program + get64(ip + 8)
            else:
                n = get64(ip + 16)
                ip += INSTRUCTION_BYTES
        elif op == NULL_FLAG or op == PRESENT_FLAG:
            null = is_null(get64(ip + 16), n)
            padding = get64(ip + 24)
            if no_room(at, limit, 1 + padding, status):
                return row
            put8(at, 1 if null == (op == NULL_FLAG) else 0)
            at += 1
            if null:
                put_zeros(at, padding)
                at += padding
                ip += INSTRUCTION_BYTES
            else:
                ip = program + get64(ip + 8)
        elif op == JUMP:
            ip = program + get64(ip + 8)
        elif op == VALID:
            if is_null(get64(ip + 16), n):
                fail(status, NULL_VALUE, 0)
                return row
            ip += INSTRUCTION_BYTES
        elif (
            op == NULL_FIXED
            or op == NULL_OFFSETS
            or op == NULL_STRUCT
            or op == SKIP_REST
            or op == REQUIRE
            or op == POSITION
            or op == CONSTANT4
        ):
            # Says only something about columns that are filled.
            ip += INSTRUCTION_BYTES
        elif op == BYTES:
            at = write_bytes(ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == MARK:
            put64(program + get64(ip + 8) + 8, at)
            ip += INSTRUCTION_BYTES
        elif op == LENGTH_DIGITS:
            at = write_digits(at, limit, at - get64(ip + 8), status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == TIMESTAMP:
            at = write_timestamp(ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == BIG_INT:
            at = write_big_int(ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == DECIMAL:
            at = write_decimal(ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == LOCAL_DATE:
            at = write_local_date(ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == LOCAL_TIME:
            at = write_local_time(ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == ZERO_IS_NULL:
            if is_null(get64(ip + 16), n):
                if no_room(at, limit, 4, status):
                    return row
                store32(at, 0)
                at += 4
                ip += INSTRUCTION_BYTES
            else:
                ip = program + get64(ip + 8)
        elif op == INDEX4:
            index = get32(get64(ip + 8) + 4 * n)
            if is_null(get64(ip + 16), n):
                fail(status, NULL_VALUE, 0)
                return row
            if index < 0 or index >= get64(ip + 40):
                fail(status, BAD_VALUE, 0)
                return row
            if no_room(at, limit, 4, status):
                return row
            store32(at, index)
            at += 4
            ip += INSTRUCTION_BYTES
        elif op == MASK:
            at = write_mask(ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == MASK_FIELD:
            if is_null(get64(ip + 16), n):
                mark_null(program, ip)
                ip += INSTRUCTION_BYTES
            else:
                ip = program + get64(ip + 8)
        elif op == EITHER:
            if is_null(get64(ip + 16), n):
                fail(status, NULL_VALUE, 0)
                return row
            if no_room(at, limit, 1, status):
                return row
            left = load8(get64(ip + 8) + n)
            put8(at, 2 - left if get64(ip + 40) == 1 else left)
            at += 1
            if left != 0:
                ip = program + get64(ip + 24)
            else:
                ip += INSTRUCTION_BYTES
        elif op == POJO:
            at = write_pojo_flags(ip, at, limit, n, status)
            if at < 0:
                return row
            meaning = get64(status + 32)
            if meaning == 0:
                ip += INSTRUCTION_BYTES
            elif meaning == 1:
                ip = program + get64(ip + 8)
            else:
                ip = program + get64(ip + 24)
        elif op == TAG_IS:
            if get64(program + get64(ip + 24) + 40) == get64(ip + 32):
                ip = program + get64(ip + 8)
            else:
                ip += INSTRUCTION_BYTES
        elif op == CLASS_IS:
            if class_number(program + get64(ip + 24), n) == get64(ip + 48):
                at = write_class_name(ip, at, limit, status)
                if at < 0:
                    return row
                ip = program + get64(ip + 8)
            else:
                ip += INSTRUCTION_BYTES
        elif op == REFUSE:
            fail(status, get64(ip + 24), 0)
            return row
        elif op == STREAM_TAG:
            if no_room(at, limit, 9, status):
                return row
            if is_null(get64(ip + 16), n):
                put8(at, 1)
                at += 1
            else:
                put8(at, 0)
                store64(at + 1, get64(get64(ip + 8) + 8 * n))
                at += 9
            ip += INSTRUCTION_BYTES
        elif op == SIZES:
            at = write_sizes(program, ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == REGION:
            at = begin_region(program, ip, at, limit, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == REGION_END:
            at = end_region(program, ip, at, limit, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == SQL_ROW:
            at = begin_row(program, ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == SQL_ARRAY:
            if get64(ip + 24) < 0:
                # The values of a map stand in the rows of its keys.
                keys = program + get64(ip + 8)
                first = get64(keys + FIRST_ROW)
                count = get64(keys + ITEMS)
            else:
                offsets = get64(ip + 8)
                first = get32(offsets + 4 * n)
                count = get32(offsets + 4 * n + 4) - first
            at = begin_array(program, ip, at, limit, first, count, status)
            if at < 0:
                return row
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
            if is_null(get64(ip + 16), n):
                set_slot_null(program + get64(ip + 24), get64(ip + 32))
                ip += INSTRUCTION_BYTES
            else:
                ip = program + get64(ip + 8)
        elif op == SLOT:
            write_slot(program, ip, n)
            ip += INSTRUCTION_BYTES
        elif op == SLOT_BYTES:
            at = write_slot_bytes(program, ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == SLOT_DECIMAL:
            at = write_slot_decimal(program, ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        elif op == SLOT_TIMESTAMP:
            at = write_slot_timestamp(program, ip, at, limit, n, status)
            if at < 0:
                return row
            ip += INSTRUCTION_BYTES
        else:
            fail(status, UNKNOWN_INSTRUCTION, ip)
            return row
