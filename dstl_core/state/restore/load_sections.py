"""Loads large state into tables, a few megabytes at a time, with rows in batches.

A kernel finds the records and checks their keys. Per record, Python only slices two byte strings
and calls the store. State that the kernel cannot read goes to the record-wise reader, which raises
the error if the state is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.decoder import SpanProgram, key_roots
from dstl_core.codec.columnar.keyed.sections import (
    SectionChunks,
    compressed_chunks,
    plain_chunks,
)
from dstl_core.codec.columnar.keyed.spans import SectionScanner, SpanBatch
from dstl_core.codec.columnar.types.output_columns import ArrowAllocator
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import NotInColumnsError, error_context
from dstl_core.model.handle import (
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore.canonical import (
    KeyGroupsHandle,
    read_stream_header,
    sections_reader,
)
from dstl_core.state.restore.heap import is_canonical
from dstl_core.state.restore.open_tables import OpenTables
from dstl_core.state.restore.rocksdb_columns import open_table_records
from dstl_core.state.tables.keyed_tables import KeyedTables
from dstl_core.state.tables.state_table import StateTable
from dstl_core.state.tables.store import Shape
from dstl_core.storage.handle_resolver import HandleResolver

_ROWS, _BYTES = 1 << 16, 8 << 20
_FILES_AT_ONCE = 64 << 20
"""Bytes of RocksDB's files whose rows are merged at a time."""


def load_by_columns(
    state: KeyedTables,
    handle: KeyedStateHandle,
    open_tables: OpenTables,
) -> None:
    """Loads the wanted key groups of a large handle into the tables of a state.

    Raises:
        NotInColumnsError: The state has no columnar form; no entry was loaded.
        FormatError: The bytes are damaged.
    """
    resolver, registry = open_tables.resolver, open_tables.registry
    match handle:
        case KeyGroupsSavepointStateHandle():
            _load_canonical(state, handle, resolver, registry)
        case KeyGroupsStateHandle() if is_canonical(handle, resolver):
            _load_canonical(state, handle, resolver, registry)
        case IncrementalRemoteKeyedStateHandle():
            _load_table_files(state, handle, open_tables)
        case _:
            raise NotInColumnsError


def _load_canonical(
    state: KeyedTables,
    handle: KeyGroupsHandle,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> None:
    header = read_stream_header(handle, resolver, registry)
    with error_context(location=resolver.describe(handle.stream)):
        sections = handle.offsets.sections(handle.stream.state_size, state.key_groups)
        chunks = compressed_chunks if header.compressed else plain_chunks
        read = sections_reader(handle.stream, sections, resolver)
        _load(_tables(state, header), state, chunks(read, sections))


def _load_table_files(
    state: KeyedTables,
    handle: IncrementalRemoteKeyedStateHandle,
    open_tables: OpenTables,
) -> None:
    """Loads the rows of RocksDB's files, some key groups at a time."""
    key_groups = handle.key_group_range.get_intersection(state.key_groups)
    if not len(key_groups):
        raise NotInColumnsError
    parts = max(1, min(len(key_groups), -(-handle.state_size // _FILES_AT_ONCE)))
    first, total = key_groups.start_key_group, len(key_groups)
    for part in range(parts):
        start, stop = first + total * part // parts, first + total * (part + 1) // parts
        part_range = KeyGroupRange(start, stop - 1)
        records = open_table_records(open_tables.of(handle), part_range, state.prefix_bytes)
        stored = records.as_sections()
        _load(_tables(state, stored.header), state, stored.chunks())


def _tables(state: KeyedTables, header: KeyedBackendHeader) -> list[StateTable[Any]]:
    return [state.table(meta, header.key_serializer) for meta in header.states]


def _load(tables: Sequence[StateTable[Any]], state: KeyedTables, chunks: SectionChunks) -> None:
    """Loads all records of some sections.

    Raises:
        FormatError: The bytes are damaged.
    """
    scanner = SectionScanner(state.prefix_bytes, [True] * len(tables), _ROWS, _BYTES)
    loaders = [_Loader(table, state.prefix_bytes) for table in tables]
    for batch in scanner.batches(chunks):
        states = batch.states
        for state_id in np.unique(states).tolist():
            of_state = states == state_id
            loaders[state_id].load(batch if of_state.all() else batch.take(of_state))


class _Loader:
    """Fills one table."""

    def __init__(self, table: StateTable[Any], prefix_bytes: int) -> None:
        self._table = table
        self._prefix_bytes = prefix_bytes
        self._check_keys: SpanProgram | None = None
        # In other tables, or with lengths between the parts, a stored key differs from its scope.
        if table.shape is Shape.ROWS and not table.codec.is_ambiguous:
            record = RecordFormat(table.meta, table.codec.key_serializer)
            try:
                roots = key_roots(record, DEFAULT_OPTIONS)
            except NotInColumnsError:
                return
            self._check_keys = SpanProgram(roots, scan.KEY_START, ArrowAllocator())

    def load(self, batch: SpanBatch) -> None:
        places = batch.spans[:, : scan.TAG] - batch.source.base
        first, last = int(places[:, 0].min()), int(places[:, -1].max())
        data = bytes(memoryview(batch.source.data)[first:last])
        places -= first
        key_starts, key_ends, starts, ends = places.T.tolist()
        key_groups = batch.key_groups.tolist()
        keys = [data[start:end] for start, end in zip(key_starts, key_ends, strict=True)]
        values = [data[start:end] for start, end in zip(starts, ends, strict=True)]
        program = self._check_keys
        if program is not None and program.run(batch, frozenset(), len(batch))[1] is None:
            is_new = len(set(keys)) == len(keys) and not any(
                previous is not None for previous in self._table.get_many(key_groups, keys)
            )
            if is_new:
                self._table.put_many(key_groups, keys, values)
                return
        for key_group, key, value in zip(key_groups, keys, values, strict=True):
            stored = key_group.to_bytes(self._prefix_bytes, "big") + key
            self._table.load_record(key_group, stored, value)
