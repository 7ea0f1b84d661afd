"""The interface of a backend for its state objects."""

from __future__ import annotations

from typing import Any, Protocol

from dstl_core.codec.serializers import AnySerializer
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.held.added_elements import AddedElements
from dstl_core.state.held.change_logger import StateChangeLogger
from dstl_core.state.held.held_values import HeldValues
from dstl_core.state.tables.state_table import ListTable, StateTable, ValueTable
from dstl_core.state.tables.ttl import TtlPolicy


class CurrentKey(Protocol):
    """The part of a backend that its state objects use: the current key and the logger."""

    logger: StateChangeLogger | None
    key_serializer: AnySerializer
    slot: int
    """The number of the current key in the present batch; -1 outside a batch."""

    @property
    def current_key(self) -> bytes: ...

    def scope(self, namespace: bytes) -> bytes: ...

    @property
    def current_key_group(self) -> int:
        """The key group of the current key; -1 if no key was set."""
        ...

    @property
    def key_group_range(self) -> KeyGroupRange: ...

    @property
    def number_of_key_groups(self) -> int:
        """The maximum parallelism of the operator."""
        ...

    def clean_up(self, table: StateTable[Any], ttl: TtlPolicy) -> None:
        """Removes a few expired entries of a table."""
        ...

    def held_values(self, table: ValueTable) -> HeldValues | None:
        """The held values of a state in batches; None for a state with namespaces."""
        ...

    def hold(self, held: HeldValues) -> bool:
        """Reads the values of all keys of the batch.

        Returns:
            False if there is no batch, if the values are too large, or if every update is logged.
        """
        ...

    def added_elements(self, table: ListTable) -> AddedElements | None:
        """What holds the elements that a batch adds to a state; None for one with namespaces."""
        ...

    def write_back(self, held: HeldValues | AddedElements) -> None:
        """Stores and logs what is held before the end of the batch: it has become too large."""
        ...
