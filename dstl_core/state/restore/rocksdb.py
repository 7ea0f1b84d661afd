"""Loads keyed state from RocksDB's files (incremental checkpoints, native savepoints) into tables.

The meta stream has only a header. Each state is a column family of the same name; its rows are
canonical keys and values. Source: ``RocksIncrementalSnapshotStrategy`` and
``RocksDBIncrementalRestoreOperation`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.sst.file import ReadRange, SstFile
from dstl_core.codec.sst.merge import merged_rows
from dstl_core.codec.state_meta import KeyedBackendHeader, read_keyed_header
from dstl_core.errors import FormatError, error_context
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle, StreamStateHandle
from dstl_core.state.tables.keyed_tables import KeyedTables
from dstl_core.storage.handle_resolver import HandleResolver

if TYPE_CHECKING:
    from dstl_core.codec.columnar.keyed.sst_blocks import TableReader

SST_SUFFIX = ".sst"
_TAIL_BYTES = 16 << 10
_TAIL_SHARE = 128
"""The last 16 KiB of a file, or a 128th of it, is read at once: it has the properties, and in
most files the index.
"""


@dataclass
class TableFile:
    """An open table file of a handle, and where it is."""

    file: SstFile
    location: str

    @cached_property
    def by_columns(self) -> TableReader:
        """The file with its index for kernels.

        Raises:
            FormatError: The index is damaged.
        """
        from dstl_core.codec.columnar.keyed.sst_blocks import TableReader  # loads the compiler

        return TableReader(self.file)


Families = Mapping[str, Sequence[TableFile]]
"""Table files by column family."""


def read_meta_header(
    handle: IncrementalRemoteKeyedStateHandle,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> KeyedBackendHeader:
    """Reads the header: the key type and the states."""
    with error_context(location=resolver.describe(handle.meta_stream)):
        return read_keyed_header(DataInput(resolver.read(handle.meta_stream)), registry)


def open_table_files(
    handle: IncrementalRemoteKeyedStateHandle, resolver: HandleResolver
) -> dict[str, list[TableFile]]:
    """Opens the table files; returns them by column family."""
    families: dict[str, list[TableFile]] = {}
    for name, stream in handle.shared + handle.private:
        if not name.endswith(SST_SUFFIX):
            continue
        location = resolver.describe(stream)
        with error_context(location=location):
            file = SstFile(_reader(stream, resolver), stream.state_size)
        families.setdefault(file.column_family, []).append(TableFile(file, location))
    return families


def _reader(stream: StreamStateHandle, resolver: HandleResolver) -> ReadRange:
    size = stream.state_size
    first = max(0, size - max(_TAIL_BYTES, size // _TAIL_SHARE))
    tail = resolver.read(stream, first, size)

    def read(start: int, end: int) -> bytes:
        if start < first:
            return resolver.read(stream, start, end)
        return tail[start - first : end - first]

    return read


def check_families(header: KeyedBackendHeader, families: Families) -> None:
    """Checks that each table file with entries is of a state of the header.

    Raises:
        FormatError: One is not.
    """
    names = {meta.name for meta in header.states}
    for family, files in families.items():
        if family not in names and any(each.file.number("rocksdb.num.entries") for each in files):
            raise FormatError(
                "A table file is for a state that the header does not have",
                expected=", ".join(sorted(names)) or "none",
                got=family,
            )


def locations_of(files: Iterable[TableFile]) -> str:
    """The places of some files, for messages."""
    return ", ".join(sorted({each.location for each in files}))


def load_rocksdb(
    state: KeyedTables,
    handle: IncrementalRemoteKeyedStateHandle,
    header: KeyedBackendHeader,
    families: Families,
) -> None:
    """Loads the wanted key groups of a handle into the tables of a state.

    It skips rows outside the key groups of the handle: a rescaled database may still have them.
    """
    tables = {
        meta.name: state.table(meta.as_key_value(), header.key_serializer) for meta in header.states
    }
    key_groups = handle.key_group_range.get_intersection(state.key_groups)
    if not len(key_groups):
        return
    size = state.prefix_bytes
    start = key_groups.start_key_group.to_bytes(size, "big")
    after = key_groups.end_key_group + 1
    stop = after.to_bytes(size, "big") if after < 1 << 8 * size else None
    for family, files in families.items():
        table = tables.get(family)
        if table is None:
            continue
        with error_context(location=locations_of(files)):
            for key, value in merged_rows([each.file for each in files], start, stop):
                if len(key) < size:
                    raise FormatError("A row's key is too short", expected=size, got=len(key))
                table.load_record(int.from_bytes(key[:size], "big"), key, value)
