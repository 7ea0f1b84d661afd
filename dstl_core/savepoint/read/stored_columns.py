"""Reads keyed state of one handle and some key groups in columns, for work on whole snapshots.

The compiler takes a second to load, so small state uses the record-wise code. So does state that
columns do not support or refuse; the record-wise code then raises the precise error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import Ranges, hashes_of
from dstl_core.codec.columnar.keyed.decoder import KEY, StateDecoder
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.keyed.record_digests import RecordDigests, StateDigest
from dstl_core.codec.columnar.keyed.spans import SpanBatch
from dstl_core.codec.columnar.keyed.sst_writer import keys_in_order
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS, ColumnOptions
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_records import FramedRecord, RecordFormat, part_of
from dstl_core.codec.serializers import TimerSerializer
from dstl_core.codec.state_meta import KeyedBackendHeader, KeyedStateType
from dstl_core.errors import UNREADABLE, ConfigError
from dstl_core.model.handle import KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.entries import unread_part
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.stored_records import are_many, open_part_records

_SAMPLED_EVERY = 256
"""Of so many records in a batch one is decoded, and the first."""


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
        self.is_large = are_many(stored)
        self.formats = [] if stored is None else states.formats
        self.decoders = [] if stored is None else states.decoders

    def batches(self) -> Iterator[SpanBatch]:
        """The records of all states. Those of one state ascend by key group."""
        if self._stored is not None:
            with self._stored.context():
                yield from self._stored.records([True] * len(self.formats))

    def batches_by_state(self) -> Iterator[tuple[int, SpanBatch]]:
        """The records of one key group, state by state, with the id of the state. A batch without
        records follows the last one of a state.
        """
        if self._stored is None:
            return
        every = range(len(self.formats))
        passes = [[True for _ in every]]
        if self._stored.has_states_apart:
            passes = [[at == state for at in every] for state in every]
        with self._stored.context():
            for wanted in passes:
                last: tuple[int, SpanBatch] | None = None
                for batch in self._stored.records(wanted):
                    for state, records in batch.by_state():
                        if last is not None and last[0] != state:
                            yield last[0], last[1].take(slice(0))
                        last = state, records
                        yield last
                if last is not None:
                    yield last[0], last[1].take(slice(0))

    def has_maps_together(self) -> bool:
        """Whether the pairs of each map follow each other. Those in table files do; a stream is
        read to see it, since whoever wrote it may have written pairs in any order.
        """
        maps = {at for at, form in enumerate(self.formats) if form.kind is KeyedStateType.MAP}
        if self._stored is None or self._stored.has_states_apart or not maps:
            return True
        starts: dict[int, list[Int64s]] = {at: [] for at in maps}
        last: dict[int, int] = {}
        with self._stored.context():
            for batch in self._stored.records([at in maps for at in range(len(self.formats))]):
                for at, records in batch.by_state():
                    scopes = hashes_of(self.decoders[at].scope_ranges(records))
                    begins = np.append(last.get(at) != int(scopes[0]), np.diff(scopes) != 0)
                    starts[at].append(scopes[begins])
                    last[at] = int(scopes[-1])
        return all(_distinct(parts) == sum(map(len, parts)) for parts in starts.values() if parts)


def digests_of_range(
    operator: OperatorSnapshot, handle: KeyedStateHandle, key_groups: KeyGroupRange
) -> dict[str, StateDigest]:
    """The digests of the records of a range, by state. Nothing is decoded.

    Raises:
        FormatError: A record is not whole, or is in the section of another key group.
    """
    digests = RecordDigests()
    stored = open_part_records(operator, handle, key_groups, handle.key_group_range)
    if stored is not None:
        names = [meta.name for meta in stored.header.states]
        with stored.context():
            for batch in stored.records([True] * len(names)):
                digests.add(batch, names)
    return digests.states


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
    *,
    is_sampled: bool = False,
) -> RangeCounts | None:
    """What is in the range, if it is correct; None if the record-wise code must check it.

    Correct means that every record decodes, no key occurs twice, and every key is in its key group.
    That no key occurs twice is seen by the order of many records, and by a hash of each key
    otherwise.

    Args:
        operator: The operator to read.
        handle: A handle of any form.
        key_groups: Key groups to check.
        known: The decoders of the operator's states.
        is_sampled: Whether it is enough to decode some of the values without a columnar form.
    """
    try:
        stored = StoredRange(operator, handle, key_groups, known)
        if not is_sampled and any(decoder.keeps_bytes for decoder in stored.decoders):
            return None  # the record-wise code reads values that have no columnar form
        if stored.is_large:
            with suppress(_NotInOrder):
                return _count_in_order(operator, stored)
        parts: list[list[tuple[Int64s, Int64s]]] = [[] for _ in stored.formats]
        for batch in stored.batches():
            for state, records in batch.by_state():
                hashes = _checked(operator, stored, state, records)
                if hashes is None:
                    return None
                parts[state].append(hashes)
        return _count(stored, parts)
    except UNREADABLE:
        return None  # the record-wise code locates the damage, and names it


def _decodes(stored: StoredRange, state: int, batch: SpanBatch) -> bool:
    """Whether some of the records decode, if columns keep their values as bytes.

    Raises:
        FormatError: One of them does not.
    """
    if not stored.decoders[state].keeps_bytes:
        return True
    for key_start, key_end, start, end, _ in batch.spans[::_SAMPLED_EVERY].tolist():
        key = DataInput(ctypes.string_at(key_start, key_end - key_start))
        value = DataInput(ctypes.string_at(start, end - start))
        record = stored.formats[state].decode(FramedRecord(key, value, False))
        if unread_part(record.value) is not None:
            return False
    return True


def _checked(
    operator: OperatorSnapshot, stored: StoredRange, state: int, batch: SpanBatch
) -> tuple[Int64s, Int64s] | None:
    """The hashes of the stored keys and the scopes of some records: memory holds no record."""
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
    if not np.array_equal(groups, batch.key_groups) or not _decodes(stored, state, batch):
        return None
    spans = batch.spans
    whole = hashes_of(Ranges(spans[:, scan.KEY_START], spans[:, scan.KEY_END]))
    is_map = record_format.kind is KeyedStateType.MAP
    return whole, hashes_of(decoder.scope_ranges(batch)) if is_map else whole


def _count(stored: StoredRange, parts: list[list[tuple[Int64s, Int64s]]]) -> RangeCounts | None:
    entries = 0
    records: dict[str, int] = {}
    for record_format, hashes in zip(stored.formats, parts, strict=True):
        if not hashes:
            continue
        count = sum(len(keys) for keys, _ in hashes)
        if _distinct([keys for keys, _ in hashes]) != count:
            return None  # a key twice, or two keys with one hash: the record-wise code knows
        is_map = record_format.kind is KeyedStateType.MAP
        entries += _distinct([scopes for _, scopes in hashes]) if is_map else count
        name = record_format.meta.name
        records[name] = records.get(name, 0) + count
    return RangeCounts(entries, records)


class _NotInOrder(Exception):
    """The keys of a state do not ascend."""


@dataclass
class _InOrder:
    """What is known of the records of a state whose keys ascend in each key group."""

    records: int = 0
    scopes: int = 0
    key_group: int = -1
    key: bytes = b""
    hashes: tuple[int, int] = (0, 0)
    """Those of key and scope of the last record."""

    def add(self, batch: SpanBatch, keys: Int64s, scopes: Int64s) -> bool:
        """Adds records; whether no key comes twice. Raises: _NotInOrder."""
        groups = batch.key_groups
        bounds = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
        for first, end in pairwise(bounds):
            group = int(groups[first])
            if group < self.key_group:
                raise _NotInOrder
            before = self.key if group == self.key_group else b""
            key = keys_in_order(np.ascontiguousarray(batch.spans[first:end]), before)
            if key is None:
                raise _NotInOrder
            self.key_group, self.key = group, key
        is_first = self.records == 0
        if (keys[1:] == keys[:-1]).any() or (not is_first and int(keys[0]) == self.hashes[0]):
            return False
        self.records += len(keys)
        self.scopes += int(np.count_nonzero(np.diff(scopes)))
        self.scopes += is_first or int(scopes[0]) != self.hashes[1]
        self.hashes = int(keys[-1]), int(scopes[-1])
        return True


def _count_in_order(operator: OperatorSnapshot, stored: StoredRange) -> RangeCounts | None:
    """As ``check_range``, whatever the range weighs. Raises: _NotInOrder."""
    known = [_InOrder() for _ in stored.formats]
    for batch in stored.batches():
        for state, own in batch.by_state():
            hashes = _checked(operator, stored, state, own)
            if hashes is None or not known[state].add(own, *hashes):
                return None
    records: dict[str, int] = {}
    for record_format, counted in zip(stored.formats, known, strict=True):
        if counted.records:
            name = record_format.meta.name
            records[name] = records.get(name, 0) + counted.records
    return RangeCounts(sum(counted.scopes for counted in known), records)


def _distinct(hashes: list[Int64s]) -> int:
    every = np.concatenate(hashes)
    every.sort()
    return int(np.count_nonzero(every[1:] != every[:-1])) + 1
