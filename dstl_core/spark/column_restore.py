"""Keyed value state of a checkpoint into columns, and the changes of a log onto them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_payload import MetadataChange, StateChangeOperation, read_change
from dstl_core.codec.columnar import scan_kernel as scan
from dstl_core.codec.columnar.decoder import SpanProgram, StateDecoder, key_roots, value_layout
from dstl_core.codec.columnar.output import ArrowAllocator
from dstl_core.codec.columnar.sections import Section
from dstl_core.codec.columnar.spans import SectionScanner, Source, SpanBatch
from dstl_core.codec.columnar.type_layouts import DEFAULT_OPTIONS
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import BUILT_IN, AnySerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import FormatError, RestoreError, StateMigrationError
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.handle import ChangelogStateHandle, KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.spark.column_store import KEY, ColumnStore
from dstl_core.state.keyed_state import describe_state, types_of
from dstl_core.state.stored_key_groups import StoredKeyGroups, open_key_groups
from dstl_core.storage.handle_resolver import HandleResolver

VALUE = "value"
_SETS = (StateChangeOperation.SET.value, StateChangeOperation.SET_INTERNAL.value)
_CLEAR = StateChangeOperation.CLEAR.value
_SCOPE_AT = 3
"""Bytes of a change in front of its scope: the operation and the state id."""


class ColumnRestore:
    """Restores one subtask.

    Args:
        store: Takes the state.
        key_type: Of the keys.
        states: The states that the function declares; there may be no others.
        key_groups: What the subtask owns.
        max_parallelism: Of the operator.
        resolver: Reads files.
    """

    def __init__(
        self,
        store: ColumnStore,
        key_type: AnySerializer,
        states: Sequence[StateMetaInfoSnapshot],
        key_groups: KeyGroupRange,
        max_parallelism: int,
        resolver: HandleResolver,
    ) -> None:
        self._store = store
        self._key_type = key_type
        self._states = {meta.name: meta for meta in states}
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._resolver = resolver

    def base(self, handles: Sequence[KeyedStateHandle]) -> None:
        """The full state. Each key is in one handle only."""
        for handle in handles:
            own = handle.key_group_range.get_intersection(self._key_groups)
            if not len(own):
                continue
            stored = open_key_groups(
                handle, own, self._max_parallelism, self._resolver, BUILT_IN, self._key_type
            )
            if stored is None:
                continue
            if stored.header.key_serializer != self._key_type:
                raise RestoreError(
                    f"The key has another type: expected "
                    f"{stored.header.key_serializer.type_name} (from the restored state), got "
                    f"{self._key_type.type_name}."
                )
            with stored.context():
                parts = [
                    self._decoded(stored, at, self._check(meta))
                    for at, meta in enumerate(stored.header.states)
                    if meta.name in self._states or self._has_records(stored, at)
                ]
            self._put([(name, table) for name, table in parts if table.num_rows])

    def _has_records(self, stored: StoredKeyGroups, state_id: int) -> bool:
        mask = [at == state_id for at in range(len(stored.header.states))]
        scanner = SectionScanner(stored.prefix_bytes, mask)
        return any(len(batch) for batch in scanner.batches(stored.chunks()))

    def _check(self, meta: StateMetaInfoSnapshot) -> StateMetaInfoSnapshot:
        meta = meta.as_key_value()
        declared = self._states.get(meta.name)
        if declared is None:
            raise RestoreError(
                f"The restored state {meta.name!r} ({describe_state(meta)}) is not one of the "
                f"states of the function: {', '.join(self._states)}; it would be lost."
            )
        if types_of(declared) != types_of(meta):
            raise StateMigrationError(
                f"State {meta.name!r} has another type: expected {describe_state(meta)} (from "
                f"the restored state), got {describe_state(declared)}; a function on columns "
                f"takes no state that has to be migrated."
            )
        return declared

    def _decoded(
        self, stored: StoredKeyGroups, state_id: int, meta: StateMetaInfoSnapshot
    ) -> tuple[str, pa.Table]:
        decoder = StateDecoder(RecordFormat(meta, self._key_type), stored.prefix_bytes)
        mask = [at == state_id for at in range(len(stored.header.states))]
        scanner = SectionScanner(stored.prefix_bytes, mask)
        columns = [
            decoder.decode(batch, {KEY, VALUE}) for batch in scanner.batches(stored.chunks())
        ]
        return meta.name, _table(columns, decoder.columns)

    # ---------------------------------------------------------------------------------- log

    def replay(self, logs: Sequence[ChangelogStateHandle]) -> None:
        """Applies logs in order: the last change of each key of a batch, by looking its key up.

        Raises:
            FormatError: A change is damaged, or is none of value state.
        """
        reader = StateChangelogHandleReader(self._resolver.read_segment)
        metas: dict[int, StateMetaInfoSnapshot] = {}
        for log in logs:
            own = log.get_intersection(self._key_groups)
            if own is None:
                continue
            for batch in reader.read_batches(own):
                self._replay_batch(batch, metas)

    def _replay_batch(self, batch: pa.RecordBatch, metas: dict[int, StateMetaInfoSnapshot]) -> None:
        is_meta = pc.equal(batch.column("key_group"), META_KEY_GROUP).to_numpy(zero_copy_only=False)
        # A description holds for what follows it.
        edges = [0, *np.flatnonzero(is_meta).tolist(), batch.num_rows]
        changes = batch.column("value")
        for start, end in pairwise(edges):
            if start < batch.num_rows and is_meta[start]:
                parsed = read_change(changes[start].as_py(), BUILT_IN)
                if not isinstance(parsed, MetadataChange):
                    raise FormatError("A change is in no key group", expected="a description")
                if parsed.state.name in self._states:
                    metas[parsed.state_id] = self._check(parsed.state)
                else:
                    metas.pop(parsed.state_id, None)
                start += 1
            if start < end:
                self._apply(changes.slice(start, end - start), metas)

    def _apply(self, changes: pa.Array, metas: dict[int, StateMetaInfoSnapshot]) -> None:
        data, starts, ends = _bytes_of(changes)
        if (ends - starts < _SCOPE_AT).any():
            raise FormatError("A change is too short", expected=f">= {_SCOPE_AT} bytes")
        raw = np.frombuffer(data, np.uint8)
        operations = raw[starts]
        ids = raw[starts + 1].astype(np.int32) << 8 | raw[starts + 2]
        known = np.isin(operations, [*_SETS, _CLEAR]) & np.isin(ids, list(metas))
        if not known.all():
            first = int(np.flatnonzero(~known)[0])
            raise FormatError(
                "A change of the log is none of value state that was described",
                expected=f"SET or CLEAR of one of the states {sorted(metas)}",
                got=f"operation {operations[first]} of state {ids[first]}",
            )
        parts = []
        for state_id in np.unique(ids).tolist():
            rows = np.flatnonzero(ids == state_id)
            meta = metas[state_id]
            cleared = operations[rows] == _CLEAR
            parts.append((meta.name, self._changes(meta, data, starts, ends, rows, cleared)))
        self._put(parts)

    def _changes(
        self,
        meta: StateMetaInfoSnapshot,
        data: bytes,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        cleared: npt.NDArray[np.bool_],
    ) -> pa.Table:
        """Keys and new values of the changes of one state, the last one of each key last."""
        record = RecordFormat(meta, self._key_type)
        roots = key_roots(record, DEFAULT_OPTIONS)
        value = value_layout(record, DEFAULT_OPTIONS)
        if value is None:
            raise FormatError(f"State {meta.name!r} has no values")
        source = Source(data, [Section(0, 0, len(data), 0)])
        allocator = ArrowAllocator()
        parts: list[pa.Table] = []
        order: list[npt.NDArray[np.int64]] = []
        columns = {KEY: self._store.key_type, VALUE: value.arrow_type}
        for chosen, program in (
            (rows[~cleared], SpanProgram([*roots, (VALUE, value)], scan.KEY_START, allocator)),
            (
                rows[cleared],
                SpanProgram(key_roots(record, DEFAULT_OPTIONS), scan.KEY_START, allocator),
            ),
        ):
            if not len(chosen):
                continue
            spans = np.zeros((len(chosen), scan.SPAN_WORDS), np.int64)
            spans[:, scan.KEY_START] = starts[chosen] + _SCOPE_AT + source.base
            spans[:, scan.KEY_END] = ends[chosen] + source.base
            found, failure = program.run(SpanBatch(spans, source), {KEY, VALUE}, len(chosen))
            if failure is not None:
                raise FormatError(
                    f"A change of state {meta.name!r} is damaged", field="key or value"
                )
            found.setdefault(VALUE, pa.nulls(len(chosen), value.arrow_type))
            parts.append(_table([found], columns))
            order.append(chosen)
        together = pa.concat_tables(parts)
        return together.take(pa.array(np.argsort(np.concatenate(order), kind="stable")))

    # ---------------------------------------------------------------------------------- put

    def _put(self, parts: Sequence[tuple[str, pa.Table]]) -> None:
        """Replaces the values of some states; of a key that comes twice, the last one holds."""
        if not parts:
            return
        every = pa.chunked_array([chunk for _, each in parts for chunk in each[KEY].chunks])
        keys, numbers = self._store.keys(_one(every))
        states = self._store.lookup(keys) if self._store.levels else self._store.nothing(len(keys))
        at = 0
        for name, table in parts:
            own = numbers[at : at + table.num_rows]
            at += table.num_rows
            rows = np.full(len(keys), -1, np.int64)
            rows[own] = np.arange(table.num_rows)  # the last one stays
            touched = rows >= 0
            place = states.schema.get_field_index(name)
            new = _one(table[VALUE]).take(pa.array(np.where(touched, rows, 0)))
            both = pc.if_else(pa.array(touched), new, _one(states.column(place)))
            states = states.set_column(place, states.schema.field(place), both)
        self._store.put(keys, states)


def _table(columns: Sequence[dict[str, pa.Array]], types: dict[str, pa.DataType]) -> pa.Table:
    schema = pa.schema([(KEY, types[KEY]), (VALUE, types[VALUE])])
    batches = [
        pa.RecordBatch.from_arrays([each[KEY], each[VALUE]], schema=schema) for each in columns
    ]
    return pa.Table.from_batches(batches, schema)


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    found: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return found


def _bytes_of(
    column: pa.Array,
) -> tuple[bytes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The bytes of a binary column, and where each value starts and ends in them."""
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    first, last = int(places[0]), int(places[-1])
    raw = b"" if data is None else data.slice(first, last - first).to_pybytes()
    shifted = places.astype(np.int64) - first
    return raw, shifted[:-1], shifted[1:]
