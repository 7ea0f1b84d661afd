"""Values that change their type: from bytes to bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dstl_core.codec.columnar.kryo.section_converter import (
    Framing,
    SectionConverter,
    SectionRule,
    StoredKeyRule,
)
from dstl_core.codec.columnar.kryo.type_nodes import Types
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.keyed_canonical import StoredRecord, read_section, write_section
from dstl_core.codec.keyed_records import LIST_DELIMITER, RecordFormat
from dstl_core.codec.kryo.type_changes import TypeChange
from dstl_core.codec.serializers import (
    AnySerializer,
    OpaqueValue,
    deserialize_exactly,
    serialize_key,
    serialize_to_bytes,
    value_text,
)
from dstl_core.codec.serializers.arrays import (
    DoublePrimitiveArraySerializer,
    FloatPrimitiveArraySerializer,
)
from dstl_core.codec.serializers.primitives import DoubleSerializer, FloatSerializer
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import UnreadableValueError

_DELIMITER = bytes((LIST_DELIMITER,))
_NULL = b"\1"
_ANY_KEY = b"\0"
_PORTION = 1 << 12
"""Values that kernels get at once."""
_FLOATS = (
    FloatSerializer,
    DoubleSerializer,
    FloatPrimitiveArraySerializer,
    DoublePrimitiveArraySerializer,
)


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
        self._framing = framing

    def rule(self, number: int) -> SectionRule | None:
        """How kernels convert the state; None if they cannot: a record may be left out."""
        if self._items.drops_none:
            return None
        changes_keys = self._kind is KeyedStateType.MAP and self._keys.changes
        key = self._key_rule() if changes_keys else None
        if changes_keys and key is None:
            return SectionRule(number, is_single=True)
        types = self._items.types if self._items.changes else None
        return SectionRule(number, types, self._framing, key, classes=self._items.classes)

    def _key_rule(self) -> StoredKeyRule | None:
        """How kernels convert the stored keys of a map; None leaves them to single objects."""
        key, namespace = self._format.key_serializer, self._format.namespace_serializer
        user_key = self._keys.types
        if self._format.is_ambiguous or any(map(_has_floats, user_key)):
            return None
        parts = (key, key), (namespace, namespace), user_key
        return StoredKeyRule(self._prefix, parts, self._keys.classes)

    def converted(self, record: StoredRecord) -> tuple[bytes, bytes] | None:
        """The stored key and value of a record; None if the new type has no value for it.

        Raises:
            UnreadableValueError: One of them has no form in the new type; it names the key.
        """
        try:
            key = self._stored_key(record.key) if self._kind is KeyedStateType.MAP else record.key
            value = self._content(record.value)
            return None if value is None else (key, value)
        except UnreadableValueError as error:
            owner, _ = self._format.decode_scope(DataInput(record.key, self._prefix))
            text = json.dumps(value_text(self._format.key_serializer, owner), ensure_ascii=False)
            raise UnreadableValueError(
                f"State {self.name!r} cannot be converted at key {text}: {error.what}; change the "
                f"value in the job before the upgrade, or drop the state (drop, --drop)"
            ) from error

    def _content(self, stored: bytes) -> bytes | None:
        match self._kind:
            case KeyedStateType.MAP:
                return self._map_value(stored)
            case KeyedStateType.LIST:
                return self._elements(stored)
            case _:
                return self._items.of_or_none(stored)

    def _stored_key(self, stored: bytes) -> bytes:
        if not self._keys.changes:
            return stored
        data = DataInput(stored, self._prefix)
        self._format.decode_scope(data)
        return stored[: data.position] + self._keys.of_key(stored[data.position :])

    def _map_value(self, stored: bytes) -> bytes:
        # A null is a flag, and what a heap backend writes behind it.
        if stored[:1] != b"\0":
            return stored
        value = self._items.of_or_none(stored[1:])
        return _NULL if value is None else b"\0" + value

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
        self._drops_none = change is not None and change.drops_none
        self.classes = None if change is None else change.classes

    @property
    def types(self) -> Types:
        """Before and after."""
        return self._old, self._new

    @property
    def drops_none(self) -> bool:
        """Whether a value may become none at all."""
        return self._drops_none

    @property
    def changes(self) -> bool:
        return self._convert is not None

    def of(self, stored: bytes) -> bytes:
        convert = self._convert
        if convert is None:
            return stored
        return _written(self._new, convert(deserialize_exactly(self._old, stored)))

    def of_each(self, stored: Sequence[bytes]) -> list[bytes]:
        """The bytes of many values, one by one."""
        return [self.of(each) for each in stored]

    def of_all(self, stored: Sequence[bytes]) -> list[bytes]:
        """The bytes of many values, which kernels convert as far as they know them."""
        if self._convert is None:
            return list(stored)
        rule = SectionRule(0, self.types, classes=self.classes)
        kernels = SectionConverter([rule], lambda _, key, value: (key, self.of(value)))
        new: list[bytes] = []
        for start in range(0, len(stored), _PORTION):
            records = [(_ANY_KEY, value) for value in stored[start : start + _PORTION]]
            converted = kernels.converted(write_section([(0, records)]))
            assert converted is not None  # the section is not damaged
            new += [record.value for record in read_section(DataInput(converted[0]), 1)]
        return new

    def of_or_none(self, stored: bytes) -> bytes | None:
        """The bytes of a value; None if it is none in the new type."""
        if not self._drops_none or self._convert is None:
            return self.of(stored)
        value = self._convert(deserialize_exactly(self._old, stored))
        return None if value is None else _written(self._new, value)

    def of_key(self, stored: bytes) -> bytes:
        convert = self._convert
        if convert is None:
            return stored
        key = convert(deserialize_exactly(self._old, stored))
        if isinstance(key, OpaqueValue):
            return _written(self._new, key)
        return serialize_key(self._new, key)

    def next(self, data: DataInput) -> bytes:
        convert = self._convert
        if convert is None:
            return data.read_value(self._old)
        return _written(self._new, convert(self._old.deserialize(data)))


def _written(new: AnySerializer, value: Any) -> bytes:
    """The bytes of a converted value. Those of a value that stays in Kryo may be a part of it: a
    nullable type has a flag in front.
    """
    if not isinstance(value, OpaqueValue):
        return serialize_to_bytes(new, value)
    out = DataOutput()
    new.serialize(value, out)
    return out.to_bytes()


def _has_floats(serializer: AnySerializer) -> bool:
    """Whether a key may hold a NaN, which has other bytes in a key than in a value."""
    return isinstance(serializer, _FLOATS) or any(map(_has_floats, serializer.nested))
