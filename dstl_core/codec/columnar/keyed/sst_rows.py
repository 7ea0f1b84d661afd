"""Reads the rows of one column family from its table files as spans: the compiled ``sst.merge``."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.kernels.tables import table_merge
from dstl_core.codec.columnar.kernels.tables.table_blocks import ENTRY_BYTES, TRAILER
from dstl_core.codec.columnar.keyed.byte_index import Ranges
from dstl_core.codec.columnar.keyed.places import joined_items
from dstl_core.codec.columnar.keyed.sections import Section
from dstl_core.codec.columnar.keyed.spans import (
    BYTES_PER_BATCH,
    ROWS_PER_BATCH,
    Source,
    SpanBatch,
    SpanRecord,
)
from dstl_core.codec.columnar.keyed.sst_blocks import StoredBlocks, TableEntries, TableReader
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.scratch import scratch_words
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.sst.file import MERGE, SstFile
from dstl_core.errors import FormatError

BYTES_AT_ONCE = 1 << 20
"""Bytes of table files that are merged at once: their entries fit into the cache of a core."""
READ_BYTES = 16 << 20
"""Bytes of table files that are read at once, one read a file."""
STORE_READ_BYTES = 32 << 20
"""The same where files are on a store: a request costs the processor as much as 2 MiB of bytes, and
some twenty files share these.
"""
_CUT_FROM_TIMES = 1.5
"""Key groups of which one has so many times these bytes are read in ranges of keys."""
CUT_BYTES = 2 << 20
"""Bytes of a large key group that are merged at once. They may unpack to ten times as many."""
_STEPS = 8
"""Places of a part at which each file is asked for a key."""
_STARTS = (scan.KEY_START, scan.VALUE_START)
_EVERYWHERE = 1 << 62


@dataclass(frozen=True)
class SstRows:
    """Rows as spans, in the order of their keys.

    The keys start after the key group, which is in the tag. ``kept`` keeps the bytes alive.
    """

    spans: Int64s
    kept: list[Any]

    @property
    def key_groups(self) -> Int64s:
        return self.spans[:, scan.TAG] >> 16

    def batches(self, state: int) -> Iterator[SpanBatch]:
        """The rows as records of a state, in batches of bounded size. Writes the state into the
        tags of ``spans``.
        """
        if state:
            self.spans[:, scan.TAG] |= state
        source = TableSource(self.kept)
        for first in range(0, len(self.spans), ROWS_PER_BATCH):
            yield from _small(SpanBatch(self.spans[first : first + ROWS_PER_BATCH], source))


def _small(batch: SpanBatch) -> Iterator[SpanBatch]:
    spans, half = batch.spans, len(batch) // 2
    start = address_of(spans)
    size = sum(scan.span_bytes(start + 8 * at, len(batch)) for at in _STARTS)
    if not half or size <= BYTES_PER_BATCH:
        yield batch
        return
    yield from _small(SpanBatch(spans[:half], batch.source))
    yield from _small(SpanBatch(spans[half:], batch.source))


class TableSource(Source):
    """Keeps the bytes of rows alive, which lie in several buffers. Each has ``SPARE_BYTES``."""

    def __init__(self, kept: list[Any]) -> None:
        super().__init__(b"", ())
        self.kept = kept
        self.end = _EVERYWHERE

    def record_of(self, span: Int64s, address: int, prefix_bytes: int) -> SpanRecord:
        """As in ``Source``, with the record in a section of its own."""
        start, end, value, value_end, tag = span.tolist()
        key_group = tag >> 16
        out = DataOutput()
        out.write_i32(prefix_bytes + end - start)
        out.write_bytes(key_group.to_bytes(prefix_bytes, "big"))
        key_at = out.position
        out.write_bytes(ctypes.string_at(start, end - start))
        out.write_i32(value_end - value)
        value_at = out.position
        out.write_bytes(ctypes.string_at(value, value_end - value))
        is_key = start <= address <= end
        position = key_at + address - start if is_key else value_at + address - value
        section = Section(key_group, 0, out.position, 0)
        return SpanRecord(DataInput(out.to_bytes()), section, position)


def has_twin(files: Sequence[SstFile]) -> bool:
    """Whether ``merged_spans`` can read these files; ``sst.merge`` reads those with range
    deletions.
    """
    return not any(file.tombstones for file in files)


def stored_bytes(readers: Sequence[TableReader], first: int, last: int, prefix_bytes: int) -> int:
    """Size of the blocks that may hold rows of the key groups ``first`` to ``last``."""
    return _stored_bytes(readers, *_bounds(first, last, prefix_bytes))


def merged_spans(
    readers: Sequence[TableReader], first: int, last: int, prefix_bytes: int
) -> Iterator[SstRows]:
    """The newest version of each row in the key groups ``first`` to ``last``, in their order.

    Yields the rows of a few key groups at a time.

    Raises:
        FormatError: A file is damaged.
    """
    parts = _parts_to_read(readers, first, last, prefix_bytes)
    for part, coming in pairwise(chain(parts, (None,))):
        assert part is not None
        part.begin(readers)
        if coming is not None:
            coming.begin(readers)
        stored = [
            run for reader in readers if (run := reader.read(part.start, part.stop)) is not None
        ]
        if part.is_cut:
            yield from _cut(readers, stored, part.first, part.start, part.stop, prefix_bytes)
            continue
        for begin, end, _ in _parts(readers, part.first, part.last, prefix_bytes, BYTES_AT_ONCE):
            start, stop = _bounds(begin, end, prefix_bytes)
            if begin == end and _stored_bytes(readers, start, stop) > 2 * CUT_BYTES:
                yield from _cut(readers, stored, begin, start, stop, prefix_bytes)
                continue
            every = [each.entries(start, stop, prefix_bytes) for each in stored]
            yield _merged([each for each in every if len(each)], begin, end, prefix_bytes)


@dataclass(frozen=True)
class _TablePart:
    """What is read at once: the keys in ``[start, stop)`` of the key groups ``first`` to ``last``.

    ``is_cut`` says that they are a part of one large key group.
    """

    first: int
    last: int
    start: bytes
    stop: bytes | None
    is_cut: bool = False

    def begin(self, readers: Sequence[TableReader]) -> None:
        """Begins to read it, where files are on a store."""
        for reader in readers:
            reader.begin(self.start, self.stop)


def _parts_to_read(
    readers: Sequence[TableReader], first: int, last: int, prefix_bytes: int
) -> Iterator[_TablePart]:
    at_once = _read_bytes(readers)
    for low, high, size in _parts(readers, first, last, prefix_bytes, at_once):
        if not size:
            continue
        whole = _TablePart(low, high, *_bounds(low, high, prefix_bytes))
        if _stored_bytes(readers, whole.start, whole.stop) <= _CUT_FROM_TIMES * at_once:
            yield whole
            continue
        for key_group in range(low, high + 1):
            bounds = _bounds(key_group, key_group, prefix_bytes)
            for start, stop in _key_ranges(readers, *bounds, at_once):
                yield _TablePart(key_group, key_group, start, stop, is_cut=True)


def begin_rows(readers: Sequence[TableReader], first: int, last: int, prefix_bytes: int) -> None:
    """Says that ``merged_spans`` will be asked for these rows soon."""
    for part in islice(_parts_to_read(readers, first, last, prefix_bytes), 1):
        part.begin(readers)


def _cut(
    readers: Sequence[TableReader],
    stored: Sequence[StoredBlocks],
    key_group: int,
    start: bytes,
    stop: bytes | None,
    prefix_bytes: int,
) -> Iterator[SstRows]:
    """The rows of a large key group with keys in ``[start, stop)``, whose blocks were read. Small
    records take ten times their packed bytes once they are rows, so few are rows at once.
    """
    for low, high in _key_ranges(readers, start, stop, CUT_BYTES):
        runs = [each.entries(low, high, prefix_bytes).between(low, high) for each in stored]
        every = [each for each in runs if len(each)]
        yield _merged(every, key_group, key_group, prefix_bytes)


def _read_bytes(readers: Sequence[TableReader]) -> int:
    return STORE_READ_BYTES if any(reader.reads_ahead for reader in readers) else READ_BYTES


def _key_ranges(
    readers: Sequence[TableReader], start: bytes, stop: bytes | None, part_bytes: int
) -> Iterator[tuple[bytes, bytes | None]]:
    """Divides a range of keys into parts whose blocks have about some size."""
    low = start
    for key in _keys_between(readers, start, stop, part_bytes):
        yield low, key
        low = key
    yield low, stop


def _keys_between(
    readers: Sequence[TableReader], start: bytes, stop: bytes | None, part_bytes: int
) -> Iterator[bytes]:
    """Keys that divide a range of them, from the indexes of all table files: those of a level have
    other keys each.
    """
    step = max(1, part_bytes // _STEPS)
    steps = [pair for reader in readers for pair in reader.keys_between(start, stop, step)]
    size, last = 0, start
    for key, own_size in sorted(steps):
        size += own_size
        if size >= part_bytes and last < key and (stop is None or key < stop):
            yield key
            size, last = 0, key


def _stored_bytes(readers: Sequence[TableReader], start: bytes, stop: bytes | None) -> int:
    return sum(reader.stored_bytes(start, stop) for reader in readers)


def _parts(
    readers: Sequence[TableReader], first: int, last: int, prefix_bytes: int, part_bytes: int
) -> Iterator[tuple[int, int, int]]:
    """Divides key groups by the size of their blocks; yields the first one, the last one, and the
    size of all together.
    """
    size = _stored_bytes(readers, *_bounds(first, last, prefix_bytes))
    count = last - first + 1
    parts = max(1, min(count, -(-size // part_bytes)))
    for part in range(parts):
        yield first + count * part // parts, first + count * (part + 1) // parts - 1, size


def _bounds(first: int, last: int, prefix_bytes: int) -> tuple[bytes, bytes | None]:
    """The first key of some key groups, and the first key after them; None if there is none."""
    is_end = last + 1 == 1 << 8 * prefix_bytes
    stop = None if is_end else (last + 1).to_bytes(prefix_bytes, "big")
    return b"" if first == 0 else first.to_bytes(prefix_bytes, "big"), stop


def _merged(every: list[TableEntries], first: int, last: int, prefix_bytes: int) -> SstRows:
    total = sum(map(len, every))
    runs = np.empty((len(every), 2), np.int64)
    for at, run in enumerate(every):
        runs[at, 0] = address_of(run.lines)
        runs[at, 1] = runs[at, 0] + ENTRY_BYTES * len(run)
    merges = any(bool((each.lines[:, TRAILER] & 0xFF == MERGE).any()) for each in every)
    spans = scratch_words(total, scan.SPAN_WORDS)
    operands = np.empty((total if merges else 1, table_merge.OPERAND_WORDS), np.int64)
    order, result = np.empty(len(every), np.int64), np.zeros(table_merge.RESULT_WORDS, np.int64)
    rows = table_merge.merge_runs(
        address_of(runs),
        address_of(order),
        len(every),
        prefix_bytes,
        first,
        last,
        address_of(spans),
        address_of(operands),
        address_of(result),
    )
    if rows < 0:
        raise FormatError(
            "A table file holds an unsupported kind of entry",
            expected="put, merge, delete, single delete",
            got=int(result[table_merge.BAD_KIND]),
        )
    kept = [each.kept for each in every]
    _join_operands(spans, operands[: int(result[table_merge.OPERAND_COUNT])], kept)
    return SstRows(spans[:rows], kept)


def _join_operands(spans: Int64s, operands: Int64s, kept: list[Any]) -> None:
    """Gives each row that ends with a merge its whole value: its versions, oldest first."""
    if not len(operands):
        return
    oldest_first = operands[::-1]
    firsts = np.flatnonzero(np.diff(oldest_first[:, 0], prepend=-1))
    items = Ranges(oldest_first[:, 1], oldest_first[:, 2])
    values = joined_items(items, np.append(firsts, len(operands)), kept)
    rows = oldest_first[firsts, 0]
    spans[rows, scan.VALUE_START], spans[rows, scan.VALUE_END] = values.starts, values.ends
