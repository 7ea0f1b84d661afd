"""Decimals of a job's own aggregates come back in the type that the job declared."""

from decimal import Decimal as D

import pyarrow as pa
import pytest

from dstl_core import Snapshot, aggregates
from dstl_core.errors import ColumnValueError
from dstl_core.spark.job.stateful_job import StatefulJob
from dstl_core.spark.task.operators import AggregateOperator

pytestmark = pytest.mark.spark

ROWS = [("a", D("12.50"), 1), ("a", D("-0.05"), 2), ("b", D("7"), 1), ("b", None, 3)]
SCHEMA = "k string, amount decimal(18,2), at bigint"
ARROW = pa.schema([("k", pa.string()), ("amount", pa.decimal128(18, 2)), ("at", pa.int64())])
STATES = {
    "total": aggregates.sum("amount"),
    "declared": aggregates.sum("amount", "decimal(18, 2)"),
    "largest": aggregates.max("amount"),
    "latest": aggregates.last("amount", "at"),
    "wide": aggregates.min("amount", "decimal(30, 6)"),
}
TYPES = {
    "total": pa.decimal128(38, 2),
    "declared": pa.decimal128(18, 2),
    "largest": pa.decimal128(18, 2),
    "latest": pa.decimal128(18, 2),
    "wide": pa.decimal128(30, 6),
}
EXPECTED = {
    "a": {"total": D("12.45"), "declared": D("12.45"), "largest": D("12.50")}
    | {"latest": D("-0.05"), "wide": D("-0.050000")},
    "b": dict.fromkeys(STATES, D("7.00")) | {"wide": D("7.000000")},
}


@pytest.fixture(scope="module")
def job(spark, tmp_path_factory):
    operator = AggregateOperator("u", "k", STATES, schema=ARROW)
    made = StatefulJob(spark, "decimals", str(tmp_path_factory.mktemp("base")), operator)
    made.run(spark.createDataFrame(ROWS, SCHEMA), 1)
    return made


def test_arrow_has_the_declared_types(job):
    for snapshot in (job.snapshot(), Snapshot.load(job.savepoint(f"{job.base_path}/sp"))):
        table = pa.Table.from_batches(snapshot["u"].keyed().read())
        assert {name: table.schema.field(name).type for name in STATES} == TYPES
        rows = {row.pop("state_key"): row for row in table.to_pylist()}
        assert {key: {name: row[name] for name in STATES} for key, row in rows.items()} == EXPECTED
        flat = pa.Table.from_batches(snapshot["u"].flat("largest").read())
        assert flat.schema.field("state_value").type == pa.decimal128(18, 2)


def test_materialized_state_and_spark_have_them_too(spark, job):
    job.materialize()
    frame = spark.read.format("savepoint").option("operator.uid", "u").load(job.latest_path())
    found = {name: kind for name, kind in frame.dtypes if name in STATES}
    assert found == {
        name: str(kind).replace("128", "").replace(" ", "") for name, kind in TYPES.items()
    }
    rows = {row.state_key: {name: row[name] for name in STATES} for row in frame.collect()}
    assert rows == EXPECTED
    exact = frame.sparkSession.read.format("savepoint").option("operator.uid", "u")
    stored = exact.option("decimals", "exact").load(job.latest_path())
    assert dict(stored.dtypes)["largest"] == "struct<unscaled:binary,scale:int>"


def test_a_number_beyond_the_declared_type_names_the_option(spark, tmp_path):
    operator = AggregateOperator(
        "u", "k", {"s": aggregates.sum("amount", "decimal(18, 2)")}, schema=ARROW
    )
    job = StatefulJob(spark, "large", str(tmp_path), operator)
    rows = [("a", D("9999999999999999.99"), at) for at in range(3)]
    job.run(spark.createDataFrame(rows, SCHEMA), 1)
    with pytest.raises(
        ColumnValueError, match=r"does not fit decimal128.18, 2., .* decimals=exact"
    ):
        list(job.snapshot()["u"].keyed().read())
