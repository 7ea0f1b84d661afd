"""Finds the maps of a key group that are too large to be held, and divides them by their keys.

A part of a key group has whole keys. Where one key has a map that is larger than a part, the map
goes into parts of its own, which have some of its entries each, the same ones of both snapshots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.savepoint.compare.parted_records import (
    Choice,
    PartedRecords,
    by_map_key,
    by_scope,
    hashes_of_scopes,
)
from dstl_core.savepoint.read.stored_records import StateBatch

PART_BYTES = 16 << 20
"""Bytes of both snapshots that a part of a key group has."""
HELD_PART_BYTES = 2 * PART_BYTES
"""Bytes of a part, of both snapshots, up to which it is held."""
_PARTS = 200
"""Files into which a key group is divided, of each snapshot: a process may open a thousand."""
_PARTS_OF_PART = 20
_PARTS_OF_MAP = 128
_BUCKETS = 1 << 16


@dataclass(frozen=True)
class BothParts:
    """A part of the records of both snapshots."""

    a: PartedRecords
    b: PartedRecords
    at: int
    whole: int = 0
    """Bytes of what was divided."""
    level: int = 1

    @property
    def size(self) -> int:
        return self.a.size(self.at) + self.b.size(self.at)

    def batches(self) -> Iterator[tuple[int, StateBatch]]:
        """The records, some at a time: with 0 those of the first snapshot, with 1 of the other."""
        for side, parted in enumerate((self.a, self.b)):
            for batch in parted.batches(self.at):
                yield side, batch

    def divided(self, count: int, choose: Choice) -> tuple[PartedRecords, PartedRecords]:
        a, b = (parted.divided(self.at, count, choose) for parted in (self.a, self.b))
        return a, b


@dataclass(frozen=True)
class MapParts:
    """The entries of a map that is too large to be held.

    Args:
        place: The place of its state.
        has: Whether the first snapshot has the map, and the second one.
        part: Its records.
    """

    place: int
    has: tuple[bool, bool]
    part: BothParts

    def entries(self) -> Iterator[BothParts]:
        """Its records in parts that can be held. They are read once."""
        count = _count(self.part.size, _PARTS_OF_MAP)
        a, b = self.part.divided(count, by_map_key(count))
        with closing(a), closing(b):
            for at in range(count):
                yield BothParts(a, b, at)


def parts_of(size: int) -> int:
    """The number of parts for a key group of some size."""
    return min(_PARTS, 2 + size // PART_BYTES)


def held_parts(part: BothParts, maps: Collection[int]) -> Iterator[BothParts | MapParts]:
    """Divides a part until what it gives can be held.

    Args:
        part: The part; it is read once.
        maps: The places of map states whose entries can be compared one by one.
    """
    if part.size <= HELD_PART_BYTES:
        yield part
        return
    scopes, is_all = _large_scopes(part, maps) if maps else ({}, False)
    if is_all:
        [scope] = scopes.values()
        yield scope.of(part)
        return
    if not scopes and part.size > part.whole // 2:
        yield part  # hashes do not divide it, e.g. a map whose type is another one
        return
    chosen = sorted(scopes)[:_PARTS_OF_PART]
    rest = part.size - sum(sum(scopes[scope].sizes) for scope in chosen)
    count = len(chosen) + _count(rest, _PARTS_OF_PART)
    a, b = part.divided(count, _apart(chosen, maps, count, 1 + part.level))
    with closing(a), closing(b):
        for at in range(count):
            smaller = BothParts(a, b, at, part.size, part.level + 1)
            if at < len(chosen):
                yield scopes[chosen[at]].of(smaller)
            else:
                yield from held_parts(smaller, maps)


def _apart(chosen: list[int], maps: Collection[int], count: int, seed: int) -> Choice:
    """Puts some large maps into parts of their own, and other keys into the parts behind them."""
    known = np.array(chosen, np.int64)
    by_key = by_scope(count - len(known), seed)

    def choose(batch: StateBatch) -> Int64s:
        others = len(known) + by_key(batch)
        if not len(known) or batch.place not in maps:
            return others
        hashes = hashes_of_scopes(batch)
        places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        parts: Int64s = np.where(known[places] == hashes, places, others)
        return parts

    return choose


@dataclass
class _Scope:
    """A key and namespace of a map state, and the bytes of its records in both snapshots."""

    place: int
    sizes: list[int]
    rows: int = 0

    def of(self, part: BothParts) -> MapParts:
        """Its records, which are all of a part."""
        return MapParts(self.place, (self.sizes[0] > 0, self.sizes[1] > 0), part)


def _large_scopes(part: BothParts, maps: Collection[int]) -> tuple[dict[int, _Scope], bool]:
    """The maps that are larger than a part, by the hash of their key and namespace; and whether one
    is all of it.

    A first pass adds bytes up by some bits of the hashes, so that memory does not grow with the
    number of keys; a second one counts the few keys that can have as many.
    """
    totals = np.zeros(_BUCKETS, np.int64)
    rows = 0
    for _, batch in part.batches():
        rows += len(batch.batch)
        if batch.place in maps:
            buckets = hashes_of_scopes(batch) & (_BUCKETS - 1)
            np.add.at(totals, buckets, _bytes_of(batch))
    is_large = totals > PART_BYTES
    scopes: dict[int, _Scope] = {}
    if not is_large.any():
        return scopes, False
    for side, batch in part.batches():
        if batch.place in maps:
            hashes = hashes_of_scopes(batch)
            heavy = is_large[hashes & (_BUCKETS - 1)]
            known, numbers, counts = np.unique(
                hashes[heavy], return_inverse=True, return_counts=True
            )
            sizes = np.bincount(numbers, _bytes_of(batch)[heavy], len(known))
            for number, scope in enumerate(known.tolist()):
                counted = scopes.setdefault(scope, _Scope(batch.place, [0, 0]))
                counted.sizes[side] += int(sizes[number])
                counted.rows += int(counts[number])
    large = {hashed: scope for hashed, scope in scopes.items() if sum(scope.sizes) > PART_BYTES}
    return large, len(large) == 1 and next(iter(large.values())).rows == rows


def _bytes_of(batch: StateBatch) -> Int64s:
    spans = batch.batch.spans
    sizes: Int64s = spans[:, scan.VALUE_END] - spans[:, scan.KEY_START]
    return sizes


def _count(size: int, most: int) -> int:
    return max(1, min(most, -(-size // PART_BYTES)))
