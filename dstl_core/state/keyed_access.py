"""The keyed states as functions see them: value, list, map, reducing, aggregating, folding.

Each works on the table of its state, for the current key of the backend, and tells the logger of
every change after it happened. Source: ``AbstractHeapState`` and its kinds, the ``Changelog*State``
and the ``Ttl*State`` classes of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.serializers import AnySerializer, deserialize_exactly, serialize_to_bytes
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.errors import InvariantViolation
from dstl_core.state.descriptor import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.table import (
    ListTable,
    MapTable,
    StateTable,
    ValueTable,
    counted_elements,
    join_elements,
)
from dstl_core.state.ttl import TtlPolicy, unwrap

if TYPE_CHECKING:
    from dstl_core.state.backend import KeyedStateBackend

VOID_NAMESPACE = b"\0"
_NULL = b"\1"
Table = TypeVar("Table", bound=StateTable[Any])


class State(Generic[Table]):
    """Base: where the current key's entry is. A state has a current namespace of its own."""

    def __init__(self, backend: KeyedStateBackend, table: Table, ttl: TtlPolicy | None) -> None:
        self._backend = backend
        self._table = table
        self._ttl = ttl
        self._namespace = VOID_NAMESPACE

    @property
    def name(self) -> str:
        return self._table.meta.name

    def set_current_namespace(self, namespace: Any) -> None:
        """The namespace (e.g. the window) that all accesses speak of until the next call."""
        self._namespace = serialize_to_bytes(self._table.meta.namespace_serializer, namespace)

    def _place(self) -> tuple[MutableMapping[bytes, Any], bytes]:
        """The entries of the current key group, and the scope of the current key."""
        backend = self._backend
        return self._table.group(backend.current_key_group), backend.current_key + self._namespace

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
                backend.current_key + self._namespace,
                operands,
            )

    def _scope_of(self, namespace: Any) -> bytes:
        serializer = self._table.meta.namespace_serializer
        return self._backend.current_key + serialize_to_bytes(serializer, namespace)


class _SingleValue(State[ValueTable]):
    """One stored value per scope."""

    def __init__(
        self, backend: KeyedStateBackend, table: ValueTable, ttl: TtlPolicy | None
    ) -> None:
        super().__init__(backend, table, ttl)
        serializer = table.meta.value_serializer
        if ttl is not None and isinstance(serializer, TtlSerializer):
            serializer = serializer.value
        self._serializer: AnySerializer = serializer

    def _read(self) -> bytes | None:
        """The bytes of the value that is seen, without its time."""
        group, scope = self._place()
        stored: bytes | None = group.get(scope)
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
        group, scope = self._place()
        group[scope] = raw if self._ttl is None else self._ttl.wrap(raw)
        self._log_value()

    def _log_value(self) -> None:
        backend = self._backend
        if self._ttl is not None:
            backend.clean_up(self._table, self._ttl)
        if backend.logger is not None:
            backend.logger.value_updated(
                self._table, backend.current_key_group, backend.current_key + self._namespace
            )

    def clear(self) -> None:
        group, scope = self._place()
        group.pop(scope, None)
        self._log_value()

    def _get(self) -> Any:
        raw = self._read()
        return None if raw is None else deserialize_exactly(self._serializer, raw)

    def _set(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._write(serialize_to_bytes(self._serializer, value))

    def get_internal(self) -> Any:
        """The stored value or accumulator; None without one."""
        return self._get()

    def update_internal(self, value: Any) -> None:
        """Stores a value or accumulator as it is; None clears."""
        self._set(value)

    def _take_namespaces(self, sources: Iterable[Any]) -> list[Any]:
        """Removes the entries of other namespaces; gives their values."""
        found = []
        namespace = self._namespace
        for each in sources:
            self.set_current_namespace(each)
            value = self._get()
            if value is not None:
                found.append(value)
                self.clear()
        self._namespace = namespace
        return found

    def _merge_into(self, target: Any, sources: Iterable[Any], merge: Any) -> None:
        # Logged as what came of it: a reader of the log does not have the function.
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
    """One value for the current key; None is "no value"."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        table: ValueTable,
        ttl: TtlPolicy | None = None,
        default: Any = None,
    ) -> None:
        super().__init__(backend, table, ttl)
        self._default = default

    def value(self) -> Any:
        raw = self._read()
        return self._default if raw is None else deserialize_exactly(self._serializer, raw)

    def update(self, value: Any) -> None:
        self._set(value)


class ReducingState(_SingleValue):
    """The reduction of all added values."""

    def __init__(
        self,
        backend: KeyedStateBackend,
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
        """Reduces the values of other namespaces of the current key into that of ``target``."""
        self._merge_into(target, sources, self._reduce)


class AggregatingState(_SingleValue):
    """The accumulator of all added values."""

    def __init__(
        self,
        backend: KeyedStateBackend,
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
        backend: KeyedStateBackend,
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
            # A fresh one each time: a fold may change its accumulator in place.
            old = deserialize_exactly(self._serializer, self._initial)
        self._set(self._fold(old, value))


class ListState(State[ListTable]):
    """A list for the current key; an empty list is "no list"."""

    def __init__(
        self, backend: KeyedStateBackend, table: ListTable, ttl: TtlPolicy | None = None
    ) -> None:
        super().__init__(backend, table, ttl)
        element = table.element
        if ttl is not None and isinstance(element, TtlSerializer):
            element = element.value
        self._element = element

    def get(self) -> list[Any]:
        group, scope = self._place()
        stored = group.get(scope)
        if stored is None:
            return []
        if self._ttl is None:
            return self._table.read_elements(stored)
        return self._get_with_ttl(stored, self._ttl)

    def _get_with_ttl(self, stored: bytes, ttl: TtlPolicy) -> list[Any]:
        parts = self._table.split_elements(stored)
        alive = [part for part in parts if not ttl.is_expired(part)]
        if not alive:
            self.clear()
        elif ttl.updates_on_read:
            self._set_raw([ttl.wrap(unwrap(part)) for part in alive])
        seen = parts if ttl.returns_expired else alive
        return [deserialize_exactly(self._element, unwrap(part)) for part in seen]

    def _encode(self, element: Any) -> bytes:
        raw = serialize_to_bytes(self._element, element)
        return raw if self._ttl is None else self._ttl.wrap(raw)

    def add(self, element: Any) -> None:
        raw = self._encode(element)
        backend = self._backend
        self._table.add(backend.current_key_group, backend.current_key + self._namespace, raw)
        self._log(StateChangeOperation.ADD_ELEMENT, raw)

    def add_all(self, elements: Iterable[Any]) -> None:
        raw = [self._encode(element) for element in elements]
        if not raw:
            return
        backend = self._backend
        scope = backend.current_key + self._namespace
        self._table.add(backend.current_key_group, scope, join_elements(raw))
        self._log(StateChangeOperation.ADD, counted_elements(raw))

    def update(self, elements: Iterable[Any]) -> None:
        raw = [self._encode(element) for element in elements]
        if not raw:
            self.clear()
            return
        self._set_raw(raw)

    def _set_raw(self, raw: list[bytes]) -> None:
        group, scope = self._place()
        group[scope] = join_elements(raw)
        self._log(StateChangeOperation.SET, counted_elements(raw))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Moves the elements of other namespaces of the current key behind those of ``target``."""
        namespace_serializer = self._table.meta.namespace_serializer
        backend, namespace = self._backend, self._namespace
        names = [each for each in sources if each != target]
        moved = False
        self.set_current_namespace(target)
        group, scope = self._place()
        for each in names:
            stored = group.pop(self._scope_of(each), None)
            if stored is not None:
                moved = True
                self._table.add(backend.current_key_group, scope, stored)
        if moved:
            out = DataOutput()
            namespace_serializer.serialize(target, out)
            out.write_i32(len(names))
            for each in names:
                namespace_serializer.serialize(each, out)
            self._log(StateChangeOperation.MERGE_NS, out.to_bytes())
        self._namespace = namespace


class MapState(State[MapTable]):
    """A map for the current key; an empty map is "no map". Values may be None."""

    def __init__(
        self, backend: KeyedStateBackend, table: MapTable, ttl: TtlPolicy | None = None
    ) -> None:
        super().__init__(backend, table, ttl)
        serializer = table.serializer
        self._key = serializer.key
        value = serializer.value
        if ttl is not None and isinstance(value, TtlSerializer):
            value = value.value
        self._value = value

    # ------------------------------------------------------------------------------ reading

    def _pairs(self) -> Mapping[bytes, bytes]:
        group, scope = self._place()
        pairs = group.get(scope)
        return {} if pairs is None else pairs

    def get(self, key: Any) -> Any:
        """The value of a user key; None if there is none."""
        user_key = serialize_to_bytes(self._key, key)
        stored = self._pairs().get(user_key)
        if stored is None or not self._is_seen(user_key, stored):
            return None
        return self._decode(stored)

    def contains(self, key: Any) -> bool:
        user_key = serialize_to_bytes(self._key, key)
        stored = self._pairs().get(user_key)
        return stored is not None and self._is_seen(user_key, stored)

    def _is_seen(self, user_key: bytes, stored: bytes) -> bool:
        """Whether a pair is visible; one that has expired goes."""
        ttl = self._ttl
        if ttl is None or stored[:1] == _NULL:
            return True
        if ttl.is_expired(stored[1:]):
            self._remove(user_key)
            return ttl.returns_expired
        if ttl.updates_on_read:
            self._put(user_key, stored[:1] + ttl.wrap(unwrap(stored[1:])))
        return True

    def _decode(self, stored: bytes) -> Any:
        if stored[:1] == _NULL:
            return None
        raw = stored[1:] if self._ttl is None else unwrap(stored[1:])
        return deserialize_exactly(self._value, raw)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """The pairs as they were when the iteration began."""
        for user_key, stored in list(self._pairs().items()):
            if self._is_seen(user_key, stored):
                yield deserialize_exactly(self._key, user_key), self._decode(stored)

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """As ``items``, by Flink's name."""
        return self.items()

    def keys(self) -> Iterator[Any]:
        return (key for key, _ in self.items())

    def values(self) -> Iterator[Any]:
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        if self._ttl is None:
            return not self._pairs()
        return next(self.items(), None) is None

    # ------------------------------------------------------------------------------ writing

    def _encode(self, value: Any) -> bytes:
        if value is None:
            return _NULL
        raw = serialize_to_bytes(self._value, value)
        return b"\0" + (raw if self._ttl is None else self._ttl.wrap(raw))

    def put(self, key: Any, value: Any) -> None:
        self._put(serialize_to_bytes(self._key, key), self._encode(value))

    def _put(self, user_key: bytes, stored: bytes) -> None:
        group, scope = self._place()
        group.setdefault(scope, {})[user_key] = stored
        if stored[:1] == _NULL:
            # The record of a single pair has no flag for null.
            self._log(StateChangeOperation.ADD, _counted_pairs({user_key: stored}))
        else:
            self._log(StateChangeOperation.ADD_OR_UPDATE_ELEMENT, user_key + stored[1:])

    def put_all(self, pairs: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        added = {serialize_to_bytes(self._key, key): self._encode(value) for key, value in items}
        if not added:
            return
        group, scope = self._place()
        group.setdefault(scope, {}).update(added)
        self._log(StateChangeOperation.ADD, _counted_pairs(added))

    def remove(self, key: Any) -> None:
        self._remove(serialize_to_bytes(self._key, key))

    def _remove(self, user_key: bytes) -> None:
        group, scope = self._place()
        self._table.remove_pair(group, scope, user_key)
        self._log(StateChangeOperation.REMOVE_ELEMENT, user_key)


def _counted_pairs(pairs: Mapping[bytes, bytes]) -> bytes:
    """The form of a map in the changelog: i32 count, (key, bool is null, [value])."""
    out = DataOutput()
    out.write_i32(len(pairs))
    for user_key, stored in pairs.items():
        out.write_bytes(user_key)
        out.write_bytes(stored)
    return out.to_bytes()


def bind_state(
    backend: KeyedStateBackend,
    descriptor: StateDescriptor,
    table: StateTable[Any],
    ttl: TtlPolicy | None,
) -> State[Any]:
    """The state of a descriptor on its table, which has the same kind."""
    match descriptor, table:
        case ValueStateDescriptor(), ValueTable():
            return ValueState(backend, table, ttl, descriptor.default_value)
        case ReducingStateDescriptor(), ValueTable():
            return ReducingState(backend, table, ttl, descriptor)
        case AggregatingStateDescriptor(), ValueTable():
            return AggregatingState(backend, table, ttl, descriptor)
        case FoldingStateDescriptor(), ValueTable():
            return FoldingState(backend, table, ttl, descriptor)
        case ListStateDescriptor(), ListTable():
            return ListState(backend, table, ttl)
        case MapStateDescriptor(), MapTable():
            return MapState(backend, table, ttl)
        case _:
            raise InvariantViolation(f"{descriptor} has a table of another kind")
