"""Restores the keyed value state of a checkpoint into columns, and replays changes of a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_payload import MetadataChange, StateChangeOperation, read_change
from dstl_core.codec.columnar.changes.change_spans import ChangeSpans, change_spans
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.decoder import (
    SpanProgram,
    StateDecoder,
    key_roots,
    value_layout,
)
from dstl_core.codec.columnar.keyed.spans import SectionScanner, SpanBatch
from dstl_core.codec.columnar.types.output_columns import ArrowAllocator
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import BUILT_IN, AnySerializer, SerializerRegistry
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import FormatError, RestoreError, StateMigrationError
from dstl_core.model.handle import ChangelogStateHandle, KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.columns.column_store import KEY, MAX_LEVELS, ColumnStore
from dstl_core.state.restore.into_sections import KeyGroupsOpener
from dstl_core.state.restore.open_tables import OpenTables
from dstl_core.state.restore.stored_key_groups import Placed, StoredKeyGroups
from dstl_core.state.tables.keyed_state import describe_state, types_of
from dstl_core.storage.handle_resolver import HandleResolver

VALUE = "value"
PORTION_BYTES = 64 << 20
"""Bytes of a base that are decoded at a time."""
_CLEAR = StateChangeOperation.CLEAR
_VALUE_CHANGES = (StateChangeOperation.SET, StateChangeOperation.SET_INTERNAL, _CLEAR)


class ColumnRestore:
    """Restores one subtask.

    Args:
        store: The store that gets the state.
        key_type: The type of the keys.
        states: The states that the function declares. The checkpoint may have no others.
        key_groups: The key groups of the subtask.
        max_parallelism: The max parallelism of the operator.
        resolver: Reads the files of handles.
        registry: Reads the types in the files.
    """

    def __init__(
        self,
        store: ColumnStore,
        key_type: AnySerializer,
        states: Sequence[StateMetaInfoSnapshot],
        key_groups: KeyGroupRange,
        max_parallelism: int,
        resolver: HandleResolver,
        registry: SerializerRegistry = BUILT_IN,
    ) -> None:
        self._registry = registry
        self._store = store
        self._key_type = key_type
        self._states = {meta.name: meta for meta in states}
        self._key_groups = key_groups
        self._resolver = resolver
        self._opener = KeyGroupsOpener(max_parallelism, OpenTables(resolver, registry), key_type)

    def base(self, handles: Sequence[KeyedStateHandle]) -> None:
        """Restores the full state. Each key is in only one handle."""
        for handle in handles:
            own = handle.key_group_range.get_intersection(self._key_groups)
            if not len(own):
                continue
            stored = self._opener.open_sections(handle, own)
            if stored is None:
                continue
            if stored.header.key_serializer != self._key_type:
                raise RestoreError(
                    f"The key has another type: expected "
                    f"{stored.header.key_serializer.type_name} (from the restored state), got "
                    f"{self._key_type.type_name}; declare the type of the restored state."
                )
            with stored.context():
                for number, portion in enumerate(_portions(stored)):
                    # A key has one key group, so it is in one portion.
                    self._put(self._decoded(portion), may_have_state=not number)

    def _check(self, meta: StateMetaInfoSnapshot) -> StateMetaInfoSnapshot:
        meta = meta.as_key_value()
        declared = self._states.get(meta.name)
        if declared is None:
            raise RestoreError(
                f"The restored state {meta.name!r} ({describe_state(meta)}) would be lost: it is "
                f"not one of the states of the operator, {', '.join(self._states)}; declare it "
                f"too, or let migrate() of the job drop or rename it (dstl migrate, for that of a "
                f"savepoint)."
            )
        if types_of(declared) != types_of(meta):
            raise StateMigrationError(
                f"State {meta.name!r} has another type: expected {describe_state(meta)} (from "
                f"the restored state), got {describe_state(declared)}; declare the stored type, or "
                f"let migrate() of the job convert it or begin it anew (dstl migrate, for that of "
                f"a savepoint)."
            )
        return declared

    def _decoded(self, stored: StoredKeyGroups) -> list[tuple[str, pa.Table]]:
        """Keys and values of each state that is not empty. It reads the records once."""
        metas = stored.header.states
        decoders = {
            at: StateDecoder(RecordFormat(self._check(meta), self._key_type), stored.prefix_bytes)
            for at, meta in enumerate(metas)
            if meta.name in self._states
        }
        columns: dict[int, list[dict[str, pa.Array]]] = {at: [] for at in decoders}
        scanner = SectionScanner(stored.prefix_bytes, [True] * len(metas))
        for batch in scanner.batches(stored.chunks()):
            numbers = np.unique(batch.states).tolist()
            for at in numbers:
                if at not in decoders:
                    self._check(metas[at])
                own = batch if len(numbers) == 1 else batch.take(batch.states == at)
                columns[at].append(decoders[at].decode(own, {KEY, VALUE}))
        return [
            (metas[at].name, _table(parts, decoders[at].columns))
            for at, parts in columns.items()
            if parts
        ]

    # ---------------------------------------------------------------------------------- log

    def replay(self, logs: Sequence[ChangelogStateHandle]) -> None:
        """Applies logs in order. Of each batch, it applies the last change of each key.

        Raises:
            FormatError: A change is damaged, or is not a change of value state.
            RestoreError: A change is one of a state that is not declared.
        """
        reader = StateChangelogHandleReader(self._resolver.read_segment)
        metas: dict[int, StateMetaInfoSnapshot] = {}
        for log in logs:
            own = log.get_intersection(self._key_groups)
            if own is None:
                continue
            for batch in reader.read_batches(own):
                self._replay_batch(batch, metas)
                if len(self._store.levels) > MAX_LEVELS:
                    self._store.tidy()

    def _replay_batch(self, batch: pa.RecordBatch, metas: dict[int, StateMetaInfoSnapshot]) -> None:
        for part in change_spans(batch):
            if isinstance(part, ChangeSpans):
                self._apply(part, metas)
                continue
            # A description is valid for the changes after it.
            parsed = read_change(part, self._registry)
            if not isinstance(parsed, MetadataChange):
                raise FormatError("A change has no key group", expected="a description of a state")
            # A state that is not declared may be described, but not have changes.
            is_declared = parsed.state.name in self._states
            metas[parsed.state_id] = self._check(parsed.state) if is_declared else parsed.state

    def _apply(self, changes: ChangeSpans, metas: dict[int, StateMetaInfoSnapshot]) -> None:
        by_state: dict[int, list[tuple[pa.Table, Int64s]]] = {}
        for operation, state_id, own in changes.by_operation():
            if state_id in metas and metas[state_id].name not in self._states:
                self._check(metas[state_id])
            if operation not in _VALUE_CHANGES or state_id not in metas:
                raise FormatError(
                    "A change of the log is not a change of a described value state",
                    expected=f"SET or CLEAR of one of the states {sorted(metas)}",
                    got=f"operation {operation.value} of state {state_id}",
                )
            table = self._changed(metas[state_id], own.batch, cleared=operation is _CLEAR)
            by_state.setdefault(state_id, []).append((table, own.rows))
        parts = []
        for state_id, tables in by_state.items():
            together = pa.concat_tables([table for table, _ in tables])
            # Sorted by the order of the log, so that the last change of each key is applied last.
            order = np.argsort(np.concatenate([rows for _, rows in tables]), kind="stable")
            parts.append((metas[state_id].name, together.take(pa.array(order))))
        self._put(parts)

    def _changed(
        self, meta: StateMetaInfoSnapshot, changes: SpanBatch, *, cleared: bool
    ) -> pa.Table:
        """The keys and new values of changes; null for a cleared value."""
        record = RecordFormat(meta, self._key_type)
        value = value_layout(record, DEFAULT_OPTIONS)
        if value is None:
            raise FormatError(f"State {meta.name!r} has no values")
        roots = key_roots(record, DEFAULT_OPTIONS)
        if not cleared:
            roots = [*roots, (VALUE, value)]
        program = SpanProgram(roots, scan.VALUE_START, ArrowAllocator())
        rows = len(changes.spans)
        columns, failure = program.run(changes, {KEY, VALUE}, rows)
        if failure is not None:
            raise FormatError(f"A change of state {meta.name!r} is damaged", field="key or value")
        columns.setdefault(VALUE, pa.nulls(rows, value.arrow_type))
        return _table([columns], {KEY: self._store.key_type, VALUE: value.arrow_type})

    # ---------------------------------------------------------------------------------- put

    def _put(self, parts: Sequence[tuple[str, pa.Table]], *, may_have_state: bool = True) -> None:
        """Replaces the values of some states. The last value of a repeated key is kept.

        Args:
            parts: Names of states, with keys and values.
            may_have_state: Whether the keys may have state in the store.
        """
        if not parts:
            return
        every = pa.chunked_array([chunk for _, each in parts for chunk in each[KEY].chunks])
        keys, numbers = self._store.keys(_one(every))
        looks_up = may_have_state and self._store.levels
        states = self._store.lookup(keys) if looks_up else self._store.nothing(len(keys))
        at = 0
        for name, table in parts:
            own = numbers[at : at + table.num_rows]
            at += table.num_rows
            rows = np.full(len(keys), -1, np.int64)
            rows[own] = np.arange(table.num_rows)  # the last row of a key is kept
            touched = rows >= 0
            place = states.schema.get_field_index(name)
            new = _one(table[VALUE]).take(pa.array(np.where(touched, rows, 0)))
            both = pc.if_else(pa.array(touched), new, _one(states.column(place)))
            states = states.set_column(place, states.schema.field(place), both)
        self._store.put(keys, states)


def _portions(stored: StoredKeyGroups) -> Iterator[StoredKeyGroups]:
    """Whole key groups of about ``PORTION_BYTES`` each."""
    portion: Placed = []
    size = 0
    for key_group, start, end in stored.sections:
        if size > PORTION_BYTES and key_group != portion[-1][0]:
            yield stored.with_sections(portion)
            portion, size = [], 0
        portion.append((key_group, start, end))
        size += end - start
    yield stored.with_sections(portion)


def _table(columns: Sequence[dict[str, pa.Array]], types: dict[str, pa.DataType]) -> pa.Table:
    schema = pa.schema([(KEY, types[KEY]), (VALUE, types[VALUE])])
    batches = [
        pa.RecordBatch.from_arrays([column[KEY], column[VALUE]], schema=schema)
        for column in columns
    ]
    return pa.Table.from_batches(batches, schema)


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    array_of_chunks: Any = (
        column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    )
    return array_of_chunks
