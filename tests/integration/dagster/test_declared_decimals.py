"""Declared types come back where Dagster loads rows: the IO manager, and state of a pipeline."""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal as D
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import dstl_dagster as dstl
from dstl_core import aggregates
from tests.integration.dagster.conftest import instance_in
from tests.integration.dagster.small_pipeline import SPARK

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

SCHEMA = "account string, amount decimal(18,2), n bigint, day date, note string, at timestamp"
ROW = ("ann", D("12.50"), 3, date(2026, 1, 2), "é", None)
SUMS = dstl.aggregating_pipeline(
    "sums",
    uid="totals",
    key_by="account",
    states={
        "total": aggregates.sum("amount", "decimal(18,2)"),
        "newest": aggregates.max("day"),
        "best": aggregates.max_by("note", "amount"),
    },
    schema="account string, note string, amount decimal(18,2), day date",
)


def test_rows_that_the_io_manager_stores_come_back_in_their_types(tmp_path):
    storage = dstl.DstlStorageResource(base_path=str(tmp_path / "state"))
    seen = []

    @dg.asset(io_manager_key="dstl", metadata={"dstl/uid": "u", "dstl/key_by": "account"})
    def stored() -> DataFrame:
        return SPARK.spark_session.createDataFrame([ROW], SCHEMA)

    @dg.asset(ins={"stored": dg.AssetIn(input_manager_key="dstl")})
    def behind(stored: DataFrame) -> None:
        seen.append((dict(stored.dtypes), [row.asDict() for row in stored.collect()]))

    resources = {"dstl": dstl.DstlIOManager(storage=storage, spark=SPARK)}
    with instance_in(tmp_path) as instance:
        dg.materialize([stored, behind], instance=instance, resources=resources)
    [(types, [row])] = seen
    row = {name.replace("state_key", "account"): value for name, value in row.items()}
    names = [each.split()[0] for each in SCHEMA.split(", ")]
    assert row == dict(zip(names, ROW, strict=True))
    expected = dict(each.split() for each in SCHEMA.split(", "))
    assert {**types, "account": types["state_key"]} == {**expected, "state_key": "string"}


def test_state_of_a_pipeline_is_loaded_in_its_declared_types(tmp_path):
    storage = dstl.DstlStorageResource(base_path=str(tmp_path / "state"))
    seen = {}

    @dstl.dstl_assets(pipeline=SUMS, partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
    def sums_state(
        context: dg.AssetExecutionContext,
        storage: dstl.DstlStorageResource,
        spark: dstl.DstlSparkResource,
    ) -> Iterator[Any]:
        def rows(session: Any, key: str) -> Any:
            return session.createDataFrame([ROW], SCHEMA)

        yield from dstl.run_epochs(context, SUMS, rows, storage=storage, engine=spark)

    @dg.asset(ins={"rows": dg.AssetIn(SUMS.key("state"), input_manager_key="dstl")})
    def in_arrow(rows: pa.Table) -> None:
        seen["arrow"] = {each.name: str(each.type) for each in rows.schema}

    @dg.asset(ins={"rows": dg.AssetIn(SUMS.key("state"), input_manager_key="dstl")})
    def in_spark(rows: DataFrame) -> None:
        seen["spark"] = dict(rows.dtypes)

    resources = {
        "storage": storage,
        "spark": SPARK,
        "dstl": dstl.DstlIOManager(storage=storage, spark=SPARK),
    }
    with instance_in(tmp_path) as instance:
        dg.materialize(
            [sums_state], instance=instance, resources=resources, partition_key="2026-01-01"
        )
        dg.materialize(
            [sums_state, in_arrow, in_spark],
            selection=[in_arrow, in_spark],
            instance=instance,
            resources=resources,
        )
    arrow, spark = seen["arrow"], seen["spark"]
    assert (arrow["total"], arrow["best_order"]) == ("decimal128(18, 2)", "decimal128(18, 2)")
    assert (spark["total"], spark["best_order"]) == ("decimal(18,2)", "decimal(18,2)")
    assert (arrow["newest"], spark["newest"]) == ("date32[day]", "date")
