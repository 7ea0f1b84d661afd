"""The layouts of SQL's internal types."""

from __future__ import annotations

import pyarrow as pa

from dstl_core.codec.binary_row import COMPACT_DECIMAL, COMPACT_TIMESTAMP, multiset_count
from dstl_core.codec.columnar.kernels import instructions as i
from dstl_core.codec.columnar.types.layouts import (
    Fixed,
    Layout,
    LinkedListOf,
    MapOf,
    Marker,
    Nullable,
    Struct,
    Variable,
)
from dstl_core.codec.columnar.types.sql_layouts import (
    SlotBool,
    SlotBytes,
    SlotDecimal,
    SlotFixed,
    SlotLayout,
    SlotNothing,
    SlotSecondsNanos,
    SlotTime,
    SqlArray,
    SqlMap,
    SqlRow,
)
from dstl_core.codec.columnar.types.type_registry import ColumnOptions, layout_for, layout_of
from dstl_core.codec.columnar.types.value_layouts import Decimal, RowKind, time_layout
from dstl_core.codec.logical_types import LogicalType
from dstl_core.codec.serializers import AnySerializer, table_state, table_types

COARSE_TIMESTAMP = 6
"""Highest timestamp precision of a microsecond column."""

_FIXED = {
    "TINYINT": (pa.int8(), 1),
    "SMALLINT": (pa.int16(), 2),
    "INT": (pa.int32(), 4),
    "DATE": (pa.date32(), 4),
    "TIME": (pa.time32("ms"), 4),
    "INTERVAL_YEAR_MONTH": (pa.int32(), 4),
    "BIGINT": (pa.int64(), 8),
    "INTERVAL_DAY_TIME": (pa.int64(), 8),
    "FLOAT": (pa.float32(), 4),
    "DOUBLE": (pa.float64(), 8),
}


def slot_layout(kind: LogicalType, options: ColumnOptions) -> SlotLayout:
    """The layout of a SQL type inside a row, array or map."""
    match kind.root:
        case "BOOLEAN":
            return SlotBool()
        case root if root in _FIXED:
            return SlotFixed(*_FIXED[root])
        case "NULL":
            return SlotNothing()
        case "CHAR" | "VARCHAR":
            if options.strings == "utf16":
                return SlotBytes(pa.binary(), i.SLOT_BINARY)
            return SlotBytes(pa.string(), i.SLOT_TEXT)
        case "BINARY" | "VARBINARY":
            return SlotBytes(pa.binary(), i.SLOT_BINARY)
        case "DECIMAL":
            compact = kind.precision <= COMPACT_DECIMAL
            return SlotDecimal(kind.precision, kind.scale, compact=compact)
        case "TIMESTAMP" | "TIMESTAMP_LTZ" | "TIMESTAMP_TZ":
            return _slot_time(kind, options)
        case "ROW":
            return _row(kind.names, kind.children, options)
        case "ARRAY":
            return SqlArray(slot_layout(kind.children[0], options))
        case "MAP":
            return _map(kind.children[0], kind.children[1], options)
        case "MULTISET":
            return _map(kind.children[0], multiset_count(), options)
        case _:
            return SlotBytes(pa.binary(), i.SLOT_RAW)


def _slot_time(kind: LogicalType, options: ColumnOptions) -> SlotLayout:
    compact = kind.precision <= COMPACT_TIMESTAMP
    if options.timestamps == "exact" and kind.precision > COARSE_TIMESTAMP:
        return SlotSecondsNanos(compact=compact)
    zone = None if kind.root == "TIMESTAMP" else "UTC"
    return SlotTime(pa.timestamp("us", zone), compact=compact)


def _row(names: tuple[str, ...], kinds: tuple[LogicalType, ...], options: ColumnOptions) -> SqlRow:
    fields = [(name, slot_layout(kind, options)) for name, kind in zip(names, kinds, strict=True)]
    return SqlRow(fields, RowKind() if options.row_kinds == "column" else None)


def _map(key: LogicalType, value: LogicalType, options: ColumnOptions) -> SqlMap:
    as_map = options.maps == "map"
    return SqlMap(slot_layout(key, options), slot_layout(value, options), as_map=as_map)


@layout_for(table_types.RowDataSerializer)
def _row_data(serializer: table_types.RowDataSerializer, options: ColumnOptions) -> Layout:
    names = tuple(f"f{at}" for at in range(len(serializer.types)))
    return _row(names, serializer.types, options)


@layout_for(table_types.ArrayDataSerializer)
def _array_data(serializer: table_types.ArrayDataSerializer, options: ColumnOptions) -> Layout:
    return SqlArray(slot_layout(serializer.element, options))


@layout_for(table_types.MapDataSerializer)
def _map_data(serializer: table_types.MapDataSerializer, options: ColumnOptions) -> Layout:
    return _map(serializer.key, serializer.value, options)


@layout_for(table_types.StringDataSerializer)
def _string_data(_: AnySerializer, options: ColumnOptions) -> Layout:
    if options.strings == "utf16":
        return Variable(pa.binary(), i.BYTES, i.BYTES_COUNTED)
    return Variable(pa.string(), i.BYTES, i.BYTES_COUNTED_TEXT)


@layout_for(table_types.DecimalDataSerializer)
def _decimal_data(serializer: table_types.DecimalDataSerializer, _: ColumnOptions) -> Layout:
    how = 0 if serializer.precision <= COMPACT_DECIMAL else 1
    return Decimal(serializer.precision, serializer.scale, how)


@layout_for(table_types.TimestampDataSerializer)
def _timestamp_data(
    serializer: table_types.TimestampDataSerializer, options: ColumnOptions
) -> Layout:
    compact = serializer.precision <= COMPACT_TIMESTAMP
    return time_layout(
        i.TIME_DATA_MS if compact else i.TIME_DATA,
        exact=options.timestamps == "exact",
        nullable=False,
        coarse=serializer.precision <= COARSE_TIMESTAMP,
    )


@layout_for(table_types.NullSerializer)
def _null(_: AnySerializer, __: ColumnOptions) -> Layout:
    return Marker(None, always_null=True)


# ------------------------------------------------------------------------- SQL's containers


@layout_for(table_state.NullAwareMapSerializer)
def _null_aware_map(
    serializer: table_state.NullAwareMapSerializer, options: ColumnOptions
) -> Layout:
    key = Nullable(layout_of(serializer.key, options))
    value = Nullable(layout_of(serializer.value, options))
    return MapOf(key, value, as_map=options.maps == "map", item_bytes=2)


@layout_for(table_state.LinkedListSerializer)
def _linked_list(serializer: table_state.LinkedListSerializer, options: ColumnOptions) -> Layout:
    item = layout_of(serializer.element, options)
    return LinkedListOf(item, masked=serializer.with_nulls)


@layout_for(table_state.WindowKeySerializer)
def _window_key(serializer: table_state.WindowKeySerializer, options: ColumnOptions) -> Layout:
    key = layout_of(serializer.key, options)
    return Struct([("window", Fixed(pa.int64(), i.COPY8, 8)), ("key", key)])


@layout_for(table_state.ExternalSerializer)
def _external(serializer: table_state.ExternalSerializer, options: ColumnOptions) -> Layout:
    inner = layout_of(serializer.inner, options)
    if isinstance(inner, Fixed) and inner.arrow_type == pa.int32():
        match serializer.java_class:
            case "java.time.LocalDate":
                return Fixed(pa.date32(), i.COPY4, 4)
            case "java.time.LocalTime":
                return Fixed(pa.time32("ms"), i.COPY4, 4)
    return inner
