"""List state and map state, as functions use them.

Source: ``HeapListState``, ``HeapMapState``, ``ChangelogListState``, ``ChangelogMapState``,
``TtlListState`` and ``TtlMapState`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.python_values import AsPython, seen_as
from dstl_core.codec.serializers import (
    AnySerializer,
    deserialize_exactly,
    serialize_key,
    serialize_to_bytes,
)
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.errors import ConfigError
from dstl_core.state.backends.current_key import CurrentKey
from dstl_core.state.backends.keyed_access import State
from dstl_core.state.tables.state_table import ListTable, MapTable, counted_elements, join_elements
from dstl_core.state.tables.ttl import TtlPolicy, unwrap

_NULL = b"\1"


def null_element(state: str) -> ConfigError:
    """The error for a null element. ``HeapListState.add`` of Flink refuses it, too."""
    return ConfigError(
        f"A null cannot be added to the list state {state!r}; leave it out, or make the elements "
        f"rows with a field that may be null."
    )


class ListState(State[ListTable]):
    """The list of the current key; an empty list is not stored."""

    def __init__(self, backend: CurrentKey, table: ListTable, ttl: TtlPolicy | None = None) -> None:
        super().__init__(backend, table, ttl)
        element = table.element
        if ttl is not None and isinstance(element, TtlSerializer):
            element = element.value
        self._element = element
        self._added = backend.added_elements(table)

    def declare(self, declared: AnySerializer) -> Self:
        """Converts elements from and to the declared type from now on."""
        self._element = seen_as(declared, self._element)
        return self

    def _settle(self) -> None:
        """Stores and logs what the batch that applies has added to the list of the current key."""
        if self._added is not None:
            raw = self._added.take(self._backend.slot)
            if raw:
                self._append(raw)

    def clear(self) -> None:
        """Removes the list of the current key."""
        if self._added is not None:
            self._added.take(self._backend.slot)
        super().clear()

    def get(self) -> list[Any]:
        self._settle()
        group, scope = self._place()
        stored = group.get(scope)
        if stored is None:
            return []
        if self._ttl is None:
            elements = self._table.read_elements(stored)
            element = self._element
            if isinstance(element, AsPython):
                return [element.form.to_python(each) for each in elements]
            return elements
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
        if element is None:
            raise null_element(self._table.meta.name)
        raw = serialize_to_bytes(self._element, element)
        return raw if self._ttl is None else self._ttl.wrap(raw)

    def add(self, element: Any) -> None:
        """Appends an element.

        Raises:
            ConfigError: The element is None, which Flink's list state refuses.
        """
        backend, added = self._backend, self._added
        if added is None or backend.slot < 0:
            raw = self._encode(element)
            self._table.add(backend.current_key_group, backend.scope(self._namespace), raw)
            self._log(StateChangeOperation.ADD_ELEMENT, raw)
            return
        is_plain = added.form.exact is not None and element is not None
        held = added.form.normal(element) if is_plain else self._encode(element)
        if self._ttl is not None:
            backend.clean_up(self._table, self._ttl)
        if not added.add(backend.slot, held):
            backend.write_back(added)

    def add_all(self, elements: Iterable[Any]) -> None:
        """Appends elements; nothing is changed if one is None."""
        raw = [self._encode(element) for element in elements]
        if raw:
            self._settle()
            self._append(raw)

    def _append(self, raw: Sequence[bytes]) -> None:
        backend = self._backend
        scope = backend.scope(self._namespace)
        self._table.add(backend.current_key_group, scope, join_elements(raw))
        self._log(StateChangeOperation.ADD, counted_elements(raw))

    def update(self, elements: Iterable[Any]) -> None:
        """Replaces the list; nothing is changed if an element is None."""
        raw = [self._encode(element) for element in elements]
        if not raw:
            self.clear()
            return
        self._set_raw(raw)

    def _set_raw(self, raw: list[bytes]) -> None:
        if self._added is not None:
            self._added.take(self._backend.slot)
        group, scope = self._place()
        group[scope] = join_elements(raw)
        self._log(StateChangeOperation.SET, counted_elements(raw))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Appends the elements of other namespaces of the current key to those of ``target``."""
        namespace_serializer = self._table.meta.namespace_serializer
        backend, namespace = self._backend, self._namespace
        names = [each for each in sources if each != target]
        moved = False
        self.set_current_namespace(target)
        group, scope = self._place()
        for merged_namespace in names:
            stored = group.pop(self._scope_of(merged_namespace), None)
            if stored is not None:
                moved = True
                self._table.add(backend.current_key_group, scope, stored)
        if moved:
            out = DataOutput()
            namespace_serializer.serialize(target, out)
            out.write_i32(len(names))
            for merged_namespace in names:
                namespace_serializer.serialize(merged_namespace, out)
            self._log(StateChangeOperation.MERGE_NS, out.to_bytes())
        self._namespace = namespace


class MapState(State[MapTable]):
    """The map of the current key; an empty map is not stored. Values may be None."""

    def __init__(self, backend: CurrentKey, table: MapTable, ttl: TtlPolicy | None = None) -> None:
        super().__init__(backend, table, ttl)
        serializer = table.serializer
        self._key = serializer.key
        value = serializer.value
        if ttl is not None and isinstance(value, TtlSerializer):
            value = value.value
        self._value = value

    def declare(self, key: AnySerializer, value: AnySerializer) -> Self:
        """Converts pairs from and to the declared types from now on."""
        self._key = seen_as(key, self._key)
        self._value = seen_as(value, self._value)
        return self

    # ------------------------------------------------------------------------------ reading

    def _pairs(self) -> Mapping[bytes, bytes]:
        group, scope = self._place()
        pairs = group.get(scope)
        return {} if pairs is None else pairs

    def get(self, key: Any) -> Any:
        """The value of a user key; None if there is none."""
        user_key = serialize_key(self._key, key)
        stored = self._pairs().get(user_key)
        if stored is None or not self._is_seen(user_key, stored):
            return None
        return self._decode(stored)

    def contains(self, key: Any) -> bool:
        user_key = serialize_key(self._key, key)
        stored = self._pairs().get(user_key)
        return stored is not None and self._is_seen(user_key, stored)

    def _is_seen(self, user_key: bytes, stored: bytes) -> bool:
        """Whether a pair is visible; removes an expired one."""
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
        """Yields the pairs as they were when the iteration began."""
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
        self._put(serialize_key(self._key, key), self._encode(value))

    def _put(self, user_key: bytes, stored: bytes) -> None:
        group, scope = self._place()
        group.setdefault(scope, {})[user_key] = stored
        if stored[:1] == _NULL:
            # The change record of a single pair has no null flag.
            self._log(StateChangeOperation.ADD, _counted_pairs({user_key: stored}))
        else:
            self._log(StateChangeOperation.ADD_OR_UPDATE_ELEMENT, user_key + stored[1:])

    def put_all(self, pairs: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        added = {serialize_key(self._key, key): self._encode(value) for key, value in items}
        if not added:
            return
        group, scope = self._place()
        group.setdefault(scope, {}).update(added)
        self._log(StateChangeOperation.ADD, _counted_pairs(added))

    def remove(self, key: Any) -> None:
        self._remove(serialize_key(self._key, key))

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
