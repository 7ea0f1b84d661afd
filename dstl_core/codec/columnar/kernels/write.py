"""Writes single values in kernels: from row ``n`` of a column to ``at``.

The inverse of ``kernels.text`` and ``kernels.values``. Each function returns the position after the
value, or -1 after a report: the output is too small, or the column holds a value that the type does
not allow.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.instructions import (
    ALWAYS_NULL,
    BAD_VALUE,
    BIG_INT,
    BYTES_COUNTED,
    BYTES_COUNTED_TEXT,
    DECIMAL,
    LOCAL_DATE,
    LOCAL_TIME,
    LONE_SURROGATE,
    NOT_EXACT,
    NULL_VALUE,
    TEXT_UTF16,
    TEXT_WITHOUT_NULL,
    TIME_DATA,
    TIME_DATA_MS,
    TIME_EXACT,
    TIME_INSTANT,
    TIME_KIND,
    TIME_LOCAL,
    TIME_MS,
    TIME_SQL,
    TIMESTAMP,
    TOO_LARGE,
    UNKNOWN_INSTRUCTION,
)
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import (
    copy,
    get32,
    get64,
    load8,
    load16,
    put8,
    store16,
    store32,
    store64,
)
from dstl_core.codec.columnar.kernels.text import copy_if_ascii, fail, need_space, skip_if_ascii
from dstl_core.codec.columnar.kernels.values import (
    DAY_SECONDS,
    DAYS_TO_1970,
    MAX_OFFSET,
    MAX_YEAR,
    MICROS,
    NANOS,
    NULL_BYTE_BITS,
    NULL_INT,
    NULL_LONG,
)

TEXT_ROOM = 24
"""Bytes that a text may need in addition to its units: the length, and the overrun of fast
copies.
"""
MAX_EXACT_SECONDS = 9_223_372_036_854_774
"""Largest number of seconds that fits into 64-bit milliseconds."""
DECIMAL_BYTES = 16


@kernel
def no_room(at: int, limit: int, size: int, status: int) -> bool:
    """Whether fewer than ``size`` bytes are left. If so, it asks the caller for more."""
    if limit - at < size:
        need_space(status, 0, size)
        return True
    return False


@kernel
def is_null(valid: int, n: int) -> bool:
    """Whether row ``n`` is null, by the validity operand: 0 is never, -1 is always."""
    return valid != 0 and (valid == ALWAYS_NULL or load8(valid + n) == 0)


@kernel
def put_zeros(at: int, size: int) -> None:
    for i in range(size):
        put8(at + i, 0)


# --------------------------------------------------------------------------- text and bytes


@kernel
def put_varint(at: int, value: int) -> int:
    """Writes a varint; returns the position after it."""
    while value >= 0x80:
        put8(at, value & 0x7F | 0x80)
        value >>= 7
        at += 1
    put8(at, value)
    return at + 1


@kernel
def utf16_length(start: int, size: int) -> int:
    """The number of UTF-16 code units of valid UTF-8."""
    units = 0
    for i in range(size):
        byte = load8(start + i)
        if byte & 0xC0 != 0x80:
            units += 2 if byte >= 0xF0 else 1
    return units


@kernel
def put_utf8_units(at: int, start: int, size: int) -> int:
    """Writes valid UTF-8 as UTF-16 code units, a varint each."""
    i = 0
    while i < size:
        byte = load8(start + i)
        if byte < 0x80:
            put8(at, byte)
            at += 1
            i += 1
        elif byte < 0xE0:
            at = put_varint(at, (byte & 0x1F) << 6 | load8(start + i + 1) & 0x3F)
            i += 2
        elif byte < 0xF0:
            unit = (byte & 0x0F) << 12 | (load8(start + i + 1) & 0x3F) << 6
            at = put_varint(at, unit | load8(start + i + 2) & 0x3F)
            i += 3
        else:
            point = (byte & 7) << 18 | (load8(start + i + 1) & 0x3F) << 12
            point |= (load8(start + i + 2) & 0x3F) << 6 | load8(start + i + 3) & 0x3F
            point -= 0x10000
            at = put_varint(at, 0xD800 + (point >> 10))
            at = put_varint(at, 0xDC00 + (point & 0x3FF))
            i += 4
    return at


@kernel
def write_text(ip: int, at: int, limit: int, n: int, status: int) -> int:
    how = get64(ip + 40)
    more = 1 if how & TEXT_WITHOUT_NULL == 0 else 0
    if is_null(get64(ip + 16), n):
        if more == 0:
            return fail(status, NULL_VALUE, 0)
        if no_room(at, limit, 1, status):
            return -1
        put8(at, 0)
        return at + 1
    offsets = get64(ip + 8)
    data = get64(ip + 24)
    start = data + get32(offsets + 4 * n)
    size = get32(offsets + 4 * n + 4) - get32(offsets + 4 * n)
    if no_room(at, limit, 2 * size + TEXT_ROOM, status):
        return -1
    if how & TEXT_UTF16 != 0:
        if size & 1 != 0:
            return fail(status, LONE_SURROGATE, 0)
        at = put_varint(at, size // 2 + more)
        for i in range(size // 2):
            at = put_varint(at, load16(start + 2 * i))
        return at
    if size + more < 0x80:
        # The length has one byte for every such text, so it can be written first.
        put8(at, size + more)
        if copy_if_ascii(start, at + 1, size, data + get64(ip + 32)):
            return at + 1 + size
    elif skip_if_ascii(start, size):
        at = put_varint(at, size + more)
        copy(at, start, size)
        return at + size
    at = put_varint(at, utf16_length(start, size) + more)
    return put_utf8_units(at, start, size)


@kernel
def write_bytes(ip: int, at: int, limit: int, n: int, status: int) -> int:
    if is_null(get64(ip + 16), n):
        return fail(status, NULL_VALUE, 0)
    how = get64(ip + 40)
    offsets = get64(ip + 8)
    start = get32(offsets + 4 * n)
    size = get32(offsets + 4 * n + 4) - start
    if no_room(at, limit, size + 4, status):
        return -1
    if how == BYTES_COUNTED or how == BYTES_COUNTED_TEXT:
        store32(at, size)
        at += 4
    copy(at, get64(ip + 24) + start, size)
    return at + size


# ---------------------------------------------------------------------------- big numbers


@kernel
def write_big_int(ip: int, at: int, limit: int, n: int, status: int) -> int:
    if is_null(get64(ip + 16), n):
        if get64(ip + 40) == 1:
            return fail(status, NULL_VALUE, 0)
        if no_room(at, limit, 4, status):
            return -1
        store32(at, 0)
        return at + 4
    offsets = get64(ip + 8)
    start = get32(offsets + 4 * n)
    size = get32(offsets + 4 * n + 4) - start
    start += get64(ip + 24)
    if size == 0:
        return fail(status, BAD_VALUE, 0)
    # The shortest form, like Java's toByteArray.
    while size > 1 and load8(start) == (0xFF if load8(start + 1) >= 0x80 else 0):
        start += 1
        size -= 1
    if no_room(at, limit, 4 + size, status):
        return -1
    first = load8(start)
    if size == 1 and (first <= 1 or first == 10):
        store32(at, 3 if first == 10 else first + 1)
        return at + 4
    store32(at, size + 4)
    copy(at + 4, start, size)
    return at + 4 + size


@kernel
def put_minimal(at: int, source: int) -> int:
    """Writes 16 little-endian bytes as shortest big-endian two's complement; returns the number of
    bytes.
    """
    size = DECIMAL_BYTES
    while size > 1:
        top = load8(source + size - 1)
        next_is_negative = load8(source + size - 2) >= 0x80
        if top != (0xFF if next_is_negative else 0):
            break
        size -= 1
    for i in range(size):
        put8(at + i, load8(source + size - 1 - i))
    return size


@kernel
def write_decimal(ip: int, at: int, limit: int, n: int, status: int) -> int:
    if is_null(get64(ip + 16), n):
        return fail(status, NULL_VALUE, 0)
    if no_room(at, limit, 4 + DECIMAL_BYTES, status):
        return -1
    source = get64(ip + 8) + DECIMAL_BYTES * n
    if get64(ip + 40) == 0:
        low = get64(source)
        if get64(source + 8) != low >> 63:
            return fail(status, TOO_LARGE, 0)
        store64(at, low)
        return at + 8
    size = put_minimal(at + 4, source)
    store32(at, size)
    return at + 4 + size


# ------------------------------------------------------------------------- dates and times


@kernel
def put_date(at: int, days: int) -> int:
    """Writes a date, given as days since 1970-01-01, as six bytes; returns the position after
    them.
    """
    shifted = days + DAYS_TO_1970
    era = shifted // 146097
    day_of_era = shifted - era * 146097
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400 + (1 if month <= 2 else 0)
    if year < -MAX_YEAR or year > MAX_YEAR:
        return -1
    store32(at, year)
    put8(at + 4, month)
    put8(at + 5, day)
    return at + 6


@kernel
def put_time_of_day(at: int, nanos: int) -> int:
    seconds = nanos // NANOS
    put8(at, seconds // 3600)
    put8(at + 1, seconds // 60 % 60)
    put8(at + 2, seconds % 60)
    store32(at + 3, nanos % NANOS)
    return at + 7


@kernel
def put_null_date(at: int) -> int:
    store32(at, NULL_INT)
    store16(at + 4, 0x8000)
    return at + 6


@kernel
def put_null_time_of_day(at: int) -> int:
    put8(at, NULL_BYTE_BITS)
    store16(at + 1, 0x8000)
    store32(at + 3, NULL_INT)
    return at + 7


@kernel
def write_local_date(ip: int, at: int, limit: int, n: int, status: int) -> int:
    if no_room(at, limit, 6, status):
        return -1
    if is_null(get64(ip + 16), n):
        return put_null_date(at)
    end = put_date(at, get32(get64(ip + 8) + 4 * n))
    return end if end >= 0 else fail(status, BAD_VALUE, 0)


@kernel
def write_local_time(ip: int, at: int, limit: int, n: int, status: int) -> int:
    if no_room(at, limit, 7, status):
        return -1
    if is_null(get64(ip + 16), n):
        return put_null_time_of_day(at)
    nanos = get64(get64(ip + 8) + 8 * n)
    if nanos < 0 or nanos >= DAY_SECONDS * NANOS:
        return fail(status, BAD_VALUE, 0)
    return put_time_of_day(at, nanos)


@kernel
def write_null_timestamp(at: int, kind: int, status: int) -> int:
    if kind == TIME_MS:
        store64(at, NULL_LONG)
        return at + 8
    if kind == TIME_SQL or kind == TIME_INSTANT:
        store64(at, NULL_LONG)
        store32(at + 8, 0 if kind == TIME_SQL else NULL_INT)
        return at + 12
    if kind == TIME_LOCAL:
        return put_null_time_of_day(put_null_date(at))
    return fail(status, NULL_VALUE, 0)


@kernel
def write_millis(ip: int, at: int, n: int, how: int, status: int) -> int:
    value = get64(get64(ip + 8) + 8 * n)
    if how & TIME_EXACT == 0:
        if value % 1000 != 0:
            return fail(status, NOT_EXACT, 0)
        value //= 1000
    store64(at, value)
    return at + 8


@kernel
def write_timestamp(ip: int, at: int, limit: int, n: int, status: int) -> int:
    how = get64(ip + 40)
    kind = how & TIME_KIND
    if no_room(at, limit, 16, status):
        return -1
    if is_null(get64(ip + 16), n):
        return write_null_timestamp(at, kind, status)
    if kind == TIME_MS:
        return write_millis(ip, at, n, how, status)
    value = get64(get64(ip + 8) + 8 * n)
    if how & TIME_EXACT != 0:
        seconds = value
        nanos = get32(get64(ip + 24) + 4 * n)
        if nanos < 0 or nanos >= NANOS:
            return fail(status, BAD_VALUE, 0)
    else:
        seconds = value // MICROS
        nanos = value % MICROS * 1000
    if kind == TIME_INSTANT:
        store64(at, seconds)
        store32(at + 8, nanos)
        return at + 12
    if kind == TIME_LOCAL:
        if put_date(at, seconds // DAY_SECONDS) < 0:
            return fail(status, BAD_VALUE, 0)
        return put_time_of_day(at + 6, seconds % DAY_SECONDS * NANOS + nanos)
    if seconds < -MAX_EXACT_SECONDS or seconds > MAX_EXACT_SECONDS:
        return fail(status, NOT_EXACT, 0)
    store64(at, seconds * 1000 + nanos // MICROS)
    if kind == TIME_DATA_MS:
        return at + 8 if nanos % MICROS == 0 else fail(status, NOT_EXACT, 0)
    store32(at + 8, nanos % MICROS if kind == TIME_DATA else nanos)
    return at + 12


@kernel
def write_list_size(at: int, limit: int, count: int, masked: bool, status: int) -> int:
    """Writes the count of a list, and a mask without nulls if ``masked``."""
    mask = (count + 7) // 8 if masked else 0
    if count > MAX_OFFSET:
        return fail(status, TOO_LARGE, 0)
    if no_room(at, limit, 4 + mask, status):
        return -1
    store32(at, count)
    put_zeros(at + 4, mask)
    return at + 4 + mask


@kernel
def write_value(op: int, ip: int, at: int, limit: int, n: int, status: int) -> int:
    """Runs an instruction that writes one value and then continues with the next instruction."""
    if op == TIMESTAMP:
        return write_timestamp(ip, at, limit, n, status)
    if op == BIG_INT:
        return write_big_int(ip, at, limit, n, status)
    if op == DECIMAL:
        return write_decimal(ip, at, limit, n, status)
    if op == LOCAL_DATE:
        return write_local_date(ip, at, limit, n, status)
    if op == LOCAL_TIME:
        return write_local_time(ip, at, limit, n, status)
    return fail(status, UNKNOWN_INSTRUCTION, ip)
