"""A code location whose loader gives all assets a prefix, as Dagster runs it: by its repository.

What looks up or makes events of an asset does so by the key that the location has.
"""

from types import ModuleType
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository

from dstl_dagster import DstlStorageResource, StatefulPipeline
from dstl_dagster.checks.store_checks import build_pipeline_checks
from dstl_dagster.pipelines import build_protocol_job
from dstl_dagster.pipelines.jobs import build_gc_job, build_report_job
from dstl_dagster.snapshots.evolution import build_evolution_asset
from dstl_dagster.snapshots.snapshot_assets import build_materialization_asset
from tests.integration.dagster.small_pipeline import DAYS, LOCAL, epochs_of, rows_of
from tests.integration.dagster.test_evolve import EVOLVE, NEW, OLD, pipeline_of

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore::dagster.BetaWarning")]
FOLDER = "DSTL_PREFIXED_LOCATION"
FIRST, SECOND, THIRD, FOURTH = DAYS.get_partition_keys()[:4]


def location_of(pipeline: StatefulPipeline) -> dg.Definitions:
    days = epochs_of(pipeline, retry_policy=None)
    module = ModuleType("location")
    parts = [days, build_materialization_asset(pipeline), build_evolution_asset(pipeline)]
    module.parts = parts  # type: ignore[attr-defined]
    module.checks = build_pipeline_checks(pipeline)  # type: ignore[attr-defined]
    epochs, base, evolution = dg.load_assets_from_modules([module], key_prefix="team")
    checks = dg.load_asset_checks_from_modules([module], asset_key_prefix="team")

    def job(name: str, assets: Any) -> Any:
        return dg.define_asset_job(name, assets, executor_def=dg.in_process_executor)

    return dg.Definitions(
        [epochs, base, evolution],
        asset_checks=checks,
        jobs=[
            job("days", dg.AssetSelection.assets(epochs) - dg.AssetSelection.all_asset_checks()),
            job("base", dg.AssetSelection.assets(base)),
            job("evolution", dg.AssetSelection.assets(evolution)),
            job("checks", dg.AssetSelection.checks(*checks)),
            build_protocol_job(pipeline, rows_of, DAYS),
            build_report_job(pipeline),
            build_gc_job(pipeline),
        ],
        resources={
            "storage": DstlStorageResource(base_path=dg.EnvVar(FOLDER)),
            "engine": LOCAL,
        },
    )


BEFORE = location_of(pipeline_of(OLD, "int"))
AFTER = location_of(pipeline_of(NEW, "long", {**EVOLVE, "needs_approval": True}))


@pytest.fixture
def folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(FOLDER, str(tmp_path / "state"))
    return str(tmp_path)


def launch(
    location: str, job: str, instance: dg.DagsterInstance, day: str | None = None, **config: Any
) -> dg.JobExecutionResult:
    """Runs a job as Dagster does, which loads it from its repository."""
    repository = ReconstructableRepository.for_module(__name__, location)
    with dg.execute_job(
        repository.get_reconstructable_job(job),
        instance=instance,
        tags={} if day is None else {"dagster/partition": day},
        run_config={"ops": {"payments_evolution": {"config": config}}} if config else {},
    ) as done:
        return done


def test_an_approval_is_that_of_the_asset_of_the_location(
    folder: str, instance: dg.DagsterInstance
) -> None:
    for day in (FIRST, SECOND):
        assert launch("BEFORE", "days", instance, day).success
    refused = launch("AFTER", "days", instance, THIRD)
    assert not refused.success
    [failure] = [event for event in refused.all_events if event.is_step_failure]
    message = str(failure.step_failure_data.user_failure_data)
    assert "the plan of the asset team/payments/payments_evolution, and materialize" in message
    assert launch("AFTER", "evolution", instance, approve=True).success
    assert launch("AFTER", "days", instance, THIRD).success
    assert launch("AFTER", "payments_protocol", instance, FOURTH).success


def test_events_of_jobs_and_checks_are_of_the_assets_of_the_location(
    folder: str, instance: dg.DagsterInstance
) -> None:
    assert launch("BEFORE", "days", instance, FIRST).success
    assert launch("BEFORE", "payments_protocol", instance, SECOND).success
    assert launch("BEFORE", "base", instance).success
    assert launch("BEFORE", "payments_gc", instance).success
    checked = launch("BEFORE", "checks", instance)
    assert checked.success
    results = {each.check_name: each for each in checked.get_asset_check_evaluations()}
    assert {each.asset_key.path[0] for each in results.values()} == {"team"}
    assert results["reported"].passed, results["reported"].metadata
    assert {key.path[0] for key in instance.all_asset_keys()} == {"team"}
    with dg.DagsterInstance.ephemeral() as other:  # it has no events
        assert launch("BEFORE", "payments_report_commits", other).success
        keys = {key for key in other.all_asset_keys() if other.get_materialized_partitions(key)}
        assert {key.path[0] for key in keys} == {"team"} and len(keys) == 3
