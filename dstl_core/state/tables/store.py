"""Where the entries of tables are kept: groups of entries that behave like dictionaries.

A table has one group per key group. What a group maps its scopes to depends on the table's shape;
the tables themselves are the same whatever the store.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from enum import Enum
from typing import Any, Protocol

Group = MutableMapping[bytes, Any]


class Shape(Enum):
    """What the entries of a table are."""

    ROWS = "rows"
    """Scope to the bytes of a value."""
    PAIRS = "pairs"
    """Scope to a mapping of user keys to values."""
    ELEMENTS = "elements"
    """An element, to None."""


class Groups(Protocol):
    """Makes the groups of one table."""

    @property
    def is_sorted(self) -> bool:
        """Whether a group iterates in order of its keys, from disk."""
        ...

    def new_group(self, key_group: int) -> Group:
        """The group of a key group, which the store has not seen."""
        ...

    def get_many(
        self, groups: dict[int, Group], key_groups: Sequence[int], scopes: Sequence[bytes]
    ) -> list[Any]:
        """The values of rows, None where there is none."""
        ...

    def put_many(
        self,
        groups: dict[int, Group],
        key_groups: Sequence[int],
        scopes: Sequence[bytes],
        values: Sequence[bytes | None],
    ) -> None:
        """Stores rows in their order; None removes one. All of them, or none."""
        ...

    def frozen(self, groups: dict[int, Group], view: object) -> dict[int, Group]:
        """The groups as they are at a moment; ``view`` is what ``EntryStore.view`` gave then."""
        ...


class EntryStore(Protocol):
    """Keeps the entries of all tables of one backend."""

    def open_table(self, shape: Shape) -> Groups: ...

    def view(self) -> object:
        """A moment that ``Groups.frozen`` can go back to."""
        ...

    def close(self) -> None: ...


class HeapStore:
    """Entries in dictionaries."""

    def open_table(self, shape: Shape) -> HeapGroups:
        return HeapGroups(shape)

    def view(self) -> object:
        return None

    def close(self) -> None:
        """Nothing is open."""


class HeapGroups:
    """Dictionaries, copied when they are frozen; keys and values are immutable bytes."""

    is_sorted = False

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def new_group(self, key_group: int) -> Group:
        return {}

    def get_many(
        self, groups: dict[int, Group], key_groups: Sequence[int], scopes: Sequence[bytes]
    ) -> list[Any]:
        return [
            groups[key_group].get(scope)
            for key_group, scope in zip(key_groups, scopes, strict=True)
        ]

    def put_many(
        self,
        groups: dict[int, Group],
        key_groups: Sequence[int],
        scopes: Sequence[bytes],
        values: Sequence[bytes | None],
    ) -> None:
        for key_group, scope, value in zip(key_groups, scopes, values, strict=True):
            if value is None:
                groups[key_group].pop(scope, None)
            else:
                groups[key_group][scope] = value

    def frozen(self, groups: dict[int, Group], view: object) -> dict[int, Group]:
        if self._shape is Shape.PAIRS:
            return {
                key_group: {scope: dict(pairs) for scope, pairs in group.items()}
                for key_group, group in groups.items()
            }
        return {key_group: dict(group) for key_group, group in groups.items()}


HEAP = HeapStore()
