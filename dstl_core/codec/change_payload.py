"""The content of one change: an operation on a state, or the metadata of a state.

    data     := u8 operation, i16 state id, scope, operands      (scope: key, namespace; none for
                                                                  a priority queue)
    metadata := u8 8, i32 7, state description, [bool TTL [Java TTL config], bool default [value]],
                i16 state id, u8 kind                            (the bracket for key-value states)

Source: ``AbstractStateChangeLogger``, ``KvStateChangeLoggerImpl`` and
``ChangelogBackendLogApplier`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.java_stream import read_java_object
from dstl_core.codec.serializers.base import SerializerRegistry, SnapshotContext
from dstl_core.codec.serializers.unknown import read_with_unknown
from dstl_core.codec.state_meta import (
    BackendStateType,
    StateMetaInfoSnapshot,
    read_state_meta,
    write_state_meta,
)
from dstl_core.errors import FormatError, UnreadableValueError, UnsupportedVersionError

META_INFO_VERSION = 7
_LAST_FIELDS_BYTES = 3


class StateChangeOperation(Enum):
    """The operation of a change; the value is its byte on the wire."""

    CLEAR = 0
    SET = 1
    SET_INTERNAL = 2
    ADD = 3
    MERGE_NS = 4
    ADD_ELEMENT = 5
    ADD_OR_UPDATE_ELEMENT = 6
    REMOVE_ELEMENT = 7
    METADATA = 8


@dataclass(frozen=True)
class MetadataChange:
    """Binds a state id to a state, for the rest of one writer's log."""

    state_id: int
    state: StateMetaInfoSnapshot
    has_ttl: bool = False
    """Whether the change has a TTL configuration (a Java object). It is checked, then dropped."""
    default_value: bytes | None = None


@dataclass(frozen=True, slots=True)
class DataChange:
    """An operation on one state. ``body`` starts with the scope if it is a key-value state."""

    operation: StateChangeOperation
    state_id: int
    body: DataInput


def metadata_change(state_id: int, state: StateMetaInfoSnapshot) -> bytes:
    """The change that must come before the first data change of a state."""
    out = DataOutput()
    out.write_u8(StateChangeOperation.METADATA.value)
    out.write_i32(META_INFO_VERSION)
    write_state_meta(out, state)
    if state.backend_state_type is BackendStateType.KEY_VALUE:
        out.write_bool(False)  # no TTL configuration
        out.write_bool(False)  # no default value
    out.write_i16(state_id)
    out.write_u8(state.backend_state_type.value)
    return out.to_bytes()


def data_change(
    operation: StateChangeOperation, state_id: int, scope: bytes, operands: bytes = b""
) -> bytes:
    """A data change; ``scope`` holds the bytes of key and namespace."""
    return b"".join(
        (bytes((operation.value,)), state_id.to_bytes(2, "big", signed=True), scope, operands)
    )


def read_change(raw: bytes, registry: SerializerRegistry) -> MetadataChange | DataChange:
    data = DataInput(raw)
    code = data.read_u8("operation")
    try:
        operation = StateChangeOperation(code)
    except ValueError:
        raise FormatError(
            "A change has an unknown operation", offset=0, expected="0..8", got=code
        ) from None
    if operation is StateChangeOperation.METADATA:
        return _read_metadata_change(data, registry)
    return DataChange(operation, data.read_i16("state id"), data)


def _read_metadata_change(data: DataInput, registry: SerializerRegistry) -> MetadataChange:
    at = data.position
    version = data.read_i32("state description version")
    if version != META_INFO_VERSION:
        raise UnsupportedVersionError(
            "A state description in the changelog cannot be read",
            offset=at,
            expected=META_INFO_VERSION,
            got=version,
        )
    return read_with_unknown(data, SnapshotContext(registry), _read_described_state)


def _read_described_state(data: DataInput, context: SnapshotContext) -> MetadataChange:
    state = read_state_meta(data, context)
    has_ttl, default = False, None
    if not state.is_queue:
        has_ttl = data.read_bool("has TTL")
        if has_ttl:
            read_java_object(data)
        if data.read_bool("has default value"):
            default = _read_default(data, state)
    state_id = data.read_i16("state id")
    at = data.position
    kind = data.read_u8("state kind")
    if kind != state.backend_state_type.value:
        raise FormatError(
            f"The two kinds of state {state.name!r} in the changelog differ",
            offset=at,
            expected=state.backend_state_type.value,
            got=kind,
        )
    data.expect_end("a metadata change")
    return MetadataChange(state_id, state, has_ttl, default)


def _read_default(data: DataInput, state: StateMetaInfoSnapshot) -> bytes:
    """The bytes of the default value. A value without a readable end reaches to the last fields."""
    start = data.position
    try:
        return data.read_value(state.value_serializer)
    except UnreadableValueError:
        data.seek(start)
        return data.read_bytes(data.remaining - _LAST_FIELDS_BYTES, "default value")
