"""Tables of keyed state: one per state, entries by key group and scope, values as bytes.

Values stay serialized in the canonical form. A restore only slices bytes. An update writes the same
bytes to the changelog, and a snapshot writes them unchanged. Only values that a function reads are
decoded.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.composite_key import CompositeKeyCodec
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    OpaqueValue,
    VoidNamespaceSerializer,
    deserialize_bounded,
)
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import ConfigError, FormatError, InvariantViolation, UnreadableValueError
from dstl_core.state.tables.store import HEAP, Groups, Shape
from dstl_core.state.tables.ttl import TtlPolicy

LIST_DELIMITER = 0x2C
VOID_NAMESPACE = b"\0"
"""The bytes of the only namespace of states without namespaces."""
_REPLACING = (
    StateChangeOperation.SET,
    StateChangeOperation.SET_INTERNAL,
    StateChangeOperation.CLEAR,
)
Stored = TypeVar("Stored")


class StateTable(ABC, Generic[Stored]):
    """The entries of one state. ``groups[key group][scope]`` is a stored value.

    A scope is the bytes of key and namespace. The store keeps the groups in memory or on disk.
    """

    shape: ClassVar[Shape] = Shape.ROWS

    def __init__(
        self,
        meta: StateMetaInfoSnapshot,
        key_serializer: AnySerializer,
        prefix_bytes: int,
        store_groups: Groups | None = None,
    ) -> None:
        self.meta = meta
        self.store_groups = HEAP.open_table(self.shape) if store_groups is None else store_groups
        self.groups: dict[int, MutableMapping[bytes, Stored]] = {}
        self.lost: dict[tuple[int, bytes | None], str] = {}
        """Why an entry could not be restored, by key group and scope. A scope of None stands for
        any number of entries of the key group. Lost entries are not in ``groups``.
        """
        self.codec = CompositeKeyCodec(
            prefix_bytes,
            key_serializer,
            VoidNamespaceSerializer() if meta.is_queue else meta.namespace_serializer,
        )

    def group(self, key_group: int) -> MutableMapping[bytes, Stored]:
        group = self.groups.get(key_group)
        if group is None:
            if key_group < 0:
                raise ConfigError("State was accessed without a current key; set the key first.")
            group = self.groups[key_group] = self.store_groups.new_group(key_group)
        return group

    def get_many(self, key_groups: Sequence[int], scopes: Sequence[bytes]) -> list[Stored | None]:
        """The stored values of many scopes in one call; None for a scope without a value."""
        for key_group in set(key_groups):
            self.group(key_group)
        return self.store_groups.get_many(self.groups, key_groups, scopes)

    def put_many(
        self, key_groups: Sequence[int], scopes: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        """Stores the values of many scopes in their order; None removes one. For rows only."""
        for key_group in set(key_groups):
            self.group(key_group)
        self.store_groups.put_many(self.groups, key_groups, scopes, values)

    def frozen(self, view: object) -> StateTable[Stored]:
        """The table as it was when its store made the view, for reading only."""
        twin = copy.copy(self)
        twin.groups = self.store_groups.frozen(self.groups, view)
        return twin

    @abstractmethod
    def load(self, stored_key: bytes, value: bytes) -> None:
        """Adds one record of the canonical form."""

    def load_record(self, key_group: int, stored_key: bytes, value: bytes) -> None:
        """As ``load``; a record whose key only Java classes can read becomes a lost entry."""
        try:
            self.load(stored_key, value)
        except UnreadableValueError as error:
            self.lost[key_group, None] = error.message

    def records(self, key_group: int) -> Iterator[tuple[bytes, Any]]:
        """The records of a key group in canonical form."""
        rows = self.groups.get(key_group, {}).items()
        if self.codec.is_ambiguous:
            return ((self._stored_key(key_group, scope), value) for scope, value in rows)
        prefix = key_group.to_bytes(self.codec.prefix_bytes, "big")
        return ((prefix + scope, value) for scope, value in rows)

    def live_records(self, key_group: int, ttl: TtlPolicy) -> Iterator[tuple[bytes, bytes]]:
        """As ``records``, without expired entries."""
        raise InvariantViolation(f"{type(self).__name__} has no time to live")

    def is_expired(self, stored: Stored, ttl: TtlPolicy) -> bool:
        """Whether the whole entry has expired."""
        raise InvariantViolation(f"{type(self).__name__} has no time to live")

    @abstractmethod
    def load_entry(
        self, key_group: int, scope: bytes, value: bytes, pairs: Iterable[tuple[bytes, bytes]]
    ) -> None:
        """Adds one entry: its canonical value, or the pairs of a map."""

    def apply(self, operation: StateChangeOperation, key_group: int, body: DataInput) -> None:
        """Applies one change of the changelog.

        If only Java classes can read a change, the entry is lost until a later change replaces the
        whole entry.
        """
        scope = None
        try:
            scope = self._scope(body)
            if (key_group, scope) in self.lost:
                if operation is StateChangeOperation.MERGE_NS:
                    self._merge_namespaces(key_group, scope, body)
                if operation not in _REPLACING:
                    return
                del self.lost[key_group, scope]
            self._apply(operation, key_group, scope, body)
        except UnreadableValueError as error:
            if scope is not None:
                self.group(key_group).pop(scope, None)
            self.lost[key_group, scope] = error.message

    @abstractmethod
    def _apply(
        self, operation: StateChangeOperation, key_group: int, scope: bytes, body: DataInput
    ) -> None:
        """Applies a change of one scope; ``body`` has the bytes after the scope."""

    @abstractmethod
    def decode(self, scope: bytes, stored: Stored) -> tuple[Any, Any, Any]:
        """``(key, namespace, value)`` of an entry."""

    def entries(self, key_group: int) -> Iterator[tuple[Any, Any, Any]]:
        """Every entry of a key group, decoded."""
        for scope, stored in self.groups.get(key_group, {}).items():
            yield self.decode(scope, stored)

    def _stored_key(self, key_group: int, scope: bytes, user_key: bytes = b"") -> bytes:
        if self.codec.is_ambiguous:
            key, namespace = self.codec.read_scope(DataInput(scope))
            return self.codec.encode(key_group, key, namespace, user_key)
        return self.codec.encode(key_group, scope, b"", user_key)

    def _scope(self, body: DataInput) -> bytes:
        key, namespace = self.codec.read_scope(body)
        return key + namespace

    def _merge_namespaces(
        self, key_group: int, scope: bytes, body: DataInput
    ) -> list[tuple[bytes, Stored]]:
        """Reads a merge: removes and returns the existing entries of the source namespaces.

        Raises:
            UnreadableValueError: One of these entries is lost.
        """
        key, target = self.codec.read_scope(DataInput(scope))
        again = body.read_value(self.codec.namespace_serializer)
        if again != target:
            raise FormatError(
                f"A merge of state {self.meta.name!r} contradicts itself",
                field="target namespace",
                expected=target.hex(),
                got=again.hex(),
            )
        count = body.read_count("merged namespaces", 1)
        sources = [key + body.read_value(self.codec.namespace_serializer) for _ in range(count)]
        body.expect_end("a change that merges namespaces")
        group = self.group(key_group)
        pairs = [(each, group.pop(each)) for each in sources if each != scope and each in group]
        reasons = [self.lost.pop((key_group, each), None) for each in sources]
        for reason in reasons:
            if reason is not None:
                raise UnreadableValueError(reason)
        return pairs

    def _unknown(self, operation: StateChangeOperation) -> FormatError:
        return FormatError(
            f"The changelog holds an operation that state {self.meta.name!r} does not have",
            expected=f"one of {type(self).__name__}",
            got=operation.name,
        )


class _OfScopes(StateTable[bytes]):
    """A state with one record for each scope."""

    def load(self, stored_key: bytes, value: bytes) -> None:
        key_group, key, namespace, rest = self.codec.split(stored_key)
        _expect_no_rest(rest, self.meta.name)
        group, scope = self.group(key_group), key + namespace
        _expect_once(scope in group, self.meta.name)
        group[scope] = value

    def load_entry(
        self, key_group: int, scope: bytes, value: bytes, pairs: Iterable[tuple[bytes, bytes]]
    ) -> None:
        self.group(key_group)[scope] = value


class ValueTable(_OfScopes):
    """Value, reducing and aggregating state: one value per scope."""

    def live_records(self, key_group: int, ttl: TtlPolicy) -> Iterator[tuple[bytes, bytes]]:
        return (each for each in self.records(key_group) if not ttl.is_expired(each[1]))

    def is_expired(self, stored: bytes, ttl: TtlPolicy) -> bool:
        return ttl.is_expired(stored)

    def _apply(
        self, operation: StateChangeOperation, key_group: int, scope: bytes, body: DataInput
    ) -> None:
        match operation:
            case StateChangeOperation.SET | StateChangeOperation.SET_INTERNAL:
                self.group(key_group)[scope] = body.read_bytes(body.remaining)
            case StateChangeOperation.CLEAR:
                self.group(key_group).pop(scope, None)
                body.expect_end("a change that clears")
            case StateChangeOperation.MERGE_NS:
                self._merge(key_group, scope, body)
            case _:
                raise self._unknown(operation)

    def _merge(self, key_group: int, scope: bytes, body: DataInput) -> None:
        merged = self._merge_namespaces(key_group, scope, body)
        group = self.group(key_group)
        if not merged:
            return
        if len(merged) == 1 and scope not in group:
            group[scope] = merged[0][1]
            return
        raise UnreadableValueError(
            f"The changelog merges values of state {self.meta.name!r}, which only the job's own "
            f"function can do, and no later change has the result"
        )

    def decode(self, scope: bytes, stored: bytes) -> tuple[Any, Any, Any]:
        return *self.codec.decode_scope(scope), deserialize_bounded(
            self.meta.value_serializer, stored
        )


class ListTable(_OfScopes):
    """List state: elements separated by a comma byte, without a count."""

    @property
    def element(self) -> AnySerializer:
        serializer = self.meta.value_serializer
        if not isinstance(serializer, ListSerializer):
            raise FormatError(
                f"List state {self.meta.name!r} has another type",
                expected="List",
                got=serializer.type_name,
            )
        return serializer.element

    def live_records(self, key_group: int, ttl: TtlPolicy) -> Iterator[tuple[bytes, bytes]]:
        for key, stored in self.records(key_group):
            alive = [each for each in self.split_elements(stored) if not ttl.is_expired(each)]
            if alive:
                yield key, join_elements(alive)

    def is_expired(self, stored: bytes, ttl: TtlPolicy) -> bool:
        return all(map(ttl.is_expired, self.split_elements(stored)))

    def _apply(
        self, operation: StateChangeOperation, key_group: int, scope: bytes, body: DataInput
    ) -> None:
        group = self.group(key_group)
        match operation:
            case StateChangeOperation.CLEAR:
                group.pop(scope, None)
                body.expect_end("a change that clears")
            case StateChangeOperation.MERGE_NS:
                for _, elements in self._merge_namespaces(key_group, scope, body):
                    self.add(key_group, scope, elements)
            case StateChangeOperation.ADD_ELEMENT:
                self.add(key_group, scope, body.read_bytes(body.remaining))
            case StateChangeOperation.SET | StateChangeOperation.SET_INTERNAL:
                group.pop(scope, None)
                self._add_all(key_group, scope, body)
            case StateChangeOperation.ADD:
                self._add_all(key_group, scope, body)
            case _:
                raise self._unknown(operation)

    def add(self, key_group: int, scope: bytes, element: bytes) -> None:
        """Appends the bytes of one element, or of several joined elements."""
        group = self.group(key_group)
        old = group.get(scope)
        group[scope] = element if old is None else b"%b,%b" % (old, element)

    def _add_all(self, key_group: int, scope: bytes, counted: DataInput) -> None:
        element = self.element
        count = counted.read_count("list size", max(1, element.length))
        added = [counted.read_value(element) for _ in range(count)]
        counted.expect_end("a list")
        if added:  # an empty list is not stored
            self.add(key_group, scope, join_elements(added))

    def decode(self, scope: bytes, stored: bytes) -> tuple[Any, Any, Any]:
        key, namespace = self.codec.decode_scope(scope)
        try:
            return key, namespace, self.read_elements(stored)
        except UnreadableValueError as error:
            # The bounds of the list are known, but not those of its elements.
            name = self.meta.value_serializer.type_name
            return key, namespace, OpaqueValue(name, stored, error.what)

    def read_elements(self, stored: bytes) -> list[Any]:
        element = self.element
        return [element.deserialize(data) for data in self._walk(stored)]

    def split_elements(self, stored: bytes) -> list[bytes]:
        element = self.element
        return [data.read_value(element) for data in self._walk(stored)]

    def _walk(self, stored: bytes) -> Iterator[DataInput]:
        """Yields the input before each element; the caller reads the element from it."""
        data = DataInput(stored)
        yield data
        while data.remaining:
            at = data.position
            got = data.read_u8("list delimiter")
            if got != LIST_DELIMITER:
                raise FormatError(
                    f"A list of state {self.meta.name!r} is damaged",
                    offset=at,
                    field="list delimiter",
                    expected=LIST_DELIMITER,
                    got=got,
                )
            yield data


class MapTable(StateTable[MutableMapping[bytes, bytes]]):
    """Map state: a value, with its null flag, per user key."""

    shape = Shape.PAIRS

    @property
    def serializer(self) -> MapSerializer:
        serializer = self.meta.value_serializer
        if not isinstance(serializer, MapSerializer):
            raise FormatError(
                f"Map state {self.meta.name!r} has another type",
                expected="Map",
                got=serializer.type_name,
            )
        return serializer

    def load(self, stored_key: bytes, value: bytes) -> None:
        key_group, key, namespace, user_key = self.codec.split(stored_key)
        pairs = self.group(key_group).setdefault(key + namespace, {})
        _expect_once(user_key in pairs, self.meta.name)
        pairs[user_key] = value

    def records(self, key_group: int) -> Iterator[tuple[bytes, bytes]]:
        for scope, pairs in self.groups.get(key_group, {}).items():
            for user_key, value in pairs.items():
                yield self._stored_key(key_group, scope, user_key), value

    def live_records(self, key_group: int, ttl: TtlPolicy) -> Iterator[tuple[bytes, bytes]]:
        return (each for each in self.records(key_group) if not _is_expired_pair(each[1], ttl))

    def is_expired(self, stored: MutableMapping[bytes, bytes], ttl: TtlPolicy) -> bool:
        return all(_is_expired_pair(value, ttl) for value in stored.values())

    def load_entry(
        self, key_group: int, scope: bytes, value: bytes, pairs: Iterable[tuple[bytes, bytes]]
    ) -> None:
        self.group(key_group)[scope] = dict(pairs)

    def _apply(
        self, operation: StateChangeOperation, key_group: int, scope: bytes, body: DataInput
    ) -> None:
        group = self.group(key_group)
        match operation:
            case StateChangeOperation.CLEAR:
                group.pop(scope, None)
                body.expect_end("a change that clears")
            case StateChangeOperation.ADD_OR_UPDATE_ELEMENT | StateChangeOperation.ADD_ELEMENT:
                user_key = body.read_value(self.serializer.key)
                group.setdefault(scope, {})[user_key] = b"\0" + body.read_bytes(body.remaining)
            case StateChangeOperation.REMOVE_ELEMENT:
                user_key = body.read_value(self.serializer.key)
                body.expect_end("a change that removes")
                self.remove_pair(group, scope, user_key)
            case StateChangeOperation.ADD:
                added = self._read_pairs(body)
                if added:  # an empty map is not stored
                    group.setdefault(scope, {}).update(added)
            case _:
                raise self._unknown(operation)

    def remove_pair(
        self, group: MutableMapping[bytes, MutableMapping[bytes, bytes]], scope: bytes, key: bytes
    ) -> None:
        """Removes a pair; removes the entry with its last pair."""
        pairs = group.get(scope)
        if pairs is None:
            return
        pairs.pop(key, None)
        if not pairs:
            group.pop(scope, None)

    def _read_pairs(self, body: DataInput) -> dict[bytes, bytes]:
        pairs = {}
        for _ in range(body.read_count("map size", 1)):
            user_key = body.read_value(self.serializer.key)
            if body.read_bool("map value is null"):
                pairs[user_key] = b"\1"
            else:
                pairs[user_key] = b"\0" + body.read_value(self.serializer.value)
        body.expect_end("a map")
        return pairs

    def decode(self, scope: bytes, stored: MutableMapping[bytes, bytes]) -> tuple[Any, Any, Any]:
        serializer = self.serializer
        pairs = []
        for user_key, value in stored.items():
            data = DataInput(value)
            # A heap backend writes the serializer's null after the flag; only the flag matters.
            is_null = data.read_bool("map value is null")
            item = None if is_null else deserialize_bounded(serializer.value, value[1:])
            pairs.append((deserialize_bounded(serializer.key, user_key), item))
        return *self.codec.decode_scope(scope), pairs


def _is_expired_pair(value: bytes, ttl: TtlPolicy) -> bool:
    """Whether a pair has expired. A null value has no time stamp and never expires."""
    return not value[0] and ttl.is_expired(value[1:])


def join_elements(elements: Sequence[bytes]) -> bytes:
    """The stored form of a list."""
    return b",".join(elements)


def counted_elements(elements: Sequence[bytes]) -> bytes:
    """The form of a list in the changelog: i32 count, elements."""
    out = DataOutput()
    out.write_i32(len(elements))
    for element in elements:
        out.write_bytes(element)
    return out.to_bytes()


def _expect_once(is_there: bool, state: str) -> None:
    if is_there:
        raise FormatError(f"State {state!r} has the same key twice", expected="once")


def _expect_no_rest(rest: bytes, state: str) -> None:
    if rest:
        raise FormatError(
            f"A stored key of state {state!r} has bytes left", expected=0, got=len(rest)
        )
