"""Writes sorted records as the data blocks of RocksDB's table files.

``kernels.tables.table_blocks`` has their form. Every entry is a put with sequence number 0.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get64, load8, put8, put32, put64
from dstl_core.codec.columnar.kernels.scan import SPAN_BYTES
from dstl_core.codec.columnar.kernels.tables.table_blocks import (
    ENTRY_BYTES,
    INDEX_BYTES,
    TRAILER_BYTES,
)
from dstl_core.codec.columnar.kernels.tables.table_sort import shared_bytes
from dstl_core.codec.columnar.kernels.write import put_varint
from dstl_core.codec.columnar.kernels.write_runs import copy_short

PUT_TRAILER = 1
"""The last eight bytes of a key: sequence number 0, and the kind of a put."""
RESTART_INTERVAL = 16
"""A whole key is written after so many entries."""
ENTRY_ROOM_BYTES = 3 * 5 + TRAILER_BYTES + 4 + 4
"""Bytes of an entry apart from key and value, with a restart offset and their number."""

INDEX_ROOM_BYTES = 2 + 5 + TRAILER_BYTES + 2 * 10 + 4
"""Bytes of an entry of an index apart from its key, with a restart offset."""

BLOCK_WORDS = 4
"""Words of a written block: its end in the target, and after its last entry: rows, bytes of keys
and bytes of values so far.
"""


@kernel
def end_block(at: int, restarts: int, count: int) -> int:
    """Writes the restart offsets of a block; returns its end."""
    for index in range(count):
        put32(at, get64(restarts + 8 * index))
        at += 4
    put32(at, count)
    return at + 4


@kernel
def write_blocks(
    spans: int, order: int, rows: int, block_bytes: int, target: int, restarts: int, blocks: int
) -> int:
    """Writes the payloads of data blocks, one after the other.

    Args:
        spans: Address of the spans, with whole keys.
        order: Address of the row numbers in the order of keys.
        rows: Number of rows, at least one.
        block_bytes: A block ends once it has this many bytes.
        target: Room for keys, values, and ``ENTRY_ROOM_BYTES`` for each row.
        restarts: Room for a word for each ``RESTART_INTERVAL`` rows, and one more.
        blocks: Receives ``BLOCK_WORDS`` words for each block; room for one for each row.

    Returns:
        The number of blocks; or the place of a row whose key is that of the row before, as a
        negative number.
    """
    at = start = target
    key = size = 0
    entries = count = written = 0
    key_bytes = value_bytes = 0
    for place in range(rows):
        span = spans + SPAN_BYTES * get64(order + 8 * place)
        before, before_size = key, size
        key = get64(span)
        size = get64(span + 8) - key
        value = get64(span + 16)
        value_size = get64(span + 24) - value
        shared = 0
        if place > 0:
            shared = shared_bytes(before, key, min(before_size, size))
            if shared == size and size == before_size:
                return -place
        if entries % RESTART_INTERVAL == 0:
            put64(restarts + 8 * count, at - start)
            count += 1
            shared = 0
        at = put_varint(at, shared)
        at = put_varint(at, size - shared + TRAILER_BYTES)
        at = put_varint(at, value_size)
        copy_short(at, key + shared, size - shared)
        at += size - shared
        put64(at, PUT_TRAILER)
        at += TRAILER_BYTES
        copy_short(at, value, value_size)
        at += value_size
        entries += 1
        key_bytes += size + TRAILER_BYTES
        value_bytes += value_size
        if at - start + 4 * count >= block_bytes or place == rows - 1:
            at = end_block(at, restarts, count)
            line = blocks + 8 * BLOCK_WORDS * written
            put64(line, at - target)
            put64(line + 8, place + 1)
            put64(line + 16, key_bytes)
            put64(line + 24, value_bytes)
            written += 1
            start = at
            entries = count = 0
    return written


@kernel
def gather_bytes(places: int, count: int, target: int) -> None:
    """Copies ranges of bytes one after the other.

    Args:
        places: Address of the start and the end of each.
        count: Number of ranges.
        target: Room for them.
    """
    at = target
    for row in range(count):
        start = get64(places + 16 * row)
        size = get64(places + 16 * row + 8) - start
        copy_short(at, start, size)
        at += size


@kernel
def write_kept(lines: int, rows: int, gone: int, target: int, restarts: int) -> int:
    """Writes the payload of a data block with the entries that stay; returns its size.

    Args:
        lines: Address of the entries of the old block, as ``unpack_blocks`` writes them.
        rows: Number of entries.
        gone: Address of a byte for each entry: not 0 if it does not stay.
        target: Room for keys, values, and ``ENTRY_ROOM_BYTES`` for each row.
        restarts: Room for a word for each ``RESTART_INTERVAL`` rows, and one more.
    """
    at = target
    before = before_size = 0
    entries = count = 0
    for row in range(rows):
        if load8(gone + row) != 0:
            continue
        line = lines + ENTRY_BYTES * row
        key = get64(line)
        size = get64(line + 8) - key + TRAILER_BYTES
        value = get64(line + 16)
        value_size = get64(line + 24) - value
        shared = 0
        if entries % RESTART_INTERVAL == 0:
            put64(restarts + 8 * count, at - target)
            count += 1
        else:
            shared = shared_bytes(before, key, min(before_size, size))
        at = put_varint(at, shared)
        at = put_varint(at, size - shared)
        at = put_varint(at, value_size)
        copy_short(at, key + shared, size - shared)
        at += size - shared
        copy_short(at, value, value_size)
        at += value_size
        before, before_size = key, size
        entries += 1
    return end_block(at, restarts, count) - target if entries else 0


@kernel
def write_index(
    lines: int,
    rows: int,
    has_sizes: bool,
    key_trailer: int,
    block_trailer: int,
    target: int,
    restarts: int,
) -> int:
    """Writes an index block in which every key is whole; returns its size.

    Args:
        lines: Address of lines as ``unpack_index`` writes them.
        rows: Number of lines.
        has_sizes: Whether entries get the size of their value.
        key_trailer: Bytes after a key that belong to it.
        block_trailer: Bytes after a block, which its handle does not count.
        target: Room for the keys, ``INDEX_ROOM_BYTES`` for each line, and four bytes.
        restarts: Room for a word for each line.
    """
    at = target
    for row in range(rows):
        line = lines + INDEX_BYTES * row
        key = get64(line)
        size = get64(line + 8) - key + key_trailer
        offset = get64(line + 16)
        put64(restarts + 8 * row, at - target)
        put8(at, 0)
        at = put_varint(at + 1, size)
        value_size = at
        at += 1 if has_sizes else 0
        copy_short(at, key, size)
        at += size
        value = at
        at = put_varint(at, offset)
        at = put_varint(at, get64(line + 24) - offset - block_trailer)
        if has_sizes:
            put8(value_size, at - value)
    return end_block(at, restarts, rows) - target
