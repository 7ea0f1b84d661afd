"""Marks the rows whose keys start with one of some byte strings."""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get64, load8, load64, put8
from dstl_core.codec.columnar.kernels.tables.table_blocks import INDEX_BYTES, compare_bytes
from dstl_core.codec.columnar.kernels.tables.table_sort import shared_bytes

_FILTER_BITS = 16
FILTER_BYTES = 1 << _FILTER_BITS - 3
_MULTIPLIER = -0x61C8864680B583EB
"""Spreads neighbours: 2 to the power of 64, divided by the golden ratio."""


@kernel
def filter_bit(at: int, width: int) -> int:
    """The place in a filter of ``width`` bytes, at most eight."""
    word = 0
    if width == 8:
        word = load64(at)
    else:
        for place in range(width):
            word = word << 8 | load8(at + place)
    return (word * _MULTIPLIER) >> 64 - _FILTER_BITS & (1 << _FILTER_BITS) - 1


@kernel
def mark_blocks(
    lines: int, blocks: int, wanted: int, bounds: int, first: int, last: int, marks: int
) -> None:
    """Writes 1 for each block that may have a key that starts with a wanted one.

    Args:
        lines: Address of the lines of an index, as ``unpack_index`` writes them.
        blocks: Number of lines.
        wanted: Address of the wanted keys, one after the other and sorted.
        bounds: Address of the positions where each wanted key starts.
        first: The first of the wanted keys that are looked for.
        last: The one behind the last of them.
        marks: Receives the marks; a byte for each block.
    """
    for row in range(first, last):
        key = wanted + get64(bounds + 8 * row)
        size = get64(bounds + 8 * row + 8) - get64(bounds + 8 * row)
        low, high = 0, blocks
        while low < high:
            middle = (low + high) // 2
            bound = get64(lines + INDEX_BYTES * middle)
            bound_size = get64(lines + INDEX_BYTES * middle + 8) - bound
            if compare_bytes(bound, bound_size, key, size) < 0:
                low = middle + 1
            else:
                high = middle
        while low < blocks:
            put8(marks + low, 1)
            bound = get64(lines + INDEX_BYTES * low)
            bound_size = get64(lines + INDEX_BYTES * low + 8) - bound
            if bound_size < size or shared_bytes(bound, key, size) < size:
                break
            low += 1


@kernel
def fill_filter(wanted: int, bounds: int, size: int, kept: int, place: int, width: int) -> None:
    """Sets the bit of each wanted key in a filter.

    Args:
        wanted: Address of the wanted keys, one after the other.
        bounds: Address of ``size + 1`` positions: where each wanted key starts.
        size: Number of wanted keys.
        kept: Address of ``FILTER_BYTES`` bytes that are zero.
        place: Bytes of a key before the word that is filtered by.
        width: Bytes of the word. No key is shorter than both together.
    """
    for row in range(size):
        bit = filter_bit(wanted + get64(bounds + 8 * row) + place, width)
        put8(kept + (bit >> 3), load8(kept + (bit >> 3)) | 1 << (bit & 7))


@kernel
def mark_keys(
    rows: int,
    count: int,
    row_bytes: int,
    skip: int,
    wanted: int,
    bounds: int,
    size: int,
    kept: int,
    place: int,
    width: int,
    marks: int,
) -> int:
    """Writes a byte for each row: 1 if its key starts with a wanted one.

    Args:
        rows: Address of the rows, whose first two words are start and end of a key.
        count: Number of rows.
        row_bytes: Bytes of a row.
        skip: Bytes of a row's key that are before what is compared.
        wanted: Address of the wanted keys, one after the other and sorted. None is the start of
            another one.
        bounds: Address of ``size + 1`` positions: where each wanted key starts.
        size: Number of wanted keys.
        kept: Address of the filter of ``fill_filter``, which had the same ``place`` and ``width``.
        place: Bytes of a key before the word that is filtered by.
        width: Bytes of the word.
        marks: Receives the marks.

    Returns:
        The number of marked rows.
    """
    marked = 0
    for row in range(count):
        line = rows + row_bytes * row
        start = get64(line) + skip
        length = get64(line + 8) - start
        low = high = 0
        if length > 0 and length >= place + width:
            bit = filter_bit(start + place, width)
            if load8(kept + (bit >> 3)) >> (bit & 7) & 1:
                high = size
        while low < high:
            middle = (low + high) // 2
            key = get64(bounds + 8 * middle)
            key_bytes = get64(bounds + 8 * middle + 8) - key
            if compare_bytes(wanted + key, key_bytes, start, length) <= 0:
                low = middle + 1
            else:
                high = middle
        is_wanted = 0
        if low > 0:
            key = get64(bounds + 8 * low - 8)
            key_bytes = get64(bounds + 8 * low) - key
            if key_bytes <= length and shared_bytes(wanted + key, start, key_bytes) == key_bytes:
                is_wanted = 1
        put8(marks + row, is_wanted)
        marked += is_wanted
    return marked
