"""Rows, unions, nullable values, enums and the empty tuple.

Source: ``RowSerializer``, ``EitherSerializer``, ``NullableSerializer``, ``EnumSerializer``,
``Tuple0Serializer`` and ``CoGroupedStreams.UnionSerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.arrays import (
    BytePrimitiveArraySerializer,
    GenericArraySerializer,
)
from dstl_core.codec.serializers.base import (
    AnySerializer,
    CompositeSerializer,
    JsonValue,
    OneByteSerializer,
    SnapshotContext,
    TypeSerializer,
    bad_value,
    combine_java_hash,
    read_composite_header,
    readers_of,
)
from dstl_core.codec.serializers.collections import ListSerializer, MapSerializer

_RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
ROW_KINDS = ("+I", "-U", "+U", "-D")
"""``RowKind`` by its byte."""


class Row(NamedTuple):
    """A row; ``kind`` is an index into ``ROW_KINDS``."""

    kind: int
    fields: tuple[Any, ...]


def write_mask(out: DataOutput, bits: Sequence[bool]) -> None:
    """Writes bits, starting with the highest bit of the first byte."""
    for start in range(0, len(bits), 8):
        byte = 0
        for at, bit in enumerate(bits[start : start + 8]):
            byte |= bit << 7 - at
        out.write_u8(byte)


def read_mask(data: DataInput, count: int) -> list[bool]:
    raw = data.read_bytes((count + 7) // 8, "null mask")
    return [raw[at // 8] >> 7 - at % 8 & 1 == 1 for at in range(count)]


@dataclass(frozen=True)
class RowSerializer(CompositeSerializer[Row]):
    """A bit mask, then the fields that are not null.

    The mask has two bits for the kind (low bit first) and one bit for each field (1 = null).
    ``with_kind`` is False for rows of old releases.
    """

    fields: tuple[AnySerializer, ...]
    with_kind: bool = True
    snapshot_class: ClassVar[str] = _RUNTIME + "RowSerializer$RowSerializerSnapshot"
    outer_version = 4

    @property
    def type_name(self) -> str:
        return f"Row<{', '.join(field.type_name for field in self.fields)}>"

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return self.fields

    def serialize(self, value: Row, out: DataOutput) -> None:
        if len(value.fields) != len(self.fields):
            raise TypeError(f"expected {len(self.fields)} fields, got {len(value.fields)}")
        kind = [value.kind & 1 == 1, value.kind & 2 == 2] if self.with_kind else []
        write_mask(out, kind + [item is None for item in value.fields])
        for field, item in zip(self.fields, value.fields, strict=True):
            if item is not None:
                field.serialize(item, out)

    def deserialize(self, data: DataInput) -> Row:
        head = 2 if self.with_kind else 0
        mask = read_mask(data, head + len(self.fields))
        kind = mask[0] + 2 * mask[1] if self.with_kind else 0
        values = tuple(
            None if is_null else field.deserialize(data)
            for field, is_null in zip(self.fields, mask[head:], strict=True)
        )
        return Row(kind, values)

    def write_outer_fields(self, out: DataOutput) -> None:
        out.write_bool(self.with_kind)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        read_composite_header(data, 4)
        with_kind = data.read_bool("supports row kind")
        return cls(tuple(context.read_nested(data)), with_kind)

    def java_hash(self, value: Row) -> int:
        """The hash of ``RowUtils.deepHashCodeRow`` for a row without field names."""
        h = 1
        for field, item in zip(self.fields, value.fields, strict=True):
            h = 31 * h + _deep_hash(field, item)
        return 31 * value.kind + h

    def to_text(self, value: Row) -> JsonValue:
        texts = [
            None if item is None else field.to_text(item)
            for field, item in zip(self.fields, value.fields, strict=True)
        ]
        return texts if value.kind == 0 else [ROW_KINDS[value.kind], *texts]


def _deep_hash(serializer: AnySerializer, value: Any) -> int:
    if value is None:
        return 0
    if isinstance(serializer, GenericArraySerializer):
        return combine_java_hash([_deep_hash(serializer.component, item) for item in value])
    if isinstance(serializer, ListSerializer):
        return combine_java_hash([_deep_hash(serializer.element, item) for item in value])
    if isinstance(serializer, MapSerializer):
        h = 1
        for key, item in value:
            pair = _deep_hash(serializer.key, key), _deep_hash(serializer.value, item)
            h += (pair[0] ^ pair[1]) & 0xFFFFFFFF
        return h
    if type(serializer) is BytePrimitiveArraySerializer:
        # An array alone has another hash each time. In a row its bytes count.
        return 31 + combine_java_hash([byte - 256 if byte > 127 else byte for byte in value])
    return 31 + serializer.java_hash(value)


@dataclass(frozen=True)
class Tuple0Serializer(OneByteSerializer[tuple[()]]):
    """One byte, 42."""

    snapshot_class: ClassVar[str] = _RUNTIME + "Tuple0SerializerSnapshot"
    type_name: ClassVar[str] = "Tuple0"
    byte: ClassVar[int] = 42
    noun: ClassVar[str] = "Tuple0"
    constant: ClassVar[Any] = ()

    def java_hash(self, value: tuple[()]) -> int:
        return 0

    def to_text(self, value: tuple[()]) -> JsonValue:
        return []


class Either(NamedTuple):
    """A left or a right value."""

    is_left: bool
    value: Any


@dataclass(frozen=True)
class TwoSidesSerializer(CompositeSerializer[Either]):
    """1 and the left value, or 0 and the right value; ``sides`` are their names in a text."""

    left: AnySerializer
    right: AnySerializer
    kind: ClassVar[str] = "Either"
    sides: ClassVar[tuple[str, str]] = ("left", "right")
    part_names: ClassVar[tuple[str, ...]] = ("left", "right")

    def serialize(self, value: Either, out: DataOutput) -> None:
        out.write_bool(value.is_left)
        (self.left if value.is_left else self.right).serialize(value.value, out)

    def deserialize(self, data: DataInput) -> Either:
        is_left = data.read_bool("is left")
        return Either(is_left, (self.left if is_left else self.right).deserialize(data))

    def to_text(self, value: Either) -> JsonValue:
        at = 0 if value.is_left else 1
        return {self.sides[at]: self.nested[at].to_text(value.value)}


@dataclass(frozen=True)
class EitherSerializer(TwoSidesSerializer):
    snapshot_class: ClassVar[str] = _RUNTIME + "JavaEitherSerializerSnapshot"


@dataclass(frozen=True)
class UnionSerializer(CompositeSerializer[Either]):
    """An element of two joined streams: 1 and a value of the first, or 2 and a value of the
    second.
    """

    one: AnySerializer
    two: AnySerializer
    snapshot_class: ClassVar[str] = (
        "org.apache.flink.streaming.api.datastream.CoGroupedStreams$UnionSerializerSnapshot"
    )
    kind: ClassVar[str] = "TaggedUnion"
    part_names: ClassVar[tuple[str, ...]] = ("one", "two")
    outer_version = 2

    def serialize(self, value: Either, out: DataOutput) -> None:
        out.write_u8(1 if value.is_left else 2)
        (self.one if value.is_left else self.two).serialize(value.value, out)

    def deserialize(self, data: DataInput) -> Either:
        at = data.position
        tag = data.read_u8("union tag")
        if tag not in (1, 2):
            raise bad_value("A tagged union has an unknown tag", at, "1 or 2", tag)
        return Either(tag == 1, (self.one if tag == 1 else self.two).deserialize(data))

    def to_text(self, value: Either) -> JsonValue:
        side, name = (self.one, "left") if value.is_left else (self.two, "right")
        return {name: side.to_text(value.value)}


@dataclass(frozen=True)
class NullableSerializer(CompositeSerializer[Any]):
    """0 and the value, or 1 and ``padding`` zero bytes, which keep the length fixed."""

    inner: AnySerializer
    padding: int = 0
    snapshot_class: ClassVar[str] = _RUNTIME + "NullableSerializer$NullableSerializerSnapshot"
    kind: ClassVar[str] = "Nullable"
    part_names: ClassVar[tuple[str, ...]] = ("inner",)
    outer_version = 2

    @property
    def length(self) -> int:
        return 1 + self.padding if self.padding else -1

    def serialize(self, value: Any, out: DataOutput) -> None:
        out.write_bool(value is None)
        if value is None:
            out.write_bytes(bytes(self.padding))
        else:
            self.inner.serialize(value, out)

    def deserialize(self, data: DataInput) -> Any:
        if data.read_bool("is null"):
            data.read_bytes(self.padding, "null padding")
            return None
        return self.inner.deserialize(data)

    def write_outer_fields(self, out: DataOutput) -> None:
        out.write_i32(self.padding)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        read_composite_header(data, 2)
        at = data.position
        padding = data.read_i32("null padding")
        [inner] = context.read_nested(data, 1)
        if padding not in (0, max(inner.length, 0)):
            raise bad_value(
                "A nullable type has the wrong padding", at, max(inner.length, 0), padding
            )
        return cls(inner, padding)

    def java_hash(self, value: Any) -> int:
        return 0 if value is None else self.inner.java_hash(value)

    def to_text(self, value: Any) -> JsonValue:
        return None if value is None else self.inner.to_text(value)


@dataclass(frozen=True)
class EnumSerializer(TypeSerializer[str]):
    """An index into the constants of the snapshot. A value is the name of a constant.

    An enum cannot be a key: Java's hash of a constant differs between processes.
    """

    enum_class: str
    constants: tuple[str, ...]
    snapshot_class: ClassVar[str] = (
        "org.apache.flink.api.common.typeutils.base.EnumSerializer$EnumSerializerSnapshot"
    )
    length: ClassVar[int] = 4

    @property
    def type_name(self) -> str:
        return f"Enum<{self.enum_class}>"

    def serialize(self, value: str, out: DataOutput) -> None:
        out.write_i32(self.constants.index(value))

    def deserialize(self, data: DataInput) -> str:
        at = data.position
        index = data.read_i32("enum constant")
        if not 0 <= index < len(self.constants):
            raise bad_value(
                f"A constant of {self.enum_class} does not exist",
                at,
                f"0..{len(self.constants) - 1}",
                index,
            )
        return self.constants[index]

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_utf(self.enum_class)
        out.write_i32(len(self.constants))
        for constant in self.constants:
            out.write_utf(constant)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        enum_class = data.read_utf("enum class")
        count = data.read_count("enum constants", 2)
        return cls(enum_class, tuple(data.read_utf("enum constant") for _ in range(count)))


READERS = readers_of(
    Tuple0Serializer,
    EitherSerializer,
    UnionSerializer,
    RowSerializer,
    NullableSerializer,
    EnumSerializer,
)
