"""The example projects, the quickstart and the sample configuration, as a reader would use them."""

import shutil
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from dstl_core import Snapshot
from dstl_dagster import DstlStorageResource
from examples import quickstart
from examples.savepoint_governance import definitions as governance
from examples.stateful_pipeline import definitions as stateful
from tests.golden_files import GOLDEN
from tests.integration.dagster.small_pipeline import (
    PAYMENTS,
    ROWS,
    SPARK,
    expected_totals,
    totals_in,
)

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

EXAMPLES = Path(quickstart.__file__).parent


def run_all(defs, instance, selection, **options):
    merged = dg.Definitions.merge(
        defs, dg.Definitions(jobs=[dg.define_asset_job("all_of_it", selection)])
    )
    return merged.resolve_job_def("all_of_it").execute_in_process(instance=instance, **options)


def test_savepoints_of_flink_are_governed_in_yaml(tmp_path, monkeypatch, instance):
    [source] = (GOLDEN / "f-two-ops-hashmap").glob("savepoint-*")
    monkeypatch.setenv("ORDERS_SAVEPOINT", str(source))
    monkeypatch.setenv("DSTL_STATE", str(tmp_path))
    defs = governance.defs()
    done = run_all(
        dg.Definitions.merge(defs),
        instance,
        dg.AssetSelection.all(),
    )
    checks = {each.check_name: each.passed for each in done.get_asset_check_evaluations()}
    assert checks == {
        "verified": True,
        "restore_plan": True,
        "schema": True,
        "names_are_few": True,
    }
    [event] = [
        e for e in done.get_asset_materialization_events() if "rewritten" in e.asset_key.path[-1]
    ]
    path = str(event.step_materialization_data.materialization.metadata["dagster/uri"].value)
    operators = {operator.uid: operator for operator in Snapshot.load(path).operators}
    assert operators["order-counts"].max_parallelism == 256


def test_a_stateful_pipeline_in_yaml(tmp_path, monkeypatch, instance):
    rows = [(*row, day) for day, rows in ROWS.items() for row in rows]
    table = pa.table(dict(zip(("account", "amount", "day"), zip(*rows, strict=True), strict=True)))
    ds.write_dataset(
        table,
        tmp_path / "payments",
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive"),
    )
    monkeypatch.setenv("PAYMENTS", str(tmp_path / "payments"))
    monkeypatch.setenv("DSTL_STATE", str(tmp_path / "state"))
    epochs = dg.AssetSelection.assets(
        *(PAYMENTS.key(kind) for kind in ("state", "changelog", "checkpoint"))
    )
    run_all(stateful.defs(), instance, epochs, partition_key="2026-01-01")
    storage = DstlStorageResource(base_path=str(tmp_path / "state"))
    assert totals_in(storage) == expected_totals("2026-01-01")


def test_the_quickstart_is_short_and_runs(tmp_path, instance):
    lines = Path(quickstart.__file__).read_text().splitlines()
    code = [line for line in lines if line.strip() and not line.startswith('"""')]
    assert len(code) <= 20
    storage = DstlStorageResource(base_path=str(tmp_path))
    done = dg.materialize(
        [quickstart.epochs],
        instance=instance,
        partition_key="2026-01-01",
        resources={"storage": storage, "spark": SPARK},
    )
    assert done.success
    store = quickstart.TOTALS.store(storage)
    snapshot = Snapshot.load(store.path_of(store.require_latest()))
    entries = snapshot["uid:totals"].keyed_entries("total")
    assert {entry.key: entry.value for entry in entries} == {"ada": 12, "bob": 3}


def test_the_sample_configuration_is_one_that_dagster_takes(tmp_path):
    shutil.copy(EXAMPLES / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.global_op_concurrency_default_limit == 1
        assert not instance.telemetry_enabled
