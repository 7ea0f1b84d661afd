"""Writes an operator whose states change their types: each value is read and written anew.

One key group of one subtask is in memory at a time. Keys, namespaces and states that do not change
are copied as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from uuid import uuid4

from dstl_core.codec.columnar.kryo.section_converter import SectionConverter, StateRule
from dstl_core.codec.data_io import DataInput, DataOutput
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
    write_keyed_header,
)
from dstl_core.errors import UnreadableValueError, error_context
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    OperatorStateMode,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.savepoint.edit.converted_values import Recoded, StateValues
from dstl_core.savepoint.edit.operator_copy import copy_managed_state, copy_operator_state
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.write.folder import DATA_INLINE_THRESHOLD, StateFiles
from dstl_core.state.columns.progress import Portion
from dstl_core.state.restore.canonical import read_key_groups, read_stream_header

Counted = Callable[[str, int], None]
Place = tuple[str, BackendStateType]
_OPERATOR_STATE = (BackendStateType.OPERATOR, BackendStateType.BROADCAST)
KERNELS_FROM_BYTES = 32 << 20
"""Of keyed state of an operator. Where no kernel was compiled before, that takes as long as to
convert about twice as much one by one.
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
    """What tells a state from the others of its operator."""
    return meta.name, meta.as_key_value().backend_state_type


def convert_operator(
    operator: OperatorCatalog,
    conversions: Conversions,
    target: StateFiles,
    count: Counted,
) -> OperatorState:
    """An operator in canonical form with changed states.

    Args:
        operator: Where the bytes come from.
        conversions: The states that change.
        target: Where the bytes go.
        count: Told of the entries that were converted.
    """
    size = sum(handle.state_size for handle in operator.keyed_handles)
    subtasks = []
    for subtask in operator.state.subtasks:
        handle = subtask.managed_keyed_state
        keyed = None
        if isinstance(handle, KeyGroupsSavepointStateHandle):
            with error_context(
                location=operator.snapshot.resolver.describe(handle.stream), operator=operator.label
            ):
                stream = _ConvertedStream(
                    operator,
                    handle,
                    conversions,
                    target,
                    count,
                    by_kernels=size >= KERNELS_FROM_BYTES,
                )
                if stream.has_states:
                    keyed = stream.written()
                else:
                    target.advance(handle.state_size)
        listed = _operator_state(operator, subtask, conversions, target, count)
        raw = copy_operator_state(operator, subtask.raw_operator_state, target)
        subtasks.append(
            replace(
                subtask,
                managed_keyed_state=keyed,
                managed_operator_state=listed,
                raw_operator_state=raw,
            )
        )
    return replace(operator.state, uid=operator.uid, subtasks=tuple(subtasks))


class _ConvertedStream:
    """The keyed state of one subtask, on its way from one stream into another."""

    def __init__(
        self,
        operator: OperatorCatalog,
        handle: KeyGroupsSavepointStateHandle,
        conversions: Conversions,
        target: StateFiles,
        count: Counted,
        *,
        by_kernels: bool,
    ) -> None:
        snapshot = operator.snapshot
        self._resolver = snapshot.resolver
        self._handle = handle
        self._target = target
        self._count = count
        self._old = read_stream_header(handle, snapshot.resolver, snapshot.registry)
        self._values: dict[int, StateValues] = {}
        self._ids: dict[int, int] = {}
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
        self._header = KeyedBackendHeader(
            self._old.key_serializer, tuple(states), self._old.compressed
        )
        self._kernels = self._section_converter() if by_kernels else None
        self._offsets: list[int] = []
        self._size = 0

    @property
    def has_states(self) -> bool:
        """Whether a state is left. Flink writes no stream without states: its header would name the
        type of the keys, which Flink would have to know.
        """
        return bool(self._ids)

    def _section_converter(self) -> SectionConverter | None:
        """Kernels for the stream; None if keys change."""
        rules = []
        for at in range(len(self._old.states)):
            number, values = self._ids.get(at), self._values.get(at)
            rule = StateRule(number)
            if number is not None and values is not None:
                known = values.rule(number)
                if known is None:
                    return None
                rule = known
            rules.append(rule)
        return SectionConverter(rules, self._one_value)

    def _one_value(self, state_id: int, stored: bytes) -> bytes:
        values = self._values[state_id]
        with error_context(state=values.name):
            return values.value(stored)

    def written(self) -> KeyGroupsSavepointStateHandle:
        """The handle of the new stream, which is small and inline, or a file."""
        handle, target = self._handle, self._target
        if handle.state_size <= DATA_INLINE_THRESHOLD:
            stream = target.add_stream(b"".join(self._parts()))
        else:
            name = str(uuid4())
            target.file_io.write_new(target.folder.child(name), self._parts())
            stream = RelativeFileStateHandle(name, self._size)
        offsets = KeyGroupRangeOffsets(handle.key_group_range, tuple(self._offsets))
        return KeyGroupsSavepointStateHandle(offsets, stream)

    def _parts(self) -> Iterator[bytes]:
        out = DataOutput()
        write_keyed_header(out, self._header)
        header = out.to_bytes()
        self._size = len(header)
        yield header
        handle = self._handle
        portion = Portion(self._target.advance, handle.state_size)
        for number, key_group in enumerate(handle.key_group_range, 1):
            section = self._section(key_group)
            self._offsets.append(self._size if section else 0)
            self._size += len(section)
            if section:
                yield section
            portion.reach(number / len(handle.key_group_range))

    def _section(self, key_group: int) -> bytes:
        own = KeyGroupRange(key_group, key_group)
        groups = read_key_groups(self._handle.offsets, self._handle.stream, own, self._resolver)
        for _, data in groups:
            if self._old.compressed:
                raw = data.peek(data.position)
                data = DataInput(decompress_frames(raw, 0, len(raw)))
            section = self._by_kernels(data)
            if section is None:
                section = write_section(self._runs(read_section(data, len(self._old.states))))
            return compress_frames(section) if self._old.compressed and section else section
        return b""

    def _by_kernels(self, data: DataInput) -> bytes | None:
        """None leaves the section to be read record by record, which says what is wrong."""
        if self._kernels is None:
            return None
        try:
            found = self._kernels.converted(data.peek(data.position))
        except UnreadableValueError:
            found = None
        if found is None:
            return None
        section, counts = found
        for state_id, entries in counts.items():
            self._count(self._values[state_id].name, entries)
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
                    converted = [values.converted(each) for each in own]
                self._count(values.name, len(converted))
                yield self._ids[state_id], converted


def _operator_state(
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
        value = Recoded(meta.value_serializer, None if conversion is None else conversion.value)
        with error_context(state=info.name, operator=operator.label):
            if info.mode is OperatorStateMode.BROADCAST:
                change = None if conversion is None else conversion.key
                key = Recoded(meta.serializer(KEY_SERIALIZER), change)
                pairs = [(key.of_key(own), value.of(each)) for own, each in reader.raw_pairs(info)]
                broadcasts.append((new, pairs))
                entries = len(pairs)
            else:
                elements = [value.of(each) for each in reader.raw_elements(info)]
                lists.append((new, elements))
                entries = len(elements)
        if conversion is not None:
            count(info.name, entries)
    target.advance(handle.state_size)
    if not lists and not broadcasts:
        return None
    return target.add_operator_state(write_operator_stream(lists, broadcasts))
