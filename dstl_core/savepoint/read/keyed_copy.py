"""Copies keyed state of operators to canonical sections as bytes, without decoding values.

Memory is bounded: beyond a limit, records go to a temporary file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.decoder import KEY, TIMESTAMP_BYTES, SpanProgram
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.keyed.record_digests import RecordDigests
from dstl_core.codec.columnar.keyed.runs import runs_of
from dstl_core.codec.columnar.keyed.spans import SpanBatch
from dstl_core.codec.columnar.keyed.sst_writer import keys_in_order
from dstl_core.codec.columnar.types.layouts import Rest
from dstl_core.codec.columnar.types.output_columns import ArrowAllocator
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS, layout_of
from dstl_core.codec.serializers import TimerSerializer
from dstl_core.codec.state_meta import (
    BackendStateType,
    KeyedBackendHeader,
)
from dstl_core.errors import NotInColumnsError, error_context
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, divided, key_group_prefix_bytes
from dstl_core.savepoint.read.entry_reader import BYTES_AT_ONCE
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.read.state_parts import StatesOf, merged_header
from dstl_core.savepoint.read.stored_records import handle_parts, open_part_records
from dstl_core.state.columns.keyed_sections import KeyedSections, StateRuns
from dstl_core.state.restore.stored_key_groups import StoredRecords
from dstl_core.state.tables.keyed_state import (
    StateKey,
    check_same_types,
    state_key,
)


class CopyTarget(Protocol):
    """Where records go: sections, or a list of runs for sections in another process."""

    @property
    def header(self) -> KeyedBackendHeader:
        """The states to write, by id."""
        ...

    @property
    def key_groups(self) -> KeyGroupRange:
        """The key groups to write."""
        ...

    def add(self, runs: StateRuns) -> None:
        """Takes the runs of one batch."""
        ...


@dataclass
class RunList:
    """Runs on their way to ``KeyedSections`` in another process."""

    header: KeyedBackendHeader
    key_groups: KeyGroupRange
    runs: list[StateRuns] = field(default_factory=list)

    def add(self, runs: StateRuns) -> None:
        self.runs.append(runs)


def add_states(
    sink: CopyTarget,
    source: StatesOf,
    max_parallelism: int,
    wanted: KeyGroupRange,
    only: KeyedStateHandle | None = None,
    digests: RecordDigests | None = None,
) -> None:
    """Adds the records of some key groups of an operator.

    Args:
        sink: Where the records go.
        source: Their states.
        max_parallelism: Number of key groups to write.
        wanted: The key groups to read.
        only: Read this handle alone.
        digests: Gets those of the records.

    Raises:
        NotInColumnsError: The key group of a key cannot be computed in columns.
    """
    _add(_Copy(sink, max_parallelism, digests=digests), source, wanted, only)


def copy_states(
    sink: CopyTarget,
    operator: OperatorCatalog,
    ids: Mapping[StateKey, int],
    max_parallelism: int,
) -> None:
    """Copies states as bytes into sections whose header calls them otherwise.

    Args:
        sink: Where the records go. The bytes of their values must be of the types there.
        operator: Where they come from.
        ids: The states to copy, with their ids in the sections.
        max_parallelism: Number of key groups to write.

    Raises:
        NotInColumnsError: The key group of a key cannot be computed in columns.
    """
    for runs in copied_runs(sink, operator, ids, max_parallelism):
        sink.add(runs)


def copied_runs(
    sink: CopyTarget,
    operator: OperatorCatalog,
    ids: Mapping[StateKey, int],
    max_parallelism: int,
    wanted: KeyGroupRange | None = None,
) -> Iterator[StateRuns]:
    """What ``copy_states`` adds to a sink, a run at a time."""
    copy = _Copy(sink, max_parallelism, ids)
    source = StatesOf(operator, frozenset(name for name, _ in ids))
    everything = KeyGroupRange(0, operator.max_parallelism - 1)
    return _runs(copy, source, wanted or everything)


def moved_runs(
    sink: CopyTarget, source: StatesOf, max_parallelism: int, wanted: KeyGroupRange
) -> Iterator[StateRuns]:
    """What ``add_states`` adds to a sink, a run at a time."""
    return _runs(_Copy(sink, max_parallelism), source, wanted)


def ordered_runs(
    source: StatesOf,
    header: KeyedBackendHeader,
    max_parallelism: int,
    key_group: int,
    only: KeyedStateHandle | None = None,
    digests: RecordDigests | None = None,
) -> Iterator[memoryview]:
    """The runs of one key group that stays where it is, in the order of its states. Memory holds
    one run, whatever the key group weighs.

    Args:
        source: Its states.
        header: The states to write, by id.
        max_parallelism: Number of key groups.
        key_group: The key group.
        only: Read this handle alone.
        digests: Gets those of the records.
    """
    operator, own = source.operator, KeyGroupRange(key_group, key_group)
    copy = _Copy(RunList(header, own), max_parallelism, digests=digests)
    parts = _parts_of(operator, key_group, only)
    passes: list[int | None] = [*range(len(header.states))]
    if len(parts) == 1 and copy.keeps_order(parts[0], source):
        passes = [None]
    for state in passes:
        for part in parts:
            with (
                error_context(location=str(operator.snapshot.folder), operator=operator.label),
                part.context(),
            ):
                for runs in copy.runs(part, source, state):
                    yield memoryview(runs.data)


def are_in_order(
    source: StatesOf, key_groups: KeyGroupRange, only: KeyedStateHandle | None = None
) -> bool:
    """Whether ``ordered_runs`` gives the records of each state in the order of their keys. Table
    files do; a stream is read to see it.
    """
    for key_group in key_groups:
        parts = _parts_of(source.operator, key_group, only)
        if len(parts) > 1 or not all(part.has_states_apart or _has_order(part) for part in parts):
            return False
    return True


def _has_order(part: StoredRecords) -> bool:
    last: dict[int, bytes] = {}
    with part.context():
        for batch in part.records([True] * len(part.header.states)):
            for state, own in batch.by_state():
                order = keys_in_order(own.spans, last.get(state, b""))
                if order is None:
                    return False
                last[state] = order
    return True


def _parts_of(
    operator: OperatorCatalog, key_group: int, only: KeyedStateHandle | None
) -> list[StoredRecords]:
    own = KeyGroupRange(key_group, key_group)
    return [
        part
        for handle, _ in handle_parts(operator, own)
        if only is None or handle is only
        if (part := open_part_records(operator, handle, own, handle.key_group_range)) is not None
    ]


def whole_parts(
    operator: OperatorCatalog, wanted: KeyGroupRange
) -> Iterator[tuple[KeyedStateHandle, KeyGroupRange]]:
    """Like ``handle_parts``, but each part has all records of its keys.

    A key group may be in several handles, e.g. of states and of timers in raw keyed state. Such
    handles are merged in memory.
    """
    header = merged_header([StatesOf(operator)])
    size = sum(each.state_size for each in operator.keyed_handles)
    count = max(1, min(len(wanted), -(-size // BYTES_AT_ONCE)))
    for own in divided(wanted, count):
        merged = None if header is None else _merged(StatesOf(operator), header, own, wanted)
        if merged is not None:
            yield merged, own


def _merged(
    source: StatesOf, header: KeyedBackendHeader, own: KeyGroupRange, wanted: KeyGroupRange
) -> KeyGroupsSavepointStateHandle | None:
    """All records of some of the wanted key groups, in canonical form."""
    operator = source.operator
    total = operator.max_parallelism
    try:
        with KeyedSections(header, own, total, check_duplicates=False) as sections:
            _add(_Copy(sections, total), source, own, within=wanted)
            stream = sections.stream()
            raw, offsets = b"".join(stream), stream.offsets
    except NotInColumnsError:
        restored = operator.restore(operator.keyed_handles, own, within=wanted)
        raw, offsets = restored.write_canonical()
    stored = ByteStreamStateHandle(f"key groups {own}", raw)
    return KeyGroupsSavepointStateHandle(offsets, stored) if raw else None


def _add(
    copy: _Copy,
    source: StatesOf,
    wanted: KeyGroupRange,
    only: KeyedStateHandle | None = None,
    within: KeyGroupRange | None = None,
) -> None:
    for runs in _runs(copy, source, wanted, only, within):
        copy.sink.add(runs)


def _runs(
    copy: _Copy,
    source: StatesOf,
    wanted: KeyGroupRange,
    only: KeyedStateHandle | None = None,
    within: KeyGroupRange | None = None,
) -> Iterator[StateRuns]:
    """The runs of the wanted key groups. ``within`` are all that the caller adds; None: all."""
    operator = source.operator
    for handle, own in handle_parts(operator, wanted):
        if only is not None and handle is not only:
            continue
        with error_context(location=str(operator.snapshot.folder), operator=operator.label):
            stored = open_part_records(operator, handle, own, within or handle.key_group_range)
            if stored is not None:
                with stored.context():
                    yield from copy.runs(stored, source)


class _Copy:
    """Copies records into sections."""

    def __init__(
        self,
        sink: CopyTarget,
        max_parallelism: int,
        ids: Mapping[StateKey, int] | None = None,
        digests: RecordDigests | None = None,
    ) -> None:
        self.sink = sink
        self._digests = digests
        self._is_checked = ids is not None
        self._max_parallelism = max_parallelism
        self._prefix = key_group_prefix_bytes(max_parallelism)
        every = {state_key(meta): at for at, meta in enumerate(sink.header.states)}
        self._ids = every if ids is None else ids

    def keeps_order(self, stored: StoredRecords, source: StatesOf) -> bool:
        """Whether one pass over some records gives their states in the order of their new ids."""
        ids = list(self._targets(stored, source).values())
        return not stored.has_states_apart and ids == sorted(ids)

    def _targets(self, stored: StoredRecords, source: StatesOf) -> dict[int, int]:
        """The new ids of the states to copy."""
        return {
            at: self._ids[state_key(meta)]
            for at, meta in enumerate(stored.header.states)
            if source.has(meta.name) and state_key(meta) in self._ids
        }

    def runs(
        self, stored: StoredRecords, source: StatesOf, only: int | None = None
    ) -> Iterator[StateRuns]:
        """The runs of some records. ``only`` is the new id of a state; None for all."""
        states = stored.header.states
        if any(meta.backend_state_type is BackendStateType.KEY_VALUE_V2 for meta in states):
            raise NotInColumnsError
        targets = self._targets(stored, source)
        if only is not None:
            targets = {at: target for at, target in targets.items() if target == only}
        if not self._is_checked:
            for at, target in targets.items():
                check_same_types(self.sink.header.states[target], states[at])
        wanted = [at in targets for at in range(len(states))]
        is_same = source.operator.max_parallelism == self._max_parallelism
        new = self.sink.header.states
        names = [new[targets.get(at, 0)].name for at in range(len(states))]
        for batch in stored.records(wanted):
            for at, records in batch.by_state():
                kept = records
                if source.select is not None:
                    kept = source.select.kept(states[at], stored.header.key_serializer, records)
                if len(kept):
                    groups = kept.key_groups if is_same else self._groups(kept, stored, at)
                    if self._digests is not None:
                        self._digests.add(kept, names)
                    yield self._runs_of(kept, targets[at], groups)

    def _runs_of(self, records: SpanBatch, state: int, groups: Int64s) -> StateRuns:
        own = self.sink.key_groups
        places = groups - own.start_key_group
        runs = runs_of(records.spans, state, places, groups, len(own), self._prefix)
        return StateRuns(state, own, runs.data, runs.bounds)

    def _groups(self, records: SpanBatch, stored: StoredRecords, state: int) -> Int64s:
        """The new key groups, from the hashes of the keys."""
        key_type = stored.header.key_serializer
        meta = stored.header.states[state]
        spans = records.spans.copy()
        if meta.is_queue:
            if not isinstance(meta.value_serializer, TimerSerializer):
                raise NotInColumnsError
            spans[:, scan.KEY_START] += TIMESTAMP_BYTES
        roots = [(KEY, layout_of(key_type, EXACT_OPTIONS)), ("rest", Rest())]
        program = SpanProgram(roots, scan.KEY_START, ArrowAllocator())
        columns, failure = program.run(SpanBatch(spans, records.source), {KEY}, len(spans))
        if failure is not None:
            raise NotInColumnsError
        keys: pa.Array = columns[KEY]
        numbers = key_groups_of(keys, key_type, self._max_parallelism, EXACT_OPTIONS)
        return numbers.astype(np.int64)
