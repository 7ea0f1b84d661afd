"""The interface of state that the readers of handles fill."""

from __future__ import annotations

from typing import Any, Protocol

from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.tables.state_table import StateTable


class KeyedTables(Protocol):
    """Tables of one key-group range; ``KeyedState`` implements it."""

    key_groups: KeyGroupRange
    max_parallelism: int
    prefix_bytes: int
    key_serializer: AnySerializer | None

    def table(self, meta: StateMetaInfoSnapshot, key_serializer: AnySerializer) -> StateTable[Any]:
        """The table of a state; creates it if it is new."""
        ...
