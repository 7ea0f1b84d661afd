"""Reads keyed state in RocksDB's files by columns: its rows, or canonical sections of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from dstl_core.codec.columnar.keyed.runs import runs_of, sections_of
from dstl_core.codec.columnar.keyed.spans import SpanBatch
from dstl_core.codec.columnar.keyed.sst_rows import SstRows, has_twin, merged_spans
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.sst.file import SstFile
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import FormatError, NotInColumnsError, error_context
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore.rocksdb import open_table_files, read_meta_header
from dstl_core.state.restore.stored_key_groups import StoredKeyGroups, in_memory
from dstl_core.storage.handle_resolver import HandleResolver


@dataclass(frozen=True)
class StateTables:
    """The table files of one state; ``state`` is its id in the header."""

    state: int
    files: list[SstFile]
    location: str


@dataclass(frozen=True)
class TableRecords:
    """The records of some key groups in table files. Nothing but the ends of the files is read."""

    header: KeyedBackendHeader
    prefix_bytes: int
    location: str
    key_groups: KeyGroupRange
    tables: list[StateTables]

    def records(self, wanted: Sequence[bool]) -> Iterator[SpanBatch]:
        """Yields the records of the wanted states, a megabyte of table files at a time.

        Raises:
            FormatError: A file is damaged. Records before the damage are yielded first.
        """
        for each in self.tables:
            if wanted[each.state]:
                for rows in self.rows(each):
                    yield from rows.batches(each.state)

    def rows(self, tables: StateTables) -> Iterator[SstRows]:
        first, last = self.key_groups.start_key_group, self.key_groups.end_key_group
        with error_context(location=tables.location):
            yield from merged_spans(tables.files, first, last, self.prefix_bytes)

    def context(self) -> AbstractContextManager[None]:
        """Adds the location of the files to errors."""
        return error_context(location=self.location)

    def as_sections(self) -> StoredKeyGroups:
        """The sections of all states, built in memory.

        Raises:
            FormatError: A file is damaged.
        """
        key_groups = self.key_groups
        runs = []
        for each in self.tables:
            for rows in self.rows(each):
                groups = rows.key_groups
                own = groups - key_groups.start_key_group
                count = len(key_groups)
                runs.append(runs_of(rows.spans, each.state, own, groups, count, self.prefix_bytes))
        sections = sections_of(runs, key_groups)
        return in_memory(self.header, *sections, key_groups, self.prefix_bytes)


def open_table_records(
    handle: IncrementalRemoteKeyedStateHandle,
    key_groups: KeyGroupRange,
    prefix_bytes: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> TableRecords:
    """The records of some key groups.

    Raises:
        NotInColumnsError: A table file has range deletions.
        FormatError: A header or the end of a file is damaged.
    """
    header = read_meta_header(handle, resolver, registry)
    metas = tuple(meta.as_key_value() for meta in header.states)
    ids = {meta.name: at for at, meta in enumerate(metas)}
    found: list[StateTables] = []
    for family, files in open_table_files(handle, resolver).items():
        tables = [file for _, file in files]
        if family not in ids:
            if any(file.number("rocksdb.num.entries") for file in tables):
                raise FormatError(
                    "A table file is for a state that the header does not have",
                    expected=", ".join(sorted(ids)) or "none",
                    got=family,
                )
            continue
        if not has_twin(tables):
            raise NotInColumnsError("A table file holds range deletions.")
        location = ", ".join(sorted({resolver.describe(stream) for stream, _ in files}))
        found.append(StateTables(ids[family], tables, location))
    plain = KeyedBackendHeader(header.key_serializer, metas)
    return TableRecords(plain, prefix_bytes, "restored state", key_groups, found)
