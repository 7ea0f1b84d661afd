"""Aggregates of a pipeline are checked where they are declared."""

from datetime import timedelta

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dstl_core import aggregates, windows
from dstl_core.errors import ConfigError
from dstl_dagster import (
    DstlIOManager,
    DstlSparkResource,
    DstlStorageResource,
    EventTimeWindows,
    aggregating_pipeline,
    dstl_assets,
    run_epochs,
)
from dstl_dagster.checks.store_checks import build_pipeline_checks
from tests.integration.dagster.small_pipeline import SPARK

PAYMENTS = "account string, amount bigint, shop string, paid_at bigint"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"name": None}, "option name of pipeline None is wrong: expected text, got None"),
        ({"states": {}}, "The operator 'u' has no aggregate; give it at least one"),
        ({"states": [aggregates.count()]}, "expected a mapping of names to aggregates, got"),
        ({"states": {"n": "count"}}, "expected one of dstl_core.aggregates, .*, got 'count'"),
        ({"states": {"n": aggregates.sum("v")}}, "has no type; give type, or a schema with the"),
        ({"key_type": None}, "The key of operator 'u' has no type; give key_type, or a schema"),
        ({"windows": "1 h"}, r"expected EventTimeWindows\(..\), got '1 h'"),
        ({"num_retained": "3"}, "option num_retained .* expected a whole number above 0, got '3'"),
    ],
)
def test_a_pipeline_that_cannot_be_is_refused(arguments, message):
    counted = {"n": aggregates.count()}
    usual = {"name": "p", "uid": "u", "key_by": "k", "key_type": "string", "states": counted}
    with pytest.raises(ConfigError, match=message):
        aggregating_pipeline(**{**usual, **arguments})


def test_assets_are_made_of_a_pipeline():
    with pytest.raises(ConfigError, match=r"expected a StatefulPipeline, .* got 'payments'"):
        dstl_assets(pipeline="payments")


def test_each_state_of_an_aggregate_comes_from_its_column():
    pipeline = aggregating_pipeline(
        "payments",
        uid="totals",
        key_by="account",
        states={"n": aggregates.count(), "mean": aggregates.avg("amount")},
        schema=PAYMENTS,
    )
    assert pipeline.lineage == {
        "state_key": ["account"],
        "n": ["account"],
        "mean_sum": ["amount"],
        "mean_count": ["amount"],
    }


def test_an_aggregate_with_its_own_order_keeps_it():
    pipeline = aggregating_pipeline(
        "payments",
        uid="totals",
        key_by="account",
        states={
            "place": aggregates.max_by("shop", "paid_at"),
            "shops": aggregates.approx_count_distinct("shop"),
            "half": aggregates.quantiles("amount", [0.5]),
            "largest": aggregates.top("amount", 3),
        },
        schema=PAYMENTS,
    )
    assert pipeline.lineage == {
        "state_key": ["account"],
        "place": ["shop", "paid_at"],
        "place_order": ["shop", "paid_at"],
        "shops": ["shop"],
        "half": ["amount"],
        "largest": ["amount"],
    }


def test_the_output_of_a_pipeline_is_that_of_its_operator():
    states = {"n": aggregates.count(), "mean": aggregates.avg("v")}
    usual = {"uid": "u", "key_by": "k", "key_type": "string", "states": states}
    pipeline = aggregating_pipeline("p", output=["mean"], **usual)
    assert pipeline.job.operator.output_schema.names == ["k", "mean"]
    assert aggregating_pipeline("p", **usual).job.operator.output_schema is None
    with pytest.raises(ConfigError, match="expected some of n, mean, got 'x'"):
        aggregating_pipeline("p", output=["x"], **usual)


def test_a_pipeline_of_windows_keeps_their_contents_and_gives_those_that_fire():
    hours = windows.TumblingEventTimeWindows.of(3_600_000)
    pipeline = aggregating_pipeline(
        "payments",
        uid="hourly",
        key_by="account",
        states={"n": aggregates.count(), "total": aggregates.sum("amount")},
        schema=PAYMENTS,
        windows=EventTimeWindows(hours, "paid_at", timedelta(seconds=5), allowed_lateness="1 min"),
    )
    operator = pipeline.job.operator
    assert (operator.window, operator.allowed_lateness) == (hours, 60_000)
    assert operator.out_of_orderness_ms == 5000
    assert list(pipeline.outputs) == ["hourly"]
    kept = EventTimeWindows(hours, "paid_at", side_output_late_data="account string")
    usual = {
        "uid": "hourly",
        "key_by": "account",
        "states": {"n": aggregates.count()},
        "schema": PAYMENTS,
        "windows": kept,
    }
    assert aggregating_pipeline("p", **usual).outputs == ["hourly", "hourly.late"]
    assert aggregating_pipeline("p", output=False, **usual).outputs == ["hourly.late"]
    assert operator.output_schema.names == [
        "account",
        "window_start",
        "window_end",
        "n",
        "total",
    ]
    assert pipeline.lineage == {
        "state_key": ["account"],
        "window-contents": ["account", "paid_at", "amount"],
    }


HOUR = 3_600_000
PAID = {
    "2026-01-01": [("ada", 1, 5), ("ada", 59, 2), ("bob", 30, 4), ("ada", 61, 1)],
    "2026-01-02": [("ada", 62, 3), ("bob", 130, 7), ("bob", 31, 9)],
}


@pytest.mark.dagster
@pytest.mark.spark
def test_a_pipeline_of_windows_runs_day_by_day_and_its_output_is_loaded(storage, instance):
    pipeline = aggregating_pipeline(
        "paid",
        uid="hourly",
        key_by="account",
        states={"n": aggregates.count(), "total": aggregates.sum("amount")},
        schema=PAYMENTS,
        windows=EventTimeWindows(
            windows.TumblingEventTimeWindows.of("1 h"),
            "paid_at",
            side_output_late_data={"account": str, "amount": int},
        ),
    )

    def rows_of(session, day):
        rows = [(account, minute * 60_000, amount) for account, minute, amount in PAID[day]]
        return session.createDataFrame(rows, "account string, paid_at bigint, amount bigint")

    @dstl_assets(pipeline=pipeline, partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
    def epochs(
        context: dg.AssetExecutionContext, storage: DstlStorageResource, spark: DstlSparkResource
    ):
        yield from run_epochs(context, pipeline, rows_of, storage=storage, engine=spark)

    fired = []
    for day in PAID:
        done = dg.materialize(
            [epochs, *build_pipeline_checks(pipeline)],
            instance=instance,
            resources={"storage": storage, "spark": SPARK},
            partition_key=day,
        )
        assert done.success and all(each.passed for each in done.get_asset_check_evaluations())
        job = pipeline.open(SparkSession.getActiveSession(), storage)
        outputs = job.output_of(pipeline.store(storage).require_latest())
        fired.append(sorted(map(tuple, outputs["hourly"].collect())))
    assert fired == [
        [("ada", 0, HOUR, 2, 7), ("bob", 0, HOUR, 1, 4)],
        [("ada", HOUR, 2 * HOUR, 2, 4)],
    ]
    assert outputs["hourly.late"].collect() == [("bob", 9)]
    # Late rows are an asset: counted where it is materialized, and loaded as other output is.
    late = pipeline.key("output", operator="hourly.late")
    [event] = [
        materialized_event.materialization
        for materialized_event in done.get_asset_materialization_events()
        if materialized_event.asset_key == late
    ]
    assert event.metadata["dagster/partition_row_count"].value == 1

    seen = []

    @dg.asset(ins={"rows": dg.AssetIn(late, input_manager_key="dstl")})
    def behind(rows: pa.Table) -> None:
        seen.extend(rows.to_pylist())

    resources = {
        "storage": storage,
        "spark": SPARK,
        "dstl": DstlIOManager(storage=storage, spark=SPARK),
    }
    dg.materialize([behind, epochs], selection=[behind], instance=instance, resources=resources)
    assert seen == [{"account": "bob", "amount": 9}]
