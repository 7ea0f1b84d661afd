"""POJOs: classes with public fields, and their subclasses.

    snapshot := utf class, optional map of fields (name -> declaring class and name, snapshot),
                optional maps of registered and of other subclasses (class name -> snapshot)
    value    := u8 flags: 1 null | 2 this class, then for each field bool is_null, [value]
                | 4 utf class name, value of that subclass | 8 u8 tag, value of that subclass

Fields are sorted by name, including those of superclasses. An unregistered subclass may be missing
in the snapshot, since Flink adds it with the first value; such values cannot be read.
Source: ``PojoSerializer``, ``PojoSerializerSnapshot`` and ``PojoSerializerSnapshotData`` of Flink
2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    JsonValue,
    SnapshotContext,
    TypeSerializer,
    bad_value,
    readers_of,
)
from dstl_core.codec.serializers.optional_map import (
    OptionalSnapshot,
    read_optional_snapshots,
    write_optional_snapshots,
)
from dstl_core.codec.serializers.primitives import (
    BooleanSerializer,
    ByteSerializer,
    CharSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from dstl_core.errors import UnreadableValueError

_IS_NULL, _NO_SUBCLASS, _IS_SUBCLASS, _IS_TAGGED_SUBCLASS = 1, 2, 4, 8


class Pojo(NamedTuple):
    """An object: the name of its class, and its fields by name."""

    class_name: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class PojoSerializer(TypeSerializer[Pojo | None]):
    """A POJO type.

    ``registered`` are the subclasses with a tag, which is their index. ``others`` are the
    subclasses without a tag. Flink adds those when it meets them, so they do not count in
    comparisons of types.
    """

    pojo_class: str
    fields: tuple[OptionalSnapshot, ...]
    registered: tuple[OptionalSnapshot, ...] = ()
    others: tuple[OptionalSnapshot, ...] = field(default=(), compare=False)
    snapshot_class: ClassVar[str] = (
        "org.apache.flink.api.java.typeutils.runtime.PojoSerializerSnapshot"
    )
    snapshot_version: ClassVar[int] = 2

    @property
    def type_name(self) -> str:
        inner = ", ".join(
            f"{name}: {serializer.type_name if serializer else 'missing'}"
            for name, _, serializer in self.fields
        )
        return f"{self.pojo_class}{{{inner}}}"

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        entries = self.fields + self.registered + self.others
        return tuple(entry.serializer for entry in entries if entry.serializer is not None)

    def serialize(self, value: Pojo | None, out: DataOutput) -> None:
        if value is None:
            out.write_u8(_IS_NULL)
        elif value.class_name == self.pojo_class:
            out.write_u8(_NO_SUBCLASS)
            for name, _, serializer in self.fields:
                item = value.fields[name]
                out.write_bool(item is None)
                if item is not None:
                    _present(serializer, f"field {name}", out.position).serialize(item, out)
        else:
            self._serialize_subclass(value, out)

    def _serialize_subclass(self, value: Pojo, out: DataOutput) -> None:
        for tag, (name, _, serializer) in enumerate(self.registered):
            if name == value.class_name and serializer is not None:
                out.write_u8(_IS_TAGGED_SUBCLASS)
                out.write_u8(tag)
                serializer.serialize(value, out)
                return
        for name, _, serializer in self.others:
            if name == value.class_name and serializer is not None:
                self.write_other(name, out)
                serializer.serialize(value, out)
                return
        raise TypeError(f"expected {self.pojo_class} or a subclass in its snapshot")

    @staticmethod
    def write_other(class_name: str, out: DataOutput) -> None:
        """Writes the header of a value whose subclass has no tag."""
        out.write_u8(_IS_SUBCLASS)
        out.write_utf(class_name)

    def deserialize(self, data: DataInput) -> Pojo | None:
        at = data.position
        flags = data.read_u8("POJO flags")
        if flags & _IS_NULL:
            return None
        if flags & _IS_SUBCLASS:
            return self._read_other(data, data.read_utf("POJO class"), at)
        if flags & _IS_TAGGED_SUBCLASS:
            return self._read_registered(data, at)
        if not flags & _NO_SUBCLASS:
            raise bad_value("A POJO has unknown flags", at, "1, 2, 4 or 8", flags)
        values = {}
        for name, _, serializer in self.fields:
            is_null = data.read_bool("field is null")
            values[name] = (
                None
                if is_null
                else _present(serializer, f"field {name}", data.position).deserialize(data)
            )
        return Pojo(self.pojo_class, values)

    def _read_other(self, data: DataInput, class_name: str, at: int) -> Pojo | None:
        for name, _, serializer in self.others:
            if name == class_name and serializer is not None:
                pojo: Pojo | None = serializer.deserialize(data)
                return pojo
        raise UnreadableValueError(
            f"Values of {class_name}, a subclass of {self.pojo_class} that is not in the snapshot, "
            f"are not readable; register the subclass in the job",
            offset=at,
        )

    def _read_registered(self, data: DataInput, at: int) -> Pojo | None:
        tag = data.read_u8("POJO subclass tag")
        if tag >= len(self.registered):
            raise bad_value("A POJO subclass is unknown", at, f"< {len(self.registered)}", tag)
        entry = self.registered[tag]
        pojo: Pojo | None = _present(entry.serializer, entry.name, at).deserialize(data)
        return pojo

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_utf(self.pojo_class)
        for entries in (self.fields, self.registered, self.others):
            write_optional_snapshots(out, entries)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        return cls(
            data.read_utf("POJO class"),
            read_optional_snapshots(data, context),
            read_optional_snapshots(data, context),
            read_optional_snapshots(data, context),
        )

    def to_text(self, value: Pojo | None) -> JsonValue:
        if value is None:
            return None
        if value.class_name != self.pojo_class:
            for entry in self.registered + self.others:
                if entry.name == value.class_name and entry.serializer is not None:
                    return {"@class": entry.name} | entry.serializer.to_text(value)
        return {
            name: None
            if serializer is None or value.fields[name] is None
            else serializer.to_text(value.fields[name])
            for name, _, serializer in self.fields
        }


_PRIMITIVE_DEFAULTS: dict[type[AnySerializer], Any] = {
    BooleanSerializer: False,
    ByteSerializer: 0,
    CharSerializer: "\0",
    ShortSerializer: 0,
    IntSerializer: 0,
    LongSerializer: 0,
    FloatSerializer: 0.0,
    DoubleSerializer: 0.0,
}


def primitive_default(serializer: AnySerializer) -> Any:
    """The value of a new field of a Java primitive type; None for other types.

    A field ``Integer`` has the same type in a snapshot as a field ``int``, which takes no null.
    """
    return _PRIMITIVE_DEFAULTS.get(type(serializer))


def _present(serializer: AnySerializer | None, what: str, at: int) -> AnySerializer:
    if serializer is None:
        raise UnreadableValueError(
            f"The serializer of {what} is missing in the snapshot", offset=at
        )
    return serializer


READERS = readers_of(PojoSerializer)
