"""Keyed state of some key groups as canonical sections, whatever form it is stored in.

Canonical handles are read piece by piece as they are scanned. RocksDB's table files, the heap
backend's own form, and changelogs on top of any of them are put together by columns. What columns
do not hold (range deletions, merges of namespaces in a changelog, values that only Java classes of
the job can tell apart, damage) is restored record by record.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from dstl_core.codec.columnar.keyed.sections import (
    CHUNK_BYTES,
    SectionChunks,
    compressed_chunks,
    plain_chunks,
)
from dstl_core.codec.serializers import AnySerializer, SerializerRegistry
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import FormatError, error_context
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.state.restore.canonical_reader import read_stream_header
from dstl_core.state.restore.changelog_columns import open_changelog_rows
from dstl_core.state.restore.heap_columns import open_heap_rows
from dstl_core.state.restore.rocksdb_columns import open_table_rows
from dstl_core.state.tables.keyed_state import restore_keyed_state
from dstl_core.storage.handle_resolver import HandleResolver

ReadRange = Callable[[int, int], bytes]
Placed = list[tuple[int, int, int]]


@dataclass(frozen=True)
class StoredKeyGroups:
    """Sections of one handle: its header, and where they lie."""

    header: KeyedBackendHeader
    prefix_bytes: int
    location: str
    sections: Placed
    """``(key group, start, end)``, ascending by start."""
    read: ReadRange

    def chunks(self, chunk_bytes: int = CHUNK_BYTES, whole_bytes: int = 0) -> SectionChunks:
        """The sections in bounded pieces; those up to ``whole_bytes`` are never cut."""
        chunks = compressed_chunks if self.header.compressed else plain_chunks
        return chunks(self.read, self.sections, chunk_bytes, whole_bytes)

    def with_sections(self, sections: Placed) -> StoredKeyGroups:
        """The same handle, some of its key groups."""
        return replace(self, sections=sections)

    def context(self) -> AbstractContextManager[None]:
        """Adds the place of the stream to errors."""
        return error_context(location=self.location)


def open_key_groups(
    handle: KeyedStateHandle,
    key_groups: KeyGroupRange,
    max_parallelism: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
    key_serializer: AnySerializer | None = None,
) -> StoredKeyGroups | None:
    """The wanted key groups of a handle; None if it holds no state at all.

    Args:
        handle: Of any form.
        key_groups: What to read.
        max_parallelism: Key groups of the operator.
        resolver: Reads the files.
        registry: Knows the types.
        key_serializer: The type of the key, for logs without a base.
    """
    prefix_bytes = key_group_prefix_bytes(max_parallelism)
    if isinstance(handle, KeyGroupsSavepointStateHandle):
        header = read_stream_header(handle, resolver, registry)
        sections = placed_sections(handle.offsets, handle.stream.state_size, key_groups)
        location = resolver.describe(handle.stream)
        return StoredKeyGroups(
            header, prefix_bytes, location, sections, partial(resolver.read, handle.stream)
        )
    own = handle.key_group_range.get_intersection(key_groups)
    stored = None
    if isinstance(handle, IncrementalRemoteKeyedStateHandle):
        stored = open_table_rows(handle, own, prefix_bytes, resolver, registry)
    elif isinstance(handle, KeyGroupsStateHandle):
        stored = open_heap_rows(handle, own, prefix_bytes, resolver, registry)
    elif isinstance(handle, ChangelogStateBackendHandle):
        stored = open_changelog_rows(
            handle,
            own,
            prefix_bytes,
            resolver,
            registry,
            lambda base: open_key_groups(
                base, own, max_parallelism, resolver, registry, key_serializer
            ),
            key_serializer,
        )
    if stored is not None:
        header, raw, offsets = stored
        return _in_memory(header, prefix_bytes, raw, offsets, own)
    state = restore_keyed_state(
        [handle], own, max_parallelism, resolver, registry, key_serializer=key_serializer
    )
    if state.key_serializer is None:
        return None
    raw, offsets = state.write_canonical()
    header = KeyedBackendHeader(
        state.key_serializer, tuple(table.meta for table in state.tables.values())
    )
    return _in_memory(header, prefix_bytes, raw, offsets, own)


def _in_memory(
    header: KeyedBackendHeader,
    prefix_bytes: int,
    raw: bytes,
    offsets: KeyGroupRangeOffsets,
    key_groups: KeyGroupRange,
) -> StoredKeyGroups:
    sections = placed_sections(offsets, len(raw), key_groups)
    return StoredKeyGroups(
        header, prefix_bytes, "restored state", sections, lambda start, end: raw[start:end]
    )


def placed_sections(offsets: KeyGroupRangeOffsets, size: int, key_groups: KeyGroupRange) -> Placed:
    """Where the sections of some key groups lie in a stream of ``size`` bytes.

    Raises:
        FormatError: One begins behind the end.
    """
    used = sorted({offset for offset in offsets.offsets if offset})
    if not used:
        return []
    if used[-1] >= size:
        raise FormatError(
            "A key group lies outside its stream",
            field="key-group offset",
            expected=f"< {size}",
            got=used[-1],
        )
    ends = dict(zip(used, [*used[1:], size][: len(used)], strict=True))
    wanted = (
        (key_group, offset, ends[offset])
        for key_group, offset in offsets.items()
        if offset and key_groups.contains(key_group)
    )
    return sorted(wanted, key=lambda section: section[1])
