"""The code location of the browser scenario: the small pipeline over 14 days.

Files that the scenario makes slow its epochs down, let its seventh day fail, change its definition,
or correct days.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from dstl_core import aggregates
from dstl_dagster import (
    DstlSparkResource,
    DstlStorageResource,
    StatefulPipeline,
    aggregating_pipeline,
    build_pipeline_defs,
    dstl_assets,
)
from dstl_dagster import run_epochs as run
from dstl_dagster.snapshots import Rewrite
from tests.integration.dagster.small_pipeline import (
    PAYMENTS,
    ROWS,
    SPARK_CONFIG,
    payments,
    rows_of,
)

FOLDER = Path(os.environ["DSTL_SCENARIO"])
STORAGE = DstlStorageResource(base_path=str(FOLDER / "state"))
SLOW = FOLDER / "slow"
IN_EPOCH = FOLDER / "in-epoch"
BROKEN = FOLDER / "broken"
EVOLVED, CORRECTED = FOLDER / "evolved", FOLDER / "corrected"
DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01", end_date="2026-01-15")
ROWS_LIKE = dict(zip(DAYS.get_partition_keys(), [*ROWS, *ROWS], strict=True))
"""Of each day, the day of the small pipeline whose rows it has."""
FAILING_DAY = "2026-01-07"
SECONDS = 120


def pipeline_now() -> StatefulPipeline:
    """The small pipeline; once the file ``evolved`` is there, with another definition."""
    if not EVOLVED.exists():
        return PAYMENTS
    return aggregating_pipeline(
        "payments",
        uid="totals",
        key_by="account",
        states={
            "payments": aggregates.count(),
            "revenue": aggregates.sum("amount"),
            "least": aggregates.min("amount"),
        },
        schema="account string, amount long",
        engine="engine",
        evolve={
            "rename": {"total": "revenue"},
            "drop": ["largest"],
            "backfill": ["least"],
            "needs_approval": True,
        },
    )


PIPELINE = pipeline_now()


def slow_rows(session: Any, day: str) -> Any:
    """The rows of a day; where the file ``slow`` is, each takes its time in Spark.

    Raises:
        FileNotFoundError: The file ``broken`` is there, and it is the failing day.
    """
    if day == FAILING_DAY and BROKEN.exists():
        raise FileNotFoundError(f"the events of {day} have not arrived")
    corrections = json.loads(CORRECTED.read_text()) if CORRECTED.exists() else {}
    if day in corrections:
        return session.createDataFrame(payments(*corrections[day]))
    rows = session.createDataFrame(rows_of(session, ROWS_LIKE[day]))
    if not SLOW.exists():
        return rows
    IN_EPOCH.write_text(f"{os.getpid()}")
    seconds = SECONDS

    def slowly(batches: Any) -> Any:
        from threading import Event

        for batch in batches:
            Event().wait(seconds)
            yield batch

    return rows.mapInArrow(slowly, rows.schema)


@dstl_assets(
    pipeline=PIPELINE, partitions_def=DAYS, retry_policy=None, pool="payments", deps=["payments_in"]
)
def payments_state(
    context: dg.AssetExecutionContext, storage: DstlStorageResource, engine: DstlSparkResource
) -> Iterator[Any]:
    yield from run(context, PIPELINE, slow_rows, storage=storage, engine=engine)


defs = dg.Definitions.merge(
    build_pipeline_defs(
        PIPELINE,
        [dg.AssetSpec("payments_in", group_name="payments"), payments_state],
        rewrite=Rewrite(rename={"totals": "sums"}, max_parallelism=64, automatic=False),
        max_log_ratio=1.0,
        sensor_interval_seconds=5,
        sensors_running=True,
        resources={
            "storage": STORAGE,
            "engine": DstlSparkResource(master="local[2]", spark_config=SPARK_CONFIG),
        },
    ),
    dg.Definitions(executor=dg.multiprocess_executor.configured({"max_concurrent": 1})),
)
