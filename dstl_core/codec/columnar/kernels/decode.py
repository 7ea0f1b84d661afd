"""Runs a compiled type over bytes and appends to columns.

Every read is checked against ``end``, and every write against the capacity of its column. If a
column is full, the kernel reports it; the caller enlarges the buffer and continues at the same
record. This loses nothing, because the row number alone determines where a record's values go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dstl_core.codec.columnar.kernels import instructions as ops
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import (
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
from dstl_core.codec.columnar.kernels.read import (
    check_digits,
    is_class,
    put_flag,
    put_null_fixed,
    put_null_offsets,
    read_bytes,
    read_pojo_flags,
    read_text,
    read_value,
)
from dstl_core.codec.columnar.kernels.sql import (
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
)
from dstl_core.codec.columnar.kernels.text import (
    fail,
    need_space,
)
from dstl_core.codec.columnar.kernels.values import (
    MAX_OFFSET,
)


def _make(full: bool) -> Any:
    """Builds the kernel. Unless ``full``, it omits all but the plain instructions: the compiler
    removes branches that a constant excludes.
    """

    @kernel
    def decode_rows(
        program: int, spans: int, stride: int, row: int, rows: int, readable: int, status: int
    ) -> int:
        """Reads the values whose start and end are at ``spans + stride * row``.

        Returns:
            The number of complete rows. If it is below ``rows``, ``status`` has the reason.
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
            following = ip + ops.INSTRUCTION_BYTES
            if op == ops.END:
                if at != end:
                    fail(status, ops.LEFT_OVER, at)
                    return row
                row += 1
                if row == rows:
                    return row
                n = row
                span += stride
                at = get64(span)
                end = get64(span + 8)
                following = program
            elif op == ops.TEXT:
                at = read_text(ip, at, end, n, readable, status)
                if at < 0:
                    return row
            elif op == ops.COPY8 or op == ops.FLIP8:
                if end - at < 8:
                    fail(status, ops.TRUNCATED, at)
                    return row
                values = get64(ip + 8)
                if values != 0:
                    put64(
                        values + 8 * n, load64(at) if op == ops.COPY8 else load64(at) ^ ops.SIGN_BIT
                    )
                    valid = get64(ip + 16)
                    if valid != 0:
                        put8(valid + n, 1)
                at += 8
            elif op == ops.COPY4:
                if end - at < 4:
                    fail(status, ops.TRUNCATED, at)
                    return row
                values = get64(ip + 8)
                if values != 0:
                    put32(values + 4 * n, load32(at))
                    valid = get64(ip + 16)
                    if valid != 0:
                        put8(valid + n, 1)
                at += 4
            elif op == ops.COPY2:
                if end - at < 2:
                    fail(status, ops.TRUNCATED, at)
                    return row
                values = get64(ip + 8)
                if values != 0:
                    put16(values + 2 * n, load16(at))
                    valid = get64(ip + 16)
                    if valid != 0:
                        put8(valid + n, 1)
                at += 2
            elif op == ops.COPY1 or op == ops.BOOL:
                if at >= end:
                    fail(status, ops.TRUNCATED, at)
                    return row
                values = get64(ip + 8)
                if values != 0:
                    byte = load8(at)
                    if op == ops.BOOL and byte != 0:
                        byte = 1
                    put8(values + n, byte)
                    valid = get64(ip + 16)
                    if valid != 0:
                        put8(valid + n, 1)
                at += 1
            elif op == ops.MARKER:
                if at >= end:
                    fail(status, ops.TRUNCATED, at)
                    return row
                expected = get64(ip + 8)
                if expected >= 0 and load8(at) != expected:
                    fail(status, ops.BAD_MARKER, at)
                    return row
                at += 1
            elif op == ops.LIST:
                if end - at < 4:
                    fail(status, ops.TRUNCATED, at)
                    return row
                count = load32(at)
                mask = get64(ip + 48)
                most = 8 * (end - at - 4) if mask != 0 else (end - at - 4) // get64(ip + 32)
                if count < 0 or count > most:
                    fail(status, ops.BAD_LENGTH, at)
                    return row
                at += 4
                if mask == ops.LIST_MASKED:
                    if end - at < (count + 7) // 8:
                        fail(status, ops.TRUNCATED, at)
                        return row
                    mask = at
                    at += (count + 7) // 8
                offsets = get64(ip + 8)
                first = 0
                if offsets != 0:
                    first = get32(offsets + 4 * n)
                    if first + count > get64(ip + 24):
                        if first + count > MAX_OFFSET:
                            fail(status, ops.TOO_LARGE, at - 4)
                            return row
                        need_space(status, get64(ip + 56), first + count)
                        return row
                    put32(offsets + 4 * n + 4, first + count)
                    valid = get64(ip + 16)
                    if valid != 0:
                        put8(valid + n, 1)
                loop = program + get64(ip + 40)
                if count == 0:
                    following = loop + ops.INSTRUCTION_BYTES
                else:
                    put64(loop + 8, count)
                    put64(loop + 16, n)
                    put64(loop + 32, mask)
                    put64(loop + 40, 0)
                    n = first
            elif op == ops.LOOP:
                left = get64(ip + 8) - 1
                if left != 0:
                    put64(ip + 8, left)
                    put64(ip + 40, get64(ip + 40) + 1)
                    n += 1
                    following = program + get64(ip + 24)
                else:
                    n = get64(ip + 16)
            elif op == ops.DELIMITED:
                offsets = get64(ip + 8)
                put64(program + get64(ip + 40) + 16, n)
                if offsets != 0:
                    n = get32(offsets + 4 * n)
                    if n >= get64(ip + 24):
                        need_space(status, get64(ip + 56), n + 1)
                        return row
            elif op == ops.NEXT_DELIMITED:
                start = program + get64(ip + 24)
                offsets = get64(start + 8)
                n += 1
                if at < end:
                    if load8(at) != ops.LIST_DELIMITER:
                        fail(status, ops.BAD_DELIMITER, at)
                        return row
                    at += 1
                    if offsets != 0 and n >= get64(start + 24):
                        if n >= MAX_OFFSET:
                            fail(status, ops.TOO_LARGE, at)
                            return row
                        need_space(status, get64(start + 56), n + 1)
                        return row
                    following = program + get64(ip + 8)
                else:
                    row = get64(ip + 16)
                    if offsets != 0:
                        put32(offsets + 4 * row + 4, n)
                        valid = get64(start + 16)
                        if valid != 0:
                            put8(valid + row, 1)
                    n = row
            elif op == ops.NULL_FLAG or op == ops.PRESENT_FLAG:
                if at >= end:
                    fail(status, ops.TRUNCATED, at)
                    return row
                flag = load8(at)
                at += 1
                if (flag == 0) == (op == ops.NULL_FLAG):
                    following = program + get64(ip + 8)
                else:
                    padding = get64(ip + 24)
                    if end - at < padding:
                        fail(status, ops.TRUNCATED, at)
                        return row
                    at += padding
            elif op == ops.SKIP_REST:
                at = end
            elif op == ops.JUMP:
                following = program + get64(ip + 8)
            elif op == ops.NULL_FIXED:
                put_null_fixed(ip, n)
            elif op == ops.NULL_OFFSETS:
                put_null_offsets(ip, n)
            elif op == ops.NULL_STRUCT or op == ops.VALID:
                valid = get64(ip + 16)
                if valid != 0:
                    put8(valid + n, 1 if op == ops.VALID else 0)
            elif op == ops.BYTES:
                at = read_bytes(ip, at, end, n, status)
                if at < 0:
                    return row
            elif op == ops.MARK:
                put64(program + get64(ip + 8) + 8, at)
            elif op == ops.LENGTH_DIGITS:
                at = check_digits(at, end, at - get64(ip + 8), status)
                if at < 0:
                    return row
            elif op == ops.POSITION:
                values = get64(ip + 8)
                if values != 0:
                    put64(values + 8 * n, at)
            elif op == ops.REQUIRE:
                valid = get64(ip + 16)
                if valid != 0 and load8(valid + n) == 0:
                    fail(status, ops.NULL_KEY, at)
                    return row
            elif op == ops.ZERO_IS_NULL:
                if end - at < 4:
                    fail(status, ops.TRUNCATED, at)
                    return row
                if load32(at) == 0:
                    at += 4
                else:
                    following = program + get64(ip + 8)
            elif op == ops.MASK:
                size = (get64(ip + 24) + 7) // 8
                if end - at < size:
                    fail(status, ops.TRUNCATED, at)
                    return row
                if get64(ip + 8) != 0:
                    bits = load8(at)
                    kind = bits >> 7 | bits >> 5 & 2
                    known = put_row_kind(get64(ip + 32), get64(ip + 40), kind, n)
                    if known == 0 and get64(ip + 16) != 0:
                        fail(status, ops.ROW_KIND, at)
                        return row
                put64(ip + 48, at)
                at += size
            elif op == ops.MASK_FIELD:
                mask = program + get64(ip + 24)
                bit = get64(ip + 32)
                if bit < 0:
                    bit = get64(mask + 40)
                    start = get64(mask + 32)
                else:
                    start = get64(mask + 48)
                if load8(start + (bit >> 3)) >> (7 - (bit & 7)) & 1 == 0:
                    following = program + get64(ip + 8)
            elif op == ops.EITHER:
                if at >= end:
                    fail(status, ops.TRUNCATED, at)
                    return row
                flag = load8(at)
                if get64(ip + 40) == 1:
                    if flag != 1 and flag != 2:
                        fail(status, ops.BAD_VALUE, at)
                        return row
                    flag = 2 - flag
                at += 1
                put_flag(get64(ip + 8), get64(ip + 16), n, 1 if flag != 0 else 0)
                if flag != 0:
                    following = program + get64(ip + 24)
            elif full:
                if op == ops.POJO:
                    at = read_pojo_flags(program, ip, at, end, status)
                    if at < 0:
                        return row
                    meaning = get64(status + 32)
                    if meaning == 1:
                        following = program + get64(ip + 8)
                    elif meaning != 0:
                        following = program + get64(ip + 24)
                elif op == ops.CONSTANT4:
                    values = get64(ip + 8)
                    if values != 0:
                        put32(values + 4 * n, get64(ip + 40))
                        valid = get64(ip + 16)
                        if valid != 0:
                            put8(valid + n, 1)
                elif op == ops.TAG_IS:
                    if get64(program + get64(ip + 24) + 40) == get64(ip + 32):
                        following = program + get64(ip + 8)
                elif op == ops.CLASS_IS:
                    if is_class(program + get64(ip + 24), get64(ip + 40), get64(ip + 32)):
                        following = program + get64(ip + 8)
                elif op == ops.REFUSE:
                    fail(status, get64(ip + 24), at)
                    return row
                elif op == ops.REGION:
                    at = enter_region(program, ip, at, end, status)
                    if at < 0:
                        return row
                elif op == ops.REGION_END:
                    pass
                elif op == ops.SQL_ROW:
                    if enter_row(program, ip, n, status) < 0:
                        return row
                elif op == ops.SQL_ARRAY:
                    count = enter_array(program, ip, status)
                    if count < 0:
                        return row
                    offsets = get64(ip + 8)
                    first = 0
                    frame = program + get64(ip + 48)
                    if get64(ip + 24) < 0:
                        # The values of a map are in the same rows as its keys.
                        keys = program + offsets
                        if count != get64(keys + ITEMS):
                            fail(status, ops.BAD_MEMORY, get64(frame + OUTERMOST))
                            return row
                        first = get64(keys + FIRST_ROW)
                    elif offsets != 0:
                        first = get32(offsets + 4 * n)
                        if first + count > get64(ip + 24):
                            if first + count > MAX_OFFSET:
                                fail(status, ops.TOO_LARGE, get64(frame + OUTERMOST))
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
                        following = loop + ops.INSTRUCTION_BYTES
                    else:
                        put64(loop + 8, count)
                        put64(loop + 16, n)
                        n = first
                elif op == ops.NEXT_SLOT:
                    left = get64(ip + 8) - 1
                    if left != 0:
                        put64(ip + 8, left)
                        n += 1
                        frame = program + get64(ip + 40)
                        put64(frame + SLOTS, get64(frame + SLOTS) + get64(ip + 32))
                        put64(frame + FIRST_BIT, get64(frame + FIRST_BIT) + 1)
                        following = program + get64(ip + 24)
                    else:
                        n = get64(ip + 16)
                elif op == ops.SLOT_NULL:
                    if not is_slot_null(program + get64(ip + 24), get64(ip + 32)):
                        following = program + get64(ip + 8)
                elif op == ops.SLOT:
                    read_slot(program, ip, n)
                else:
                    at = read_value(op, program, ip, at, end, n, status)
                    if at < 0:
                        return row
            else:
                fail(status, ops.UNKNOWN_INSTRUCTION, at)
                return row
            ip = following

    return decode_rows


_PLAIN, _FULL = _make(False), _make(True)


def decoder_of(operations: Iterable[int]) -> Any:
    """The kernel for programs of these instructions; compiled at its first call."""
    return _PLAIN if ops.PLAIN.issuperset(operations) else _FULL
