"""What comes after a commit never fails the run: it is a warning, with its reason."""

import math
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from dstl_core import StatefulJob
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import StorageError
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_dagster import metadata as show
from dstl_dagster.pipelines import epoch_metadata
from dstl_dagster.pipelines.epochs_page import EpochsPage
from dstl_dagster.pipelines.jobs import build_report_job
from dstl_dagster.pipelines.state_profile import StateSample
from tests.integration.dagster.small_pipeline import (
    LOCAL,
    PAYMENTS,
    epochs_of,
    expected_totals,
    totals_in,
)

pytestmark = pytest.mark.dagster

DAY, NEXT_DAY = "2026-01-01", "2026-01-02"
FAULTS = {
    "a chart": (epoch_metadata, "epoch_charts", "charts"),
    "a chart of key groups": (epoch_metadata, "key_group_chart", "contents"),
    "the history": (PipelineStore, "recent", "epochs"),
    "the page": (EpochsPage, "of", "epochs"),
    "the profile": (StateSample, "histograms", "profile"),
    "the schema": (show, "column_schema", "contents"),
    "the handles": (show, "handles_table", "contents"),
    "the metadata": (Snapshot, "load", "contents"),
}


@pytest.fixture
def run(storage, instance):
    def run_day(day: str, pipeline: Any = PAYMENTS) -> dg.ExecuteInProcessResult:
        resources = {"storage": storage, "engine": LOCAL}
        return dg.materialize(
            [epochs_of(pipeline, retry_policy=None)],
            partition_key=day,
            instance=instance,
            resources=resources,
            raise_on_error=False,
        )

    return run_day


def shown(done: dg.ExecuteInProcessResult) -> dict[str, Any]:
    [event] = [
        event.materialization
        for event in done.get_asset_materialization_events()
        if event.asset_key == PAYMENTS.key("checkpoint")
    ]
    return {name: value.value for name, value in event.metadata.items()}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_shown_is_a_warning(fault, run, storage, monkeypatch, capfd):
    owner, name, what = FAULTS[fault]

    def fails(*arguments: Any, **options: Any) -> Any:
        raise ValueError("Too many bins for data range")

    if owner in (PipelineStore, Snapshot):
        assert run(DAY).success  # the first run reads the store before it commits
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, fails)
        done = run(DAY)
    assert done.success
    reason = "ValueError: Too many bins for data range"
    assert shown(done)[f"dstl/{what}"] == f"none: {reason}"
    assert (
        f"The epoch is committed, and its {what} cannot be shown: {reason}"
        in capfd.readouterr().err
    )
    assert totals_in(storage) == expected_totals(DAY)
    assert run(NEXT_DAY).success


def test_a_log_that_cannot_be_folded_stays(run, storage, monkeypatch, capfd):
    eager = replace(PAYMENTS, materialize_at_ratio=0.0, small_log_bytes=0)

    def fails(job: StatefulJob) -> None:
        raise StorageError("The disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(StatefulJob, "materialize", fails)
        assert run(DAY, eager).success
    assert "its log stays as it is: The disk is full." in capfd.readouterr().err
    assert PAYMENTS.store(storage).size().log > 0
    assert run(NEXT_DAY, eager).success
    assert PAYMENTS.store(storage).size().log == 0
    assert totals_in(storage) == expected_totals(DAY, NEXT_DAY)


def test_reports_of_old_commits_go_on_behind_one_that_cannot_be_shown(
    run, storage, instance, monkeypatch
):
    assert run(DAY).success
    fresh = dg.DagsterInstance.ephemeral()

    def fails(*arguments: Any) -> Any:
        raise ZeroDivisionError(math.inf)

    monkeypatch.setattr(epoch_metadata, "epoch_charts", fails)
    done = build_report_job(PAYMENTS).execute_in_process(
        instance=fresh, resources={"storage": storage}
    )
    assert done.success
    assert shown(done)["dstl/charts"] == "none: ZeroDivisionError: inf"
