"""The changes that a writer has taken since its last rollover.

One change a call goes into a list per key group and is never packed; columns stay columns. Bytes
are made once, when the set is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import numpy as np

from dstl_core.codec.change_format import write_groups
from dstl_core.codec.columnar.change_sets import ChangeColumns, encode_change_set
from dstl_core.codec.data_io import DataOutput
from dstl_core.errors import ConfigError
from dstl_core.model.key_group import KeyGroupRange

_KERNEL_FROM_CHANGES = 200
"""Sets below this are encoded in Python, where starting the kernels costs more."""

Groups = dict[int, list[bytes]]


class ChangeBuffer:
    """Changes in append order: parts of columns, and lists per key group since the last part.

    Owned by one writer. ``appends`` maps a key group to its list's bound ``append``: a look-up is
    the range check and the append in one.
    """

    __slots__ = ("_groups", "_parts", "appends")

    def __init__(self) -> None:
        self.appends: dict[int, Callable[[bytes], None]] = {}
        self._groups: Groups = {}
        self._parts: list[ChangeColumns | Groups] = []

    def __bool__(self) -> bool:
        return bool(self._groups) or bool(self._parts)

    def open_group(self, key_group: int) -> Callable[[bytes], None]:
        """The append of a key group that has none yet."""
        values: list[bytes] = []
        self._groups[key_group] = values
        append = values.append
        self.appends[key_group] = append
        return append

    def take_back(self, key_group: int) -> None:
        """Undoes the last single append, which was to this key group."""
        values = self._groups[key_group]
        values.pop()
        if not values:
            del self._groups[key_group], self.appends[key_group]

    def add_columns(self, columns: ChangeColumns) -> None:
        if self._groups:
            self._parts.append(self._groups)
            self._groups = {}
            self.appends.clear()
        self._parts.append(columns)

    def take_back_columns(self) -> None:
        """Undoes the last ``add_columns``; the lists before it stay a part of their own."""
        self._parts.pop()

    def encode(self, key_group_range: KeyGroupRange) -> memoryview:
        """The bytes of the set."""
        parts = [*self._parts, self._groups] if self._groups else self._parts
        if len(parts) == 1 and isinstance(parts[0], dict):
            groups = parts[0]
            if sum(map(len, groups.values())) < _KERNEL_FROM_CHANGES:
                out = DataOutput()
                write_groups(out, groups)
                return memoryview(out.to_bytes())
        columns = [_columns(part) if isinstance(part, dict) else part for part in parts]
        return encode_change_set(columns, key_group_range)


def _columns(groups: Groups) -> ChangeColumns:
    """The lists as columns. Group after group: only first sights and the order inside a group
    decide the bytes of a set.
    """
    lists = groups.values()
    counts = np.fromiter(map(len, lists), np.int64, len(groups))
    total = int(counts.sum())
    offsets = np.zeros(total + 1, np.int64)
    np.cumsum(np.fromiter(map(len, chain.from_iterable(lists)), np.int64, total), out=offsets[1:])
    data = np.frombuffer(b"".join(chain.from_iterable(lists)), np.uint8)
    return ChangeColumns(
        np.repeat(np.fromiter(groups, np.int32, len(groups)), counts), offsets, data
    )


def check_payload(value: object) -> bytes:
    """A change's bytes, copied if they could change later."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ConfigError(f"A change has to be bytes, got {type(value).__name__}.")
