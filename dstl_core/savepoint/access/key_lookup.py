"""Finds the entries of a few keys, in the files and blocks that can hold them."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from dstl_core.codec.serializers import key_groups_of, serialize_key
from dstl_core.codec.sst.manifest import KeyRange, starting_with
from dstl_core.errors import FormatError, NotInColumnsError, error_context
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle, KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.entries import KeyedEntry, TimerEntry, Unreadable
from dstl_core.savepoint.read.entry_reader import EntryReader
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.state.restore.kernel_sizes import are_read_by_kernels
from dstl_core.state.restore.rocksdb import load_rows, open_table_files, read_meta_header
from dstl_core.state.tables.keyed_state import KeyedState


class KeyLookup:
    """The entries and timers of some keys of an operator.

    Of RocksDB's files it opens those whose range of keys has the key, and reads the blocks that can
    hold it; timers are in the order of their times, so all of a key group are read. Of canonical
    state it reads the section of the key group. Other forms are read as a whole for a key group.

    A key of a type without a known hash, such as a case class of Scala, may be in any key group.

    Args:
        operator: The operator; it has keyed state.
        keys: Values of the type of its keys.
        state: Only this state; None for all.
    """

    def __init__(
        self, operator: OperatorSnapshot, keys: Sequence[Any], state: str | None = None
    ) -> None:
        key_type = operator.key_type
        assert key_type is not None  # of keyed state
        self._operator = operator
        self._state = state
        self._keys = keys
        self._type = key_type.serializer
        self._wanted: dict[int, set[bytes]] = defaultdict(set)
        for key in keys:
            for group in key_groups_of(self._type, key, operator.max_parallelism):
                self._wanted[group].add(serialize_key(self._type, key))
        self.unreadable: list[Unreadable] = []
        """What may be of the keys, and only Java can read."""

    def __iter__(self) -> Iterator[KeyedEntry | TimerEntry]:
        """The readable entries, by key group."""
        for group in sorted(self._wanted):
            key_groups = KeyGroupRange(group, group)
            reader = EntryReader(self._operator, self._state, key_groups)
            for handle in self._operator.keyed_handles:
                if handle.key_group_range.contains(group):
                    entries = reader.readable_state(self._load(handle, key_groups))
                    yield from filter(self._is_wanted, entries)
            yield from filter(self._is_wanted, reader.raw_timers())
            for part in reader.unreadable:
                if not isinstance(part.entry, KeyedEntry) or self._is_wanted(part.entry):
                    self.unreadable.append(part)

    def _is_wanted(self, entry: KeyedEntry | TimerEntry) -> bool:
        return serialize_key(self._type, entry.key) in self._wanted[entry.key_group]

    def _load(self, handle: KeyedStateHandle, key_groups: KeyGroupRange) -> KeyedState:
        """State with the records of the wanted keys of a key group, and perhaps others."""
        operator = self._operator
        with error_context(location=str(operator.snapshot.folder), operator=operator.label):
            if isinstance(handle, IncrementalRemoteKeyedStateHandle):
                return self._of_tables(handle, key_groups)
            if are_read_by_kernels(handle.state_size // len(handle.key_group_range)):
                try:
                    return self._by_columns(handle, key_groups)
                except (NotInColumnsError, FormatError):
                    pass  # the record-wise code reads it, or says what is wrong
            return operator.restore([handle], key_groups, keep_going=True)

    def _of_tables(
        self, handle: IncrementalRemoteKeyedStateHandle, key_groups: KeyGroupRange
    ) -> KeyedState:
        snapshot = self._operator.snapshot
        header = read_meta_header(handle, snapshot.resolver, snapshot.registry)
        state = KeyedState(key_groups, self._operator.max_parallelism)
        prefix = key_groups.start_key_group.to_bytes(state.prefix_bytes, "big")
        all_keys = [starting_with(prefix)]
        keys = [
            starting_with(prefix + key) for key in sorted(self._wanted[key_groups.start_key_group])
        ]
        queues = {meta.name for meta in header.states if meta.is_queue}

        def wanted(family: str) -> Sequence[KeyRange]:
            if self._state not in (None, family):
                return []
            return all_keys if family in queues else keys

        families = open_table_files(handle, snapshot.resolver, wanted)
        load_rows(state, header, families, wanted)
        return state

    def _by_columns(self, handle: KeyedStateHandle, key_groups: KeyGroupRange) -> KeyedState:
        # Loads Arrow and the compiler, which small state does not pay for.
        from dstl_core.savepoint.access.record_lookup import rows_of_keys

        state = KeyedState(key_groups, self._operator.max_parallelism)
        prefix = key_groups.start_key_group.to_bytes(state.prefix_bytes, "big")
        for meta, key_type, rows in rows_of_keys(self._operator, handle, key_groups, self._keys):
            table = state.table(meta, key_type)
            for key_start, key_end, start, end in rows:
                key = ctypes.string_at(key_start, key_end - key_start)
                value = ctypes.string_at(start, end - start)
                table.load_record(key_groups.start_key_group, prefix + key, value)
        return state
