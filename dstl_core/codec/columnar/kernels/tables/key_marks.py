"""Marks the rows whose keys start with one of some byte strings."""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get64, put8
from dstl_core.codec.columnar.kernels.tables.table_blocks import compare_bytes
from dstl_core.codec.columnar.kernels.tables.table_sort import shared_bytes


@kernel
def mark_keys(
    rows: int,
    count: int,
    row_bytes: int,
    skip: int,
    wanted: int,
    bounds: int,
    size: int,
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
        marks: Receives the marks.

    Returns:
        The number of marked rows.
    """
    marked = 0
    for row in range(count):
        line = rows + row_bytes * row
        start = get64(line) + skip
        length = get64(line + 8) - start
        low, high = 0, size if length > 0 else 0
        while low < high:
            middle = (low + high) // 2
            place = get64(bounds + 8 * middle)
            key_bytes = get64(bounds + 8 * middle + 8) - place
            if compare_bytes(wanted + place, key_bytes, start, length) <= 0:
                low = middle + 1
            else:
                high = middle
        is_wanted = 0
        if low > 0:
            place = get64(bounds + 8 * low - 8)
            key_bytes = get64(bounds + 8 * low) - place
            if key_bytes <= length and shared_bytes(wanted + place, start, key_bytes) == key_bytes:
                is_wanted = 1
        put8(marks + row, is_wanted)
        marked += is_wanted
    return marked
