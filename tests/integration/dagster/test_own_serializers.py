"""Readers of Dagster read state of one's own serializer with the registry that they are given."""

from pathlib import Path

import dagster as dg
import pytest

import dstl_dagster as dstl
from dstl_core import Snapshot
from dstl_dagster.checks.restore_checks import build_restore_plan_check, expected_of
from tests.integration.dagster.small_pipeline import SPARK
from tests.integration.spark.own_serializer import Money, job_of, registered, rows_of

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

REGISTRY = registered()
"""No other object knows the type, and nothing registers it for all."""
NAME = f"{__name__}:REGISTRY"
ASSET = dg.AssetKey("money")


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory):
    base = tmp_path_factory.mktemp("base")
    session = SPARK.spark_session
    job = job_of(session, str(base), REGISTRY)
    rows = session.createDataFrame(rows_of(1), "k string, v long")
    job.run(rows, 1, order_by=["v"])
    return job.savepoint(str(base / "savepoint"))


def passed(folder, *checks):
    """Whether each check passes, by its name."""
    with dg.DagsterInstance.ephemeral() as instance:
        job = dg.Definitions(
            asset_checks=checks,
            resources={"storage": dstl.DstlStorageResource(base_path=str(Path(folder).parent))},
        )
        done = job.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance, raise_on_error=False
        )
        return {each.check_name: each.passed for each in done.get_asset_check_evaluations()}


@pytest.mark.parametrize("serializers", [REGISTRY, NAME])
def test_the_check_of_a_snapshot_reads_every_value(savepoint, serializers):
    known = dstl.snapshot_at(savepoint, serializers)
    checks = (
        dstl.build_verify_check(ASSET, known),
        build_restore_plan_check(expected_of(known), asset=ASSET, source=known),
    )
    assert passed(savepoint, *checks) == {"verified": True, "restore_plan": True}


def test_the_resource_reads_values_of_the_type(savepoint, tmp_path):
    storage = dstl.DstlStorageResource(base_path=str(tmp_path))
    resource = dstl.SavepointResource(storage=storage, serializers=NAME)
    entries = resource.load(savepoint)["sums"].keyed_entries("total")
    sums: dict[str, int] = {}
    for key, amount in rows_of(1):
        sums[key] = sums.get(key, 0) + amount
    assert {each.key: each.value for each in entries} == {
        key: Money("EUR", cents) for key, cents in sums.items()
    }
    report = resource.verify(savepoint)
    assert not report.findings


def test_a_reader_without_the_registry_reads_no_value_of_the_type(savepoint):
    entries = Snapshot.load(savepoint)["sums"].entries()
    assert not [each for each in entries if each.to_line().get("state") == "total"]
