"""Handles into tables: the state of some key groups, restored from every form that Flink writes.

Large bases go by columns. What columns do not hold, and what is damaged, goes record by record;
that also says what is wrong.
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
from dstl_core.state.restore.rocksdb import load_rocksdb
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.store import HEAP, EntryStore
from dstl_core.storage.handle_resolver import HandleResolver

_COLUMNS_FROM_BYTES = 1 << 20
"""Below this size the kernels cost more to load than they save."""


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
) -> KeyedState:
    """The state of ``key_groups`` from all handles that hold part of it.

    Args:
        handles: Canonical, heap, RocksDB or changelog handles of one operator.
        key_groups: What to take; the rest of the handles is left out.
        max_parallelism: The number of key groups of the operator.
        resolver: Reads the files.
        registry: Knows the types.
        key_serializer: The type of the key, for logs without a base.
        keep_going: Keep what can be read if some entries can only be read by Java classes of the
            job; ``KeyedState.lost`` says which are missing.
        store: Where the entries go.

    Raises:
        RestoreError: A handle cannot be restored, or entries would be missing.
        FormatError: Damaged bytes.
    """
    state = KeyedState(key_groups, max_parallelism, store)
    state.key_serializer = key_serializer
    for handle in handles:
        if not len(handle.key_group_range.get_intersection(key_groups)):
            continue
        if isinstance(handle, ChangelogStateBackendHandle):
            for base in handle.materialized:
                _load_base(state, base, resolver, registry)
            replay_changelog(state, handle, resolver, registry)
        else:
            _load_base(state, handle, resolver, registry)
    if not keep_going:
        state.check_complete()
    return state


def _load_base(
    state: KeyedState,
    handle: KeyedStateHandle,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> None:
    if handle.state_size >= _COLUMNS_FROM_BYTES:
        from dstl_core.state.restore.load_sections import load_by_columns  # it compiles kernels

        try:
            load_by_columns(state, handle, resolver, registry)
            return
        except NotInColumnsError:
            pass
    match handle:
        case KeyGroupsSavepointStateHandle():
            load_canonical(state, handle, resolver, registry)
        case KeyGroupsStateHandle():
            load_heap(state, handle, resolver, registry)
        case IncrementalRemoteKeyedStateHandle():
            load_rocksdb(state, handle, resolver, registry)
        case _:
            raise RestoreError(
                f"A handle of this kind is no keyed state by itself: got {type(handle).__name__}."
            )
