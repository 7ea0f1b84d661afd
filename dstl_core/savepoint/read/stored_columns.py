"""Keyed state of one handle and some key groups by columns, for what goes through a whole snapshot.

The compiler takes a second to load, so small state is left to the record-wise code, as is whatever
columns do not hold or refuse: that code then says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, Ranges
from dstl_core.codec.columnar.keyed.decoder import KEY, StateDecoder
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.keyed.spans import SectionScanner, SpanBatch
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS, ColumnOptions
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.errors import DstlError
from dstl_core.model.handle import KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.stored_records import open_part


class StoredRange:
    """The records of a handle in some key groups.

    Args:
        operator: Whose.
        handle: Of any form.
        key_groups: Which of its key groups; they lie in memory together.
        options: How types become columns.

    Raises:
        DstlError, NotInColumnsError: It is left to the record-wise code.
    """

    def __init__(
        self,
        operator: OperatorSnapshot,
        handle: KeyedStateHandle,
        key_groups: KeyGroupRange,
        options: ColumnOptions,
    ) -> None:
        stored = open_part(operator, handle, key_groups)
        self.formats: list[RecordFormat] = []
        self.decoders: list[StateDecoder] = []
        self._stored = stored
        if stored is None:
            return
        for meta in stored.header.states:
            record_format = RecordFormat(meta.as_key_value(), stored.header.key_serializer)
            self.formats.append(record_format)
            self.decoders.append(StateDecoder(record_format, stored.prefix_bytes, options))

    def batches(self) -> Iterator[SpanBatch]:
        """The records in their order, of all states."""
        if self._stored is not None:
            scanner = SectionScanner(self._stored.prefix_bytes, [True] * len(self.formats))
            yield from scanner.batches(self._stored.chunks())


def check_range(
    operator: OperatorSnapshot, handle: KeyedStateHandle, key_groups: KeyGroupRange
) -> int | None:
    """How many entries there are if every record decodes, no key stands twice, and every key lies
    in its key group; None if the record-wise code has to look.
    """
    try:
        stored = StoredRange(operator, handle, key_groups, EXACT_OPTIONS)
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
        return _count(parts)
    except DstlError:
        return None


def _checked(
    operator: OperatorSnapshot, stored: StoredRange, state: int, batch: SpanBatch
) -> tuple[Ranges, Ranges] | None:
    """Where the stored keys and the scopes of some records lie."""
    decoder = stored.decoders[state]
    keys = decoder.decode(batch, {KEY}, check_all=True)[KEY]
    record_format = stored.formats[state]
    key_type = record_format.key_serializer
    if record_format.is_queue:
        key_type = record_format.meta.value_serializer.nested[0]
    groups = key_groups_of(keys, key_type, operator.max_parallelism, EXACT_OPTIONS)
    if not np.array_equal(groups, batch.key_groups):
        return None
    spans = batch.spans
    whole = Ranges(spans[:, scan.KEY_START].copy(), spans[:, scan.KEY_END].copy())
    return whole, whole if record_format.is_queue else decoder.scope_ranges(batch)


def _count(parts: list[list[tuple[Ranges, Ranges]]]) -> int | None:
    entries = 0
    for each in parts:
        if not each:
            continue
        whole = _together([ranges for ranges, _ in each])
        if len(ByteIndex(whole)) != len(whole):
            return None
        entries += len(ByteIndex(_together([ranges for _, ranges in each])))
    return entries


def _together(parts: list[Ranges]) -> Ranges:
    starts: Int64s = np.concatenate([each.starts for each in parts])
    return Ranges(starts, np.concatenate([each.ends for each in parts]))
