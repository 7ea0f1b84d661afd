"""Opens the state of some key groups as canonical sections, from handles of any form.

Canonical handles are read piece by piece as they are scanned. RocksDB's table files, the heap
backend's form, and changelogs on any of them are converted by columns. State without a columnar
form is restored record by record: range deletions, merges of namespaces in a changelog, and values
that only Java classes of the job can read. Damaged state takes this way too, and its error comes
from there.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from dstl_core.codec.serializers import AnySerializer, SerializerRegistry
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import FormatError, NotInColumnsError
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.state.restore.canonical import KeyGroupsHandle, read_stream_header
from dstl_core.state.restore.changelog_columns import open_changelog_rows
from dstl_core.state.restore.heap import is_canonical
from dstl_core.state.restore.heap_columns import open_heap_rows
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.restore.rocksdb_columns import open_table_records, open_table_rows
from dstl_core.state.restore.stored_key_groups import (
    StoredKeyGroups,
    StoredRecords,
    in_memory,
    placed_sections,
)
from dstl_core.storage.handle_resolver import HandleResolver


def open_key_groups(
    handle: KeyedStateHandle,
    key_groups: KeyGroupRange,
    max_parallelism: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
    key_serializer: AnySerializer | None = None,
) -> StoredKeyGroups | None:
    """The wanted key groups of a handle; None if it has no state at all.

    Args:
        handle: A handle of any form.
        key_groups: The key groups to read.
        max_parallelism: Number of key groups of the operator.
        resolver: Reads the files.
        registry: Reads the types in the files.
        key_serializer: The type of the key, for logs without a base.
    """
    own = handle.key_group_range.get_intersection(key_groups)
    try:
        return _by_columns(handle, own, max_parallelism, resolver, registry, key_serializer)
    except (NotInColumnsError, FormatError):
        return _by_records(handle, own, max_parallelism, resolver, registry, key_serializer)


def open_records(
    handle: KeyedStateHandle,
    key_groups: KeyGroupRange,
    max_parallelism: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
    key_serializer: AnySerializer | None = None,
) -> StoredRecords | None:
    """As ``open_key_groups``; the rows of table files are not copied into sections."""
    own = handle.key_group_range.get_intersection(key_groups)
    if isinstance(handle, IncrementalRemoteKeyedStateHandle):
        prefix_bytes = key_group_prefix_bytes(max_parallelism)
        with suppress(NotInColumnsError, FormatError):
            return open_table_records(handle, own, prefix_bytes, resolver, registry)
    return open_key_groups(handle, own, max_parallelism, resolver, registry, key_serializer)


def _by_columns(
    handle: KeyedStateHandle,
    own: KeyGroupRange,
    max_parallelism: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
    key_serializer: AnySerializer | None,
) -> StoredKeyGroups:
    prefix_bytes = key_group_prefix_bytes(max_parallelism)
    match handle:
        case IncrementalRemoteKeyedStateHandle():
            return open_table_rows(handle, own, prefix_bytes, resolver, registry)
        case KeyGroupsStateHandle() if not is_canonical(handle, resolver):
            return open_heap_rows(handle, own, prefix_bytes, resolver, registry)
        case KeyGroupsSavepointStateHandle() | KeyGroupsStateHandle():
            return _canonical(handle, own, prefix_bytes, resolver, registry)
        case ChangelogStateBackendHandle():
            return open_changelog_rows(
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
        case _:
            raise NotInColumnsError


def _canonical(
    handle: KeyGroupsHandle,
    own: KeyGroupRange,
    prefix_bytes: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> StoredKeyGroups:
    return StoredKeyGroups(
        read_stream_header(handle, resolver, registry),
        prefix_bytes,
        resolver.describe(handle.stream),
        placed_sections(handle.offsets, handle.stream.state_size, own),
        partial(resolver.read, handle.stream),
    )


def _by_records(
    handle: KeyedStateHandle,
    own: KeyGroupRange,
    max_parallelism: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
    key_serializer: AnySerializer | None,
) -> StoredKeyGroups | None:
    state = restore_keyed_state(
        [handle], own, max_parallelism, resolver, registry, key_serializer=key_serializer
    )
    if state.key_serializer is None:
        return None
    raw, offsets = state.write_canonical()
    header = KeyedBackendHeader(
        state.key_serializer, tuple(table.meta for table in state.tables.values())
    )
    return in_memory(header, raw, offsets, own, key_group_prefix_bytes(max_parallelism))
