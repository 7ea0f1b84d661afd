"""Encodes and reads change sets in columns.

Only functions that need this module import it, and they do so inside the function: it loads Arrow
and the compiler, which takes longer than inspecting a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.changes.batches import (
    CHANGE_SCHEMA,
    ChangeBatches,
    check_change_set,
)
from dstl_core.codec.columnar.changes.columns import (
    KeyGroupColumn,
    ValueColumn,
    change_columns,
)
from dstl_core.codec.columnar.changes.sets import ChangeColumns, encode_change_set
from dstl_core.errors import error_context
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.handle import InMemoryChangelogStateHandle
from dstl_core.model.key_group import KeyGroupRange

__all__ = ["KeyGroupColumn", "ValueColumn", "change_columns"]

Groups = dict[int, list[bytes]]

SetPlace = tuple[int, memoryview, int, str | None]
"""A change set: its number in the handle, the segment body, its offset there, the file."""


def encode(
    parts: Sequence[ChangeColumns | Groups], key_group_range: KeyGroupRange, last_opened: int | None
) -> memoryview:
    """Encodes a change set; ``last_opened`` as in ``encode_change_set``."""
    columns = [_columns(part) if isinstance(part, dict) else part for part in parts]
    return encode_change_set(columns, key_group_range, last_opened=last_opened)


def _columns(groups: Groups) -> ChangeColumns:
    """Converts lists to columns, group after group.

    Only first uses and the order inside a group determine the bytes of a set.
    """
    lists = groups.values()
    counts = np.fromiter(map(len, lists), np.int64, len(groups))
    total = int(counts.sum())
    offsets = np.zeros(total + 1, np.int64)
    np.cumsum(np.fromiter(map(len, chain.from_iterable(lists)), np.int64, total), out=offsets[1:])
    data = np.frombuffer(b"".join(chain.from_iterable(lists)), np.uint8)
    key_groups = np.repeat(np.fromiter(groups, np.int32, len(groups)), counts)
    return ChangeColumns(key_groups, offsets, data)


def check_set(body: memoryview, offset: int) -> None:
    """Checks a set without decoding values. Raises: FormatError: It is damaged."""
    check_change_set(np.frombuffer(body, np.uint8), offset)


def read_sets(
    sets: Iterable[SetPlace], key_group_range: KeyGroupRange, batch_rows: int, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Reads sets one after the other as record batches of ``CHANGE_SCHEMA``."""
    batches = ChangeBatches(key_group_range, batch_rows, batch_bytes)
    for index, body, offset, location in sets:
        with error_context(location=location):
            yield from batches.add_set(np.frombuffer(body, np.uint8), offset, index)
    yield from batches.flush()


def read_inlined(handle: InMemoryChangelogStateHandle, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Reads the changes inside a handle as record batches."""
    wanted = [
        (key_group, handle.from_sequence_number + index, change)
        for index, (key_group, change) in enumerate(handle.changes)
        if key_group == META_KEY_GROUP or handle.key_group_range.contains(key_group)
    ]
    for start in range(0, len(wanted), batch_rows):
        rows = zip(*wanted[start : start + batch_rows], strict=True)
        arrays = [
            pa.array(column, field.type) for column, field in zip(rows, CHANGE_SCHEMA, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=CHANGE_SCHEMA)
