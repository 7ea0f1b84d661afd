"""RocksDB's table files ("SST", block-based): footer, properties, index, entries.

    footer    := u8 checksum type, handle of the meta index, handle of the index, zeros,
                 u32 format version, u64 magic                                  (53 bytes)
    entry key := user key, u64 (sequence number << 8 | kind)

Only needed parts are read: the footer, the meta blocks, the index, and the data blocks of a range
of keys. Every checksum is verified. Source: ``table/format.cc``,
``table/table_properties.cc`` and ``db/dbformat.h`` of RocksDB 8.10.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import xxhash

from dstl_core.cached_property import cached_property
from dstl_core.codec.sst.block import (
    BlockHandle,
    block_entries,
    index_entries,
    read_handle,
    read_varint,
    unpack_block,
)
from dstl_core.errors import FormatError, UnsupportedVersionError

FOOTER_BYTES = 53
TABLE_MAGIC = 0x88E241B785F4CFF7
READABLE_FORMATS = (2, 3, 4, 5)

DELETION, PUT, MERGE, SINGLE_DELETION, RANGE_DELETION = 0, 1, 2, 7, 15

MAX_SEQUENCE = (1 << 56) - 1

_BINARY_SEARCH, _TWO_LEVEL = 0, 2
_COMPARATOR = b"leveldb.BytewiseComparator"

MAX_INDEX_BYTES = 256 << 20
_MOST_TIMES_INDEX = 32
_SMALL_INDEX = 1 << 20

_SESSION = re.compile("[0-9A-Z]{13,24}")
_U62, _U64 = (1 << 62) - 1, (1 << 64) - 1

ReadRange = Callable[[int, int], bytes]
"""Reads the bytes ``[start, end)`` of a file."""


class SstEntry(NamedTuple):
    """One version of a key. Entries sort by key, newest version first."""

    key: bytes
    newest_first: int
    """The negated sequence number."""
    kind: int
    value: bytes


class RangeTombstone(NamedTuple):
    """Deletes all older versions of the keys in ``[start, end)``."""

    start: bytes
    end: bytes
    sequence: int

    def covers(self, entry: SstEntry) -> bool:
        return self.start <= entry.key < self.end and -entry.newest_first < self.sequence


class SstFile:
    """One table file.

    Args:
        read: Reads ranges of the file.
        size: Size of the file in bytes.
        keys: The smallest and the largest key, as the MANIFEST says. No other key is looked for.

    Raises:
        FormatError: The file is damaged, or is not a block-based table of RocksDB.
    """

    def __init__(self, read: ReadRange, size: int, keys: tuple[bytes, bytes] | None = None) -> None:
        self.read = read
        self._size = size
        self._keys = keys
        self.checksum_type, self.format_version, meta_index, index = self._footer()
        meta_blocks = dict(block_entries(self._block(meta_index), meta_index.offset))
        self.properties = self._properties(meta_blocks)
        self.column_family = self._named_family()
        if self.properties.get(b"rocksdb.comparator", _COMPARATOR) != _COMPARATOR:
            raise FormatError(
                "A table file is not sorted by bytes",
                expected=_COMPARATOR.decode(),
                got=self.properties[b"rocksdb.comparator"][:80],
            )
        self.user_key_index = self.number("rocksdb.index.key.is.user.key") != 0
        """Whether the keys of the index have no sequence number and kind."""
        self.delta_index = self.number("rocksdb.index.value.is.delta.encoded") != 0
        """Whether the values of the index are differences."""
        self._index_blocks = self._find_index_blocks(index)
        self.tombstones = self._range_tombstones(meta_blocks)

    def _named_family(self) -> str | None:
        """The column family that the file was written for; None if it names none. A file that was
        written apart from a database names none, and a family may have got another name since.
        """
        name = self.properties.get(b"rocksdb.column.family.name")
        try:
            return name.decode() if name else None
        except UnicodeDecodeError:
            raise FormatError(
                "The name of a column family is not UTF-8",
                field="properties",
                got=(name or b"")[:40].hex(),
            ) from None

    @cached_property
    def unique_id(self) -> bytes | None:
        """What identifies the content of the file in a MANIFEST: 16 bytes that RocksDB computes
        from properties, which stay when another database imports the file. None if it lacks one.
        """
        database = self.properties.get(b"rocksdb.creating.db.identity", b"")
        session = self.properties.get(b"rocksdb.creating.session.identity", b"").decode("latin-1")
        number = self.number("rocksdb.original.file.number")
        return unique_id_of(database, session, number)

    def number(self, name: str) -> int:
        """A numeric property; 0 if it is missing."""
        raw = self.properties.get(name.encode(), b"\0")
        return read_varint(raw, 0, len(raw))[0]

    def may_hold(self, start: bytes, stop: bytes | None) -> bool:
        """Whether keys in ``[start, stop)`` can be in the file."""
        if self._keys is None:
            return True
        smallest, largest = self._keys
        return start <= largest and (stop is None or smallest < stop)

    def check_key(self, key: bytes) -> None:
        """Compares a key of the file with what the MANIFEST says of its keys.

        Raises:
            FormatError: The file holds a key for which nobody would look.
        """
        if self._keys is not None and not self._keys[0] <= key <= self._keys[1]:
            smallest, largest = (each.hex() for each in self._keys)
            raise FormatError(
                "A table file holds a key outside those that its MANIFEST says",
                expected=f"{smallest} to {largest}",
                got=key.hex(),
            )

    def check_bounds(self, bounds: Sequence[bytes]) -> None:
        """Compares the index with what the MANIFEST says: ``check_key`` sees only blocks that are
        read, and a range without keys has none.

        Args:
            bounds: For each data block, a key at or above its last one, and at or below the first
                one of the next block.

        Raises:
            FormatError: The first or the last block has no key for which somebody would look.
        """
        if self._keys is None:
            return
        smallest, largest = self._keys
        outside = [key for key in bounds[:1] if key < smallest]
        outside += [key for key in bounds[-2:-1] if key > largest]
        for key in outside:
            self.check_key(key)

    def entries(self, start: bytes, stop: bytes | None) -> Iterator[SstEntry]:
        """Every version of every key in ``[start, stop)``; None for ``stop`` means up to the
        end.
        """
        count = 0
        before = b"", -MAX_SEQUENCE
        for payload, offset in self.blocks(start, stop):
            for internal_key, value in block_entries(payload, offset):
                count += 1
                entry = _entry(internal_key, value, offset)
                if entry[:2] < before:
                    raise FormatError("The entries of a table file are not in order", offset=offset)
                before = entry[:2]
                self.check_key(entry.key)
                if stop is not None and entry.key >= stop:
                    return
                if entry.key >= start:
                    yield entry
        self.check_count(count, start, stop)

    def blocks(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, int]]:
        """The unpacked data blocks that may hold keys in ``[start, stop)``, each with its offset in
        the file.
        """
        if not self.may_hold(start, stop):
            return
        keys = [key for key, _ in self.index]
        first = bisect_left(keys, start)
        last = len(keys) if stop is None else min(len(keys), bisect_left(keys, stop) + 1)
        handles = [handle for _, handle in self.index[first:last]]
        if not handles:
            return
        begin, end = handles[0].offset, handles[-1].end
        raw = self.read(begin, end)
        for handle in handles:
            block = raw[handle.offset - begin : handle.end - begin]
            yield unpack_block(block, self.checksum_type, handle.offset), handle.offset

    def check_count(self, count: int, start: bytes, stop: bytes | None) -> None:
        """After a read of the whole file, compares the number of entries with the file's
        properties.

        Raises:
            FormatError: The numbers differ.
        """
        if start or stop is not None or b"rocksdb.num.entries" not in self.properties:
            return
        # The properties count range deletions as entries, but these are in a separate block.
        expected = self.number("rocksdb.num.entries")
        if count not in (expected, expected - self.number("rocksdb.num.range-deletions")):
            raise FormatError(
                "The number of entries in a table file differs from its properties",
                expected=expected,
                got=count,
            )

    # ----------------------------------------------------------------------------- structure

    def _footer(self) -> tuple[int, int, BlockHandle, BlockHandle]:
        if self._size < FOOTER_BYTES:
            raise FormatError(
                "A table file is too short", expected=f">= {FOOTER_BYTES}", got=self._size
            )
        at = self._size - FOOTER_BYTES
        raw = self.read(at, self._size)
        magic = int.from_bytes(raw[-8:], "little")
        if magic != TABLE_MAGIC:
            raise FormatError(
                "Not a RocksDB table file (wrong magic number)",
                offset=self._size - 8,
                expected=f"{TABLE_MAGIC:x}",
                got=f"{magic:x}",
            )
        version = int.from_bytes(raw[-12:-8], "little")
        if version not in READABLE_FORMATS:
            raise UnsupportedVersionError(
                "A table file has an unsupported format version",
                offset=self._size - 12,
                expected="2 to 5",
                got=version,
            )
        meta_index, end = read_handle(raw, 1, FOOTER_BYTES - 12)
        index, _ = read_handle(raw, end, FOOTER_BYTES - 12)
        return raw[0], version, meta_index, index

    def _block(self, handle: BlockHandle) -> bytes:
        if handle.end > self._size - FOOTER_BYTES:
            raise FormatError(
                "A block lies outside its file",
                offset=handle.offset,
                expected=f"<= {self._size - FOOTER_BYTES}",
                got=handle.end,
            )
        raw = self.read(handle.offset, handle.end)
        return unpack_block(raw, self.checksum_type, handle.offset)

    def _properties(self, meta_blocks: dict[bytes, bytes]) -> dict[bytes, bytes]:
        raw = meta_blocks.get(b"rocksdb.properties")
        if raw is None:
            raise FormatError("A table file has no properties", field="meta index")
        handle, _ = read_handle(raw, 0, len(raw))
        return dict(block_entries(self._block(handle), handle.offset))

    def _find_index_blocks(self, handle: BlockHandle) -> list[BlockHandle]:
        raw = self.properties.get(b"rocksdb.block.based.table.index.type", b"\0\0\0\0")
        kind = int.from_bytes(raw, "little")
        if kind not in (_BINARY_SEARCH, _TWO_LEVEL):
            raise FormatError(
                "A table file has an unsupported type of index",
                expected="binary search or two-level",
                got=kind,
            )
        if kind == _BINARY_SEARCH:
            return [handle]
        return [part for _, part in self._entries_of(handle, self._block(handle))]

    @property
    def data_limit(self) -> int:
        """Where the data blocks end at the latest."""
        return self._size - FOOTER_BYTES

    def index_payloads(self) -> Iterator[bytes]:
        """The unpacked blocks of the index of the data blocks.

        Raises:
            FormatError: They are too large together.
        """
        size = 0
        for handle in self._index_blocks:
            payload = self._block(handle)
            size += len(payload)
            check_index_size(size, self.data_limit)
            yield payload

    @cached_property
    def index(self) -> list[tuple[bytes, BlockHandle]]:
        """``(upper bound of the user keys, handle)`` of every data block.

        Raises:
            FormatError: The index is damaged.
        """
        entries: list[tuple[bytes, BlockHandle]] = []
        last_end = size = 0
        limit = self.data_limit
        for key, block in self._index_entries():
            entries.append((key, block))
            size += len(key)
            if size > _SMALL_INDEX:
                check_index_size(size, limit)
            end = block.end
            if block.offset < last_end or block.size < 0 or end > limit:
                raise FormatError(
                    "A data block lies outside its file or overlaps another one",
                    offset=block.offset,
                    expected=f"{last_end}..{limit}",
                    got=end,
                )
            last_end = end
        self.check_bounds([key for key, _ in entries])
        return entries

    def _index_entries(self) -> Iterator[tuple[bytes, BlockHandle]]:
        for handle, payload in zip(self._index_blocks, self.index_payloads(), strict=True):
            yield from self._entries_of(handle, payload)

    def _entries_of(
        self, handle: BlockHandle, payload: bytes
    ) -> Iterator[tuple[bytes, BlockHandle]]:
        for key, block in index_entries(payload, handle.offset, delta_encoded=self.delta_index):
            if self.user_key_index:
                yield key, block
            else:
                yield _entry(key, b"", handle.offset).key, block

    def _range_tombstones(self, meta_blocks: dict[bytes, bytes]) -> list[RangeTombstone]:
        raw = meta_blocks.get(b"rocksdb.range_del")
        if raw is None:
            return []
        handle, _ = read_handle(raw, 0, len(raw))
        tombstones = []
        for internal_key, end in block_entries(self._block(handle), handle.offset):
            entry = _entry(internal_key, end, handle.offset)
            if entry.kind != RANGE_DELETION:
                raise FormatError("A range tombstone has an unknown kind", got=entry.kind)
            first, last = entry.key, end
            if self._keys is not None:
                # A compaction may have written it into several files as a whole, and only some of
                # them are there. Beyond its file, it would delete what came later and lost its
                # sequence number since: RocksDB cuts it, too.
                smallest, largest = self._keys
                first, last = max(first, smallest), min(last, largest + b"\0")
            tombstones.append(RangeTombstone(first, last, -entry.newest_first))
        return tombstones


def unique_id_of(database: bytes, session: str, number: int) -> bytes | None:
    """The unique id of a file with these properties; None if they have none.

    Source: ``table/unique_id.cc`` of RocksDB 8.10.
    """
    if not database or number == 0 or _SESSION.fullmatch(session) is None:
        return None
    first, last = int(session[:-12], 36), int(session[-12:], 36)
    lower = last & _U62 | (first & 3) << 62
    upper = xxhash.xxh3_128_intdigest(database, seed=first >> 2) >> 64
    return lower.to_bytes(8, "little") + (upper ^ number & _U64).to_bytes(8, "little")


def check_index_size(size: int, data_limit: int) -> None:
    """Checks the size of an unpacked index, or of the keys in it.

    An index is at most 32 times as large as its file, or 1 MiB, and at most ``MAX_INDEX_BYTES``
    unless its file is larger. So the indexes of many files have a limit together, too.

    Args:
        size: What was unpacked so far, in bytes.
        data_limit: Where the data blocks of the file end.

    Raises:
        FormatError: It is larger than ``MAX_INDEX_BYTES`` and than the data.
    """
    limit = max(_SMALL_INDEX, data_limit, min(MAX_INDEX_BYTES, _MOST_TIMES_INDEX * data_limit))
    if size > limit:
        raise FormatError(
            "The index of a table file is too large", expected=f"<= {limit} bytes unpacked"
        )


def _entry(internal_key: bytes, value: bytes, offset: int) -> SstEntry:
    if len(internal_key) < 8:
        raise FormatError(
            "A key of a table file is too short", offset=offset, expected=">= 8", got=internal_key
        )
    trailer = int.from_bytes(internal_key[-8:], "little")
    return SstEntry(internal_key[:-8], -(trailer >> 8), trailer & 0xFF, value)
