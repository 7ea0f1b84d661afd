"""SQL's internal types.

Source: ``org.apache.flink.table.runtime.typeutils`` and ``org.apache.flink.table.dataview`` of
Flink 2.2.1. Snapshots of rows, arrays and maps hold Java objects (their logical types). The bytes
of these objects are kept and written back unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from dstl_core.codec.big_decimal import (
    BigDecimal,
    integer_text,
    plain_digits,
    two_s_complement,
)
from dstl_core.codec.binary_row import (
    COMPACT_DECIMAL,
    COMPACT_TIMESTAMP,
    ArrayData,
    MapData,
    RawValue,
    RowData,
    TimestampData,
    multiset_count,
    read_array,
    read_map,
    read_row,
    row_java_hash,
    write_array,
    write_map,
    write_row,
)
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.java_stream import read_java_object_bytes
from dstl_core.codec.logical_type_objects import java_object_of, parse_logical_type
from dstl_core.codec.logical_types import LogicalType, logical_type_of
from dstl_core.codec.serializers.arrays import BytePrimitiveArraySerializer
from dstl_core.codec.serializers.base import (
    AnySerializer,
    JsonValue,
    SnapshotContext,
    TypeSerializer,
    bad_value,
    check_snapshot_version,
    readers_of,
    write_nested,
)
from dstl_core.codec.serializers.collections import text_key
from dstl_core.codec.serializers.dates import date_time_text
from dstl_core.codec.serializers.primitives import (
    BooleanSerializer,
    ByteSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
    float_text,
)
from dstl_core.codec.serializers.structs import ROW_KINDS
from dstl_core.errors import ConfigError

TYPEUTILS = "org.apache.flink.table.runtime.typeutils."
_WITH_NAMES = 4
"""The version of a row's snapshot that may hold the names of its columns."""


def plain_decimal_text(value: BigDecimal) -> str:
    """The text of ``BigDecimal.toPlainString``; the scale is not negative."""
    digits = plain_digits(integer_text(abs(value.unscaled)), value.scale)
    return f"-{digits}" if value.unscaled < 0 else digits


def sql_text(value: Any, kind: LogicalType) -> JsonValue:
    """The text of a value inside a SQL row, array or map."""
    if value is None:
        return None
    match kind.root:
        case "FLOAT" | "DOUBLE":
            return float_text(value)
        case "DECIMAL":
            return plain_decimal_text(value)
        case "TIMESTAMP" | "TIMESTAMP_LTZ" | "TIMESTAMP_TZ":
            return date_time_text(value.millis, value.nanos)
        case "BINARY" | "VARBINARY":
            return bytes(value).hex()
        case "ROW":
            return row_text(value, kind.children)
        case "ARRAY":
            return [sql_text(item, kind.children[0]) for item in value.items]
        case "MAP":
            return _pairs_text(value, kind.children[0], kind.children[1])
        case "MULTISET":
            return _pairs_text(value, kind.children[0], multiset_count())
        case "RAW" | "VARIANT":
            return {"raw": value.raw.hex()}
        case _:
            return value


def row_text(value: RowData, types: tuple[LogicalType, ...]) -> JsonValue:
    fields = zip(value.fields, types, strict=True)
    return [ROW_KINDS[value.kind], *(sql_text(item, kind) for item, kind in fields)]


def _pairs_text(value: MapData, key: LogicalType, item: LogicalType) -> JsonValue:
    pairs = [[sql_text(k, key), sql_text(v, item)] for k, v in value.pairs]
    return sorted(pairs, key=lambda pair: text_key(pair[0]))


@dataclass(frozen=True)
class SnapshotObject:
    """A Java object of a snapshot: its bytes, and the logical type that it describes."""

    kind: LogicalType
    raw: bytes = field(repr=False)


def _read_type(data: DataInput) -> SnapshotObject:
    value, raw = read_java_object_bytes(data)
    return SnapshotObject(logical_type_of(value), raw)


def _written(raw: bytes | None, what: str) -> bytes:
    if raw is None:
        raise ConfigError(
            f"The snapshot of {what} cannot be written: it holds a Java object, which dstl copies "
            f"from existing snapshots only; read the serializer from a savepoint of the job."
        )
    return raw


# ------------------------------------------------------------------------------------ scalars


@dataclass(frozen=True)
class StringDataSerializer(TypeSerializer[str]):
    """i32 size, UTF-8. Bytes that are not UTF-8 are kept as surrogates."""

    snapshot_class: ClassVar[str] = TYPEUTILS + "StringDataSerializer$StringDataSerializerSnapshot"
    type_name: ClassVar[str] = "StringData"

    def serialize(self, value: str, out: DataOutput) -> None:
        raw = value.encode("utf-8", "surrogateescape")
        out.write_sized(raw)

    def deserialize(self, data: DataInput) -> str:
        raw = data.read_bytes(data.read_length("StringData size"), "StringData")
        return raw.decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class DecimalDataSerializer(TypeSerializer[BigDecimal]):
    """i64 unscaled value up to 18 digits, otherwise i32 size and the bytes of the unscaled
    value.
    """

    precision: int
    scale: int
    snapshot_class: ClassVar[str] = TYPEUTILS + "DecimalDataSerializer$DecimalSerializerSnapshot"

    @property
    def type_name(self) -> str:
        return f"DecimalData({self.precision}, {self.scale})"

    def serialize(self, value: BigDecimal, out: DataOutput) -> None:
        if self.precision <= COMPACT_DECIMAL:
            out.write_i64(value.unscaled)
            return
        raw = two_s_complement(value.unscaled)
        out.write_sized(raw)

    def deserialize(self, data: DataInput) -> BigDecimal:
        if self.precision <= COMPACT_DECIMAL:
            return BigDecimal(data.read_i64("DecimalData"), self.scale)
        raw = data.read_bytes(data.read_length("DecimalData size"), "DecimalData")
        return BigDecimal(int.from_bytes(raw, "big", signed=True), self.scale)

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_i32(self.precision)
        out.write_i32(self.scale)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        at = data.position
        precision, scale = data.read_i32("decimal precision"), data.read_i32("decimal scale")
        if not 0 <= scale <= precision <= 38:
            raise bad_value("A decimal type is impossible", at, "scale <= precision <= 38", scale)
        return cls(precision, scale)

    def to_text(self, value: BigDecimal) -> JsonValue:
        return plain_decimal_text(value)


@dataclass(frozen=True)
class TimestampDataSerializer(TypeSerializer[TimestampData]):
    """i64 milliseconds; for precision above 3 also i32 nanoseconds within the millisecond."""

    precision: int
    snapshot_class: ClassVar[str] = (
        TYPEUTILS + "TimestampDataSerializer$TimestampDataSerializerSnapshot"
    )
    snapshot_version: ClassVar[int] = 1

    @property
    def type_name(self) -> str:
        return f"TimestampData({self.precision})"

    @property
    def length(self) -> int:
        return 8 if self.precision <= COMPACT_TIMESTAMP else 12

    def serialize(self, value: TimestampData, out: DataOutput) -> None:
        out.write_i64(value.millis)
        if self.precision > COMPACT_TIMESTAMP:
            out.write_i32(value.nanos)

    def deserialize(self, data: DataInput) -> TimestampData:
        millis = data.read_i64("TimestampData")
        at = data.position
        nanos = data.read_i32("nanos") if self.precision > COMPACT_TIMESTAMP else 0
        if not 0 <= nanos < 1_000_000:
            raise bad_value("The nanos of a millisecond are out of bounds", at, "0..999999", nanos)
        return TimestampData(millis, nanos)

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_i32(self.precision)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        return cls(data.read_i32("timestamp precision"))

    def to_text(self, value: TimestampData) -> JsonValue:
        return date_time_text(value.millis, value.nanos)


@dataclass(frozen=True)
class NullSerializer(TypeSerializer[None]):
    """One byte, 0: the accumulator of an aggregate whose state is elsewhere."""

    snapshot_class: ClassVar[str] = (
        "org.apache.flink.table.dataview.NullSerializer$NullSerializerSnapshot"
    )
    type_name: ClassVar[str] = "Null"
    length: ClassVar[int] = 1

    def serialize(self, value: None, out: DataOutput) -> None:
        out.write_u8(0)

    def deserialize(self, data: DataInput) -> None:
        data.read_u8("null value")


# --------------------------------------------------------------------------- rows, arrays, maps


@dataclass(frozen=True)
class RowDataSerializer(TypeSerializer[RowData]):
    """i32 size, then the memory of a binary row.

    ``objects`` are the bytes of the field types in a snapshot; None for a serializer that was not
    read from a snapshot. Version 4 of the snapshot (Flink 2.4) may hold the ``names`` of the
    columns, which change no byte of a value.
    """

    types: tuple[LogicalType, ...]
    parts: tuple[AnySerializer, ...] = ()
    objects: tuple[bytes, ...] | None = field(default=None, compare=False, repr=False)
    names: tuple[str, ...] | None = field(default=None, compare=False)
    snapshot_version: int = field(  # type: ignore[misc]  # here it differs by instance
        default=3, compare=False, repr=False
    )
    snapshot_class: ClassVar[str] = TYPEUTILS + "RowDataSerializer$RowDataSerializerSnapshot"

    @property
    def type_name(self) -> str:
        return f"RowData<{', '.join(str(each) for each in self.types)}>"

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return self.parts

    def serialize(self, value: RowData, out: DataOutput) -> None:
        memory = write_row(value, self.types)
        out.write_sized(memory)

    def deserialize(self, data: DataInput) -> RowData:
        size = data.read_length("row size")
        at = data.position
        return read_row(data.read_bytes(size, "row"), self.types, at)

    def write_snapshot_payload(self, out: DataOutput) -> None:
        objects = self.objects
        out.write_i32(len(self.types))
        for at in range(len(self.types)):
            out.write_bytes(_written(objects[at] if objects else None, self.type_name))
        write_nested(out, self.parts)
        if self.snapshot_version == _WITH_NAMES:
            out.write_bool(self.names is not None)
            for name in self.names or ():
                out.write_utf(name)

    def java_hash(self, value: RowData) -> int:
        return row_java_hash(write_row(value, self.types))

    def to_text(self, value: RowData) -> JsonValue:
        return row_text(value, self.types)


def row_data_of(*names: str) -> RowDataSerializer:
    """The serializer of rows, from the names of their SQL types.

    Raises:
        ConfigError: A type is not known, or is nested.
    """
    types = tuple(map(parse_logical_type, names))
    return RowDataSerializer(types, tuple(map(_part_of, types)), tuple(map(java_object_of, types)))


def _part_of(kind: LogicalType) -> AnySerializer:
    """The serializer that ``InternalSerializers.create`` returns for a type without element
    types.
    """
    match kind.root:
        case "CHAR" | "VARCHAR":
            return StringDataSerializer()
        case "DECIMAL":
            return DecimalDataSerializer(kind.precision, kind.scale)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return TimestampDataSerializer(kind.precision)
        case root:
            return _PARTS[root]


_PARTS: dict[str, AnySerializer] = {
    "BOOLEAN": BooleanSerializer(),
    "BINARY": BytePrimitiveArraySerializer(),
    "VARBINARY": BytePrimitiveArraySerializer(),
    "TINYINT": ByteSerializer(),
    "SMALLINT": ShortSerializer(),
    "INT": IntSerializer(),
    "DATE": IntSerializer(),
    "TIME": IntSerializer(),
    "BIGINT": LongSerializer(),
    "FLOAT": FloatSerializer(),
    "DOUBLE": DoubleSerializer(),
}


def _read_row_data(data: DataInput, version: int, context: SnapshotContext) -> RowDataSerializer:
    if version != _WITH_NAMES:
        check_snapshot_version(data, RowDataSerializer, version)
    # A Java object has more than 30 bytes.
    types = [_read_type(data) for _ in range(data.read_count("row fields", 8))]
    parts = tuple(context.read_nested(data, len(types)))
    names = None
    if version == _WITH_NAMES and data.read_bool("has names of columns"):
        names = tuple(data.read_utf("name of a column") for _ in types)
    return RowDataSerializer(
        tuple(each.kind for each in types),
        parts,
        tuple(each.raw for each in types),
        names,
        version,
    )


@dataclass(frozen=True)
class BinaryRowDataSerializer(TypeSerializer[RawValue]):
    """A row whose snapshot has the number of its fields but not their types."""

    arity: int
    snapshot_class: ClassVar[str] = (
        TYPEUTILS + "BinaryRowDataSerializer$BinaryRowDataSerializerSnapshot"
    )

    @property
    def type_name(self) -> str:
        return f"BinaryRowData({self.arity})"

    def serialize(self, value: RawValue, out: DataOutput) -> None:
        out.write_sized(value.raw)

    def deserialize(self, data: DataInput) -> RawValue:
        return RawValue(data.read_bytes(data.read_length("row size"), "row"))

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_i32(self.arity)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        return cls(data.read_i32("number of fields"))

    def java_hash(self, value: RawValue) -> int:
        return row_java_hash(value.raw)

    def to_text(self, value: RawValue) -> JsonValue:
        return {"raw": value.raw.hex()}


@dataclass(frozen=True)
class ArrayDataSerializer(TypeSerializer[ArrayData]):
    """i32 size, then the memory of a binary array."""

    element: LogicalType
    objects: tuple[bytes, ...] | None = field(default=None, compare=False, repr=False)
    snapshot_class: ClassVar[str] = TYPEUTILS + "ArrayDataSerializer$ArrayDataSerializerSnapshot"

    @property
    def type_name(self) -> str:
        return f"ArrayData<{self.element}>"

    def serialize(self, value: ArrayData, out: DataOutput) -> None:
        memory = write_array(value, self.element)
        out.write_sized(memory)

    def deserialize(self, data: DataInput) -> ArrayData:
        size = data.read_length("array size")
        at = data.position
        return read_array(data.read_bytes(size, "array"), self.element, at)

    def write_snapshot_payload(self, out: DataOutput) -> None:
        for at in range(2):
            out.write_bytes(_written(self.objects[at] if self.objects else None, self.type_name))

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        element = _read_type(data)
        _, serializer = read_java_object_bytes(data)
        return cls(element.kind, (element.raw, serializer))

    def to_text(self, value: ArrayData) -> JsonValue:
        return [sql_text(item, self.element) for item in value.items]


@dataclass(frozen=True)
class MapDataSerializer(TypeSerializer[MapData]):
    """i32 size, then the memory of a binary map."""

    key: LogicalType
    value: LogicalType
    objects: tuple[bytes, ...] | None = field(default=None, compare=False, repr=False)
    snapshot_class: ClassVar[str] = TYPEUTILS + "MapDataSerializer$MapDataSerializerSnapshot"

    @property
    def type_name(self) -> str:
        return f"MapData<{self.key}, {self.value}>"

    def serialize(self, value: MapData, out: DataOutput) -> None:
        memory = write_map(value, self.key, self.value)
        out.write_sized(memory)

    def deserialize(self, data: DataInput) -> MapData:
        size = data.read_length("map size")
        at = data.position
        return read_map(data.read_bytes(size, "map"), self.key, self.value, at)

    def write_snapshot_payload(self, out: DataOutput) -> None:
        for at in range(4):
            out.write_bytes(_written(self.objects[at] if self.objects else None, self.type_name))

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        key, value = _read_type(data), _read_type(data)
        serializers = [read_java_object_bytes(data)[1] for _ in range(2)]
        return cls(key.kind, value.kind, (key.raw, value.raw, *serializers))

    def to_text(self, value: MapData) -> JsonValue:
        return _pairs_text(value, self.key, self.value)


READERS = readers_of(
    StringDataSerializer,
    NullSerializer,
    DecimalDataSerializer,
    TimestampDataSerializer,
    BinaryRowDataSerializer,
    ArrayDataSerializer,
    MapDataSerializer,
)
READERS[RowDataSerializer.snapshot_class] = _read_row_data
