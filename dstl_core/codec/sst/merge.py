"""The rows of one column family from all its table files: newest versions, merged and deleted.

Source: ``db/merge_helper.cc`` and ``db/range_del_aggregator.cc`` of RocksDB 8.10;
``StringAppendTESTOperator`` is how Flink adds to a list without reading it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from dstl_core.codec.sst.file import (
    DELETION,
    MERGE,
    PUT,
    SINGLE_DELETION,
    RangeTombstone,
    SstEntry,
    SstFile,
)
from dstl_core.errors import FormatError

MERGE_DELIMITER = b","


def merged_rows(
    files: Sequence[SstFile], start: bytes, stop: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    """Yields ``(key, value)`` of the rows from ``start`` to before ``stop``, in order of keys."""
    tombstones = [tombstone for file in files for tombstone in file.tombstones]
    versions = heapq.merge(*(file.entries(start, stop) for file in files))
    for key, group in groupby(versions, key=attrgetter("key")):
        value = _newest(list(group), tombstones)
        if value is not None:
            yield key, value


def _newest(versions: list[SstEntry], tombstones: list[RangeTombstone]) -> bytes | None:
    operands: list[bytes] = []
    for entry in versions:
        if any(tombstone.covers(entry) for tombstone in tombstones):
            break
        if entry.kind in (DELETION, SINGLE_DELETION):
            break
        if entry.kind not in (PUT, MERGE):
            raise FormatError(
                "A table file holds a kind of entry that is not read",
                expected="put, merge, delete, single delete",
                got=entry.kind,
            )
        operands.append(entry.value)
        if entry.kind == PUT:
            break
    return MERGE_DELIMITER.join(reversed(operands)) if operands else None
