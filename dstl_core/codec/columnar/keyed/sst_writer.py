"""Writes records of canonical sections as sorted table files of RocksDB, one column family a state.

A row of a family is the key and the value of a canonical record.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.kernels.tables.table_blocks import (
    BLOCK_END,
    BLOCK_START,
    INDEX_WORDS,
    KEY_END,
    KEY_START,
)
from dstl_core.codec.columnar.kernels.tables.table_sort import sort_keys, whole_keys, words_of_keys
from dstl_core.codec.columnar.kernels.tables.table_write import (
    BLOCK_WORDS,
    ENTRY_ROOM_BYTES,
    INDEX_ROOM_BYTES,
    RESTART_INTERVAL,
    gather_bytes,
    write_blocks,
    write_index,
)
from dstl_core.codec.columnar.keyed.packed_blocks import Bytes, packed_blocks
from dstl_core.codec.columnar.keyed.sections import Section, SectionChunk, SectionChunks
from dstl_core.codec.columnar.keyed.spans import SectionScanner
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.scratch import scratch, scratch_words
from dstl_core.codec.sst.block import BLOCK_TRAILER_BYTES
from dstl_core.codec.sst.table_builder import BLOCK_BYTES, HELD_BYTES, Table, TableBuilder
from dstl_core.errors import DuplicateKeyError, InvariantViolation

TABLE_BYTES = 64 << 20
"""A table file ends once it has this many bytes (RocksDB's and Flink's default)."""
_SORTED_BYTES = 4 << 20
"""Key groups are sorted together up to this size."""
_LEAST_RECORD_BYTES = 10
_ROWS = 1
"""Where a written block has its rows; its bytes of keys and of values follow."""

Apart = Callable[[int, Int64s], None]
"""Takes records of a state that get no table file: its id, and their spans with whole keys."""
KeyGroupSection = tuple[int, bytes]
"""A key group and its section, not compressed."""


@dataclass(frozen=True)
class FamilyTable:
    """A table file of the state with this id."""

    state_id: int
    table: Table


def tables_of(
    families: Sequence[str | None],
    prefix_bytes: int,
    sections: Iterable[KeyGroupSection],
    table_bytes: int = TABLE_BYTES,
    apart: Apart | None = None,
) -> Iterator[FamilyTable]:
    """Yields the table files of some key groups; those of a state in the order of their keys.

    Args:
        families: The column family of each state, by state id; None for a state without one.
        prefix_bytes: Bytes of a key group.
        sections: The sections of ascending key groups.
        table_bytes: Size at which a file ends.
        apart: Takes the records of states without a column family.

    Raises:
        FormatError: A section is damaged.
        DuplicateKeyError: A key has two values in one state.
    """
    numbers = count(1)
    states = {
        at: FamilyWriter(name, at, next(numbers), prefix_bytes, table_bytes)
        for at, name in enumerate(families)
        if name is not None
    }
    for key_groups in _together(sections):
        for state_id, spans in _spans(key_groups, len(families), prefix_bytes):
            if state_id in states:
                yield from states[state_id].add(spans)
            else:
                assert apart is not None  # a state has no family only where it goes elsewhere
                apart(state_id, spans)
            del spans  # no copy of a large key group is held while the next one is read
        key_groups.clear()
        while sum(state.size for state in states.values()) > HELD_BYTES:
            yield from max(states.values(), key=lambda state: state.size).finish()
    for state in states.values():
        yield from state.finish()


def _together(sections: Iterable[KeyGroupSection]) -> Iterator[list[KeyGroupSection]]:
    """Divides key groups into groups that are sorted at once."""
    waiting: list[KeyGroupSection] = []
    size = 0
    for key_group, section in sections:
        if not section:
            continue
        if waiting and size + len(section) > _SORTED_BYTES:
            yield waiting
            waiting, size = [], 0
        waiting.append((key_group, section))
        size += len(section)
        if size > _SORTED_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _spans(
    key_groups: list[KeyGroupSection], states: int, prefix_bytes: int
) -> Iterator[tuple[int, Int64s]]:
    """The records of each state in some key groups, with whole keys. They are valid until the next
    ones are asked for.
    """
    data = bytearray().join(section for _, section in key_groups)
    places, at = [], 0
    for key_group, section in key_groups:
        places.append(Section(key_group, at, at + len(section), 0))
        at += len(section)
    rows = at // _LEAST_RECORD_BYTES + 1
    scanner = SectionScanner(prefix_bytes, [True] * states, rows, at + 1)
    batches = list(scanner.batches(_one_chunk(data, places)))
    for batch in batches:  # one, since it has room for all records
        whole_keys(address_of(batch.spans), len(batch), prefix_bytes)
        for state_id, records in batch.by_state():
            yield state_id, records.spans


def _one_chunk(data: bytearray, places: list[Section]) -> SectionChunks:
    yield SectionChunk(memoryview(data), places)


class FamilyWriter:
    """Writes the table files of one state.

    Args:
        name: Its column family.
        state_id: Its number, for who takes the files.
        family_id: The number of the column family in its database.
        prefix_bytes: Bytes of a key group.
        table_bytes: Size at which a file ends.
    """

    def __init__(
        self, name: str, state_id: int, family_id: int, prefix_bytes: int, table_bytes: int
    ) -> None:
        self._name = name
        self._prefix_bytes = prefix_bytes
        self._state_id = state_id
        self._family_id = family_id
        self._table_bytes = table_bytes
        self._builder = TableBuilder(name, family_id)
        self._blocks: list[_Blocks] = []
        """Those of the unfinished file."""
        self._last = b""
        """The last key that was added."""

    @property
    def size(self) -> int:
        """Bytes of the unfinished file."""
        return self._builder.size

    def add(self, spans: Int64s) -> Iterator[FamilyTable]:
        """Adds records whose keys sort after those before; yields the files that are full.

        Raises:
            DuplicateKeyError: Two records have the same key.
        """
        order = sorted_rows(spans, self._prefix_bytes)
        sizes = spans[:, scan.KEY_END] - spans[:, scan.KEY_START]
        sizes += spans[:, scan.VALUE_END] - spans[:, scan.VALUE_START]
        ends = np.cumsum(sizes[order])
        # Some megabytes at a time: a large key group has no second copy.
        cuts = np.flatnonzero(np.diff(ends // _SORTED_BYTES)) + 1
        bounds = [0, *cuts.tolist(), len(order)]
        for start, end in pairwise(bounds):
            size = int(ends[end - 1] - (ends[start - 1] if start else 0))
            yield from self._add_rows(spans, order[start:end], size)

    def _add_rows(self, spans: Int64s, order: Int64s, size: int) -> Iterator[FamilyTable]:
        """Adds rows in an order; ``size`` is that of their keys and values."""
        rows = len(order)
        target = scratch(size + rows * ENTRY_ROOM_BYTES)
        restarts = scratch_words(rows // RESTART_INTERVAL + 1, 1)
        blocks = scratch_words(rows, BLOCK_WORDS)
        places = address_of(target), address_of(restarts), address_of(blocks)
        count = write_blocks(address_of(spans), address_of(order), rows, BLOCK_BYTES, *places)
        lowest, before_it = _key(spans[order[0]]), self._last
        if before_it > lowest:
            raise InvariantViolation(f"rows of {self._name!r} are not added in order")
        self._last = _key(spans[order[-1]])
        if count < 0 or before_it == lowest:
            raise DuplicateKeyError(
                f"State {self._name!r} has a key in two records, and files of RocksDB hold each "
                f"key once; write the state in canonical form, of which Flink keeps the last one."
            )
        yield from self._add_blocks(spans, order, target.data, blocks[:count])

    def _add_blocks(
        self, spans: Int64s, order: Int64s, payloads: memoryview, blocks: Int64s
    ) -> Iterator[FamilyTable]:
        """Adds blocks that ``write_blocks`` has written; yields the files that are full."""
        keys = spans[order[blocks[:, _ROWS] - 1], scan.KEY_START : scan.KEY_END + 1]
        size = int(blocks[-1, 0])
        packed, ends = packed_blocks(payloads[:size], blocks[:, 0])
        start = row = 0
        counted = np.zeros(BLOCK_WORDS, np.int64)
        while start < len(blocks):
            builder = self._builder
            begin = int(ends[start - 1]) if start else 0
            # The file ends behind the block that fills it.
            full = begin + self._table_bytes - builder.size
            stop = min(len(blocks), int(np.searchsorted(ends, full)) + 1)
            if not builder.size:
                builder.smallest = _key(spans[order[row]])
            self._blocks.append(
                _Blocks.of(keys[start:stop], ends[start:stop] - begin + builder.size)
            )
            builder.append(packed[begin : int(ends[stop - 1])].tobytes())
            row, key_bytes, value_bytes = blocks[stop - 1, _ROWS:].tolist()
            builder.largest = _key(spans[order[row - 1]])
            builder.blocks += stop - start
            builder.entries += row - int(counted[_ROWS])
            builder.key_bytes += key_bytes - int(counted[_ROWS + 1])
            builder.value_bytes += value_bytes - int(counted[_ROWS + 2])
            counted, start = blocks[stop - 1], stop
            if builder.size >= self._table_bytes:
                yield from self.finish()

    def finish(self) -> Iterator[FamilyTable]:
        """The file with the records since the one before; none without records."""
        if self.size:
            index = _index_of(self._blocks)
            table = FamilyTable(self._state_id, self._builder.finish(index))
            self._builder = TableBuilder(self._name, self._family_id)  # lets the blocks go
            self._blocks = []
            yield table


@dataclass(frozen=True)
class _Blocks:
    """Data blocks of a file.

    Args:
        keys: The last key of each, one after the other.
        sizes: The sizes of these keys.
        ends: The places behind the blocks in the file.
    """

    keys: Bytes
    sizes: Int64s
    ends: Int64s

    @classmethod
    def of(cls, keys: Int64s, ends: Int64s) -> _Blocks:
        """``keys`` are the addresses where the last keys start and end."""
        places = np.ascontiguousarray(keys)
        sizes = places[:, 1] - places[:, 0]
        held = np.empty(int(sizes.sum()), np.uint8)
        gather_bytes(address_of(places), len(places), address_of(held))
        return cls(held, sizes, ends)


def _index_of(blocks: Sequence[_Blocks]) -> bytes:
    """The index block of data blocks."""
    held = np.concatenate([each.keys for each in blocks])
    sizes = np.concatenate([each.sizes for each in blocks])
    lines = np.empty((len(sizes), INDEX_WORDS), np.int64)
    lines[:, KEY_END] = np.cumsum(sizes) + address_of(held)
    lines[:, KEY_START] = lines[:, KEY_END] - sizes
    lines[:, BLOCK_END] = np.concatenate([each.ends for each in blocks])
    lines[0, BLOCK_START] = 0
    lines[1:, BLOCK_START] = lines[:-1, BLOCK_END]
    return index_block(lines, has_sizes=False, key_trailer=0)


def index_block(lines: Int64s, *, has_sizes: bool, key_trailer: int) -> bytes:
    """An index block in which every key is whole.

    Args:
        lines: The data blocks, as ``unpack_index`` writes them.
        has_sizes: Whether entries have the size of their value.
        key_trailer: Bytes after a key that belong to it.
    """
    rows = len(lines)
    key_bytes = int((lines[:, KEY_END] - lines[:, KEY_START]).sum())
    room = scratch(key_bytes + INDEX_ROOM_BYTES * (rows + 1))
    restarts = scratch_words(rows, 1)
    places = address_of(room), address_of(restarts)
    size = write_index(
        address_of(lines), rows, has_sizes, key_trailer, BLOCK_TRAILER_BYTES, *places
    )
    return room[:size].tobytes()


def keys_in_order(spans: Int64s, before: bytes) -> bytes | None:
    """The last key of records of one key group, if their keys ascend, from ``before`` on; None if
    they do not.
    """
    order = sorted_rows(spans, 0)
    is_after = not before or before < _key(spans[0])
    return _key(spans[-1]) if is_after and (np.diff(order) == 1).all() else None


def sorted_rows(spans: Int64s, prefix_bytes: int) -> Int64s:
    """The row numbers in the order of the keys."""
    rows = len(spans)
    words, order, spare = (scratch_words(rows, 1)[:, 0] for _ in range(3))
    words_of_keys(address_of(spans), rows, prefix_bytes, address_of(words))
    place = address_of(words), address_of(order), address_of(spare)
    return order if sort_keys(address_of(spans), rows, *place) else spare


def _key(span: Int64s) -> bytes:
    start, end = int(span[scan.KEY_START]), int(span[scan.KEY_END])
    return ctypes.string_at(start, end - start)
