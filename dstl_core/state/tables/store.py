"""Stores of table entries: groups of entries with the interface of dictionaries.

A table has one group per key group. The shape of the table determines what a group maps scopes to.
The same tables work on every store.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from enum import Enum
from typing import Any, Protocol

Group = MutableMapping[bytes, Any]


class Shape(Enum):
    """The form of the entries of a table."""

    ROWS = "rows"
    """A scope maps to the bytes of a value."""
    PAIRS = "pairs"
    """A scope maps to a mapping of user keys to values."""
    ELEMENTS = "elements"
    """An element maps to None."""


class Groups(Protocol):
    """Makes the groups of one table."""

    @property
    def is_sorted(self) -> bool:
        """Whether a group iterates in the order of its keys."""
        ...

    def new_group(self, key_group: int) -> Group:
        """Makes the group of a key group that is new to the store."""
        ...

    def get_many(
        self, groups: dict[int, Group], key_groups: Sequence[int], scopes: Sequence[bytes]
    ) -> list[Any]:
        """The values of rows; None for a row that does not exist."""
        ...

    def put_many(
        self,
        groups: dict[int, Group],
        key_groups: Sequence[int],
        scopes: Sequence[bytes],
        values: Sequence[bytes | None],
    ) -> None:
        """Stores rows in their order; None removes one. It stores all of them or none."""
        ...

    def add_many(
        self, groups: dict[int, Group], key_groups: Sequence[int], elements: Sequence[bytes]
    ) -> None: ...

    def remove_many(
        self, groups: dict[int, Group], key_groups: Sequence[int], elements: Sequence[bytes]
    ) -> None:
        """Removes elements that are there."""
        ...

    def frozen(self, groups: dict[int, Group], view: object) -> dict[int, Group]:
        """The groups as they were when ``EntryStore.view`` returned ``view``."""
        ...


class EntryStore(Protocol):
    """Stores the entries of all tables of one backend."""

    def open_table(self, shape: Shape) -> Groups: ...

    def view(self) -> object:
        """Returns the present moment, for ``Groups.frozen``."""
        ...

    def close(self) -> None: ...


class HeapStore:
    """Entries in dictionaries."""

    def open_table(self, shape: Shape) -> HeapGroups:
        return HeapGroups(shape)

    def view(self) -> object:
        return None

    def close(self) -> None:
        """Does nothing: no resource is open."""


class HeapGroups:
    """Groups as dictionaries, which ``frozen`` copies; keys and values are immutable bytes."""

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

    def add_many(
        self, groups: dict[int, Group], key_groups: Sequence[int], elements: Sequence[bytes]
    ) -> None:
        for key_group, element in zip(key_groups, elements, strict=True):
            groups[key_group][element] = None

    def remove_many(
        self, groups: dict[int, Group], key_groups: Sequence[int], elements: Sequence[bytes]
    ) -> None:
        for key_group, element in zip(key_groups, elements, strict=True):
            del groups[key_group][element]

    def frozen(self, groups: dict[int, Group], view: object) -> dict[int, Group]:
        if self._shape is Shape.PAIRS:
            return {
                key_group: {scope: dict(pairs) for scope, pairs in group.items()}
                for key_group, group in groups.items()
            }
        return {key_group: dict(group) for key_group, group in groups.items()}


HEAP = HeapStore()
