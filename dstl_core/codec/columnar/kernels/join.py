"""Concatenates byte strings: parts to stored keys, elements to lists."""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get64, put8, put64
from dstl_core.codec.columnar.kernels.write_runs import copy_short


@kernel
def join_parts(parts: int, count: int, rows: int, lengths: int, target: int, bounds: int) -> None:
    """Writes the parts of each row one after the other.

    Args:
        parts: Address of start and end of each part: ``count`` pairs of int64 per row.
        count: Number of parts of a row.
        rows: Number of rows.
        lengths: The first ``lengths`` parts of a row are each followed by their length, as
            little-endian base-256 digits, at least one.
        target: Address of the output, which has room for all rows.
        bounds: Receives the start address of each row, and the end address of the last row.
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
    """Writes the items of each row, separated by a byte.

    Args:
        starts: Address of the start of each item, int64.
        ends: Address of the end of each item.
        firsts: Address of each row's first item; ``rows + 1`` entries.
        rows: Number of rows.
        delimiter: The byte between two items.
        target: Address of the output, which has room for all rows.
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
