"""Puts byte strings together: stored keys of their parts, lists of their elements."""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get64, put8, put64
from dstl_core.codec.columnar.kernels.write_runs import copy_short


@kernel
def join_parts(parts: int, count: int, rows: int, lengths: int, target: int, bounds: int) -> None:
    """Writes the parts of each row one after the other.

    Args:
        parts: Address of where each part starts and ends, ``count`` pairs of int64 a row.
        count: Parts of a row.
        rows: How many.
        lengths: So many parts of a row are each followed by their length, as digits to base 256,
            lowest first, at least one.
        target: Address of room for all rows.
        bounds: Gets the address where each row starts, and where the last one ends.
    """
    at = target
    for row in range(rows):
        put64(bounds + 8 * row, at)
        for part in range(count):
            pair = parts + 16 * (count * row + part)
            start = get64(pair)
            size = get64(pair + 8) - start
            copy_short(at, start, size)
            at += size
            if part < lengths:
                put8(at, size & 0xFF)
                at += 1
                size >>= 8
                while size != 0:
                    put8(at, size & 0xFF)
                    at += 1
                    size >>= 8
    put64(bounds + 8 * rows, at)


@kernel
def join_items(
    starts: int, ends: int, firsts: int, rows: int, delimiter: int, target: int, bounds: int
) -> None:
    """Writes the items of each row with a byte between them.

    Args:
        starts: Address of where each item starts, int64.
        ends: Address of where it ends.
        firsts: Address of each row's first item; one more than there are rows.
        rows: How many.
        delimiter: The byte between two items.
        target: Address of room for all rows.
        bounds: As in ``join_parts``.
    """
    at = target
    for row in range(rows):
        put64(bounds + 8 * row, at)
        first = get64(firsts + 8 * row)
        for item in range(first, get64(firsts + 8 * row + 8)):
            if item != first:
                put8(at, delimiter)
                at += 1
            start = get64(starts + 8 * item)
            size = get64(ends + 8 * item) - start
            copy_short(at, start, size)
            at += size
    put64(bounds + 8 * rows, at)
