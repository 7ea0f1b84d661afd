"""Merges the table files of one column family to rows: newest versions, merged and deleted.

Source: ``db/merge_helper.cc`` and ``db/range_del_aggregator.cc`` of RocksDB 8.10. Flink uses
``StringAppendTESTOperator`` to append to a list without reading it.
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
    """Yields each row ``(key, value)`` in ``[start, stop)``, in order of keys."""
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
                "A table file holds an unsupported kind of entry",
                expected="put, merge, delete, single delete",
                got=entry.kind,
            )
        operands.append(entry.value)
        if entry.kind == PUT:
            break
    return MERGE_DELIMITER.join(reversed(operands)) if operands else None
