"""Sorts records by their whole keys, as unsigned bytes.

A record is a span of ``kernels.scan``. Most keys of a key group differ in the six bytes after the
part that all of them share: these are compared first, as a word.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get64, load8, load16, put8, put64
from dstl_core.codec.columnar.kernels.scan import SPAN_BYTES
from dstl_core.codec.columnar.kernels.tables.table_blocks import compare_bytes

_SIGN = -0x8000000000000000
_SHORT_RUN = 12
"""Rows that are sorted by insertion before runs are merged."""


@kernel
def whole_keys(spans: int, rows: int, prefix: int) -> None:
    """Moves the start of each key to its key group, and clears the mark of the last record there.

    The ``prefix`` bytes before each key must be its key group.
    """
    for row in range(rows):
        span = spans + SPAN_BYTES * row
        start = get64(span) - prefix
        put8(start, load8(start) & 0x7F)
        put64(span, start)


@kernel
def shared_bytes(a: int, b: int, size: int) -> int:
    """How many of ``size`` bytes are equal at the start of two ranges."""
    at = 0
    while size - at >= 8 and get64(a + at) == get64(b + at):
        at += 8
    while at < size and load8(a + at) == load8(b + at):
        at += 1
    return at


@kernel
def words_of_keys(spans: int, rows: int, prefix: int, words: int) -> None:
    """Writes a word for each key, whose order is that of the keys if it differs: the key group,
    and six bytes behind what all keys share after their key group.
    """
    first = get64(spans) + prefix
    skipped = get64(spans + 8) - first
    for row in range(1, rows):
        start = get64(spans + SPAN_BYTES * row) + prefix
        size = get64(spans + SPAN_BYTES * row + 8) - start
        skipped = shared_bytes(first, start, min(size, skipped))
    for row in range(rows):
        start = get64(spans + SPAN_BYTES * row)
        end = get64(spans + SPAN_BYTES * row + 8)
        word = load16(start) if prefix == 2 else load8(start)
        start += prefix + skipped
        for at in range(6):
            word = word << 8 | (load8(start + at) if start + at < end else 0)
        put64(words + 8 * row, word ^ _SIGN)


@kernel
def is_after(spans: int, words: int, a: int, b: int) -> bool:
    """Whether the key of row ``a`` sorts after that of row ``b``."""
    x, y = get64(words + 8 * a), get64(words + 8 * b)
    if x != y:
        return x > y
    one, two = spans + SPAN_BYTES * a, spans + SPAN_BYTES * b
    start, other = get64(one), get64(two)
    return compare_bytes(start, get64(one + 8) - start, other, get64(two + 8) - other) > 0


@kernel
def merge_halves(
    spans: int, words: int, order: int, target: int, low: int, middle: int, high: int
) -> None:
    """Merges the sorted rows ``[low, middle)`` and ``[middle, high)`` of ``order``."""
    left, right = low, middle
    for at in range(low, high):
        takes_right = left == middle
        if not takes_right and right < high:
            first, second = get64(order + 8 * left), get64(order + 8 * right)
            takes_right = is_after(spans, words, first, second)
        if takes_right:
            put64(target + 8 * at, get64(order + 8 * right))
            right += 1
        else:
            put64(target + 8 * at, get64(order + 8 * left))
            left += 1


@kernel
def sort_keys(spans: int, rows: int, words: int, order: int, spare: int) -> bool:
    """Sorts rows by their keys; equal keys keep their order.

    Args:
        spans: Address of the spans, with whole keys.
        rows: Number of rows.
        words: Address of the words of ``words_of_keys``.
        order: Room for ``rows`` words.
        spare: Room for ``rows`` words.

    Returns:
        Whether the row numbers in order are at ``order``; otherwise they are at ``spare``.
    """
    for row in range(rows):
        put64(order + 8 * row, row)
    for low in range(0, rows, _SHORT_RUN):
        for row in range(low + 1, min(low + _SHORT_RUN, rows)):
            at = row
            while at > low and is_after(spans, words, get64(order + 8 * at - 8), row):
                put64(order + 8 * at, get64(order + 8 * at - 8))
                at -= 1
            put64(order + 8 * at, row)
    source, target = order, spare
    width = _SHORT_RUN
    while width < rows:
        is_moved = False
        for middle in range(width, rows, 2 * width):
            last, first = get64(source + 8 * middle - 8), get64(source + 8 * middle)
            is_moved |= is_after(spans, words, last, first)
        if is_moved:
            for low in range(0, rows, 2 * width):
                middle, high = min(low + width, rows), min(low + 2 * width, rows)
                merge_halves(spans, words, source, target, low, middle, high)
            source, target = target, source
        width *= 2
    return source == order
