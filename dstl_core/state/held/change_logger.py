"""The interface of a logger of state changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.state.tables.state_table import ValueTable


class StateChangeLogger(Protocol):
    """Called for every change of state, after the change."""

    @property
    def takes_every_update(self) -> bool:
        """Whether it needs every update of a value, not only the last one before a checkpoint."""
        ...

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
        """As ``value_updated`` for many places."""
        ...

    def values_written(
        self,
        table: ValueTable,
        key_groups: Sequence[int],
        scopes: Sequence[bytes],
        values: Sequence[bytes | None],
    ) -> None:
        """As ``values_updated``, for distinct places with known values; None: it was cleared."""
        ...

    def logged_batch(
        self,
        meta: StateMetaInfoSnapshot,
        operation: StateChangeOperation,
        key_groups: Sequence[int],
        scopes: Sequence[bytes],
        operands: Sequence[bytes],
    ) -> None:
        """As ``logged`` for many places, in their order."""
        ...

    def migrated(self, meta: StateMetaInfoSnapshot) -> None:
        """Called when the values of a state get another type."""
        ...
