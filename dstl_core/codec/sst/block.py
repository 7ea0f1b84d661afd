"""Blocks of RocksDB's table files: checksum, compression, entries.

    block   := payload, u8 compression, u32 checksum                 (all little-endian)
    payload := entry*, u32 restart offsets, u32 number of restart offsets
    entry   := varint shared, varint rest, [varint value size], rest of the key, value

``shared`` is the number of bytes that a key shares with the key before it. Index blocks with delta
encoding omit the value size. Source: ``table/block_based`` and ``table/format.cc`` of RocksDB 8.10.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import cramjam
import xxhash

from dstl_core.codec.checksums import masked_crc32c
from dstl_core.errors import FormatError

BLOCK_TRAILER_BYTES = 5
MAX_BLOCK_BYTES = 64 << 20
"""Largest unpacked size of a block, unless 16 times the packed size is more."""
_MOST_TIMES_KEYS = 16
"""RocksDB writes a whole key after 16 entries by default."""

XXH3_LAST_BYTE = 0x6B9083D9
_U32 = 0xFFFFFFFF


class BlockHandle(NamedTuple):
    """The place of a block in its file; ``size`` excludes the trailer."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size + BLOCK_TRAILER_BYTES


def read_varint(raw: bytes, at: int, end: int, max_bytes: int = 10) -> tuple[int, int]:
    """Reads a number; returns ``(value, end of the number)``.

    Raises:
        FormatError: The number does not end.
    """
    value = shift = 0
    last = min(end, at + max_bytes)
    for place in range(at, last):
        byte = raw[place]
        if byte < 0x80:
            return value | byte << shift, place + 1
        value |= (byte & 0x7F) << shift
        shift += 7
    raise FormatError(
        "A variable-length number does not end",
        offset=max(at, last),
        expected=f"<= {max_bytes} bytes",
    )


def varint(value: int) -> bytes:
    """A number as ``read_varint`` reads it."""
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if 1 << 21 <= value < 1 << 28:
        ends = value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21
        return bytes((value & 0x7F | 0x80, *ends))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_handle(raw: bytes, at: int, end: int) -> tuple[BlockHandle, int]:
    offset, at = read_varint(raw, at, end)
    if at + 2 <= end and raw[at + 1] < 0x80 <= raw[at]:  # most blocks have some kilobytes
        return BlockHandle(offset, raw[at] & 0x7F | raw[at + 1] << 7), at + 2
    size, at = read_varint(raw, at, end)
    return BlockHandle(offset, size), at


def unpack_block(raw: bytes, checksum_type: int, offset: int) -> bytes:
    """Unpacks a block with its trailer; ``offset`` is its offset in the file."""
    if len(raw) < BLOCK_TRAILER_BYTES:
        raise FormatError("A block is too short", offset=offset, expected=">= 5", got=len(raw))
    packed, compression = raw[:-BLOCK_TRAILER_BYTES], raw[-BLOCK_TRAILER_BYTES]
    stored = int.from_bytes(raw[-4:], "little")
    computed = block_checksum(packed, compression, checksum_type, offset)
    if computed is not None and computed != stored:
        raise FormatError(
            "The checksum of a block is wrong; the file is damaged",
            offset=offset,
            expected=f"{stored:08x}",
            got=f"{computed:08x}",
        )
    return _decompress(packed, compression, offset)


def block_checksum(packed: bytes, compression: int, checksum_type: int, offset: int) -> int | None:
    """The checksum of a block and the byte behind it; None for files that have none.

    Raises:
        FormatError: The type is unknown.
    """
    last = bytes((compression,))
    match checksum_type:
        case 0:
            return None
        case 1:
            return masked_crc32c(packed + last)
        case 2:
            return xxhash.xxh32_intdigest(packed + last)
        case 3:
            return xxhash.xxh64_intdigest(packed + last) & _U32
        case 4:
            low = xxhash.xxh3_64_intdigest(packed) & _U32
            return low ^ compression * XXH3_LAST_BYTE & _U32
    raise FormatError(
        "A table file has an unknown checksum", offset=offset, expected="0..4", got=checksum_type
    )


def _decompress(packed: bytes, compression: int, offset: int) -> bytes:
    if compression == 0:
        return packed
    limit = max(MAX_BLOCK_BYTES, 16 * len(packed))
    # A Snappy block starts with its unpacked size; for other codecs RocksDB puts the size in front.
    size, start = read_varint(packed, 0, len(packed), 5)
    if size > limit:
        raise FormatError("A block is too large", offset=offset, expected=f"<= {limit}", got=size)
    body = packed[start:]
    try:
        match compression:
            case 1:
                payload = bytes(cramjam.snappy.decompress_raw(packed))
            case 2:
                payload = zlib.decompressobj(-14).decompress(body, size)
            case 4 | 5:
                payload = bytes(cramjam.lz4.decompress_block(body, output_len=size))
            case 7:
                target = bytearray(size)
                written = cramjam.zstd.decompress_into(body, target)
                payload = bytes(target[:written])
            case _:
                raise FormatError(
                    "The compression of a block is not supported",
                    offset=offset,
                    expected="none, Snappy, Zlib, LZ4 or ZSTD",
                    got=compression,
                )
    except (cramjam.DecompressionError, zlib.error, OverflowError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"A compressed block is damaged ({error})", offset=offset) from error
    if len(payload) != size:
        raise FormatError(
            "The unpacked size of a block differs from the size that it declares",
            offset=offset,
            expected=size,
            got=len(payload),
        )
    return payload


def entries_end(payload: bytes, offset: int) -> int:
    """The end of the entries, where the restart offsets begin."""
    if len(payload) < 4:
        raise FormatError("A block has no restart offsets", offset=offset, got=len(payload))
    restarts = int.from_bytes(payload[-4:], "little")
    if restarts >> 31:
        raise FormatError("A block has a hash index, which is not supported", offset=offset)
    end = len(payload) - 4 - 4 * restarts
    if restarts == 0 or end < 0:
        raise FormatError(
            "A block is too short for its restart offsets", offset=offset, got=f"{restarts} of them"
        )
    return end


def keys_limit(stored: int) -> int:
    """How many bytes the keys of some blocks may have, without the parts that they share.

    A few bytes of an entry stand for a key of any size.

    Args:
        stored: Size of the unpacked blocks.
    """
    return max(MAX_BLOCK_BYTES, _MOST_TIMES_KEYS * stored)


def keys_too_large(offset: int, limit: int) -> FormatError:
    """The error for blocks whose keys have more bytes than ``keys_limit``."""
    return FormatError(
        "The keys of a table file are too large together",
        offset=offset,
        expected=f"<= {limit} bytes, the parts that they share counted for each",
    )


def block_entries(payload: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields each ``(key, value)`` of a data or meta block."""
    at, end, key = 0, entries_end(payload, offset), b""
    room = limit = keys_limit(len(payload))
    while at < end:
        shared = rest = size = 0x80
        if at + 3 <= end:
            shared, rest, size = payload[at], payload[at + 1], payload[at + 2]
        if (shared | rest | size) < 0x80:
            at += 3
        else:
            shared, at = read_varint(payload, at, end, 5)
            rest, at = read_varint(payload, at, end, 5)
            size, at = read_varint(payload, at, end, 5)
        if shared > len(key) or at + rest + size > end:
            raise _bad_entry(offset)
        room -= shared + rest
        if room < 0:
            raise keys_too_large(offset, limit)
        key = key[:shared] + payload[at : at + rest]
        at += rest
        yield key, payload[at : at + size]
        at += size


def index_entries(
    payload: bytes, offset: int, *, delta_encoded: bool
) -> Iterator[tuple[bytes, BlockHandle]]:
    """Yields ``(key, handle)`` of an index block; each key is at or above all keys of its block."""
    if not delta_encoded:
        for key, value in block_entries(payload, offset):
            yield key, read_handle(value, 0, len(value))[0]
        return
    at, end, key = 0, entries_end(payload, offset), b""
    room = limit = keys_limit(len(payload))
    handle = BlockHandle(0, 0)
    while at < end:
        shared = rest = 0x80
        if at + 2 <= end:
            shared, rest = payload[at], payload[at + 1]
        if (shared | rest) < 0x80:
            at += 2
        else:
            shared, at = read_varint(payload, at, end, 5)
            rest, at = read_varint(payload, at, end, 5)
        if shared > len(key) or at + rest > end:
            raise _bad_entry(offset)
        room -= shared + rest
        if room < 0:
            raise keys_too_large(offset, limit)
        key = key[:shared] + payload[at : at + rest]
        at += rest
        if shared == 0:
            handle, at = read_handle(payload, at, end)
        else:
            zigzag, at = read_varint(payload, at, end)
            size = handle.size + ((zigzag >> 1) ^ -(zigzag & 1))
            handle = BlockHandle(handle.end, size)
        yield key, handle


def whole_key_block(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A block of these keys and values, in order, in which every key is whole."""
    parts: list[bytes] = []
    restarts: list[bytes] = []
    at = 0
    for key, text in entries:
        entry = b"\0" + varint(len(key)) + varint(len(text)) + key + text
        restarts.append(at.to_bytes(4, "little"))
        parts.append(entry)
        at += len(entry)
    return b"".join([*parts, *restarts, len(restarts).to_bytes(4, "little")])


def _bad_entry(offset: int) -> FormatError:
    return FormatError("An entry of a block is longer than the block", offset=offset)
