"""Writes a table file without some keys: blocks that have none of them are copied as they are.

All versions of a key go, and entries that stay keep their sequence numbers. So the file takes the
place of the old one in its level, whatever the other files of the column family are. Nothing that
is derived from a key that went stays: the index is built anew, and the filter is left out.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import cramjam

from dstl_core.codec.sst.block import (
    BLOCK_TRAILER_BYTES,
    BlockHandle,
    block_checksum,
    block_entries,
    unpack_block,
    varint,
    whole_key_block,
)
from dstl_core.codec.sst.file import (
    DELETION,
    FOOTER_BYTES,
    MERGE,
    SINGLE_DELETION,
    TABLE_MAGIC,
    SstFile,
    unique_id_of,
)
from dstl_core.codec.sst.manifest import KeyRange
from dstl_core.codec.sst.table_builder import SESSION_DIGITS, SESSION_SIZE

_RESTART_INTERVAL = 16
_TRAILER_BYTES = 8
_NOT_PACKED, _SNAPPY = 0, 1

Entry = tuple[bytes, bytes]
"""A key with its sequence number and kind, and a value."""


@dataclass(frozen=True)
class CutTable:
    """A table file without some keys.

    Args:
        data: The file; empty if no entry is left.
        smallest: Its first key, with sequence number and kind.
        largest: Its last one.
        unique_id: What identifies its content.
        removed: Number of entries that went, older versions and deletions included.
    """

    data: bytes
    smallest: bytes
    largest: bytes
    unique_id: bytes
    removed: int


class KeyRanges:
    """Ranges of keys that do not overlap."""

    def __init__(self, ranges: Sequence[KeyRange]) -> None:
        self._ranges = sorted(ranges, key=lambda own: own[0])
        self._starts = [start for start, _ in self._ranges]

    def __iter__(self) -> Iterator[KeyRange]:
        return iter(self._ranges)

    def hold(self, key: bytes) -> bool:
        at = bisect_right(self._starts, key) - 1
        if at < 0:
            return False
        stop = self._ranges[at][1]
        return stop is None or key < stop


def can_be_cut(file: SstFile) -> bool:
    """Whether ``cut_table`` can write the file: range deletions would need its neighbours."""
    return not file.tombstones


def count_entries(file: SstFile, gone: KeyRanges) -> int:
    """How many entries of a file are in the ranges, older versions and deletions included.

    Raises:
        FormatError: The file is damaged.
    """
    return sum(
        gone.hold(key[:-_TRAILER_BYTES])
        for _, entries in _blocks_with(file, gone)
        for key, _ in entries
    )


def cut_table(file: SstFile, gone: KeyRanges) -> CutTable | None:
    """The file without the keys of the ranges; None if it has none of them.

    Raises:
        FormatError: The file is damaged.
    """
    cut: dict[int, list[Entry]] = {}
    went: list[Entry] = []
    for at, entries in _blocks_with(file, gone):
        left = [entry for entry in entries if not gone.hold(entry[0][:-_TRAILER_BYTES])]
        if len(left) < len(entries):
            cut[at] = left
            went += [entry for entry in entries if gone.hold(entry[0][:-_TRAILER_BYTES])]
    return _Writer(file, cut, went).table() if cut else None


def _blocks_with(file: SstFile, gone: KeyRanges) -> Iterator[tuple[int, list[Entry]]]:
    """The number and the entries of each block that may have keys of the ranges."""
    bounds = [key for key, _ in file.index]
    numbers: set[int] = set()
    for start, stop in gone:
        last = len(bounds) if stop is None else min(len(bounds), bisect_left(bounds, stop) + 1)
        numbers.update(range(bisect_left(bounds, start), last))
    for at in sorted(numbers):
        handle = file.index[at][1]
        raw = file.read(handle.offset, handle.end)
        payload = unpack_block(raw, file.checksum_type, handle.offset)
        yield at, list(block_entries(payload, handle.offset))


@dataclass
class _Writer:
    """Writes the blocks that stay, and what belongs behind them."""

    file: SstFile
    cut: dict[int, list[Entry]]
    went: list[Entry]
    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def table(self) -> CutTable:
        file, index = self.file, list[Entry]()
        waiting: list[tuple[bytes, BlockHandle]] = []
        for at, (bound, handle) in enumerate(file.stored_index()):
            if at not in self.cut:
                waiting.append((bound, handle))
                continue
            index += self._copied(waiting)
            waiting = []
            if self.cut[at]:
                last = self.cut[at][-1][0]
                bound = last[:-_TRAILER_BYTES] if file.user_key_index else last
                index.append((bound, self._added(_payload(self.cut[at]))))
        index += self._copied(waiting)
        if not index:
            return CutTable(b"", b"", b"", b"", len(self.went))
        smallest, largest = self._first(), self._last()
        unique_id = self._finish(index)
        return CutTable(b"".join(self.parts), smallest, largest, unique_id, len(self.went))

    def _copied(self, blocks: list[tuple[bytes, BlockHandle]]) -> list[Entry]:
        """Copies blocks that follow each other by one read; returns their entries of the index."""
        if not blocks:
            return []
        begin, end = blocks[0][1].offset, blocks[-1][1].end
        moved = self.size - begin
        self.parts.append(self.file.read(begin, end))
        self.size += end - begin
        return [(bound, varint(own.offset + moved) + varint(own.size)) for bound, own in blocks]

    def _first(self) -> bytes:
        return next(entries[0][0] for entries in self._left(range(len(self.file.index))))

    def _last(self) -> bytes:
        numbers = range(len(self.file.index) - 1, -1, -1)
        return next(entries[-1][0] for entries in self._left(numbers))

    def _left(self, numbers: range) -> Iterator[list[Entry]]:
        for at in numbers:
            entries = self.cut.get(at)
            if entries is None:
                handle = self.file.index[at][1]
                raw = self.file.read(handle.offset, handle.end)
                payload = unpack_block(raw, self.file.checksum_type, handle.offset)
                entries = list(block_entries(payload, handle.offset))
            if entries:
                yield entries

    def _added(self, payload: bytes, *, is_packed: bool = True) -> bytes:
        raw, kind = payload, _NOT_PACKED
        if is_packed:
            packed = bytes(cramjam.snappy.compress_raw(raw))
            if len(packed) < len(raw) - len(raw) // 8:  # as RocksDB decides
                raw, kind = packed, _SNAPPY
        checksum = block_checksum(raw, kind, self.file.checksum_type, self.size) or 0
        return self._placed(raw + bytes((kind,)) + checksum.to_bytes(4, "little"))

    def _placed(self, block: bytes) -> bytes:
        """Appends a block with its trailer; returns its handle."""
        place = varint(self.size) + varint(len(block) - BLOCK_TRAILER_BYTES)
        self.parts.append(block)
        self.size += len(block)
        return place

    def _finish(self, index: list[Entry]) -> bytes:
        """Adds index, properties and footer; returns the unique id."""
        file, data_size = self.file, self.size
        block = whole_key_block(index, has_sizes=not file.delta_index)
        index_place = self._added(block, is_packed=False)
        properties, unique_id = self._properties(len(index), data_size, len(block))
        place = self._added(whole_key_block(sorted(properties.items())), is_packed=False)
        meta_index = whole_key_block([(b"rocksdb.properties", place)])
        meta_place = self._added(meta_index, is_packed=False)
        footer = bytes((file.checksum_type,)) + meta_place + index_place
        footer = footer.ljust(FOOTER_BYTES - 12, b"\0")
        self.parts.append(
            footer + file.format_version.to_bytes(4, "little") + TABLE_MAGIC.to_bytes(8, "little")
        )
        return unique_id

    def _properties(
        self, blocks: int, data_size: int, index_size: int
    ) -> tuple[dict[bytes, bytes], bytes]:
        file, kinds = self.file, Counter(key[-_TRAILER_BYTES] for key, _ in self.went)
        deleted = kinds[DELETION] + kinds[SINGLE_DELETION]
        less = {
            "num.entries": len(self.went),
            "deleted.keys": deleted,
            "merge.operands": kinds[MERGE],
            "raw.key.size": sum(len(key) for key, _ in self.went),
            "raw.value.size": sum(len(value) for _, value in self.went),
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
        old = {
            name: text
            for name, text in file.properties.items()
            if name.startswith(b"rocksdb.") and name != b"rocksdb.filter.policy"
        }
        unique_id = unique_id_of(database, session, number)
        assert unique_id is not None  # the session has the form that it must have
        return old | {f"rocksdb.{name}".encode(): text for name, text in new.items()}, unique_id


def _payload(entries: list[Entry]) -> bytes:
    """A data block."""
    out, restarts = bytearray(), list[bytes]()
    before = b""
    for at, (key, value) in enumerate(entries):
        shared = 0
        if at % _RESTART_INTERVAL:
            limit = min(len(before), len(key))
            while shared < limit and before[shared] == key[shared]:
                shared += 1
        else:
            restarts.append(len(out).to_bytes(4, "little"))
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:]
        out += value
        before = key
    return bytes(out) + b"".join(restarts) + len(restarts).to_bytes(4, "little")
