"""Parquet files of others: tasks read them from S3 as Spark reads them from disk."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dstl_core import OperatorTransformation
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError, FormatError
from dstl_core.spark.engine.parquet_rows import read_parquet
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.integration.spark.writing import write

pytestmark = pytest.mark.spark

FOREIGN = {
    "u8": pa.array([255, None], pa.uint8()),
    "u16": pa.array([2**16 - 1, None], pa.uint16()),
    "u32": pa.array([2**32 - 1, None], pa.uint32()),
    "u64": pa.array([2**64 - 1, None], pa.uint64()),
    "text": pa.array(["a", None]).dictionary_encode(),
    "large": pa.array(["b", None], pa.large_string()),
    "view": pa.array(["c", None], pa.string_view()),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None])),
    "fixed": pa.array([b"abc", None], pa.binary(3)),
    "took": pa.array([7, None], pa.duration("us")),
    "day": pa.array([dt.date(1, 1, 3), None], pa.date64()),
    "local": pa.array([1, None], pa.timestamp("ms")),
    "zoned": pa.array([-1, None], pa.timestamp("us", "America/New_York")),
    "small": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
    "nothing": pa.nulls(2),
    "pairs": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
    "long lists": pa.array([[[1], None], None], pa.large_list(pa.list_(pa.uint8()))),
    "map": pa.array(
        [[("k", [{"a": 1, "b": 2}])], None],
        pa.map_(
            pa.string(), pa.list_(pa.struct([("a", pa.uint16()), ("b", pa.timestamp("us", "UTC"))]))
        ),
    ),
}
UNKNOWN = {
    "nanoseconds": pa.timestamp("ns"),
    "time": pa.time64("us"),
    "half": pa.float16(),
    "uuid": pa.binary(16),
}


def upload(folder, place):
    """The files of a folder, under its name in the bucket."""
    files = open_file_io(Location.parse(place))
    for path in sorted(folder.iterdir()):
        location = Location.parse(place).child(folder.name, path.name)
        files.write_new(location, path.read_bytes())
    return f"{place}/{folder.name}"


@pytest.mark.parametrize("version", ["1.0", "2.6"])
def test_foreign_parquet_files_have_the_types_and_values_that_spark_reads(
    spark, place, tmp_path, version
):
    folder = tmp_path / "rows"
    folder.mkdir()
    pq.write_table(pa.table(FOREIGN), folder / "a.parquet", version=version)
    pq.write_table(pa.table(FOREIGN).slice(1), folder / "b.parquet", version=version)
    pq.write_metadata(pa.table(FOREIGN).schema, folder / "_metadata")
    local = spark.read.parquet(str(folder))
    remote, _ = read_parquet(spark, [upload(folder, place)])
    assert remote.schema == local.schema
    assert sorted(map(repr, remote.collect())) == sorted(map(repr, local.collect()))
    one, _ = read_parquet(spark, [f"{place}/rows/b.parquet"])
    assert one.schema == local.schema and one.count() == 1


@pytest.mark.parametrize("kind", UNKNOWN)
def test_types_that_spark_has_not_are_refused(spark, place, tmp_path, kind):
    storage = pa.array([None], UNKNOWN[kind])
    column = pa.ExtensionArray.from_storage(pa.uuid(), storage) if kind == "uuid" else storage
    folder = tmp_path / kind
    folder.mkdir()
    pq.write_table(pa.table({"odd": column}), folder / "file")
    with pytest.raises(Exception, match=r"PARQUET_TYPE_ILLEGAL|UNSUPPORTED_TIME_TYPE"):
        spark.read.parquet(str(folder)).collect()
    with pytest.raises(ConfigError, match="column 'odd' has a type that Spark does not have"):
        read_parquet(spark, [upload(folder, place)])


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS"])
def test_a_bootstrap_from_parquet_on_s3_is_the_one_from_disk(spark, place, tmp_path, kind):
    """By columns, for which tasks read row groups, and by a function, which gets a DataFrame."""
    folder = tmp_path / "rows"
    rows = spark.range(0, 300, 1, 3).selectExpr(
        "concat('key-', id) AS k",
        "timestamp_micros(id * 1000003 - 11644473600000000) AS t",
        "array(timestamp_micros(id), NULL) AS l",
        "CAST(id AS DECIMAL(20, 4)) AS n",
    )
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        rows.write.option("parquet.block.size", 1024).parquet(str(folder))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    dumps, types = [], {"l": Types.LIST(Types.NULLABLE(Types.INSTANT))}
    remote = upload(folder, place)
    for number, source in enumerate((str(folder), remote)):
        start = OperatorTransformation.bootstrap_with_parquet(spark, source)
        made = start.key_by("k").transform_columns(types)
        operator = write(spark, tmp_path / f"by-columns-{number}", "op", made)
        dumps.append(sorted(map(str, operator.dump())))
        assert sorted(start.rows.frame.collect()) == sorted(rows.collect())
    assert dumps[0] == dumps[1] and len(dumps[0]) >= 900


def test_what_is_no_folder_of_parquet_files_is_refused(spark, place):
    files = open_file_io(Location.parse(place))
    files.write_new(Location.parse(f"{place}/parts/day=1/file"), b"PAR1")
    files.write_new(Location.parse(f"{place}/text/file"), b"not Parquet at all")
    for path, kind, message in (
        ("none", ConfigError, "There is no Parquet file at"),
        ("parts", ConfigError, r"has partition folders \(day=1\)"),
        ("text", FormatError, "is not a Parquet file"),
    ):
        with pytest.raises(kind, match=message):
            read_parquet(spark, [f"{place}/{path}"])
