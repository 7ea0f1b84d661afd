"""A small pipeline of aggregates over a few days of events, for tests.

It runs without Spark, unless a test gives ``SPARK`` as the resource ``engine``.
"""

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pyarrow as pa

from dstl_core import Snapshot, aggregates
from dstl_dagster import (
    DstlLocalEngineResource,
    DstlSparkResource,
    DstlStorageResource,
    StatefulPipeline,
    aggregating_pipeline,
    build_pipeline_defs,
    dstl_assets,
    run_epochs,
)
from dstl_dagster.snapshots import Rewrite

SPARK_CONFIG = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "OFF",
}
SPARK = DstlSparkResource(master="local[2]", spark_config=SPARK_CONFIG)
LOCAL = DstlLocalEngineResource(threads=2)
DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01", end_date="2026-01-08")
PAYMENTS = aggregating_pipeline(
    "payments",
    uid="totals",
    key_by="account",
    states={
        "payments": aggregates.count(),
        "total": aggregates.sum("amount"),
        "largest": aggregates.max("amount"),
    },
    schema="account string, amount long",
    engine="engine",
)
ACCOUNTS = (5, 9, 7, 12, 6, 11, 8)
ROWS = {
    f"2026-01-0{day}": [(f"account-{i % accounts}", i * day) for i in range(1, 13)]
    for day, accounts in enumerate(ACCOUNTS, 1)
}


def expected_totals(*days: str) -> dict[str, tuple[int, int, int]]:
    """Account to (payments, total, largest), by hand."""
    totals: dict[str, tuple[int, int, int]] = {}
    for day in days:
        for account, amount in ROWS[day]:
            count, total, largest = totals.get(account, (0, 0, amount))
            totals[account] = (count + 1, total + amount, max(largest, amount))
    return totals


def totals_in(storage: DstlStorageResource) -> dict[str, tuple[int, int, int]]:
    """Account to (payments, total, largest), as the latest checkpoint holds it."""
    store = PAYMENTS.store(storage)
    snapshot = Snapshot.load(store.path_of(store.require_latest()))
    by_state = {
        state: {entry.key: entry.value for entry in snapshot["uid:totals"].keyed_entries(state)}
        for state in ("payments", "total", "largest")
    }
    return {
        account: tuple(by_state[state][account] for state in by_state)  # type: ignore[misc]
        for account in by_state["payments"]
    }


def payments(*rows: tuple[str, int]) -> pa.Table:
    """Rows that every engine takes."""
    accounts, amounts = zip(*rows, strict=True)
    return pa.table({"account": accounts, "amount": amounts})


def rows_of(engine: Any, day: str) -> pa.Table:
    return payments(*ROWS[day])


def epochs_of(
    pipeline: StatefulPipeline = PAYMENTS,
    batch: Callable[[Any, str], Any] = rows_of,
    partitions: dg.PartitionsDefinition | None = DAYS,
    *,
    input_id: Any = None,
    **options: Any,
) -> dg.AssetsDefinition:
    """The epochs of a pipeline, as users define them."""

    @dstl_assets(pipeline=pipeline, partitions_def=partitions, **options)
    def epochs(
        context: dg.AssetExecutionContext,
        storage: DstlStorageResource,
        engine: dg.ResourceParam[Any],
    ) -> Iterator[Any]:
        yield from run_epochs(
            context, pipeline, batch, storage=storage, engine=engine, input_id=input_id
        )

    return epochs


def small_defs(
    storage: DstlStorageResource,
    batch: Callable[[Any, str], Any] = rows_of,
    engine: Any = LOCAL,
    **options: Any,
) -> dg.Definitions:
    """The pipeline's definitions; ``batch`` is what tests interfere with."""
    epochs = epochs_of(PAYMENTS, batch, retry_policy=dg.RetryPolicy(max_retries=1))
    return build_pipeline_defs(
        PAYMENTS,
        [epochs],
        rewrite=Rewrite(rename={"totals": "sums"}, max_parallelism=64),
        resources={"storage": storage, "engine": engine},
        **options,
    )
