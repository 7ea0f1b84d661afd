"""What access objects need of the backend that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.tables.state_table import StateTable, ValueTable
from dstl_core.state.tables.ttl import TtlPolicy


class StateChangeLogger(Protocol):
    """Told of every mutation, after it happened."""

    def value_updated(self, table: ValueTable, key_group: int, scope: bytes) -> None: ...

    def logged(
        self,
        meta: StateMetaInfoSnapshot,
        key_group: int,
        operation: StateChangeOperation,
        scope: bytes,
        operands: bytes,
    ) -> None: ...

    def values_updated(
        self, table: ValueTable, key_groups: Sequence[int], scopes: Sequence[bytes]
    ) -> None:
        """As ``value_updated`` for each of some places."""
        ...

    def logged_batch(
        self,
        meta: StateMetaInfoSnapshot,
        operation: StateChangeOperation,
        key_groups: Sequence[int],
        scopes: Sequence[bytes],
        operands: Sequence[bytes],
    ) -> None:
        """As ``logged`` for each of some places, in their order."""
        ...

    def migrated(self, meta: StateMetaInfoSnapshot) -> None:
        """The values of a state have another type from here on."""
        ...


class CurrentKey(Protocol):
    """A backend as its access objects see it: the current key, and who is told of changes."""

    logger: StateChangeLogger | None
    key_serializer: AnySerializer
    current_key: bytes
    current_key_group: int

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups of the backend."""
        ...

    @property
    def number_of_key_groups(self) -> int:
        """The maximum parallelism of the operator."""
        ...

    def clean_up(self, table: StateTable[Any], ttl: TtlPolicy) -> None:
        """Removes some expired entries of a table."""
        ...
