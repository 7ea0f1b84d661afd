"""Keyed states as functions use them: value, reducing, aggregating and folding state.

A state object reads and writes the table of its state for the current key of the backend, and calls
the logger after every change. Source: ``AbstractHeapState`` and its subclasses, and the classes
``Changelog*State`` and ``Ttl*State`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any, Generic, Self, TypeVar

from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.python_values import seen_as
from dstl_core.codec.serializers import AnySerializer, deserialize_exactly, serialize_to_bytes
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.state.backends.current_key import CurrentKey
from dstl_core.state.held.held_values import HeldValues
from dstl_core.state.tables.descriptor import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ReducingStateDescriptor,
)
from dstl_core.state.tables.state_table import VOID_NAMESPACE, StateTable, ValueTable
from dstl_core.state.tables.ttl import TtlPolicy, unwrap

Table = TypeVar("Table", bound=StateTable[Any])


class State(Generic[Table]):
    """Base class: finds the entry of the current key. Each state has its own current namespace."""

    def __init__(self, backend: CurrentKey, table: Table, ttl: TtlPolicy | None) -> None:
        self._backend = backend
        self._table = table
        self._ttl = ttl
        self._namespace = VOID_NAMESPACE

    @property
    def table(self) -> Table:
        """The entries of all keys."""
        return self._table

    @property
    def ttl(self) -> TtlPolicy | None:
        """When entries expire, if they do."""
        return self._ttl

    @property
    def name(self) -> str:
        return self._table.meta.name

    def set_current_namespace(self, namespace: Any) -> None:
        """Sets the namespace (e.g. the window) of all accesses until the next call."""
        self._namespace = serialize_to_bytes(self._table.meta.namespace_serializer, namespace)

    def _place(self) -> tuple[MutableMapping[bytes, Any], bytes]:
        """The entries of the current key group, and the scope of the current key."""
        backend = self._backend
        return self._table.group(backend.current_key_group), backend.scope(self._namespace)

    def clear(self) -> None:
        """Removes the entry of the current key."""
        group, scope = self._place()
        group.pop(scope, None)
        self._log(StateChangeOperation.CLEAR, b"")

    def _log(self, operation: StateChangeOperation, operands: bytes) -> None:
        backend = self._backend
        if self._ttl is not None:
            backend.clean_up(self._table, self._ttl)
        if backend.logger is not None:
            backend.logger.logged(
                self._table.meta,
                backend.current_key_group,
                operation,
                backend.scope(self._namespace),
                operands,
            )

    def _scope_of(self, namespace: Any) -> bytes:
        serializer = self._table.meta.namespace_serializer
        return self._backend.current_key + serialize_to_bytes(serializer, namespace)


class _SingleValue(State[ValueTable]):
    """One stored value per scope. In a batch of rows, the values may be held as Python objects."""

    _slots: Any = ()
    """The held values; empty outside a batch."""

    def __init__(self, backend: CurrentKey, table: ValueTable, ttl: TtlPolicy | None) -> None:
        self._bind(backend, table, ttl)

    def _bind(self, backend: CurrentKey, table: ValueTable, ttl: TtlPolicy | None) -> None:
        super().__init__(backend, table, ttl)
        serializer = table.meta.value_serializer
        if ttl is not None and isinstance(serializer, TtlSerializer):
            serializer = serializer.value
        self._serializer: AnySerializer = serializer
        self._held = backend.held_values(table)
        self._bytes: HeldValues | None = None
        if self._held is not None and self._held.form.exact is None:
            self._held, self._bytes = None, self._held
        if self._held is not None:
            # Kept as attributes: these objects stay the same.
            self._slots, self._changed = self._held.slots, self._held.changed
            form: Any = self._held.form
            self._exact, self._low, self._high = form.exact, form.low, form.high

    def declare(self, declared: AnySerializer) -> Self:
        """Converts values from and to the declared type from now on."""
        self._serializer = seen_as(declared, self._serializer)
        return self

    def _hold(self) -> bool:
        """Whether the values of the batch are held as objects."""
        held = self._held
        return held is not None and (bool(held.slots) or self._backend.hold(held))

    def _held_bytes(self) -> HeldValues | None:
        """The held values of the batch, if they are held as bytes."""
        held = self._bytes
        if held is None or not (held.slots or self._backend.hold(held)):
            return None
        return held

    def _read(self) -> bytes | None:
        """The bytes of the visible value, without its time."""
        held = self._held_bytes()
        stored: bytes | None
        if held is None:
            group, scope = self._place()
            stored = group.get(scope)
        else:
            stored = held.slots[self._backend.slot]
        if stored is None or self._ttl is None:
            return stored
        return self._read_with_ttl(stored)

    def _read_with_ttl(self, stored: bytes) -> bytes | None:
        ttl = self._ttl
        if ttl is None:
            return stored
        if ttl.is_expired(stored):
            self.clear()
            return unwrap(stored) if ttl.returns_expired else None
        if ttl.updates_on_read:
            self._write(unwrap(stored))
        return unwrap(stored)

    def _write(self, raw: bytes) -> None:
        stored = raw if self._ttl is None else self._ttl.wrap(raw)
        held = self._held_bytes()
        if held is not None and not held.grows(len(stored)):
            self._backend.write_back(held)
            held.drop()
            held = None
        if held is None:
            group, scope = self._place()
            group[scope] = stored
        else:
            slot = self._backend.slot
            held.slots[slot] = stored
            held.changed[slot] = 1
        self._written(held)

    def _written(self, held: HeldValues | None) -> None:
        """Called after each change; held values are logged later."""
        backend = self._backend
        if self._ttl is not None:
            backend.clean_up(self._table, self._ttl)
        if held is None and backend.logger is not None:
            backend.logger.value_updated(
                self._table, backend.current_key_group, backend.scope(self._namespace)
            )

    def clear(self) -> None:
        held = self._held if self._slots or self._hold() else self._held_bytes()
        if held is None:
            group, scope = self._place()
            group.pop(scope, None)
        else:
            slot = self._backend.slot
            held.slots[slot] = None
            held.changed[slot] = 1
        self._written(held)

    def _get(self) -> Any:
        if self._slots or self._hold():
            return self._slots[self._backend.slot]
        raw = self._read()
        return None if raw is None else deserialize_exactly(self._serializer, raw)

    def _set(self, value: Any) -> None:
        if self._held is not None and (self._slots or self._hold()):
            slot = self._backend.slot
            self._slots[slot] = self._held.form.normal(value)
            self._changed[slot] = 1
        elif value is None:
            self.clear()
        else:
            self._write(serialize_to_bytes(self._serializer, value))

    def _take_namespaces(self, sources: Iterable[Any]) -> list[Any]:
        """Removes the entries of other namespaces; returns their values."""
        values = []
        namespace = self._namespace
        for old_namespace in sources:
            self.set_current_namespace(old_namespace)
            value = self._get()
            if value is not None:
                values.append(value)
                self.clear()
        self._namespace = namespace
        return values

    def _merge_into(self, target: Any, sources: Iterable[Any], merge: Any) -> None:
        # The result is logged, because a reader of the log does not have the function.
        values = self._take_namespaces(each for each in sources if each != target)
        if not values:
            return
        namespace = self._namespace
        self.set_current_namespace(target)
        merged = self._get()
        for value in values:
            merged = value if merged is None else merge(merged, value)
        self._set(merged)
        self._namespace = namespace


class ValueState(_SingleValue):
    """The value of the current key; None means "no value"."""

    def __init__(
        self,
        backend: CurrentKey,
        table: ValueTable,
        ttl: TtlPolicy | None = None,
        default: Any = None,
    ) -> None:
        super().__init__(backend, table, ttl)
        self._default = default

    def move_to(self, other: ValueState) -> None:
        """Accesses the entries of another state from now on. Who has this object keeps it."""
        self._slots = ()
        self._bind(other._backend, other._table, other._ttl)
        self._serializer, self._default = other._serializer, other._default

    def value(self) -> Any:
        if self._slots or self._hold():
            value = self._slots[self._backend.slot]
            return self._default if value is None else value
        raw = self._read()
        return self._default if raw is None else deserialize_exactly(self._serializer, raw)

    def update(self, value: Any) -> None:
        if self._slots and type(value) is self._exact and self._low <= value <= self._high:
            slot = self._backend.slot
            self._slots[slot] = value
            self._changed[slot] = 1
        else:
            self._set(value)


class ReducingState(_SingleValue):
    """The reduction of all added values."""

    def __init__(
        self,
        backend: CurrentKey,
        table: ValueTable,
        ttl: TtlPolicy | None,
        descriptor: ReducingStateDescriptor,
    ) -> None:
        super().__init__(backend, table, ttl)
        self._reduce = descriptor.reduce_function

    def get(self) -> Any:
        return self._get()

    def add(self, value: Any) -> None:
        old = self._get()
        self._set(value if old is None else self._reduce(old, value))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Reduces the values of other namespaces of the current key into ``target``'s value."""
        self._merge_into(target, sources, self._reduce)


class AggregatingState(_SingleValue):
    """The accumulator of all added values."""

    def __init__(
        self,
        backend: CurrentKey,
        table: ValueTable,
        ttl: TtlPolicy | None,
        descriptor: AggregatingStateDescriptor,
    ) -> None:
        super().__init__(backend, table, ttl)
        self._function = descriptor.aggregate_function

    def get(self) -> Any:
        """The result; None if nothing was added."""
        accumulator = self._get()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self._get()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._set(self._function.add(value, accumulator))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merges the accumulators of other namespaces of the current key into ``target``'s."""
        self._merge_into(target, sources, self._function.merge)


class FoldingState(_SingleValue):
    """The fold of all added values."""

    def __init__(
        self,
        backend: CurrentKey,
        table: ValueTable,
        ttl: TtlPolicy | None,
        descriptor: FoldingStateDescriptor,
    ) -> None:
        super().__init__(backend, table, ttl)
        self._fold = descriptor.fold_function
        self._initial = serialize_to_bytes(descriptor.type, descriptor.initial_value)

    def get(self) -> Any:
        return self._get()

    def add(self, value: Any) -> None:
        old = self._get()
        if old is None:
            # A new accumulator each time: a fold may change it in place.
            old = deserialize_exactly(self._serializer, self._initial)
        self._set(self._fold(old, value))
