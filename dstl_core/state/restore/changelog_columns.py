"""Merges a base and its changelog into canonical sections, by columns.

It reads one range of key groups at a time: its part of the base and its changes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_payload import MetadataChange, read_change
from dstl_core.codec.columnar.changes.change_spans import ChangeSpans, change_spans
from dstl_core.codec.columnar.changes.replay import StateReplay
from dstl_core.codec.columnar.keyed.runs import Sections, runs_of, sections_of
from dstl_core.codec.columnar.keyed.spans import SectionScanner
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import AnySerializer, SerializerRegistry
from dstl_core.codec.state_meta import KeyedBackendHeader, StateMetaInfoSnapshot
from dstl_core.errors import NotInColumnsError
from dstl_core.model.handle import ChangelogStateBackendHandle, KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange, divided
from dstl_core.state.restore.stored_key_groups import StoredKeyGroups, in_parts
from dstl_core.state.tables.keyed_state import StateKey, knowledge_of, state_key, types_of
from dstl_core.storage.handle_resolver import HandleResolver

OpenBase = Callable[[KeyedStateHandle], StoredKeyGroups | None]
_ORDER_STEP = 2
_EVENTS_AT_ONCE = 1 << 15
"""Events of so many changes, and the table of their keys, fit into the cache of a core."""


def open_changelog_rows(
    handle: ChangelogStateBackendHandle,
    key_groups: KeyGroupRange,
    prefix_bytes: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
    open_base: OpenBase,
    key_serializer: AnySerializer | None,
) -> StoredKeyGroups:
    """The sections of some key groups, built in memory.

    Raises:
        NotInColumnsError: The state or a change has no columnar form.
        FormatError: The base or the log is damaged.
    """
    replay = _Replay(prefix_bytes, key_serializer)
    for base in handle.materialized:
        stored = open_base(base)
        if stored is not None:
            with stored.context():
                replay.add_base(stored)
    replay.check_base()
    reader = StateChangelogHandleReader(resolver.read_segment)
    for log in handle.non_materialized:
        part = log.get_intersection(key_groups)
        if part is not None:
            for batch in reader.read_batches(part):
                replay.add_changes(batch, registry)
    return replay.result(key_groups)


class _Replay:
    """The states of one handle. State ids are valid within the log."""

    def __init__(self, prefix_bytes: int, key_serializer: AnySerializer | None) -> None:
        self._prefix_bytes = prefix_bytes
        self._key = key_serializer
        self._metas: dict[StateKey, StateMetaInfoSnapshot] = {}
        self._states: dict[StateKey, StateReplay] = {}
        self._ids: dict[int, StateKey] = {}
        self._order = _ORDER_STEP

    def _state(self, meta: StateMetaInfoSnapshot) -> StateKey:
        key = state_key(meta)
        known = self._metas.get(key)
        if self._key is None:
            raise NotInColumnsError
        if known is None:
            self._metas[key] = meta
            self._states[key] = StateReplay(RecordFormat(meta, self._key), self._prefix_bytes)
        elif types_of(known) != types_of(meta):
            raise NotInColumnsError
        elif knowledge_of(meta) > knowledge_of(known):
            raise NotInColumnsError  # values may be of subclasses that earlier descriptions lack
        return key

    def add_base(self, stored: StoredKeyGroups) -> None:
        header = stored.header
        if self._key is None:
            self._key = header.key_serializer
        if self._key != header.key_serializer:
            raise NotInColumnsError
        keys = [self._state(meta) for meta in header.states]
        scanner = SectionScanner(self._prefix_bytes, [True] * len(keys))
        for batch in scanner.batches(stored.chunks()):
            states = batch.states
            for state in np.unique(states):
                self._states[keys[int(state)]].add_base(batch.take(states == state))

    def check_base(self) -> None:
        for state in self._states.values():
            state.check_base()

    # ------------------------------------------------------------------------------- changes

    def add_changes(self, batch: pa.RecordBatch, registry: SerializerRegistry) -> None:
        """Adds the next changes of the log."""
        for part in change_spans(batch):
            if isinstance(part, ChangeSpans):
                self._add(part)
                continue
            change = read_change(part, registry)
            if not isinstance(change, MetadataChange):
                raise NotInColumnsError
            if self._key is not None:
                self._ids[change.state_id] = self._state(change.state)
        self._order += _ORDER_STEP * batch.num_rows

    def _add(self, changes: ChangeSpans) -> None:
        """Adds changes between two descriptions of states."""
        if changes.batch.key_groups.min() < 0:
            raise NotInColumnsError
        for operation, state_id, change in changes.by_operation():
            key = self._ids.get(state_id)
            if key is None:
                raise NotInColumnsError
            orders = self._order + _ORDER_STEP * change.rows
            self._states[key].add_changes(operation, change.batch, orders)

    # -------------------------------------------------------------------------------- result

    def result(self, key_groups: KeyGroupRange) -> StoredKeyGroups:
        if self._key is None:
            raise NotInColumnsError("The type of the key is unknown.")
        header = KeyedBackendHeader(self._key, tuple(self._metas.values()))
        states = list(self._states.values())
        events = sum(state.events for state in states)
        for state in states:
            state.finish(key_groups.start_key_group, key_groups.end_key_group)
        count = max(1, min(len(key_groups), events // _EVENTS_AT_ONCE))
        parts = [self._sections(states, part) for part in divided(key_groups, count)]
        return in_parts(header, parts, self._prefix_bytes)

    def _sections(self, states: list[StateReplay], key_groups: KeyGroupRange) -> Sections:
        runs = []
        for at, state in enumerate(states):
            rows = state.rows(key_groups.start_key_group, key_groups.end_key_group)
            buckets = rows.key_groups - key_groups.start_key_group
            runs.append(
                runs_of(
                    rows.spans, at, buckets, rows.key_groups, len(key_groups), self._prefix_bytes
                )
            )
        return sections_of(runs, key_groups)
