"""Writes a table file without some keys: blocks that have none of them are copied as they are.

All versions of a key go, and entries that stay keep their sequence numbers. So the file takes the
place of the old one in its level, whatever the other files of the column family are. Nothing that
is derived from a key that went stays: the index is built anew, and the filter is left out.
"""

from __future__ import annotations

import ctypes
import secrets
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import uuid4

import cramjam
import numpy as np

from dstl_core.codec.columnar.kernels.tables.table_blocks import (
    BLOCK_END,
    BLOCK_START,
    KEY_END,
    KEY_START,
    TRAILER,
    TRAILER_BYTES,
    VALUE_END,
    VALUE_START,
)
from dstl_core.codec.columnar.kernels.tables.table_write import (
    ENTRY_ROOM_BYTES,
    RESTART_INTERVAL,
    write_kept,
)
from dstl_core.codec.columnar.keyed.marked_keys import KeyMarks, Mask
from dstl_core.codec.columnar.keyed.sst_blocks import TableEntries, TableReader
from dstl_core.codec.columnar.keyed.sst_writer import index_block
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.scratch import scratch, scratch_words
from dstl_core.codec.sst.block import (
    BLOCK_TRAILER_BYTES,
    block_checksum,
    varint,
    whole_key_block,
)
from dstl_core.codec.sst.file import (
    DELETION,
    FOOTER_BYTES,
    MERGE,
    SINGLE_DELETION,
    TABLE_MAGIC,
    ReadRange,
    SstFile,
    unique_id_of,
)
from dstl_core.codec.sst.table_builder import SESSION_DIGITS, SESSION_SIZE

_NOT_PACKED, _SNAPPY = 0, 1
_COPIED_BYTES = 1 << 20
"""How much of a file is copied at once: what stays in the cache of a processor."""
_BLOCKS_TOGETHER = 1 << 10
_BYTES_TOGETHER = 4 << 20
"""Blocks that are unpacked at once, and about their bytes in the file: large values have blocks of
their own.
"""


@dataclass(frozen=True)
class CutTable:
    """A table file without some keys.

    Args:
        size: Bytes of the file; 0 if no entry is left.
        parts: Yields them. What it gets reads the old file, from its start to its end.
        smallest: Its first key, with sequence number and kind.
        largest: Its last one.
        unique_id: What identifies its content.
        removed: Number of entries that went, older versions and deletions included.
    """

    size: int
    parts: Callable[[ReadRange], Iterator[bytes]]
    smallest: bytes
    largest: bytes
    unique_id: bytes
    removed: int


class KeyPrefixes:
    """Stored keys that start with one of some byte strings, none of which is the start of another.

    Args:
        prefixes: The byte strings.
    """

    def __init__(self, prefixes: Iterable[bytes]) -> None:
        self._prefixes = sorted(prefixes)
        self.marks = KeyMarks(self._prefixes)

    def hold(self, key: bytes) -> bool:
        at = bisect_right(self._prefixes, key) - 1
        return at >= 0 and key.startswith(self._prefixes[at])

    def blocks(self, index: Int64s) -> Int64s:
        """The numbers of the blocks of a file that may have such keys, ascending.

        Args:
            index: A line of the index for each block, as ``TableReader`` has them.
        """
        if not len(index):
            return np.empty(0, np.int64)
        own, bounds = self._prefixes, (_key(index[0]), _key(index[-1]))
        # Those that end before the second block are looked for in the first one alone.
        first = max(0, bisect_right(own, bounds[0]) - 1)
        marks = self.marks.blocks_of(index, first, bisect_right(own, bounds[1]))
        marks[0] |= first > 0
        return np.flatnonzero(marks)


def _key(line: Int64s) -> bytes:
    start, end = int(line[KEY_START]), int(line[KEY_END])
    return ctypes.string_at(start, end - start)


def can_be_cut(file: SstFile) -> bool:
    """Whether ``cut_table`` can write the file: range deletions would need its neighbours."""
    return not file.tombstones


def count_entries(table: TableReader, gone: KeyPrefixes) -> int:
    """How many entries of a file are of the keys, older versions and deletions included.

    Raises:
        FormatError: The file is damaged.
    """
    return sum(len(rows) for _, _, rows in marked_entries(table, gone, gone.marks, 0))


def marked_entries(
    table: TableReader, places: KeyPrefixes, marks: KeyMarks, skip: int
) -> Iterator[tuple[Int64s, TableEntries, Int64s]]:
    """Looks for keys in the blocks that may have them.

    Args:
        table: The file.
        places: What the stored keys start with.
        marks: The keys.
        skip: Bytes of a stored key before them.

    Yields:
        Numbers of blocks; their entries; the rows of those that have one of the keys.

    Raises:
        FormatError: The file is damaged.
    """
    numbers = places.blocks(table.index)
    sizes = table.index[numbers, BLOCK_END] - table.index[numbers, BLOCK_START]
    ends, start = np.cumsum(sizes), 0
    while start < len(numbers):
        most = int(ends[start] - sizes[start]) + _BYTES_TOGETHER
        fitting = int(np.searchsorted(ends, most, "right"))
        stop = max(start + 1, min(fitting, start + _BLOCKS_TOGETHER))
        blocks = numbers[start:stop]
        entries = table.entries_of(blocks, skip)
        yield blocks, entries, np.flatnonzero(marks.of(entries.lines, skip))
        start = stop


def cut_table(table: TableReader, gone: KeyPrefixes) -> CutTable | None:
    """The file without the keys; None if it has none of them.

    Raises:
        FormatError: The file is damaged.
    """
    cut: dict[int, _CutBlock] = {}
    went = _Went()
    # A key of the index is between two blocks, and may start as the first key behind it does.
    named = set(np.flatnonzero(gone.marks.of(table.index, 0)).tolist())
    for numbers, entries, rows in marked_entries(table, gone, gone.marks, 0):
        if not len(rows):
            continue
        went.add(entries.lines[rows])
        marks = np.zeros(len(entries), np.bool_)
        marks[rows] = True
        bounds = entries.firsts
        assert bounds is not None  # blocks were asked for
        for place in np.unique(entries.blocks_of(rows)).tolist():
            at, start, end = int(numbers[place]), int(bounds[place]), int(bounds[place + 1])
            if marks[start]:
                named.add(at - 1)
            cut[at] = _cut_block(entries, start, end, marks[start:end])
    return _Cut(table, cut, went, named).table() if cut else None


@dataclass(frozen=True)
class _CutBlock:
    """A block without the entries that go: its payload, its first and its last key with sequence
    number and kind; or nothing, if no entry is left.
    """

    payload: bytes
    first: bytes = b""
    last: bytes = b""


@dataclass
class _Went:
    """The entries that go: how many of each kind, and their bytes."""

    kinds: Counter[int] = field(default_factory=Counter)
    key_bytes: int = 0
    value_bytes: int = 0

    def add(self, lines: Int64s) -> None:
        sizes = (lines[:, [KEY_END, VALUE_END]] - lines[:, [KEY_START, VALUE_START]]).sum(0)
        self.key_bytes += int(sizes[0]) + TRAILER_BYTES * len(lines)
        self.value_bytes += int(sizes[1])
        self.kinds.update((lines[:, TRAILER] & 0xFF).tolist())


def _cut_block(entries: TableEntries, start: int, end: int, gone: Mask) -> _CutBlock:
    """The block of the entries ``[start, end)`` without those that go."""
    kept = np.flatnonzero(~gone)
    if not len(kept):
        return _CutBlock(b"")
    lines, rows = entries.lines[start:end], end - start
    size = int((lines[:, [KEY_END, VALUE_END]] - lines[:, [KEY_START, VALUE_START]]).sum())
    room = scratch(size + rows * ENTRY_ROOM_BYTES)
    restarts = scratch_words(rows // RESTART_INTERVAL + 1, 1)
    places = address_of(room), address_of(restarts)
    size = write_kept(address_of(lines), rows, address_of(gone), *places)
    first, last = (entries.tagged_key(start + int(kept[at])) for at in (0, -1))
    return _CutBlock(room[:size].tobytes(), first, last)


@dataclass
class _Cut:
    """Places the blocks that stay, and what belongs behind them."""

    table_reader: TableReader
    cut: dict[int, _CutBlock]
    went: _Went
    named: set[int]
    """Blocks after which the index may have bytes of a key that went."""
    pieces: list[bytes | range] = field(default_factory=list)
    """Bytes that are new, and places of the old file."""
    size: int = 0
    held: list[bytes] = field(default_factory=list)
    """Last keys of blocks, whose addresses are in the index."""

    @property
    def file(self) -> SstFile:
        return self.table_reader.file

    def table(self) -> CutTable:
        index, removed = self._index(), self.went.kinds.total()
        if not len(index):
            return CutTable(0, lambda read: iter(()), b"", b"", b"", removed)
        smallest, largest = self._first(), self._last()
        unique_id = self._finish(index)
        return CutTable(self.size, self._parts, smallest, largest, unique_id, removed)

    def _index(self) -> Int64s:
        """The lines of the new index."""
        old = self.table_reader.index
        parts: list[Int64s] = []
        for before, at in pairwise([-1, *sorted(self.cut), len(old)]):
            lines = old[before + 1 : at].copy()
            if len(lines):
                begin, end = int(lines[0, BLOCK_START]), int(lines[-1, BLOCK_END])
                lines[:, BLOCK_START : BLOCK_END + 1] += self.size - begin
                for named in self.named.intersection(range(before + 1, at)):
                    self._name(lines[named - before - 1], self._keys_of(named)[1])
                self.pieces.append(range(begin, end))
                self.size += end - begin
                parts.append(lines)
            if at in self.cut and self.cut[at].payload:
                parts.append(self._new_line(self.cut[at]))
        return np.concatenate([old[:0], *parts])

    def _new_line(self, block: _CutBlock) -> Int64s:
        """Writes a block; returns its line of the index."""
        key, start = block.last, self.size
        self._added(block.payload)
        line = np.zeros((1, self.table_reader.index.shape[1]), np.int64)
        self._name(line[0], key)
        line[0, BLOCK_START], line[0, BLOCK_END] = start, self.size
        return line

    def _name(self, line: Int64s, key: bytes) -> None:
        """Writes the last key of a block into its line of the index."""
        data = np.frombuffer(key, np.uint8)
        self.held.append(key)
        line[KEY_START] = address_of(data)
        line[KEY_END] = address_of(data) + len(key) - TRAILER_BYTES

    def _first(self) -> bytes:
        return next(keys[0] for keys in self._left(range(len(self.table_reader.index))))

    def _last(self) -> bytes:
        numbers = range(len(self.table_reader.index) - 1, -1, -1)
        return next(keys[1] for keys in self._left(numbers))

    def _left(self, numbers: range) -> Iterator[tuple[bytes, bytes]]:
        """The first and the last key of blocks of which something is left."""
        for at in numbers:
            block = self.cut.get(at)
            if block is None:
                yield self._keys_of(at)
            elif block.payload:
                yield block.first, block.last

    def _keys_of(self, at: int) -> tuple[bytes, bytes]:
        """The first and the last key of an old block."""
        entries = self.table_reader.entries_of(np.array([at], np.int64), 0)
        return entries.tagged_key(0), entries.tagged_key(len(entries) - 1)

    def _added(self, payload: bytes, *, is_packed: bool = True) -> bytes:
        """Appends a block with its trailer; returns its handle."""
        raw, kind = payload, _NOT_PACKED
        if is_packed:
            packed = bytes(cramjam.snappy.compress_raw(raw))
            if len(packed) < len(raw) - len(raw) // 8:  # as RocksDB decides
                raw, kind = packed, _SNAPPY
        checksum = block_checksum(raw, kind, self.file.checksum_type, self.size) or 0
        place = varint(self.size) + varint(len(raw))
        self.pieces.append(raw + bytes((kind,)) + checksum.to_bytes(4, "little"))
        self.size += len(raw) + BLOCK_TRAILER_BYTES
        return place

    def _parts(self, read: ReadRange) -> Iterator[bytes]:
        """The bytes of the file; blocks that stay are read now."""
        for piece in self.pieces:
            if isinstance(piece, bytes):
                yield piece
                continue
            for start in piece[::_COPIED_BYTES]:
                yield read(start, min(start + _COPIED_BYTES, piece.stop))

    def _finish(self, index: Int64s) -> bytes:
        """Adds index, properties and footer; returns the unique id."""
        file, data_size = self.file, self.size
        key_trailer = 0 if file.user_key_index else TRAILER_BYTES
        block = index_block(index, has_sizes=not file.delta_index, key_trailer=key_trailer)
        index_place = self._added(block, is_packed=False)
        properties, unique_id = self._properties(len(index), data_size, len(block))
        place = self._added(whole_key_block(sorted(properties.items())), is_packed=False)
        meta_index = whole_key_block([(b"rocksdb.properties", place)])
        meta_place = self._added(meta_index, is_packed=False)
        footer = bytes((file.checksum_type,)) + meta_place + index_place
        footer = footer.ljust(FOOTER_BYTES - 12, b"\0")
        self.pieces.append(
            footer + file.format_version.to_bytes(4, "little") + TABLE_MAGIC.to_bytes(8, "little")
        )
        self.size += FOOTER_BYTES
        return unique_id

    def _properties(
        self, blocks: int, data_size: int, index_size: int
    ) -> tuple[dict[bytes, bytes], bytes]:
        file, kinds = self.file, self.went.kinds
        deleted = kinds[DELETION] + kinds[SINGLE_DELETION]
        less = {
            "num.entries": kinds.total(),
            "deleted.keys": deleted,
            "merge.operands": kinds[MERGE],
            "raw.key.size": self.went.key_bytes,
            "raw.value.size": self.went.value_bytes,
        }
        known = {name: file.number(f"rocksdb.{name}") for name in less}
        database, number = str(uuid4()).encode(), 1
        session = "".join(secrets.choice(SESSION_DIGITS) for _ in range(SESSION_SIZE))
        new = {name: varint(max(0, known[name] - count)) for name, count in less.items()}
        new |= {
            "block.based.table.index.type": (0).to_bytes(4, "little"),
            "creating.db.identity": database,
            "creating.session.identity": session.encode(),
            "data.size": varint(data_size),
            "filter.size": b"\0",
            "index.partitions": b"\0",
            "index.size": varint(index_size + BLOCK_TRAILER_BYTES),
            "num.data.blocks": varint(blocks),
            "num.filter_entries": b"\0",
            "original.file.number": varint(number),
            "top-level.index.size": b"\0",
        }
        if b"rocksdb.tail.start.offset" in file.properties:
            new["tail.start.offset"] = varint(data_size)
        old = {
            name: text
            for name, text in file.properties.items()
            if name.startswith(b"rocksdb.") and name != b"rocksdb.filter.policy"
        }
        unique_id = unique_id_of(database, session, number)
        assert unique_id is not None  # the session has the form that it must have
        return old | {f"rocksdb.{name}".encode(): text for name, text in new.items()}, unique_id
