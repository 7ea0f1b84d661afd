"""The places of canonical sections of some key groups, and how to read them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from dstl_core.codec.columnar.keyed.sections import (
    CHUNK_BYTES,
    SectionChunks,
    compressed_chunks,
    plain_chunks,
)
from dstl_core.codec.columnar.keyed.spans import SectionScanner, SpanBatch
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import error_context
from dstl_core.model.handle import KeyGroupRangeOffsets
from dstl_core.model.key_group import KeyGroupRange

if TYPE_CHECKING:
    from dstl_core.codec.columnar.keyed.runs import Sections

ReadRange = Callable[[int, int], bytes | memoryview]
Placed = list[tuple[int, int, int]]


class StoredRecords(Protocol):
    """The records of some key groups of one handle."""

    @property
    def header(self) -> KeyedBackendHeader: ...
    @property
    def prefix_bytes(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of the stored records, which may be packed."""

    @property
    def has_states_apart(self) -> bool:
        """Whether to read one state is to read nothing of the others."""

    def records(self, wanted: Sequence[bool]) -> Iterator[SpanBatch]:
        """Yields the records of the states whose ids are ``wanted``."""

    def context(self) -> AbstractContextManager[None]:
        """Adds the location of the records to errors."""

    def as_sections(self) -> StoredKeyGroups:
        """The same records as canonical sections."""


@dataclass(frozen=True)
class StoredKeyGroups:
    """The header of one handle and the places of its sections."""

    header: KeyedBackendHeader
    prefix_bytes: int
    location: str
    sections: Placed
    """``(key group, start, end)``, ascending by start."""
    read: ReadRange
    has_states_apart: ClassVar[bool] = False

    @property
    def size(self) -> int:
        return sum(end - start for _, start, end in self.sections)

    def chunks(self, chunk_bytes: int = CHUNK_BYTES, whole_bytes: int = 0) -> SectionChunks:
        """Reads the sections in bounded pieces; sections up to ``whole_bytes`` stay whole."""
        chunks = compressed_chunks if self.header.compressed else plain_chunks
        return chunks(self.read, self.sections, chunk_bytes, whole_bytes)

    def records(self, wanted: Sequence[bool]) -> Iterator[SpanBatch]:
        return SectionScanner(self.prefix_bytes, wanted).batches(self.chunks())

    def as_sections(self) -> StoredKeyGroups:
        return self

    def with_sections(self, sections: Placed) -> StoredKeyGroups:
        """The same handle with only these sections."""
        return replace(self, sections=sections)

    def context(self) -> AbstractContextManager[None]:
        """Adds the location of the stream to errors."""
        return error_context(location=self.location)


def in_memory(
    header: KeyedBackendHeader,
    raw: bytes | memoryview,
    offsets: KeyGroupRangeOffsets,
    key_groups: KeyGroupRange,
    prefix_bytes: int,
) -> StoredKeyGroups:
    """The sections of some key groups, from bytes in memory."""
    sections = offsets.sections(len(raw), key_groups)
    return StoredKeyGroups(
        header, prefix_bytes, "restored state", sections, lambda start, end: raw[start:end]
    )


def in_parts(
    header: KeyedBackendHeader, parts: Sequence[Sections], prefix_bytes: int
) -> StoredKeyGroups:
    """The sections of several ranges of key groups, ascending, each from bytes in memory."""
    sections: Placed = []
    firsts = [0]
    for raw, offsets in parts:
        first = firsts[-1]
        placed = offsets.sections(len(raw))
        sections += [(group, first + start, first + end) for group, start, end in placed]
        firsts.append(first + len(raw) + 1)  # a gap, so that nothing is read across two parts

    def read(start: int, end: int) -> memoryview:
        at = bisect_right(firsts, start) - 1
        return parts[at][0][start - firsts[at] : end - firsts[at]]

    return StoredKeyGroups(header, prefix_bytes, "restored state", sections, read)


def joined(parts: Sequence[StoredKeyGroups]) -> StoredKeyGroups:
    """The sections of several small parts with one header, copied together, so that they are read
    as one.
    """
    sections: Placed = []
    copies: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        if not part.sections:
            continue
        first, last = part.sections[0][1], part.sections[-1][2]
        copies.append(part.read(first, last))
        moved = size - first
        sections += [(group, start + moved, end + moved) for group, start, end in part.sections]
        size += last - first
    raw = b"".join(copies)
    return replace(
        parts[0],
        location="several files",
        sections=sections,
        read=lambda start, end: raw[start:end],
    )
