"""The plan of an epoch has the same size, whatever numbers a user gives; the values stay right."""

from __future__ import annotations

import json
from bisect import bisect_right

import pytest

from dstl_core import AggregateOperator, StatefulJob, aggregates, windows
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.spark.job.inputs import place

pytestmark = pytest.mark.spark
SCHEMA = "k string, v double, t bigint"
DAY, TEN_SECONDS = 86_400_000, 10_000


def plan_size(spark, operator) -> int:
    """The number of operators and expressions in the plan that sends rows to tasks."""
    rows = spark.createDataFrame([("a", 1.0, 0)], SCHEMA)
    placed = place(rows, operator, (), parallelism=2, max_parallelism=16).frame
    plan = placed._jdf.queryExecution().analyzed()

    def nodes(value) -> int:
        if isinstance(value, list):
            return sum(map(nodes, value))
        return ("class" in value) + nodes(list(value.values())) if isinstance(value, dict) else 0

    return nodes(json.loads(plan.toJSON()))


def sliding(size: int, slide: int) -> AggregateOperator:
    return AggregateOperator(
        "u",
        "k",
        {"n": aggregates.count(), "total": aggregates.sum("v")},
        schema=SCHEMA,
        window=windows.SlidingEventTimeWindows.of(size, slide),
        event_time="t",
    )


def listed(**wanted: aggregates.Aggregate) -> AggregateOperator:
    return AggregateOperator("u", "k", wanted, schema=SCHEMA)


PAIRS = {
    "windows": (sliding(2, 1), sliding(DAY, TEN_SECONDS)),
    "windows that the slide does not divide": (sliding(5, 2), sliding(DAY, 7_001)),
    "bounds": (
        listed(a=aggregates.histogram("v", [0])),
        listed(a=aggregates.histogram("v", range(5_000))),
    ),
    "limits": (
        listed(
            a=aggregates.top("v", 1),
            b=aggregates.collect_set("v", 1),
            c=aggregates.last_values("v", 1, "t"),
            d=aggregates.value_counts("t", 1),
        ),
        listed(
            a=aggregates.top("v", 100_000),
            b=aggregates.collect_set("v", 100_000),
            c=aggregates.last_values("v", 100_000, "t"),
            d=aggregates.value_counts("t", 100_000),
        ),
    ),
    "sketches": (
        listed(
            a=aggregates.quantiles("v", [0.5], 8), b=aggregates.approx_count_distinct("t", lg_k=4)
        ),
        listed(
            a=aggregates.quantiles("v", [each / 999 for each in range(1_000)], 65_535),
            b=aggregates.approx_count_distinct("t", lg_k=21),
        ),
    ),
    "half-lives": (
        listed(a=aggregates.decayed_sum("v", 1, "t")),
        listed(a=aggregates.decayed_sum("v", 1e300, "t")),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_larger_number_makes_no_larger_plan(spark, name):
    small, large = PAIRS[name]
    assert plan_size(spark, large) == plan_size(spark, small)


def test_a_row_is_in_all_windows_of_a_day_every_ten_seconds(spark, tmp_path):
    job = StatefulJob(
        spark,
        "job",
        str(tmp_path),
        sliding(DAY, TEN_SECONDS),
        local_copies=LocalCopies(str(tmp_path / "local")),
    )
    time = 1_700_000_003_210
    job.run(spark.createDataFrame([("a", 1.5, time)], SCHEMA), 1)
    job.stop_with_savepoint(str(tmp_path / "savepoint"), drain=True)
    rows = job.output_of(job.history()[-2])["u"].collect()
    first = (time - DAY) // TEN_SECONDS * TEN_SECONDS + TEN_SECONDS
    starts = range(first, time + 1, TEN_SECONDS)
    assert len(starts) == DAY // TEN_SECONDS
    assert sorted(tuple(row) for row in rows) == [
        ("a", start, start + DAY, 1, 1.5) for start in starts
    ]


def test_a_histogram_of_five_thousand_buckets_counts_every_value(spark, tmp_path):
    bounds = [each * 0.7 - 1_000 for each in range(5_000)]
    operator = AggregateOperator(
        "u", "k", {"sizes": aggregates.histogram("v", bounds)}, schema=SCHEMA, output=True
    )
    values = [((each * 7_919) % 40_009) / 10 - 1_200 for each in range(20_000)] + bounds
    job = StatefulJob(
        spark, "job", str(tmp_path), operator, local_copies=LocalCopies(str(tmp_path / "local"))
    )
    expected = [0] * (len(bounds) + 1)
    for number in range(2):
        own_values = values[number::2]
        for value in own_values:
            expected[bisect_right(bounds, value)] += 1
        rows = [("a", value, 0) for value in own_values]
        done = job.run(spark.createDataFrame(rows, SCHEMA).repartition(5), number)
    [row] = done.outputs["u"].collect()
    assert row["sizes"] == expected
