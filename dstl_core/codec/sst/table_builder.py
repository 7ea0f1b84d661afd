"""Builds RocksDB's table files from data blocks: index, properties, footer.

The form is that of RocksDB 6.15 to 9: format version 5, CRC-32C, an index of whole user keys. Older
RocksDB cannot read it. Source: ``table/block_based/block_based_table_builder.cc`` and
``table/table_properties.cc`` of RocksDB 8.10.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from uuid import uuid4

from dstl_core.codec.checksums import masked_crc32c
from dstl_core.codec.sst.block import BLOCK_TRAILER_BYTES, varint, whole_key_block
from dstl_core.codec.sst.file import FOOTER_BYTES, TABLE_MAGIC, unique_id_of
from dstl_core.codec.sst.manifest import ManifestFile

FORMAT_VERSION = 5
BLOCK_BYTES = 4 << 10
"""Size of a data block (RocksDB's and Flink's default)."""
HELD_BYTES = 128 << 20
"""Bytes of unfinished table files together, at which the largest is finished."""
BOTTOM_LEVEL = 6
"""Files of the last level need no compaction. Flink does not change the number of levels."""

_CRC32C = 1
_NOT_PACKED = b"\0"
SESSION_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SESSION_SIZE = 20


@dataclass(frozen=True)
class Table:
    """A whole table file, in parts; ``smallest`` and ``largest`` are its first and last key."""

    parts: list[bytes]
    smallest: bytes
    largest: bytes
    unique_id: bytes

    def as_file(self, number: int) -> ManifestFile:
        """The file for a MANIFEST, under a number of its database."""
        size = sum(map(len, self.parts))
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
    smallest: bytes = b""
    """The first key of all."""
    largest: bytes = b""
    """The last one."""
    blocks: int = 0
    """Number of data blocks."""
    entries: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    _parts: list[bytes] = field(default_factory=list)

    def append(self, blocks: bytes) -> None:
        """Appends blocks with their trailers. Of the fields, only ``size`` counts them."""
        self._parts.append(blocks)
        self.size += len(blocks)

    def finish(self, index: bytes) -> Table:
        """The whole file. There must be at least one block.

        Args:
            index: The index block of all data blocks.
        """
        data_size = self.size
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
            "num.data.blocks": varint(self.blocks),
            "num.entries": varint(self.entries),
            "num.range-deletions": b"\0",
            "original.file.number": varint(number),
            "raw.key.size": varint(self.key_bytes),
            "raw.value.size": varint(self.value_bytes),
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
        self._parts.append(footer)
        return Table(self._parts, self.smallest, self.largest, unique_id)

    def _place(self, payload: bytes) -> bytes:
        """Appends a block that is not packed; returns its handle."""
        place = varint(self.size) + varint(len(payload))
        block = payload + _NOT_PACKED
        self.append(block + masked_crc32c(block).to_bytes(4, "little"))
        return place
