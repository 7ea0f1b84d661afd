"""Loads keyed state in the heap backend's form into tables."""

from __future__ import annotations

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.heap_native import UnreadableRest, read_key_group
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.errors import error_context
from dstl_core.model.handle import KeyGroupsStateHandle
from dstl_core.state.restore.canonical import (
    load_canonical,
    read_key_groups,
    read_stream_header,
)
from dstl_core.state.tables.keyed_tables import KeyedTables
from dstl_core.storage.handle_resolver import HandleResolver


def load_heap(
    state: KeyedTables,
    handle: KeyGroupsStateHandle,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> None:
    """Loads the wanted key groups of a handle into the tables of a state."""
    if is_canonical(handle, resolver):
        load_canonical(state, handle, resolver, registry)
        return
    header = read_stream_header(handle, resolver, registry)
    tables = [state.table(meta, header.key_serializer) for meta in header.states]
    with error_context(location=resolver.describe(handle.stream)):
        for key_group, data in read_key_groups(
            handle.offsets, handle.stream, state.key_groups, resolver
        ):
            for entry in read_key_group(data, header, key_group):
                if isinstance(entry, UnreadableRest):
                    for state_id in entry.state_ids:
                        tables[state_id].lost[key_group, None] = entry.error.message
                else:
                    table = tables[entry.state_id]
                    table.load_entry(key_group, entry.scope, entry.value, entry.pairs)


def is_canonical(handle: KeyGroupsStateHandle, resolver: HandleResolver) -> bool:
    """Whether a handle of an older release has the canonical form (RocksDB's full snapshots had).

    Such a handle does not name its form. A heap stream has an offset for every key group and the
    number of the key group at that offset.
    """
    if handle.state_handle_id is not None:
        return False
    for key_group, offset in handle.offsets.items():
        if offset == 0:
            return True
        if key_group > 0 and offset + 4 <= handle.stream.state_size:
            raw = resolver.read(handle.stream, offset, offset + 4)
            return DataInput(raw).read_i32("key group") != key_group
    return False
