"""Reads keyed state of one handle and some key groups in columns, for work on whole snapshots.

The compiler takes a second to load, so small state uses the record-wise code. So does state that
columns do not support or refuse; the record-wise code then raises the precise error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, Ranges
from dstl_core.codec.columnar.keyed.decoder import KEY, StateDecoder
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.keyed.spans import SpanBatch
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS, ColumnOptions
from dstl_core.codec.keyed_records import RecordFormat, part_of
from dstl_core.codec.serializers import TimerSerializer
from dstl_core.codec.state_meta import KeyedBackendHeader, KeyedStateType
from dstl_core.errors import UNREADABLE, ConfigError
from dstl_core.model.handle import KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.stored_records import open_part_records


class StateDecoders:
    """The decoders of an operator's states, for one file after the other. Most files have the
    header of the one before.
    """

    def __init__(self, options: ColumnOptions) -> None:
        self._options = options
        self._known: tuple[KeyedBackendHeader, int] | None = None
        self.formats: list[RecordFormat] = []
        self.decoders: list[StateDecoder] = []

    def follow(self, header: KeyedBackendHeader, prefix_bytes: int) -> None:
        """Makes the decoders of a header, unless they are there.

        Raises:
            NotInColumnsError: A state has no columnar form.
        """
        if self._known == (header, prefix_bytes):
            return
        self._known = None
        self.formats = [
            RecordFormat(meta.as_key_value(), header.key_serializer) for meta in header.states
        ]
        self.decoders = [StateDecoder(each, prefix_bytes, self._options) for each in self.formats]
        self._known = header, prefix_bytes


class StoredRange:
    """The records of a handle in some key groups.

    Args:
        operator: The operator to read.
        handle: A handle of any form.
        key_groups: Key groups to read; they are held in memory together.
        states: The decoders of the operator's states.

    Raises:
        NotInColumnsError, FormatError: Use the record-wise code.
    """

    def __init__(
        self,
        operator: OperatorSnapshot,
        handle: KeyedStateHandle,
        key_groups: KeyGroupRange,
        states: StateDecoders,
    ) -> None:
        stored = open_part_records(operator, handle, key_groups, handle.key_group_range)
        self._stored = stored
        if stored is not None:
            states.follow(stored.header, stored.prefix_bytes)
        self.formats = [] if stored is None else states.formats
        self.decoders = [] if stored is None else states.decoders

    def batches(self) -> Iterator[SpanBatch]:
        """The records of all states. Those of one state ascend by key group."""
        if self._stored is not None:
            with self._stored.context():
                yield from self._stored.records([True] * len(self.formats))


@dataclass(frozen=True, slots=True)
class RangeCounts:
    """The number of entries in a range, and of records of each state."""

    entries: int
    records: dict[str, int]


def check_range(
    operator: OperatorSnapshot,
    handle: KeyedStateHandle,
    key_groups: KeyGroupRange,
    known: StateDecoders,
) -> RangeCounts | None:
    """What is in the range, if it is correct; None if the record-wise code must check it.

    Correct means that every record decodes, no key occurs twice, and every key is in its key group.
    """
    try:
        stored = StoredRange(operator, handle, key_groups, known)
        if any(decoder.keeps_bytes for decoder in stored.decoders):
            return None  # the record-wise code reads values that have no columnar form
        parts: list[list[tuple[Ranges, Ranges]]] = [[] for _ in stored.formats]
        kept = []
        for batch in stored.batches():
            kept.append(batch.source)
            states = batch.states
            for state in np.unique(states):
                own = batch.take(states == state)
                ranges = _checked(operator, stored, int(state), own)
                if ranges is None:
                    return None
                parts[int(state)].append(ranges)
        return _count(stored, parts)
    except UNREADABLE:
        return None  # the record-wise code locates the damage, and names it


def _checked(
    operator: OperatorSnapshot, stored: StoredRange, state: int, batch: SpanBatch
) -> tuple[Ranges, Ranges] | None:
    """The places of the stored keys and the scopes of some records."""
    decoder = stored.decoders[state]
    keys = decoder.decode(batch, {KEY}, check_all=True)[KEY]
    record_format = stored.formats[state]
    key_type = record_format.key_serializer
    if record_format.is_queue:
        key_type = part_of(record_format.meta, TimerSerializer).key
    try:
        groups = key_groups_of(keys, key_type, operator.max_parallelism, EXACT_OPTIONS)
    except ConfigError:
        return None  # the hash of the key type is not known; the record-wise code says so
    if not np.array_equal(groups, batch.key_groups):
        return None
    spans = batch.spans
    whole = Ranges(spans[:, scan.KEY_START].copy(), spans[:, scan.KEY_END].copy())
    is_map = record_format.kind is KeyedStateType.MAP
    return whole, decoder.scope_ranges(batch) if is_map else whole


def _count(stored: StoredRange, parts: list[list[tuple[Ranges, Ranges]]]) -> RangeCounts | None:
    entries = 0
    records: dict[str, int] = {}
    for record_format, ranges_and_scopes in zip(stored.formats, parts, strict=True):
        if not ranges_and_scopes:
            continue
        whole = _together([ranges for ranges, _ in ranges_and_scopes])
        if len(ByteIndex(whole)) != len(whole):
            return None
        if record_format.kind is KeyedStateType.MAP:
            entries += len(ByteIndex(_together([scopes for _, scopes in ranges_and_scopes])))
        else:
            entries += len(whole)
        name = record_format.meta.name
        records[name] = records.get(name, 0) + len(whole)
    return RangeCounts(entries, records)


def _together(parts: list[Ranges]) -> Ranges:
    starts: Int64s = np.concatenate([each.starts for each in parts])
    return Ranges(starts, np.concatenate([each.ends for each in parts]))
