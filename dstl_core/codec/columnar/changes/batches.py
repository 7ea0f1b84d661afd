"""Decodes change sets into columns: the compiled form of ``change_format.read_change_set``.

The kernels fill columns of bounded size, and continue where they stopped. Every length is checked
against the remaining bytes before anything is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.changes.sets import Bytes, Int64s
from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.pointers import copy_bytes, load_i32
from dstl_core.errors import FormatError, TruncatedDataError
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.key_group import KeyGroupRange

# Words of a decoding cursor.
_POSITION, _GROUPS_LEFT, _CHANGES_LEFT, _GROUP, _ROWS, _DATA_END, _GOT, _MOST = range(8)
# Results of a decoding step.
_DONE, _FULL, _TRUNCATED, _BAD_GROUP_COUNT, _BAD_COUNT, _BAD_KEY_GROUP, _BAD_LENGTH = range(7)


@kernel
def _open_set(body: Any, cursor: Any) -> Any:
    """Reads the header of the set at the cursor's position."""
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
def _open_group(body: Any, cursor: Any) -> Any:
    """Reads the header of the group at the cursor's position."""
    position = cursor[_POSITION]
    left = len(body) - position
    if left < 8:
        # The offset of the error depends on which of the two fields is incomplete.
        cursor[_GOT] = 1 if left >= 4 else 0
        cursor[_POSITION] = position + 4 * cursor[_GOT]
        return _TRUNCATED
    count = np.int64(load_i32(body, position))
    group = np.int64(load_i32(body, position + 4))
    most = (left - 8) // 4
    if group < -1:
        cursor[_POSITION], cursor[_GOT] = position + 4, group
        return _BAD_KEY_GROUP
    if count < 0 or count > most:
        cursor[_GOT], cursor[_MOST] = count, most
        return _BAD_COUNT
    cursor[_POSITION] = position + 8
    cursor[_GROUP], cursor[_CHANGES_LEFT] = group, count
    cursor[_GROUPS_LEFT] -= 1
    return _DONE


@kernel
def _read_group(
    body: Any, cursor: Any, wanted: Any, key_groups: Any, offsets: Any, data: Any
) -> Any:
    """Reads the rest of a group into the columns, as far as there is room."""
    position, left = cursor[_POSITION], cursor[_CHANGES_LEFT]
    rows, data_end = cursor[_ROWS], cursor[_DATA_END]
    end, group = np.int64(len(body)), cursor[_GROUP]
    status = _DONE
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
    cursor[_POSITION], cursor[_CHANGES_LEFT] = position, left
    cursor[_ROWS], cursor[_DATA_END] = rows, data_end
    return status


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
    """Reads the rest of a set into the columns, as far as there is room.

    Skips key groups outside ``first_group..last_group``, and metadata unless ``metadata`` is set.
    """
    status = _DONE
    while status == _DONE and (cursor[_CHANGES_LEFT] > 0 or cursor[_GROUPS_LEFT] > 0):
        if cursor[_CHANGES_LEFT] == 0:
            status = _open_group(body, cursor)
            if status != _DONE:
                break
        group = cursor[_GROUP]
        wanted = metadata if group == -1 else first_group <= group and group <= last_group
        status = _read_group(body, cursor, wanted, key_groups, offsets, data)
    return status


_FIELDS: list[pa.Field[Any]] = [
    pa.field("key_group", pa.int32(), nullable=False),
    pa.field("sequence_number", pa.int64(), nullable=False),
    pa.field("value", pa.binary(), nullable=False),
]
CHANGE_SCHEMA = pa.schema(_FIELDS)
"""Columns of decoded changes. Key group -1 is metadata. Segments hold no sequence numbers, so
numbers count from the first set of the handle.
"""

_MOST_BATCH_BYTES = 0x7FFFFFFF


class ChangeBatches:
    """Collects decoded changes and returns them as record batches of bounded size."""

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
        """Decodes the set at ``offset`` of an uncompressed body; yields full batches.

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
        """Yields the collected changes, if any, and clears them."""
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
    """Checks the set at ``offset`` without decoding values.

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
    """Raises the reference decoder's error for the status of a kernel."""
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
