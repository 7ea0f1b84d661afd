"""Container types of SQL operators' state.

Source: ``SortedMapSerializer``, ``LinkedListSerializer``, ``WindowKeySerializer``,
``RawValueDataSerializer`` and ``ExternalSerializer`` of
``org.apache.flink.table.runtime.typeutils``; ``MapViewSerializer``, ``ListViewSerializer`` and
``NullAwareMapSerializer`` of ``org.apache.flink.table.dataview``; Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from dstl_core.codec.binary_row import RawValue, RowData
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.java_stream import JavaClass, JavaObject, read_java_object_bytes
from dstl_core.codec.serializers.base import (
    AnySerializer,
    CompositeSerializer,
    JsonValue,
    SnapshotContext,
    WrapperSerializer,
    bad_value,
    read_composite_header,
    readers_of,
    write_nested,
)
from dstl_core.codec.serializers.collections import MapSerializer, text_key
from dstl_core.codec.serializers.dates import (
    civil_from_days,
    date_text,
    time_from_nano_of_day,
    time_text,
)
from dstl_core.codec.serializers.structs import read_mask, write_mask
from dstl_core.codec.serializers.table_types import TYPEUTILS

_DATAVIEW = "org.apache.flink.table.dataview."


@dataclass(frozen=True)
class SortedMapSerializer(MapSerializer):
    """A map with a comparator; the bytes of the comparator are kept."""

    comparator: bytes = field(default=b"", compare=False, repr=False)
    snapshot_class: ClassVar[str] = TYPEUTILS + "SortedMapSerializerSnapshot"
    kind: ClassVar[str] = "SortedMap"

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_bytes(self.comparator)
        write_nested(out, [self.key, self.value])

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        _, comparator = read_java_object_bytes(data)
        key, value = context.read_nested(data, 2)
        return cls(key, value, comparator)


@dataclass(frozen=True)
class LinkedListSerializer(CompositeSerializer[list[Any]]):
    """i32 count, a null mask (not in old releases), then the elements that are not null."""

    element: AnySerializer
    with_nulls: bool = True
    outer_version: int = 3
    snapshot_class: ClassVar[str] = TYPEUTILS + "LinkedListSerializer$LinkedListSerializerSnapshot"
    kind: ClassVar[str] = "LinkedList"
    part_names: ClassVar[tuple[str, ...]] = ("element",)

    def serialize(self, value: list[Any], out: DataOutput) -> None:
        out.write_i32(len(value))
        if self.with_nulls:
            write_mask(out, [item is None for item in value])
        for item in value:
            if item is not None:
                self.element.serialize(item, out)

    def deserialize(self, data: DataInput) -> list[Any]:
        at = data.position
        count = data.read_i32("list size")
        if not 0 <= count <= 8 * data.remaining:
            raise bad_value("A list size does not fit", at, f"0..{8 * data.remaining}", count)
        if not self.with_nulls:
            return [self.element.deserialize(data) for _ in range(count)]
        mask = read_mask(data, count)
        return [None if is_null else self.element.deserialize(data) for is_null in mask]

    def write_outer_fields(self, out: DataOutput) -> None:
        if self.outer_version >= 3:
            out.write_bool(self.with_nulls)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        outer = read_composite_header(data, 1, 2, 3)
        with_nulls = data.read_bool("has null mask") if outer == 3 else outer == 2
        [element] = context.read_nested(data, 1)
        return cls(element, with_nulls, outer)

    def to_text(self, value: list[Any]) -> JsonValue:
        return [None if item is None else self.element.to_text(item) for item in value]


class WindowKey(NamedTuple):
    """A key of a window aggregate's buffer."""

    window: int
    key: RowData


@dataclass(frozen=True)
class WindowKeySerializer(CompositeSerializer[WindowKey]):
    """i64 window, then the key."""

    key: AnySerializer
    snapshot_class: ClassVar[str] = TYPEUTILS + "WindowKeySerializer$WindowKeySerializerSnapshot"
    kind: ClassVar[str] = "WindowKey"
    part_names: ClassVar[tuple[str, ...]] = ("key",)

    def serialize(self, value: WindowKey, out: DataOutput) -> None:
        out.write_i64(value.window)
        self.key.serialize(value.key, out)

    def deserialize(self, data: DataInput) -> WindowKey:
        return WindowKey(data.read_i64("window"), self.key.deserialize(data))

    def to_text(self, value: WindowKey) -> JsonValue:
        return [value.window, self.key.to_text(value.key)]


@dataclass(frozen=True)
class RawValueDataSerializer(CompositeSerializer[RawValue]):
    """i32 size, then the bytes of a value of SQL's RAW type."""

    inner: AnySerializer
    snapshot_class: ClassVar[str] = (
        TYPEUTILS + "RawValueDataSerializer$RawValueDataSerializerSnapshot"
    )
    kind: ClassVar[str] = "RawValue"
    part_names: ClassVar[tuple[str, ...]] = ("inner",)
    outer_version = 0

    def serialize(self, value: RawValue, out: DataOutput) -> None:
        out.write_sized(value.raw)

    def deserialize(self, data: DataInput) -> RawValue:
        return RawValue(data.read_bytes(data.read_length("raw value size"), "raw value"))

    def to_text(self, value: RawValue) -> JsonValue:
        return {"raw": value.raw.hex()}


@dataclass(frozen=True)
class ExternalSerializer(WrapperSerializer):
    """A Java class for users, with the bytes of SQL's internal type.

    ``java_class`` is the users' class; the text of a value is that of this class.
    """

    inner: AnySerializer
    java_class: str
    is_internal: bool
    data_type: bytes = field(compare=False, repr=False)
    snapshot_class: ClassVar[str] = TYPEUTILS + "ExternalSerializer$ExternalSerializerSnapshot"
    kind: ClassVar[str] = "External"

    def write_outer_fields(self, out: DataOutput) -> None:
        out.write_bytes(self.data_type)
        out.write_bool(self.is_internal)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        read_composite_header(data, 1)
        value, raw = read_java_object_bytes(data)
        is_internal = data.read_bool("is internal input")
        [inner] = context.read_nested(data, 1)
        outside = value.fields.get("conversionClass") if isinstance(value, JavaObject) else None
        java_class = outside.name if isinstance(outside, JavaClass) else ""
        return cls(inner, java_class, is_internal, raw)

    def to_text(self, value: Any) -> JsonValue:
        match self.java_class:
            case "java.time.LocalDate" if isinstance(value, int):
                return date_text(civil_from_days(value))
            case "java.time.LocalTime" if isinstance(value, int):
                return time_text(time_from_nano_of_day(value * 1_000_000))
            case "org.apache.flink.types.Row" if isinstance(value, RowData) and value.kind == 0:
                return self.inner.to_text(value)[1:]
        return self.inner.to_text(value)


# ---------------------------------------------------------------------------------- data views


@dataclass(frozen=True)
class NullAwareMapSerializer(MapSerializer):
    """A map that may have a null key: ``bool, [key], bool, [value]`` for each entry."""

    snapshot_class: ClassVar[str] = _DATAVIEW + "NullAwareMapSerializerSnapshot"
    kind: ClassVar[str] = "NullAwareMap"

    def serialize(self, value: list[tuple[Any, Any]], out: DataOutput) -> None:
        out.write_i32(len(value))
        for pair in value:
            for part, serializer in zip(pair, (self.key, self.value), strict=True):
                out.write_bool(part is None)
                if part is not None:
                    serializer.serialize(part, out)

    def deserialize(self, data: DataInput) -> list[tuple[Any, Any]]:
        pairs = []
        for _ in range(data.read_count("map size", 2)):
            key = None if data.read_bool("key is null") else self.key.deserialize(data)
            item = None if data.read_bool("value is null") else self.value.deserialize(data)
            pairs.append((key, item))
        return pairs

    def to_text(self, value: list[tuple[Any, Any]]) -> JsonValue:
        pairs = [
            [
                None if key is None else self.key.to_text(key),
                None if item is None else self.value.to_text(item),
            ]
            for key, item in value
        ]
        return sorted(pairs, key=lambda pair: text_key(pair[0]))


@dataclass(frozen=True)
class _ViewSerializer(WrapperSerializer):
    """A data view. Its bytes are those of the collection that it wraps."""

    inner: AnySerializer
    kind: ClassVar[str] = "View"


@dataclass(frozen=True)
class MapViewSerializer(_ViewSerializer):
    snapshot_class: ClassVar[str] = _DATAVIEW + "MapViewSerializerSnapshot"


@dataclass(frozen=True)
class ListViewSerializer(_ViewSerializer):
    snapshot_class: ClassVar[str] = _DATAVIEW + "ListViewSerializerSnapshot"


READERS = readers_of(
    WindowKeySerializer,
    RawValueDataSerializer,
    NullAwareMapSerializer,
    MapViewSerializer,
    ListViewSerializer,
    SortedMapSerializer,
    LinkedListSerializer,
    ExternalSerializer,
)
