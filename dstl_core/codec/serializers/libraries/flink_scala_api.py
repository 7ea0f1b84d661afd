"""Types of flink-scala-api, which goes on where Flink's own Scala API ended.

    case class     composite, outer version 3: utf class, bool immutable; outer version 2 without it
                   value: i32 number of fields, or 80000000 for null; the fields
    sealed trait   composite, outer version 3: i32 count, count x text names; a part for each
                   subclass. Version 2: i32 count, names as utf, snapshots
                   value: byte index of the subclass, or 80 for null; the value
    case object    utf class; no bytes
    Option, Either composite, outer versions 2 and 1; value: bool, then the content
    collection     utf serializer, utf class of elements, snapshot; value: i32 count, elements
    Map            two snapshots; value: i32 count, count x (key, value)
    mapped type    utf mapper, snapshot of the type that is stored
    Unit           no bytes

An older record of a case class may have fewer fields than the class: new ones have defaults.
Source: ``org.apache.flinkx.api.serializer`` of flink-scala-api 2.2.4, and a savepoint of a job.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    CompositeSerializer,
    JsonValue,
    SnapshotContext,
    TypeSerializer,
    WrapperSerializer,
    bad_value,
    check_version,
    read_composite_header,
    readers_of,
    write_composite_header,
    write_nested,
    write_snapshot,
)
from dstl_core.codec.serializers.collections import text_key
from dstl_core.codec.serializers.scala import (
    ScalaCaseClassSerializer,
    ScalaEitherSerializer,
    ScalaOptionSerializer,
)
from dstl_core.codec.serializers.strings import read_string_value, write_string_value
from dstl_core.errors import UnreadableValueError

PACKAGE = "org.apache.flinkx.api.serializer."
NULL_MARK = -(1 << 31)
"""In place of a number of fields, elements or seconds."""
_NULL_INDEX = -128
_WITH_NAMES = 3
_UUID_BYTES = 16


@dataclass(frozen=True)
class CaseClassSerializer(ScalaCaseClassSerializer):
    """A case class; a value is the tuple of the fields that its record has, or None."""

    outer_version: int = 3
    is_immutable: bool = True
    snapshot_class: ClassVar[str] = PACKAGE + "ScalaCaseClassSerializerSnapshot"

    @property
    def _fields_length(self) -> int:
        return super().length

    @property
    def length(self) -> int:
        fields = self._fields_length
        return -1 if fields < 0 else 4 + fields

    def serialize(self, value: tuple[Any, ...] | None, out: DataOutput) -> None:
        if value is None:
            out.write_i32(NULL_MARK)
            out.write_bytes(bytes(max(0, self._fields_length)))
            return
        out.write_i32(len(value))
        for field, item in zip(self.fields, value, strict=False):
            field.serialize(item, out)

    def deserialize(self, data: DataInput) -> tuple[Any, ...] | None:  # type: ignore[override]
        if self.problem is not None:
            raise UnreadableValueError(self.problem, offset=data.position)
        at = data.position
        arity = data.read_i32("number of fields")
        if arity == NULL_MARK:
            data.read_bytes(max(0, self._fields_length), "fields of null")
            return None
        if not 0 <= arity <= len(self.fields):
            raise bad_value(
                f"A value of {self.scala_class} has fields that its class does not have",
                at,
                f"0 to {len(self.fields)}",
                arity,
            )
        return tuple(each.deserialize(data) for each in self.fields[:arity])

    def write_outer_fields(self, out: DataOutput) -> None:
        out.write_utf(self.scala_class)
        if self.outer_version == _WITH_NAMES:
            out.write_bool(self.is_immutable)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        outer = read_composite_header(data, 2, 3)
        name = data.read_utf("case class")
        is_immutable = data.read_bool("is immutable") if outer == _WITH_NAMES else True
        fields = tuple(context.read_nested(data))
        return cls(name, fields, outer_version=outer, is_immutable=is_immutable)

    def to_text(self, value: tuple[Any, ...] | None) -> JsonValue:
        if value is None:
            return None
        texts = [each.to_text(item) for each, item in zip(self.fields, value, strict=False)]
        return texts if self.is_tuple else dict(zip(self.field_names, texts, strict=False))


class Chosen(NamedTuple):
    """A value of a sealed trait: which subclass, and its value."""

    number: int
    value: Any


@dataclass(frozen=True)
class CoproductSerializer(TypeSerializer[Chosen | None]):
    """A sealed trait. A value has its subclass as ``@class``; a case object is its class."""

    names: tuple[str, ...]
    subclasses: tuple[AnySerializer, ...]
    version: int = 3
    snapshot_class: ClassVar[str] = PACKAGE + "CoproductSerializer$CoproductSerializerSnapshot"

    @property
    def snapshot_version(self) -> int:  # type: ignore[override]
        return self.version

    @property
    def type_name(self) -> str:
        return f"Trait<{', '.join(each.type_name for each in self.subclasses)}>"

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return self.subclasses

    def serialize(self, value: Chosen | None, out: DataOutput) -> None:
        if value is None:
            out.write_i8(_NULL_INDEX)
            return
        out.write_i8(value.number)
        self.subclasses[value.number].serialize(value.value, out)

    def deserialize(self, data: DataInput) -> Chosen | None:
        at = data.position
        index = data.read_i8("index of a subclass")
        if index == _NULL_INDEX:
            return None
        if not 0 <= index < len(self.subclasses):
            expected = f"0 to {len(self.subclasses) - 1}"
            raise bad_value("A value of a sealed trait has no such subclass", at, expected, index)
        return Chosen(index, self.subclasses[index].deserialize(data))

    def write_snapshot_payload(self, out: DataOutput) -> None:
        if self.version == _WITH_NAMES:
            write_composite_header(out, 3)
            out.write_i32(len(self.names))
            for name in self.names:
                write_string_value(out, name)
            write_nested(out, self.subclasses)
            return
        out.write_i32(len(self.names))
        for name in self.names:
            out.write_utf(name)
        for subclass in self.subclasses:
            write_snapshot(out, subclass)

    def to_text(self, value: Chosen | None) -> JsonValue:
        if value is None:
            return None
        text = self.subclasses[value.number].to_text(value.value)
        return {"@class": self.names[value.number]} | text if isinstance(text, dict) else text


class BytelessSerializer(TypeSerializer[None]):
    """A type with one value, which has no bytes."""

    length: ClassVar[int] = 0

    def serialize(self, value: None, out: DataOutput) -> None:
        pass

    def deserialize(self, data: DataInput) -> None:
        data.count_free(1)


@dataclass(frozen=True)
class CaseObjectSerializer(BytelessSerializer):
    """A Scala ``object``, which has no bytes. A text is its class."""

    object_class: str
    snapshot_class: ClassVar[str] = (
        PACKAGE + "ScalaCaseObjectSerializer$ScalaCaseObjectSerializerSnapshot"
    )
    snapshot_version: ClassVar[int] = 1

    @property
    def type_name(self) -> str:
        return self.object_class

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_utf(self.object_class)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        return cls(data.read_utf("case object"))

    def to_text(self, value: None) -> JsonValue:
        return self.object_class


@dataclass(frozen=True)
class OptionSerializer(ScalaOptionSerializer):
    snapshot_class: ClassVar[str] = PACKAGE + "ScalaOptionSerializerSnapshot"


@dataclass(frozen=True)
class FlinkScalaEitherSerializer(ScalaEitherSerializer):
    snapshot_class: ClassVar[str] = PACKAGE + "ScalaEitherSerializerSnapshot"


def read_size(data: DataInput, field: str, item_bytes: int) -> int | None:
    """The size of a collection that may be null."""
    at = data.position
    if data.read_i32(field) == NULL_MARK:
        return None
    data.seek(at)
    return data.read_count(field, item_bytes)


@dataclass(frozen=True)
class CollectionSerializer(TypeSerializer[list[Any] | None]):
    """A list, set, array or another collection; ``serializer_class`` says which. A mutable one may
    be null.
    """

    serializer_class: str
    element_class: str
    element: AnySerializer
    snapshot_class: ClassVar[str] = PACKAGE + "CollectionSerializerSnapshot"
    snapshot_version: ClassVar[int] = 2

    @property
    def type_name(self) -> str:
        kind = self.serializer_class.rpartition(".")[2].removesuffix("Serializer")
        return f"{kind}<{self.element.type_name}>"

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return (self.element,)

    def serialize(self, value: list[Any] | None, out: DataOutput) -> None:
        out.write_i32(NULL_MARK if value is None else len(value))
        for item in value or ():
            self.element.serialize(item, out)

    def deserialize(self, data: DataInput) -> list[Any] | None:
        count = read_size(data, "collection size", int(self.element.length != 0))
        return None if count is None else [self.element.deserialize(data) for _ in range(count)]

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_utf(self.serializer_class)
        out.write_utf(self.element_class)
        write_snapshot(out, self.element)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        names = data.read_utf("serializer"), data.read_utf("class of elements")
        return cls(*names, context.read_snapshot(data))

    def to_text(self, value: list[Any] | None) -> JsonValue:
        if value is None:
            return None
        texts = [self.element.to_text(item) for item in value]
        return sorted(texts, key=text_key) if "SetSerializer" in self.serializer_class else texts


@dataclass(frozen=True)
class ScalaMapSerializer(CompositeSerializer[list[tuple[Any, Any]]]):
    key: AnySerializer
    value: AnySerializer
    snapshot_class: ClassVar[str] = PACKAGE + "MapSerializer$MapSerializerSnapshot"
    snapshot_version: ClassVar[int] = 2
    kind: ClassVar[str] = "Map"
    part_names: ClassVar[tuple[str, ...]] = ("key", "value")

    def serialize(self, value: list[tuple[Any, Any]], out: DataOutput) -> None:
        out.write_i32(len(value))
        for key, item in value:
            self.key.serialize(key, out)
            self.value.serialize(item, out)

    def deserialize(self, data: DataInput) -> list[tuple[Any, Any]]:
        has_bytes = any(part.length for part in self.nested)
        return [
            (self.key.deserialize(data), self.value.deserialize(data))
            for _ in range(data.read_count("map size", int(has_bytes)))
        ]

    def write_snapshot_payload(self, out: DataOutput) -> None:
        write_snapshot(out, self.key)
        write_snapshot(out, self.value)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        return cls(context.read_snapshot(data), context.read_snapshot(data))

    def to_text(self, value: list[tuple[Any, Any]]) -> JsonValue:
        pairs = [[self.key.to_text(key), self.value.to_text(item)] for key, item in value]
        return sorted(pairs, key=lambda pair: text_key(pair[0]))


@dataclass(frozen=True)
class MappedSerializer(WrapperSerializer):
    """A type that is stored as another one; a value is that of the other one."""

    mapper: str
    inner: AnySerializer
    snapshot_class: ClassVar[str] = PACKAGE + "MappedSerializer$MappedSerializerSnapshot"
    snapshot_version: ClassVar[int] = 2

    @property
    def type_name(self) -> str:
        return f"Mapped<{self.mapper.rpartition('.')[2]}, {self.inner.type_name}>"

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_utf(self.mapper)
        write_snapshot(out, self.inner)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        return cls(data.read_utf("mapper"), context.read_snapshot(data))

    def to_text(self, value: Any) -> JsonValue:
        is_uuid = self.mapper.endswith(".UuidMapper") and isinstance(value, bytes)
        if is_uuid and len(value) == _UUID_BYTES:
            return str(uuid.UUID(bytes=value))
        return self.inner.to_text(value)


@dataclass(frozen=True)
class UnitSerializer(BytelessSerializer):
    snapshot_class: ClassVar[str] = PACKAGE + "UnitSerializer$UnitSerializerSnapshot"
    type_name: ClassVar[str] = "Unit"


def _read_coproduct(data: DataInput, version: int, context: SnapshotContext) -> CoproductSerializer:
    check_version(data, CoproductSerializer.snapshot_class, version, 2, 3)
    if version == _WITH_NAMES:
        read_composite_header(data, 3)
        count = data.read_count("subclasses", 1)
        names = tuple(_name(data) for _ in range(count))
        return CoproductSerializer(names, tuple(context.read_nested(data, count)))
    count = data.read_count("subclasses", 2)
    names = tuple(data.read_utf("subclass") for _ in range(count))
    parts = tuple(context.read_snapshot(data) for _ in range(count))
    return CoproductSerializer(names, parts, version)


def _name(data: DataInput) -> str:
    at = data.position
    text = read_string_value(data)
    if text is None:
        raise bad_value("A sealed trait has a subclass without a name", at, "a name", "null")
    return text


READERS = readers_of(
    OptionSerializer,
    FlinkScalaEitherSerializer,
    UnitSerializer,
    CaseClassSerializer,
    CaseObjectSerializer,
    CollectionSerializer,
    ScalaMapSerializer,
    MappedSerializer,
)
READERS[CoproductSerializer.snapshot_class] = _read_coproduct
