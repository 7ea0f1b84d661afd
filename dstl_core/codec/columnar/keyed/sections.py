"""Reads sections of canonical keyed state in chunks, so that memory is bounded for any size.

A chunk holds whole sections, or a part of a section that is larger than a chunk. The code that
scans a part reports the start of the next record, and the next chunk starts there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from dstl_core.codec.columnar.types.scratch import scratch_bytes
from dstl_core.codec.snappy_frames import (
    STREAM_IDENTIFIER,
    decompress_chunks,
    decompress_frames,
    whole_frames_end,
)
from dstl_core.errors import FormatError

CHUNK_BYTES = 4 << 20
"""Fits into the cache of a core, and is a suitable size for a request to an object store."""
UNKNOWN_END = 1 << 46
"""The end of a section whose size is not yet known."""

ReadRange = Callable[[int, int], bytes | memoryview]
"""Reads the bytes ``[start, end)`` of a stream."""


@dataclass(frozen=True, slots=True)
class Section:
    """A key group's section.

    ``start`` and ``end`` are positions in the data of its chunk; ``end`` may lie after that data.
    ``origin`` is the offset of position 0 in messages.
    """

    key_group: int
    start: int
    end: int
    origin: int


@dataclass(frozen=True, slots=True)
class SectionChunk:
    """Sections in one buffer. If ``resumed``, the first one continues the previous chunk's last
    one.
    """

    data: bytes | memoryview
    sections: Sequence[Section]
    resumed: bool = False


SectionChunks = Generator[SectionChunk, int | None, None]
"""Chunks; ``send`` takes the start of the next record of a part, or None at its end."""


def plain_chunks(
    read: ReadRange,
    sections: Sequence[tuple[int, int, int]],
    chunk_bytes: int = CHUNK_BYTES,
    whole_bytes: int = 0,
) -> SectionChunks:
    """Chunks of uncompressed sections.

    Args:
        read: Reads the stream.
        sections: ``(key group, start, end)`` in the stream, ascending; a section ends at ``end`` or
            earlier.
        chunk_bytes: Number of bytes to read at once.
        whole_bytes: Sections of up to this size are not split.
    """
    for run in _runs(sections, chunk_bytes):
        start, end = run[0][1], run[-1][2]
        if len(run) == 1 and end - start > max(chunk_bytes, whole_bytes):
            yield from _plain_parts(read, run[0], chunk_bytes)
            continue
        data = read(start, end)
        placed = [Section(group, first - start, last - start, start) for group, first, last in run]
        yield SectionChunk(data, placed)


def _plain_parts(read: ReadRange, section: tuple[int, int, int], chunk_bytes: int) -> SectionChunks:
    key_group, start, end = section
    at, size = start, chunk_bytes
    while at < end:
        data = read(at, min(end, at + size))
        part = Section(key_group, 0, end - at, at)
        unread = yield SectionChunk(data, [part], resumed=at > start)
        if unread is None:
            return
        # A record that is larger than a chunk gets a larger chunk.
        size = chunk_bytes if unread else 2 * size
        at += unread


def compressed_chunks(
    read: ReadRange,
    sections: Sequence[tuple[int, int, int]],
    chunk_bytes: int = CHUNK_BYTES,
    whole_bytes: int = 0,
) -> SectionChunks:
    """Chunks of sections that are each a Snappy-framed stream.

    Arguments are those of ``plain_chunks``, but ``whole_bytes`` counts compressed bytes. Offsets in
    messages count in the uncompressed section.
    """
    for run in _runs(sections, chunk_bytes // 2):
        start, end = run[0][1], run[-1][2]
        if len(run) == 1 and end - start > max(chunk_bytes // 2, whole_bytes):
            yield from _compressed_parts(read, run[0], chunk_bytes // 2)
            continue
        raw = bytes(read(start, end))
        placed: list[Section] = []
        parts: list[bytes] = []
        size = 0
        for key_group, first, last in run:
            part = _decompressed(raw, first - start, last - start, start)
            placed.append(Section(key_group, size, size + len(part), -size))
            parts.append(part)
            size += len(part)
            if size >= chunk_bytes:
                yield SectionChunk(b"".join(parts), placed)
                placed, parts, size = [], [], 0
        if placed:
            yield SectionChunk(b"".join(parts), placed)


def _decompressed(raw: bytes, start: int, end: int, origin: int) -> bytes:
    try:
        return decompress_frames(raw, start, end)
    except FormatError as error:
        raise error.moved(origin) from error


def _compressed_parts(
    read: ReadRange, section: tuple[int, int, int], chunk_bytes: int
) -> SectionChunks:
    key_group, at, end = section
    mark = len(STREAM_IDENTIFIER)
    raw = bytes(read(at, min(end, at + mark)))
    _decompressed(raw, 0, len(raw), at)
    at += mark
    raw, pending = b"", memoryview(b"")
    origin = 0
    while True:
        begin = at - len(raw)
        raw = b"".join([raw, read(at, min(end, at + chunk_bytes))])
        at = min(end, at + chunk_bytes)
        cut = _whole_frames(raw, begin)
        is_last = at == end or (cut < len(raw) and raw[cut] == STREAM_IDENTIFIER[0])
        if is_last and cut < len(raw) and raw[cut] != STREAM_IDENTIFIER[0]:
            # The stream ends inside a chunk; the check of the whole stream reports the place.
            torn = STREAM_IDENTIFIER + raw[cut:]
            _decompressed(torn, 0, len(torn), begin + cut - mark)
        try:
            pending = decompress_chunks(raw, 0, cut, pending, scratch_bytes)
        except FormatError as error:
            raise error.moved(begin) from error
        raw = raw[cut:]
        limit = len(pending) if is_last else UNKNOWN_END
        unread = yield SectionChunk(pending, [Section(key_group, 0, limit, origin)], origin > 0)
        if unread is None or is_last:
            return
        pending = pending[unread:]
        origin += unread


def _whole_frames(raw: bytes, origin: int) -> int:
    try:
        return whole_frames_end(raw, 0)
    except FormatError as error:
        raise error.moved(origin) from error


def _runs(
    sections: Sequence[tuple[int, int, int]], most_bytes: int
) -> Generator[list[tuple[int, int, int]], None, None]:
    """Groups of neighbouring sections that are read at once."""
    run: list[tuple[int, int, int]] = []
    for section in sections:
        if run and (section[2] - run[0][1] > most_bytes or section[1] != run[-1][2]):
            yield run
            run = []
        run.append(section)
    if run:
        yield run
