"""Reads the stored records of a keyed state as spans in memory, from every form of snapshot."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import Ranges
from dstl_core.codec.columnar.keyed.decoder import StateDecoder
from dstl_core.codec.columnar.keyed.spans import Source, SpanBatch
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_records import FramedRecord, KeyedRecord, RecordFormat
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import NotInColumnsError, error_context
from dstl_core.model.handle import (
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.entry_reader import key_group_ranges
from dstl_core.savepoint.read.handle_forms import lacks_base
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.state.restore.into_sections import KeyGroupsOpener
from dstl_core.state.restore.stored_key_groups import StoredKeyGroups, StoredRecords

LARGE_BYTES = 32 << 20
"""Stored bytes of key groups up to which they are held together."""
_IN_PIECES = (KeyGroupsSavepointStateHandle, IncrementalRemoteKeyedStateHandle)


@dataclass(frozen=True)
class Records:
    """Records of one state in some key groups: their spans, and the places of key and namespace.

    ``sources`` keep the bytes alive.
    """

    spans: Int64s
    scopes: Ranges
    sources: list[Source]

    def __len__(self) -> int:
        return len(self.spans)

    def key_group(self, row: int) -> int:
        return int(self.spans[row, scan.TAG]) >> 16

    def decode(self, row: int, record_format: RecordFormat) -> KeyedRecord:
        """Decodes the values of one record.

        Raises:
            UnreadableValueError: Only Java can read the record.
        """
        start, end, value, value_end = (int(each) for each in self.spans[row, :4])
        key = DataInput(ctypes.string_at(start, end - start))
        raw = DataInput(ctypes.string_at(value, value_end - value))
        return record_format.decode(FramedRecord(key, raw, False))

    def decode_scope(self, row: int, record_format: RecordFormat) -> tuple[Any, Any]:
        """Decodes key and namespace of one record."""
        start, end = int(self.scopes.starts[row]), int(self.scopes.ends[row])
        return record_format.decode_scope(DataInput(ctypes.string_at(start, end - start)))

    def value_bytes(self, row: int) -> bytes:
        start, end = int(self.spans[row, scan.VALUE_START]), int(self.spans[row, scan.VALUE_END])
        return ctypes.string_at(start, end - start)


def handle_parts(
    operator: OperatorCatalog, wanted: KeyGroupRange
) -> Iterator[tuple[KeyedStateHandle, KeyGroupRange]]:
    """The parts to open one at a time: a handle in canonical form, otherwise a range that fits."""
    for handle in operator.keyed_handles:
        if isinstance(handle, KeyGroupsSavepointStateHandle):
            ranges = [handle.key_group_range]
        else:
            ranges = key_group_ranges(handle)
        for part in ranges:
            key_groups = part.get_intersection(wanted)
            if len(key_groups):
                yield handle, key_groups


def open_part(
    operator: OperatorCatalog,
    handle: KeyedStateHandle,
    key_groups: KeyGroupRange,
    within: KeyGroupRange | None = None,
) -> StoredKeyGroups | None:
    """Opens one of ``handle_parts`` as sections; None if it is empty.

    ``within`` are the key groups that the caller reads in all, by several calls.
    """
    return _opener(operator, handle).open_sections(handle, key_groups, within)


def open_part_records(
    operator: OperatorCatalog,
    handle: KeyedStateHandle,
    key_groups: KeyGroupRange,
    within: KeyGroupRange | None = None,
) -> StoredRecords | None:
    """As ``open_part``, to read its records once."""
    return _opener(operator, handle).open_records(handle, key_groups, within)


def begin_part(
    operator: OperatorCatalog, handle: KeyedStateHandle, key_groups: KeyGroupRange
) -> None:
    """Begins to read one of ``handle_parts`` of a store, which will be opened soon."""
    _opener(operator, handle).begin(handle, key_groups)


def stored_size(
    operator: OperatorCatalog, wanted: KeyGroupRange, only: KeyedStateHandle | None = None
) -> int:
    """Stored bytes of some key groups of a handle, or of all, where they can be read in pieces: in
    table files and canonical streams. Small handles and others count as nothing.
    """
    size = 0
    for handle, key_groups in handle_parts(operator, wanted):
        is_wanted = only is None or handle is only
        if is_wanted and isinstance(handle, _IN_PIECES) and handle.state_size > LARGE_BYTES:
            stored = open_part_records(operator, handle, key_groups, handle.key_group_range)
            size += 0 if stored is None else stored.size
    return size


def is_large(
    operator: OperatorCatalog, wanted: KeyGroupRange, only: KeyedStateHandle | None = None
) -> bool:
    """Whether some key groups are too large to be held."""
    return stored_size(operator, wanted, only) > LARGE_BYTES


def are_many(stored: StoredRecords | None) -> bool:
    """Whether the records of one part are too large to be held."""
    return stored is not None and stored.size > LARGE_BYTES


def _opener(operator: OperatorCatalog, handle: KeyedStateHandle) -> KeyGroupsOpener:
    # The type of the key is in the header of another handle, which may be missing.
    key_type = operator.key_type if lacks_base(handle) else None
    key = None if key_type is None else key_type.serializer
    return KeyGroupsOpener(operator.max_parallelism, operator.snapshot.tables, key)


def state_id(stored: StoredRecords, meta: StateMetaInfoSnapshot) -> int | None:
    """The id of a state in one handle, or None if the handle does not have it."""
    for at, state in enumerate(stored.header.states):
        if state.name == meta.name and state.is_queue == meta.is_queue:
            return at
    return None


def read_records(
    operator: OperatorCatalog, meta: StateMetaInfoSnapshot, key_groups: KeyGroupRange
) -> Records:
    """Reads all records of a state in some key groups.

    Raises:
        FormatError: The state is damaged.
        NotInColumnsError: Keys or namespaces of this type have no readable end.
    """
    return held_records(state_batches(operator, [meta], key_groups), 1)[0]


@dataclass(frozen=True)
class StateBatch:
    """Some records of one state, and where key and namespace of each are.

    ``place`` is the place of the state in the list that was asked for.
    """

    place: int
    batch: SpanBatch
    scopes: Ranges
    prefix_bytes: int


def state_batches(
    operator: OperatorCatalog, metas: Sequence[StateMetaInfoSnapshot], key_groups: KeyGroupRange
) -> Iterator[StateBatch]:
    """Reads all records of some states in some key groups, each file once.

    Raises:
        FormatError: The state is damaged.
        NotInColumnsError: Keys or namespaces have no readable end; its context names the state.
    """
    snapshot = operator.snapshot
    for handle, of_handle in handle_parts(operator, key_groups):
        with error_context(location=str(snapshot.folder), operator=operator.label):
            stored = open_part_records(operator, handle, of_handle, key_groups)
            if stored is None:
                continue
            ids = {state_id(stored, meta): place for place, meta in enumerate(metas)}
            wanted = [at in ids for at in range(len(stored.header.states))]
            decoders: dict[int, StateDecoder] = {}
            with stored.context():
                for batch in stored.records(wanted):
                    for at, records in batch.by_state():
                        meta = metas[ids[at]]
                        try:
                            if at not in decoders:
                                key_type = stored.header.key_serializer
                                decoders[at] = scope_decoder(meta, key_type, stored.prefix_bytes)
                            scopes = decoders[at].scope_ranges(records)
                        except NotInColumnsError as error:
                            error.context.setdefault("state", meta.name)
                            raise
                        yield StateBatch(ids[at], records, scopes, stored.prefix_bytes)


def scope_decoder(
    meta: StateMetaInfoSnapshot, key_type: AnySerializer, prefix_bytes: int
) -> StateDecoder:
    """What finds key and namespace of the records of a state.

    Raises:
        NotInColumnsError: Keys or namespaces of this type have no readable end.
    """
    return StateDecoder(RecordFormat(meta.as_key_value(), key_type), prefix_bytes, EXACT_OPTIONS)


def held_records(batches: Iterable[StateBatch], count: int) -> list[Records]:
    """The records of each of ``count`` states, in memory."""
    nothing = np.empty(0, np.int64)
    parts: list[list[StateBatch]] = [[] for _ in range(count)]
    for batch in batches:
        parts[batch.place].append(batch)
    return [
        Records(
            np.concatenate(
                [np.empty((0, scan.SPAN_WORDS), np.int64), *(each.batch.spans for each in part)]
            ),
            Ranges(
                np.concatenate([nothing, *(each.scopes.starts for each in part)]),
                np.concatenate([nothing, *(each.scopes.ends for each in part)]),
            ),
            list({id(each.batch.source): each.batch.source for each in part}.values()),
        )
        for part in parts
    ]
