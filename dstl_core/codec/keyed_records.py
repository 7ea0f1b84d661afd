"""Decodes records of canonical keyed state value by value: the reference of the columnar decoder.

    record := i32 length, stored key, i32 length, value

Offsets in errors are positions in the input's buffer, so they name the place of the damage. Fields
are checked in this order: both lengths, key group, key,
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dstl_core.codec.composite_key import expect_length
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import FIRST_BIT_MASK
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    VoidNamespaceSerializer,
)
from dstl_core.codec.state_meta import BackendStateType, KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import FormatError

LIST_DELIMITER = 0x2C


@dataclass(frozen=True, slots=True)
class FramedRecord:
    """A record with checked lengths. ``key`` starts after the key group."""

    key: DataInput
    value: DataInput
    is_last: bool


@dataclass(frozen=True, slots=True)
class KeyedRecord:
    """A decoded record. ``user_key`` is None except for map state."""

    key: Any
    namespace: Any
    user_key: Any
    value: Any


def read_framed_record(data: DataInput, prefix_bytes: int, key_group: int) -> FramedRecord:
    """Reads the framed record at the position of the input, and moves behind it."""
    at = data.position
    key = data.sub_input(data.read_length("key length"), "key")
    if not key.remaining:
        raise FormatError("A stored key is empty", offset=at, field="key length")
    value = data.sub_input(data.read_length("value length"), "value")
    prefix = key.read_bytes(prefix_bytes, "key group")
    is_last = prefix[0] & FIRST_BIT_MASK != 0
    got = int.from_bytes(prefix, "big") & ((FIRST_BIT_MASK << 8 * (prefix_bytes - 1)) - 1)
    if got != key_group:
        raise FormatError(
            "A record stands in the section of another key group",
            offset=at,
            expected=f"key group {key_group}",
            got=f"key group {got}",
        )
    return FramedRecord(key, value, is_last)


@dataclass(frozen=True)
class RecordFormat:
    """Decodes the records of one state.

    Raises:
        FormatError: The state is of a kind that has no records in this form.
    """

    meta: StateMetaInfoSnapshot
    key_serializer: AnySerializer

    def __post_init__(self) -> None:
        if self.meta.backend_state_type is BackendStateType.KEY_VALUE:
            if self.kind is KeyedStateType.LIST:
                part_of(self.meta, ListSerializer)
            elif self.kind is KeyedStateType.MAP:
                part_of(self.meta, MapSerializer)
        elif not self.is_queue:
            raise FormatError(
                f"State {self.meta.name!r} is not keyed state",
                expected="KEY_VALUE or PRIORITY_QUEUE",
                got=self.meta.backend_state_type.name,
            )

    @property
    def is_queue(self) -> bool:
        return self.meta.is_queue

    @property
    def kind(self) -> KeyedStateType | None:
        """The kind of a key-value state; None for a queue."""
        return None if self.is_queue else self.meta.keyed_state_type

    @property
    def namespace_serializer(self) -> AnySerializer:
        return VoidNamespaceSerializer() if self.is_queue else self.meta.namespace_serializer

    @property
    def is_ambiguous(self) -> bool:
        """Whether a stored key holds the lengths of key and namespace."""
        if self.is_queue:
            return False
        return self.key_serializer.length < 0 and self.namespace_serializer.length < 0

    def decode(self, record: FramedRecord) -> KeyedRecord:
        """Decodes a record. Raises if bytes are left."""
        if self.is_queue:
            return self._decode_timer(record)
        key, namespace = self.decode_scope(record.key)
        user_key = None
        if self.kind is KeyedStateType.MAP:
            user_key = part_of(self.meta, MapSerializer).key.deserialize(record.key)
        record.key.expect_end("a stored key")
        return KeyedRecord(key, namespace, user_key, self._value(record.value))

    def decode_scope(self, data: DataInput) -> tuple[Any, Any]:
        """Reads key and namespace from the front of a stored key without its key group."""
        key = self._scope_part(data, self.key_serializer, "key")
        return key, self._scope_part(data, self.namespace_serializer, "namespace")

    def _decode_timer(self, record: FramedRecord) -> KeyedRecord:
        element = self.meta.value_serializer.deserialize(record.key)
        record.key.expect_end("an element of a queue")
        record.value.expect_end("the key of a queue's element")
        return KeyedRecord(None, None, None, element)

    def _scope_part(self, data: DataInput, serializer: AnySerializer, field: str) -> Any:
        start = data.position
        value = serializer.deserialize(data)
        if self.is_ambiguous:
            expect_length(data, data.position - start, field)
        return value

    def _value(self, data: DataInput) -> Any:
        match self.kind:
            case KeyedStateType.LIST:
                return read_delimited(data, part_of(self.meta, ListSerializer).element)
            case KeyedStateType.MAP:
                # A heap backend writes the serializer's null value after the flag; only the flag
                # decides.
                if data.read_bool("map value is null"):
                    return None
                value = part_of(self.meta, MapSerializer).value.deserialize(data)
            case _:
                value = self.meta.value_serializer.deserialize(data)
        data.expect_end("a stored value")
        return value


def read_delimited(data: DataInput, element: AnySerializer) -> list[Any]:
    """Decodes the elements of list state, up to the end of the value."""
    elements = [element.deserialize(data)]
    while data.remaining:
        at = data.position
        got = data.read_u8("list delimiter")
        if got != LIST_DELIMITER:
            raise FormatError(
                "A list is damaged",
                offset=at,
                field="list delimiter",
                expected=LIST_DELIMITER,
                got=got,
            )
        elements.append(element.deserialize(data))
    return elements


def part_of(meta: StateMetaInfoSnapshot, kind: type[Any]) -> Any:
    """The value serializer of a state; it must be of the given class."""
    serializer = meta.value_serializer
    if not isinstance(serializer, kind):
        raise FormatError(
            f"The value type of state {meta.name!r} does not fit its kind",
            expected=kind.__name__,
            got=serializer.type_name,
        )
    return serializer
