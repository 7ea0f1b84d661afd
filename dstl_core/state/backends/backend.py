"""The keyed state of one subtask: tables with a current key, on any store.

Source of the behaviour: ``AbstractKeyedStateBackend``, ``HeapKeyedStateBackend`` and
``RocksDBKeyedStateBackend`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dstl_core.clock import Clock, SystemClock
from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.serializers import (
    AnySerializer,
    TimerSerializer,
    VoidNamespaceSerializer,
    deserialize_exactly,
    serialize_key,
)
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import (
    ConfigError,
    InvariantViolation,
    NoSuchStateError,
    RestoreError,
)
from dstl_core.model.key_group import KeyGroupRange, assign_to_key_group
from dstl_core.state.backends.current_key import CurrentKey
from dstl_core.state.backends.keyed_access import (
    AggregatingState,
    FoldingState,
    ReducingState,
    State,
    ValueState,
)
from dstl_core.state.backends.keyed_collections import ListState, MapState
from dstl_core.state.held.added_elements import AddedElements
from dstl_core.state.held.change_logger import StateChangeLogger
from dstl_core.state.held.held_values import HeldValues, form_of
from dstl_core.state.tables.descriptor import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.tables.evolution import register_table
from dstl_core.state.tables.keyed_state import KeyedState, StateKey, state_key
from dstl_core.state.tables.queue_table import QueueTable
from dstl_core.state.tables.state_table import (
    VOID_NAMESPACE,
    ListTable,
    MapTable,
    StateTable,
    ValueTable,
)
from dstl_core.state.tables.store import HEAP, EntryStore
from dstl_core.state.tables.ttl import TtlPolicy

if TYPE_CHECKING:
    from dstl_core.codec.columnar.types.input import Column
    from dstl_core.state.backends.column_access import ListColumns, ValueColumns
    from dstl_core.state.held.key_batch import KeyBatch, KeyPlaces

_VOID = VoidNamespaceSerializer()


class KeyedStateBackend:
    """The state of one subtask. One thread; one current key at a time.

    Args:
        state: The restored state, or an empty one.
        key_serializer: The type of the key.
        clock: Measures times to live.
    """

    def __init__(
        self, state: KeyedState, key_serializer: AnySerializer, *, clock: Clock | None = None
    ) -> None:
        if state.key_serializer is None:
            state.key_serializer = key_serializer
        elif state.key_serializer != key_serializer:
            raise RestoreError(
                f"The key has another type: expected {state.key_serializer.type_name} (from the "
                f"restored state), got {key_serializer.type_name}; declare the stored type as "
                f"key_type, or start a job of another name."
            )
        self.state = state
        self.key_serializer = key_serializer
        self.logger: StateChangeLogger | None = None
        self.slot = -1
        self._key_group = -1
        self._key = b""
        self._batch: KeyBatch | None = None
        self._key_places: KeyPlaces | None = None
        self._held: dict[str, HeldValues] = {}
        self._added: dict[str, AddedElements] = {}
        self._clock = clock if clock is not None else SystemClock()
        self._ttl: dict[StateKey, TtlPolicy] = {}
        self._cleaners: dict[int, Iterator[tuple[int, bytes, Any]]] = {}

    # ---------------------------------------------------------------------------------- key

    @property
    def key_group_range(self) -> KeyGroupRange:
        return self.state.key_groups

    @property
    def number_of_key_groups(self) -> int:
        return self.state.max_parallelism

    def set_current_key(self, key: Any) -> None:
        """Sets the key of all state accesses until the next call.

        Raises:
            ConfigError: A key is null, or belongs to another subtask.
        """
        if key is None:
            raise ConfigError("A key is null; keyed state needs a key.")
        raw = serialize_key(self.key_serializer, key)
        key_group = assign_to_key_group(
            self.key_serializer.java_hash(key), self.state.max_parallelism
        )
        if not self.state.key_groups.contains(key_group):
            raise ConfigError(
                f"A key of key group {key_group} came to the subtask of key groups "
                f"{self.state.key_groups}."
            )
        self._place(key_group, raw)

    def _place(self, key_group: int, key_bytes: bytes) -> None:
        if self._batch is not None:
            raise InvariantViolation("a key was set while a batch of rows is applied")
        self._key_group, self._key = key_group, key_bytes

    @property
    def current_key(self) -> bytes:
        return self._key if self._batch is None else self._batch.key_bytes(self.slot)

    def scope(self, namespace: bytes) -> bytes:
        if self._batch is not None and namespace == VOID_NAMESPACE:
            return self._batch.places.scopes[self.slot]
        return self.current_key + namespace

    @property
    def current_key_group(self) -> int:
        """The key group of the current key; -1 if no key was set."""
        return self._key_group if self._batch is None else self._batch.places.key_groups[self.slot]

    def get_current_key(self) -> Any:
        """The current key.

        Raises:
            ConfigError: No key was set.
        """
        if self.current_key_group < 0:
            raise ConfigError("State was accessed without a current key; set the key first.")
        return deserialize_exactly(self.key_serializer, self.current_key)

    # ----------------------------------------------------------------------------- batches

    @contextmanager
    def batch(self, keys: Column) -> Iterator[KeyBatch]:
        """Opens a batch of rows with their keys; ``slot`` is the number of the current key in it.

        At the end of the batch the changed values are stored and logged, except after an error.

        Raises:
            ConfigError: A key is null, or belongs to another subtask.
            NotInColumnsError: The type of the keys has no columnar form.
        """
        from dstl_core.state.held.key_batch import KeyBatch, places_of_keys

        if self._key_places is None:
            self._key_places = places_of_keys(
                self.key_serializer, self.key_group_range, self.number_of_key_groups
            )
        batch = self._batch = KeyBatch(self._key_places, self.key_serializer, keys)
        try:
            yield batch
            for access in self._kept():
                access.write_back(batch, self.logger)
        finally:
            self._batch, self.slot, self._key_group = None, -1, -1
            for access in self._kept():
                access.release()

    def _kept(self) -> list[HeldValues | AddedElements]:
        return [*self._held.values(), *self._added.values()]

    def held_values(self, table: ValueTable) -> HeldValues | None:
        """The held values of a state in batches; all state objects on a table share them."""
        if not isinstance(table.meta.namespace_serializer, VoidNamespaceSerializer):
            return None
        form = form_of(table.meta.value_serializer)
        held = self._held.get(table.meta.name)
        if held is None or held.table is not table or held.form is not form:
            held = self._held[table.meta.name] = HeldValues(table, form)
        return held

    def added_elements(self, table: ListTable) -> AddedElements | None:
        """What holds the elements that a batch adds to a state: one for all that access it."""
        if not isinstance(table.meta.namespace_serializer, VoidNamespaceSerializer):
            return None
        form = form_of(table.element)
        added = self._added.get(table.meta.name)
        if added is None or added.table is not table or added.form is not form:
            added = self._added[table.meta.name] = AddedElements(table, form)
        return added

    def hold(self, held: HeldValues) -> bool:
        """Reads the values of all keys of the batch.

        Returns:
            False if there is no batch, if the values are too large, or if every update is logged.
        """
        logger = self.logger
        if self._batch is None or (logger is not None and logger.takes_every_update):
            return False
        return held.load(self._batch)

    def write_back(self, held: HeldValues | AddedElements) -> None:
        """Stores and logs what is held before the end of the batch, since it is large."""
        if self._batch is None:
            raise InvariantViolation("values are held outside of a batch")
        held.write_back(self._batch, self.logger)

    # -------------------------------------------------------------------------------- states

    def get_or_create_keyed_state(
        self, namespace_serializer: AnySerializer, descriptor: StateDescriptor
    ) -> State[Any]:
        """The state of a descriptor; creates it if it is new, migrates it if its type has changed.

        Raises:
            StateMigrationError: The stored values cannot be converted to the descriptor's type.
        """
        meta = descriptor.meta_info(namespace_serializer)
        table, migrated = register_table(self.state, meta, self.key_serializer, self._clock)
        if migrated and self.logger is not None:
            self.logger.migrated(table.meta)
        ttl = None
        if descriptor.ttl is not None:
            ttl = self._ttl[state_key(meta)] = TtlPolicy(descriptor.ttl, self._clock)
        else:
            self._ttl.pop(state_key(meta), None)
        return bind_state(self, descriptor, table, ttl)

    def get_partitioned_state(
        self, namespace: Any, namespace_serializer: AnySerializer, descriptor: StateDescriptor
    ) -> State[Any]:
        """The state of a descriptor; sets its current namespace."""
        state = self.get_or_create_keyed_state(namespace_serializer, descriptor)
        state.set_current_namespace(namespace)
        return state

    def get_value_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """A value state without namespaces."""
        state: Any = self.get_or_create_keyed_state(_VOID, descriptor)
        return state  # type: ignore[no-any-return]  # the descriptor says which kind

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """A list state without namespaces."""
        state: Any = self.get_or_create_keyed_state(_VOID, descriptor)
        return state  # type: ignore[no-any-return]

    def get_value_columns(self, descriptor: ValueStateDescriptor) -> ValueColumns:
        """A value state for access to many keys at a time, by columns.

        Raises:
            NotInColumnsError: A type has no columnar form.
        """
        from dstl_core.state.backends.column_access import ValueColumns

        return ValueColumns(self, self.get_value_state(descriptor))

    def get_list_columns(self, descriptor: ListStateDescriptor) -> ListColumns:
        """A list state for access to many keys at a time, by columns. Raises as above."""
        from dstl_core.state.backends.column_access import ListColumns

        return ListColumns(self, self.get_list_state(descriptor))

    def create_queue(self, name: str, namespace_serializer: AnySerializer) -> QueueTable:
        """The queue of a timer service; creates it if it is new."""
        element = TimerSerializer(self.key_serializer, namespace_serializer)
        meta = StateMetaInfoSnapshot.priority_queue(name, element)
        table = self.state.table(meta, self.key_serializer)
        if not isinstance(table, QueueTable):
            raise InvariantViolation(f"queue {name!r} has a table of another kind")
        return table

    def queue_changed(
        self, queue: QueueTable, operation: StateChangeOperation, key_group: int, operands: bytes
    ) -> None:
        """Logs a change of a queue, which has no scope."""
        if self.logger is not None:
            self.logger.logged(queue.meta, key_group, operation, b"", operands)

    # --------------------------------------------------------------------------------- views

    def get_keys_and_namespaces(self, state: str) -> Iterator[tuple[Any, Any]]:
        """Yields ``(key, namespace)`` of every entry of a state, as of the start of the iteration.

        Raises:
            NoSuchStateError: There is no such state.
        """
        table = self.state.tables.get((state, False))
        if table is None:
            raise NoSuchStateError(f"State {state!r} was not registered.")
        scopes = [scope for group in table.groups.values() for scope in list(group)]
        return (table.codec.decode_scope(scope) for scope in scopes)

    def get_keys(self, state: str, namespace: Any = None) -> Iterator[Any]:
        """Yields the keys with an entry in a namespace of a state. Raises as above."""
        return (key for key, found in self.get_keys_and_namespaces(state) if found == namespace)

    def num_key_value_state_entries(self) -> int:
        """The number of entries of all states except queues. On disk it counts them one by one."""
        return sum(
            len(group)
            for table in self.state.tables.values()
            if not isinstance(table, QueueTable)
            for group in table.groups.values()
        )

    # ---------------------------------------------------------------------------------- TTL

    def clean_up(self, table: StateTable[Any], ttl: TtlPolicy) -> None:
        """Checks a few entries of a state with a time to live, in turn, and removes expired ones.

        It does not log the removal: an entry that is restored from the log is expired, too.
        """
        left = ttl.config.cleanup_incrementally
        if not left:
            return
        cleaner = self._cleaners.get(id(table))
        for _ in range(left):
            if cleaner is None:
                cleaner = self._cleaners[id(table)] = _entries_of(table)
            expired = next(cleaner, None)
            if expired is None:
                del self._cleaners[id(table)]
                return
            key_group, scope, stored = expired
            group = table.groups[key_group]
            if scope in group and table.is_expired(stored, ttl):
                group.pop(scope, None)

    def expired_filter(self) -> dict[StateKey, TtlPolicy]:
        """The states whose expired entries full snapshots leave out."""
        return {
            key: policy for key, policy in self._ttl.items() if policy.config.cleanup_full_snapshot
        }

    def capture(self) -> KeyedState:
        """Captures a point-in-time view that can be written while processing continues."""
        return self.state.capture(self.expired_filter())

    def close(self) -> None:
        """Releases the resources of the store."""
        self.state.store.close()


def _entries_of(table: StateTable[Any]) -> Iterator[tuple[int, bytes, Any]]:
    for key_group in list(table.groups):
        for scope in list(table.groups[key_group]):
            stored = table.groups[key_group].get(scope)
            if stored is not None:
                yield key_group, scope, stored


class HashMapKeyedStateBackend(KeyedStateBackend):
    """Keyed state in memory."""

    identifier = "hashmap"

    @staticmethod
    def create_store() -> EntryStore:
        """The store of a backend's entries."""
        return HEAP


class RocksDBKeyedStateBackend(KeyedStateBackend):
    """Keyed state on local disk, for state larger than memory. Each backend has its own store.

    The database is a cache of the state in checkpoints. It is never a part of a checkpoint, and it
    is deleted on close.
    """

    identifier = "rocksdb"

    @staticmethod
    def create_store(folder: Path, *, cache_bytes: int, write_buffer_bytes: int) -> EntryStore:
        """Creates a database in a new folder below ``folder``."""
        from dstl_core.state.backends.rocksdb_store import RocksDBStore

        return RocksDBStore(folder, cache_bytes=cache_bytes, write_buffer_bytes=write_buffer_bytes)


def bind_state(
    backend: CurrentKey,
    descriptor: StateDescriptor,
    table: StateTable[Any],
    ttl: TtlPolicy | None,
) -> State[Any]:
    """Creates the state object of a descriptor on its table, which has the same kind."""
    match descriptor, table:
        case ValueStateDescriptor(), ValueTable():
            value = ValueState(backend, table, ttl, descriptor.default_value)
            return value.declare(descriptor.type)
        case ReducingStateDescriptor(), ValueTable():
            return ReducingState(backend, table, ttl, descriptor).declare(descriptor.type)
        case AggregatingStateDescriptor(), ValueTable():
            aggregating = AggregatingState(backend, table, ttl, descriptor)
            return aggregating.declare(descriptor.accumulator_type)
        case FoldingStateDescriptor(), ValueTable():
            return FoldingState(backend, table, ttl, descriptor).declare(descriptor.type)
        case ListStateDescriptor(), ListTable():
            return ListState(backend, table, ttl).declare(descriptor.element_type)
        case MapStateDescriptor(), MapTable():
            map_state = MapState(backend, table, ttl)
            return map_state.declare(descriptor.key_type, descriptor.value_type)
        case _:
            raise InvariantViolation(f"{descriptor} has a table of another kind")
