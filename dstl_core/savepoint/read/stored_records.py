"""Reads the stored records of a keyed state as spans in memory, from every form of snapshot."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import Ranges
from dstl_core.codec.columnar.keyed.decoder import StateDecoder
from dstl_core.codec.columnar.keyed.spans import Source
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_records import FramedRecord, KeyedRecord, RecordFormat
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import error_context
from dstl_core.model.handle import KeyedStateHandle, KeyGroupsSavepointStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.entry_reader import key_group_ranges
from dstl_core.savepoint.read.handle_forms import lacks_base
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.state.columns.state_columns import is_queue
from dstl_core.state.restore.into_sections import KeyGroupsOpener
from dstl_core.state.restore.stored_key_groups import StoredKeyGroups, StoredRecords


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
            own = part.get_intersection(wanted)
            if len(own):
                yield handle, own


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


def _opener(operator: OperatorCatalog, handle: KeyedStateHandle) -> KeyGroupsOpener:
    # The type of the key is in the header of another handle, which may be missing.
    key_type = operator.key_type if lacks_base(handle) else None
    key = None if key_type is None else key_type.serializer
    return KeyGroupsOpener(operator.max_parallelism, operator.snapshot.tables, key)


def state_id(stored: StoredRecords, meta: StateMetaInfoSnapshot) -> int | None:
    """The id of a state in one handle, or None if the handle does not have it."""
    for at, state in enumerate(stored.header.states):
        if state.name == meta.name and is_queue(state) == is_queue(meta):
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
    snapshot = operator.snapshot
    spans: list[Int64s] = [np.empty((0, scan.SPAN_WORDS), np.int64)]
    starts: list[Int64s] = []
    ends: list[Int64s] = []
    sources: dict[int, Source] = {}
    for handle, own in handle_parts(operator, key_groups):
        with error_context(location=str(snapshot.folder), operator=operator.label):
            stored = open_part_records(operator, handle, own, key_groups)
            state = None if stored is None else state_id(stored, meta)
            if stored is None or state is None:
                continue
            mask = [at == state for at in range(len(stored.header.states))]
            record_format = RecordFormat(meta.as_key_value(), stored.header.key_serializer)
            decoder = StateDecoder(record_format, stored.prefix_bytes, EXACT_OPTIONS)
            with stored.context():
                for batch in stored.records(mask):
                    scopes = decoder.scope_ranges(batch)
                    spans.append(batch.spans)
                    starts.append(scopes.starts)
                    ends.append(scopes.ends)
                    sources[id(batch.source)] = batch.source
    nothing = np.empty(0, np.int64)
    scopes = Ranges(np.concatenate([nothing, *starts]), np.concatenate([nothing, *ends]))
    return Records(np.concatenate(spans), scopes, list(sources.values()))
