"""Writes an operator whose states change their types: each value is read and written anew.

Some key groups of one subtask are in memory at a time. Keys, namespaces and states that do not
change are copied as bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from dstl_core.codec.columnar.kernels.jit import SHIPPED_FOLDER
from dstl_core.codec.columnar.kryo.section_converter import SectionConverter, SectionRule
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import StoredRecord, read_section, write_section
from dstl_core.codec.kryo.type_changes import TypeChange
from dstl_core.codec.operator_state import OperatorStateReader, write_operator_stream
from dstl_core.codec.serializers import (
    AnySerializer,
    MapSerializer,
)
from dstl_core.codec.snappy_frames import compress_frames, decompress_frames
from dstl_core.codec.state_meta import (
    KEY_SERIALIZER,
    VALUE_SERIALIZER,
    BackendStateType,
    KeyedBackendHeader,
    KeyedStateType,
    StateMetaInfoSnapshot,
)
from dstl_core.errors import UnreadableValueError, error_context
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    OperatorStateMode,
    OperatorStreamStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.savepoint.access.units import Unit
from dstl_core.savepoint.edit.converted_values import Recoded, StateValues
from dstl_core.savepoint.edit.keyed_units import (
    NewStream,
    Sections,
    key_group_ranges_of,
    range_sections,
    write_streams,
)
from dstl_core.savepoint.edit.operator_copy import copy_managed_state, copy_operator_state
from dstl_core.savepoint.edit.rewriting import Output
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.read.state_parts import StatesOf, merged_header
from dstl_core.savepoint.write.folder import StateFiles, StoredKeyedHandle
from dstl_core.state.restore.canonical import read_key_groups, read_stream_header

Counted = Callable[[str, int], None]
Place = tuple[str, BackendStateType]
_OPERATOR_STATE = (BackendStateType.OPERATOR, BackendStateType.BROADCAST)
KERNELS_FROM_BYTES = (32 if SHIPPED_FOLDER is None else 4) << 20
"""Of keyed state of an operator, or of operator state of a subtask. Where no kernel was compiled
before, that takes as long as to convert about twice as much one by one.
"""


@dataclass(frozen=True)
class StateConversion:
    """How the values of a state change: whole values, elements of a list, or values of a map.

    Args:
        value: The change of values, elements or map values.
        key: The change of user keys of a map.
    """

    value: TypeChange
    key: TypeChange | None = None

    @classmethod
    def of(cls, value: TypeChange, key: TypeChange | None = None) -> StateConversion | None:
        """None if nothing changes."""
        changes = value.convert is not None or (key is not None and key.convert is not None)
        return cls(value, key) if changes else None

    def meta(self, old: StateMetaInfoSnapshot) -> StateMetaInfoSnapshot:
        """The description of the state after the change."""
        new = {VALUE_SERIALIZER: self._whole(old)}
        if self.key is not None and old.backend_state_type is BackendStateType.BROADCAST:
            new[KEY_SERIALIZER] = self.key.new
        return replace(
            old, serializers=tuple((name, new.get(name, each)) for name, each in old.serializers)
        )

    def _whole(self, old: StateMetaInfoSnapshot) -> AnySerializer:
        if old.backend_state_type is not BackendStateType.KEY_VALUE:
            return self.value.new
        if old.keyed_state_type is KeyedStateType.MAP and self.key is not None:
            return MapSerializer(self.key.new, self.value.new)
        if old.keyed_state_type is KeyedStateType.LIST:
            kind: Callable[[AnySerializer], AnySerializer] = type(old.value_serializer)
            return kind(self.value.new)
        return self.value.new


Conversions = Mapping[Place, StateConversion | None]
"""The states that change; None leaves a state out."""


def place_of(meta: StateMetaInfoSnapshot) -> Place:
    """The identity of a state within its operator: name and kind."""
    return meta.name, meta.as_key_value().backend_state_type


def convert_operator(
    operator: OperatorCatalog,
    conversions: Conversions,
    output: Output,
    count: Counted,
    keyed: Mapping[int, StoredKeyedHandle | None] | None = None,
) -> OperatorState:
    """An operator in canonical form with changed states.

    Args:
        operator: Where the bytes come from.
        conversions: The states that change.
        output: Where the bytes go.
        count: Told of the entries that were converted.
        keyed: The keyed state by subtask, if it is written already.
    """
    target = output.target
    is_written = keyed is not None
    if keyed is None:
        keyed = converted_keyed_state(operator, conversions, output, count)
    subtasks = tuple(
        replace(
            subtask,
            managed_keyed_state=keyed.get(subtask.index),
            raw_keyed_state=None,
            managed_operator_state=converted_operator_state(
                operator, subtask, conversions, target, count
            ),
            raw_operator_state=copy_operator_state(operator, subtask.raw_operator_state, target),
        )
        for subtask in _subtasks(operator, every=is_written)
    )
    return replace(operator.state, uid=operator.uid, subtasks=subtasks)


def _subtasks(operator: OperatorCatalog, *, every: bool) -> list[OperatorSubtaskState]:
    """The subtasks; those that get timers or keys of another one may have had no state."""
    stored = operator.state.subtasks
    if not operator.timer_queues and not every:
        return list(stored)
    by_index = {subtask.index: subtask for subtask in stored}
    return [
        by_index.get(index, OperatorSubtaskState(index))
        for index in range(operator.state.parallelism)
    ]


def converted_keyed_state(
    operator: OperatorCatalog, conversions: Conversions, output: Output, count: Counted
) -> dict[int, StoredKeyedHandle | None]:
    """The handle of each subtask with keyed state."""
    if not operator.keyed_handles:
        return {}
    by_kernels = operator.keyed_size >= KERNELS_FROM_BYTES
    work: dict[int, _StreamConversion] = {}
    total = operator.max_parallelism
    if operator.timer_queues:
        # Timers of raw keyed state become queues beside the other states.
        share = operator.keyed_size // operator.parallelism
        for index, own in enumerate(key_group_ranges_of(total, operator.parallelism)):
            work[index] = _StreamConversion(
                operator, None, own, share, conversions, output, by_kernels
            )
    else:
        for subtask in operator.state.subtasks:
            handle = subtask.managed_keyed_state
            if handle is not None:
                own, size = handle.key_group_range, handle.state_size
                work[subtask.index] = _StreamConversion(
                    operator, handle, own, size, conversions, output, by_kernels
                )
    streams = [each.stream if each.has_states else None for each in work.values()]
    conversion_of = list(work.values())

    def task(unit: Unit) -> Sections:
        return conversion_of[unit.handle].sections(unit.key_groups)

    def take(counts: Mapping[str, int]) -> None:
        for name, entries in counts.items():
            count(name, entries)

    return dict(zip(work, write_streams(streams, task, output, take), strict=True))


class _StreamConversion:
    """Converts the keyed state of one subtask from one stream into another.

    Args:
        operator: Where the records come from.
        source: The handle that has them; None for all handles of the operator.
        key_groups: The key groups of the stream.
        size: Bytes that are read.
        conversions: The states that change.
        output: Where it goes.
        by_kernels: Whether to convert whole sections; otherwise record by record.
    """

    def __init__(
        self,
        operator: OperatorCatalog,
        source: KeyedStateHandle | None,
        key_groups: KeyGroupRange,
        size: int,
        conversions: Conversions,
        output: Output,
        by_kernels: bool,
    ) -> None:
        self._operator = operator
        self._source = source
        self._old = header_of(operator, source)
        self._values: dict[int, StateValues] = {}
        self._ids: dict[int, int] = {}
        self._counts: Counter[str] = Counter()
        states: list[StateMetaInfoSnapshot] = []
        for at, meta in enumerate(self._old.states):
            if place_of(meta) in conversions:
                conversion = conversions[place_of(meta)]
                if conversion is None:
                    continue
                self._values[at] = StateValues(
                    meta,
                    self._old.key_serializer,
                    conversion.value,
                    conversion.key,
                    key_group_prefix_bytes(operator.max_parallelism),
                )
                meta = conversion.meta(meta)
            self._ids[at] = len(states)
            states.append(meta)
        header = output.header(replace(self._old, states=tuple(states)), [operator])
        keep_header = source is not None
        self.stream = NewStream(
            header, key_groups, operator.max_parallelism, size, source, keep_header=keep_header
        )
        self._kernels = self._section_converter() if by_kernels else None

    @property
    def has_states(self) -> bool:
        """Whether a state is left. Flink writes no stream without states: its header would name the
        type of the keys, which Flink would have to know.
        """
        return bool(self._ids)

    def _section_converter(self) -> SectionConverter | None:
        """Kernels for the stream; None if they know none of its conversions, or may leave a record
        out.
        """
        rules = []
        for at in range(len(self._old.states)):
            number, values = self._ids.get(at), self._values.get(at)
            rule = SectionRule(number)
            if number is not None and values is not None:
                known = values.rule(number)
                if known is None:
                    return None
                rule = known
            rules.append(rule)
        if all(rule.is_single or (rule.types, rule.key) == (None, None) for rule in rules):
            return None
        return SectionConverter(rules, self._one_record)

    def _one_record(self, state_id: int, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        values = self._values[state_id]
        with error_context(state=values.name):
            converted = values.converted(StoredRecord(state_id, key, value, 0))
        assert converted is not None  # kernels know no type with values that are left out
        return converted

    def sections(self, key_groups: KeyGroupRange) -> Sections:
        """The converted sections of some key groups, and how many entries of each state changed."""
        operator, source = self._operator, self._source
        location = file_of(operator, source)
        self._counts.clear()
        parts = dict.fromkeys(key_groups, b"")
        with error_context(location=str(location), operator=operator.label):
            for key_group, raw in raw_sections(operator, source, self._old, key_groups):
                parts[key_group] = self._converted(raw)
        return Sections(list(parts.values()), dict(self._counts))

    def _converted(self, raw: bytes) -> bytes:
        section = self._by_kernels(raw)
        if section is None:
            records = read_section(DataInput(raw), len(self._old.states))
            section = write_section(self._runs(records))
        return compress_frames(section) if self.stream.header.compressed and section else section

    def _by_kernels(self, raw: bytes) -> bytes | None:
        """None leaves the section to be read record by record, which says what is wrong."""
        if self._kernels is None:
            return None
        try:
            converted = self._kernels.converted(raw)
        except UnreadableValueError:
            converted = None
        if converted is None:
            return None
        section, counts = converted
        for state_id, entries in counts.items():
            self._counts[self._values[state_id].name] += entries
        return section

    def _runs(
        self, records: Iterable[StoredRecord]
    ) -> Iterator[tuple[int, Iterable[tuple[bytes, bytes]]]]:
        for state_id, own in groupby(records, key=lambda record: record.state_id):
            if state_id not in self._ids:
                for _ in own:
                    pass
                continue
            values = self._values.get(state_id)
            if values is None:
                yield self._ids[state_id], ((each.key, each.value) for each in own)
            else:
                with error_context(state=values.name):
                    every = [values.converted(each) for each in own]
                converted = [record for record in every if record is not None]
                self._counts[values.name] += len(converted)
                yield self._ids[state_id], converted


def raw_sections(
    operator: OperatorCatalog,
    source: KeyedStateHandle | None,
    header: KeyedBackendHeader,
    key_groups: KeyGroupRange,
) -> Iterator[tuple[int, bytes]]:
    """The uncompressed sections of the key groups that have records.

    Args:
        operator: Where the records come from.
        source: The handle that has them; None for all handles of the operator.
        header: The states of the records, by id.
        key_groups: What is read.
    """
    if isinstance(source, KeyGroupsSavepointStateHandle):
        resolver = operator.snapshot.resolver
        for key_group, data in read_key_groups(source.offsets, source.stream, key_groups, resolver):
            raw = data.peek(data.position)
            yield key_group, decompress_frames(raw, 0, len(raw)) if header.compressed else raw
        return
    sources, total = [StatesOf(operator)], operator.max_parallelism
    with range_sections(sources, header, total, key_groups, source) as stored:
        for key_group in key_groups:
            raw = stored.section(key_group)
            if raw:
                yield key_group, raw


def header_of(operator: OperatorCatalog, source: KeyedStateHandle | None) -> KeyedBackendHeader:
    """The states of the records, by id."""
    if isinstance(source, KeyGroupsSavepointStateHandle):
        return read_stream_header(source, operator.snapshot.resolver, operator.snapshot.registry)
    header = merged_header([StatesOf(operator)])
    assert header is not None  # the operator has keyed state
    return header


def file_of(operator: OperatorCatalog, source: KeyedStateHandle | None) -> object:
    """Where the records of a handle are, for messages."""
    if isinstance(source, KeyGroupsSavepointStateHandle):
        return operator.snapshot.resolver.describe(source.stream)
    return operator.snapshot.folder


def converted_operator_state(
    operator: OperatorCatalog,
    subtask: OperatorSubtaskState,
    conversions: Conversions,
    target: StateFiles,
    count: Counted,
) -> OperatorStreamStateHandle | None:
    """List, union and broadcast states of one subtask."""
    handle = subtask.managed_operator_state
    changed = {name for name, kind in conversions if kind in _OPERATOR_STATE}
    if handle is None or not any(info.name in changed for info in handle.states):
        return copy_managed_state(operator, handle, target)
    by_kernels = handle.state_size >= KERNELS_FROM_BYTES
    snapshot = operator.snapshot
    raw = snapshot.resolver.read(handle.stream)
    reader = OperatorStateReader(raw, handle.states, snapshot.registry)
    lists, broadcasts = [], []
    for info in handle.states:
        meta = reader.header.state(info)
        conversion = conversions.get(place_of(meta))
        if conversion is None and place_of(meta) in conversions:
            continue
        new = meta if conversion is None else conversion.meta(meta)
        recoded = Recoded(meta.value_serializer, None if conversion is None else conversion.value)
        values = recoded.of_all if by_kernels else recoded.of_each
        with error_context(state=info.name, operator=operator.label):
            if info.mode is OperatorStateMode.BROADCAST:
                change = None if conversion is None else conversion.key
                key = Recoded(meta.serializer(KEY_SERIALIZER), change)
                pairs = list(reader.raw_pairs(info))
                keys = [key.of_key(own) for own, _ in pairs]
                items = values([each for _, each in pairs])
                broadcasts.append((new, list(zip(keys, items, strict=True))))
                entries = len(pairs)
            else:
                elements = values(list(reader.raw_elements(info)))
                lists.append((new, elements))
                entries = len(elements)
        if conversion is not None:
            count(info.name, entries)
    target.advance(handle.state_size)
    if not lists and not broadcasts:
        return None
    return target.add_operator_state(write_operator_stream(lists, broadcasts))
