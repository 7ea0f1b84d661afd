"""Writes scalars of the tape as types of Flink."""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.kryo import codes as k
from dstl_core.codec.columnar.kernels.kryo.codes import room, unsupported
from dstl_core.codec.columnar.kernels.kryo.write_objects import give_bytes, give_varint
from dstl_core.codec.columnar.kernels.memory import (
    get64,
    load8,
    put8,
    put64,
    store16,
    store32,
    store64,
)


@kernel
def give_big(c: int, value: int, size: int) -> int:
    """A number of fixed width, its highest byte first."""
    if not room(c, size):
        return -1
    out = get64(c + k.OUT)
    if size == 1:
        put8(out, value)
    elif size == 2:
        store16(out, value)
    elif size == 4:
        store32(out, value)
    else:
        store64(out, value)
    put64(c + k.OUT, out + size)
    return 0


@kernel
def build_small(c: int, kind: int, value: int) -> int:
    """A number, boolean or character of one word."""
    if kind == k.BOOLEAN or kind == k.BYTE:
        return give_big(c, value, 1)
    if kind == k.CHAR or kind == k.SHORT:
        return give_big(c, value, 2)
    if kind == k.INT or kind == k.FLOAT:
        return give_big(c, value, 4)
    if kind == k.LONG or kind == k.DOUBLE or kind == k.MILLIS:
        return give_big(c, value, 8)
    return unsupported(c)


@kernel
def build_text(c: int, content: int) -> int:
    start = get64(content)
    size = get64(content + 8)
    form = get64(content + 16)
    if give_varint(c, get64(content + 24) + 1) < 0:
        return -1
    if form != k.UNITS:
        if give_bytes(c, start, size) < 0:
            return -1
        if form == k.MARKED:
            last = get64(c + k.OUT) - 1
            put8(last, load8(last) & 0x7F)
        return 0
    if not room(c, size):  # no unit becomes longer
        return -1
    at = start
    out = get64(c + k.OUT)
    while at < start + size:
        unit = load8(at)
        if unit >= 0xE0:
            unit = (unit & 0x0F) << 12 | (load8(at + 1) & 0x3F) << 6 | load8(at + 2) & 0x3F
            at += 3
        elif unit >= 0x80:
            unit = (unit & 0x1F) << 6 | load8(at + 1) & 0x3F
            at += 2
        else:
            at += 1
        while unit >= k.MORE:
            put8(out, unit & 0x7F | k.MORE)
            out += 1
            unit >>= 7
        put8(out, unit)
        out += 1
    put64(c + k.OUT, out)
    return 0


@kernel
def build_big_integer(c: int, content: int) -> int:
    """A number behind its length plus 4; 0, 1 and 10 have a length of their own alone."""
    start = get64(content)
    size = get64(content + 8)
    if size == 1:
        first = load8(start)
        if first < 2:
            return give_big(c, first + 1, 4)
        if first == 10:
            return give_big(c, 3, 4)
    return -1 if give_big(c, size + 4, 4) < 0 else give_bytes(c, start, size)


@kernel
def build_moment(c: int, kind: int, content: int) -> int:
    """Milliseconds or seconds, and nanoseconds."""
    first = get64(content)
    nanos = get64(content + 8)
    if nanos < 0 or nanos >= 1_000_000_000:
        return unsupported(c)
    if kind == k.TIMESTAMP:
        first += nanos // 1_000_000
    return -1 if give_big(c, first, 8) < 0 else give_big(c, nanos, 4)


@kernel
def build_scalar(c: int, kind: int, content: int) -> int:
    """A scalar that is not null."""
    if kind == k.TEXT:
        return build_text(c, content)
    if kind == k.BIG_INTEGER:
        return build_big_integer(c, content)
    if kind == k.BIG_DECIMAL:
        if build_big_integer(c, content) < 0:
            return -1
        return give_big(c, get64(content + 16), 4)
    if kind == k.TIMESTAMP or kind == k.INSTANT:
        return build_moment(c, kind, content)
    return build_small(c, kind, get64(content))
