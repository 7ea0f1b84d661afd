"""The largest keys and values of a state, in bounded memory.

A key is shown as a digest: the first digits of the sha256 of the key as ``dstl dump`` prints it.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, Ranges
from dstl_core.codec.columnar.keyed.places import concatenated, joined_parts, take
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import AnySerializer, value_text
from dstl_core.errors import UNREADABLE

LARGEST = 10
"""Keys and values that are named."""
DIGEST_DIGITS = 16
_PARTS = 64


class Largest:
    """The rows with the largest measures. Of equal rows the first ones stay."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Any]] = []

    def offer(self, measures: Int64s, describe: Callable[[int], Any]) -> None:
        """Adds rows; ``describe`` is called for those that enter the list."""
        floor = self.rows[-1][0] if len(self.rows) == LARGEST else -1
        candidates = np.flatnonzero(measures > floor)
        if not len(candidates):
            return
        order = candidates[np.argsort(-measures[candidates], kind="stable")[:LARGEST]]
        self.rows += [(int(measures[row]), describe(int(row))) for row in order]
        self._cut()

    def merge(self, later: Largest) -> None:
        """Adds the rows of records that come after these."""
        self.rows += later.rows
        self._cut()

    def _cut(self) -> None:
        self.rows.sort(key=lambda measured: -measured[0])
        del self.rows[LARGEST:]


class KeyNames:
    """Names keys: by a digest, or by their text if they may be shown."""

    def __init__(self, key_type: AnySerializer, *, show: bool) -> None:
        self._key_type = key_type
        self._show = show

    def of(self, start: int, end: int) -> str:
        """The name of the key that begins at an address. Bytes after the key are ignored."""
        raw = ctypes.string_at(start, end - start)
        try:
            value = value_text(self._key_type, self._key_type.deserialize(DataInput(raw)))
            text = json.dumps(value, ensure_ascii=False)
        except UNREADABLE:
            text = raw.hex()
        if self._show:
            return text
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:DIGEST_DIGITS]


@dataclass
class _KeyTotals:
    """Distinct keys with their totals; ``kept`` holds the bytes of the keys."""

    keys: Ranges
    entries: Int64s
    sizes: Int64s
    key_groups: Int64s
    kept: list[Any] = field(default_factory=list)

    def take(self, rows: Any) -> _KeyTotals:
        kept: list[Any] = []
        keys = joined_parts([take(self.keys, rows)], kept)
        return _KeyTotals(keys, self.entries[rows], self.sizes[rows], self.key_groups[rows], kept)

    @classmethod
    def together(cls, parts: list[_KeyTotals]) -> _KeyTotals:
        """A copy of the parts with each key once."""
        every = cls(
            concatenated([each.keys for each in parts]),
            np.concatenate([each.entries for each in parts]),
            np.concatenate([each.sizes for each in parts]),
            np.concatenate([each.key_groups for each in parts]),
            [each.kept for each in parts],
        )
        index = ByteIndex(every.keys)
        summed = every.take(index.firsts)
        summed.entries = _sums(index, every.entries)
        summed.sizes = _sums(index, every.sizes)
        return summed


def _sums(index: ByteIndex, amounts: Int64s) -> Int64s:
    sums = np.zeros(len(index), np.int64)
    np.add.at(sums, index.numbers, amounts)
    return sums


class KeyTotals:
    """Entries and bytes by key, where a key can have several records.

    Records come by key group. Memory holds the keys of one key group, and none of their values.
    """

    def __init__(self, names: KeyNames) -> None:
        self.keys = 0
        self.by_bytes = Largest()
        self.by_entries = Largest()
        self._names = names
        self._parts: list[_KeyTotals] = []

    def __getstate__(self) -> dict[str, Any]:
        """What a process sends to another one, after ``finish``: counts and names."""
        return {name: value for name, value in vars(self).items() if name != "_names"}

    def add(self, keys: Ranges, sizes: Int64s, key_groups: Int64s) -> None:
        """Adds a record for each row: the place of its key, its bytes, its key group."""
        ones = np.ones(len(keys), np.int64)
        self._parts.append(_KeyTotals.together([_KeyTotals(keys, ones, sizes, key_groups)]))
        current = int(key_groups[-1])
        if int(self._parts[0].key_groups[0]) != current:
            every = _KeyTotals.together(self._parts)
            done = every.key_groups != current
            self._close(every.take(done))
            self._parts = [every.take(~done)]
        elif len(self._parts) > _PARTS:
            self._parts = [_KeyTotals.together(self._parts)]

    def merge(self, later: KeyTotals) -> None:
        """Adds the keys of key groups that come after these; both are finished."""
        self.keys += later.keys
        self.by_bytes.merge(later.by_bytes)
        self.by_entries.merge(later.by_entries)

    def finish(self) -> None:
        """Counts the keys of the last key group."""
        if self._parts:
            self._close(_KeyTotals.together(self._parts))
            self._parts = []

    def _close(self, part: _KeyTotals) -> None:
        self.keys += len(part.keys)

        def describe(row: int) -> dict[str, Any]:
            return {
                "key": self._names.of(int(part.keys.starts[row]), int(part.keys.ends[row])),
                "entries": int(part.entries[row]),
                "bytes": int(part.sizes[row]),
            }

        self.by_bytes.offer(part.sizes, describe)
        self.by_entries.offer(part.entries, describe)
