"""Change sets over columns: the compiled twin of ``codec.change_format``, byte for byte.

Encoding takes changes in columns, in append order, and writes one set: a pass counts changes and
bytes per key group, a second writes each change at its group's cursor. No sort is needed.
Decoding fills columns of bounded size and can go on where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.columnar.jit import kernel
from dstl_core.codec.columnar.pointers import copy_bytes, load_i32, store_i32
from dstl_core.errors import FormatError, InvariantViolation, TruncatedDataError
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
        """Payload bytes."""
        return int(self.offsets[-1] - self.offsets[0])

    def slice(self, start: int, stop: int) -> ChangeColumns:
        return ChangeColumns(self.key_groups[start:stop], self.offsets[start : stop + 1], self.data)

    def compact(self) -> ChangeColumns:
        """A copy that keeps only its own payload alive."""
        start, stop = int(self.offsets[0]), int(self.offsets[-1])
        return ChangeColumns(
            self.key_groups.copy(), self.offsets - start, self.data[start:stop].copy()
        )


# -------------------------------------------------------------------------------- encoding


# What counting tells besides the tables: distinct groups, and whether the last change is the first
# of its group.
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
    told: Any,
) -> Any:
    """Adds changes and bytes per group and notes first sights; False for a key group outside the
    tables or offsets that leave the data.
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
        told[_LAST_IS_NEW] = counts[slot] == 0
        if counts[slot] == 0:
            seen[told[_DISTINCT]] = group
            told[_DISTINCT] += 1
        counts[slot] += 1
        sizes[slot] += end - start
    return True


@kernel
def _bucket(group: Any, capacity: Any) -> Any:
    """``(h ^ h >>> 16) & (capacity - 1)`` of an Integer's hash."""
    code = group & 0xFFFFFFFF
    return (code ^ (code >> 16)) & (capacity - 1)


@kernel
def _fill_buckets(seen: Any, size: Any, capacity: Any, buckets: Any) -> None:
    buckets[:capacity] = 0
    for i in range(size):
        buckets[_bucket(seen[i], capacity)] += 1


@kernel
def _java_capacity(seen: Any, distinct: Any, last_is_new: Any, buckets: Any) -> Any:
    """Buckets of the Java ``HashMap``: ``change_format.java_hash_map_order``."""
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
    """Metadata first, then by bucket, later ones first inside one. ``buckets`` is scratch, one
    longer than the map can get.
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
    """Writes every header and says where each group's changes go; False if it does not fit."""
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
    """Writes each change at its group's cursor; False if a change does not fit its group, which
    means that the columns changed after they were counted (as do cursors that miss the ends).
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
    """One change set of all parts, in append order, as ``write_change_set`` would write it.

    Every key group is -1 or in the range, which the writer has checked. The rows of the last part
    may stand in another order than they were appended, but for first uses and the order inside a
    group; then ``last_opened`` says which key group the last append used for the first time in
    that part, -1 being metadata and -2 none.
    """
    lowest = np.int64(key_group_range.start_key_group)
    slots = len(key_group_range) + 1
    counts, sizes = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
    seen, told = np.empty(slots, np.int64), np.zeros(2, np.int64)
    first = key_group_range.start_key_group
    slot = max(0, last_opened - first + 1) if last_opened not in (None, META_KEY_GROUP) else 0
    before = 0
    for part in parts:
        before = int(counts[slot])
        data_size = np.int64(len(part.data))
        if not _count(part.key_groups, part.offsets, data_size, lowest, counts, sizes, seen, told):
            raise InvariantViolation("changes reached the encoder unchecked")
    last_is_new = bool(told[_LAST_IS_NEW])
    if last_opened is not None:
        last_is_new = last_opened >= META_KEY_GROUP and before == 0
    distinct = told[_DISTINCT]
    ordered = np.empty(distinct, np.int64)
    buckets = np.empty(2 * _map_capacity(int(distinct)) + 1, np.int64)
    _java_order(seen, distinct, last_is_new, buckets, ordered)
    out = np.empty(4 + 8 * int(distinct) + 4 * int(counts.sum()) + int(sizes.sum()), np.uint8)
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
    """The buckets of a map that is not crowded; a crowded one gets 64 at most."""
    capacity = 64
    while distinct > capacity * 3 // 4:
        capacity *= 2
    return capacity


# -------------------------------------------------------------------------------- decoding

# What a decoding cursor holds.
_POSITION, _GROUPS_LEFT, _CHANGES_LEFT, _GROUP, _ROWS, _DATA_END, _GOT, _MOST = range(8)
# How a decoding step ends.
_DONE, _FULL, _TRUNCATED, _BAD_GROUP_COUNT, _BAD_COUNT, _BAD_KEY_GROUP, _BAD_LENGTH = range(7)


@kernel
def _open_set(body: Any, cursor: Any) -> Any:
    """Reads the head of the set at the cursor's position."""
    position = cursor[_POSITION]
    if position < 0 or len(body) - position < 4:
        return _TRUNCATED
    count = np.int64(load_i32(body, position))
    most = (len(body) - position - 4) // 8
    if count < 0 or count > most:
        cursor[_GOT], cursor[_MOST] = count, most
        return _BAD_GROUP_COUNT
    cursor[_POSITION] = position + 4
    cursor[_GROUPS_LEFT] = count
    cursor[_CHANGES_LEFT] = 0
    return _DONE


@kernel
def _read_changes(
    body: Any,
    cursor: Any,
    first_group: Any,
    last_group: Any,
    metadata: Any,
    key_groups: Any,
    offsets: Any,
    data: Any,
) -> Any:
    """Reads the rest of a set into the columns, or as much of it as they take.

    Changes of other key groups than ``first_group..last_group`` are passed over, and metadata
    unless it is asked for.
    """
    position = cursor[_POSITION]
    end = np.int64(len(body))
    rows, data_end = cursor[_ROWS], cursor[_DATA_END]
    status = _DONE
    while status == _DONE and (cursor[_CHANGES_LEFT] > 0 or cursor[_GROUPS_LEFT] > 0):
        if cursor[_CHANGES_LEFT] == 0:
            if end - position < 8:
                # Which of the two fields is cut decides where the error is.
                status = _TRUNCATED
                if end - position >= 4:
                    position += 4
                    cursor[_GOT] = 1
                else:
                    cursor[_GOT] = 0
                break
            count = np.int64(load_i32(body, position))
            group = np.int64(load_i32(body, position + 4))
            most = (end - position - 8) // 4
            if group < -1:
                position += 4
                cursor[_GOT] = group
                status = _BAD_KEY_GROUP
                break
            if count < 0 or count > most:
                cursor[_GOT], cursor[_MOST] = count, most
                status = _BAD_COUNT
                break
            position += 8
            cursor[_GROUP] = group
            cursor[_CHANGES_LEFT] = count
            cursor[_GROUPS_LEFT] -= 1
        group = cursor[_GROUP]
        wanted = metadata if group == -1 else first_group <= group and group <= last_group
        left = cursor[_CHANGES_LEFT]
        while left > 0:
            if end - position < 4:
                status = _TRUNCATED
                cursor[_GOT] = 2
                break
            size = np.int64(load_i32(body, position))
            if size < 0 or size > end - position - 4:
                cursor[_GOT], cursor[_MOST] = size, end - position - 4
                status = _BAD_LENGTH
                break
            if wanted:
                if rows >= len(key_groups) or data_end + size > len(data):
                    cursor[_GOT] = size
                    status = _FULL
                    break
                copy_bytes(data, data_end, body, position + 4, size)
                key_groups[rows] = group
                data_end += size
                rows += 1
                offsets[rows] = data_end
            position += 4 + size
            left -= 1
        cursor[_CHANGES_LEFT] = left
    cursor[_POSITION] = position
    cursor[_ROWS] = rows
    cursor[_DATA_END] = data_end
    return status


_FIELDS: list[pa.Field[Any]] = [
    pa.field("key_group", pa.int32(), nullable=False),
    pa.field("sequence_number", pa.int64(), nullable=False),
    pa.field("value", pa.binary(), nullable=False),
]
CHANGE_SCHEMA = pa.schema(_FIELDS)
"""Columns of decoded changes. Key group -1 is metadata. Segments do not hold sequence numbers, so
they count from the first set of the handle that is read."""

_MOST_BATCH_BYTES = 0x7FFFFFFF


class ChangeBatches:
    """Collects decoded changes and gives them out as record batches of bounded size."""

    def __init__(self, key_group_range: KeyGroupRange, max_rows: int, max_bytes: int) -> None:
        self._first = np.int64(key_group_range.start_key_group)
        self._last = np.int64(key_group_range.end_key_group)
        self._max_rows = max_rows
        self._max_bytes = min(max_bytes, _MOST_BATCH_BYTES)
        self._cursor = np.zeros(8, np.int64)
        self._runs: list[tuple[int, int]] = []
        self._allocate(0)

    def _allocate(self, least_bytes: int) -> None:
        self._key_groups = np.empty(self._max_rows, np.int32)
        self._offsets = np.zeros(self._max_rows + 1, np.int32)
        self._data = np.empty(max(self._max_bytes, least_bytes), np.uint8)
        self._cursor[_ROWS] = self._cursor[_DATA_END] = 0
        self._runs = []

    def add_set(self, body: Bytes, offset: int, sequence_number: int) -> Iterator[pa.RecordBatch]:
        """Decodes the set at ``offset`` of an uncompressed body; yields batches that are full.

        Raises:
            FormatError: As ``change_format.read_change_set`` does, for the same bytes.
        """
        cursor = self._cursor
        cursor[_POSITION] = offset
        _check(_open_set(body, cursor), body, cursor, "groups")
        while True:
            before = int(cursor[_ROWS])
            status = _read_changes(
                body,
                cursor,
                self._first,
                self._last,
                True,
                self._key_groups,
                self._offsets,
                self._data,
            )
            if cursor[_ROWS] > before:
                self._runs.append((sequence_number, int(cursor[_ROWS]) - before))
            if status != _FULL:
                _check(status, body, cursor, None)
                return
            needed = int(cursor[_GOT])
            yield from self.flush()
            self._allocate(needed)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yields what was collected, if anything, and starts anew."""
        rows = int(self._cursor[_ROWS])
        if not rows:
            return
        numbers = np.repeat(
            np.array([number for number, _ in self._runs], np.int64),
            np.array([count for _, count in self._runs], np.int64),
        )
        value = pa.Array.from_buffers(
            pa.binary(),
            rows,
            [
                None,
                pa.py_buffer(self._offsets[: rows + 1].data),
                pa.py_buffer(self._data[: int(self._cursor[_DATA_END])].data),
            ],
        )
        batch = pa.RecordBatch.from_arrays(
            [pa.array(self._key_groups[:rows]), pa.array(numbers), value], schema=CHANGE_SCHEMA
        )
        self._allocate(0)
        yield batch


_NO_GROUPS = np.empty(0, np.int32)
_NO_OFFSETS = np.empty(0, np.int32)


def check_change_set(body: Bytes, offset: int) -> None:
    """Walks the one set at ``offset`` without taking anything out of it.

    Raises:
        FormatError: As ``change_format.read_change_set`` does, for the same bytes.
    """
    cursor = np.zeros(8, np.int64)
    cursor[_POSITION] = offset
    _check(_open_set(body, cursor), body, cursor, "groups")
    nothing = np.empty(0, np.uint8)
    status = _read_changes(
        body, cursor, np.int64(0), np.int64(-1), False, _NO_GROUPS, _NO_OFFSETS, nothing
    )
    _check(status, body, cursor, None)


def _check(status: int, body: Bytes, cursor: Int64s, field: str | None) -> None:
    """Turns a kernel's verdict into the error that the reference decoder raises."""
    if status in (_DONE, _FULL):
        return
    position, got, most = int(cursor[_POSITION]), int(cursor[_GOT]), int(cursor[_MOST])
    if status == _TRUNCATED:
        fields = ("changes", "key group", "change length")
        raise TruncatedDataError(
            "The data ends too early",
            offset=position,
            field=field if field is not None else fields[got],
            expected="4 more bytes",
            got=len(body) - position,
        )
    if status == _BAD_KEY_GROUP:
        raise FormatError(
            "A key group is negative", offset=position, expected=f">= {META_KEY_GROUP}", got=got
        )
    name = {_BAD_GROUP_COUNT: "groups", _BAD_COUNT: "changes", _BAD_LENGTH: "change length"}[status]
    raise FormatError(
        "A count does not fit into the data",
        offset=position,
        field=name,
        expected=f"0..{most}",
        got=got,
    )
