"""SQL types by name become the bytes that real Flink wrote for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dstl_core import Snapshot
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.java_stream import read_java_object_bytes
from dstl_core.codec.logical_type_objects import java_object_of, parse_logical_type
from dstl_core.codec.logical_types import LogicalType, logical_type_of
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.errors import ConfigError
from tests.golden_files import GOLDEN


def rows_in(serializer: AnySerializer) -> Iterator[RowDataSerializer]:
    if isinstance(serializer, RowDataSerializer):
        yield serializer
    for inner in serializer.nested:
        yield from rows_in(inner)


def stored() -> dict[LogicalType, set[bytes]]:
    """The types in the rows of SQL jobs that real Flink wrote, with their objects."""
    by_type: dict[LogicalType, set[bytes]] = {}
    for metadata in sorted(GOLDEN.glob("*sql*/**/_metadata")):
        for operator in Snapshot.load(metadata.parent).operators:
            types = [info.meta.value_serializer for info in operator.states]
            types += [operator.key_type.serializer] if operator.key_type else []
            for logical_type in types:
                for rows in rows_in(logical_type):
                    for kind, raw in zip(rows.types, rows.objects or (), strict=True):
                        by_type.setdefault(kind, set()).add(raw)
    return by_type


PLAIN = [
    "BIGINT",
    "BIGINT NOT NULL",
    "INT NOT NULL",
    "BOOLEAN NOT NULL",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "DECIMAL(9, 2)",
    "DECIMAL(30, 4)",
    "TIMESTAMP(3) NOT NULL",
    "TIMESTAMP(9)",
]


@pytest.fixture(scope="module")
def of_flink() -> dict[LogicalType, set[bytes]]:
    return stored()


@pytest.mark.parametrize("name", PLAIN)
def test_a_type_by_name_is_the_object_that_flink_wrote(
    of_flink: dict[LogicalType, set[bytes]], name: str
) -> None:
    kind = parse_logical_type(name)
    assert of_flink[kind] == {java_object_of(kind)}


def test_the_snapshot_of_a_row_is_that_of_flink() -> None:
    """The accumulator of a GROUP BY with every part by name, as it stands in a savepoint."""
    stored_rows = [
        rows
        for metadata in sorted(GOLDEN.glob("h-sql-hashmap/**/_metadata"))
        for operator in Snapshot.load(metadata.parent).operators
        for info in operator.states
        for rows in rows_in(info.meta.value_serializer)
    ]
    assert stored_rows
    for rows in stored_rows:
        made = Types.ROW_DATA(*map(str, rows.types))
        assert (made.types, made.parts, made.objects) == (rows.types, rows.parts, rows.objects)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("string", LogicalType("VARCHAR", length=2147483647)),
        ("VARCHAR(20)", LogicalType("VARCHAR", length=20)),
        ("CHAR", LogicalType("CHAR", length=1)),
        ("BYTES", LogicalType("VARBINARY", length=2147483647)),
        ("BINARY(7)", LogicalType("BINARY", length=7)),
        ("integer not null", LogicalType("INT", nullable=False)),
        ("TINYINT", LogicalType("TINYINT")),
        ("SMALLINT", LogicalType("SMALLINT")),
        ("DATE", LogicalType("DATE")),
        ("TIME", LogicalType("TIME")),
        ("TIMESTAMP", LogicalType("TIMESTAMP", precision=6)),
        ("TIMESTAMP_LTZ(0)", LogicalType("TIMESTAMP_LTZ", precision=0)),
        ("DECIMAL", LogicalType("DECIMAL", precision=10)),
        ("DEC(38, 38)", LogicalType("DECIMAL", precision=38, scale=38)),
    ],
)
def test_names_and_what_java_reads_of_them(name: str, kind: LogicalType) -> None:
    assert parse_logical_type(name) == kind
    value, raw = read_java_object_bytes(DataInput(java_object_of(kind)))
    assert logical_type_of(value) == kind
    assert raw == java_object_of(kind)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("LONG", "expected one of CHAR"),
        ("ARRAY<INT>", "a template savepoint"),
        ("", "expected one of CHAR"),
        ("INT(3)", "too many numbers"),
        ("VARCHAR(3, 1)", "too many numbers"),
        ("VARCHAR(0)", "length is wrong"),
        ("VARCHAR(2147483648)", "length is wrong"),
        ("DECIMAL(39)", "precision is wrong"),
        ("DECIMAL(0)", "precision is wrong"),
        ("DECIMAL(5, 6)", "precision is wrong"),
        ("TIMESTAMP(10)", "precision is wrong"),
    ],
)
def test_names_that_are_no_type(name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Types.ROW_DATA(name)


def test_types_with_types_inside_come_from_a_template() -> None:
    with pytest.raises(ConfigError, match="template savepoint"):
        java_object_of(LogicalType("ARRAY", children=(LogicalType("INT"),)))
