"""Converts keyed state in RocksDB's files to canonical sections, by columns."""

from __future__ import annotations

from dstl_core.codec.columnar.keyed.runs import Runs, runs_of, sections_of
from dstl_core.codec.columnar.keyed.sst_rows import has_twin, merged_spans
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import FormatError, NotInColumnsError, error_context
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore.rocksdb import open_table_files, read_meta_header
from dstl_core.state.restore.stored_key_groups import StoredKeyGroups, in_memory
from dstl_core.storage.handle_resolver import HandleResolver


def open_table_rows(
    handle: IncrementalRemoteKeyedStateHandle,
    key_groups: KeyGroupRange,
    prefix_bytes: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> StoredKeyGroups:
    """The sections of some key groups, built in memory.

    Raises:
        NotInColumnsError: A table file has range deletions.
        FormatError: A file is damaged.
    """
    header = read_meta_header(handle, resolver, registry)
    metas = tuple(meta.as_key_value() for meta in header.states)
    ids = {meta.name: at for at, meta in enumerate(metas)}
    runs: list[Runs] = []
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
        with error_context(location=location):
            first, last = key_groups.start_key_group, key_groups.end_key_group
            for rows in merged_spans(tables, first, last, prefix_bytes):
                groups, own = rows.key_groups, rows.key_groups - first
                run = runs_of(rows.spans, ids[family], own, groups, len(key_groups), prefix_bytes)
                runs.append(run)
    plain = KeyedBackendHeader(header.key_serializer, metas)
    return in_memory(plain, *sections_of(runs, key_groups), key_groups, prefix_bytes)
