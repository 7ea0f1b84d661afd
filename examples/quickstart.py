"""State between runs: ``dg dev -f examples/quickstart.py``, then materialize a day."""

from typing import Any

import dagster as dg

import dstl_dagster as dstl
from dstl_core import aggregates

STATES = {"payments": aggregates.count(), "total": aggregates.sum("amount", "long")}
TOTALS = dstl.aggregating_pipeline(
    "payments", uid="totals", key_by="account", key_type="string", states=STATES
)
STORAGE = dstl.DstlStorageResource(base_path="/tmp/dstl")


def payments_of(session: Any, day: str) -> Any:
    return session.createDataFrame([("ada", 12), ("bob", 3)], "account string, amount long")


@dstl.dstl_assets(pipeline=TOTALS, partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
def epochs(
    context: dg.AssetExecutionContext,
    storage: dstl.DstlStorageResource,
    spark: dstl.DstlSparkResource,
) -> Any:
    yield from dstl.run_epochs(context, TOTALS, payments_of, storage=storage, engine=spark)


resources = {"storage": STORAGE, "spark": dstl.DstlSparkResource(master="local[2]")}
defs = dstl.build_pipeline_defs(TOTALS, [epochs], resources=resources)
