"""Snappy's framing format, with which Flink compresses key groups and changelog segments.

Stream identifier ``FF 06 00 00 sNaPpY``, then chunks ``u8 type, u24 little-endian length, data``.
Chunk lengths are checked before anything is decompressed, and every checksum is verified. Skippable
chunks are refused: Flink writes none, and one damaged bit can turn a data chunk into one.
"""

from __future__ import annotations

import cramjam

from dstl_core.errors import FormatError

STREAM_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED = 0x00
_UNCOMPRESSED = 0x01
_MAX_CHUNK_DATA = 65536


def compress_frames(raw: bytes | memoryview) -> bytes:
    """Compresses bytes to one framed stream."""
    return bytes(cramjam.snappy.compress(raw))


def frames_end(buffer: bytes | memoryview, start: int, end: int) -> int:
    """The end of the framed stream that starts at ``start``: the next identifier, or ``end``.

    Checks the length of each chunk, and that a chunk claims at most 64 KiB of data.
    """
    _check_identifier(buffer, start, end)
    position = start + len(STREAM_IDENTIFIER)
    while position < end and buffer[position] != STREAM_IDENTIFIER[0]:
        position = _chunk_end(buffer, position, end)
    if position < end:
        _check_identifier(buffer, position, end)
    return position


def _check_identifier(buffer: bytes | memoryview, position: int, end: int) -> None:
    found = buffer[position : min(position + len(STREAM_IDENTIFIER), end)]
    if found != STREAM_IDENTIFIER:
        raise FormatError(
            "Compressed data does not start as a Snappy stream",
            offset=position,
            expected=STREAM_IDENTIFIER.hex(),
            got=found.hex() or "nothing",
        )


def _chunk_end(buffer: bytes | memoryview, position: int, end: int) -> int:
    kind = buffer[position]
    size = int.from_bytes(buffer[position + 1 : position + 4], "little")
    if position + 4 + size > end:
        raise FormatError(
            "A Snappy chunk is longer than the data",
            offset=position,
            expected=f"<= {end - position - 4}",
            got=size,
        )
    if kind in (_COMPRESSED, _UNCOMPRESSED):
        _check_data_chunk(buffer, position, size, kind)
    else:
        raise FormatError(
            "A Snappy chunk has a type that Flink does not write",
            offset=position,
            expected="0 or 1",
            got=kind,
        )
    return position + 4 + size


def _check_data_chunk(buffer: bytes | memoryview, position: int, size: int, kind: int) -> None:
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


def decompress_frames(buffer: bytes | memoryview, start: int, end: int) -> bytes:
    """Decompresses the framed stream at ``start``; ignores the bytes after it."""
    return _decompress(buffer, start, frames_end(buffer, start, end))


def decompress_all_frames(buffer: bytes | memoryview, start: int) -> bytes:
    """Decompresses up to the end of the buffer; the stream identifier may repeat."""
    parts = []
    while True:
        stop = frames_end(buffer, start, len(buffer))
        parts.append(_decompress(buffer, start, stop))
        if stop == len(buffer):
            return b"".join(parts)
        start = stop


def _decompress(buffer: bytes | memoryview, start: int, stop: int) -> bytes:
    try:
        return bytes(cramjam.snappy.decompress(buffer[start:stop]))
    except cramjam.DecompressionError as error:
        raise FormatError(
            f"Compressed data is damaged ({error})", offset=start, expected="a Snappy stream"
        ) from error


def whole_frames_end(buffer: bytes, start: int) -> int:
    """The end of the last complete chunk from ``start``, or the start of the next stream.

    The bytes up to there can be decompressed when only a part of a stream is present.
    """
    position = start
    while position + 4 <= len(buffer) and buffer[position] != STREAM_IDENTIFIER[0]:
        size = int.from_bytes(buffer[position + 1 : position + 4], "little")
        if position + 4 + size > len(buffer):
            break
        position = _chunk_end(buffer, position, len(buffer))
    return position
