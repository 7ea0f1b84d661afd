"""Creates the table for a kind of state."""

from __future__ import annotations

from typing import Any

from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import BackendStateType, KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import FormatError
from dstl_core.state.tables.queue_table import QueueTable
from dstl_core.state.tables.state_table import ListTable, MapTable, StateTable, ValueTable
from dstl_core.state.tables.store import HEAP, EntryStore


def create_table(
    meta: StateMetaInfoSnapshot,
    key_serializer: AnySerializer,
    prefix_bytes: int,
    store: EntryStore = HEAP,
) -> StateTable[Any]:
    """Creates an empty table for a kind of state.

    Raises:
        FormatError: ``meta`` does not describe keyed state.
    """
    kind = _kind_of(meta)
    return kind(meta, key_serializer, prefix_bytes, store.open_table(kind.shape))


def _kind_of(meta: StateMetaInfoSnapshot) -> type[StateTable[Any]]:
    if meta.is_queue:
        return QueueTable
    if meta.backend_state_type is not BackendStateType.KEY_VALUE:
        raise FormatError(
            f"State {meta.name!r} is not keyed state",
            expected="KEY_VALUE or PRIORITY_QUEUE",
            got=meta.backend_state_type.name,
        )
    match meta.keyed_state_type:
        case KeyedStateType.LIST:
            return ListTable
        case KeyedStateType.MAP:
            return MapTable
        case _:
            return ValueTable
