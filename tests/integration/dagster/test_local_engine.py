"""A pipeline in Dagster without Spark: epochs, retries, two ops, and the way to Spark and back."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dstl_dagster import (
    DstlLocalEngineResource,
    DstlSparkResource,
    DstlStorageResource,
    build_protocol_job,
    dstl_assets,
    run_epochs,
)
from tests.integration.dagster.small_pipeline import (
    DAYS,
    LOCAL,
    PAYMENTS,
    SPARK,
    expected_totals,
    rows_of,
    totals_in,
)

FIRST, SECOND, THIRD = "2026-01-01", "2026-01-02", "2026-01-03"


@dstl_assets(pipeline=PAYMENTS, partitions_def=DAYS)
def on_local(
    context: dg.AssetExecutionContext,
    storage: DstlStorageResource,
    engine: DstlLocalEngineResource,
) -> Iterator[Any]:
    yield from run_epochs(context, PAYMENTS, rows_of, storage=storage, engine=engine)


@dstl_assets(pipeline=PAYMENTS, partitions_def=DAYS)
def on_spark(
    context: dg.AssetExecutionContext, storage: DstlStorageResource, engine: DstlSparkResource
) -> Iterator[Any]:
    yield from run_epochs(context, PAYMENTS, rows_of, storage=storage, engine=engine)


def run(
    instance: dg.DagsterInstance, asset: Any, engine: Any, storage: DstlStorageResource, day: str
) -> None:
    resources = {"storage": storage, "engine": engine}
    done = dg.materialize([asset], partition_key=day, resources=resources, instance=instance)
    assert done.success


def test_days_run_and_run_again_without_spark(
    storage: DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    for days in ([FIRST], [FIRST, SECOND]):
        for _ in range(2):
            run(instance, on_local, LOCAL, storage, days[-1])
            assert totals_in(storage) == expected_totals(*days)
    kinds = [commit.facts.kind for commit in PAYMENTS.store(storage).commits()]
    assert kinds.count("epoch") == 2


@pytest.mark.spark
def test_a_pipeline_moves_to_spark_and_back(
    storage: DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    run(instance, on_local, LOCAL, storage, FIRST)
    run(instance, on_spark, SPARK, storage, SECOND)
    run(instance, on_local, LOCAL, storage, SECOND)  # it was committed
    run(instance, on_local, LOCAL, storage, THIRD)
    assert totals_in(storage) == expected_totals(FIRST, SECOND, THIRD)


def test_persist_and_confirm_are_two_ops_without_spark(
    storage: DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    job = build_protocol_job(PAYMENTS, rows_of, DAYS)
    resources = {"storage": storage, "engine": LOCAL}
    done = job.execute_in_process(partition_key=FIRST, resources=resources, instance=instance)
    assert done.success
    assert totals_in(storage) == expected_totals(FIRST)


PROGRAM = """
import sys
for name in ("pyspark", "py4j", "dagster_pyspark"):
    sys.modules[name] = None  # an import fails
import dagster
from dstl_dagster import DstlStorageResource
from tests.integration.dagster import test_local_engine
storage = DstlStorageResource(base_path=sys.argv[1])
with dagster.DagsterInstance.ephemeral() as instance:
    test_local_engine.test_days_run_and_run_again_without_spark(storage, instance)
"""


def test_neither_definitions_nor_a_run_import_spark(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
