"""Reads the rows of one column family from its table files as spans: the compiled ``sst.merge``.

Keys are numbered by hash instead of merged in order. Only rows with merge operands (list state) are
assembled one by one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.kernels.memory import address_of
from dstl_core.codec.columnar.kernels.table_blocks import (
    ENTRY_WORDS,
    KEY_END,
    KEY_START,
    TRAILER,
    VALUE_END,
    VALUE_START,
    measure_block,
    read_prefixes,
    unpack_block_entries,
)
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, Ranges
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.sst.block import entries_end
from dstl_core.codec.sst.file import DELETION, MERGE, PUT, SINGLE_DELETION, SstFile
from dstl_core.codec.sst.merge import MERGE_DELIMITER
from dstl_core.errors import FormatError

_KINDS = (DELETION, PUT, MERGE, SINGLE_DELETION)


@dataclass(frozen=True)
class SstRows:
    """Rows as spans.

    The keys start after the key group, which is in ``key_groups``. ``kept`` keeps the bytes alive.
    """

    spans: Int64s
    key_groups: Int64s
    kept: list[Any]


def has_twin(files: Sequence[SstFile]) -> bool:
    """Whether ``merged_spans`` can read these files; ``sst.merge`` reads those with range
    deletions.
    """
    return not any(file.tombstones for file in files)


def merged_spans(files: Sequence[SstFile], first: int, last: int, prefix_bytes: int) -> SstRows:
    """The newest version of each row in the key groups ``first`` to ``last``, in any order.

    Raises:
        FormatError: A file is damaged.
    """
    kept: list[Any] = []
    start = first.to_bytes(prefix_bytes, "big")
    stop = (last + 1).to_bytes(prefix_bytes, "big") if last + 1 < 1 << 8 * prefix_bytes else None
    parts: list[Int64s] = [np.empty((0, ENTRY_WORDS), np.int64)]
    for file in files:
        blocks = file.blocks(start, stop)
        found = [_entries(payload, offset, kept) for payload, offset in blocks]
        file.check_count(sum(map(len, found)), start, stop)
        parts += found
    entries = np.concatenate(parts)
    groups = np.empty(len(entries), np.int64)
    read_prefixes(address_of(entries), len(entries), prefix_bytes, address_of(groups))
    if len(groups) and groups.min() < 0:
        raise FormatError("A row's key is too short", expected=prefix_bytes)
    own = (groups >= first) & (groups <= last)
    return _newest(np.ascontiguousarray(entries[own]), groups[own], prefix_bytes, kept)


def _entries(payload: bytes, offset: int, kept: list[Any]) -> Int64s:
    """All entries of a data block."""
    block = np.frombuffer(payload, np.uint8)
    at = address_of(block)
    end = at + entries_end(payload, offset)
    result = np.zeros(1, np.int64)
    count = measure_block(at, end, address_of(result))
    if count < 0:
        raise FormatError("An entry of a block is longer than the block", offset=offset)
    keys = np.empty(max(1, int(result[0])), np.uint8)
    entries = np.empty((count, ENTRY_WORDS), np.int64)
    unpack_block_entries(at, end, address_of(keys), address_of(entries), address_of(result))
    kept += [block, keys]
    return entries


def _newest(entries: Int64s, groups: Int64s, prefix_bytes: int, kept: list[Any]) -> SstRows:
    index = ByteIndex(Ranges(entries[:, KEY_START], entries[:, KEY_END]))
    trailers = entries[:, TRAILER]
    kinds = trailers & 0xFF
    if len(kinds) and not np.isin(kinds, _KINDS).all():
        raise FormatError(
            "A table file holds an unsupported kind of entry",
            expected="put, merge, delete, single delete",
            got=int(kinds[~np.isin(kinds, _KINDS)][0]),
        )
    # Sequence numbers have 56 bits, so their first bit is the sign of the trailer.
    sequences = trailers.view(np.uint64) >> np.uint64(8)
    order = np.lexsort((-sequences.astype(np.int64), index.numbers))
    heads = np.flatnonzero(np.diff(index.numbers[order], prepend=-1))
    newest = order[heads]
    spans = np.zeros((len(newest), scan.SPAN_WORDS), np.int64)
    spans[:, scan.KEY_START] = entries[newest, KEY_START] + prefix_bytes
    spans[:, scan.KEY_END] = entries[newest, KEY_END]
    spans[:, scan.VALUE_START] = entries[newest, VALUE_START]
    spans[:, scan.VALUE_END] = entries[newest, VALUE_END]
    kind = kinds[newest]
    bounds = np.append(heads, len(order))
    for row in np.flatnonzero(kind == MERGE):
        versions = order[bounds[row] : bounds[row + 1]]
        value = np.frombuffer(_merged(entries, kinds, versions), np.uint8)
        kept.append(value)
        spans[row, scan.VALUE_START] = address_of(value)
        spans[row, scan.VALUE_END] = address_of(value) + len(value)
    alive = (kind == PUT) | (kind == MERGE)
    return SstRows(np.ascontiguousarray(spans[alive]), groups[newest][alive], kept)


def _merged(entries: Int64s, kinds: Int64s, versions: Int64s) -> bytes:
    """Appends the operands of a row to its last whole value."""
    operands: list[bytes] = []
    for row in versions:
        if kinds[row] in (DELETION, SINGLE_DELETION):
            break
        start, end = int(entries[row, VALUE_START]), int(entries[row, VALUE_END])
        operands.append(ctypes.string_at(start, end - start))
        if kinds[row] == PUT:
            break
    return MERGE_DELIMITER.join(reversed(operands))
