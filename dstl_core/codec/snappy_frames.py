"""Snappy's framing format, with which Flink compresses key groups and changelog segments.

Stream identifier ``FF 06 00 00 sNaPpY``, then chunks ``u8 type, u24 little-endian length, data``.
Chunk lengths are checked before anything is decompressed, and every checksum is verified. Skippable
chunks are refused: Flink writes none, and one damaged bit can turn a data chunk into one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import cramjam

from dstl_core.codec.checksums import masked_crc32c
from dstl_core.errors import FormatError

STREAM_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED = 0x00
_UNCOMPRESSED = 0x01
_HEAD = struct.Struct("<II")
"""Of a chunk: the type in the low byte with the length above it, and the checksum of the data."""
MAX_CHUNK_DATA = 65536
_SAMPLE_BYTES = MAX_CHUNK_DATA >> 3
_WHOLE_EVERY = 16
"""Of data that does not shrink, one chunk in so many is tried as a whole."""
PIECE_BYTES = 1 << 20
"""A stream that is made a piece at a time has pieces of about this size."""
MOST_TIMES = 32
"""Snappy unpacks at most 64 bytes from 3 bytes, so a stream that claims more is damaged."""
MAX_UNPACKED_BYTES = 4 << 30
"""Largest size of data that is unpacked at once, unless the packed data is larger."""


Allocate = Callable[[int], bytearray | memoryview]
"""Makes writable memory of at least so many bytes."""


def compress_frames(raw: bytes | memoryview) -> bytes:
    """Compresses bytes to one framed stream."""
    return bytes(compress_together([raw]))


def compress_together(
    parts: Sequence[bytes | memoryview], allocate: Allocate = bytearray
) -> memoryview:
    """Compresses parts one after the other to one framed stream. Other threads run meanwhile.

    As in Flink's library, data that Snappy shrinks by less than an eighth is stored as it is.
    ``_ChunkWriter`` says how that is known.
    """
    total = sum(map(len, parts))
    if not total:
        return memoryview(b"")
    at = len(STREAM_IDENTIFIER)
    heads = _HEAD.size * (total // MAX_CHUNK_DATA + 1)
    out = memoryview(allocate(at + heads + total + _more_for(total)))
    out[:at] = STREAM_IDENTIFIER
    chunks = _ChunkWriter()
    for data in _pieces(parts):
        at = chunks.write(out, at, data)
    return out[:at].toreadonly()


def compressed_pieces(parts: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Yields the framed stream that ``compress_frames`` makes of the parts together, in pieces of
    about a megabyte. Memory holds one of them.
    """
    room = PIECE_BYTES + _HEAD.size + MAX_CHUNK_DATA + _more_for(MAX_CHUNK_DATA)
    out = memoryview(bytearray(room))
    at = len(STREAM_IDENTIFIER)
    out[:at] = STREAM_IDENTIFIER
    chunks = _ChunkWriter()
    for data in _pieces(parts):
        at = chunks.write(out, at, data)
        if at >= PIECE_BYTES:
            yield bytes(out[:at])
            at = 0
    if at:
        yield bytes(out[:at])


def _more_for(size: int) -> int:
    """What Snappy may need more for a chunk than its data, while it is made."""
    return 32 + min(size, MAX_CHUNK_DATA) // 6


class _ChunkWriter:
    """Writes the chunks of one stream.

    Behind a chunk that does not shrink, mostly comes another one. Then the last eighth of the data
    says whether the chunk is tried as a whole. Repetitions that are further apart than that are
    found by one chunk in sixteen.
    """

    def __init__(self) -> None:
        self._stored = 0
        """Chunks since the last one that shrank."""

    def write(self, out: memoryview, at: int, data: bytes) -> int:
        """Writes a chunk into memory that has room for it; returns its end."""
        body = out[at + _HEAD.size :]
        size = self._packed_into(body, data)
        kind = _COMPRESSED
        if size is None:
            kind, size = _UNCOMPRESSED, len(data)
            body[:size] = data
        _HEAD.pack_into(out, at, kind | size + 4 << 8, masked_crc32c(data))
        return at + _HEAD.size + size

    def _packed_into(self, body: memoryview, data: bytes) -> int | None:
        """The size of the data, packed; None if it is stored as it is."""
        size = None
        if self._stored % _WHOLE_EVERY == 0 or _packed_into(body, data[-_SAMPLE_BYTES:]):
            size = _packed_into(body, data)
        self._stored = self._stored + 1 if size is None else 0
        return size


def _packed_into(body: memoryview, data: bytes) -> int | None:
    size: int = cramjam.snappy.compress_raw_into(data, body)
    return size if size < len(data) - len(data) // 8 else None


def _pieces(parts: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The parts one after the other, in pieces of the size of a chunk."""
    rest = b""
    for part in parts:
        view = memoryview(part)
        start = 0
        if rest:
            start = MAX_CHUNK_DATA - len(rest)
            rest += view[:start]
            if len(rest) < MAX_CHUNK_DATA:
                continue
            yield rest
            rest = b""
        for at in range(start, len(view), MAX_CHUNK_DATA):
            rest = bytes(view[at : at + MAX_CHUNK_DATA])
            if len(rest) == MAX_CHUNK_DATA:
                yield rest
                rest = b""
    if rest:
        yield rest


def frames_end(buffer: bytes | memoryview, start: int, end: int) -> int:
    """The end of the framed stream that starts at ``start``: the next identifier, or ``end``.

    Checks the length of each chunk, and that a chunk claims at most 64 KiB of data.
    """
    stop = start + len(STREAM_IDENTIFIER)
    for chunk in _chunks(buffer, start, end):
        stop = chunk.end
    return stop


class _Chunk(NamedTuple):
    """The place of a chunk, and the size of its data."""

    position: int
    end: int
    data_size: int


def _chunks(buffer: bytes | memoryview, start: int, end: int) -> Iterator[_Chunk]:
    """The chunks of the framed stream at ``start``, up to the next identifier or ``end``."""
    _check_identifier(buffer, start, end)
    position = start + len(STREAM_IDENTIFIER)
    while position < end and buffer[position] != STREAM_IDENTIFIER[0]:
        chunk = _chunk_at(buffer, position, end)
        yield chunk
        position = chunk.end
    if position < end:
        _check_identifier(buffer, position, end)


def chunk_sizes(buffer: bytes | memoryview, start: int) -> Iterator[tuple[int, int]]:
    """Yields ``(position, bytes of its data)`` of every chunk from ``start`` to the end of the
    buffer. ``start`` is behind the stream identifier.

    Raises:
        FormatError: A chunk is damaged.
    """
    position = start
    while position < len(buffer):
        chunk = _chunk_at(buffer, position, len(buffer))
        yield position, chunk.data_size
        position = chunk.end


def _check_identifier(buffer: bytes | memoryview, position: int, end: int) -> None:
    identifier = buffer[position : min(position + len(STREAM_IDENTIFIER), end)]
    if identifier != STREAM_IDENTIFIER:
        raise FormatError(
            "Compressed data does not start as a Snappy stream",
            offset=position,
            expected=STREAM_IDENTIFIER.hex(),
            got=identifier.hex() or "nothing",
        )


def _chunk_at(buffer: bytes | memoryview, position: int, end: int) -> _Chunk:
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
    return _Chunk(position, position + 4 + size, _data_size(buffer, position, size, kind))


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
    if data_size > MAX_CHUNK_DATA:
        raise FormatError(
            "A Snappy chunk is too large", offset=position, expected="<= 65536", got=data_size
        )
    return data_size


def decompress_frames(buffer: bytes | memoryview, start: int, end: int) -> bytes:
    """Decompresses the framed stream at ``start``; ignores the bytes after it."""
    chunks = list(_chunks(buffer, start, end))
    most = max(MAX_UNPACKED_BYTES, end - start)
    return bytes(_unpacked(buffer, start, chunks, bytearray, most))


def decompress_chunks(
    buffer: bytes | memoryview,
    start: int,
    end: int,
    before: bytes | memoryview = b"",
    allocate: Allocate = bytearray,
) -> memoryview:
    """Decompresses the chunks in ``[start, end)``, a part of a framed stream without its
    identifier; their data comes behind the bytes ``before``.
    """
    chunks, position = [], start
    while position < end:
        chunks.append(_chunk_at(buffer, position, end))
        position = chunks[-1].end
    most = max(MAX_UNPACKED_BYTES, end - start)
    return _unpacked(buffer, start, chunks, allocate, most, before)


def decompress_all_frames(
    buffer: bytes | memoryview,
    start: int,
    allocate: Allocate = bytearray,
    most: int = MAX_UNPACKED_BYTES,
) -> memoryview:
    """Decompresses up to the end of the buffer; the stream identifier may repeat.

    Other threads run meanwhile.

    Raises:
        FormatError: The data is damaged, or has more than ``most`` bytes.
    """
    chunks: list[_Chunk] = []
    at = start
    while at < len(buffer) or at == start:
        more = list(_chunks(buffer, at, len(buffer)))
        chunks += more
        at = more[-1].end if more else at + len(STREAM_IDENTIFIER)
    return _unpacked(buffer, start, chunks, allocate, most)


def _unpacked(
    buffer: bytes | memoryview,
    start: int,
    chunks: Sequence[_Chunk],
    allocate: Allocate,
    most: int,
    before: bytes | memoryview = b"",
) -> memoryview:
    view, filled = memoryview(buffer), len(before)
    total = sum(chunk.data_size for chunk in chunks)
    if total > most:
        raise FormatError(
            "Compressed data is too large", offset=start, expected=f"<= {most} bytes", got=total
        )
    room = memoryview(allocate(filled + min(total, MOST_TIMES * (len(view) - start))))
    room[:filled] = before
    for chunk in chunks:
        data = room[filled : filled + chunk.data_size]
        _unpack_into(view, chunk, data)
        filled += len(data)
    return room[:filled].toreadonly()


def _unpack_into(view: memoryview, chunk: _Chunk, data: memoryview) -> None:
    body = view[chunk.position + _HEAD.size : chunk.end]
    size = len(body)
    if view[chunk.position] == _COMPRESSED:
        try:
            size = cramjam.snappy.decompress_raw_into(body, data)
        except cramjam.DecompressionError as error:
            raise _damaged(chunk, str(error)) from error
    elif size == len(data):
        data[:] = body
    if size != chunk.data_size or size != len(data):
        raise _damaged(chunk, f"{size} bytes instead of {chunk.data_size}")
    _, stored = _HEAD.unpack_from(view, chunk.position)
    if masked_crc32c(bytes(data)) != stored:
        raise _damaged(chunk, "its checksum is another one")


def _damaged(chunk: _Chunk, why: str) -> FormatError:
    return FormatError(
        f"Compressed data is damaged ({why})", offset=chunk.position, expected="a Snappy stream"
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
        position = _chunk_at(buffer, position, len(buffer)).end
    return position
