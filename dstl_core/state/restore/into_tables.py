"""Restores the state of some key groups into tables, from every form that Flink writes.

Large bases are loaded by columns. State without a columnar form and damaged state is loaded record
by record; the error of damaged state comes from there.
"""

from __future__ import annotations

from collections.abc import Iterable

from dstl_core.codec.serializers import BUILT_IN, AnySerializer, SerializerRegistry
from dstl_core.errors import NotInColumnsError, RestoreError
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore.canonical import load_canonical
from dstl_core.state.restore.changelog import replay_changelog
from dstl_core.state.restore.heap import load_heap
from dstl_core.state.restore.kernel_sizes import are_read_by_kernels
from dstl_core.state.restore.open_tables import OpenTables
from dstl_core.state.restore.rocksdb import load_rocksdb
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.store import HEAP, EntryStore
from dstl_core.storage.handle_resolver import HandleResolver


def restore_keyed_state(
    handles: Iterable[KeyedStateHandle],
    key_groups: KeyGroupRange,
    max_parallelism: int,
    resolver: HandleResolver,
    registry: SerializerRegistry = BUILT_IN,
    *,
    key_serializer: AnySerializer | None = None,
    keep_going: bool = False,
    store: EntryStore = HEAP,
    tables: OpenTables | None = None,
) -> KeyedState:
    """Restores the state of ``key_groups`` from all handles that have part of it.

    Args:
        handles: Canonical, heap, RocksDB or changelog handles of one operator.
        key_groups: The key groups to restore; others in the handles are skipped.
        max_parallelism: The number of key groups of the operator.
        resolver: Reads the files.
        registry: Reads the types in the files.
        key_serializer: The type of the key, for logs without a base.
        keep_going: Whether entries that only Java classes of the job can read are skipped;
            ``KeyedState.lost`` lists them.
        store: Stores the entries.
        tables: Holds the table files of a handle that is read in several calls.

    Raises:
        RestoreError: A handle cannot be restored, or entries would be missing.
        FormatError: The bytes are damaged.
    """
    tables = tables or OpenTables(resolver, registry)
    state = KeyedState(key_groups, max_parallelism, store)
    state.key_serializer = key_serializer
    for handle in handles:
        if not len(handle.key_group_range.get_intersection(key_groups)):
            continue
        if isinstance(handle, ChangelogStateBackendHandle):
            for base in handle.materialized:
                _load_base(state, base, tables)
            replay_changelog(state, handle, resolver, registry)
        else:
            _load_base(state, handle, tables)
    if not keep_going:
        state.check_complete()
    return state


def _load_base(state: KeyedState, handle: KeyedStateHandle, tables: OpenTables) -> None:
    resolver, registry = tables.resolver, tables.registry
    if are_read_by_kernels(handle.state_size):
        from dstl_core.state.restore.load_sections import load_by_columns  # it compiles kernels

        try:
            load_by_columns(state, handle, tables)
            return
        except NotInColumnsError:
            pass
    match handle:
        case KeyGroupsSavepointStateHandle():
            load_canonical(state, handle, resolver, registry)
        case KeyGroupsStateHandle():
            load_heap(state, handle, resolver, registry)
        case IncrementalRemoteKeyedStateHandle():
            opened = tables.of(handle)
            load_rocksdb(state, handle, opened.header, opened.families)
        case _:
            raise RestoreError(
                f"Keyed state cannot be restored from a handle of type {type(handle).__name__}."
            )
