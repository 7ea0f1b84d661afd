"""Writes the bytes between values in the encoding kernel: lengths, masks, flags of POJOs."""

from __future__ import annotations

from dstl_core.codec.columnar.kernels import instructions as ops
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import (
    copy,
    get32,
    get64,
    load8,
    put8,
    put64,
    store16,
    store32,
)
from dstl_core.codec.columnar.kernels.text import fail
from dstl_core.codec.columnar.kernels.write import (
    is_null,
    no_room,
    put_zeros,
)

POJO_NULL, POJO_ITSELF, POJO_SUBCLASS, POJO_TAGGED = 1, 2, 4, 8


@kernel
def write_digits(at: int, limit: int, size: int, status: int) -> int:
    """Writes the little-endian base-256 digits of ``size``, at least one; returns the position
    after them.
    """
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
    """Writes a mask without nulls. The row kind precedes it if the type has one."""
    size = (get64(ip + 24) + 7) // 8
    if no_room(at, limit, size, status):
        return -1
    put_zeros(at, size)
    kinds = get64(ip + 32)
    if get64(ip + 8) != 0 and kinds != 0:
        kind = load8(kinds + n)
        if kind > 3:
            return fail(status, ops.BAD_ROW_KIND, 0)
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
    """Writes the flags of a POJO. Status word 4: 0 null, 1 the class itself, 2 a subclass."""
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
