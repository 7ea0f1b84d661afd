"""Writes keyed state whose keys get another type, and so other bytes and other key groups.

A unit reads some key groups of one handle and gives runs of records for new key groups, which are
put together as for another number of key groups.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dstl_core.codec.composite_key import CompositeKeyCodec
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import StoredRecord, read_section, write_section
from dstl_core.codec.kryo.type_changes import TypeChange
from dstl_core.codec.serializers import (
    TimerSerializer,
    deserialize_exactly,
    serialize_key,
    serialize_to_bytes,
)
from dstl_core.codec.state_meta import (
    VALUE_SERIALIZER,
    StateMetaInfoSnapshot,
)
from dstl_core.errors import UnreadableValueError, error_context
from dstl_core.model.handle import KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange, assign_to_key_group, key_group_prefix_bytes
from dstl_core.savepoint.access.units import Unit
from dstl_core.savepoint.edit.converted_state import (
    Conversions,
    Counted,
    Place,
    file_of,
    header_of,
    place_of,
    raw_sections,
)
from dstl_core.savepoint.edit.converted_values import StateValues
from dstl_core.savepoint.edit.keyed_units import (
    Shuffle,
    key_group_ranges_of,
    sections_for,
    write_sections,
)
from dstl_core.savepoint.edit.rewriting import Output
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.read.state_parts import StatesOf
from dstl_core.savepoint.write.folder import StoredKeyedHandle
from dstl_core.state.columns.keyed_sections import StateRuns

_END_BYTES = 2
"""Of a section, after its last run."""


def rekeyed_state(
    operator: OperatorCatalog,
    key: TypeChange,
    conversions: Conversions,
    output: Output,
    count: Counted,
) -> dict[int, StoredKeyedHandle | None]:
    """Writes the keyed state of an operator with another type of the key.

    Args:
        operator: Where the records come from.
        key: How the key changes.
        conversions: The states that change.
        output: Where it goes.
        count: Told of the entries of states that change.

    Returns:
        The handle of each subtask with keyed state.
    """
    if not operator.keyed_handles:
        return {}
    handles: list[KeyedStateHandle | None] = (
        [None] if operator.timer_queues else list(operator.keyed_handles)
    )
    every = header_of(operator, None)
    kept = [meta for meta in every.states if conversions.get(place_of(meta), True) is not None]
    if not kept:
        return {}
    metas = tuple(_new_meta(meta, key, conversions) for meta in kept)
    header = output.header(replace(every, key_serializer=key.new, states=metas), [operator])
    numbers = {place_of(meta): number for number, meta in enumerate(kept)}
    streams = [_Rekeyed(operator, handle, key, conversions, numbers) for handle in handles]
    total = operator.max_parallelism

    def read(unit: Unit) -> tuple[list[StateRuns], Mapping[str, int]]:
        counts: Counter[str] = Counter()
        runs = [run for stream in streams for run in stream.runs(unit.key_groups, counts)]
        return runs, counts

    def take(counts: Mapping[str, int]) -> None:
        for name, entries in counts.items():
            count(name, entries)

    with sections_for([StatesOf(operator)], header, total) as sections:
        portion = Shuffle([operator], read, take).into(sections, output)
        ranges = key_group_ranges_of(total, operator.parallelism)
        return dict(enumerate(write_sections(sections, ranges, output, portion)))


def _new_meta(
    meta: StateMetaInfoSnapshot, key: TypeChange, conversions: Conversions
) -> StateMetaInfoSnapshot:
    conversion = conversions.get(place_of(meta))
    if conversion is not None:
        return conversion.meta(meta)
    timer = meta.value_serializer
    if not isinstance(timer, TimerSerializer) or not meta.is_queue:
        return meta
    new = {VALUE_SERIALIZER: replace(timer, key=key.new)}
    return replace(
        meta, serializers=tuple((name, new.get(name, each)) for name, each in meta.serializers)
    )


class _Rekeyed:
    """The records of one handle; ``numbers`` are those of the states that are kept."""

    def __init__(
        self,
        operator: OperatorCatalog,
        source: KeyedStateHandle | None,
        key: TypeChange,
        conversions: Conversions,
        numbers: Mapping[Place, int],
    ) -> None:
        self._operator, self._source, self._key = operator, source, key
        self._old = header_of(operator, source)
        self._total = operator.max_parallelism
        self._prefix = key_group_prefix_bytes(self._total)
        self._numbers = [numbers.get(place_of(meta)) for meta in self._old.states]
        self._values: dict[int, StateValues] = {}
        for at, meta in enumerate(self._old.states):
            conversion = conversions.get(place_of(meta))
            if conversion is not None:
                self._values[at] = StateValues(
                    meta, self._old.key_serializer, conversion.value, conversion.key, self._prefix
                )

    def runs(self, key_groups: KeyGroupRange, counts: Counter[str]) -> list[StateRuns]:
        """The records of some key groups, by state and new key group."""
        operator, source = self._operator, self._source
        if source is not None:
            key_groups = source.key_group_range.get_intersection(key_groups)
        records: dict[int, dict[int, list[tuple[bytes, bytes]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        with error_context(location=str(file_of(operator, source)), operator=operator.label):
            for _, raw in raw_sections(operator, source, self._old, key_groups):
                for record in read_section(DataInput(raw), len(self._old.states)):
                    number = self._numbers[record.state_id]
                    moved = None if number is None else self._moved(record, counts)
                    if moved is not None and number is not None:
                        key_group, pair = moved
                        records[number][key_group].append(pair)
        return [self._run(number, own) for number, own in records.items()]

    def _run(self, number: int, records: dict[int, list[tuple[bytes, bytes]]]) -> StateRuns:
        parts = [
            write_section([(number, records.get(key_group, []))])[:-_END_BYTES]
            for key_group in range(self._total)
        ]
        bounds = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        data = pa.py_buffer(b"".join(parts))
        return StateRuns(number, KeyGroupRange(0, self._total - 1), data, bounds)

    def _moved(
        self, record: StoredRecord, counts: Counter[str]
    ) -> tuple[int, tuple[bytes, bytes]] | None:
        """The new key group of a record, and the record; None if it has no new value."""
        meta, values = self._old.states[record.state_id], self._values.get(record.state_id)
        with error_context(state=meta.name):
            pair: tuple[bytes, bytes] | None = record.key, record.value
            if values is not None:
                pair = values.converted(record)
                counts[meta.name] += pair is not None
            if pair is None:
                return None
            if meta.is_queue:
                key_group, key = self._timer(meta, record.key)
            else:
                key_group, key = self._stored_key(meta, pair[0])
        return key_group, (key, pair[1])

    def _timer(self, meta: StateMetaInfoSnapshot, stored: bytes) -> tuple[int, bytes]:
        old = meta.value_serializer
        if not isinstance(old, TimerSerializer):
            raise UnreadableValueError(f"A queue of {old.type_name} has no key that can change")
        timer = deserialize_exactly(old, stored[self._prefix :])
        key_group, key = self._new_key(timer.key)
        new = serialize_to_bytes(replace(old, key=self._key.new), timer._replace(key=key))
        return key_group, key_group.to_bytes(self._prefix, "big") + new

    def _stored_key(self, meta: StateMetaInfoSnapshot, stored: bytes) -> tuple[int, bytes]:
        namespace_type = meta.namespace_serializer
        old = CompositeKeyCodec(self._prefix, self._old.key_serializer, namespace_type)
        _, raw, namespace, user_key = old.split(stored)
        key_group, key = self._new_key(deserialize_exactly(self._old.key_serializer, raw))
        new = CompositeKeyCodec(self._prefix, self._key.new, namespace_type)
        return key_group, new.encode(
            key_group, serialize_key(self._key.new, key), namespace, user_key
        )

    def _new_key(self, old: object) -> tuple[int, object]:
        assert self._key.convert is not None  # the type of the key changes
        key = self._key.convert(old)
        return assign_to_key_group(self._key.new.java_hash(key), self._total), key
