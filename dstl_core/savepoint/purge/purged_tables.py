"""Takes keys out of files of RocksDB: only table files that hold one are written again.

Every version of a key goes, in each level, deletions included: nothing of it stays on the disk. A
MANIFEST has the first and last keys of files that are gone, too, so it is written anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import count, islice
from uuid import uuid4

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.cut_table import (
    KeyPrefixes,
    can_be_cut,
    count_entries,
    cut_table,
    marked_entries,
)
from dstl_core.codec.columnar.keyed.spans import ROWS_PER_BATCH, SpanBatch
from dstl_core.codec.columnar.keyed.sst_rows import TableSource
from dstl_core.codec.columnar.keyed.sst_writer import TABLE_BYTES, FamilyWriter
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.scratch import SPARE_BYTES
from dstl_core.codec.sst.manifest import (
    ChangedFile,
    ManifestFile,
    compacted_manifest,
    named_keys,
    read_manifest,
    starting_with,
)
from dstl_core.codec.sst.merge import merged_rows
from dstl_core.codec.sst.table_builder import Table
from dstl_core.errors import NotInColumnsError, error_context
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle, StreamStateHandle
from dstl_core.savepoint.purge.purge import TIME_BYTES, Purge
from dstl_core.savepoint.write.folder import StateFiles
from dstl_core.savepoint.write.table_parts import Kept
from dstl_core.state.restore.open_tables import HandleTables, OpenTables
from dstl_core.state.restore.rocksdb import (
    TableFile,
    current_manifest,
    file_number,
    table_name,
    table_number,
)
from dstl_core.state.restore.rocksdb_columns import open_table_records


@dataclass(frozen=True)
class PurgedTables:
    """The files of one handle, without some keys.

    Args:
        purge: What goes.
        opened: Opens the files.
    """

    purge: Purge
    opened: OpenTables

    def handle(
        self, handle: IncrementalRemoteKeyedStateHandle, kept: Kept, target: StateFiles
    ) -> IncrementalRemoteKeyedStateHandle:
        """Writes the files that hold a key; the others stay.

        Where a rule leaves something out, or a file with range deletions has a key, all files of
        the column family are written again.

        Raises:
            FormatError: A file is damaged.
        """
        tables = self.opened.of(handle)
        place, manifest = self._manifest(handle)
        streams: dict[str, StreamStateHandle] = {}
        counts: Counter[str] = Counter()
        old = dict(handle.shared + handle.private)
        timers = self._stored_timers(tables)
        self.purge.note_timers(timers)
        files = list(self._files(tables, timers))
        whole = {name for name in tables.families if self._drops(tables, name)}
        whole |= {
            family
            for family, member, gone in files
            if not can_be_cut(member.file) and count_entries(member.by_columns, gone)
        }
        changed: dict[int, ChangedFile | None] = {
            table_number(member.name): None for name in whole for member in tables.families[name]
        }
        added = self._written(tables, sorted(whole), manifest, target, streams)
        self.purge.give(self.purge.take())
        for family, member, gone in files:
            if family in whole:
                continue
            with error_context(location=member.location):
                cut = cut_table(member.by_columns, gone)
            if cut is None:
                continue
            counts[family] += cut.removed
            number = table_number(member.name)
            changed[number] = None
            if cut.size:
                read = self.opened.resolver.reader(old[member.name], 0, member.file.data_limit)
                streams[member.name] = target.add_mended(cut.parts(read), cut.size)
                changed[number] = ChangedFile(cut.size, cut.smallest, cut.largest, cut.unique_id)
        self.purge.give(counts)
        if not changed and not self._holds(tables, manifest):
            return replace(
                handle,
                meta_stream=kept(handle.meta_stream),
                shared=tuple((name, kept(stream)) for name, stream in handle.shared),
                private=tuple((name, kept(stream)) for name, stream in handle.private),
            )
        streams[place] = target.add_stream(compacted_manifest(manifest, changed, added))
        live = (member.name for members in tables.families.values() for member in members)
        stay = {name for name in live if table_number(name) not in changed}
        new = tuple((name, stream) for name, stream in streams.items() if name not in old)

        return replace(
            handle,
            meta_stream=kept(handle.meta_stream),
            shared=(*_files_left(handle.shared, streams, stay, kept), *new),
            private=tuple(_files_left(handle.private, streams, stay, kept)),
            state_handle_id=str(uuid4()),
        )

    def _drops(self, tables: HandleTables, family: str) -> bool:
        """Whether a rule leaves out something of a column family."""
        if family not in self.purge.rules:
            return False
        drops = any(len(kept) < len(batch) for _, batch, kept in self._rows(tables, family))
        return bool(self.purge.take()) or drops

    def _rows(
        self, tables: HandleTables, family: str
    ) -> Iterator[tuple[int, SpanBatch, SpanBatch]]:
        """The state, and batches of all rows and of those that stay, in the order of their keys."""
        members = tables.families[family]
        own = replace(tables, families={family: members})
        size, key_groups = self.purge.prefix_bytes, tables.handle.key_group_range
        states = tables.header.states
        state = next(at for at, meta in enumerate(states) if meta.name == family)
        meta, key_type = states[state], tables.header.key_serializer
        try:
            records = open_table_records(own, key_groups, size)
            batches = records.records([at == state for at in range(len(states))])
        except NotInColumnsError:  # range deletions
            start = key_groups.start_key_group.to_bytes(size, "big")
            stop = _behind(key_groups.end_key_group, size)
            rows = merged_rows([member.file for member in members], start, stop)
            batches = _batches(rows, state, size)
        for batch in batches:
            yield state, batch, self.purge.kept(meta, key_type, batch)

    def _written(
        self,
        tables: HandleTables,
        families: list[str],
        manifest: bytes,
        target: StateFiles,
        streams: dict[str, StreamStateHandle],
    ) -> dict[str, list[ManifestFile]]:
        """Writes what stays of whole column families into new files of the last level."""
        added: dict[str, list[ManifestFile]] = {}
        if not families:
            return added
        ids = {family.name: family.id for family in read_manifest(manifest).families.values()}
        handle, size = tables.handle, self.purge.prefix_bytes
        names = (name for name, _ in handle.shared + handle.private)
        numbers = count(1 + max(map(file_number, names)))
        for family in families:
            writer = FamilyWriter(family, 0, ids[family], size, TABLE_BYTES)
            for table in _tables(writer, (kept for _, _, kept in self._rows(tables, family)), size):
                number = next(numbers)
                streams[table_name(number)] = target.add_parts(table.parts, is_copy=True)
                added.setdefault(family, []).append(table.as_file(number))
        return added

    def found(self, handle: IncrementalRemoteKeyedStateHandle) -> Counter[str]:
        """The entries of the keys in all table files, older versions and deletions included, by
        state; and under the name of the MANIFEST whether it has one. Timers that ``handle`` has
        seen are looked for by their stored keys.
        """
        left: Counter[str] = Counter()
        tables = self.opened.of(handle)
        timers = self.purge.timers or self._stored_timers(tables)
        for family, member, gone in self._files(tables, timers):
            with error_context(location=member.location):
                left[family] += count_entries(member.by_columns, gone)
        place, manifest = self._manifest(handle)
        left[place] += self._holds(tables, manifest)
        for family in tables.families:
            left[family] += family in self.purge.rules and self._drops(tables, family)
        return left

    def _manifest(self, handle: IncrementalRemoteKeyedStateHandle) -> tuple[str, bytes]:
        resolver = self.opened.resolver
        place = current_manifest(handle, resolver)
        return place, resolver.read(dict(handle.shared + handle.private)[place])

    def _holds(self, tables: HandleTables, manifest: bytes) -> bool:
        """Whether a MANIFEST names a stored key of one of the keys."""
        names = {family.id: family.name for family in read_manifest(manifest).families.values()}
        queues = {meta.name for meta in tables.header.states if meta.is_queue}
        stored, of_timers = KeyPrefixes(self.purge.stored_keys), KeyPrefixes(self.purge.keys)
        skipped = self.purge.prefix_bytes + TIME_BYTES
        return any(
            of_timers.hold(key[skipped:]) if names.get(family) in queues else stored.hold(key)
            for family, key in named_keys(manifest)
        )

    def _files(
        self, tables: HandleTables, timers: Mapping[str, Set[bytes]]
    ) -> Iterator[tuple[str, TableFile, KeyPrefixes]]:
        """Each table file with the keys that go from it.

        Args:
            tables: The files.
            timers: Stored timers of the keys, by state.
        """
        if not self.purge.keys:
            return
        queues = {meta.name for meta in tables.header.states if meta.is_queue}
        of_keys = KeyPrefixes(self.purge.stored_keys)
        for family, members in tables.families.items():
            gone = KeyPrefixes(timers[family]) if family in queues else of_keys
            for member in members:
                yield family, member, gone

    def _stored_timers(self, tables: HandleTables) -> dict[str, set[bytes]]:
        """The stored timers of the keys, by state. All timers of their key groups are read."""
        queues = (meta.name for meta in tables.header.states if self.purge.keys and meta.is_queue)
        return {
            name: set().union(*map(self._timers, tables.families.get(name, ()))) for name in queues
        }

    def _timers(self, member: TableFile) -> set[bytes]:
        """The stored timers of the keys in a file: those of a key group are in the order of their
        times, so all of them are read.
        """
        size = self.purge.prefix_bytes
        groups = {group for key_groups in self.purge.key_groups for group in key_groups}
        prefixes = KeyPrefixes(group.to_bytes(size, "big") for group in groups)
        skip = size + TIME_BYTES
        with error_context(location=member.location):
            parts = marked_entries(member.by_columns, prefixes, self.purge.marks, skip)
            return {entries.key(row) for _, entries, rows in parts for row in rows.tolist()}


def _behind(key_group: int, prefix_bytes: int) -> bytes | None:
    """Where the keys of a key group end."""
    return starting_with(key_group.to_bytes(prefix_bytes, "big"))[1]


def _files_left(
    files: Sequence[tuple[str, StreamStateHandle]],
    written: Mapping[str, StreamStateHandle],
    stay: set[str],
    kept: Kept,
) -> Iterator[tuple[str, StreamStateHandle]]:
    """Files that were written again, table files that stay, and files that are no tables."""
    for name, stream in files:
        if name in written:
            yield name, written[name]
        elif table_number(name) < 0 or name in stay:
            yield name, kept(stream)


def _tables(
    writer: FamilyWriter, batches: Iterable[SpanBatch], prefix_bytes: int
) -> Iterator[Table]:
    """The table files of rows in the order of their keys."""
    for batch in batches:
        if len(batch):
            spans = batch.spans.copy()
            spans[:, scan.KEY_START] -= prefix_bytes  # a row of a table starts with its key group
            yield from (written.table for written in writer.add(spans))
    yield from (written.table for written in writer.finish())


def _batches(
    rows: Iterator[tuple[bytes, bytes]], state: int, prefix_bytes: int
) -> Iterator[SpanBatch]:
    """Rows as spans whose keys start after their key group."""
    while chunk := list(islice(rows, ROWS_PER_BATCH)):
        sizes = np.array([(len(key), len(value)) for key, value in chunk], np.int64)
        data = np.frombuffer(b"".join(map(b"".join, chunk)) + bytes(SPARE_BYTES), np.uint8)
        ends = np.cumsum(sizes.ravel()).reshape(-1, 2) + address_of(data)
        spans = np.empty((len(chunk), scan.SPAN_WORDS), np.int64)
        spans[:, scan.KEY_START] = ends[:, 0] - sizes[:, 0] + prefix_bytes
        spans[:, scan.KEY_END] = spans[:, scan.VALUE_START] = ends[:, 0]
        spans[:, scan.VALUE_END] = ends[:, 1]
        groups = [int.from_bytes(key[:prefix_bytes], "big") for key, _ in chunk]
        spans[:, scan.TAG] = np.array(groups, np.int64) << 16 | state
        yield SpanBatch(spans, TableSource([data]))
