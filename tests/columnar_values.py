"""What a column has to hold, from the values of the record-wise code (with ``EXACT_OPTIONS``)."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from dstl_core.codec.big_decimal import BigDecimal, two_s_complement
from dstl_core.codec.binary_row import ArrayData, MapData, RawValue, RowData, TimestampData
from dstl_core.codec.serializers import OpaqueValue
from dstl_core.codec.serializers.dates import (
    Instant,
    LocalDate,
    LocalDateTime,
    LocalTime,
    SqlTimestamp,
)
from dstl_core.codec.serializers.opaque import Variant
from dstl_core.codec.serializers.pojo import Pojo
from dstl_core.codec.serializers.runtime import BufferEntry, StreamRecord, Timer, TtlValue
from dstl_core.codec.serializers.structs import ROW_KINDS, Either, Row
from dstl_core.codec.serializers.window_types import TimeWindow

_DAY = 86400


class SqlText(str):
    """A SQL string; its exact form is UTF-8, not UTF-16."""


def plain(column: pa.Array) -> list[Any]:
    """A column as Python values whose equality is that of the bits; times as numbers."""
    kind = column.type
    if pa.types.is_struct(kind):
        parts = [plain(column.field(at)) for at in range(kind.num_fields)]
        rows: list[Any] = [
            {kind.field(at).name: part[row] for at, part in enumerate(parts)}
            for row in range(len(column))
        ]
    elif pa.types.is_list(kind):
        items = plain(column.values)
        bounds = column.offsets.to_pylist()
        rows = [items[bounds[row] : bounds[row + 1]] for row in range(len(column))]
    elif pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        rows = column.cast(width).to_pylist()
    elif pa.types.is_decimal(kind):
        raw = column.buffers()[1].to_pybytes()
        first = column.offset
        rows = [
            int.from_bytes(raw[16 * at : 16 * at + 16], "little", signed=True)
            for at in range(first, first + len(column))
        ]
    elif pa.types.is_floating(kind):
        rows = [None if each is None else _bits(each) for each in column.to_pylist()]
    else:
        rows = column.to_pylist()
    if column.null_count:
        present = column.is_valid().to_pylist()
        rows = [row if there else None for row, there in zip(rows, present, strict=True)]
    return rows


def _bits(value: float) -> object:
    return "NaN" if math.isnan(value) else struct.pack(">d", value)


def as_column(values: Iterable[Any], kind: pa.DataType) -> list[Any]:
    """The values as ``plain`` gives a column of a type."""
    return [_value(each, kind) for each in values]


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None or pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        return _struct(value, kind)
    if pa.types.is_list(kind):
        return _list(value, kind.value_type)
    if pa.types.is_floating(kind):
        return _bits(value)
    match value:
        case SqlText():
            return value.encode() if pa.types.is_binary(kind) else value
        case str():
            if pa.types.is_binary(kind):
                return value.encode("utf-16-be", "surrogatepass")
            return value if pa.types.is_string(kind) else ord(value)
        case LocalDate() | LocalTime():
            return _time(value)
        case BigDecimal():
            return value.unscaled
        case RawValue() | OpaqueValue():
            return value.raw
        case TimestampData():
            return value.millis * 1000 + value.nanos // 1000
        case bool() | bytes():
            return value
        case int() if pa.types.is_binary(kind):
            return two_s_complement(value)
        case _:
            return value


def _list(value: Any, item: pa.DataType) -> list[Any]:
    match value:
        case ArrayData():
            return [_value(_sql(each), item) for each in value.items]
        case MapData():
            pairs: Any = [(_sql(one), _sql(two)) for one, two in value.pairs]
        case [tuple(), *_] if _is_entry(item):
            pairs = value
        case _:
            return [_value(each, item) for each in value]
    key, entry = item.field(0).type, item.field(1).type
    return [{"key": _value(one, key), "value": _value(two, entry)} for one, two in pairs]


def _sql(value: Any) -> Any:
    return SqlText(value) if isinstance(value, str) else value


def sql_texts(value: Any) -> Any:
    """An entry of a SQL job's map or value state: its texts are SQL's."""
    if isinstance(value, list):
        return [sql_texts(each) for each in value]
    return tuple(map(_sql, value)) if type(value) is tuple else _sql(value)


def _is_entry(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and [each.name for each in kind] == ["key", "value"]


def _struct(value: Any, kind: pa.DataType) -> dict[str, Any]:
    fields = {each.name: each.type for each in kind}
    match value:
        case Row() | RowData():
            sql = isinstance(value, RowData)
            # By place: structured types have names of their own.
            names = [name for name in fields if name != "$row_kind"]
            named: dict[str, Any] = {
                name: _sql(value_field) if sql else value_field
                for name, value_field in zip(names, value.fields, strict=True)
            }
            if "$row_kind" in fields:
                named["$row_kind"] = ROW_KINDS[value.kind]
        case Pojo():
            named = dict(value.fields)
            if "@class" in fields:
                named["@class"] = value.class_name
        case Either():
            side = "left" if value.is_left else "right"
            named = {"is_left": value.is_left, side: value.value}
        case TtlValue():
            named = {"v": value.value, "ts": value.last_access}
        case BufferEntry():
            named = {"value": value.value, "joined": value.joined}
        case StreamRecord():
            named = {"value": value.value, "ts": value.timestamp}
        case Timer():
            named = {"timestamp": value.timestamp, "key": value.key, "namespace": value.namespace}
        case TimeWindow():
            named = {"start": value.start, "end": value.end}
        case Variant():
            named = {"value": value.value, "metadata": value.metadata}
        case BigDecimal():
            named = {"unscaled": value.unscaled, "scale": value.scale}
        case Instant():
            return {"seconds": value.seconds, "nanos": value.nanos}
        case SqlTimestamp():
            return {"seconds": value.millis // 1000, "nanos": value.nanos}
        case TimestampData():
            nanos = value.millis % 1000 * 1_000_000 + value.nanos
            return {"seconds": value.millis // 1000, "nanos": nanos}
        case LocalDateTime():
            nanos = _time(value.time)
            return {
                "seconds": _time(value.date) * _DAY + nanos // 10**9,
                "nanos": nanos % 10**9,
            }
        case _:
            named = {f"f{at}": each for at, each in enumerate(value)}
    return {name: _value(named.get(name), each) for name, each in fields.items()}


def _time(value: LocalDate | LocalTime) -> int:
    """Days since 1970, or nanoseconds of the day."""
    if isinstance(value, LocalTime):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**9 + value.nano
    # By the rule that 400 years have 146097 days, and Python's own calendar within them.
    cycles, year = divmod(value.year - 1, 400)
    days = datetime.date(year + 1, value.month, value.day).toordinal()
    return days + cycles * 146097 - datetime.date(1970, 1, 1).toordinal()
