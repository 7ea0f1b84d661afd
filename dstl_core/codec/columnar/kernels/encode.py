"""Runs a compiled type over columns and writes bytes: the inverse of ``kernels.decode``.

Every write is checked against the remaining room. If there is too little, the kernel reports how
much it needs; the caller provides it and continues at the same row. Columns are read by row number
alone; the order of their offsets was checked before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dstl_core.codec.columnar.kernels import instructions as ops
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import (
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
from dstl_core.codec.columnar.kernels.sql import FIRST_BIT, FIRST_ROW, ITEMS, SLOTS
from dstl_core.codec.columnar.kernels.text import fail
from dstl_core.codec.columnar.kernels.write import (
    is_null,
    no_room,
    put_zeros,
    write_bytes,
    write_list_size,
    write_text,
    write_value,
)
from dstl_core.codec.columnar.kernels.write_parts import (
    class_number,
    mark_null,
    write_class_name,
    write_digits,
    write_mask,
    write_pojo_flags,
    write_sizes,
)
from dstl_core.codec.columnar.kernels.write_sql import (
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


def _make(full: bool) -> Any:
    """Builds the kernel. Unless ``full``, it omits all but the plain instructions: the compiler
    removes branches that a constant excludes.
    """

    @kernel
    def encode_rows(
        program: int, row: int, rows: int, out: int, limit: int, ends: int, status: int
    ) -> int:
        """Writes rows, starting at ``row``.

        Args:
            program: Address of the bound program.
            row: First row; its bytes go to ``out``.
            rows: End of the rows.
            out: Address of the output.
            limit: End address of the output.
            ends: Receives the end address of each row, as int64.
            status: Receives the reason if a row is refused.

        Returns:
            The number of complete rows. If it is below ``rows``, ``status`` has the reason.
        """
        if row == rows:
            return row
        ip = program
        n = row
        at = out
        while True:
            op = get64(ip)
            following = ip + ops.INSTRUCTION_BYTES
            if op == ops.END:
                put64(ends + 8 * row, at)
                row += 1
                if row == rows:
                    return row
                n = row
                following = program
            elif op == ops.TEXT:
                at = write_text(ip, at, limit, n, status)
                if at < 0:
                    return row
            elif op <= ops.BOOL:
                # ops.COPY8, ops.COPY4, ops.COPY2, COPY1, ops.BOOL
                if is_null(get64(ip + 16), n):
                    fail(status, ops.NULL_VALUE, 0)
                    return row
                if no_room(at, limit, 8, status):
                    return row
                values = get64(ip + 8)
                if op == ops.COPY8:
                    store64(at, get64(values + 8 * n))
                    at += 8
                elif op == ops.COPY4:
                    store32(at, get32(values + 4 * n))
                    at += 4
                elif op == ops.COPY2:
                    store16(at, get16(values + 2 * n))
                    at += 2
                else:
                    put8(at, load8(values + n))
                    at += 1
            elif op == ops.FLIP8:
                if is_null(get64(ip + 16), n):
                    fail(status, ops.NULL_VALUE, 0)
                    return row
                if no_room(at, limit, 8, status):
                    return row
                store64(at, get64(get64(ip + 8) + 8 * n) ^ ops.SIGN_BIT)
                at += 8
            elif op == ops.MARKER:
                if no_room(at, limit, 1, status):
                    return row
                put8(at, max(0, get64(ip + 8)))
                at += 1
            elif op == ops.LIST:
                if is_null(get64(ip + 16), n):
                    fail(status, ops.NULL_VALUE, 0)
                    return row
                offsets = get64(ip + 8)
                first = get32(offsets + 4 * n)
                count = get32(offsets + 4 * n + 4) - first
                masked = get64(ip + 48) == ops.LIST_MASKED
                mask = at + 4
                at = write_list_size(at, limit, count, masked, status)
                if at < 0:
                    return row
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
                loop = program + get64(ip + 40)
                first = get32(offsets + 4 * n)
                end = get32(offsets + 4 * n + 4)
                if is_null(get64(ip + 16), n) or first == end:
                    fail(status, ops.EMPTY_LIST, 0)
                    return row
                put64(loop + 16, n)
                put64(loop + 32, end)
                n = first
            elif op == ops.NEXT_DELIMITED:
                n += 1
                if n < get64(ip + 32):
                    if no_room(at, limit, 1, status):
                        return row
                    put8(at, ops.LIST_DELIMITER)
                    at += 1
                    following = program + get64(ip + 8)
                else:
                    n = get64(ip + 16)
            elif op == ops.NULL_FLAG or op == ops.PRESENT_FLAG:
                null = is_null(get64(ip + 16), n)
                padding = get64(ip + 24)
                if no_room(at, limit, 1 + padding, status):
                    return row
                put8(at, 1 if null == (op == ops.NULL_FLAG) else 0)
                at += 1
                if null:
                    put_zeros(at, padding)
                    at += padding
                else:
                    following = program + get64(ip + 8)
            elif op == ops.JUMP:
                following = program + get64(ip + 8)
            elif op == ops.VALID:
                if is_null(get64(ip + 16), n):
                    fail(status, ops.NULL_VALUE, 0)
                    return row
            elif op == ops.BYTES:
                at = write_bytes(ip, at, limit, n, status)
                if at < 0:
                    return row
            elif op == ops.MARK:
                put64(program + get64(ip + 8) + 8, at)
            elif op == ops.LENGTH_DIGITS:
                at = write_digits(at, limit, at - get64(ip + 8), status)
                if at < 0:
                    return row
            elif op == ops.ZERO_IS_NULL:
                if is_null(get64(ip + 16), n):
                    if no_room(at, limit, 4, status):
                        return row
                    store32(at, 0)
                    at += 4
                else:
                    following = program + get64(ip + 8)
            elif op == ops.MASK:
                at = write_mask(ip, at, limit, n, status)
                if at < 0:
                    return row
            elif op == ops.MASK_FIELD:
                if is_null(get64(ip + 16), n):
                    mark_null(program, ip)
                else:
                    following = program + get64(ip + 8)
            elif op == ops.EITHER:
                if is_null(get64(ip + 16), n):
                    fail(status, ops.NULL_VALUE, 0)
                    return row
                if no_room(at, limit, 1, status):
                    return row
                left = load8(get64(ip + 8) + n)
                put8(at, 2 - left if get64(ip + 40) == 1 else left)
                at += 1
                if left != 0:
                    following = program + get64(ip + 24)
            elif (
                op == ops.NULL_FIXED
                or op == ops.NULL_OFFSETS
                or op == ops.NULL_STRUCT
                or op == ops.SKIP_REST
                or op == ops.REQUIRE
                or op == ops.POSITION
                or op == ops.CONSTANT4
            ):
                pass  # It applies only to columns that are read.
            elif full:
                if op == ops.INDEX4:
                    index = get32(get64(ip + 8) + 4 * n)
                    if is_null(get64(ip + 16), n):
                        fail(status, ops.NULL_VALUE, 0)
                        return row
                    if index < 0 or index >= get64(ip + 40):
                        fail(status, ops.BAD_VALUE, 0)
                        return row
                    if no_room(at, limit, 4, status):
                        return row
                    store32(at, index)
                    at += 4
                elif op == ops.POJO:
                    at = write_pojo_flags(ip, at, limit, n, status)
                    if at < 0:
                        return row
                    meaning = get64(status + 32)
                    if meaning == 1:
                        following = program + get64(ip + 8)
                    elif meaning != 0:
                        following = program + get64(ip + 24)
                elif op == ops.TAG_IS:
                    if get64(program + get64(ip + 24) + 40) == get64(ip + 32):
                        following = program + get64(ip + 8)
                elif op == ops.CLASS_IS:
                    if class_number(program + get64(ip + 24), n) == get64(ip + 48):
                        at = write_class_name(ip, at, limit, status)
                        if at < 0:
                            return row
                        following = program + get64(ip + 8)
                elif op == ops.REFUSE:
                    fail(status, get64(ip + 24), 0)
                    return row
                elif op == ops.STREAM_TAG:
                    if no_room(at, limit, 9, status):
                        return row
                    if is_null(get64(ip + 16), n):
                        put8(at, 1)
                        at += 1
                    else:
                        put8(at, 0)
                        store64(at + 1, get64(get64(ip + 8) + 8 * n))
                        at += 9
                elif op == ops.SIZES:
                    at = write_sizes(program, ip, at, limit, n, status)
                    if at < 0:
                        return row
                elif op == ops.REGION:
                    at = begin_region(program, ip, at, limit, status)
                    if at < 0:
                        return row
                elif op == ops.REGION_END:
                    at = end_region(program, ip, at, limit, status)
                    if at < 0:
                        return row
                elif op == ops.SQL_ROW:
                    at = begin_row(program, ip, at, limit, n, status)
                    if at < 0:
                        return row
                elif op == ops.SQL_ARRAY:
                    if get64(ip + 24) < 0:
                        # The values of a map are in the same rows as its keys.
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
                    if is_null(get64(ip + 16), n):
                        set_slot_null(program + get64(ip + 24), get64(ip + 32))
                    else:
                        following = program + get64(ip + 8)
                elif op == ops.SLOT:
                    write_slot(program, ip, n)
                elif op == ops.SLOT_BYTES:
                    at = write_slot_bytes(program, ip, at, limit, n, status)
                    if at < 0:
                        return row
                elif op == ops.SLOT_DECIMAL:
                    at = write_slot_decimal(program, ip, at, limit, n, status)
                    if at < 0:
                        return row
                elif op == ops.SLOT_TIMESTAMP:
                    at = write_slot_timestamp(program, ip, at, limit, n, status)
                    if at < 0:
                        return row
                else:
                    at = write_value(op, ip, at, limit, n, status)
                    if at < 0:
                        return row
            else:
                fail(status, ops.UNKNOWN_INSTRUCTION, 0)
                return row
            ip = following

    return encode_rows


_PLAIN, _FULL = _make(False), _make(True)


def encoder_of(operations: Iterable[int]) -> Any:
    """The kernel for programs of these instructions; compiled at its first call."""
    return _PLAIN if ops.PLAIN.issuperset(operations) else _FULL
