"""Opens the state of some key groups as canonical sections, from handles of any form.

Canonical handles are read piece by piece as they are scanned. RocksDB's table files, the heap
backend's form, and changelogs on any of them are converted by columns. State without a columnar
form is restored record by record: range deletions, merges of namespaces in a changelog, and values
that only Java classes of the job can read. Damaged state takes this way too, and its error comes
from there.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from dstl_core.codec.columnar.keyed.heap_rows import StoredKeyGroup, read_heap_rows
from dstl_core.codec.columnar.keyed.runs import runs_of, sections_of
from dstl_core.codec.serializers import AnySerializer, SerializerRegistry
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import FormatError, NotInColumnsError, error_context
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.state.restore.canonical import (
    begin_key_groups,
    held_stream,
    read_key_groups,
    read_stream_header,
    sections_reader,
)
from dstl_core.state.restore.changelog_columns import open_changelog_rows
from dstl_core.state.restore.heap import is_canonical
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.restore.open_tables import OpenTables
from dstl_core.state.restore.rocksdb import begin_table_files
from dstl_core.state.restore.rocksdb_columns import TableRecords, open_table_records
from dstl_core.state.restore.stored_key_groups import (
    StoredKeyGroups,
    StoredRecords,
    in_memory,
)
from dstl_core.storage.handle_resolver import HandleResolver


@dataclass(frozen=True)
class KeyGroupsOpener:
    """Opens key groups of the handles of one operator.

    Args:
        max_parallelism: Number of key groups of the operator.
        tables: Reads the files and the types in them; holds the table files of one handle.
        key_serializer: The type of the key, for logs without a base.
    """

    max_parallelism: int
    tables: OpenTables
    key_serializer: AnySerializer | None = None

    def open_sections(
        self,
        handle: KeyedStateHandle,
        key_groups: KeyGroupRange,
        within: KeyGroupRange | None = None,
    ) -> StoredKeyGroups | None:
        """The wanted key groups of a handle of any form; None if it has no state at all.

        Args:
            handle: A handle of the operator.
            key_groups: The key groups to read now.
            within: The key groups that the caller reads in all, by several calls.
        """
        part_of_groups = handle.key_group_range.get_intersection(key_groups)
        try:
            part = self.tables.part_of(handle, part_of_groups, within)
            try:
                return self._by_columns(part, part_of_groups)
            except NotInColumnsError:
                return self._by_records(part, part_of_groups)
        except FormatError:
            return self._by_records(handle, part_of_groups)

    def open_records(
        self,
        handle: KeyedStateHandle,
        key_groups: KeyGroupRange,
        within: KeyGroupRange | None = None,
    ) -> StoredRecords | None:
        """As ``open_sections``; the rows of table files are not copied into sections."""
        part_of_groups = handle.key_group_range.get_intersection(key_groups)
        if isinstance(handle, IncrementalRemoteKeyedStateHandle):
            with suppress(NotInColumnsError, FormatError):
                return self._table_records(handle, part_of_groups)
        return self.open_sections(handle, part_of_groups, within)

    def begin(self, handle: KeyedStateHandle, key_groups: KeyGroupRange) -> None:
        """Begins to read some key groups that will be opened soon, where files are on a store. Of a
        handle with other table files, it reads what opening them reads.
        """
        resolver = self.tables.resolver
        if not resolver.reads_ahead:
            return
        match handle:
            case IncrementalRemoteKeyedStateHandle() if self.tables.is_open(handle):
                records = self._table_records(handle, key_groups)
                records.begin(records.tables)
            case IncrementalRemoteKeyedStateHandle():
                begin_table_files(handle, resolver)
            case KeyGroupsSavepointStateHandle():
                begin_key_groups(handle, key_groups, resolver)
            case ChangelogStateBackendHandle():
                for base in handle.materialized:
                    self.begin(base, key_groups)

    @property
    def _prefix_bytes(self) -> int:
        return key_group_prefix_bytes(self.max_parallelism)

    def _table_records(
        self, handle: IncrementalRemoteKeyedStateHandle, key_groups: KeyGroupRange
    ) -> TableRecords:
        return open_table_records(self.tables.of(handle), key_groups, self._prefix_bytes)

    def _by_columns(self, handle: KeyedStateHandle, key_groups: KeyGroupRange) -> StoredKeyGroups:
        prefix_bytes = self._prefix_bytes
        resolver, registry = self.tables.resolver, self.tables.registry
        match handle:
            case IncrementalRemoteKeyedStateHandle():
                return self._table_records(handle, key_groups).as_sections()
            case KeyGroupsStateHandle() if not is_canonical(handle, resolver):
                return open_heap_rows(handle, key_groups, prefix_bytes, resolver, registry)
            case KeyGroupsSavepointStateHandle() | KeyGroupsStateHandle():
                place = resolver.describe(handle.stream)
                handle = held_stream(handle, key_groups, resolver)
                with error_context(location=place):
                    header = read_stream_header(handle, resolver, registry)
                sections = handle.offsets.sections(handle.stream.state_size, key_groups)
                read = sections_reader(handle.stream, sections, resolver)
                return StoredKeyGroups(header, prefix_bytes, place, sections, read)
            case ChangelogStateBackendHandle():
                return open_changelog_rows(
                    handle,
                    key_groups,
                    prefix_bytes,
                    resolver,
                    registry,
                    lambda base: self.open_sections(base, key_groups),
                    self.key_serializer,
                )
            case _:
                raise NotInColumnsError

    def _by_records(
        self, handle: KeyedStateHandle, key_groups: KeyGroupRange
    ) -> StoredKeyGroups | None:
        state = restore_keyed_state(
            [handle],
            key_groups,
            self.max_parallelism,
            self.tables.resolver,
            self.tables.registry,
            key_serializer=self.key_serializer,
            tables=self.tables,
        )
        if state.key_serializer is None:
            return None
        raw, offsets = state.write_canonical()
        header = KeyedBackendHeader(
            state.key_serializer, tuple(table.meta for table in state.tables.values())
        )
        return in_memory(header, raw, offsets, key_groups, self._prefix_bytes)


def open_heap_rows(
    handle: KeyGroupsStateHandle,
    key_groups: KeyGroupRange,
    prefix_bytes: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> StoredKeyGroups:
    """The sections of some key groups, built in memory.

    Raises:
        NotInColumnsError: The state has no columnar form.
        FormatError: The stream is damaged.
    """
    header = read_stream_header(handle, resolver, registry)
    parts, bodies, at = [], [], 0
    for key_group, data in read_key_groups(handle.offsets, handle.stream, key_groups, resolver):
        bodies.append(data.peek(data.position))
        parts.append(StoredKeyGroup(key_group, at, at + len(bodies[-1])))
        at += len(bodies[-1])
    if not parts:
        raise NotInColumnsError  # the restore by records makes its tables
    runs = []
    for state, rows in enumerate(read_heap_rows(b"".join(bodies), parts, header)):
        buckets = rows.key_groups - key_groups.start_key_group
        runs.append(
            runs_of(rows.spans, state, buckets, rows.key_groups, len(key_groups), prefix_bytes)
        )
    plain = KeyedBackendHeader(header.key_serializer, header.states)
    return in_memory(plain, *sections_of(runs, key_groups), key_groups, prefix_bytes)
