"""A Delta table behind a pipeline equals a recomputation by DuckDB, whatever days are restated."""

from random import Random
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import dstl_dagster as dstl
from dstl_core import aggregates
from dstl_core.errors import ConfigError
from dstl_core.sinks import DeltaSink
from dstl_dagster.pipelines.windows import REWIND_TAG
from dstl_dagster.snapshots.stored_rows import committed_output
from tests.integration.dagster.conftest import instance_in
from tests.integration.dagster.small_pipeline import LOCAL, epochs_of

pytestmark = pytest.mark.dagster
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")
KEYS = [f"2026-01-{day:02}" for day in range(1, 15)]
Days = dict[str, pa.Table]


def pipeline_with(**options: Any) -> dstl.StatefulPipeline:
    return dstl.aggregating_pipeline(
        "sales",
        uid="totals",
        key_by="shop",
        states={
            "sales": aggregates.count(),
            "total": aggregates.sum("amount"),
            "mean": aggregates.avg("amount"),
            "latest": aggregates.last("item", order_by="minute"),
        },
        schema="shop string, amount bigint, item string, minute bigint",
        engine="engine",
        **options,
    )


def assets_of(pipeline: dstl.StatefulPipeline, days: Days) -> list[dg.AssetsDefinition]:
    """The pipeline, and a Delta table behind its output."""

    sales = epochs_of(pipeline, lambda _, day: days[day], DAYS, retry_policy=None)

    @dg.asset(deps=[pipeline.key("output")])
    def totals(storage: dstl.DstlStorageResource) -> dg.MaterializeResult[None]:
        return dstl.merge_output(pipeline, storage, DeltaSink(f"{storage.base_path}/totals"))

    return [sales, totals]


def some_sales(random: Random, day: str) -> pa.Table:
    count = random.randint(1, 5)
    shops = [random.choice("abcdefgh") for _ in range(count)]
    # Some rows are late, and no two have the same time.
    times = random.sample(range(1000), count)
    return pa.table(
        {
            "shop": shops,
            "amount": [random.randint(1, 9) for _ in shops],
            "item": [f"{day} {time}" for time in times],
            "minute": times,
        }
    )


def recomputed(days: Days) -> list[tuple[Any, ...]]:
    sales = pa.concat_tables(days.values())  # noqa: F841  # DuckDB reads it
    return duckdb.sql(
        "SELECT shop, count(*), sum(amount), avg(amount), max_by(item, (minute, item)) FROM sales "
        "GROUP BY shop ORDER BY shop"
    ).fetchall()


def test_a_delta_table_equals_a_recomputation_after_each_day(tmp_path: Any) -> None:
    random = Random(38)
    storage = dstl.DstlStorageResource(base_path=str(tmp_path / "data"))
    resources = {"storage": storage, "engine": LOCAL}
    days: Days = {}
    applied: Days = {}
    restated = {"2026-01-05": "2026-01-03", "2026-01-09": "2026-01-09", "2026-01-12": "2026-01-08"}
    with instance_in(tmp_path) as instance:

        def run(day: str, tags: dict[str, str] | None = None) -> None:
            output = day != "2026-01-07"  # switched off for a day
            assets = assets_of(pipeline_with(output=True if output else None), days)
            chosen = assets if output else assets[:1]
            assert dg.materialize(
                chosen, partition_key=day, resources=resources, instance=instance, tags=tags
            ).success
            applied[day] = days[day]
            if output:
                table = DeltaTable(f"{storage.base_path}/totals").to_pyarrow_table()
                rows = sorted(tuple(row.values()) for row in table.to_pylist())
                assert rows == recomputed(applied)

        for day in KEYS:
            days[day] = some_sales(random, day)
            run(day)
            first = restated.get(day)
            if first is not None:
                days[first] = some_sales(random, first)
                run(first, {REWIND_TAG: "true"})  # and all later days again

        event = instance.get_latest_materialization_event(dg.AssetKey("totals"))
        assert event is not None and event.asset_materialization is not None
        metadata = {name: each.value for name, each in event.asset_materialization.metadata.items()}
        assert (metadata["dstl/commits_applied"], metadata["dstl/rewritten"]) == (1, False)


def test_output_that_the_pipeline_does_not_have_is_refused(tmp_path: Any) -> None:
    storage = dstl.DstlStorageResource(base_path=str(tmp_path))
    sink = DeltaSink(str(tmp_path / "totals"))
    with pytest.raises(ConfigError, match=r"no output 'totals' to merge.*it has none"):
        dstl.merge_output(pipeline_with(), storage, sink)
    with pytest.raises(ConfigError, match="no output 'late' to merge: expected one of its outputs"):
        dstl.merge_output(pipeline_with(output=True), storage, sink, output="late")
    with pytest.raises(ConfigError, match="no output 'totals' to merge"):
        dstl.output_changes(pipeline_with(), storage)


def test_a_window_without_stored_output_is_an_error_and_never_no_rows(tmp_path: Any) -> None:
    """Output was switched on, and then got another column, after some windows."""
    storage = dstl.DstlStorageResource(base_path=str(tmp_path / "data"))
    resources = {
        "storage": storage,
        "engine": LOCAL,
        "dstl": dstl.DstlIOManager(storage=storage, spark=dstl.DstlSparkResource()),
    }
    days = {key: some_sales(Random(key), key) for key in KEYS[:3]}
    loaded: list[int] = []

    @dg.asset(
        partitions_def=DAYS,
        ins={
            "sold": dg.AssetIn(pipeline_with(output=True).key("output"), input_manager_key="dstl")
        },
    )
    def mart(sold: pa.Table) -> None:
        loaded.append(sold.num_rows)

    with instance_in(tmp_path) as instance:

        def run(assets: Any, day: str, **options: Any) -> str | None:
            """The error, if the run failed."""
            result = dg.materialize(
                assets,
                partition_key=day,
                resources=resources,
                instance=instance,
                raise_on_error=False,
                **options,
            )
            failures = [each.event_specific_data.error for each in result.get_step_failure_events()]
            return None if result.success else "".join(error.to_string() for error in failures)

        _, second, third = KEYS[:3]
        for key, output in zip(KEYS[:3], (None, ["sales"], True), strict=True):
            [epochs, _] = assets_of(pipeline_with(output=output), days)
            assert run([epochs], key) is None
        [epochs, _] = assets_of(pipeline_with(output=True), days)
        output_key = pipeline_with(output=True).key("output")
        error = run([epochs, mart], KEYS[0], selection=[mart])
        assert error is not None
        assert "is not stored for the input 2026-01-01: the pipeline had no such output" in error
        assert "by a run with the tag dstl/rewind=true" in error
        # A run of the window reports no rows either.
        error = run([epochs], KEYS[0])
        assert error is not None and "is not stored for the input 2026-01-01" in error
        assert instance.get_materialized_partitions(output_key) == {second, third}
        assert run([epochs, mart], second, selection=[mart]) is None
        store = pipeline_with().store(storage)
        with pytest.raises(ConfigError, match="and other ones for the input 2026-01-02; run it"):
            committed_output(store, "sales", "totals", [second, third])
        with pytest.raises(ConfigError, match="not stored for the input 2026-01-01"):
            committed_output(store, "sales", "totals", None)
        # What the message says helps.
        assert run([epochs], KEYS[0], tags={REWIND_TAG: "true"}) is None
        loaded.clear()
        for key in KEYS[:3]:
            assert run([epochs, mart], key, selection=[mart]) is None
        assert loaded == [len(set(days[key]["shop"].to_pylist())) for key in KEYS[:3]]
