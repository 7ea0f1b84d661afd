"""State and output of a pipeline as inputs of other assets, by the type that they ask for."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import dstl_dagster as dstl
from dstl_core import LocalEngine
from dstl_core.errors import ConfigError
from tests.integration.dagster.conftest import instance_in
from tests.integration.dagster.orders import ALL_DAYS, DAYS, ORDERS, orders_of
from tests.integration.dagster.small_pipeline import LOCAL, SPARK

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

GIVING = replace(ORDERS, outputs=("totals",), show_keys=True, engine="spark")
FIRST, SECOND, THIRD = ALL_DAYS[:3]
TYPES = (pa.Table, pd.DataFrame, pl.DataFrame, pl.LazyFrame, DataFrame, Any)
OUTPUT = GIVING.key("output", operator="totals")


@dstl.dstl_assets(pipeline=GIVING, partitions_def=DAYS)
def orders_state(
    context: dg.AssetExecutionContext,
    storage: dstl.DstlStorageResource,
    engine: dstl.DstlLocalEngineResource,
) -> Iterator[Any]:
    yield from dstl.run_epochs(context, GIVING, table_of, storage=storage, engine=engine)


def table_of(engine: LocalEngine, day: str) -> pa.Table:
    customers, amounts = zip(*orders_of(day), strict=True)
    return pa.table({"customer": customers, "amount": amounts})


def rows_in(data: Any) -> list[dict[str, Any]]:
    """The rows of any of the types."""
    if isinstance(data, pl.LazyFrame):
        data = data.collect()
    if isinstance(data, pa.Table):
        return data.to_pylist()
    if isinstance(data, pd.DataFrame):
        return data.to_dict("records")
    if isinstance(data, pl.DataFrame):
        return data.to_dicts()
    assert isinstance(data, DataFrame)
    return [row.asDict() for row in data.collect()]


def given_on(*days: str) -> list[tuple[str, int]]:
    """Customer and sum after each order of the days, the smallest first; by hand."""
    sums: dict[str, int] = {}
    rows = []
    for day in ALL_DAYS[: ALL_DAYS.index(days[-1]) + 1]:
        for customer, amount in sorted(orders_of(day), key=lambda order: order[1]):
            sums[customer] = sums.get(customer, 0) + amount
            if day in days:
                rows.append((customer, sums[customer]))
    return sorted(rows)


def sums_after(*days: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for day in days:
        for customer, amount in orders_of(day):
            sums[customer] = sums.get(customer, 0) + amount
    return sums


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Three days of orders: the storage, the instance and what was reported."""
    storage = dstl.DstlStorageResource(base_path=str(tmp_path_factory.mktemp("state")))
    span = {
        "dagster/asset_partition_range_start": FIRST,
        "dagster/asset_partition_range_end": THIRD,
    }
    with instance_in(tmp_path_factory.mktemp("home")) as instance:
        done = dg.materialize(
            [orders_state],
            instance=instance,
            tags=span,
            resources={"storage": storage, "engine": LOCAL},
        )
        yield storage, instance, done


SPAN = {
    "dagster/asset_partition_range_start": FIRST,
    "dagster/asset_partition_range_end": SECOND,
}


def loaded(ran, key, wanted, day=None, tags=None):
    """What an asset downstream gets in a run of its own."""
    storage, instance, _ = ran
    seen = []

    @dg.asset(
        name="downstream",
        ins={"rows": dg.AssetIn(key, input_manager_key="dstl")},
        partitions_def=None if day is None and tags is None else DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def downstream(rows: wanted) -> None:
        seen.append(rows_in(rows))

    dg.materialize(
        [downstream, orders_state],
        selection=[downstream],
        instance=instance,
        partition_key=day,
        tags=tags,
        resources={
            "storage": storage,
            "engine": LOCAL,
            "dstl": dstl.DstlIOManager(storage=storage, spark=SPARK),
        },
    )
    [rows] = seen
    return rows


@pytest.mark.parametrize("wanted", TYPES)
def test_output_is_loaded_as_the_type_of_the_annotation(ran, wanted):
    rows = loaded(ran, OUTPUT, wanted, SECOND)
    assert sorted((row["customer"], row["total"]) for row in rows) == given_on(SECOND)


@pytest.mark.parametrize("wanted", TYPES)
def test_state_is_that_after_the_partition(ran, wanted):
    rows = loaded(ran, GIVING.key("state"), wanted, SECOND)
    assert {row["state_key"]: row["total"] for row in rows} == sums_after(FIRST, SECOND)


def test_an_asset_without_partitions_gets_what_the_latest_state_stands_on(ran):
    state = loaded(ran, GIVING.key("state"), pa.Table)
    assert {row["state_key"]: row["total"] for row in state} == sums_after(FIRST, SECOND, THIRD)
    output = loaded(ran, OUTPUT, pa.Table)
    assert sorted((row["customer"], row["total"]) for row in output) == given_on(
        FIRST, SECOND, THIRD
    )


def test_a_run_of_several_partitions_gets_those(ran):
    output = loaded(ran, OUTPUT, pa.Table, tags=SPAN)
    assert sorted((row["customer"], row["total"]) for row in output) == given_on(FIRST, SECOND)
    state = loaded(ran, GIVING.key("state"), pa.Table, tags=SPAN)
    assert {row["state_key"]: row["total"] for row in state} == sums_after(FIRST, SECOND)


def test_each_window_of_output_is_reported_with_rows_columns_and_first_rows(ran):
    reported = {
        event.partition: event.step_materialization_data.materialization.metadata
        for event in ran[2].get_asset_materialization_events()
        if event.asset_key == OUTPUT
    }
    assert list(reported) == [FIRST, SECOND, THIRD]
    shown = reported[SECOND]
    assert shown["dagster/partition_row_count"].value == len(orders_of(SECOND))
    columns = {each.name: each.type for each in shown["dagster/column_schema"].schema.columns}
    assert columns == {"customer": "string", "total": "int64", "host": "string"}
    preview = [each.data for each in shown["dstl/preview"].records]
    assert len(preview) == 5
    assert {(row["customer"], row["total"]) for row in preview} <= set(given_on(SECOND))


def test_keys_are_shown_on_request_only():
    assert not ORDERS.show_keys and ORDERS.outputs == ()
    silent = replace(ORDERS, outputs=("largest",))
    with pytest.raises(
        ConfigError, match=r"'largest' of pipeline 'orders' gives no output.*totals"
    ):
        silent.open(LocalEngine(), dstl.DstlStorageResource(base_path="nowhere"))


def test_what_a_rewind_undid_is_not_loaded(ran):
    storage, _, _ = ran
    job = GIVING.open(LocalEngine(), storage)
    again = pa.table({"customer": ["c1"], "amount": [1_000]})
    notes = {"window": {"key": SECOND}}
    job.run(again, SECOND, ("amount",), rewind=True, notes=notes)
    total = sums_after(FIRST)["c1"] + 1_000
    rows = loaded(ran, OUTPUT, pa.Table, SECOND)
    assert [(row["customer"], row["total"]) for row in rows] == [("c1", total)]
    everything = [(row["customer"], row["total"]) for row in loaded(ran, OUTPUT, pa.Table)]
    assert sorted(everything) == sorted([*given_on(FIRST), ("c1", total)])
    with pytest.raises(ConfigError, match=f"holds no window '{THIRD}'.*a rewind undid it"):
        loaded(ran, OUTPUT, pa.Table, THIRD)
    state = loaded(ran, GIVING.key("state"), pa.Table, SECOND)
    assert {row["state_key"]: row["total"] for row in state} == {
        **sums_after(FIRST),
        "c1": total,
    }


def test_another_type_or_another_part_of_a_pipeline_is_refused(ran):
    with pytest.raises(ConfigError, match=r"cannot be loaded as builtins.dict: expected a Data"):
        loaded(ran, OUTPUT, dict, FIRST)
    with pytest.raises(ConfigError, match=r"has no rows to load: expected state or output"):
        loaded(ran, GIVING.key("checkpoint"), pa.Table, FIRST)
