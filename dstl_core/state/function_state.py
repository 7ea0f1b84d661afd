"""State of all kinds, with namespaces and timers, for functions that read or bootstrap it.

Nothing is logged here: this is for state that is looked at, or written as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any, TypeVar, cast

from dstl_core.clock import Clock, SystemClock
from dstl_core.codec.serializers import (
    AnySerializer,
    TimerSerializer,
    TtlSerializer,
    VoidNamespaceSerializer,
    deserialize_exactly,
    serialize_to_bytes,
)
from dstl_core.codec.serializers.runtime import Timer, TtlValue
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import ConfigError, NoSuchStateError, SavepointError
from dstl_core.model.key_group import assign_to_key_group
from dstl_core.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.keyed_state import KeyedState
from dstl_core.state.queue_table import QueueTable
from dstl_core.state.table import ListTable, MapTable, StateTable, ValueTable

EVENT_TIMERS = "_timer_state/event_"
PROCESSING_TIMERS = "_timer_state/processing_"
USER_TIMERS = "user-timers"

Table = TypeVar("Table", bound=StateTable[Any])


class StateAccess:
    """The state of one range of key groups, one key and namespace at a time. One thread.

    Args:
        state: The tables.
        key_serializer: The type of the keys.
        clock: Gives values with a time to live their time.
        only_existing: Whether a state that is not there is an error: for reading.
    """

    def __init__(
        self,
        state: KeyedState,
        key_serializer: AnySerializer,
        clock: Clock | None = None,
        *,
        only_existing: bool = False,
    ) -> None:
        if state.key_serializer is None:
            state.key_serializer = key_serializer
        self.state = state
        self.key_serializer = key_serializer
        self.clock = clock or SystemClock()
        self.current_key: Any = None
        self.current_key_bytes = b""
        self.current_namespace = b"\0"
        self.key_group = -1
        self.registered: list[StateTable[Any]] = []
        self._only_existing = only_existing
        self._closed = False

    def close_registration(self) -> None:
        """From here on no state can be registered."""
        self._closed = True

    def set_key(self, key: Any) -> None:
        """The key that all accesses speak of.

        Raises:
            ConfigError: A null key, or one of another range of key groups.
        """
        if key is None:
            raise ConfigError("A key is null; keyed state needs a key.")
        hashed = self.key_serializer.java_hash(key)
        group = assign_to_key_group(hashed, self.state.max_parallelism)
        if not self.state.key_groups.contains(group):
            raise ConfigError(
                f"A key of key group {group} came to the subtask of key groups "
                f"{self.state.key_groups}."
            )
        self.place(group, key, serialize_to_bytes(self.key_serializer, key))

    def place(self, key_group: int, key: Any, key_bytes: bytes) -> None:
        """As ``set_key``, for a key whose bytes and key group are known."""
        self.key_group, self.current_key, self.current_key_bytes = key_group, key, key_bytes

    @property
    def scope(self) -> bytes:
        return self.current_key_bytes + self.current_namespace

    def table(self, meta: StateMetaInfoSnapshot, kind: type[Table]) -> Table:
        """The table of a state, registered.

        Raises:
            NoSuchStateError: There is none to read; lists those that there are.
            SavepointError: It comes too late.
            RestoreError: It has another type; shows both.
        """
        known = sorted({name for name, is_queue in self.state.tables if not is_queue})
        if self._closed:
            declared = ", ".join(repr(each.meta.name) for each in self.registered) or "none"
            raise SavepointError(
                f"State {meta.name!r} was not registered in open; registered are: {declared}."
            )
        if self._only_existing and kind is not QueueTable and meta.name not in known:
            there = ", ".join(repr(name) for name in known) or "none"
            raise NoSuchStateError(f"There is no state {meta.name!r}; there are: {there}.")
        found = self.state.table(self._as_stored(meta), self.key_serializer)
        if not isinstance(found, kind):
            raise SavepointError(
                f"State {meta.name!r} is of another kind: it is stored as "
                f"{found.meta.keyed_state_type.value.lower()}."
            )
        self.registered.append(found)
        return found

    def _as_stored(self, meta: StateMetaInfoSnapshot) -> StateMetaInfoSnapshot:
        """The stored description if it differs only by a time to live that the reader left out."""
        if not self._only_existing:
            return meta
        found = self.state.tables.get((meta.name, False))
        if found is None:
            return meta
        stored = found.meta
        same = _without_ttl(stored.value_serializer) == _without_ttl(meta.value_serializer)
        is_same = same and stored.keyed_state_type is meta.keyed_state_type
        return stored if is_same else meta

    # ---------------------------------------------------------------- what functions ask for

    def get_state(
        self, descriptor: ValueStateDescriptor, namespace: AnySerializer | None = None
    ) -> AccessedValueState:
        """The value state of a descriptor."""
        return AccessedValueState(self, self.table(descriptor.meta_info(namespace), ValueTable))

    def get_list_state(
        self, descriptor: ListStateDescriptor, namespace: AnySerializer | None = None
    ) -> AccessedListState:
        """The list state of a descriptor."""
        return AccessedListState(self, self.table(descriptor.meta_info(namespace), ListTable))

    def get_map_state(
        self, descriptor: MapStateDescriptor, namespace: AnySerializer | None = None
    ) -> AccessedMapState:
        """The map state of a descriptor."""
        return AccessedMapState(self, self.table(descriptor.meta_info(namespace), MapTable))

    def get_reducing_state(
        self, descriptor: ReducingStateDescriptor, namespace: AnySerializer | None = None
    ) -> AccessedReducingState:
        """The reducing state of a descriptor."""
        table = self.table(descriptor.meta_info(namespace), ValueTable)
        return AccessedReducingState(self, table, descriptor)

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor, namespace: AnySerializer | None = None
    ) -> AccessedAggregatingState:
        """The aggregating state of a descriptor."""
        table = self.table(descriptor.meta_info(namespace), ValueTable)
        return AccessedAggregatingState(self, table, descriptor)

    def state_of(self, descriptor: StateDescriptor, namespace: AnySerializer | None = None) -> Any:
        """The state of any descriptor."""
        match descriptor:
            case ValueStateDescriptor():
                return self.get_state(descriptor, namespace)
            case ListStateDescriptor():
                return self.get_list_state(descriptor, namespace)
            case MapStateDescriptor():
                return self.get_map_state(descriptor, namespace)
            case ReducingStateDescriptor():
                return self.get_reducing_state(descriptor, namespace)
            case AggregatingStateDescriptor():
                return self.get_aggregating_state(descriptor, namespace)

    def timers(
        self, service: str = USER_TIMERS, namespace: AnySerializer | None = None
    ) -> AccessedTimers:
        """A timer service."""
        element = TimerSerializer(self.key_serializer, namespace or VoidNamespaceSerializer())
        queues = [
            self.table(StateMetaInfoSnapshot.priority_queue(prefix + service, element), QueueTable)
            for prefix in (EVENT_TIMERS, PROCESSING_TIMERS)
        ]
        return AccessedTimers(self, queues[0], queues[1], element)


def _without_ttl(serializer: AnySerializer) -> tuple[object, ...]:
    """The type as its leaves in order, times to live taken away."""
    if isinstance(serializer, TtlSerializer):
        return _without_ttl(serializer.value)
    if not serializer.nested:
        return (serializer,)
    parts: tuple[object, ...] = (type(serializer),)
    for each in serializer.nested:
        parts += _without_ttl(each)
    return parts


class _Accessed:
    """One state under the current key and namespace."""

    def __init__(self, access: StateAccess, table: StateTable[Any], value: AnySerializer) -> None:
        self._access = access
        self._table = table
        self._has_ttl = isinstance(value, TtlSerializer)
        self._serializer = value

    @property
    def _group(self) -> MutableMapping[bytes, Any]:
        return self._table.group(self._access.key_group)

    @property
    def _stored(self) -> Any:
        return self._table.groups.get(self._access.key_group, {}).get(self._access.scope)

    def clear(self) -> None:
        self._group.pop(self._access.scope, None)

    def _to_bytes(self, value: Any) -> bytes:
        if self._has_ttl:
            value = TtlValue(value=value, last_access=self._access.clock.now_ms())
        return serialize_to_bytes(self._serializer, value)

    def _plain(self, value: Any) -> Any:
        return value.value if isinstance(value, TtlValue) else value


class AccessedValueState(_Accessed):
    """One value; None is "no value"."""

    def __init__(self, access: StateAccess, table: ValueTable) -> None:
        super().__init__(access, table, table.meta.value_serializer)

    def value(self) -> Any:
        stored = self._stored
        if stored is None:
            return None
        return self._plain(deserialize_exactly(self._serializer, stored))

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._group[self._access.scope] = self._to_bytes(value)


class AccessedListState(_Accessed):
    """A list; an empty list is "no list"."""

    def __init__(self, access: StateAccess, table: ListTable) -> None:
        super().__init__(access, table, table.element)
        self._list = table

    def get(self) -> list[Any]:
        stored = self._stored
        return [] if stored is None else [self._plain(e) for e in self._list.read_elements(stored)]

    def add(self, element: Any) -> None:
        self._list.add(self._access.key_group, self._access.scope, self._to_bytes(element))

    def add_all(self, elements: Iterable[Any]) -> None:
        for element in elements:
            self.add(element)

    def update(self, elements: Iterable[Any]) -> None:
        self.clear()
        self.add_all(elements)


class AccessedMapState(_Accessed):
    """A map; an empty map is "no map"."""

    def __init__(self, access: StateAccess, table: MapTable) -> None:
        super().__init__(access, table, table.serializer.value)
        self._keys = table.serializer.key

    def get(self, key: Any) -> Any:
        stored = (self._stored or {}).get(serialize_to_bytes(self._keys, key))
        return None if stored is None else self._item(stored)

    def _item(self, stored: bytes) -> Any:
        if stored[0]:
            return None
        return self._plain(deserialize_exactly(self._serializer, stored[1:]))

    def put(self, key: Any, value: Any) -> None:
        raw = b"\1" if value is None else b"\0" + self._to_bytes(value)
        pairs = self._group.setdefault(self._access.scope, {})
        pairs[serialize_to_bytes(self._keys, key)] = raw

    def put_all(self, pairs: dict[Any, Any]) -> None:
        for key, value in pairs.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        pairs = self._stored or {}
        pairs.pop(serialize_to_bytes(self._keys, key), None)
        if not pairs:
            self.clear()

    def contains(self, key: Any) -> bool:
        return serialize_to_bytes(self._keys, key) in (self._stored or {})

    def items(self) -> list[tuple[Any, Any]]:
        """The entries; in Flink ``entries()``."""
        return [
            (deserialize_exactly(self._keys, key), self._item(value))
            for key, value in (self._stored or {}).items()
        ]

    def keys(self) -> list[Any]:
        return [key for key, _ in self.items()]

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        return not self._stored


class AccessedReducingState(AccessedValueState):
    """A value that elements are reduced into."""

    def __init__(
        self, access: StateAccess, table: ValueTable, descriptor: ReducingStateDescriptor
    ) -> None:
        super().__init__(access, table)
        self._reduce = descriptor.reduce_function

    def get(self) -> Any:
        return self.value()

    def add(self, element: Any) -> None:
        old = self.value()
        self.update(element if old is None else self._reduce(old, element))


class AccessedAggregatingState(AccessedValueState):
    """An accumulator; ``get`` gives its result."""

    def __init__(
        self, access: StateAccess, table: ValueTable, descriptor: AggregatingStateDescriptor
    ) -> None:
        super().__init__(access, table)
        self._function = descriptor.aggregate_function

    def get(self) -> Any:
        accumulator = self.value()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, element: Any) -> None:
        old = self.value()
        accumulator = self._function.create_accumulator() if old is None else old
        self.update(self._function.add(element, accumulator))


class AccessedTimers:
    """A timer service under the current key and namespace; times in milliseconds."""

    def __init__(
        self,
        access: StateAccess,
        event: QueueTable,
        processing: QueueTable,
        element: TimerSerializer,
    ) -> None:
        self._access = access
        self._event, self._processing = event, processing
        self._element = element

    def register_event_time_timer(self, timestamp: int) -> None:
        self._event.group(self._access.key_group)[self._bytes(timestamp)] = None

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._processing.group(self._access.key_group)[self._bytes(timestamp)] = None

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._event.group(self._access.key_group).pop(self._bytes(timestamp), None)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._processing.group(self._access.key_group).pop(self._bytes(timestamp), None)

    def current_processing_time(self) -> int:
        return self._access.clock.now_ms()

    def current_watermark(self) -> int:
        """No watermark has come: the smallest long, as in Flink's bootstrap."""
        return -(1 << 63)

    def _bytes(self, timestamp: int) -> bytes:
        namespace = self._element.namespace
        value = deserialize_exactly(namespace, self._access.current_namespace)
        return serialize_to_bytes(self._element, Timer(timestamp, self._access.current_key, value))


class TimerIndex:
    """The timers of a range of key groups, by the bytes of key and namespace."""

    def __init__(self, state: KeyedState, service: str = USER_TIMERS) -> None:
        self.event = _by_scope(state, EVENT_TIMERS + service)
        self.processing = _by_scope(state, PROCESSING_TIMERS + service)

    def scopes(self, key_group: int) -> Iterator[bytes]:
        """The scopes of a key group that have timers."""
        for by_group in (self.event, self.processing):
            yield from by_group.get(key_group, {})

    def of(self, key_group: int, scope: bytes) -> tuple[set[int], set[int]]:
        """The event-time and the processing-time timers of a scope."""
        return (
            set(self.event.get(key_group, {}).get(scope, ())),
            set(self.processing.get(key_group, {}).get(scope, ())),
        )


def _by_scope(state: KeyedState, name: str) -> dict[int, dict[bytes, list[int]]]:
    table = state.tables.get((name, True))
    found: dict[int, dict[bytes, list[int]]] = {}
    if table is None:
        return found
    element = cast(TimerSerializer, table.meta.value_serializer)
    for key_group, group in table.groups.items():
        own = found.setdefault(key_group, {})
        for raw in group:
            timer = deserialize_exactly(element, raw)
            own.setdefault(raw[8:], []).append(timer.timestamp)
    return found
