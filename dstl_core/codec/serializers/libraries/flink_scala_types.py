"""Sorted and mutable collections, enumerations of Scala 3, and times of flink-scala-api.

    mutable Map     two snapshots; value: as Map, or 80000000 for null
    sorted Set      as a collection, then the snapshot of the ordering
    sorted Map      snapshots of key, value and ordering
                    value: i32 count, or 80000000 for null; the ordering; elements or pairs
    ordering        no bytes, or those of the ordering that it turns around
    enum            composite, outer version 1: i32 count, count x text names; a part for each case
                    value: byte index of the case, or 80 for null; the value
    case of an enum utf companion, utf name; no bytes
    Duration        byte: ff null, 0 FiniteDuration, 1 undefined, 2 infinite, 3 minus infinite
    FiniteDuration  i64 length, i32 unit
    ZoneId          text
    ZoneOffset      i32 seconds, or 80000000 for null
    ZonedDateTime, OffsetDateTime: LocalDateTime, then the ZoneId or the ZoneOffset

Source: ``org.apache.flinkx.api.serializer`` of flink-scala-api 2.2.4. No job of it is at hand that
has such state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.arrays import StringArraySerializer
from dstl_core.codec.serializers.base import (
    AnySerializer,
    CompositeSerializer,
    JsonValue,
    SnapshotContext,
    SnapshotReader,
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
from dstl_core.codec.serializers.dates import LocalDateTime, LocalDateTimeSerializer
from dstl_core.codec.serializers.libraries.flink_scala_api import (
    NULL_MARK,
    PACKAGE,
    BytelessSerializer,
    CoproductSerializer,
    ScalaMapSerializer,
    read_size,
)
from dstl_core.codec.serializers.scala import ScalaNothingSerializer
from dstl_core.codec.serializers.strings import read_string_value, write_string_value

_FARTHEST_SECONDS = 18 * 3600
_UNITS = ("nanosecond", "microsecond", "millisecond", "second", "minute", "hour", "day")
"""The constants of ``java.util.concurrent.TimeUnit`` in their order."""
_NULL_DURATION, _FINITE = -1, 0
_INFINITE = {1: "Duration.Undefined", 2: "Duration.Inf", 3: "Duration.MinusInf"}
_LOCAL = LocalDateTimeSerializer()


# -------------------------------------------------------------------------------- collections


@dataclass(frozen=True)
class MutableMapSerializer(ScalaMapSerializer):
    snapshot_class: ClassVar[str] = PACKAGE + "MutableMapSerializerSnapshot"
    snapshot_version: ClassVar[int] = 1

    def serialize(self, value: list[tuple[Any, Any]] | None, out: DataOutput) -> None:
        if value is None:
            out.write_i32(NULL_MARK)
        else:
            super().serialize(value, out)

    def deserialize(  # type: ignore[override]
        self, data: DataInput
    ) -> list[tuple[Any, Any]] | None:
        at = data.position
        if read_size(data, "map size", 0) is None:
            return None
        data.seek(at)
        return super().deserialize(data)

    def to_text(self, value: list[tuple[Any, Any]] | None) -> JsonValue:
        return None if value is None else super().to_text(value)


class SortedItems(NamedTuple):
    """The value of a sorted collection: its ordering, and its elements or pairs in that order."""

    ordering: Any
    items: list[Any]


@dataclass(frozen=True)
class SortedSetSerializer(TypeSerializer[SortedItems | None]):
    """A sorted set; ``serializer_class`` says whether it is a mutable one."""

    serializer_class: str
    element_class: str
    element: AnySerializer
    ordering: AnySerializer
    snapshot_class: ClassVar[str] = PACKAGE + "SortedCollectionSerializerSnapshot"
    snapshot_version: ClassVar[int] = 2

    @property
    def type_name(self) -> str:
        kind = self.serializer_class.rpartition(".")[2].removesuffix("Serializer")
        return f"{kind}<{self.element.type_name}>"

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return (self.element, self.ordering)

    def serialize(self, value: SortedItems | None, out: DataOutput) -> None:
        if value is None:
            out.write_i32(NULL_MARK)
            return
        out.write_i32(len(value.items))
        self.ordering.serialize(value.ordering, out)
        for item in value.items:
            self.element.serialize(item, out)

    def deserialize(self, data: DataInput) -> SortedItems | None:
        count = read_size(data, "collection size", int(self.element.length != 0))
        if count is None:
            return None
        ordering = self.ordering.deserialize(data)
        return SortedItems(ordering, [self.element.deserialize(data) for _ in range(count)])

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_utf(self.serializer_class)
        out.write_utf(self.element_class)
        write_snapshot(out, self.element)
        write_snapshot(out, self.ordering)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        names = data.read_utf("serializer"), data.read_utf("class of elements")
        return cls(*names, context.read_snapshot(data), context.read_snapshot(data))

    def to_text(self, value: SortedItems | None) -> JsonValue:
        return None if value is None else [self.element.to_text(item) for item in value.items]


@dataclass(frozen=True)
class ScalaSortedMapSerializer(CompositeSerializer[SortedItems | None]):
    """A sorted map: pairs in the order of their keys."""

    key: AnySerializer
    value: AnySerializer
    ordering: AnySerializer
    part_names: ClassVar[tuple[str, ...]] = ("key", "value", "ordering")
    snapshot_class: ClassVar[str] = PACKAGE + "SortedMapSerializerSnapshot"
    snapshot_version: ClassVar[int] = 1

    @property
    def type_name(self) -> str:
        return f"SortedMap<{self.key.type_name}, {self.value.type_name}>"

    def serialize(self, value: SortedItems | None, out: DataOutput) -> None:
        if value is None:
            out.write_i32(NULL_MARK)
            return
        out.write_i32(len(value.items))
        self.ordering.serialize(value.ordering, out)
        for key, item in value.items:
            self.key.serialize(key, out)
            self.value.serialize(item, out)

    def deserialize(self, data: DataInput) -> SortedItems | None:
        count = read_size(
            data, "collection size", int(self.key.length != 0 or self.value.length != 0)
        )
        if count is None:
            return None
        ordering = self.ordering.deserialize(data)
        pairs = [(self.key.deserialize(data), self.value.deserialize(data)) for _ in range(count)]
        return SortedItems(ordering, pairs)

    def write_snapshot_payload(self, out: DataOutput) -> None:
        for part in self.nested:
            write_snapshot(out, part)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        return cls(*(context.read_snapshot(data) for _ in cls.part_names))

    def to_text(self, value: SortedItems | None) -> JsonValue:
        if value is None:
            return None
        return [[self.key.to_text(key), self.value.to_text(item)] for key, item in value.items]


@dataclass(frozen=True)
class MutableSortedMapSerializer(ScalaSortedMapSerializer):
    snapshot_class: ClassVar[str] = PACKAGE + "MutableSortedMapSerializerSnapshot"


@dataclass(frozen=True)
class OrderingSerializer(BytelessSerializer):
    """One of the orderings of Scala's library, which have no bytes."""

    name: str

    @property
    def snapshot_class(self) -> str:  # type: ignore[override]
        return f"{PACKAGE}{self.name}SerializerSnapshot"

    @property
    def type_name(self) -> str:
        return self.name


@dataclass(frozen=True)
class ReverseOrderingSerializer(WrapperSerializer):
    """An ordering turned around; a value is that of the other ordering."""

    inner: AnySerializer
    snapshot_class: ClassVar[str] = PACKAGE + "ReverseOrderingSerializerSnapshot"
    snapshot_version: ClassVar[int] = 1

    @property
    def type_name(self) -> str:
        return f"{type(self).__name__.removesuffix('Serializer')}<{self.inner.type_name}>"

    def write_snapshot_payload(self, out: DataOutput) -> None:
        write_snapshot(out, self.inner)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        return cls(context.read_snapshot(data))


@dataclass(frozen=True)
class OptionOrderingSerializer(ReverseOrderingSerializer):
    """The ordering of ``Option``, by that of the content."""

    snapshot_class: ClassVar[str] = PACKAGE + "OptionOrderingSerializerSnapshot"


# -------------------------------------------------------------------------------- enumerations


@dataclass(frozen=True)
class Scala3EnumSerializer(CoproductSerializer):
    """An enum of Scala 3. A value has its case as ``@class``; one without fields is its case."""

    snapshot_class: ClassVar[str] = PACKAGE + "Scala3EnumSerializerSnapshot"
    snapshot_version: ClassVar[int] = 3

    @property
    def type_name(self) -> str:
        return f"Enum<{', '.join(self.names)}>"

    @property
    def length(self) -> int:
        """What the library says, which leaves out the byte of the index."""
        lengths = {case.length for case in self.subclasses}
        return lengths.pop() if len(lengths) == 1 else -1

    def write_snapshot_payload(self, out: DataOutput) -> None:
        write_composite_header(out, 1)
        StringArraySerializer().serialize(list(self.names), out)
        write_nested(out, self.subclasses)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        read_composite_header(data, 1)
        at = data.position
        names = StringArraySerializer().deserialize(data)
        if None in names:
            raise bad_value("An enum has a case without a name", at, "a name", "null")
        cases = tuple(context.read_nested(data, len(names)))
        return cls(tuple(str(name) for name in names), cases)


@dataclass(frozen=True)
class Scala3EnumValueSerializer(BytelessSerializer):
    """A case of an enum that has no fields, and so no bytes. A text is its name."""

    companion: str
    name: str
    snapshot_class: ClassVar[str] = PACKAGE + "Scala3EnumValueSerializerSnapshot"
    snapshot_version: ClassVar[int] = 1

    @property
    def type_name(self) -> str:
        return self.name

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_utf(self.companion)
        out.write_utf(self.name)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        return cls(data.read_utf("companion"), data.read_utf("name of a case"))

    def to_text(self, value: None) -> JsonValue:
        return self.name


# --------------------------------------------------------------------------------------- times


class ScalaDuration(NamedTuple):
    """``kind`` is 0 for a finite duration, which has the others."""

    kind: int
    amount: int = 0
    unit: int = 0


@dataclass(frozen=True)
class FiniteDurationSerializer(TypeSerializer[ScalaDuration]):
    snapshot_class: ClassVar[str] = PACKAGE + "FiniteDurationSerializerSnapshot"
    type_name: ClassVar[str] = "FiniteDuration"
    length: ClassVar[int] = 12

    def serialize(self, value: ScalaDuration, out: DataOutput) -> None:
        out.write_i64(value.amount)
        out.write_i32(value.unit)

    def deserialize(self, data: DataInput) -> ScalaDuration:
        amount = data.read_i64("length of a duration")
        at = data.position
        unit = data.read_i32("unit of a duration")
        if not 0 <= unit < len(_UNITS):
            raise bad_value("A duration has no such unit", at, f"0 to {len(_UNITS) - 1}", unit)
        return ScalaDuration(_FINITE, amount, unit)

    def to_text(self, value: ScalaDuration) -> JsonValue:
        return f"{value.amount} {_UNITS[value.unit]}{'' if value.amount == 1 else 's'}"


_FINITE_DURATION = FiniteDurationSerializer()


@dataclass(frozen=True)
class DurationSerializer(TypeSerializer[ScalaDuration | None]):
    """A duration that may be without an end."""

    snapshot_class: ClassVar[str] = PACKAGE + "DurationSerializerSnapshot"
    type_name: ClassVar[str] = "Duration"

    def serialize(self, value: ScalaDuration | None, out: DataOutput) -> None:
        out.write_i8(_NULL_DURATION if value is None else value.kind)
        if value is not None and value.kind == _FINITE:
            _FINITE_DURATION.serialize(value, out)

    def deserialize(self, data: DataInput) -> ScalaDuration | None:
        at = data.position
        kind = data.read_i8("kind of a duration")
        if kind == _NULL_DURATION:
            return None
        if kind == _FINITE:
            return _FINITE_DURATION.deserialize(data)
        if kind not in _INFINITE:
            raise bad_value("A duration has no such kind", at, "-1 to 3", kind)
        return ScalaDuration(kind)

    def to_text(self, value: ScalaDuration | None) -> JsonValue:
        if value is None:
            return None
        return _INFINITE.get(value.kind) or _FINITE_DURATION.to_text(value)


@dataclass(frozen=True)
class ZoneIdSerializer(TypeSerializer[str | None]):
    snapshot_class: ClassVar[str] = PACKAGE + "ZoneIdSerializerSnapshot"
    type_name: ClassVar[str] = "ZoneId"

    def serialize(self, value: str | None, out: DataOutput) -> None:
        write_string_value(out, value)

    def deserialize(self, data: DataInput) -> str | None:
        return read_string_value(data)


@dataclass(frozen=True)
class ZoneOffsetSerializer(TypeSerializer[int | None]):
    """Seconds before or behind UTC; a text is that of Java."""

    snapshot_class: ClassVar[str] = PACKAGE + "ZoneOffsetSerializerSnapshot"
    type_name: ClassVar[str] = "ZoneOffset"
    length: ClassVar[int] = 4

    def serialize(self, value: int | None, out: DataOutput) -> None:
        out.write_i32(NULL_MARK if value is None else value)

    def deserialize(self, data: DataInput) -> int | None:
        at = data.position
        seconds = data.read_i32("seconds of a zone")
        if seconds == NULL_MARK:
            return None
        if abs(seconds) > _FARTHEST_SECONDS:
            raise bad_value("A zone is too far from UTC", at, "18 hours at most", seconds)
        return seconds

    def java_hash(self, value: int | None) -> int:
        return value or 0

    def to_text(self, value: int | None) -> JsonValue:
        if not value:
            return None if value is None else "Z"
        minutes, seconds = divmod(abs(value), 60)
        text = f"{'-' if value < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
        return f"{text}:{seconds:02}" if seconds else text


class ZonedTime(NamedTuple):
    """A local time and its zone: a name, or seconds."""

    local: LocalDateTime
    zone: Any


@dataclass(frozen=True)
class OffsetDateTimeSerializer(TypeSerializer[ZonedTime | None]):
    snapshot_class: ClassVar[str] = PACKAGE + "OffsetDateTimeSerializerSnapshot"
    type_name: ClassVar[str] = "OffsetDateTime"
    zone: ClassVar[AnySerializer] = ZoneOffsetSerializer()

    @property
    def length(self) -> int:
        return -1 if self.zone.length < 0 else _LOCAL.length + self.zone.length

    def serialize(self, value: ZonedTime | None, out: DataOutput) -> None:
        _LOCAL.serialize(None if value is None else value.local, out)
        self.zone.serialize(None if value is None else value.zone, out)

    def deserialize(self, data: DataInput) -> ZonedTime | None:
        at = data.position
        local, zone = _LOCAL.deserialize(data), self.zone.deserialize(data)
        if local is None and zone is None:
            return None
        if local is None or zone is None:
            raise bad_value(f"Half of a {self.type_name} is null", at, "both or none", "one")
        return ZonedTime(local, zone)

    def java_hash(self, value: ZonedTime | None) -> int:
        if value is None:
            return 0
        return _LOCAL.java_hash(value.local) ^ self.zone.java_hash(value.zone)

    def to_text(self, value: ZonedTime | None) -> JsonValue:
        if value is None:
            return None
        return f"{_LOCAL.to_text(value.local)}{self.zone.to_text(value.zone)}"


@dataclass(frozen=True)
class ZonedDateTimeSerializer(OffsetDateTimeSerializer):
    """Its offset from UTC is not stored, so a text has the name of the zone alone."""

    snapshot_class: ClassVar[str] = PACKAGE + "ZonedDateTimeSerializerSnapshot"
    type_name: ClassVar[str] = "ZonedDateTime"
    zone: ClassVar[AnySerializer] = ZoneIdSerializer()

    def java_hash(self, value: ZonedTime | None) -> int:
        return TypeSerializer.java_hash(self, value)

    def to_text(self, value: ZonedTime | None) -> JsonValue:
        return None if value is None else f"{_LOCAL.to_text(value.local)}[{value.zone}]"


# ------------------------------------------------------------------------------------- readers


@dataclass(frozen=True)
class FlinkScalaNothingSerializer(ScalaNothingSerializer):
    snapshot_class: ClassVar[str] = PACKAGE + "NothingSerializerSnapshot"


def _ordering_reader(name: str) -> tuple[str, SnapshotReader]:
    serializer = OrderingSerializer(name)

    def read(data: DataInput, version: int, context: SnapshotContext) -> AnySerializer:
        check_version(data, serializer.snapshot_class, version, serializer.snapshot_version)
        return serializer

    return serializer.snapshot_class, read


_ORDERINGS = (
    "UnitOrdering",
    *(
        f"Default{name}Ordering"
        for name in (
            *("Boolean", "Byte", "Char", "Short", "Int", "Long", "Float", "Double"),
            *("BigInt", "BigDecimal", "String"),
        )
    ),
    "FloatIeeeOrdering",
    "DoubleIeeeOrdering",
)
READERS = dict(map(_ordering_reader, _ORDERINGS))
READERS |= readers_of(
    DurationSerializer,
    FiniteDurationSerializer,
    ZoneIdSerializer,
    ZoneOffsetSerializer,
    OffsetDateTimeSerializer,
    ZonedDateTimeSerializer,
    FlinkScalaNothingSerializer,
    MutableMapSerializer,
    ScalaSortedMapSerializer,
    MutableSortedMapSerializer,
    ReverseOrderingSerializer,
    OptionOrderingSerializer,
    SortedSetSerializer,
    Scala3EnumSerializer,
    Scala3EnumValueSerializer,
)
