"""Epochs through Dagster: order, versions, retries, takeovers, cancellation."""

from __future__ import annotations

import dagster as dg
import pytest

from dstl_core.local.local_engine import LocalRunner
from dstl_core.stateful_job import StatefulJob
from dstl_dagster import metadata as show
from tests.integration.dagster.small_pipeline import (
    PAYMENTS,
    SPARK,
    expected_totals,
    payments,
    rows_of,
    totals_in,
)

pytestmark = pytest.mark.dagster


def versions(instance, kind, day):
    """The data version that Dagster knows of a partition."""
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(PAYMENTS.key(kind), asset_partitions=[day]), limit=1
    ).records
    return records[0].asset_materialization.tags["dagster/data_version"]


def metadata(instance, kind, day):
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(PAYMENTS.key(kind), asset_partitions=[day]), limit=1
    ).records
    return {
        name: getattr(value, "value", value)
        for name, value in records[0].asset_materialization.metadata.items()
    }


def test_a_range_is_one_run_in_order_with_a_version_per_partition(run_days, storage, instance):
    done = run_days("2026-01-01", "2026-01-03")
    assert done.success
    store = PAYMENTS.store(storage)
    epochs = [each for each in store.history() if each.facts.kind == "epoch"]
    assert [each.facts.input.id for each in epochs] == [
        "2026-01-01",
        "2026-01-02",
        "2026-01-03",
    ]
    assert totals_in(storage) == expected_totals("2026-01-01", "2026-01-02", "2026-01-03")
    for epoch in epochs:
        for kind in ("state", "changelog", "checkpoint"):
            assert versions(instance, kind, epoch.facts.input.id) == epoch.data_version
    assert store.leases() == []


def test_what_a_partition_shows(run_days, storage, instance):
    assert run_days("2026-01-01").success
    shown = metadata(instance, "state", "2026-01-01")
    assert shown["dstl/input_rows"] == 12
    assert shown["dstl/keys_changed"] == 5
    assert shown["dstl/committed_before"] is False
    for name in ("log", "keys", "seconds"):
        assert "](data:image/svg+xml;base64," in shown[f"dstl/{name}_chart"]
    columns = {column.name: column.type for column in shown["dagster/column_schema"].columns}
    assert columns == {
        "state_key": "String",
        "payments": "value Long",
        "total": "value Long",
        "largest": "value Long",
    }
    changelog = metadata(instance, "changelog", "2026-01-01")
    store = PAYMENTS.store(storage)
    assert changelog["dstl/log_bytes"] == store.size().log > 0
    table = changelog["dstl/handles"].records
    assert {row.data["handle"] for row in table} == {
        "KeyGroupsSavepointStateHandle",
        "ChangelogStateHandleStream",
    }
    checkpoint = metadata(instance, "checkpoint", "2026-01-01")
    assert {"dstl/state_chart", "dstl/log_total_chart"} <= set(checkpoint)
    assert checkpoint["dagster/uri"] == store.path_of(store.require_latest())


def test_again_is_a_no_op_with_the_recorded_version(run_days, storage, instance):
    assert run_days("2026-01-01", "2026-01-02").success
    before = PAYMENTS.store(storage).history()
    recorded = versions(instance, "checkpoint", "2026-01-01")
    assert run_days("2026-01-01").success
    assert PAYMENTS.store(storage).history() == before
    assert versions(instance, "checkpoint", "2026-01-01") == recorded
    assert metadata(instance, "state", "2026-01-01")["dstl/committed_before"] is True


@pytest.mark.parametrize("raised_by_dagster", [False, True])
def test_after_a_commit_that_was_not_reported_nothing_is_committed_again(
    run_days, storage, instance, monkeypatch, raised_by_dagster
):
    """Finding 6: the work is done and the step fails for a bad metadata value. Dagster retries
    what the op raises, not what it finds wrong with the op's outputs.
    """
    shown = show.epoch_metadata
    calls = []

    def fails_once(checkpoint):
        calls.append(checkpoint.checkpoint_id)
        if len(calls) > 1:
            return shown(checkpoint)
        if raised_by_dagster:
            return {**shown(checkpoint), "bad": object()}
        raise RuntimeError("cannot be shown")

    monkeypatch.setattr(show, "epoch_metadata", fails_once)
    done = run_days("2026-01-01")
    assert done.success is not raised_by_dagster
    if raised_by_dagster:
        assert run_days("2026-01-01").success
    else:
        assert len([event for event in done.all_events if event.is_step_up_for_retry]) == 1
    epochs = [e for e in PAYMENTS.store(storage).history() if e.facts.kind == "epoch"]
    assert len(epochs) == 1
    assert versions(instance, "state", "2026-01-01") == epochs[0].data_version


def test_an_input_that_changed_is_not_retried(run_days, storage):
    assert run_days("2026-01-01").success

    def other_rows(session, day):
        return payments(("account-1", 1))

    done = run_days("2026-01-01", batch=other_rows)
    assert not done.success
    [failure] = [event for event in done.all_events if event.is_step_failure]
    assert "was committed as checkpoint" in failure.event_specific_data.error.message
    assert not [event for event in done.all_events if event.is_step_up_for_retry]


@pytest.mark.spark
def test_a_failed_epoch_leaves_nothing_and_is_retried(run_days, storage):
    attempts = []

    def fails_once(session, day):
        attempts.append(day)
        rows = session.createDataFrame(rows_of(session, day))
        if len(attempts) > 1:
            return rows
        return rows.selectExpr(
            "account", "if(amount = 5, raise_error('on purpose'), amount) as amount"
        )

    done = run_days("2026-01-01", batch=fails_once, engine=SPARK)
    assert done.success and len(attempts) == 2
    assert totals_in(storage) == expected_totals("2026-01-01")
    assert PAYMENTS.store(storage).orphans() == []


def test_of_two_runs_one_wins_and_the_other_is_told(run_days, storage):
    """A second driver commits while the first one is in its epoch."""

    assert run_days("2026-01-01").success
    before = PAYMENTS.store(storage).require_latest()

    def overtaken_in_the_middle(session, day):
        job = PAYMENTS.open(session, storage)
        rows = rows_of(session, day)
        if not done_once:
            done_once.append(job.run(rows, input_id=day))
        return rows

    done_once: list[object] = []
    done = run_days("2026-01-02", batch=overtaken_in_the_middle)
    # The other one was faster: what it committed is what this run reports.
    assert done.success
    assert PAYMENTS.store(storage).require_latest() != before
    assert totals_in(storage) == expected_totals("2026-01-01", "2026-01-02")


def test_a_run_with_a_stale_claim_is_told_who_holds_it(run_days, storage, monkeypatch):
    run = StatefulJob.run

    def takes_over_before_the_commit(self, rows, input_id, order_by=None, **options):
        claimed = []

        def claim(reports):
            if not claimed:
                claimed.append(PAYMENTS.store(storage).reset("another run", lambda run_id: False))
            return reports

        apply = LocalRunner.apply
        monkeypatch.setattr(LocalRunner, "apply", lambda *args: claim(apply(*args)))
        try:
            return run(self, rows, input_id, order_by, **options)
        finally:
            monkeypatch.setattr(LocalRunner, "apply", apply)

    assert run_days("2026-01-01").success
    before = totals_in(storage)
    monkeypatch.setattr(StatefulJob, "run", takes_over_before_the_commit)
    done = run_days("2026-01-02")
    monkeypatch.setattr(StatefulJob, "run", run)
    assert not done.success
    [failure] = [event for event in done.all_events if event.is_step_failure]
    assert "'another run' claimed it" in failure.event_specific_data.error.message
    assert not [event for event in done.all_events if event.is_step_up_for_retry]
    assert totals_in(storage) == before == expected_totals("2026-01-01")
    assert run_days("2026-01-02").success
    assert totals_in(storage) == expected_totals("2026-01-01", "2026-01-02")


def test_a_cancelled_epoch_is_reset(run_days, storage):
    """A cancelled run raises a BaseException and runs no hook; each attempt is reset."""
    assert run_days("2026-01-01").success
    attempts = []

    def interrupted(session, day):
        attempts.append(day)
        raise dg.DagsterExecutionInterruptedError

    assert not run_days("2026-01-02", batch=interrupted).success
    store = PAYMENTS.store(storage)
    assert attempts == ["2026-01-02", "2026-01-02"]  # Dagster's retry policy counts it
    assert store.leases() == [] and store.orphans() == []
    assert totals_in(storage) == expected_totals("2026-01-01")


@pytest.mark.spark
def test_a_stopped_session_is_replaced_in_the_next_run(run_days, storage):
    assert run_days("2026-01-01", engine=SPARK).success
    SPARK.spark_session.stop()
    assert run_days("2026-01-02", engine=SPARK).success
    assert totals_in(storage) == expected_totals("2026-01-01", "2026-01-02")
