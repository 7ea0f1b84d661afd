"""Reads numbers, dates and times in kernels: one value at ``at`` into a column.

Each function returns the position after the value, or -1 after a report.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.instructions import (
    BAD_VALUE,
    NOT_EXACT,
    TIME_DATA,
    TIME_DATA_MS,
    TIME_EXACT,
    TIME_INSTANT,
    TIME_KIND,
    TIME_LOCAL,
    TIME_MS,
    TIME_SQL,
    TOO_LARGE,
    TRUNCATED,
)
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import (
    copy,
    get32,
    get64,
    load8,
    load32,
    load64,
    put8,
    put32,
    put64,
)
from dstl_core.codec.columnar.kernels.text import fail, need_space

NULL_LONG = -0x8000000000000000
NULL_INT = -0x80000000
NULL_BYTE_BITS = 0x80
MAX_YEAR = 999_999_999
MAX_OFFSET = 0x7FFFFFFF
NANOS = 1_000_000_000
MICROS = 1_000_000
MAX_SECONDS = 9_223_372_036_853
"""Largest number of seconds that fits into 64-bit microseconds with any fraction."""
MAX_MILLIS = 9_223_372_036_853_000
DAY_SECONDS = 86400
DAYS_TO_1970 = 719468


@kernel
def put_fixed(ip: int, n: int, value: int, width: int) -> None:
    """Writes a value of 4 or 8 bytes, if the column is wanted."""
    values = get64(ip + 8)
    if values != 0:
        if width == 8:
            put64(values + 8 * n, value)
        else:
            put32(values + 4 * n, value)
        valid = get64(ip + 16)
        if valid != 0:
            put8(valid + n, 1)


@kernel
def put_null(ip: int, n: int, width: int) -> None:
    """Writes a null of 4 or 8 bytes, if the column is wanted."""
    values = get64(ip + 8)
    if values != 0:
        if width == 8:
            put64(values + 8 * n, 0)
        else:
            put32(values + 4 * n, 0)
        put8(get64(ip + 16) + n, 0)


@kernel
def sign_byte(value: int) -> int:
    return value - 0x100 if value >= 0x80 else value


# ---------------------------------------------------------------------------- big numbers


@kernel
def read_big_int(ip: int, at: int, end: int, n: int, status: int) -> int:
    if end - at < 4:
        return fail(status, TRUNCATED, at)
    code = load32(at)
    if code < 0 or code == 4:
        return fail(status, BAD_VALUE, at)
    start = at + 4
    size = 1
    if code >= 5:
        size = code - 4
        if size > end - start:
            return fail(status, TRUNCATED, start)
    elif code == 0:
        size = 0
    offsets = get64(ip + 8)
    if offsets != 0:
        offset = get32(offsets + 4 * n)
        if offset + size > get64(ip + 32):
            if offset + size > MAX_OFFSET:
                return fail(status, TOO_LARGE, at)
            return need_space(status, get64(ip + 56), offset + size)
        target = get64(ip + 24) + offset
        if code >= 5:
            copy(target, start, size)
        elif code > 0:
            put8(target, 0 if code == 1 else (1 if code == 2 else 10))
        put32(offsets + 4 * n + 4, offset + size)
        valid = get64(ip + 16)
        if valid != 0:
            put8(valid + n, 0 if code == 0 else 1)
    return start + size if code >= 5 else start


@kernel
def widen_decimal(start: int, size: int, target: int) -> bool:
    """Converts big-endian two's complement to 16 little-endian bytes; False if it does not fit."""
    fill = 0xFF if size > 0 and load8(start) >= 0x80 else 0
    for i in range(size):
        byte = load8(start + size - 1 - i)
        if i < 16:
            put8(target + i, byte)
        elif byte != fill:
            return False
    for i in range(size, 16):
        put8(target + i, fill)
    return size <= 16 or (load8(start + size - 16) >= 0x80) == (fill == 0xFF)


@kernel
def put_decimal8(ip: int, n: int, value: int) -> None:
    values = get64(ip + 8)
    if values != 0:
        put64(values + 16 * n, value)
        put64(values + 16 * n + 8, value >> 63)
        valid = get64(ip + 16)
        if valid != 0:
            put8(valid + n, 1)


@kernel
def put_decimal(ip: int, n: int, start: int, size: int, status: int) -> int:
    """Writes two's complement bytes as a decimal; returns 0, or -1 if the column cannot hold it."""
    values = get64(ip + 8)
    if values != 0:
        if not widen_decimal(start, size, values + 16 * n):
            return fail(status, TOO_LARGE, start)
        valid = get64(ip + 16)
        if valid != 0:
            put8(valid + n, 1)
    return 0


@kernel
def read_decimal(ip: int, at: int, end: int, n: int, status: int) -> int:
    if get64(ip + 40) == 0:
        if end - at < 8:
            return fail(status, TRUNCATED, at)
        put_decimal8(ip, n, load64(at))
        return at + 8
    if end - at < 4:
        return fail(status, TRUNCATED, at)
    size = load32(at)
    if size < 0 or size > end - at - 4:
        return fail(status, BAD_VALUE, at)
    if put_decimal(ip, n, at + 4, size, status) < 0:
        return -1
    return at + 4 + size


# ------------------------------------------------------------------------- dates and times


@kernel
def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar."""
    shifted = year - 1 if month <= 2 else year
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146097 + day_of_era - DAYS_TO_1970


@kernel
def days_in_month(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@kernel
def read_date(at: int, end: int, status: int) -> int:
    """Reads the six bytes of a date. Returns 0 for a date (days in status word 4), 1 null, -1
    refused.
    """
    if end - at < 4:
        return fail(status, TRUNCATED, at)
    year = load32(at)
    if year == NULL_INT:
        if end - at < 6:
            return fail(status, TRUNCATED, at + 4)
        return 1
    if end - at < 6:
        return fail(status, TRUNCATED, end)
    month = sign_byte(load8(at + 4))
    day = sign_byte(load8(at + 5))
    if year < -MAX_YEAR or year > MAX_YEAR or month < 1 or month > 12:
        return fail(status, BAD_VALUE, at)
    if day < 1 or day > days_in_month(year, month):
        return fail(status, BAD_VALUE, at)
    put64(status + 32, days_from_civil(year, month, day))
    return 0


@kernel
def read_time(at: int, end: int, status: int) -> int:
    """Reads the seven bytes of a time, like ``read_date``; status word 4 has the nanos of the
    day.
    """
    if at >= end:
        return fail(status, TRUNCATED, at)
    hour = load8(at)
    if hour == NULL_BYTE_BITS:
        if end - at < 3:
            return fail(status, TRUNCATED, at + 1)
        if end - at < 7:
            return fail(status, TRUNCATED, at + 3)
        return 1
    if end - at < 3:
        return fail(status, TRUNCATED, end)
    if end - at < 7:
        return fail(status, TRUNCATED, at + 3)
    minute = load8(at + 1)
    second = load8(at + 2)
    nano = load32(at + 3)
    if hour > 23 or minute > 59 or second > 59 or nano < 0 or nano >= NANOS:
        return fail(status, BAD_VALUE, at)
    put64(status + 32, ((hour * 60 + minute) * 60 + second) * NANOS + nano)
    return 0


@kernel
def read_local_date(ip: int, at: int, end: int, n: int, status: int) -> int:
    outcome = read_date(at, end, status)
    if outcome < 0:
        return -1
    if outcome == 1:
        put_null(ip, n, 4)
        return at + 6
    days = get64(status + 32)
    if (days < NULL_INT or days > 0x7FFFFFFF) and get64(ip + 8) != 0:
        return fail(status, NOT_EXACT, at)
    put_fixed(ip, n, days, 4)
    return at + 6


@kernel
def read_local_time(ip: int, at: int, end: int, n: int, status: int) -> int:
    outcome = read_time(at, end, status)
    if outcome < 0:
        return -1
    if outcome == 1:
        put_null(ip, n, 8)
    else:
        put_fixed(ip, n, get64(status + 32), 8)
    return at + 7


@kernel
def put_time(
    ip: int, n: int, seconds: int, nanos: int, how: int, exact: int, at: int, status: int
) -> int:
    """Writes seconds and nanos, exact or as microseconds; returns 0, or -1 if they do not fit."""
    values = get64(ip + 8)
    if values == 0:
        return 0
    if how & TIME_EXACT != 0:
        put64(values + 8 * n, seconds)
        put32(exact + 4 * n, nanos)
    else:
        if seconds < -MAX_SECONDS or seconds > MAX_SECONDS or nanos % 1000 != 0:
            return fail(status, NOT_EXACT, at)
        put64(values + 8 * n, seconds * MICROS + nanos // 1000)
    valid = get64(ip + 16)
    if valid != 0:
        put8(valid + n, 1)
    return 0


@kernel
def put_null_time(ip: int, n: int, how: int, exact: int) -> None:
    values = get64(ip + 8)
    if values != 0:
        put64(values + 8 * n, 0)
        if how & TIME_EXACT != 0 and how & TIME_KIND != TIME_MS:
            put32(exact + 4 * n, 0)
        put8(get64(ip + 16) + n, 0)


@kernel
def put_millis(ip: int, n: int, millis: int, how: int, at: int, status: int) -> int:
    """Writes milliseconds to one column; returns 0, or -1 if they do not fit."""
    if get64(ip + 8) == 0:
        return 0
    if how & TIME_EXACT == 0:
        if millis < -MAX_MILLIS or millis > MAX_MILLIS:
            return fail(status, NOT_EXACT, at)
        millis *= 1000
    put_fixed(ip, n, millis, 8)
    return 0


@kernel
def read_local_date_time(
    ip: int, at: int, end: int, n: int, how: int, exact: int, status: int
) -> int:
    date = read_date(at, end, status)
    if date < 0:
        return -1
    days = get64(status + 32)
    time = read_time(at + 6, end, status)
    if time < 0:
        return -1
    if date != time:
        return fail(status, BAD_VALUE, at)
    if date == 1:
        put_null_time(ip, n, how, exact)
        return at + 13
    nanos = get64(status + 32)
    seconds = days * DAY_SECONDS + nanos // NANOS
    if put_time(ip, n, seconds, nanos % NANOS, how, exact, at, status) < 0:
        return -1
    return at + 13


@kernel
def read_timestamp(ip: int, at: int, end: int, n: int, status: int) -> int:
    how = get64(ip + 40)
    exact = get64(ip + 24)
    kind = how & TIME_KIND
    if kind == TIME_LOCAL:
        return read_local_date_time(ip, at, end, n, how, exact, status)
    if end - at < 8:
        return fail(status, TRUNCATED, at)
    first = load64(at)
    if kind == TIME_MS:
        if first == NULL_LONG:
            put_null_time(ip, n, how, exact)
        elif put_millis(ip, n, first, how, at, status) < 0:
            return -1
        return at + 8
    seconds = first // 1000
    millis = first % 1000
    if kind == TIME_DATA_MS:
        if put_time(ip, n, seconds, millis * MICROS, how, exact, at, status) < 0:
            return -1
        return at + 8
    if end - at < 12:
        return fail(status, TRUNCATED, at + 8)
    nanos = load32(at + 8)
    if first == NULL_LONG and (kind == TIME_SQL or (kind == TIME_INSTANT and nanos == NULL_INT)):
        put_null_time(ip, n, how, exact)
        return at + 12
    if nanos < 0 or nanos >= (MICROS if kind == TIME_DATA else NANOS):
        return fail(status, BAD_VALUE, at + 8)
    if kind == TIME_INSTANT:
        seconds = first
    elif kind == TIME_DATA:
        nanos += millis * MICROS
    elif nanos // MICROS != millis and get64(ip + 8) != 0:
        return fail(status, NOT_EXACT, at)
    if put_time(ip, n, seconds, nanos, how, exact, at, status) < 0:
        return -1
    return at + 12
