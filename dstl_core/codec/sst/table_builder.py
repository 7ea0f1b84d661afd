"""Builds RocksDB's table files from data blocks: index, properties, footer.

The form is that of RocksDB 6.15 to 9: format version 5, CRC-32C, an index of whole user keys. Older
RocksDB cannot read it. Source: ``table/block_based/block_based_table_builder.cc`` and
``table/table_properties.cc`` of RocksDB 8.10.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import cramjam
import google_crc32c

from dstl_core.codec.checksums import masked
from dstl_core.codec.sst.block import BLOCK_TRAILER_BYTES, varint, whole_key_block
from dstl_core.codec.sst.file import FOOTER_BYTES, TABLE_MAGIC, unique_id_of
from dstl_core.codec.sst.manifest import ManifestFile

FORMAT_VERSION = 5
BLOCK_BYTES = 4 << 10
"""Size of a data block (RocksDB's and Flink's default)."""
BOTTOM_LEVEL = 6
"""Files of the last level need no compaction. Flink does not change the number of levels."""

_CRC32C = 1
_NOT_PACKED, _SNAPPY = b"\0", b"\1"
SESSION_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SESSION_SIZE = 20


@dataclass(frozen=True)
class Table:
    """A whole table file; ``smallest`` and ``largest`` are its first and its last key."""

    data: bytes
    smallest: bytes
    largest: bytes
    unique_id: bytes

    def as_file(self, number: int) -> ManifestFile:
        """The file for a MANIFEST, under a number of its database."""
        size = len(self.data)
        return ManifestFile(number, BOTTOM_LEVEL, size, self.smallest, self.largest, self.unique_id)


@dataclass
class TableBuilder:
    """Collects the data blocks of one table file, in the order of their keys.

    Args:
        family: The column family.
        family_id: Its number in the database.
    """

    family: str
    family_id: int
    size: int = 0
    """Bytes of the data blocks."""
    _parts: list[bytes] = field(default_factory=list)
    _index: list[tuple[bytes, int, int]] = field(default_factory=list)
    _smallest: bytes = b""
    _entries: int = 0
    _key_bytes: int = 0
    _value_bytes: int = 0

    def add_block(
        self, payload: memoryview, first: bytes, last: bytes, counts: Sequence[int]
    ) -> None:
        """Adds a data block.

        Args:
            payload: The block, unpacked.
            first: Its first key. Only that of the first block is used.
            last: Its last key.
            counts: Numbers of entries, bytes of keys and bytes of values in it.
        """
        if not self._index:
            self._smallest = first
        size = self._append(payload, is_packed=True)
        self._index.append((last, self.size, size))
        self.size += size + BLOCK_TRAILER_BYTES
        entries, key_bytes, value_bytes = counts
        self._entries += entries
        self._key_bytes += key_bytes
        self._value_bytes += value_bytes

    def _append(self, payload: bytes | memoryview, *, is_packed: bool = False) -> int:
        """Appends a block with its trailer; returns its size without it."""
        raw, kind = bytes(payload), _NOT_PACKED
        if is_packed:
            packed = bytes(cramjam.snappy.compress_raw(raw))
            if len(packed) < len(raw) - len(raw) // 8:  # as RocksDB decides
                raw, kind = packed, _SNAPPY
        checksum = google_crc32c.extend(google_crc32c.value(raw), kind)
        self._parts += (raw, kind + masked(checksum).to_bytes(4, "little"))
        return len(raw)

    def finish(self) -> Table:
        """The whole file. There must be at least one block."""
        data_size = self.size
        places = ((key, varint(offset) + varint(size)) for key, offset, size in self._index)
        index = whole_key_block(places, has_sizes=False)
        index_handle = self._place(index)
        database, number = str(uuid4()).encode(), 1
        session = "".join(secrets.choice(SESSION_DIGITS) for _ in range(SESSION_SIZE))
        properties = {
            "block.based.table.index.type": (0).to_bytes(4, "little"),
            "block.based.table.prefix.filtering": b"0",
            "block.based.table.whole.key.filtering": b"1",
            "column.family.id": varint(self.family_id),
            "column.family.name": self.family.encode(),
            "comparator": b"leveldb.BytewiseComparator",
            "compression": b"Snappy",
            "creating.db.identity": database,
            "creating.session.identity": session.encode(),
            "data.size": varint(data_size),
            "deleted.keys": b"\0",
            "filter.size": b"\0",
            "fixed.key.length": b"\0",
            "format.version": b"\0",
            "index.key.is.user.key": b"\1",
            "index.size": varint(len(index) + BLOCK_TRAILER_BYTES),
            "index.value.is.delta.encoded": b"\1",
            "merge.operands": b"\0",
            "num.data.blocks": varint(len(self._index)),
            "num.entries": varint(self._entries),
            "num.range-deletions": b"\0",
            "original.file.number": varint(number),
            "raw.key.size": varint(self._key_bytes),
            "raw.value.size": varint(self._value_bytes),
        }
        properties_handle = self._place(
            whole_key_block((f"rocksdb.{name}".encode(), own) for name, own in properties.items())
        )
        meta_index = whole_key_block([(b"rocksdb.properties", properties_handle)])
        meta_handle = self._place(meta_index)
        footer = bytes((_CRC32C,)) + meta_handle + index_handle
        footer = footer.ljust(FOOTER_BYTES - 12, b"\0")
        footer += FORMAT_VERSION.to_bytes(4, "little") + TABLE_MAGIC.to_bytes(8, "little")
        unique_id = unique_id_of(database, session, number)
        assert unique_id is not None  # the session has the form that it must have
        largest = self._index[-1][0]
        return Table(b"".join([*self._parts, footer]), self._smallest, largest, unique_id)

    def _place(self, payload: bytes) -> bytes:
        """Appends a block that is not packed; returns its handle."""
        offset, size = self.size, self._append(payload)
        self.size += size + BLOCK_TRAILER_BYTES
        return varint(offset) + varint(size)
