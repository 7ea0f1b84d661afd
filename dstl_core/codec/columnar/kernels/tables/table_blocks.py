"""Reads the blocks of RocksDB's table files in kernels, many blocks at a time.

    payload := entry*, u32 restart offsets, u32 number of restart offsets
    entry   := varint shared, varint rest, varint size of the value, rest of the key, value
    key     := user key, u64 little-endian (sequence number << 8 | kind)

An entry becomes a line of ``ENTRY_WORDS`` words: start and end of the user key, start and end of
the value, and the last eight bytes of the key. Entries of an index become lines of ``INDEX_WORDS``
words: start and end of the user key, offset and end of the block.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.hashing import equal_bytes
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get32, get64, load8, load64, put64
from dstl_core.codec.columnar.kernels.write_runs import copy_short

ENTRY_WORDS = 5
KEY_START, KEY_END, VALUE_START, VALUE_END, TRAILER = range(ENTRY_WORDS)
ENTRY_BYTES = 8 * ENTRY_WORDS
TRAILER_BYTES = 8

INDEX_WORDS = 4
BLOCK_START, BLOCK_END = 2, 3
INDEX_BYTES = 8 * INDEX_WORDS

_SIGN = -0x8000000000000000

# Words that the measuring kernels write: number of entries, and bytes of their keys.
ENTRIES, KEY_BYTES = range(2)
MEASURED_WORDS = 2


@kernel
def read_varint(at: int, end: int, most: int) -> tuple[int, int]:
    """Reads a varint of at most ``most`` bytes; returns it and the position after it, or -1."""
    value = 0
    for i in range(most):
        if at + i >= end:
            break
        byte = load8(at + i)
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, at + i + 1
    return value, -1


@kernel
def entries_end(at: int, end: int) -> int:
    """The end of a payload's entries, or -1: the compiled ``sst.block.entries_end``."""
    if end - at < 4:
        return -1
    restarts = get32(end - 4)
    if restarts <= 0 or end - 4 - 4 * restarts < at:
        return -1
    return end - 4 - 4 * restarts


@kernel
def entry_head(at: int, end: int) -> tuple[int, int, int, int]:
    """Sizes of the shared part, the rest and the value, and the start of the rest, or -1."""
    if end - at >= 3:
        shared, rest, size = load8(at), load8(at + 1), load8(at + 2)
        if (shared | rest | size) < 0x80:
            return shared, rest, size, at + 3
    rest = size = 0
    shared, at = read_varint(at, end, 5)
    if at >= 0:
        rest, at = read_varint(at, end, 5)
    if at >= 0:
        size, at = read_varint(at, end, 5)
    return shared, rest, size, at


@kernel
def measure_blocks(payloads: int, blocks: int, least_key: int, firsts: int, measured: int) -> int:
    """Checks the entries of data blocks, except for the order of keys.

    Args:
        payloads: Address of two words for each block: the start and the end of its payload.
        blocks: Number of blocks.
        least_key: Smallest number of bytes of a user key.
        firsts: Receives the number of the first entry of each block, and that of all entries.
        measured: Receives ``MEASURED_WORDS`` words.

    Returns:
        -1, or the number of the first block with an entry that is wrong.
    """
    count = 0
    total = 0
    for block in range(blocks):
        put64(firsts + 8 * block, count)
        at = get64(payloads + 16 * block)
        end = entries_end(at, get64(payloads + 16 * block + 8))
        if end < 0:
            return block
        key = 0
        while at < end:
            shared, rest, size, at = entry_head(at, end)
            if at < 0 or shared > key or rest + size > end - at:
                return block
            key = shared + rest
            if key < least_key + TRAILER_BYTES:
                return block
            total += key
            count += 1
            at += rest + size
    put64(firsts + 8 * blocks, count)
    put64(measured, count)
    put64(measured + 8, total)
    return -1


@kernel
def compare_bytes(a: int, a_size: int, b: int, b_size: int) -> int:
    """Below 0 if ``a`` sorts before ``b`` as unsigned bytes, above 0 if after it, else 0."""
    size = min(a_size, b_size)
    at = 0
    while size - at >= 8:
        x, y = load64(a + at), load64(b + at)
        if x != y:
            return -1 if (x ^ _SIGN) < (y ^ _SIGN) else 1
        at += 8
    if at < size and size >= 8:  # the last word again, together with bytes that are equal
        x, y = load64(a + size - 8), load64(b + size - 8)
        if x != y:
            return -1 if (x ^ _SIGN) < (y ^ _SIGN) else 1
    else:
        while at < size:
            x, y = load8(a + at), load8(b + at)
            if x != y:
                return x - y
            at += 1
    return a_size - b_size


@kernel
def is_before(a: int, b: int) -> bool:
    """Whether the entry of line ``a`` sorts before that of ``b``: by key, then newest first."""
    start, other = get64(a), get64(b)
    order = compare_bytes(start, get64(a + 8) - start, other, get64(b + 8) - other)
    if order != 0:
        return order < 0
    return (get64(a + 32) ^ _SIGN) > (get64(b + 32) ^ _SIGN)


@kernel
def same_bytes(a: int, a_size: int, b: int, b_size: int) -> bool:
    """Whether two keys are equal; neighbours in a table mostly differ in their last bytes."""
    if a_size != b_size:
        return False
    if a_size < 8:
        return equal_bytes(a, b, a_size)
    return get64(a + a_size - 8) == get64(b + a_size - 8) and equal_bytes(a, b, a_size - 8)


@kernel
def unpack_blocks(payloads: int, blocks: int, keys: int, lines: int) -> int:
    """Writes whole keys one after the other, and one line for each entry.

    ``measure_blocks`` must have checked the blocks; it also returns the needed room.

    Returns:
        -1, or the number of the first block with an entry that is not in order.
    """
    first = lines
    before_size = 0
    for block in range(blocks):
        at = get64(payloads + 16 * block)
        end = entries_end(at, get64(payloads + 16 * block + 8))
        before = keys
        while at < end:
            shared, rest, size, at = entry_head(at, end)
            copy_short(keys, before, shared)
            copy_short(keys + shared, at, rest)
            key_end = keys + shared + rest - TRAILER_BYTES
            put64(lines, keys)
            put64(lines + 8, key_end)
            put64(lines + 16, at + rest)
            put64(lines + 24, at + rest + size)
            put64(lines + 32, get64(key_end))
            if lines != first:
                # Mostly, the first byte that is not shared decides.
                is_sorted = shared < key_end - keys and shared < before_size
                is_sorted = is_sorted and load8(before + shared) < load8(keys + shared)
                if not is_sorted and not is_before(lines - ENTRY_BYTES, lines):
                    return block
            before_size = key_end - keys
            before = keys
            keys += shared + rest
            lines += ENTRY_BYTES
            at += rest + size
    return -1


@kernel
def index_head(at: int, end: int, has_sizes: bool) -> tuple[int, int, int, int]:
    """As ``entry_head``; without sizes, the size is 0."""
    if has_sizes:
        return entry_head(at, end)
    rest = 0
    shared, at = read_varint(at, end, 5)
    if at >= 0:
        rest, at = read_varint(at, end, 5)
    return shared, rest, 0, at


@kernel
def measure_index(at: int, end: int, has_sizes: bool, measured: int) -> bool:
    """Checks the payload of an index block; returns whether its keys are correct.

    Args:
        at: Start of the payload.
        end: End of the payload.
        has_sizes: Whether entries have the size of their value.
        measured: As in ``measure_blocks``.
    """
    end = entries_end(at, end)
    count = 0
    total = 0
    key = 0
    while at < end:
        shared, rest, size, at = index_head(at, end, has_sizes)
        if at < 0 or shared > key or rest > end - at:
            return False
        key = shared + rest
        at += rest
        if has_sizes:
            if size > end - at:
                return False
            at += size
        else:
            _, at = read_varint(at, end, 10)
            if at >= 0 and shared == 0:
                _, at = read_varint(at, end, 10)
            if at < 0:
                return False
        total += key
        count += 1
    put64(measured, count)
    put64(measured + 8, total)
    return at == end


@kernel
def unpack_index(
    at: int, end: int, has_sizes: bool, key_trailer: int, block_trailer: int, keys: int, lines: int
) -> bool:
    """Writes the keys and lines of an index block; False if a key or a handle is too short.

    Args:
        at: Start of the payload, which ``measure_index`` has checked.
        end: End of the payload.
        has_sizes: Whether entries have the size of their value.
        key_trailer: Bytes after the user key of a key.
        block_trailer: Bytes after a block, which its handle does not count.
        keys: Address of the room for keys.
        lines: Address of the room for lines.
    """
    end = entries_end(at, end)
    before = keys
    offset = size = 0
    while at < end:
        shared, rest, value, at = index_head(at, end, has_sizes)
        copy_short(keys, before, shared)
        copy_short(keys + shared, at, rest)
        at += rest
        after = at + value
        if has_sizes or shared == 0:
            stop = after if has_sizes else end
            offset, at = read_varint(at, stop, 10)
            if at >= 0:
                size, at = read_varint(at, stop, 10)
            if at < 0:
                return False
        else:
            zigzag, at = read_varint(at, end, 10)
            offset += size + block_trailer
            size += (zigzag >> 1) ^ -(zigzag & 1)
        if has_sizes:
            at = after
        if shared + rest < key_trailer:
            return False
        put64(lines, keys)
        put64(lines + 8, keys + shared + rest - key_trailer)
        put64(lines + 16, offset)
        put64(lines + 24, offset + size + block_trailer)
        before = keys
        keys += shared + rest
        lines += INDEX_BYTES
    return True
