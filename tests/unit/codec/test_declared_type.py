"""One type, in every form that a user may have it in."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from dstl_core.codec.columnar.types.declared_schema import schema_of
from dstl_core.codec.declared_type import declared_type, flink_type, parse_type
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError


@dataclass
class Position:
    day: datetime.date
    amount: Decimal | None


def flink(declaration: Any) -> Any:
    return flink_type(declared_type(declaration, "The state 'n'"))


FORMS = [
    (Types.BOOLEAN, ["boolean", "BOOLEAN", T.BooleanType(), pa.bool_(), bool]),
    (Types.BYTE, ["byte", "tinyint", T.ByteType(), pa.int8()]),
    (Types.SHORT, ["short", "smallint", T.ShortType(), pa.int16()]),
    (Types.INT, ["int", "INTEGER", T.IntegerType(), pa.int32()]),
    (Types.LONG, ["long", "bigint", "Long", T.LongType(), T.LongType, pa.int64(), int]),
    (Types.FLOAT, ["float", "real", T.FloatType(), pa.float32()]),
    (Types.DOUBLE, ["double", T.DoubleType(), pa.float64(), float]),
    (
        Types.STRING,
        [
            "string",
            "varchar(3)",
            "char(3)",
            T.StringType(),
            T.VarcharType(3),
            pa.large_string(),
            str,
        ],
    ),
    (Types.CHAR, ["char", "Character", pa.uint16()]),
    (Types.BYTES, ["binary", "bytes", "byte[]", T.BinaryType(), pa.binary(), pa.binary(3), bytes]),
    (Types.LOCAL_DATE, ["date", "LocalDate", T.DateType(), pa.date32(), datetime.date]),
    (Types.LOCAL_TIME, ["time", "LocalTime", pa.time64("ns"), datetime.time]),
    (Types.INSTANT, ["timestamp", "Instant", T.TimestampType(), pa.timestamp("us", "Asia/Tokyo")]),
    (Types.LOCAL_DATE_TIME, ["timestamp_ntz", T.TimestampNTZType(), pa.timestamp("ns")]),
    (
        Types.BIG_DEC,
        ["decimal(10, 2)", "BigDecimal", T.DecimalType(10, 2), pa.decimal128(10, 2), Decimal],
    ),
    (Types.BIG_INT, ["biginteger", Types.BIG_INT]),
    (Types.DATE, ["java.util.Date"]),
    (Types.LIST(Types.INT), ["array<int>", "List<Integer>", T.ArrayType(T.IntegerType())]),
    (Types.LIST(Types.LONG), [list[int], pa.list_(pa.int64()), pa.large_list(pa.int64())]),
    (
        Types.MAP(Types.STRING, Types.LONG),
        [
            "map<string, bigint>",
            dict[str, int],
            T.MapType(T.StringType(), T.LongType()),
            pa.map_(pa.string(), pa.int64()),
        ],
    ),
    (
        Types.ROW(Types.LONG, Types.STRING),
        [
            "struct<a: bigint, `b c`: string NOT NULL>",
            "row<long, string>",
            T.StructType([T.StructField("a", T.LongType()), T.StructField("b:c", T.StringType())]),
            pa.struct([("a", pa.int64()), ("b<c", pa.string())]),
        ],
    ),
    (Types.ROW(Types.LOCAL_DATE, Types.BIG_DEC), [Position]),
    (Types.TUPLE(Types.STRING, Types.INT), ["tuple<string, int>", "Tuple2<String, Integer>"]),
    (Types.TUPLE(Types.STRING, Types.LONG), [tuple[str, int]]),
    (Types.SET(Types.STRING), ["set<string>", set[str]]),
    (Types.LIST(Types.NULLABLE(Types.LONG)), [list[int | None], "list<nullable<long>>"]),
    (Types.EITHER(Types.INT, Types.STRING), ["either<int, string>"]),
]


@pytest.mark.parametrize(
    ("expected", "declaration"),
    [(expected, given) for expected, all_forms in FORMS for given in [expected, *all_forms]],
    ids=str,
)
def test_a_type_is_the_same_in_every_form(expected: Any, declaration: Any) -> None:
    assert flink(declaration) == expected


def test_what_a_snapshot_shows_as_a_type_can_be_written() -> None:
    for expected, _ in FORMS:
        shown = expected.type_name
        assert parse_type(shown) == expected, shown


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        ("strng", "expected one of .*long.* or array<..>.* got 'strng'"),
        ("array<int", "expected '>' at the end of 'array<int'"),
        ("int int", "expected the end before 'int' of 'int int'"),
        ("", "expected a type at the end of ''"),
        ("struct<a>", "expected a type before '>' of 'struct<a>'"),
        ("decimal(99)", "A decimal has 1 to 38 digits.* got 'decimal\\(99\\)'"),
        ("map<int>", "the type map does not have 1 parts"),
        ("list<" * 40 + "int" + ">" * 40, "expected a type"),
        (datetime.datetime, "datetime is ambiguous; write 'timestamp' .* or 'timestamp_ntz'"),
        (5, "expected SQL text such as 'bigint'.* got 5"),
        (None, "expected SQL text .* got None"),
        (object, "expected SQL text .* got object"),
        (int | str, "expected SQL text"),
        (list, "expected SQL text .* got list"),
        (T.DayTimeIntervalType(), "Not a type"),
        (T.ArrayType, "ArrayType needs arguments"),
        (pa.float16(), "there is no Flink type for Arrow's halffloat"),
    ],
)
def test_what_is_no_type_is_one_sentence_at_once(declaration: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^The state 'n' has a wrong type: .*{said}"):
        flink(declaration)


# --------------------------------------------------------------------------------- columns

COLUMNS = pa.schema([("o", pa.string()), ("n", pa.int64())])


@dataclass
class Output:
    o: str
    n: int


@pytest.mark.parametrize(
    "declaration",
    [
        COLUMNS,
        "o string, n bigint",
        "o: string, n LONG NOT NULL",
        "o string COMMENT 'text, with a comma', n long",
        {"o": str, "n": "bigint"},
        T.StructType([T.StructField("o", T.StringType()), T.StructField("n", T.LongType())]),
        pa.struct([("o", pa.string()), ("n", pa.int64())]),
        Output,
    ],
    ids=str,
)
def test_columns_are_the_same_in_every_form(declaration: Any) -> None:
    assert schema_of(declaration, "output_schema") == COLUMNS


def test_columns_of_every_sql_type() -> None:
    text = (
        "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string, i binary, "
        "j date, k timestamp, l timestamp_ntz, m decimal(38, 9), n array<int>, "
        "`o p` struct<x: map<string, date>>"
    )
    assert schema_of(text, "output_schema") == pa.schema(
        [
            ("a", pa.bool_()),
            ("b", pa.int8()),
            ("c", pa.int16()),
            ("d", pa.int32()),
            ("e", pa.int64()),
            ("f", pa.float32()),
            ("g", pa.float64()),
            ("h", pa.string()),
            ("i", pa.binary()),
            ("j", pa.date32()),
            ("k", pa.timestamp("us", "UTC")),
            ("l", pa.timestamp("us")),
            ("m", pa.decimal128(38, 9)),
            ("n", pa.list_(pa.int32())),
            ("o p", pa.struct([("x", pa.map_(pa.string(), pa.date32()))])),
        ]
    )


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        ("string", "expected columns as 'name type, ..', got 'string', where 'string' has no type"),
        ("", "expected the name of a column"),
        ("a int,", "expected the name of a column at the end"),
        ("a int, a string", "two columns are called 'a'"),
        ("a strng", "got 'strng'"),
        ("a int NOT", "expected NULL"),
        (5, "expected columns, as text such as 'id string, n bigint', .* got 5"),
        (["a"], r"expected columns, .* got \['a'\]"),
        (T.StructField("a", T.LongType()), "expected columns, .* got StructField"),
        (T.StructType, "expected columns, .* got StructType"),
        (pa.field("a", pa.int64()), "expected columns, .* got pyarrow.Field"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "two columns are called 'a'"),
        (Types.LONG, "expected columns, as text such as 'id string, n bigint'"),
        ({"a": Decimal}, "the column 'a' is a decimal without its digits; write decimal"),
        (None, "expected columns, .* got None"),
    ],
    ids=str,
)
def test_what_are_no_columns_is_one_sentence_at_once(declaration: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^output_schema.*{said}"):
        schema_of(declaration, "output_schema")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Types.LIST("long"), "A part of Types.LIST is wrong: .* got 'long'; write all of"),  # type: ignore[arg-type]
        (
            lambda: Types.MAP(Types.STRING, int),
            "A part of Types.MAP is wrong: .* got <class 'int'>",
        ),  # type: ignore[arg-type]
        (lambda: Types.ROW("a", Types.LONG), "A part of Types.ROW is wrong: .* got 'a'"),  # type: ignore[arg-type]
        (lambda: Types.TUPLE(None), "A part of Types.TUPLE is wrong: .* got None"),  # type: ignore[arg-type]
        (lambda: Types.NULLABLE(str), "A part of Types.NULLABLE is wrong"),  # type: ignore[arg-type]
    ],
)
def test_forms_are_not_mixed_in_a_type_of_flink(make: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()


def test_a_type_of_the_user_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^x has a wrong type: there is no Flink type for Spark's"
    ):
        declared_type(T.UserDefinedType, "x")


def test_a_dataclass_has_at_most_20_000_parts() -> None:
    """Two fields of one other class double a type: 13 classes in a row have 16,383 parts below the
    first, and 14 have 32,767.
    """
    inner: type = int
    for number in range(14):
        inner = make_dataclass(f"Level{number}", [("a", inner), ("b", inner)])
        if number == 12:
            declared_type(inner, "here")
    with pytest.raises(ConfigError, match=r"here.*more than 20,000 parts"):
        declared_type(inner, "here")
