"""What access objects need of the backend that they belong to."""

from __future__ import annotations

from typing import Any, Protocol

from dstl_core.codec.serializers import AnySerializer
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.held.change_logger import StateChangeLogger
from dstl_core.state.held.held_values import HeldValues
from dstl_core.state.tables.state_table import StateTable, ValueTable
from dstl_core.state.tables.ttl import TtlPolicy


class CurrentKey(Protocol):
    """A backend as its access objects see it: the current key, and who is told of changes."""

    logger: StateChangeLogger | None
    key_serializer: AnySerializer
    slot: int
    """The number of the current key in the batch that applies; -1 outside of batches."""

    @property
    def current_key(self) -> bytes:
        """The bytes of the current key."""
        ...

    @property
    def current_key_group(self) -> int:
        """Its key group; -1 if no key was set."""
        ...

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

    def held_values(self, table: ValueTable) -> HeldValues | None:
        """What holds the values of a state while a batch applies; None for one with namespaces."""
        ...

    def hold(self, held: HeldValues) -> bool:
        """Reads the values of the keys of a batch; False if there is no batch, if they are too
        large, or if every update has to be logged.
        """
        ...

    def let_go(self, held: HeldValues) -> None:
        """Stores and logs values before the end of the batch, for which they are too large."""
        ...
