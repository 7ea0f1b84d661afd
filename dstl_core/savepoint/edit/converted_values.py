"""Values that change their type: from bytes to bytes."""

from __future__ import annotations

import json

from dstl_core.codec.columnar.kryo.section_converter import Framing, SectionRule
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import StoredRecord
from dstl_core.codec.keyed_records import LIST_DELIMITER, RecordFormat
from dstl_core.codec.kryo.type_changes import TypeChange
from dstl_core.codec.serializers import (
    AnySerializer,
    deserialize_exactly,
    serialize_key,
    serialize_to_bytes,
    value_text,
)
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import UnreadableValueError

_DELIMITER = bytes((LIST_DELIMITER,))


class StateValues:
    """The values of one state on their way to another type, one by one.

    A value becomes an object, which is written anew. That also says what is wrong with a value.

    Args:
        meta: The state.
        key: The type of keys.
        value: How values, elements or map values change.
        user_key: How user keys of a map change.
        prefix_bytes: Bytes of a key group.
    """

    def __init__(
        self,
        meta: StateMetaInfoSnapshot,
        key: AnySerializer,
        value: TypeChange,
        user_key: TypeChange | None,
        prefix_bytes: int,
    ) -> None:
        self.name = meta.name
        self._format = RecordFormat(meta, key)
        self._prefix = prefix_bytes
        self._kind = meta.keyed_state_type
        old, framing = meta.value_serializer, Framing.VALUE
        if self._kind is KeyedStateType.MAP:
            self._keys = Recoded(old.nested[0], user_key)
            old, framing = old.nested[1], Framing.MAP_VALUE
        elif self._kind is KeyedStateType.LIST:
            old, framing = old.nested[0], Framing.ELEMENTS
        self._items = Recoded(old, value)
        self._rule = (old, value.new), framing

    def rule(self, number: int) -> SectionRule | None:
        """How kernels convert the state; None if its keys change."""
        if self._kind is KeyedStateType.MAP and self._keys.changes:
            return None
        types, framing = self._rule
        return SectionRule(number, types if self._items.changes else None, framing)

    def converted(self, record: StoredRecord) -> tuple[bytes, bytes]:
        """The stored key and value of a record.

        Raises:
            UnreadableValueError: One of them has no form in the new type; it names the key.
        """
        try:
            key = self._stored_key(record.key) if self._kind is KeyedStateType.MAP else record.key
            return key, self.value(record.value)
        except UnreadableValueError as error:
            owner, _ = self._format.decode_scope(DataInput(record.key, self._prefix))
            text = json.dumps(value_text(self._format.key_serializer, owner), ensure_ascii=False)
            raise UnreadableValueError(
                f"State {self.name!r} cannot be converted at key {text}: {error.what}; change the "
                f"value in the job before the upgrade, or drop the state (drop, --drop)"
            ) from error

    def value(self, stored: bytes) -> bytes:
        match self._kind:
            case KeyedStateType.MAP:
                return self._map_value(stored)
            case KeyedStateType.LIST:
                return self._elements(stored)
            case _:
                return self._items.of(stored)

    def _stored_key(self, stored: bytes) -> bytes:
        if not self._keys.changes:
            return stored
        data = DataInput(stored, self._prefix)
        self._format.decode_scope(data)
        return stored[: data.position] + self._keys.of_key(stored[data.position :])

    def _map_value(self, stored: bytes) -> bytes:
        # A null is a flag, and what a heap backend writes behind it.
        return stored if stored[:1] != b"\0" else b"\0" + self._items.of(stored[1:])

    def _elements(self, stored: bytes) -> bytes:
        data = DataInput(stored)
        elements = [self._items.next(data)]
        while data.remaining:
            data.read_u8("list delimiter")
            elements.append(self._items.next(data))
        return _DELIMITER.join(elements)


class Recoded:
    """Values of one type as bytes of another."""

    def __init__(self, old: AnySerializer, change: TypeChange | None) -> None:
        self._old = old
        self._new = old if change is None else change.new
        self._convert = None if change is None else change.convert

    @property
    def changes(self) -> bool:
        return self._convert is not None

    def of(self, stored: bytes) -> bytes:
        convert = self._convert
        if convert is None:
            return stored
        return serialize_to_bytes(self._new, convert(deserialize_exactly(self._old, stored)))

    def of_key(self, stored: bytes) -> bytes:
        convert = self._convert
        if convert is None:
            return stored
        return serialize_key(self._new, convert(deserialize_exactly(self._old, stored)))

    def next(self, data: DataInput) -> bytes:
        """The bytes of the next value of an input."""
        convert = self._convert
        if convert is None:
            return data.read_value(self._old)
        return serialize_to_bytes(self._new, convert(self._old.deserialize(data)))
