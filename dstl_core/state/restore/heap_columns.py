"""Converts keyed state in the heap backend's form to canonical sections, by columns."""

from __future__ import annotations

from dstl_core.codec.columnar.keyed.heap_rows import StoredKeyGroup, read_heap_rows
from dstl_core.codec.columnar.keyed.runs import runs_of, sections_of
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import NotInColumnsError
from dstl_core.model.handle import KeyGroupsStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore.canonical import read_key_groups, read_stream_header
from dstl_core.state.restore.stored_key_groups import StoredKeyGroups, in_memory
from dstl_core.storage.handle_resolver import HandleResolver


def open_heap_rows(
    handle: KeyGroupsStateHandle,
    key_groups: KeyGroupRange,
    prefix_bytes: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> StoredKeyGroups:
    """The sections of some key groups, built in memory.

    Raises:
        NotInColumnsError: The state has no columnar form.
        FormatError: The stream is damaged.
    """
    header = read_stream_header(handle, resolver, registry)
    parts, bodies, at = [], [], 0
    for key_group, data in read_key_groups(handle.offsets, handle.stream, key_groups, resolver):
        bodies.append(data.peek(data.position))
        parts.append(StoredKeyGroup(key_group, at, at + len(bodies[-1])))
        at += len(bodies[-1])
    if not parts:
        raise NotInColumnsError  # the restore by records makes its tables
    runs = []
    for state, rows in enumerate(read_heap_rows(b"".join(bodies), parts, header)):
        own = rows.key_groups - key_groups.start_key_group
        runs.append(runs_of(rows.spans, state, own, rows.key_groups, len(key_groups), prefix_bytes))
    plain = KeyedBackendHeader(header.key_serializer, header.states)
    return in_memory(plain, *sections_of(runs, key_groups), key_groups, prefix_bytes)
