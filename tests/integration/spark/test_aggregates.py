"""Declared aggregates on Spark, and what Spark reads of their states.

``tests/property/test_every_aggregate.py`` has every aggregate of every type.
"""

import pytest

from dstl_core import (
    AggregateOperator,
    StatefulJob,
    aggregates,
)
from dstl_core.errors import ConfigError
from dstl_core.spark.job import small_batches
from tests.local_session import LocalSession, state_rows

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def each_subtask_has_a_task():
    """One task would apply such small batches without a shuffle: ``test_engines`` has both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_batches, "SMALL_BYTES", 0)
        yield


def job_of(base, name, wanted, schema, engine=None):
    operator = AggregateOperator("u", "k", wanted, schema=schema, output=True)
    return StatefulJob(engine or LocalSession(), name, str(base), operator, parallelism=3)


def states(job):
    return {row.state_key: row.asDict() for row in state_rows(job.latest_path(), "u")}


def test_sketches_of_many_values_are_as_near_as_they_say(spark, tmp_path):
    wanted = {
        "different": aggregates.approx_count_distinct("v"),
        "some": aggregates.quantiles("v", [0.1, 0.5, 0.9]),
        "last": aggregates.last_values("v", 100_000, "v"),
    }
    schema = "k string, v bigint"
    job = job_of(tmp_path, "job", wanted, schema)
    for part in range(3):
        rows = (
            spark.range(part * 20_000, part * 20_000 + 40_000).selectExpr("'a' k", "id v").toArrow()
        )
        done = job.run(rows, part)
    [row] = done.output.collect()
    assert row["different"] == pytest.approx(80_000, rel=0.05)
    values = [each for part in range(3) for each in range(part * 20_000, part * 20_000 + 40_000)]
    assert row["last"] == sorted(values, reverse=True)[:100_000]
    ranks = [
        (sum(max(0, min(value - part * 20_000, 40_000)) for part in range(3))) / 120_000
        for value in row["some"]
    ]
    assert ranks == pytest.approx([0.1, 0.5, 0.9], abs=0.04)
    state = spark.read.format("savepoint").option("operator.uid", "u").load(job.latest_path())
    [of_spark] = state.selectExpr(
        "hll_sketch_estimate(different) AS different",
        "kll_sketch_get_quantile_double(some, 0.5D) AS half",
    ).collect()
    assert (of_spark["different"], of_spark["half"]) == (row["different"], row["some"][1])


def test_values_of_every_type_are_counted(spark, tmp_path):
    rows = spark.sql(
        "SELECT 1 k, v, named_struct('a', 1) s FROM VALUES (INTERVAL '1' DAY), (null) AS t (v)"
    )
    wanted = {each: aggregates.count(each) for each in ("v", "s")}
    operator = AggregateOperator("u", "k", wanted, key_type="int")
    job = StatefulJob(spark, "job", str(tmp_path), operator)
    job.run(rows, 1)
    assert states(job) == {1: {"state_key": 1, "v": 1, "s": 2}}


def test_rows_of_a_subtask_stay_together_where_spark_moves_rows_before_each_grouping(
    spark, tmp_path
):
    name = "spark.sql.requireAllClusterKeysForDistribution"
    spark.conf.set(name, "true")
    try:
        rows = [(key, key % 5) for key in range(200)] * 2
        wanted = {"n": aggregates.count(), "total": aggregates.sum("v")}
        job = job_of(tmp_path, "job", wanted, "k bigint, v int", spark)
        job.run(spark.createDataFrame(rows, "k bigint, v int"), 1)
    finally:
        spark.conf.unset(name)
    expected = {key: {"state_key": key, "n": 2, "total": 2 * (key % 5)} for key in range(200)}
    assert states(job) == expected


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("'a' COLLATE UTF8_LCASE AS k, 'x' AS v", "k"),
        ("'a' AS k, 'x' COLLATE UNICODE_CI AS v", "v"),
    ],
)
def test_texts_that_spark_compares_in_another_way_are_refused(spark, tmp_path, sql, column):
    rows = spark.sql(f"SELECT {sql}")
    job = job_of(tmp_path, "job", {"top": aggregates.max("v")}, "k string, v string", spark)
    with pytest.raises(ConfigError, match=f"^The column '{column}' .* compares texts by their byt"):
        job.run(rows, 1)
    assert job.latest() is None
