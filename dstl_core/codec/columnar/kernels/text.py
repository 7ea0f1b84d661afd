"""Converts text between Flink's form and UTF-8 in kernels.

Flink's form is UTF-16 code units, each a varint of 1-3 bytes. ASCII has the same bytes in both, so
it is copied eight bytes at a time and tested during the copy.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.instructions import (
    BAD_UNIT,
    ENDLESS_NUMBER,
    LONE_SURROGATE,
    NEED_SPACE,
    TRUNCATED,
)
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get64, load8, put8, put64

HIGH_BITS = -0x7F7F7F7F7F7F7F80
"""0x80 in each of eight bytes."""


@kernel
def fail(status: int, code: int, address: int) -> int:
    """Reports an error; returns -1, as every kernel function does after a report."""
    put64(status, code)
    put64(status + 8, address)
    return -1


@kernel
def need_space(status: int, column: int, needed: int) -> int:
    """Asks the caller for a larger buffer."""
    put64(status, NEED_SPACE)
    put64(status + 16, column)
    put64(status + 24, needed)
    return -1


@kernel
def copy_if_ascii(source: int, target: int, size: int, readable: int) -> bool:
    """Copies ``size`` bytes; returns whether all of them are ASCII.

    Whatever the size, it may read up to 16 bytes that lie before ``readable``, and write up to 16
    bytes at ``target``: a data buffer has 16 bytes more than its capacity.
    """
    if size <= 16 and readable - source >= 16:
        low = get64(source)
        high = get64(source + 8)
        put64(target, low)
        put64(target + 8, high)
        if size < 8:
            return (low & HIGH_BITS & ~(-1 << (8 * size))) == 0
        if size < 16:
            high &= ~(-1 << (8 * (size - 8)))
        return ((low | high) & HIGH_BITS) == 0
    seen = 0
    done = 0
    while done + 8 <= size:
        word = get64(source + done)
        seen |= word
        put64(target + done, word)
        done += 8
    while done < size:
        byte = load8(source + done)
        seen |= byte
        put8(target + done, byte)
        done += 1
    return (seen & HIGH_BITS) == 0


@kernel
def skip_if_ascii(source: int, size: int) -> bool:
    """Whether ``size`` bytes are ASCII."""
    seen = 0
    done = 0
    while done + 8 <= size:
        seen |= get64(source + done)
        done += 8
    while done < size:
        seen |= load8(source + done)
        done += 1
    return (seen & HIGH_BITS) == 0


@kernel
def read_unit(at: int, end: int, status: int) -> int:
    """Reads one varint of at most 3 bytes; returns ``unit << 2 | bytes``, or -1."""
    if at >= end:
        return fail(status, TRUNCATED, at)
    byte = load8(at)
    if byte < 0x80:
        return byte << 2 | 1
    if at + 1 >= end:
        return fail(status, TRUNCATED, at + 1)
    unit = byte & 0x7F
    byte = load8(at + 1)
    unit |= (byte & 0x7F) << 7
    if byte < 0x80:
        return unit << 2 | 2
    if at + 2 >= end:
        return fail(status, TRUNCATED, at + 2)
    byte = load8(at + 2)
    if byte >= 0x80:
        return fail(status, ENDLESS_NUMBER, at)
    unit |= byte << 14
    if unit > 0xFFFF:
        return fail(status, BAD_UNIT, at + 3)
    return unit << 2 | 3


@kernel
def put_utf8(target: int, point: int) -> int:
    """Writes one character; returns the number of its bytes."""
    if point < 0x80:
        put8(target, point)
        return 1
    if point < 0x800:
        put8(target, 0xC0 | point >> 6)
        put8(target + 1, 0x80 | point & 0x3F)
        return 2
    if point < 0x10000:
        put8(target, 0xE0 | point >> 12)
        put8(target + 1, 0x80 | point >> 6 & 0x3F)
        put8(target + 2, 0x80 | point & 0x3F)
        return 3
    put8(target, 0xF0 | point >> 18)
    put8(target + 1, 0x80 | point >> 12 & 0x3F)
    put8(target + 2, 0x80 | point >> 6 & 0x3F)
    put8(target + 3, 0x80 | point & 0x3F)
    return 4


@kernel
def units_to_utf8(at: int, end: int, size: int, target: int, status: int) -> int:
    """Reads ``size`` code units and writes UTF-8, at most 3 bytes per unit.

    Status word 4 receives the number of bytes. Returns the new position.
    """
    start = at
    written = target
    high = 0
    for _ in range(size):
        read = read_unit(at, end, status)
        if read < 0:
            return -1
        at += read & 3
        unit = read >> 2
        if high != 0:
            if unit < 0xDC00 or unit > 0xDFFF:
                return fail(status, LONE_SURROGATE, start)
            written += put_utf8(written, 0x10000 + ((high - 0xD800) << 10) + (unit - 0xDC00))
            high = 0
        elif unit < 0xD800 or unit > 0xDFFF:
            written += put_utf8(written, unit)
        elif unit < 0xDC00:
            high = unit
        else:
            return fail(status, LONE_SURROGATE, start)
    if high != 0:
        return fail(status, LONE_SURROGATE, start)
    put64(status + 32, written - target)
    return at


@kernel
def units_to_utf16(at: int, end: int, size: int, target: int, status: int) -> int:
    """Reads ``size`` code units and writes big-endian UTF-16; lone surrogates are kept."""
    for i in range(size):
        read = read_unit(at, end, status)
        if read < 0:
            return -1
        at += read & 3
        put8(target + 2 * i, read >> 10)
        put8(target + 2 * i + 1, read >> 2 & 0xFF)
    put64(status + 32, 2 * size)
    return at


@kernel
def skip_units(at: int, end: int, size: int, status: int) -> int:
    """The position after ``size`` code units."""
    for _ in range(size):
        read = read_unit(at, end, status)
        if read < 0:
            return -1
        at += read & 3
    return at


@kernel
def is_utf8(start: int, size: int) -> bool:
    """Whether bytes are valid UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF."""
    if skip_if_ascii(start, size):
        return True
    at = start
    end = start + size
    while at < end:
        byte = load8(at)
        if byte < 0x80:
            at += 1
            continue
        more = 1
        least = 0x80
        most = 0xBF
        if byte < 0xC2 or byte > 0xF4:
            return False
        if byte >= 0xF0:
            more = 3
            least = 0x90 if byte == 0xF0 else 0x80
            most = 0x8F if byte == 0xF4 else 0xBF
        elif byte >= 0xE0:
            more = 2
            least = 0xA0 if byte == 0xE0 else 0x80
            most = 0x9F if byte == 0xED else 0xBF
        if end - at <= more:
            return False
        second = load8(at + 1)
        if second < least or second > most:
            return False
        for i in range(2, more + 1):
            if load8(at + i) & 0xC0 != 0x80:
                return False
        at += more + 1
    return True
