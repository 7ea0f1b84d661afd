"""A pipeline in Dagster without Spark: epochs, retries, two ops, and the way to Spark and back."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dstl_core import Snapshot
from dstl_dagster import (
    DstlStorageResource,
    StatefulPipelineComponent,
)
from dstl_dagster.pipelines import build_protocol_job
from tests.integration.dagster.small_pipeline import (
    DAYS,
    LOCAL,
    PAYMENTS,
    SPARK,
    epochs_of,
    expected_totals,
    rows_of,
    totals_in,
)

FIRST, SECOND, THIRD = "2026-01-01", "2026-01-02", "2026-01-03"


on_local = on_spark = epochs_of()


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


def test_a_pipeline_that_starts_from_a_savepoint_leaves_state_out_only_if_asked(
    storage: DstlStorageResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    run(instance, on_local, LOCAL, storage, FIRST)
    with LOCAL.tagged("test") as engine:
        savepoint = PAYMENTS.open(engine, storage).savepoint(str(tmp_path / "savepoint"))

    def sums(allowed: bool) -> Any:
        attributes = {
            "name": "sums",
            "uid": "sums",
            "engine": "engine",
            "events": {"path": "payments", "partition_column": "day"},
            "partitions": {"start": FIRST, "end": "2026-01-08"},
            "key_by": "account",
            "columns": "account string, amount bigint",
            "states": {"total": {"how": "sum", "column": "amount"}},
            "starts_from": savepoint,
            "allow_non_restored_state": allowed,
        }
        return StatefulPipelineComponent.from_attributes_dict(attributes=attributes).pipeline

    with pytest.raises(dg.Failure, match="No operator of the job takes the state of 'totals' in"):
        run(instance, epochs_of(sums(allowed=False)), LOCAL, storage, FIRST)
    run(instance, epochs_of(sums(allowed=True)), LOCAL, storage, FIRST)
    store = sums(allowed=True).store(storage)
    snapshot = Snapshot.load(store.path_of(store.require_latest()))
    totals = {line["key"]: line["value"] for line in snapshot["sums"].dump("total")}
    assert totals == {account: total for account, (_, total, _) in expected_totals(FIRST).items()}


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
