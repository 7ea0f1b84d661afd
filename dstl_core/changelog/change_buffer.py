"""Collects the changes of a writer since its last rollover.

Single changes go into one list per key group; columns stay columns. The bytes are encoded once,
when the change set is closed.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from dstl_core.codec.change_format import write_groups
from dstl_core.codec.data_io import DataOutput
from dstl_core.errors import ChangelogError, ConfigError
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.key_group import KeyGroupRange

if TYPE_CHECKING:
    from dstl_core.codec.columnar.changes.sets import ChangeColumns

_COLUMNS = "dstl_core.changelog.columnar_sets"
# Smaller sets are encoded in Python: the kernels cost more per call, and a second to load.
_KERNELS_FROM_CHANGES = 200
_LOAD_KERNELS_FROM_CHANGES = 10_000

_FILLS_A_MAP = frozenset(12 * 2**power + 1 for power in range(13))
_NO_GROUP = -2
_NEVER = (_NO_GROUP, -1)

Groups = dict[int, list[bytes]]


class ChangeBuffer:
    """Changes in append order: parts of columns, and lists per key group since the last part.

    Owned by one writer. ``appends`` maps a key group to the bound ``append`` of its list, so one
    look-up is both the range check and the append. ``appends`` does not contain metadata.
    """

    __slots__ = ("_before", "_groups", "_opened", "_parts", "appends")

    def __init__(self) -> None:
        self.appends: dict[int, Callable[[bytes], None]] = {}
        self._groups: Groups = {}
        self._parts: list[ChangeColumns | Groups] = []
        self._opened = _NEVER
        self._before = self._groups, self._opened

    def __bool__(self) -> bool:
        return bool(self._groups) or bool(self._parts)

    def open_group(self, key_group: int) -> Callable[[bytes], None]:
        """Opens the list of a key group that has none; returns its ``append``."""
        values: list[bytes] = []
        self._groups[key_group] = values
        append = values.append
        if key_group != META_KEY_GROUP:
            self.appends[key_group] = append
        # Java's map grows at the start of the call after the one that fills it. So the order of
        # groups depends on whether the last change opened its group, which lists per group do not
        # record. Where it can matter, the changes so far are counted: at the sizes at which a map
        # grows, or always if parts of columns may contain further groups.
        groups = len(self._groups)
        if self._parts or groups in _FILLS_A_MAP:
            self._opened = key_group, self._count() + 1
        return append

    def append_meta(self, value: bytes) -> None:
        values = self._groups.get(META_KEY_GROUP)
        if values is None:
            self.open_group(META_KEY_GROUP)(value)
        else:
            values.append(value)

    def _count(self) -> int:
        return sum(map(len, self._groups.values()))

    def take_back(self, key_group: int) -> None:
        """Undoes the last single append, which had this key group."""
        values = self._groups[key_group]
        values.pop()
        if not values:
            del self._groups[key_group]
            self.appends.pop(key_group, None)
            self._opened = _NEVER

    def add_columns(self, columns: ChangeColumns) -> None:
        if self._groups:
            self._parts.append(self._groups)
        self._before = self._groups, self._opened
        self._use(({}, _NEVER))
        self._parts.append(columns)

    def take_back_columns(self) -> None:
        """Undoes the last ``add_columns``. No append may follow it."""
        self._parts.pop()
        self._use(self._before)
        if self._groups:
            self._parts.pop()

    def _use(self, lists: tuple[Groups, tuple[int, int]]) -> None:
        self._groups, self._opened = lists
        self.appends.clear()
        for key_group, values in self._groups.items():
            if key_group != META_KEY_GROUP:
                self.appends[key_group] = values.append

    def encode(self, key_group_range: KeyGroupRange) -> memoryview:
        few = _KERNELS_FROM_CHANGES if _COLUMNS in sys.modules else _LOAD_KERNELS_FROM_CHANGES
        if not self._parts and self._count() < few:
            out = DataOutput()
            write_groups(out, self._groups, last_is_new=self._last_opened() != _NO_GROUP)
            return memoryview(out.to_bytes())
        from dstl_core.changelog import columnar_sets

        parts = [*self._parts, self._groups] if self._groups else self._parts
        last_opened = self._last_opened() if self._groups else None
        return columnar_sets.encode(parts, key_group_range, last_opened)

    def _last_opened(self) -> int:
        """The group that the last append opened, if it matters for the order."""
        key_group, count = self._opened
        return key_group if count == self._count() else _NO_GROUP


def check_key_group(key_group: object, key_group_range: KeyGroupRange) -> int:
    """Checks the key group of a change and returns it as an int.

    Raises:
        ConfigError: The key group is not an integer.
        ChangelogError: It is outside the range.
    """
    try:
        number = operator.index(key_group)  # type: ignore[arg-type]  # that is the question
    except TypeError:
        raise ConfigError(
            f"A key group has to be an integer, got {type(key_group).__name__}."
        ) from None
    if not key_group_range.contains(number):
        raise ChangelogError(
            f"A change is outside its writer's key groups: expected {key_group_range}, got "
            f"{number}.",
            key_group=number,
        )
    return number


def check_payload(value: object) -> bytes:
    """Checks the bytes of a change; copies them if the caller could modify them later."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ConfigError(f"A change has to be bytes, got {type(value).__name__}.")
