"""Values that only Java can read: Kryo, Java serialization, user-written value classes, variants.

Values of Kryo and of value classes have no readable end. Inside something with a length (a record
of canonical state, a change) their bytes are kept; elsewhere they cannot be read. Java objects and
variants have a readable end.

Source: ``KryoSerializer``, ``JavaSerializer``, ``ValueSerializer``, ``CopyableValueSerializer`` and
``VariantSerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.java_stream import (
    JavaEnum,
    JavaObject,
    JavaValue,
    read_java_object_bytes,
)
from dstl_core.codec.serializers.base import (
    AnySerializer,
    JsonValue,
    OpaqueValue,
    SnapshotContext,
    TypeSerializer,
    opaque_text,
    readers_of,
)
from dstl_core.codec.serializers.optional_map import (
    OptionalEntry,
    read_optional_map,
    write_optional_map,
)
from dstl_core.errors import UnreadableValueError

_RUNTIME = "org.apache.flink.api.java.typeutils.runtime."


class _OpaqueSerializer(TypeSerializer[Any]):
    """Values without a readable end."""

    java_class: str

    def serialize(self, value: Any, out: DataOutput) -> None:
        if not isinstance(value, OpaqueValue):
            raise TypeError(f"expected the bytes of a {self.java_class}")
        out.write_bytes(value.raw)

    def deserialize(self, data: DataInput) -> Any:
        raise UnreadableValueError(
            f"{self.type_name} values are not readable without their Java class",
            offset=data.position,
        )

    @property
    def opaque_class(self) -> str:
        return self.java_class


@dataclass(frozen=True)
class KryoSerializer(_OpaqueSerializer):
    """``maps`` holds the registrations and the default serializers, unparsed."""

    java_class: str
    maps: tuple[tuple[OptionalEntry, ...], ...]
    snapshot_class: ClassVar[str] = _RUNTIME + "kryo.KryoSerializerSnapshot"
    snapshot_version: ClassVar[int] = 2

    @property
    def type_name(self) -> str:
        return f"Kryo<{self.java_class}>"

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_utf(self.java_class)
        for entries in self.maps:
            write_optional_map(out, entries)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        java_class = data.read_utf("Kryo class")
        return cls(java_class, tuple(read_optional_map(data) for _ in range(3)))


@dataclass(frozen=True)
class ValueClassSerializer(_OpaqueSerializer):
    """A class that implements ``org.apache.flink.types.Value``; the snapshot has its name."""

    java_class: str
    snapshot_class: ClassVar[str] = _RUNTIME + "ValueSerializer$ValueSerializerSnapshot"
    snapshot_version: ClassVar[int] = 2

    @property
    def type_name(self) -> str:
        return f"Value<{self.java_class}>"

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_utf(self.java_class)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        return cls(data.read_utf("value class"))


@dataclass(frozen=True)
class CopyableValueClassSerializer(ValueClassSerializer):
    snapshot_class: ClassVar[str] = (
        _RUNTIME + "CopyableValueSerializer$CopyableValueSerializerSnapshot"
    )


@dataclass(frozen=True, slots=True)
class JavaValueBytes:
    """A Java object: what a text shows of it, and the bytes of its stream.

    A parsed stream takes up to a hundred times its bytes, so it is not kept.

    Args:
        plain: Null, a text, a number, or the name of an enum's constant.
        java_class: The class of any other object, else None.
        raw: The bytes of the stream.
    """

    plain: JsonValue
    java_class: str | None
    raw: bytes

    @classmethod
    def of(cls, content: JavaValue, raw: bytes) -> JavaValueBytes:
        if content is None or isinstance(content, str):
            return cls(content, None, raw)
        if isinstance(content, JavaEnum):
            return cls(content.constant, None, raw)
        if isinstance(content, JavaObject) and set(content.fields) == {"value"}:
            boxed = content.fields["value"]
            if content.name.startswith("java.lang.") and isinstance(boxed, int | float):
                return cls(boxed, None, raw)
        return cls(None, getattr(content, "name", "?"), raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JavaValueBytes) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)


@dataclass(frozen=True)
class JavaSerializer(TypeSerializer[JavaValueBytes]):
    """A stream of Java serialization. It is parsed, but no Java object is created."""

    snapshot_class: ClassVar[str] = (
        "org.apache.flink.runtime.state.JavaSerializer$JavaSerializerSnapshot"
    )
    type_name: ClassVar[str] = "JavaObject"

    def serialize(self, value: JavaValueBytes, out: DataOutput) -> None:
        out.write_bytes(value.raw)

    def deserialize(self, data: DataInput) -> JavaValueBytes:
        return JavaValueBytes.of(*read_java_object_bytes(data))

    def to_text(self, value: JavaValueBytes) -> JsonValue:
        if value.java_class is None:
            return value.plain
        return opaque_text(value.java_class, value.raw)


class Variant(NamedTuple):
    """A semi-structured value in its binary form."""

    value: bytes
    metadata: bytes


@dataclass(frozen=True)
class VariantSerializer(TypeSerializer[Variant]):
    """i32 size of the value, i32 size of the metadata, then both."""

    snapshot_class: ClassVar[str] = (
        "org.apache.flink.api.common.typeutils.base.VariantSerializer$VariantSerializerSnapshot"
    )
    type_name: ClassVar[str] = "Variant"

    def serialize(self, value: Variant, out: DataOutput) -> None:
        out.write_i32(len(value.value))
        out.write_i32(len(value.metadata))
        out.write_bytes(value.value)
        out.write_bytes(value.metadata)

    def deserialize(self, data: DataInput) -> Variant:
        value_size = data.read_length("variant value size")
        metadata_size = data.read_length("variant metadata size")
        return Variant(
            data.read_bytes(value_size, "variant value"),
            data.read_bytes(metadata_size, "variant metadata"),
        )

    def to_text(self, value: Variant) -> JsonValue:
        return opaque_text("org.apache.flink.types.variant.BinaryVariant", b"".join(value))


def holds_kryo(serializer: AnySerializer) -> bool:
    """Whether a type is of Kryo, or has such a type inside."""
    return isinstance(serializer, KryoSerializer) or any(map(holds_kryo, serializer.nested))


READERS = readers_of(
    JavaSerializer,
    VariantSerializer,
    ValueClassSerializer,
    CopyableValueClassSerializer,
    KryoSerializer,
)
