"""Restores the keyed value state of a checkpoint into columns, and replays changes of a log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_payload import MetadataChange, StateChangeOperation, read_change
from dstl_core.codec.columnar.changes.change_spans import ChangeSpans, change_spans
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import Ranges
from dstl_core.codec.columnar.keyed.decoder import (
    END_OF,
    KEY,
    VALUE,
    SpanProgram,
    StateDecoder,
    key_roots,
    value_layout,
    with_ends,
)
from dstl_core.codec.columnar.keyed.places import concatenated, take
from dstl_core.codec.columnar.keyed.spans import SectionScanner, SpanBatch
from dstl_core.codec.columnar.types.output_columns import ArrowAllocator
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import BUILT_IN, AnySerializer, SerializerRegistry
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import FormatError, RestoreError, StateMigrationError
from dstl_core.model.handle import ChangelogStateHandle, KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.columns.column_store import ColumnStore
from dstl_core.state.columns.gathered_states import GatheredStates
from dstl_core.state.restore.into_sections import KeyGroupsOpener
from dstl_core.state.restore.open_tables import OpenTables
from dstl_core.state.restore.stored_key_groups import StoredKeyGroups
from dstl_core.state.tables.keyed_state import describe_state, types_of
from dstl_core.storage.handle_resolver import HandleResolver

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
        self._gathered = GatheredStates(store, key_type)
        self._key_type = key_type
        self._programs: dict[tuple[str, bool], SpanProgram] = {}
        self._states = {meta.name: meta for meta in states}
        self._key_groups = key_groups
        self._resolver = resolver
        self._opener = KeyGroupsOpener(max_parallelism, OpenTables(resolver, registry), key_type)

    def base(self, handles: Sequence[KeyedStateHandle]) -> None:
        """Restores the full state. Each key is in only one handle."""
        for handle in handles:
            key_groups = handle.key_group_range.get_intersection(self._key_groups)
            if not len(key_groups):
                continue
            stored = self._opener.open_sections(handle, key_groups)
            if stored is None:
                continue
            if stored.header.key_serializer != self._key_type:
                raise RestoreError(
                    f"The key has another type: expected "
                    f"{stored.header.key_serializer.type_name} (from the restored state), got "
                    f"{self._key_type.type_name}; declare the type of the restored state."
                )
            with stored.context():
                self._read(stored)
        self._gathered.put()

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

    def _read(self, stored: StoredKeyGroups) -> None:
        """Reads the keys and values of all states once."""
        metas = stored.header.states
        decoders = {
            at: StateDecoder(RecordFormat(self._check(meta), self._key_type), stored.prefix_bytes)
            for at, meta in enumerate(metas)
            if meta.name in self._states
        }
        scanner = SectionScanner(stored.prefix_bytes, [True] * len(metas))
        for batch in scanner.batches(stored.chunks()):
            numbers = np.unique(batch.states).tolist()
            for at in numbers:
                if at not in decoders:
                    self._check(metas[at])
                records = batch if len(numbers) == 1 else batch.take(batch.states == at)
                values = decoders[at].decode(records, {VALUE})[VALUE]
                keys = decoders[at].key_ranges(records)
                self._gathered.add(metas[at].name, keys, records.source, values)

    # ---------------------------------------------------------------------------------- log

    def replay(self, logs: Sequence[ChangelogStateHandle]) -> None:
        """Applies logs in order.

        Raises:
            FormatError: A change is damaged, or is not a change of value state.
            RestoreError: A change is one of a state that is not declared.
        """
        reader = StateChangelogHandleReader(self._resolver.read_segment)
        metas: dict[int, StateMetaInfoSnapshot] = {}
        for log in logs:
            key_groups = log.get_intersection(self._key_groups)
            if key_groups is None:
                continue
            for batch in reader.read_batches(key_groups):
                self._replay_batch(batch, metas)
        self._gathered.put()

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
        by_state: dict[int, list[tuple[ChangeSpans, Ranges, pa.Array]]] = {}
        for operation, state_id, change in changes.by_operation():
            if state_id in metas and metas[state_id].name not in self._states:
                self._check(metas[state_id])
            if operation not in _VALUE_CHANGES or state_id not in metas:
                raise FormatError(
                    "A change of the log is not a change of a described value state",
                    expected=f"SET or CLEAR of one of the states {sorted(metas)}",
                    got=f"operation {operation.value} of state {state_id}",
                )
            keys, values = self._changed(metas[state_id], change.batch, operation is _CLEAR)
            by_state.setdefault(state_id, []).append((change, keys, values))
        for state_id, parts in by_state.items():
            keys = concatenated([keys for _, keys, _ in parts])
            values = pa.concat_arrays([values for _, _, values in parts])
            if len(parts) > 1:  # SET and CLEAR
                order = np.argsort(
                    np.concatenate([change.rows for change, _, _ in parts]), kind="stable"
                )
                keys, values = take(keys, order), values.take(pa.array(order))
            self._gathered.add(metas[state_id].name, keys, changes.batch.source, values)

    def _changed(
        self, meta: StateMetaInfoSnapshot, changes: SpanBatch, cleared: bool
    ) -> tuple[Ranges, pa.Array]:
        """The places of the keys of changes, and the new values; null for a cleared value."""
        program = self._programs.get((meta.name, cleared))
        if program is None:
            program = self._programs[meta.name, cleared] = self._program(meta, cleared)
        wanted = {END_OF[KEY]} if cleared else {END_OF[KEY], VALUE}
        columns, failure = program.run(changes, wanted, len(changes))
        if failure is not None:
            raise FormatError(f"A change of state {meta.name!r} is damaged", field="key or value")
        ends = columns[END_OF[KEY]].to_numpy(zero_copy_only=False)
        kind = self._store.schema.field(meta.name).type
        values = pa.nulls(len(changes), kind) if cleared else columns[VALUE]
        return Ranges(changes.spans[:, scan.VALUE_START], ends), values

    def _program(self, meta: StateMetaInfoSnapshot, cleared: bool) -> SpanProgram:
        """Reads a change after its state id."""
        record = RecordFormat(meta, self._key_type)
        value = value_layout(record, DEFAULT_OPTIONS)
        if value is None:
            raise FormatError(f"State {meta.name!r} has no values")
        roots = with_ends(key_roots(record, DEFAULT_OPTIONS), KEY)
        if not cleared:
            roots.append((VALUE, value))
        return SpanProgram(roots, scan.VALUE_START, ArrowAllocator())
