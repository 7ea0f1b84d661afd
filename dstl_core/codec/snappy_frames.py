"""Snappy's framing format, with which Flink compresses key groups and changelog segments.

Stream identifier ``FF 06 00 00 sNaPpY``, then chunks ``u8 type, u24 little-endian length, data``.
Chunk lengths are checked before anything is decompressed, and every checksum is verified. Skippable
chunks are refused: Flink writes none, and one damaged bit can turn a data chunk into one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import cramjam

from dstl_core.errors import FormatError

STREAM_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED = 0x00
_UNCOMPRESSED = 0x01
_MAX_CHUNK_DATA = 65536
MOST_TIMES = 32
"""Snappy unpacks at most 64 bytes from 3 bytes, so a stream that claims more is damaged."""


def compress_frames(raw: bytes | memoryview) -> bytes:
    """Compresses bytes to one framed stream."""
    return bytes(cramjam.snappy.compress(raw))


def compress_together(parts: Sequence[bytes | memoryview]) -> memoryview:
    """Compresses parts one after the other to one framed stream. Other threads run meanwhile."""
    raw = parts[0] if len(parts) == 1 else b"".join(parts)
    return memoryview(cramjam.snappy.compress(raw))


def frames_end(buffer: bytes | memoryview, start: int, end: int) -> int:
    """The end of the framed stream that starts at ``start``: the next identifier, or ``end``.

    Checks the length of each chunk, and that a chunk claims at most 64 KiB of data.
    """
    return _measured_frames(buffer, start, end)[0]


def _measured_frames(buffer: bytes | memoryview, start: int, end: int) -> tuple[int, int]:
    """The end of a framed stream, and the size of its data."""
    _check_identifier(buffer, start, end)
    position = start + len(STREAM_IDENTIFIER)
    total = 0
    while position < end and buffer[position] != STREAM_IDENTIFIER[0]:
        position, size = _measured_chunk(buffer, position, end)
        total += size
    if position < end:
        _check_identifier(buffer, position, end)
    return position, total


def _check_identifier(buffer: bytes | memoryview, position: int, end: int) -> None:
    found = buffer[position : min(position + len(STREAM_IDENTIFIER), end)]
    if found != STREAM_IDENTIFIER:
        raise FormatError(
            "Compressed data does not start as a Snappy stream",
            offset=position,
            expected=STREAM_IDENTIFIER.hex(),
            got=found.hex() or "nothing",
        )


def _measured_chunk(buffer: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """The end of a chunk, and the size of its data."""
    kind = buffer[position]
    size = int.from_bytes(buffer[position + 1 : position + 4], "little")
    if position + 4 + size > end:
        raise FormatError(
            "A Snappy chunk is longer than the data",
            offset=position,
            expected=f"<= {end - position - 4}",
            got=size,
        )
    if kind not in (_COMPRESSED, _UNCOMPRESSED):
        raise FormatError(
            "A Snappy chunk has a type that Flink does not write",
            offset=position,
            expected="0 or 1",
            got=kind,
        )
    return position + 4 + size, _data_size(buffer, position, size, kind)


def _data_size(buffer: bytes | memoryview, position: int, size: int, kind: int) -> int:
    if size < 4:
        raise FormatError("A Snappy chunk has no checksum", offset=position, got=size)
    data_size = size - 4
    if kind == _COMPRESSED:
        data_size, shift = 0, 0
        for byte in buffer[position + 8 : min(position + 13, position + 4 + size)]:
            data_size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
    if data_size > _MAX_CHUNK_DATA:
        raise FormatError(
            "A Snappy chunk is too large", offset=position, expected="<= 65536", got=data_size
        )
    return data_size


def decompress_frames(buffer: bytes | memoryview, start: int, end: int) -> bytes:
    """Decompresses the framed stream at ``start``; ignores the bytes after it."""
    stop = frames_end(buffer, start, end)
    try:
        return bytes(cramjam.snappy.decompress(buffer[start:stop]))
    except cramjam.DecompressionError as error:
        raise _damaged(start, error) from error


Allocate = Callable[[int], bytearray | memoryview]
"""Makes writable memory of at least so many bytes."""


def decompress_all_frames(
    buffer: bytes | memoryview, start: int, allocate: Allocate = bytearray
) -> memoryview:
    """Decompresses up to the end of the buffer; the stream identifier may repeat.

    Other threads run meanwhile.
    """
    stops, total = [start], 0
    while stops[-1] < len(buffer) or len(stops) == 1:
        stop, size = _measured_frames(buffer, stops[-1], len(buffer))
        stops.append(stop)
        total += size
    view = memoryview(buffer)
    room = memoryview(allocate(min(total, MOST_TIMES * (len(view) - start))))
    filled = 0
    for at, stop in pairwise(stops):
        try:
            filled += cramjam.snappy.decompress_into(view[at:stop], room[filled:])
        except cramjam.DecompressionError as error:
            raise _damaged(at, error) from error
    return room[:filled].toreadonly()


def _damaged(start: int, error: Exception) -> FormatError:
    return FormatError(
        f"Compressed data is damaged ({error})", offset=start, expected="a Snappy stream"
    )


def whole_frames_end(buffer: bytes, start: int) -> int:
    """The end of the last complete chunk from ``start``, or the start of the next stream.

    The bytes up to there can be decompressed when only a part of a stream is present.
    """
    position = start
    while position + 4 <= len(buffer) and buffer[position] != STREAM_IDENTIFIER[0]:
        size = int.from_bytes(buffer[position + 1 : position + 4], "little")
        if position + 4 + size > len(buffer):
            break
        position, _ = _measured_chunk(buffer, position, len(buffer))
    return position
