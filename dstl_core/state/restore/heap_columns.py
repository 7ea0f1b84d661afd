"""Keyed state in the heap backend's own form, brought into canonical sections by columns."""

from __future__ import annotations

from dstl_core.codec.columnar.keyed.heap_rows import StoredKeyGroup, read_heap_rows
from dstl_core.codec.columnar.keyed.places import NotInColumns
from dstl_core.codec.columnar.keyed.runs import runs_of, sections_of
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import DstlError
from dstl_core.model.handle import KeyGroupRangeOffsets, KeyGroupsStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore.canonical_reader import read_key_groups, read_stream_header
from dstl_core.state.restore.heap_reader import is_canonical
from dstl_core.storage.handle_resolver import HandleResolver


def open_heap_rows(
    handle: KeyGroupsStateHandle,
    key_groups: KeyGroupRange,
    prefix_bytes: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> tuple[KeyedBackendHeader, bytes, KeyGroupRangeOffsets] | None:
    """The header, and the sections of some key groups with where they start (counted from 1); None
    if the record-wise code has to read them, or to say what is wrong.
    """
    try:
        if handle.state_handle_id is None and is_canonical(handle, resolver):
            return None
        header = read_stream_header(handle, resolver, registry)
        found = list(read_key_groups(handle.offsets, handle.stream, key_groups, resolver))
        if not found:
            return None
        parts, bodies, at = [], [], 0
        for key_group, data in found:
            bodies.append(data.peek(data.position))
            parts.append(StoredKeyGroup(key_group, at, at + len(bodies[-1])))
            at += len(bodies[-1])
        states = read_heap_rows(b"".join(bodies), parts, header)
    except (DstlError, NotInColumns):
        return None
    runs = []
    for state, rows in enumerate(states):
        own = rows.key_groups - key_groups.start_key_group
        runs.append(runs_of(rows.spans, state, own, rows.key_groups, len(key_groups), prefix_bytes))
    return KeyedBackendHeader(header.key_serializer, header.states), *sections_of(runs, key_groups)
