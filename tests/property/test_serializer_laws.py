"""For random types (up to 4 deep) and values: what is written reads back, and reads back to the
same bytes; the same for the types' snapshots.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.codec.big_decimal import BigDecimal
from dstl_core.codec.binary_row import ArrayData, MapData, RawValue, RowData, TimestampData
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.logical_types import LogicalType
from dstl_core.codec.serializers import (
    BUILT_IN,
    AnySerializer,
    SnapshotContext,
    TimerSerializer,
    TtlSerializer,
    Types,
    VoidNamespaceSerializer,
    deserialize_exactly,
    serialize_to_bytes,
    write_snapshot,
)
from dstl_core.codec.serializers.arrays import (
    BooleanPrimitiveArraySerializer,
    CharPrimitiveArraySerializer,
    DoublePrimitiveArraySerializer,
    FloatPrimitiveArraySerializer,
    LongPrimitiveArraySerializer,
)
from dstl_core.codec.serializers.dates import (
    Instant,
    LocalDate,
    LocalDateTime,
    LocalTime,
    SqlTimestamp,
)
from dstl_core.codec.serializers.optional_map import OptionalSnapshot
from dstl_core.codec.serializers.pojo import Pojo, PojoSerializer
from dstl_core.codec.serializers.runtime import (
    BufferEntry,
    BufferEntrySerializer,
    StreamElementSerializer,
    StreamRecord,
    Timer,
    TtlValue,
)
from dstl_core.codec.serializers.structs import Either, NullableSerializer, Row
from dstl_core.codec.serializers.table_types import (
    ArrayDataSerializer,
    MapDataSerializer,
    RowDataSerializer,
    StringDataSerializer,
)
from dstl_core.codec.serializers.value_classes import StringValueSerializer
from dstl_core.codec.serializers.window_types import TimeWindow, TimeWindowSerializer
from dstl_core.errors import FormatError
from tests.columnar_values import SqlText
from tests.examples import examples

Typed = tuple[AnySerializer, st.SearchStrategy[Any]]
MAX_DEPTH = 4


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


# Lone surrogates are legal in Java.
TEXTS = st.text(st.characters(), max_size=6) | st.text(
    st.sampled_from(["\ud83d", "\ude00", "\0", "\x7f", "\x80", "\u3fff", "\u4000", "\uffff", "😀"]),
    max_size=6,
)


def joined(text: str) -> str:
    """Two surrogates that stand side by side are one character."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


TEXTS = TEXTS.map(joined)
FLOATS = st.floats(width=32)
DATES = st.builds(LocalDate, st.integers(-9999, 9999), st.integers(1, 12), st.integers(1, 28))
NANOS = st.integers(0, 999_999_999)
# In Java the nanoseconds of the second hold its milliseconds, too.
SQL_TIMESTAMPS = st.builds(
    lambda millis, nanos: SqlTimestamp(millis, millis % 1000 * 1_000_000 + nanos),
    st.integers(-(1 << 62), 1),
    st.integers(0, 999_999),
)
TIMES = st.builds(LocalTime, st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), NANOS)

LEAVES: list[Typed] = [
    (Types.BOOLEAN, st.booleans()),
    (Types.BYTE, signed(8)),
    (Types.SHORT, signed(16)),
    (Types.INT, signed(32)),
    (Types.LONG, signed(64)),
    (Types.FLOAT, FLOATS),
    (Types.DOUBLE, st.floats()),
    (Types.CHAR, st.integers(0, 0xFFFF).map(chr)),
    (Types.STRING, st.none() | TEXTS),
    (Types.BIG_INT, st.none() | st.integers()),
    (Types.BIG_DEC, st.none() | st.builds(BigDecimal, st.integers(), signed(32))),
    # The smallest long is the null of a date.
    (Types.DATE, st.none() | st.integers(-(1 << 62), 1 << 62)),
    (Types.SQL_DATE, st.none() | st.integers(-(1 << 62), 1 << 62)),
    (Types.SQL_TIME, st.none() | st.integers(-(1 << 62), 1 << 62)),
    (Types.SQL_TIMESTAMP, st.none() | SQL_TIMESTAMPS),
    (Types.INSTANT, st.none() | st.builds(Instant, signed(56), NANOS)),
    (Types.LOCAL_DATE, st.none() | DATES),
    (Types.LOCAL_TIME, st.none() | TIMES),
    (Types.LOCAL_DATE_TIME, st.none() | st.builds(LocalDateTime, DATES, TIMES)),
    (Types.BYTES, st.binary(max_size=8)),
    (Types.STRING_ARRAY, st.lists(st.none() | TEXTS, max_size=3)),
    (BooleanPrimitiveArraySerializer(), st.lists(st.booleans(), max_size=3)),
    (LongPrimitiveArraySerializer(), st.lists(signed(64), max_size=3)),
    (FloatPrimitiveArraySerializer(), st.lists(FLOATS, max_size=3)),
    (DoublePrimitiveArraySerializer(), st.lists(st.floats(), max_size=3)),
    (CharPrimitiveArraySerializer(), st.lists(st.integers(0, 0xFFFF).map(chr), max_size=3)),
    (Types.ENUM("com.example.Color", "RED", "GREEN"), st.sampled_from(["RED", "GREEN"])),
    (Types.VOID, st.none()),
    (Types.TUPLE(), st.just(())),
    (TimeWindowSerializer(), st.builds(TimeWindow, signed(64), signed(64))),
    (StringValueSerializer(), TEXTS),
    (StringDataSerializer(), st.text(max_size=6).map(SqlText)),
]


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def pojo(fields: list[Typed]) -> Typed:
    entries = tuple(
        OptionalSnapshot(f"f{at}", b"\0\1A\0\2f%d" % at, serializer)
        for at, (serializer, _) in enumerate(fields)
    )
    serializer = PojoSerializer("com.example.Pojo", entries)
    values = st.fixed_dictionaries(
        {f"f{at}": optional(each) for at, (_, each) in enumerate(fields)}
    ).map(lambda made: Pojo("com.example.Pojo", made))
    return serializer, optional(values)


def fixed_length(part: Typed) -> Typed:
    serializer, values = part
    padding = max(serializer.length, 0)
    return NullableSerializer(serializer, padding), optional(values.filter(lambda v: v is not None))


def rows(parts: list[Typed]) -> st.SearchStrategy[Row]:
    fields = st.tuples(*(optional(values) for _, values in parts))
    return st.builds(Row, st.integers(0, 3), fields)


def composites(parts: list[Typed]) -> list[Typed]:
    (one, ones), (two, twos) = parts[0], parts[-1]
    pairs = st.tuples(ones, optional(twos))
    keys = st.tuples(signed(64), ones, st.none())
    return [
        (Types.LIST(one), st.lists(ones, max_size=3)),
        (Types.SET(one), st.lists(optional(ones), max_size=3)),
        (Types.MAP(one, two), st.lists(pairs, max_size=3)),
        (Types.TUPLE(*(each for each, _ in parts)), st.tuples(*(values for _, values in parts))),
        (Types.ROW(*(each for each, _ in parts)), rows(parts)),
        (Types.EITHER(one, two), st.builds(Either, st.just(True), ones)),
        (Types.EITHER(one, two), st.builds(Either, st.just(False), twos)),
        (Types.OBJECT_ARRAY("A", one), st.lists(optional(ones), max_size=3)),
        (Types.NULLABLE(one), optional(ones)),
        fixed_length(parts[0]),
        pojo(parts),
        (TtlSerializer(one), st.builds(TtlValue, signed(64), ones)),
        (BufferEntrySerializer(one), st.builds(BufferEntry, st.booleans(), ones)),
        (StreamElementSerializer(one), st.builds(StreamRecord, ones, optional(signed(64)))),
        (
            TimerSerializer(one, VoidNamespaceSerializer()),
            keys.map(lambda arguments: Timer(*arguments)),
        ),
    ]


def typed(depth: int) -> st.SearchStrategy[Typed]:
    leaves = st.sampled_from(LEAVES)
    if depth == 0:
        return leaves
    inner = st.lists(typed(depth - 1), min_size=1, max_size=3)
    return leaves | inner.flatmap(lambda parts: st.sampled_from(composites(parts)))


@st.composite
def typed_values(draw: Callable[..., Any]) -> tuple[AnySerializer, Any]:
    serializer, values = draw(typed(MAX_DEPTH))
    return serializer, draw(values)


def same(one: Any, other: Any) -> bool:
    """Equal, with floats by their bits."""
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack(">d", one) == struct.pack(">d", other)
    if isinstance(one, RowData | ArrayData | MapData):
        return type(one) is type(other) and same(parts_of(one), parts_of(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def parts_of(value: RowData | ArrayData | MapData) -> Any:
    if isinstance(value, RowData):
        return value.kind, value.fields
    return value.items if isinstance(value, ArrayData) else value.pairs


def check_value(serializer: AnySerializer, value: Any) -> None:
    raw = serialize_to_bytes(serializer, value)
    if serializer.length > 0:
        assert len(raw) == serializer.length
    again = deserialize_exactly(serializer, raw)
    assert same(again, value)
    assert serialize_to_bytes(serializer, again) == raw
    json.dumps(serializer.to_text(again))
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            deserialize_exactly(serializer, raw[:size])


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(typed_values())
def test_values_of_any_type(case: tuple[AnySerializer, Any]) -> None:
    check_value(*case)


def snapshot_of(serializer: AnySerializer) -> bytes:
    out = DataOutput()
    write_snapshot(out, serializer)
    return out.to_bytes()


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(typed(MAX_DEPTH))
def test_snapshots_of_any_type(case: Typed) -> None:
    serializer, _ = case
    raw = snapshot_of(serializer)
    data = DataInput(raw)
    again = SnapshotContext(BUILT_IN).read_snapshot(data)
    data.expect_end("a snapshot")
    assert again == serializer
    assert snapshot_of(again) == raw
    assert again.type_name == serializer.type_name
    assert again.length == serializer.length


# ---------------------------------------------------------------------------------------- SQL

SqlTyped = tuple[LogicalType, st.SearchStrategy[Any]]


def decimals(precision: int, scale: int) -> st.SearchStrategy[BigDecimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda unscaled: BigDecimal(unscaled, scale))


def timestamps(exact: bool) -> st.SearchStrategy[TimestampData]:
    nanos = st.integers(0, 999_999) if exact else st.just(0)
    return st.builds(TimestampData, signed(48), nanos)


SQL_LEAVES: list[SqlTyped] = [
    (LogicalType("BOOLEAN"), st.booleans()),
    (LogicalType("TINYINT"), signed(8)),
    (LogicalType("SMALLINT"), signed(16)),
    (LogicalType("INT"), signed(32)),
    (LogicalType("BIGINT"), signed(64)),
    (LogicalType("DATE"), st.integers(-100_000, 100_000)),
    (LogicalType("TIME", precision=3), st.integers(0, 86_399_999)),
    (LogicalType("FLOAT"), st.floats(width=32, allow_nan=False)),
    (LogicalType("DOUBLE"), st.floats()),
    (LogicalType("VARCHAR", length=100), st.text(max_size=12)),
    (LogicalType("VARBINARY", length=100), st.binary(max_size=12)),
    (LogicalType("DECIMAL", precision=10, scale=2), decimals(10, 2)),
    (LogicalType("DECIMAL", precision=38, scale=10), decimals(38, 10)),
    (LogicalType("TIMESTAMP", precision=3), timestamps(exact=False)),
    (LogicalType("TIMESTAMP_LTZ", precision=9), timestamps(exact=True)),
    (LogicalType("RAW"), st.builds(RawValue, st.binary(max_size=12))),
    (LogicalType("NULL"), st.none()),
]


def sql_row(parts: list[SqlTyped]) -> SqlTyped:
    names = tuple(f"f{at}" for at in range(len(parts)))
    kind = LogicalType("ROW", children=tuple(each for each, _ in parts), names=names)
    fields = st.tuples(*(optional(values) for _, values in parts))
    return kind, st.builds(RowData, st.integers(0, 3), fields)


def sql_composites(parts: list[SqlTyped]) -> list[SqlTyped]:
    (one, ones), (two, twos) = parts[0], parts[-1]
    items = st.lists(optional(ones), max_size=3).map(tuple)
    pairs = st.lists(st.tuples(optional(ones), optional(twos)), max_size=3).map(tuple)
    counted = st.lists(st.tuples(optional(ones), signed(32)), max_size=3).map(tuple)
    return [
        sql_row(parts),
        (LogicalType("ARRAY", children=(one,)), st.builds(ArrayData, items)),
        (LogicalType("MAP", children=(one, two)), st.builds(MapData, pairs)),
        (LogicalType("MULTISET", children=(one,)), st.builds(MapData, counted)),
    ]


def sql_typed(depth: int) -> st.SearchStrategy[SqlTyped]:
    leaves = st.sampled_from(SQL_LEAVES)
    if depth == 0:
        return leaves
    inner = st.lists(sql_typed(depth - 1), min_size=1, max_size=4)
    return leaves | inner.flatmap(lambda parts: st.sampled_from(sql_composites(parts)))


@st.composite
def sql_typed_serializers(draw: Callable[..., Any]) -> Typed:
    parts = draw(st.lists(sql_typed(3), min_size=0, max_size=4))
    kind, values = sql_row(parts)
    if parts and draw(st.booleans()):
        kind, values = draw(st.sampled_from(sql_composites(parts)))
    match kind.root:
        case "ARRAY":
            return ArrayDataSerializer(kind.children[0]), values
        case "MAP":
            return MapDataSerializer(*kind.children), values
        case "MULTISET":
            return MapDataSerializer(kind.children[0], LogicalType("INT")), values
        case _:
            return RowDataSerializer(kind.children), values


@st.composite
def sql_values(draw: Callable[..., Any]) -> tuple[AnySerializer, Any]:
    serializer, values = draw(sql_typed_serializers())
    return serializer, draw(values)


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(sql_values())
def test_sql_values_of_any_type(case: tuple[AnySerializer, Any]) -> None:
    check_value(*case)
