"""Output of epochs is read back in the same types from S3 as from disk, without Hadoop's jars."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

from dstl_core.codec.serializers import Types
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.operators import KeyedOperator
from dstl_core.stateful_job import StatefulJob
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

pytestmark = pytest.mark.spark

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        pa.field("k", pa.string(), nullable=False),
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("short", pa.int16()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("ms", "Europe/Berlin")),
        ("local", pa.timestamp("us")),
        ("time", pa.time64("us")),
        ("amount", pa.decimal128(38, 9)),
        ("small.amount", pa.decimal128(9, 2)),
        ("names", pa.list_(pa.field("item", pa.string(), nullable=False))),
        ("by name", pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
        ("deep", pa.struct([("a", pa.list_(pa.struct([("d", pa.date32())]))), ("b", pa.int32())])),
    ]
)
FULL = {
    "flag": True,
    "tiny": -128,
    "short": -(2**15),
    "int": 2**31 - 1,
    "long": -(2**63),
    "float": 1.5,
    "double": float("inf"),
    "bytes": b"\x00\xff",
    "day": dt.date(1, 1, 3),
    "at": dt.datetime(1600, 2, 29, 5, 30, 0, 123000, UTC),
    "local": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # no zone is the point
    "time": dt.time(23, 59, 59, 999999),
    "amount": Decimal("-12345678901234567890123456789.123456789"),
    "small.amount": Decimal("-1234567.89"),
    "names": ["a", ""],
    "by name": {"x": dt.datetime(1969, 12, 31, 23, 59, 59, 1, UTC), "none": None},
    "deep": {"a": [{"d": dt.date(2026, 2, 28)}, None], "b": None},
}


class Emit(KeyedProcessFunction):
    """One row per key: ``full`` has every value, others nothing but nulls; ``no`` gives no row."""

    order_insensitive = True

    def process_element(self, value, ctx):
        if value["k"] == "full":
            yield {"k": "full", **FULL}
        elif value["k"] != "no":
            yield {"k": value["k"]}


def outputs(spark, base):
    """The output of an epoch with rows, as it is told and as it is found later, and of an empty."""
    operator = KeyedOperator("emit", "k", Types.STRING, Emit(), SCHEMA)
    job = StatefulJob(spark, "job", str(base), operator)
    rows = spark.createDataFrame([("full",), ("nulls",), ("b",)], "k string")
    first = job.run(rows, 1).output
    empty = job.run(spark.createDataFrame([("no",)], "k string"), 2).output
    again = job.run(rows, 1).output
    return [first, again, empty]


def sorted_rows(frame):
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda row: row["k"])


def test_output_has_the_same_types_and_values_on_s3_as_on_disk(spark, place, tmp_path):
    local, remote = outputs(spark, tmp_path), outputs(spark, f"{place}/jobs")
    assert all(frame.schema == local[0].schema for frame in [*local, *remote])
    by_key = [[sorted_rows(frame) for frame in frames] for frames in (local, remote)]
    assert by_key[0] == by_key[1]
    first, again, empty = by_key[1]
    assert [row["k"] for row in first] == ["b", "full", "nulls"]
    assert again == first and empty == []
    nothing = dict.fromkeys(SCHEMA.names)
    assert first[0] == {**nothing, "k": "b"}
    full = first[1]
    assert full["amount"] == FULL["amount"] and full["deep"] == FULL["deep"]
    assert full["local"] == FULL["local"] and full["day"] == FULL["day"]
    assert remote[0].filter("`small.amount` < 0").select("long").first()["long"] == -(2**63)


def test_a_file_that_is_gone_is_named(spark, place):
    [output, *_] = outputs(spark, f"{place}/jobs")
    files = open_file_io(Location.parse(place))
    files.delete_folder(Location.parse(f"{place}/jobs"))
    with pytest.raises(PythonException, match=f"Cannot open {place}/jobs/.*there is no such file"):
        output.collect()
