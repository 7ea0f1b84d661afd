"""Who is told of changes of state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.state.tables.state_table import ValueTable


class StateChangeLogger(Protocol):
    """Told of every mutation, after it happened."""

    @property
    def takes_every_update(self) -> bool:
        """Whether each update of a value counts, and not only the last one of a checkpoint."""
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
        """As ``value_updated`` for each of some places."""
        ...

    def values_written(
        self,
        table: ValueTable,
        key_groups: Sequence[int],
        scopes: Sequence[bytes],
        values: Sequence[bytes | None],
    ) -> None:
        """As ``values_updated``, for distinct places whose values are at hand; None was cleared."""
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
