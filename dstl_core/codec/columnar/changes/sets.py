"""Encodes columns as change sets: the compiled form of ``change_format.write_change_set``.

The first pass counts changes and bytes for each key group. The second pass writes each change at
its group's cursor, so no sort is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.pointers import copy_bytes, store_i32
from dstl_core.codec.columnar.types.scratch import scratch
from dstl_core.errors import InvariantViolation
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.key_group import KeyGroupRange

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """Changes in append order: key groups ``[n]`` (-1 = metadata), offsets ``[n + 1]`` into the
    payload bytes ``data``.
    """

    key_groups: Int32s
    offsets: Int64s
    data: Bytes

    def __len__(self) -> int:
        return len(self.key_groups)

    @property
    def size(self) -> int:
        """Size of the payload in bytes."""
        return int(self.offsets[-1] - self.offsets[0])

    def slice(self, start: int, stop: int) -> ChangeColumns:
        return ChangeColumns(self.key_groups[start:stop], self.offsets[start : stop + 1], self.data)

    def stop_at(self, start: int, size: int) -> int:
        """End of the smallest slice from ``start`` with at least ``size`` bytes and one change.

        ``len + 1`` if the rest has fewer bytes.
        """
        target = int(self.offsets[start]) + size
        return start + int(np.searchsorted(self.offsets[start + 1 :], target)) + 1

    def compact(self) -> ChangeColumns:
        """A copy that refers to its own payload only."""
        start, stop = int(self.offsets[0]), int(self.offsets[-1])
        return ChangeColumns(
            self.key_groups.copy(), self.offsets - start, self.data[start:stop].copy()
        )


# Results of counting besides the tables: number of distinct groups, and whether the last change is
# the first of its group.
_DISTINCT, _LAST_IS_NEW = range(2)


@kernel
def _count(
    key_groups: Any,
    offsets: Any,
    data_size: Any,
    lowest: Any,
    counts: Any,
    sizes: Any,
    seen: Any,
    results: Any,
) -> Any:
    """Adds changes and bytes per group, and records first uses.

    False if a key group is outside the tables, or an offset outside the data.
    """
    if len(offsets) != len(key_groups) + 1 or offsets[0] < 0:
        return False
    end = offsets[0]
    for i in range(len(key_groups)):
        group = np.int64(key_groups[i])
        slot = np.int64(0) if group == -1 else group - lowest + 1
        if slot < 0 or slot >= len(counts) or (slot == 0 and group != -1):
            return False
        start, end = end, offsets[i + 1]
        if end < start or end > data_size or end - start > 0x7FFFFFFF:
            return False
        results[_LAST_IS_NEW] = counts[slot] == 0
        if counts[slot] == 0:
            seen[results[_DISTINCT]] = group
            results[_DISTINCT] += 1
        counts[slot] += 1
        sizes[slot] += end - start
    return True


@kernel
def _bucket(group: Any, capacity: Any) -> Any:
    """The bucket of an Integer's hash: ``(h ^ h >>> 16) & (capacity - 1)``."""
    code = group & 0xFFFFFFFF
    return (code ^ (code >> 16)) & (capacity - 1)


@kernel
def _fill_buckets(seen: Any, size: Any, capacity: Any, buckets: Any) -> None:
    buckets[:capacity] = 0
    for i in range(size):
        buckets[_bucket(seen[i], capacity)] += 1


@kernel
def _java_capacity(seen: Any, distinct: Any, last_is_new: Any, buckets: Any) -> Any:
    """Number of buckets of the Java ``HashMap``: see ``change_format.java_hash_map_order``."""
    capacity = np.int64(16)
    buckets[:capacity] = 0
    for size in range(distinct):
        if size > capacity * 3 // 4:
            capacity *= 2
            _fill_buckets(seen, size, capacity, buckets)
        bucket = _bucket(seen[size], capacity)
        buckets[bucket] += 1
        if buckets[bucket] >= 8 and capacity < 64:
            capacity *= 2
            _fill_buckets(seen, size + 1, capacity, buckets)
    if not last_is_new and distinct > capacity * 3 // 4:
        capacity *= 2
    return capacity


@kernel
def _java_order(seen: Any, distinct: Any, last_is_new: Any, buckets: Any, ordered: Any) -> None:
    """Orders key groups: metadata first, then by bucket, in a bucket the latest first.

    ``buckets`` is scratch space, one longer than the largest capacity.
    """
    capacity = _java_capacity(seen, distinct, last_is_new, buckets)
    starts = buckets[: capacity + 1]
    starts[:] = 0
    meta = 0
    for i in range(distinct):
        if seen[i] == -1:
            meta = 1
        else:
            starts[_bucket(seen[i], capacity) + 1] += 1
    for bucket in range(1, capacity + 1):
        starts[bucket] += starts[bucket - 1]
    if meta:
        ordered[0] = -1
    for i in range(distinct):
        if seen[i] != -1:
            bucket = _bucket(seen[i], capacity) + 1
            starts[bucket] -= 1
            ordered[meta + starts[bucket]] = seen[i]


@kernel
def _write_headers(
    ordered: Any, lowest: Any, counts: Any, sizes: Any, cursors: Any, ends: Any, out: Any
) -> Any:
    """Writes every header and sets each group's cursor; False if there is no room."""
    total = np.int64(4)
    for i in range(len(ordered)):
        slot = 0 if ordered[i] == -1 else ordered[i] - lowest + 1
        total += 8 + 4 * counts[slot] + sizes[slot]
    if total != len(out):
        return False
    store_i32(out, 0, len(ordered))
    position = np.int64(4)
    for i in range(len(ordered)):
        slot = 0 if ordered[i] == -1 else ordered[i] - lowest + 1
        store_i32(out, position, counts[slot])
        store_i32(out, position + 4, ordered[i])
        cursors[slot] = position + 8
        position += 8 + 4 * counts[slot] + sizes[slot]
        ends[slot] = position
    return True


@kernel
def _scatter(
    key_groups: Any, offsets: Any, data: Any, lowest: Any, cursors: Any, ends: Any, out: Any
) -> Any:
    """Writes each change at its group's cursor.

    False if a change does not fit into its group, or a cursor misses the end of its group: then the
    columns changed after they were counted.
    """
    for i in range(len(key_groups)):
        group = np.int64(key_groups[i])
        slot = np.int64(0) if group == -1 else group - lowest + 1
        start = offsets[i]
        size = offsets[i + 1] - start
        if slot < 0 or slot >= len(cursors) or size < 0 or start < 0 or start + size > len(data):
            return False
        cursor = cursors[slot]
        if cursor + 4 + size > ends[slot] or ends[slot] > len(out):
            return False
        store_i32(out, cursor, size)
        copy_bytes(out, cursor + 4, data, start, size)
        cursors[slot] = cursor + 4 + size
    return True


def encode_change_set(
    parts: Sequence[ChangeColumns],
    key_group_range: KeyGroupRange,
    *,
    last_opened: int | None = None,
) -> memoryview:
    """Encodes all parts as one change set, in append order, like ``write_change_set``.

    The writer has checked that every key group is -1 or in the range. Rows of the last part may be
    in another order than they were appended, except for first uses and the order inside a group. In
    that case ``last_opened`` is the key group that the last append used for the first time in that
    part: -1 is metadata, -2 is none.
    """
    lowest = np.int64(key_group_range.start_key_group)
    slots = len(key_group_range) + 1
    counts, sizes = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
    seen, results = np.empty(slots, np.int64), np.zeros(2, np.int64)
    first = key_group_range.start_key_group
    slot = max(0, last_opened - first + 1) if last_opened not in (None, META_KEY_GROUP) else 0
    before = 0
    for part in parts:
        before = int(counts[slot])
        data_size = np.int64(len(part.data))
        if not _count(
            part.key_groups, part.offsets, data_size, lowest, counts, sizes, seen, results
        ):
            raise InvariantViolation("unchecked changes reached the encoder")
    last_is_new = bool(results[_LAST_IS_NEW])
    if last_opened is not None:
        last_is_new = last_opened >= META_KEY_GROUP and before == 0
    distinct = results[_DISTINCT]
    ordered = np.empty(distinct, np.int64)
    buckets = np.empty(2 * _map_capacity(int(distinct)) + 1, np.int64)
    _java_order(seen, distinct, last_is_new, buckets, ordered)
    size = 4 + 8 * int(distinct) + 4 * int(counts.sum()) + int(sizes.sum())
    out = scratch(size)
    cursors, ends = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
    whole = _write_headers(ordered, lowest, counts, sizes, cursors, ends, out)
    for part in parts:
        whole = whole and _scatter(
            part.key_groups, part.offsets, part.data, lowest, cursors, ends, out
        )
    if not (whole and np.array_equal(cursors, ends)):
        raise InvariantViolation("the columns of a change set changed while they were encoded")
    return out.data.toreadonly()


def _map_capacity(distinct: int) -> int:
    """Number of buckets of a map without full buckets; a map with full buckets has at most 64."""
    capacity = 64
    while distinct > capacity * 3 // 4:
        capacity *= 2
    return capacity
