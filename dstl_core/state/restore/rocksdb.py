"""Loads keyed state from RocksDB's files (incremental checkpoints, native savepoints) into tables.

The meta stream has only a header. Each state is a column family of the same name; its rows are
canonical keys and values. Which table files a family has, the MANIFEST says. Source:
``RocksIncrementalSnapshotStrategy`` and ``RocksDBIncrementalRestoreOperation`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dstl_core.cached_property import cached_property
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.sst.file import SstFile
from dstl_core.codec.sst.manifest import (
    ColumnFamily,
    KeyRange,
    Manifest,
    ManifestFile,
    read_manifest,
)
from dstl_core.codec.sst.merge import merged_rows
from dstl_core.codec.state_meta import KeyedBackendHeader, read_keyed_header
from dstl_core.errors import FormatError, error_context
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle, StreamStateHandle
from dstl_core.state.tables.keyed_tables import KeyedTables
from dstl_core.storage.handle_resolver import HandleResolver

if TYPE_CHECKING:
    from dstl_core.codec.columnar.keyed.sst_blocks import TableReader

SST_SUFFIX = ".sst"
CURRENT, MANIFEST = "CURRENT", "MANIFEST-"
DEFAULT_FAMILY = "default"
"""The column family that every database has. Flink stores nothing in it."""
_MAX_CURRENT_BYTES = 64
_MOST_DIGITS = 20
_TAIL_BYTES = 16 << 10
_TAIL_SHARE = 128
"""The last 16 KiB of a file, or a 128th of it, is read at once: it has the properties, and in
most files the index.
"""

_ENDS_AHEAD = 16
"""Files of a store whose ends are read side by side."""


@dataclass
class TableFile:
    """An open table file of a handle, where it is, and its local name."""

    file: SstFile
    location: str
    name: str

    @cached_property
    def by_columns(self) -> TableReader:
        """The file with its index for kernels.

        Raises:
            FormatError: The index is damaged.
        """
        from dstl_core.codec.columnar.keyed.sst_blocks import TableReader  # loads the compiler

        return TableReader(self.file)


WantedKeys = Callable[[str], Sequence[KeyRange]]
"""The keys that are wanted of a column family."""
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
    handle: IncrementalRemoteKeyedStateHandle,
    resolver: HandleResolver,
    wanted: WantedKeys | None = None,
) -> dict[str, list[TableFile]]:
    """Opens the table files; returns them by column family, as the MANIFEST says. RocksDB does not
    read files that it does not name, and neither does this.

    Args:
        handle: The handle.
        resolver: Reads the files.
        wanted: The keys that will be read of a family; files without them are not opened.

    Raises:
        FormatError: A file is damaged, or is not the one that the MANIFEST means.
    """
    streams = dict(handle.shared + handle.private)
    manifest_name = current_manifest(handle, resolver)
    with error_context(location=resolver.describe(streams[manifest_name])):
        manifest = read_manifest(resolver.read(streams[manifest_name]))
        members = manifest.family_of_file
        for number, family in members.items():
            stream = streams.get(table_name(number))
            actual = "no such file" if stream is None else stream.state_size
            if actual != family.files[number].size:
                raise FormatError(
                    f"Table file {table_name(number)} of a MANIFEST is another one",
                    expected=f"{family.files[number].size} bytes",
                    got=actual,
                )
    opened = []
    for name, stream in handle.shared + handle.private:
        number = table_number(name)
        column_family = members.get(number)
        if column_family is None:
            continue
        if wanted is None or any(
            map(column_family.files[number].may_hold, wanted(column_family.name))
        ):
            opened.append((name, stream, column_family, column_family.files[number]))
    families: dict[str, list[TableFile]] = {}
    for place, (name, stream, column_family, meant) in enumerate(opened):
        for _, later, _, _ in opened[place : place + _ENDS_AHEAD]:
            resolver.begin(later, _start_of_end(later), later.state_size)
        location = resolver.describe(stream)
        with error_context(location=location):
            keys = meant.smallest, meant.largest
            file = SstFile(_TableRanges(stream, resolver), stream.state_size, keys)
            _check_member(file, column_family, meant, manifest)
        families.setdefault(column_family.name, []).append(TableFile(file, location, name))
    return families


def begin_table_files(handle: IncrementalRemoteKeyedStateHandle, resolver: HandleResolver) -> None:
    """Says that ``read_meta_header`` and ``open_table_files`` will read this handle soon."""
    resolver.begin(handle.meta_stream, 0, handle.meta_stream.state_size)
    for name, stream in handle.shared + handle.private:
        if name == CURRENT or name.startswith(MANIFEST):
            resolver.begin(stream, 0, stream.state_size)
        elif table_number(name) >= 0:
            resolver.begin(stream, _start_of_end(stream), stream.state_size)


def current_manifest(handle: IncrementalRemoteKeyedStateHandle, resolver: HandleResolver) -> str:
    """The local name of the MANIFEST of a handle.

    Raises:
        FormatError: The handle has none, or its file CURRENT names another one.
    """
    streams = dict(handle.shared + handle.private)
    current = streams.get(CURRENT)
    manifests = sorted(name for name in streams if name.startswith(MANIFEST))
    if current is None:
        raise FormatError("RocksDB's files lack the file CURRENT", got=sorted(streams)[:5])
    with error_context(location=resolver.describe(current)):
        if current.state_size > _MAX_CURRENT_BYTES:
            raise FormatError(
                "The file CURRENT is too large",
                expected=f"<= {_MAX_CURRENT_BYTES} bytes",
                got=current.state_size,
            )
        raw = resolver.read(current)
        name = raw[:-1].decode(errors="replace")
        if raw[-1:] != b"\n" or name not in manifests:
            raise FormatError(
                "The file CURRENT names no MANIFEST of its database",
                expected=" or ".join(manifests) or "a MANIFEST",
                got=raw,
            )
    return name


def table_name(number: int) -> str:
    """The local name of a table file."""
    return f"{number:06d}{SST_SUFFIX}"


def file_number(name: str) -> int:
    """The number of any file of a database, as in ``MANIFEST-000004``; 0 of one without."""
    digits = name.removesuffix(SST_SUFFIX).rpartition("-")[2]
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
    return int(digits) if is_number else 0


def table_number(name: str) -> int:
    """The number of a table file; -1 of another file."""
    digits = name.removesuffix(SST_SUFFIX)
    is_table = name.endswith(SST_SUFFIX) and digits.isascii() and digits.isdigit()
    return int(digits) if is_table and len(digits) <= _MOST_DIGITS else -1


def _check_member(
    file: SstFile, family: ColumnFamily, meant: ManifestFile, manifest: Manifest
) -> None:
    """Checks that a table file is the one that the MANIFEST means, by its unique id.

    Without one, the family that the file was written for decides. A file keeps the name that its
    family had then, and one that RocksDB imported keeps the id of the other database.

    Raises:
        FormatError: It is another file, or says that it is of another family of the MANIFEST.
    """
    if meant.unique_id is not None and file.unique_id is not None:
        if meant.unique_id != file.unique_id:
            raise FormatError(
                f"Table file {table_name(meant.number)} of a MANIFEST is another one",
                expected=f"id {meant.unique_id.hex()}",
                got=file.unique_id.hex(),
            )
        return
    said, number = file.column_family, file.number("rocksdb.column.family.id")
    if said in (None, family.name) or number == family.id:
        return
    names = {each.name for each in manifest.families.values()}
    if said in names or number in manifest.families:
        raise FormatError(
            "A table file is of another column family than its MANIFEST says",
            expected=f"{family.name!r} ({family.id})",
            got=f"{said!r} ({number})",
        )


class _TableRanges:
    """Reads ranges of a table file. Its end is read at once, and kept."""

    def __init__(self, stream: StreamStateHandle, resolver: HandleResolver) -> None:
        self._stream, self._resolver = stream, resolver
        self._first = _start_of_end(stream)
        self._end = resolver.read(stream, self._first, stream.state_size)
        self.begin = self._begin if resolver.reads_ahead else None
        """Says that some bytes will be read soon; None where that is no use."""

    def __call__(self, start: int, end: int) -> bytes:
        if start < self._first:
            return self._resolver.read(self._stream, start, end)
        return self._end[start - self._first : end - self._first]

    def _begin(self, start: int, end: int) -> None:
        if start < self._first:
            self._resolver.begin(self._stream, start, end)


def _start_of_end(stream: StreamStateHandle) -> int:
    size = stream.state_size
    return max(0, size - max(_TAIL_BYTES, size // _TAIL_SHARE))


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
    key_groups = handle.key_group_range.get_intersection(state.key_groups)
    size = state.prefix_bytes
    start = key_groups.start_key_group.to_bytes(size, "big")
    after = key_groups.end_key_group + 1
    stop = after.to_bytes(size, "big") if after < 1 << 8 * size else None
    keys = [(start, stop)] if len(key_groups) else []
    load_rows(state, header, families, lambda family: keys)


def load_rows(
    state: KeyedTables, header: KeyedBackendHeader, families: Families, wanted: WantedKeys
) -> None:
    """Loads the rows of some keys into the tables of a state."""
    tables = {
        meta.name: state.table(meta.as_key_value(), header.key_serializer) for meta in header.states
    }
    size = state.prefix_bytes
    for family, files in families.items():
        table = tables.get(family)
        if table is None:
            continue
        with error_context(location=locations_of(files)):
            for start, stop in wanted(family):
                for key, value in merged_rows([each.file for each in files], start, stop):
                    if len(key) < size:
                        raise FormatError("A row's key is too short", expected=size, got=len(key))
                    table.load_record(int.from_bytes(key[:size], "big"), key, value)
