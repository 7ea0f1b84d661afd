"""Descriptions of states, and the header of every keyed stream.

    header   := i32 6, bool compressed, snapshot key type, i16 n, n state descriptions
    snapshot := i32 2, serializer snapshot                   (top-level snapshots only)
    state    := utf name, i32 kind, i32 n, n (utf, utf) options, i32 n, n (utf, snapshot)

The index of a state in the list is its id in the body. Source: ``KeyedBackendSerializationProxy``
and ``StateMetaInfoSnapshotReadersWriters`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    SerializerRegistry,
    SnapshotContext,
    write_snapshot,
)
from dstl_core.codec.serializers.collections import ListSerializer, MapSerializer
from dstl_core.codec.serializers.runtime import VoidNamespaceSerializer
from dstl_core.codec.serializers.unknown import read_with_unknown
from dstl_core.errors import FormatError, UnsupportedVersionError

KEYED_BACKEND_VERSION = 6
SNAPSHOT_PROXY_VERSION = 2
MAX_STATES = 32767


class BackendStateType(Enum):
    """The category of a state; the value is its number on the wire."""

    KEY_VALUE = 0
    OPERATOR = 1
    BROADCAST = 2
    PRIORITY_QUEUE = 3
    KEY_VALUE_V2 = 4


class KeyedStateType(Enum):
    """The kind of a key-value state; the value is its text on the wire."""

    VALUE = "VALUE"
    LIST = "LIST"
    REDUCING = "REDUCING"
    AGGREGATING = "AGGREGATING"
    MAP = "MAP"
    FOLDING = "FOLDING"
    UNKNOWN = "UNKNOWN"


KEYED_STATE_TYPE = "KEYED_STATE_TYPE"
OPERATOR_STATE_DISTRIBUTION_MODE = "OPERATOR_STATE_DISTRIBUTION_MODE"
KEY_SERIALIZER = "KEY_SERIALIZER"
NAMESPACE_SERIALIZER = "NAMESPACE_SERIALIZER"
VALUE_SERIALIZER = "VALUE_SERIALIZER"
USER_KEY_SERIALIZER = "USER_KEY_SERIALIZER"
_NAMES = {KEY_SERIALIZER, NAMESPACE_SERIALIZER, VALUE_SERIALIZER, USER_KEY_SERIALIZER}


@dataclass(frozen=True)
class StateMetaInfoSnapshot:
    """Name, kind and serializers of one state.

    Options and serializers keep their order, so that writing returns the bytes that were read.
    """

    name: str
    backend_state_type: BackendStateType
    options: tuple[tuple[str, str], ...]
    serializers: tuple[tuple[str, AnySerializer], ...]

    @classmethod
    def key_value(
        cls,
        name: str,
        kind: KeyedStateType,
        value: AnySerializer,
        namespace: AnySerializer | None = None,
    ) -> StateMetaInfoSnapshot:
        """A key-value state; ``value`` is the serializer of the whole value."""
        return cls(
            name,
            BackendStateType.KEY_VALUE,
            ((KEYED_STATE_TYPE, kind.value),),
            (
                (VALUE_SERIALIZER, value),
                (NAMESPACE_SERIALIZER, namespace or VoidNamespaceSerializer()),
            ),
        )

    @classmethod
    def priority_queue(cls, name: str, element: AnySerializer) -> StateMetaInfoSnapshot:
        return cls(name, BackendStateType.PRIORITY_QUEUE, (), ((VALUE_SERIALIZER, element),))

    def as_key_value(self) -> StateMetaInfoSnapshot:
        """The same state with the serializer of its whole value, as ``KEY_VALUE`` has it.

        ``KEY_VALUE_V2`` (asynchronous state) has the serializers of an element and of the user key
        instead.
        """
        if self.backend_state_type is not BackendStateType.KEY_VALUE_V2:
            return self
        value = self.value_serializer
        if self.keyed_state_type is KeyedStateType.LIST:
            value = ListSerializer(value)
        elif self.keyed_state_type is KeyedStateType.MAP:
            value = MapSerializer(self.serializer(USER_KEY_SERIALIZER), value)
        return StateMetaInfoSnapshot.key_value(
            self.name, self.keyed_state_type, value, self.namespace_serializer
        )

    @property
    def is_queue(self) -> bool:
        """Whether the state is a queue of timers."""
        return self.backend_state_type is BackendStateType.PRIORITY_QUEUE

    @property
    def keyed_state_type(self) -> KeyedStateType:
        text = dict(self.options).get(KEYED_STATE_TYPE, "UNKNOWN")
        try:
            return KeyedStateType(text)
        except ValueError:
            raise FormatError(
                f"The kind of state {self.name!r} is unknown",
                expected=", ".join(kind.value for kind in KeyedStateType),
                got=text,
            ) from None

    def serializer(self, key: str) -> AnySerializer:
        for name, serializer in self.serializers:
            if name == key:
                return serializer
        raise FormatError(
            f"State {self.name!r} has no {key}",
            expected=key,
            got=", ".join(name for name, _ in self.serializers) or "none",
        )

    @property
    def value_serializer(self) -> AnySerializer:
        return self.serializer(VALUE_SERIALIZER)

    def with_value_serializer(self, value: AnySerializer) -> StateMetaInfoSnapshot:
        """The state with another type of values."""
        pairs = tuple(
            (name, value if name == VALUE_SERIALIZER else other) for name, other in self.serializers
        )
        return replace(self, serializers=pairs)

    @property
    def namespace_serializer(self) -> AnySerializer:
        return self.serializer(NAMESPACE_SERIALIZER)


@dataclass(frozen=True)
class KeyedBackendHeader:
    """The header of keyed state: the key serializer, and the states by id."""

    key_serializer: AnySerializer
    states: tuple[StateMetaInfoSnapshot, ...]
    compressed: bool = False


def read_keyed_header(data: DataInput, registry: SerializerRegistry) -> KeyedBackendHeader:
    """Reads a header.

    If a serializer class is unknown, ``data`` must end with the header: only that end determines
    the length of a snapshot of an unknown class.
    """
    return read_with_unknown(data, SnapshotContext(registry), _read_keyed_header, exact=False)


def _read_keyed_header(data: DataInput, context: SnapshotContext) -> KeyedBackendHeader:
    at = data.position
    version = data.read_i32("keyed backend version")
    if version != KEYED_BACKEND_VERSION:
        raise UnsupportedVersionError(
            "Keyed state of this version cannot be read",
            offset=at,
            expected=KEYED_BACKEND_VERSION,
            got=version,
        )
    compressed = data.read_bool("compressed")
    key_serializer = read_serializer(data, context)
    at = data.position
    count = data.read_i16("number of states")
    if count < 0:
        raise FormatError("The number of states is negative", offset=at, got=count)
    states: dict[tuple[str, bool], StateMetaInfoSnapshot] = {}
    for _ in range(count):
        at = data.position
        state = read_state_meta(data, context)
        name = (state.name, state.is_queue)
        if name in states:
            raise FormatError("A header describes a state twice", offset=at, got=state.name)
        states[name] = state
    return KeyedBackendHeader(key_serializer, tuple(states.values()), compressed)


def write_keyed_header(out: DataOutput, header: KeyedBackendHeader) -> None:
    if len(header.states) > MAX_STATES:
        raise FormatError(
            "Too many states in one backend", expected=f"<= {MAX_STATES}", got=len(header.states)
        )
    out.write_i32(KEYED_BACKEND_VERSION)
    out.write_bool(header.compressed)
    write_serializer(out, header.key_serializer)
    out.write_i16(len(header.states))
    for state in header.states:
        write_state_meta(out, state)


def read_serializer(data: DataInput, context: SnapshotContext) -> AnySerializer:
    """Reads a top-level serializer snapshot, which starts with a version."""
    data.read_expected_i32("serializer snapshot version", SNAPSHOT_PROXY_VERSION)
    return context.read_snapshot(data)


def write_serializer(out: DataOutput, serializer: AnySerializer) -> None:
    out.write_i32(SNAPSHOT_PROXY_VERSION)
    write_snapshot(out, serializer)


def read_state_meta(data: DataInput, context: SnapshotContext) -> StateMetaInfoSnapshot:
    name = data.read_utf("state name")
    at = data.position
    kind = data.read_i32("state kind")
    if not 0 <= kind <= 4:
        raise FormatError(
            f"The kind of state {name!r} is unknown", offset=at, expected="0..4", got=kind
        )
    options = tuple(
        (data.read_utf("option name"), data.read_utf("option value"))
        for _ in range(data.read_count("options", 4))
    )
    serializers = tuple(
        (data.read_utf("serializer name"), read_serializer(data, context))
        for _ in range(data.read_count("serializers", 12))
    )
    if context.unknown:
        required = {VALUE_SERIALIZER}
        if kind == BackendStateType.KEY_VALUE.value:
            required.add(NAMESPACE_SERIALIZER)
        _check_names(name, [each for each, _ in serializers], required, at)
    return StateMetaInfoSnapshot(name, BackendStateType(kind), options, serializers)


def _check_names(state: str, names: Sequence[str], required: set[str], at: int) -> None:
    """Refuses a wrong guess at the end of a snapshot of an unknown class.

    Such a class may hold snapshots that are readable. Their names then stand where the name of the
    next serializer would.
    """
    if not required <= {*names} <= _NAMES or len({*names}) < len(names):
        raise FormatError(
            f"State {state!r} has other serializers than a state has",
            offset=at,
            expected=", ".join(sorted(required)),
            got=", ".join(names) or "none",
        )


def write_state_meta(out: DataOutput, state: StateMetaInfoSnapshot) -> None:
    out.write_utf(state.name)
    out.write_i32(state.backend_state_type.value)
    out.write_i32(len(state.options))
    for key, value in state.options:
        out.write_utf(key)
        out.write_utf(value)
    out.write_i32(len(state.serializers))
    for key, serializer in state.serializers:
        out.write_utf(key)
        write_serializer(out, serializer)
