"""Types of the Scala API of Flink 1.x, which Flink 2.0 removed.

    case class, tuple   composite, outer version 2, utf class; a part for each field
                        value: the fields, without gaps
    Option, Either, Try composite, outer versions 2, 1, 2
                        value: bool, then the content: 1 present, left, success
    collection          composite, outer version 2, utf code of its builder; one part
                        value: i32 count, then for each element bool is there, [element]
    Enumeration         utf class, i32 count, count x (utf name, i32 id); value: i32 id
    Unit                value: one byte, 0

A savepoint has no names of fields, so they are ``_1``, ``_2``, .. as Scala calls them. The class
files of the job have names.
Source: ``org.apache.flink.api.scala.typeutils`` of Flink 1.20.5, and savepoints of Scala jobs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    CompositeSerializer,
    JsonValue,
    OneByteSerializer,
    SnapshotContext,
    TypeSerializer,
    bad_value,
    read_composite_header,
    readers_of,
)
from dstl_core.codec.serializers.collections import text_key
from dstl_core.codec.serializers.structs import TwoSidesSerializer
from dstl_core.errors import UnreadableValueError

PACKAGE = "org.apache.flink.api.scala.typeutils."
_TUPLE = "scala.Tuple"
_COLLECTION = re.compile(r"CanBuildFrom\[([^\[\],]+)")


@dataclass(frozen=True)
class ScalaCaseClassSerializer(CompositeSerializer[tuple[Any, ...]]):
    """A case class or a tuple; a value is the tuple of its fields.

    Args:
        scala_class: Its Java name.
        fields: The types of the parameters of its constructor.
        names: Their names; empty if no class file of the job has them. No part of the type.
        problem: Why the class file of the job cannot be read; such values are not read either, so
            that no output has other names of fields than it should.
    """

    scala_class: str
    fields: tuple[AnySerializer, ...]
    names: tuple[str, ...] = field(default=(), compare=False)
    problem: str | None = field(default=None, compare=False)
    snapshot_class: ClassVar[str] = PACKAGE + "ScalaCaseClassSerializerSnapshot"
    outer_version = 2

    @property
    def is_tuple(self) -> bool:
        return self.scala_class.startswith(_TUPLE)

    @property
    def field_names(self) -> tuple[str, ...]:
        return self.names or tuple(f"_{at}" for at in range(1, len(self.fields) + 1))

    @property
    def type_name(self) -> str:
        types = [each.type_name for each in self.fields]
        named = zip(self.names, types, strict=True) if self.names else ()
        inner = ", ".join([f"{name}: {each}" for name, each in named] or types)
        return f"{self.scala_class}({inner})"

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return self.fields

    @property
    def length(self) -> int:
        lengths = [each.length for each in self.fields]
        return -1 if not lengths or min(lengths) < 0 else sum(lengths)

    def serialize(self, value: tuple[Any, ...], out: DataOutput) -> None:
        for part, item in zip(self.fields, value, strict=True):
            part.serialize(item, out)

    def deserialize(self, data: DataInput) -> tuple[Any, ...]:
        if self.problem is not None:
            raise UnreadableValueError(self.problem, offset=data.position)
        if not self.fields:
            data.count_free(1)
        return tuple(each.deserialize(data) for each in self.fields)

    def write_outer_fields(self, out: DataOutput) -> None:
        out.write_utf(self.scala_class)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        read_composite_header(data, 2)
        return cls(data.read_utf("case class"), tuple(context.read_nested(data)))

    def to_text(self, value: tuple[Any, ...]) -> JsonValue:
        texts = [each.to_text(item) for each, item in zip(self.fields, value, strict=True)]
        return texts if self.is_tuple else dict(zip(self.field_names, texts, strict=True))


@dataclass(frozen=True)
class ScalaTuple2Serializer(ScalaCaseClassSerializer):
    """The same format, where Flink itself makes the tuple's serializer."""

    snapshot_class: ClassVar[str] = PACKAGE + "Tuple2CaseClassSerializerSnapshot"


class Option(NamedTuple):
    """An optional value. The content may be null in Scala, so ``None`` does not stand for none."""

    is_there: bool
    value: Any


@dataclass(frozen=True)
class ScalaOptionSerializer(CompositeSerializer[Option]):
    """A text is a list of one value or none."""

    inner: AnySerializer
    snapshot_class: ClassVar[str] = PACKAGE + "ScalaOptionSerializerSnapshot"
    kind: ClassVar[str] = "Option"
    part_names: ClassVar[tuple[str, ...]] = ("inner",)
    outer_version = 2

    def serialize(self, value: Option, out: DataOutput) -> None:
        out.write_bool(value.is_there)
        if value.is_there:
            self.inner.serialize(value.value, out)

    def deserialize(self, data: DataInput) -> Option:
        is_there = data.read_bool("option is there")
        return Option(is_there, self.inner.deserialize(data) if is_there else None)

    def to_text(self, value: Option) -> JsonValue:
        return [self.inner.to_text(value.value)] if value.is_there else []


@dataclass(frozen=True)
class ScalaEitherSerializer(TwoSidesSerializer):
    snapshot_class: ClassVar[str] = PACKAGE + "ScalaEitherSerializerSnapshot"


@dataclass(frozen=True)
class ScalaTrySerializer(ScalaEitherSerializer):
    """The same format: the left value is that of a success, the right one an exception."""

    outer_version = 2
    kind: ClassVar[str] = "Try"
    sides: ClassVar[tuple[str, str]] = ("success", "failure")
    snapshot_class: ClassVar[str] = PACKAGE + "ScalaTrySerializerSnapshot"


@dataclass(frozen=True)
class ScalaCollectionSerializer(CompositeSerializer[list[Any]]):
    """A list, set or map of Scala; a map is a collection of tuples.

    ``builder`` is Scala code that names the collection. Flink compiles it to make the collection.
    """

    builder: str
    element: AnySerializer
    snapshot_class: ClassVar[str] = PACKAGE + "TraversableSerializerSnapshot"
    part_names: ClassVar[tuple[str, ...]] = ("element",)
    outer_version = 2

    @property
    def type_name(self) -> str:
        return f"{self._collection.rpartition('.')[2]}<{self.element.type_name}>"

    @property
    def _collection(self) -> str:
        named = _COLLECTION.search(self.builder)
        return named[1] if named else "Traversable"

    @property
    def is_map(self) -> bool:
        return self._collection.endswith("Map")

    @property
    def is_set(self) -> bool:
        return self._collection.endswith("Set")

    def serialize(self, value: list[Any], out: DataOutput) -> None:
        out.write_i32(len(value))
        for item in value:
            out.write_bool(item is not None)
            if item is not None:
                self.element.serialize(item, out)

    def deserialize(self, data: DataInput) -> list[Any]:
        return [
            self.element.deserialize(data) if data.read_bool("element is there") else None
            for _ in range(data.read_count("collection size", 1))
        ]

    def write_outer_fields(self, out: DataOutput) -> None:
        out.write_utf(self.builder)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        read_composite_header(data, 2)
        builder = data.read_utf("builder of a collection")
        [element] = context.read_nested(data, 1)
        return cls(builder, element)

    def to_text(self, value: list[Any]) -> JsonValue:
        texts = [None if item is None else self.element.to_text(item) for item in value]
        if self.is_set:
            return sorted(texts, key=text_key)
        if self.is_map:
            keys = (text[0] if isinstance(text, list) and text else text for text in texts)
            return [
                text for _, text in sorted(zip(map(text_key, keys), texts, strict=True), key=_first)
            ]
        return texts


def _first(pair: tuple[bytes, JsonValue]) -> bytes:
    return pair[0]


@dataclass(frozen=True)
class ScalaEnumSerializer(TypeSerializer[str]):
    """A value is the name of a constant. Ids need neither start at 0 nor follow each other."""

    enumeration: str
    constants: tuple[tuple[str, int], ...]
    snapshot_class: ClassVar[str] = PACKAGE + "ScalaEnumSerializerSnapshot"
    length: ClassVar[int] = 4

    @property
    def type_name(self) -> str:
        return f"Enumeration<{self.enumeration}>"

    def serialize(self, value: str, out: DataOutput) -> None:
        out.write_i32(dict(self.constants)[value])

    def deserialize(self, data: DataInput) -> str:
        at = data.position
        number = data.read_i32("enumeration id")
        for name, known in self.constants:
            if known == number:
                return name
        ids = ", ".join(str(known) for _, known in self.constants)
        raise bad_value(f"A value of {self.enumeration} does not exist", at, ids, number)

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_utf(self.enumeration)
        out.write_i32(len(self.constants))
        for name, number in self.constants:
            out.write_utf(name)
            out.write_i32(number)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        return cls(
            data.read_utf("enumeration"),
            tuple(
                (data.read_utf("enumeration name"), data.read_i32("enumeration id"))
                for _ in range(data.read_count("enumeration size", 6))
            ),
        )


@dataclass(frozen=True)
class ScalaUnitSerializer(OneByteSerializer[None]):
    snapshot_class: ClassVar[str] = PACKAGE + "UnitSerializer$UnitSerializerSnapshot"
    type_name: ClassVar[str] = "Unit"
    noun: ClassVar[str] = "unit"


@dataclass(frozen=True)
class ScalaNothingSerializer(TypeSerializer[None]):
    """The type of the content of a ``None``; it has no values."""

    snapshot_class: ClassVar[str] = PACKAGE + "NothingSerializerSnapshot"
    type_name: ClassVar[str] = "Nothing"

    def serialize(self, value: None, out: DataOutput) -> None:
        raise TypeError("expected no value at all")

    def deserialize(self, data: DataInput) -> None:
        raise bad_value("Nothing has a value", data.position, "no value", "one")


READERS = readers_of(
    ScalaCaseClassSerializer,
    ScalaTuple2Serializer,
    ScalaOptionSerializer,
    ScalaEitherSerializer,
    ScalaTrySerializer,
    ScalaUnitSerializer,
    ScalaNothingSerializer,
    ScalaCollectionSerializer,
    ScalaEnumSerializer,
)
