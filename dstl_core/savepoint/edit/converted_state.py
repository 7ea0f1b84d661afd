"""Writes an operator whose states change their types: each value is read and written anew.

One key group of one subtask is in memory at a time. Keys, namespaces and states that do not change
are copied as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from uuid import uuid4

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.keyed_canonical import StoredRecord, read_section, write_section
from dstl_core.codec.keyed_records import LIST_DELIMITER, RecordFormat
from dstl_core.codec.kryo.type_changes import TypeChange
from dstl_core.codec.operator_state import OperatorStateReader, write_operator_stream
from dstl_core.codec.serializers import (
    AnySerializer,
    MapSerializer,
    deserialize_exactly,
    serialize_key,
    serialize_to_bytes,
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
from dstl_core.errors import error_context
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    OperatorStateMode,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.savepoint.edit.operator_copy import copy_operator_state
from dstl_core.savepoint.progress import Portion
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.write.folder import DATA_INLINE_THRESHOLD, StateFiles
from dstl_core.state.restore.canonical import read_key_groups, read_stream_header

Counted = Callable[[str, int], None]
Place = tuple[str, BackendStateType]
_OPERATOR_STATE = (BackendStateType.OPERATOR, BackendStateType.BROADCAST)
_DELIMITER = bytes((LIST_DELIMITER,))


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
    subtasks = []
    for subtask in operator.state.subtasks:
        handle = subtask.managed_keyed_state
        keyed = None
        if isinstance(handle, KeyGroupsSavepointStateHandle):
            with error_context(
                location=operator.snapshot.resolver.describe(handle.stream), operator=operator.label
            ):
                stream = _ConvertedStream(operator, handle, conversions, target, count)
                keyed = stream.written()
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
    ) -> None:
        snapshot = operator.snapshot
        self._resolver = snapshot.resolver
        self._handle = handle
        self._target = target
        self._count = count
        self._old = read_stream_header(handle, snapshot.resolver, snapshot.registry)
        self._prefix = key_group_prefix_bytes(operator.max_parallelism)
        self._values: dict[int, _Values] = {}
        self._ids: dict[int, int] = {}
        states: list[StateMetaInfoSnapshot] = []
        for at, meta in enumerate(self._old.states):
            if place_of(meta) in conversions:
                conversion = conversions[place_of(meta)]
                if conversion is None:
                    continue
                self._values[at] = _Values(meta, self._old.key_serializer, conversion, self._prefix)
                meta = conversion.meta(meta)
            self._ids[at] = len(states)
            states.append(meta)
        self._header = KeyedBackendHeader(
            self._old.key_serializer, tuple(states), self._old.compressed
        )
        self._offsets: list[int] = []
        self._size = 0

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
            section = write_section(self._runs(read_section(data, len(self._old.states))))
            return compress_frames(section) if self._old.compressed and section else section
        return b""

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


class _Values:
    """Records of one state, one by one."""

    def __init__(
        self,
        meta: StateMetaInfoSnapshot,
        key: AnySerializer,
        conversion: StateConversion,
        prefix_bytes: int,
    ) -> None:
        self.name = meta.name
        self._format = RecordFormat(meta, key)
        self._prefix = prefix_bytes
        value = meta.value_serializer
        self._kind = meta.keyed_state_type
        if self._kind is KeyedStateType.MAP:
            self._keys = _Recoded(value.nested[0], conversion.key)
            self._items = _Recoded(value.nested[1], conversion.value)
        elif self._kind is KeyedStateType.LIST:
            self._items = _Recoded(value.nested[0], conversion.value)
        else:
            self._items = _Recoded(value, conversion.value)

    def converted(self, record: StoredRecord) -> tuple[bytes, bytes]:
        match self._kind:
            case KeyedStateType.MAP:
                return self._stored_key(record.key), self._map_value(record.value)
            case KeyedStateType.LIST:
                return record.key, self._elements(record.value)
            case _:
                return record.key, self._items.of(record.value)

    def _stored_key(self, stored: bytes) -> bytes:
        if not self._keys.changes:
            return stored
        data = DataInput(stored, self._prefix)
        self._format.decode_scope(data)
        return stored[: data.position] + self._keys.of_key(stored[data.position :])

    def _map_value(self, stored: bytes) -> bytes:
        # A null is a flag, and what a heap backend writes behind it.
        return stored if stored[:1] != b"\0" else b"\0" + self._items.of(stored[1:])

    def _elements(self, stored: bytes) -> bytes:
        data = DataInput(stored)
        elements = [self._items.next(data)]
        while data.remaining:
            data.read_u8("list delimiter")
            elements.append(self._items.next(data))
        return _DELIMITER.join(elements)


class _Recoded:
    """Values of one type as bytes of another."""

    def __init__(self, old: AnySerializer, change: TypeChange | None) -> None:
        self._old = old
        self._new = old if change is None else change.new
        self._convert = None if change is None else change.convert

    @property
    def changes(self) -> bool:
        return self._convert is not None

    def of(self, stored: bytes) -> bytes:
        convert = self._convert
        if convert is None:
            return stored
        return serialize_to_bytes(self._new, convert(deserialize_exactly(self._old, stored)))

    def of_key(self, stored: bytes) -> bytes:
        convert = self._convert
        if convert is None:
            return stored
        return serialize_key(self._new, convert(deserialize_exactly(self._old, stored)))

    def next(self, data: DataInput) -> bytes:
        """The bytes of the next value of an input."""
        convert = self._convert
        if convert is None:
            return data.read_value(self._old)
        return serialize_to_bytes(self._new, convert(self._old.deserialize(data)))


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
        return copy_operator_state(operator, handle, target)
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
        value = _Recoded(meta.value_serializer, None if conversion is None else conversion.value)
        with error_context(state=info.name, operator=operator.label):
            if info.mode is OperatorStateMode.BROADCAST:
                change = None if conversion is None else conversion.key
                key = _Recoded(meta.serializer(KEY_SERIALIZER), change)
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
    return target.add_operator_state(write_operator_stream(lists, broadcasts))
