"""A changelog on top of a base, brought into canonical sections by columns.

What is read at a time is a range of key groups: the base of these, and the changes of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_payload import MetadataChange, StateChangeOperation, read_change
from dstl_core.codec.columnar import scan_kernel as scan
from dstl_core.codec.columnar.places import NotInColumns
from dstl_core.codec.columnar.program import Int64s
from dstl_core.codec.columnar.replay import HEAD_BYTES, StateReplay
from dstl_core.codec.columnar.runs import runs_of, sections_of
from dstl_core.codec.columnar.spans import SectionScanner, Source, SpanBatch
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import AnySerializer, SerializerRegistry
from dstl_core.codec.state_meta import KeyedBackendHeader, StateMetaInfoSnapshot
from dstl_core.errors import DstlError
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.keyed_state import StateKey, knowledge_of, state_key, types_of
from dstl_core.storage.handle_resolver import HandleResolver

if TYPE_CHECKING:
    from dstl_core.state.stored_key_groups import StoredKeyGroups

OpenBase = Callable[[KeyedStateHandle], "StoredKeyGroups | None"]
_METADATA = StateChangeOperation.METADATA.value
_ORDER_STEP = 2


def open_changelog_rows(
    handle: ChangelogStateBackendHandle,
    key_groups: KeyGroupRange,
    prefix_bytes: int,
    resolver: HandleResolver,
    registry: SerializerRegistry,
    open_base: OpenBase,
    key_serializer: AnySerializer | None,
) -> tuple[KeyedBackendHeader, bytes, KeyGroupRangeOffsets] | None:
    """The header, and the sections of some key groups with where they start (counted from 1); None
    if the record-wise code has to replay the log, or to say what is wrong.
    """
    try:
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
    except (DstlError, NotInColumns):
        return None


class _Replay:
    """The states of one handle. State ids count within the log."""

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
            raise NotInColumns
        if known is None:
            self._metas[key] = meta
            self._states[key] = StateReplay(RecordFormat(meta, self._key), self._prefix_bytes)
        elif types_of(known) != types_of(meta):
            raise NotInColumns
        elif knowledge_of(meta) > knowledge_of(known):
            raise NotInColumns  # values may be of subclasses that were not known before
        return key

    def add_base(self, stored: StoredKeyGroups) -> None:
        header = stored.header
        if self._key is None:
            self._key = header.key_serializer
        if self._key != header.key_serializer:
            raise NotInColumns
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
        """Takes the next changes of the log."""
        values = batch.column("value")
        groups = batch.column("key_group").to_numpy().astype(np.int64)
        _, offsets, data = values.buffers()
        rows = len(values)
        source = Source(data if data is not None else b"", ())
        bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + rows + 1]
        bounds = bounds.astype(np.int64)
        raw = np.frombuffer(source.data or b"\0", np.uint8)
        if (np.diff(bounds) < HEAD_BYTES).any():
            raise NotInColumns
        at = bounds[:-1]
        operations = raw[at]
        ids = (raw[at + 1].astype(np.int16) << 8 | raw[at + 2]).astype(np.int16)
        orders = self._order + _ORDER_STEP * np.arange(rows, dtype=np.int64)
        self._order += _ORDER_STEP * rows
        first = 0
        for row in [*np.flatnonzero(operations == _METADATA).tolist(), rows]:
            part = slice(first, row)
            spans = np.zeros((row - first, scan.SPAN_WORDS), np.int64)
            spans[:, scan.VALUE_START] = source.base + at[part] + HEAD_BYTES
            spans[:, scan.VALUE_END] = source.base + bounds[1:][part]
            spans[:, scan.TAG] = groups[part] << 16
            kinds = operations[part].astype(np.int64), ids[part].astype(np.int64)
            self._add(SpanBatch(spans, source), *kinds, orders[part])
            if row < rows:
                change = read_change(values[row].as_py(), registry)
                if not isinstance(change, MetadataChange):
                    raise NotInColumns
                if self._key is not None:
                    self._ids[change.state_id] = self._state(change.state)
            first = row + 1

    def _add(self, batch: SpanBatch, operations: Int64s, ids: Int64s, orders: Int64s) -> None:
        """Takes changes between two descriptions of states."""
        if not len(batch):
            return
        if batch.key_groups.min() < 0:
            raise NotInColumns
        kinds = operations << 16 | (ids & 0xFFFF)
        for kind in np.unique(kinds):
            own = np.flatnonzero(kinds == kind)
            key = self._ids.get(int(ids[own[0]]))
            code = int(kind) >> 16
            if key is None or code >= _METADATA:
                raise NotInColumns
            operation = StateChangeOperation(code)
            self._states[key].add_changes(operation, batch.take(own), orders[own])

    # -------------------------------------------------------------------------------- result

    def result(
        self, key_groups: KeyGroupRange
    ) -> tuple[KeyedBackendHeader, bytes, KeyGroupRangeOffsets] | None:
        if self._key is None:
            return None
        runs = []
        for at, state in enumerate(self._states.values()):
            rows = state.rows()
            own = rows.key_groups - key_groups.start_key_group
            runs.append(
                runs_of(rows.spans, at, own, rows.key_groups, len(key_groups), self._prefix_bytes)
            )
        header = KeyedBackendHeader(self._key, tuple(self._metas.values()))
        return header, *sections_of(runs, key_groups)
