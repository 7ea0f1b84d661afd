"""The operator state of one subtask: split lists, union lists and broadcast maps.

Source: ``DefaultOperatorStateBackend``, ``PartitionableListState`` and ``HeapBroadcastState`` of
Flink 2.2.1. Elements stay serialized, as in keyed state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dstl_core.codec.operator_state import (
    OperatorStateReader,
    OperatorStream,
    broadcast_state_meta,
    list_state_meta,
    mode_of,
    write_operator_stream,
)
from dstl_core.codec.python_values import seen_as
from dstl_core.codec.serializers import (
    BUILT_IN,
    AnySerializer,
    SerializerRegistry,
    deserialize_exactly,
    serialize_key,
    serialize_to_bytes,
)
from dstl_core.codec.state_meta import KEY_SERIALIZER, StateMetaInfoSnapshot
from dstl_core.errors import ConfigError, RestoreError, StateMigrationError, error_context
from dstl_core.model.handle import (
    OperatorStateMetaInfo,
    OperatorStateMode,
    OperatorStreamStateHandle,
)
from dstl_core.state.tables.compatibility import WITHOUT_CLASSES, Verdict, compatibility_of
from dstl_core.state.tables.descriptor import ListStateDescriptor, MapStateDescriptor
from dstl_core.state.tables.evolution import convert, type_after
from dstl_core.state.tables.same_bytes import same_bytes
from dstl_core.storage.handle_resolver import HandleResolver


@dataclass
class _OperatorList:
    meta: StateMetaInfoSnapshot
    elements: list[bytes] = field(default_factory=list)


@dataclass
class _Map:
    meta: StateMetaInfoSnapshot
    pairs: dict[bytes, bytes] = field(default_factory=dict)


class OperatorListState:
    """A list of one subtask. ``get`` returns a copy; ``add`` and ``update`` change the list."""

    def __init__(self, state: _OperatorList, element: AnySerializer) -> None:
        self._state = state
        self._element = element

    def get(self) -> list[Any]:
        return [deserialize_exactly(self._element, raw) for raw in self._state.elements]

    def add(self, element: Any) -> None:
        self._state.elements.append(serialize_to_bytes(self._element, element))

    def add_all(self, elements: Iterable[Any]) -> None:
        self._state.elements += [serialize_to_bytes(self._element, each) for each in elements]

    def update(self, elements: Iterable[Any]) -> None:
        self._state.elements[:] = [serialize_to_bytes(self._element, each) for each in elements]

    def clear(self) -> None:
        self._state.elements.clear()


class BroadcastState:
    """A map that is equal on every subtask if the program writes the same values on all."""

    def __init__(self, state: _Map, key: AnySerializer, value: AnySerializer) -> None:
        self._state = state
        self._key = key
        self._value = value

    def get(self, key: Any) -> Any:
        """The value of a key; None if there is none."""
        raw = self._state.pairs.get(serialize_key(self._key, key))
        return None if raw is None else deserialize_exactly(self._value, raw)

    def contains(self, key: Any) -> bool:
        return serialize_key(self._key, key) in self._state.pairs

    def put(self, key: Any, value: Any) -> None:
        raw = serialize_to_bytes(self._value, value)
        self._state.pairs[serialize_key(self._key, key)] = raw

    def put_all(self, pairs: Mapping[Any, Any]) -> None:
        for key, value in pairs.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._state.pairs.pop(serialize_key(self._key, key), None)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yields the pairs as they were when the iteration began."""
        for key, value in list(self._state.pairs.items()):
            yield deserialize_exactly(self._key, key), deserialize_exactly(self._value, value)

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """As ``items``, by Flink's name."""
        return self.items()

    def clear(self) -> None:
        self._state.pairs.clear()


class DefaultOperatorStateBackend:
    """All operator state of one subtask; also the ``OperatorStateStore`` of its functions.

    Restored state that no function registers is kept and written to the next snapshot.
    """

    def __init__(self) -> None:
        self._lists: dict[str, _OperatorList] = {}
        self._maps: dict[str, _Map] = {}
        self._registered: dict[str, None] = {}

    @classmethod
    def restore(
        cls,
        handles: Sequence[OperatorStreamStateHandle],
        resolver: HandleResolver,
        registry: SerializerRegistry = BUILT_IN,
    ) -> DefaultOperatorStateBackend:
        """Restores the state of the handles that were assigned to a subtask, in their order.

        Raises:
            FormatError: A stream is damaged.
            RestoreError: Two handles have different types for the same state.
        """
        backend = cls()
        for handle in handles:
            with error_context(location=resolver.describe(handle.stream)):
                reader = OperatorStateReader(resolver.read(handle.stream), handle.states, registry)
                for info in handle.states:
                    backend._take(info, reader)
        return backend

    def _take(self, info: OperatorStateMetaInfo, reader: OperatorStateReader) -> None:
        meta = reader.header.state(info)
        if info.mode is OperatorStateMode.BROADCAST:
            broadcast = self._maps.setdefault(info.name, _Map(meta))
            broadcast.pairs = dict(reader.raw_pairs(info))
            return
        listed = self._lists.setdefault(info.name, _OperatorList(meta))
        if listed.meta != meta:
            raise RestoreError(
                f"Operator state {info.name!r} has another type in another subtask: expected "
                f"{listed.meta.value_serializer.type_name}, got "
                f"{meta.value_serializer.type_name}."
            )
        listed.elements += reader.raw_elements(info)

    # -------------------------------------------------------------------------------- store

    def get_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState:
        """A list whose elements are redistributed when the parallelism changes.

        Raises:
            RestoreError: The restored state has another mode.
            StateMigrationError: The restored state has an incompatible type.
        """
        return self._list(descriptor, OperatorStateMode.SPLIT_DISTRIBUTE)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState:
        """A list; a restore gives every subtask the elements of all. Raises as above."""
        return self._list(descriptor, OperatorStateMode.UNION)

    def _list(self, descriptor: ListStateDescriptor, mode: OperatorStateMode) -> OperatorListState:
        name, element = descriptor.name, descriptor.stored("element_type")
        _refuse_ttl(descriptor)
        meta = list_state_meta(name, mode, element)
        state = self._lists.setdefault(name, _OperatorList(meta))
        stored_mode = mode_of(state.meta)
        if stored_mode is not mode:
            raise RestoreError(
                f"Incompatible state assignment modes. The state {name!r} was "
                f"{stored_mode.name} before and is registered as {mode.name}."
            )
        old = state.meta.value_serializer
        after = _type_after(name, old, element)
        if not same_bytes(old, after):
            state.elements = [_rewritten(old, after, raw) for raw in state.elements]
        state.meta = list_state_meta(name, mode, after)
        self._registered[name] = None
        return OperatorListState(state, seen_as(descriptor.element_type, after))

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState:
        """A map with the same content on every subtask. Raises as above."""
        name = descriptor.name
        key, value = descriptor.stored("key_type"), descriptor.stored("value_type")
        _refuse_ttl(descriptor)
        meta = broadcast_state_meta(name, key, value)
        state = self._maps.setdefault(name, _Map(meta))
        old_key, old = state.meta.serializer(KEY_SERIALIZER), state.meta.value_serializer
        key_after = _type_after(name, old_key, key)
        after = _type_after(name, old, value)
        if not same_bytes(old_key, key_after) or not same_bytes(old, after):
            state.pairs = {
                _rewritten(old_key, key_after, k): _rewritten(old, after, v)
                for k, v in state.pairs.items()
            }
        state.meta = broadcast_state_meta(name, key_after, after)
        self._registered[name] = None
        return BroadcastState(
            state,
            seen_as(descriptor.key_type, key_after),
            seen_as(descriptor.value_type, after),
        )

    def get_registered_state_names(self) -> set[str]:
        """The names of the list and union states, including restored ones."""
        return set(self._lists)

    def get_registered_broadcast_state_names(self) -> set[str]:
        """The names of the broadcast states, including restored ones."""
        return set(self._maps)

    def metas(self) -> list[StateMetaInfoSnapshot]:
        """The descriptions of all states, including restored ones."""
        lists = [state.meta for state in self._lists.values()]
        return lists + [state.meta for state in self._maps.values()]

    # ----------------------------------------------------------------------------- snapshot

    def snapshot(self) -> OperatorStream | None:
        """The stream of all state and the content of its handle; None if there is no state."""
        if not self._lists and not self._maps:
            return None
        return write_operator_stream(
            [(state.meta, list(state.elements)) for state in self._lists.values()],
            [(state.meta, list(state.pairs.items())) for state in self._maps.values()],
        )


def _refuse_ttl(descriptor: ListStateDescriptor | MapStateDescriptor) -> None:
    if descriptor.ttl is not None:
        raise ConfigError(
            f"Operator state {descriptor.name!r} cannot have a time to live; remove it from the "
            f"descriptor."
        )


def _type_after(name: str, old: AnySerializer, new: AnySerializer) -> AnySerializer:
    """The type of restored state once a job declares ``new``."""
    resolved = compatibility_of(old, new, WITHOUT_CLASSES)
    if resolved.verdict > Verdict.AFTER_MIGRATION:
        raise StateMigrationError(
            f"Operator state {name!r} has another type: expected {old.type_name} (from the "
            f"restored state), got {new.type_name}. Reason: {resolved.reason}."
        )
    return type_after(old, new)


def _rewritten(old: AnySerializer, new: AnySerializer, raw: bytes) -> bytes:
    return serialize_to_bytes(new, convert(old, new, deserialize_exactly(old, raw), 0))
