"""Reads keyed state in RocksDB's files by columns: its rows, or canonical sections of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar

from dstl_core.codec.columnar.keyed.runs import runs_of, sections_of
from dstl_core.codec.columnar.keyed.spans import SpanBatch
from dstl_core.codec.columnar.keyed.sst_rows import (
    SstRows,
    begin_rows,
    has_twin,
    merged_spans,
    stored_bytes,
)
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import DstlError, FormatError, NotInColumnsError, error_context
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore.open_tables import HandleTables
from dstl_core.state.restore.rocksdb import TableFile, locations_of
from dstl_core.state.restore.stored_key_groups import StoredKeyGroups, in_memory
from dstl_core.storage.handle_resolver import HandleResolver


@dataclass(frozen=True)
class StateTables:
    """The table files of one state; ``state`` is its id in the header."""

    state: int
    files: Sequence[TableFile]

    @property
    def location(self) -> str:
        return locations_of(self.files)


@dataclass(frozen=True)
class TableRecords:
    """The records of some key groups in table files. Nothing but the ends of the files is read."""

    header: KeyedBackendHeader
    prefix_bytes: int
    location: str
    key_groups: KeyGroupRange
    tables: list[StateTables]
    resolver: HandleResolver | None = None
    """Reads the files, if it reads ahead."""
    has_states_apart: ClassVar[bool] = True

    @property
    def size(self) -> int:
        readers = [each.by_columns for table in self.tables for each in table.files]
        first, last = self.key_groups.start_key_group, self.key_groups.end_key_group
        return stored_bytes(readers, first, last, self.prefix_bytes)

    def records(self, wanted: Sequence[bool]) -> Iterator[SpanBatch]:
        """Yields the records of the wanted states, a megabyte of table files at a time.

        Raises:
            FormatError: A file is damaged. Records before the damage are yielded first.
        """
        tables = [table for table in self.tables if wanted[table.state]]
        self.begin(tables)
        for table in self._until_last(tables):
            for rows in self.rows(table):
                yield from rows.batches(table.state)

    def begin(self, tables: Sequence[StateTables]) -> None:
        """Says that the records of some states will be read soon."""
        if self.resolver is None:
            return
        first, last = self.key_groups.start_key_group, self.key_groups.end_key_group
        for table in tables:
            with suppress(FormatError):  # who reads the rows finds it again
                readers = [each.by_columns for each in table.files]
                begin_rows(readers, first, last, self.prefix_bytes)

    def _until_last(self, tables: Sequence[StateTables]) -> Iterator[StateTables]:
        for table in tables:
            if self.resolver is not None and table is tables[-1]:
                self.resolver.last()
            yield table

    def rows(self, tables: StateTables) -> Iterator[SstRows]:
        first, last = self.key_groups.start_key_group, self.key_groups.end_key_group
        with _located(tables):
            readers = [each.by_columns for each in tables.files]
            yield from merged_spans(readers, first, last, self.prefix_bytes)

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
        self.begin(self.tables)
        for table in self._until_last(self.tables):
            for rows in self.rows(table):
                groups = rows.key_groups
                buckets = groups - key_groups.start_key_group
                count = len(key_groups)
                runs.append(
                    runs_of(rows.spans, table.state, buckets, groups, count, self.prefix_bytes)
                )
        sections = sections_of(runs, key_groups)
        return in_memory(self.header, *sections, key_groups, self.prefix_bytes)


@contextmanager
def _located(tables: StateTables) -> Iterator[None]:
    """Adds the places of the files to errors. A handle has thousands, so only errors join them."""
    try:
        yield
    except DstlError as error:
        error.context.setdefault("location", tables.location)
        raise


def open_table_records(
    tables: HandleTables, key_groups: KeyGroupRange, prefix_bytes: int
) -> TableRecords:
    """The records of some key groups.

    Raises:
        NotInColumnsError: A table file has range deletions.
    """
    metas = tuple(meta.as_key_value() for meta in tables.header.states)
    ids = {meta.name: at for at, meta in enumerate(metas)}
    states = [
        StateTables(ids[family], files)
        for family, files in tables.families.items()
        if family in ids
    ]
    if not all(has_twin([each.file for each in state.files]) for state in states):
        raise NotInColumnsError("A table file holds range deletions.")
    plain = KeyedBackendHeader(tables.header.key_serializer, metas)
    return TableRecords(plain, prefix_bytes, "restored state", key_groups, states, tables.resolver)
