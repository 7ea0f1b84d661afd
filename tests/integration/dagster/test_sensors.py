"""Sensors, reset and checks of a pipeline: they look at the store and converge."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest

from dstl_core import LocalEngine, Snapshot
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_dagster import DstlStorageResource
from dstl_dagster.checks.store_checks import build_pipeline_checks
from dstl_dagster.pipelines.jobs import build_materialization_job, build_report_job, build_reset_job
from dstl_dagster.sensors import (
    build_external_checkpoint_sensor,
    build_reset_sensors,
    build_sweeper_sensor,
    build_truncation_sensor,
)
from dstl_dagster.snapshots.snapshot_assets import build_materialization_asset
from tests.golden_files import GOLDEN
from tests.integration.dagster.small_pipeline import (
    LOCAL,
    PAYMENTS,
    expected_totals,
    rows_of,
    totals_in,
)

pytestmark = pytest.mark.dagster

TRUNCATE = build_materialization_job(PAYMENTS)
RESET = build_reset_job(PAYMENTS)


@pytest.fixture(scope="module")
def populated(tmp_path_factory):
    """The small pipeline after two days."""
    storage = DstlStorageResource(base_path=str(tmp_path_factory.mktemp("state")))
    job = PAYMENTS.open(LocalEngine(), storage)
    for day in ("2026-01-01", "2026-01-02"):
        job.run(rows_of(None, day), input_id=day)
    return storage


@pytest.fixture
def state(populated, tmp_path):
    """A copy of it, for tests that change something."""
    folder = tmp_path / "copy"
    shutil.copytree(populated.base_path, folder)
    return DstlStorageResource(base_path=str(folder))


def tick(sensor, instance, storage, cursor=None):
    context = dg.build_sensor_context(
        instance=instance, cursor=cursor, resources={"storage": storage}
    )
    return sensor(context)


def add_run(instance, status, tags=None):
    """A run that Dagster knows of, in some state."""
    run = instance.create_run_for_job(RESET, status=status, tags=tags or {})
    return run.run_id


# ------------------------------------------------------------------------------- truncation


def test_truncation_asks_once_per_checkpoint_and_again_after_a_failed_run(populated, instance):
    """Finding: the same run key is never launched again, not even after a failure."""
    sensor = build_truncation_sensor(PAYMENTS, TRUNCATE, max_log_ratio=0.01)
    asked = tick(sensor, instance, populated)
    [request] = asked.run_requests
    checkpoint_id = PAYMENTS.store(populated).require_latest().checkpoint_id
    assert request.run_key == f"payments:totals:{checkpoint_id}:0"
    assert json.loads(asked.cursor)["checkpoint"] == checkpoint_id
    # A lost cursor, or one of somebody else, changes nothing.
    [again] = tick(sensor, instance, populated, cursor="nonsense").run_requests
    assert again.run_key == request.run_key
    add_run(instance, dg.DagsterRunStatus.STARTED, request.tags)
    assert "is at it" in tick(sensor, instance, populated).skip_message
    for run in instance.get_runs():
        instance.report_run_failed(run)
    [retried] = tick(sensor, instance, populated).run_requests
    assert retried.run_key == f"payments:totals:{checkpoint_id}:1"
    for _ in range(4):
        add_run(instance, dg.DagsterRunStatus.FAILURE, request.tags)
    assert "gave up after 5 runs" in tick(sensor, instance, populated).skip_message


def test_truncation_has_nothing_to_do(populated, instance, tmp_path):
    sensor = build_truncation_sensor(PAYMENTS, TRUNCATE, max_log_ratio=1000)
    assert "nothing to truncate" in tick(sensor, instance, populated).skip_message
    empty = DstlStorageResource(base_path=str(tmp_path / "empty"))
    assert "no checkpoint yet" in tick(sensor, instance, empty).skip_message


def test_truncation_waits_for_a_run_that_is_at_work(state, instance):
    """It would take the pipeline over in the middle of a backfill."""
    sensor = build_truncation_sensor(PAYMENTS, TRUNCATE, max_log_ratio=0.01)
    run_id = add_run(instance, dg.DagsterRunStatus.STARTED)
    leave_lease(state, run_id)
    assert f"run {run_id} is at work" in tick(sensor, instance, state).skip_message
    asset = build_materialization_asset(PAYMENTS)
    done = dg.materialize(
        [asset],
        instance=instance,
        resources={"storage": state, "engine": LOCAL},
        raise_on_error=False,
    )
    assert not done.success
    assert PAYMENTS.store(state).size().log > 0
    assert len([event for event in done.all_events if event.is_step_up_for_retry]) == 3


def test_truncation_by_bytes(populated, instance):
    sensor = build_truncation_sensor(PAYMENTS, TRUNCATE, max_log_ratio=1000, max_log_bytes=10)
    assert len(tick(sensor, instance, populated).run_requests) == 1


# ----------------------------------------------------------------------------- leases, reset


def leave_lease(storage, run_id):
    """What a run that was killed leaves: its lease, and files that no commit names."""
    root = Path(PAYMENTS.store(storage).layout.root.path)
    leases = root / "_dstl" / "leases"
    leases.mkdir(exist_ok=True)
    lease = leases / f"{run_id}.json"
    lease.write_text(json.dumps({"run_id": run_id, "since_ms": 1}))
    orphans = [root / "dstl" / str(uuid4()), root / "taskowned" / str(uuid4())]
    for orphan in orphans:
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"left behind")
    output = root / "_dstl" / "output" / "chk-99"
    output.mkdir(parents=True)
    (output / "part-0.parquet").write_bytes(b"left behind")
    return [lease, *orphans, output]


def test_the_sweeper_asks_for_runs_that_are_gone(state, instance):
    sensor = build_sweeper_sensor(PAYMENTS, RESET)
    assert "no run was killed" in tick(sensor, instance, state).skip_message
    working = add_run(instance, dg.DagsterRunStatus.STARTED)
    leave_lease(state, working)
    assert "is at work" in tick(sensor, instance, state).skip_message
    instance.report_run_failed(instance.get_run_by_id(working))
    [request] = tick(sensor, instance, state).run_requests
    assert request.run_key == f"payments:{working}:0"


def test_a_run_of_another_instance_counts_as_alive_for_a_day(state, instance):
    sensor = build_sweeper_sensor(PAYMENTS, RESET)
    run_id = str(uuid4())
    leave_lease(state, run_id)  # from 1970
    assert len(tick(sensor, instance, state).run_requests) == 1
    with PAYMENTS.store(state).lease(str(uuid4())):
        assert "is at work" in tick(sensor, instance, state).skip_message


def test_a_reset_removes_what_was_left_and_nothing_else(state, instance):
    gone = leave_lease(state, add_run(instance, dg.DagsterRunStatus.FAILURE))
    root = Path(PAYMENTS.store(state).layout.root.path)
    foreign = root / "dstl" / "notes.txt"
    foreign.write_text("not ours")
    kept = {path for path in root.rglob("*") if not any(path.is_relative_to(g) for g in gone)}
    before = totals_in(state)
    done = RESET.execute_in_process(instance=instance, resources={"storage": state})
    assert done.success
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in kept) and foreign in kept
    assert totals_in(state) == before == expected_totals("2026-01-01", "2026-01-02")
    store = PAYMENTS.store(state)
    assert store.leases() == [] and store.orphans() == []
    [observation] = done.get_asset_observation_events()
    shown = observation.asset_observation_data.asset_observation.metadata
    assert shown["dstl/orphans_deleted"].value == 3


def test_a_reset_touches_nothing_while_a_run_works(state, instance):
    left = leave_lease(state, add_run(instance, dg.DagsterRunStatus.STARTED))
    log = Path(PAYMENTS.store(state).layout.commit_log.path)
    records = sorted(log.iterdir())
    assert RESET.execute_in_process(instance=instance, resources={"storage": state}).success
    assert all(path.exists() for path in left)
    assert sorted(log.iterdir()) == records, "not even a claim"


def test_a_reset_without_anything_to_sweep_does_not_claim(state, instance):
    """It would fence a run that is about to begin."""
    log = Path(PAYMENTS.store(state).layout.commit_log.path)
    records = sorted(log.iterdir())
    assert RESET.execute_in_process(instance=instance, resources={"storage": state}).success
    assert sorted(log.iterdir()) == records


def test_a_reset_fences_a_run_that_was_thought_dead(state, instance):
    """Two owners: the one that is swept can commit nothing afterwards."""
    from dstl_core.errors import FencedError

    job = PAYMENTS.open(LocalEngine(), state)
    job.run(rows_of(None, "2026-01-03"), input_id="2026-01-03")
    leave_lease(state, add_run(instance, dg.DagsterRunStatus.FAILURE))
    assert RESET.execute_in_process(instance=instance, resources={"storage": state}).success
    with pytest.raises(FencedError, match="reset by Dagster run"):
        job.run(rows_of(None, "2026-01-04"), input_id="2026-01-04")
    days = ("2026-01-01", "2026-01-02", "2026-01-03")
    assert totals_in(state) == expected_totals(*days)


def test_after_a_cancelled_run_that_left_something_a_reset_is_asked_for(state, instance):
    """Finding 4: no hook runs on cancel; run status sensors do."""
    on_cancel, on_failure = build_reset_sensors(PAYMENTS, RESET)
    assert "canceled" in on_cancel.name and "failure" in on_failure.name
    run_id = add_run(instance, dg.DagsterRunStatus.CANCELED)
    instance.report_run_canceled(instance.get_run_by_id(run_id))
    [event] = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.RUN_CANCELED).records
    context = dg.build_run_status_sensor_context(
        on_cancel.name,
        event.event_log_entry.dagster_event,
        instance,
        instance.get_run_by_id(run_id),
        resources={"storage": state},
    )
    assert "left nothing" in on_cancel(context).skip_message
    leave_lease(state, run_id)
    assert on_cancel(context).run_key == f"payments:{run_id}:status"


# -------------------------------------------------------------------------- live Flink jobs


def test_checkpoints_of_a_live_job_are_reported_once(instance, tmp_path, populated):
    [checkpoint] = (GOLDEN / "a-hashmap-changelog-multi").glob("checkpoints/*/chk-2")
    folder = tmp_path / "job"
    shutil.copytree(checkpoint.parent, folder)
    key = dg.AssetKey(["orders", "checkpoints"])
    sensor = build_external_checkpoint_sensor(key, str(folder), name="orders")
    first = tick(sensor, instance, populated)
    ids = sorted(
        int(path.name.removeprefix("chk-"))
        for path in folder.glob("chk-*")
        if (path / "_metadata").exists()
    )
    assert [event.metadata["dstl/checkpoint_id"].value for event in first.asset_events] == ids
    sha = Snapshot.load(str(folder / f"chk-{ids[0]}")).file.sha256
    assert first.asset_events[0].tags["dagster/data_version"].endswith(sha)
    assert "no checkpoint after" in tick(sensor, instance, populated, first.cursor).skip_message
    # Without a cursor the event log tells what was reported.
    for event in first.asset_events:
        instance.report_runless_asset_event(event)
    assert "no checkpoint after" in tick(sensor, instance, populated).skip_message


def test_a_checkpoint_in_the_making_is_not_reported(instance, tmp_path, populated):
    (tmp_path / "chk-7").mkdir()
    sensor = build_external_checkpoint_sensor(dg.AssetKey("a"), str(tmp_path), name="a")
    assert "no checkpoint after 0" in tick(sensor, instance, populated).skip_message


# ---------------------------------------------------------------------------------- checks


def results(storage, instance, pipeline=PAYMENTS, **options):
    checks = build_pipeline_checks(pipeline, **options)
    done = dg.materialize(
        checks,
        instance=instance,
        resources={"storage": storage},
        raise_on_error=False,
        selection=dg.AssetSelection.checks(*checks),
    )
    return {each.check_name: each for each in done.get_asset_check_evaluations()}


def test_the_checks_of_a_sound_pipeline(populated, instance):
    report = build_report_job(PAYMENTS)
    assert report.execute_in_process(instance=instance, resources={"storage": populated}).success
    evaluations = results(populated, instance, max_log_ratio=1000)
    assert {name: each.passed for name, each in evaluations.items()} == {
        "committed": True,
        "verified": True,
        "log_size": True,
        "no_leftovers": True,
        "reported": True,
    }


def test_each_check_can_fail(state, instance):
    leave_lease(state, add_run(instance, dg.DagsterRunStatus.FAILURE))
    store = PAYMENTS.store(state)
    latest = Path(store.path_of(store.require_latest()).removeprefix("file:"), "_metadata")
    raw = bytearray(latest.read_bytes())
    any_log = replace(PAYMENTS, small_log_bytes=0)
    evaluations = results(state, instance, any_log, max_log_ratio=0.001)
    assert not evaluations["log_size"].passed and not evaluations["no_leftovers"].passed
    assert not evaluations["reported"].passed and evaluations["committed"].passed
    assert evaluations["log_size"].severity is dg.AssetCheckSeverity.WARN
    # One bit of a file that the checkpoint needs is another one, wherever it is.
    snapshot = Snapshot.load(store.path_of(store.require_latest()))
    for path in (Path(each.removeprefix("file:")) for each in verify_snapshot(snapshot).file_names):
        whole = path.read_bytes()
        for at in (0, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert not results(state, instance)["verified"].passed
        path.write_bytes(whole)
    assert results(state, instance)["verified"].passed
    # A file that the checkpoint needs goes; then its metadata is another one.
    for path in (Path(store.layout.root.path) / "dstl").iterdir():
        path.unlink()
    assert not results(state, instance)["verified"].passed
    raw[-1] ^= 1
    latest.write_bytes(raw)
    assert not results(state, instance)["committed"].passed


def test_an_error_in_one_check_does_not_stop_the_others(populated, instance):
    unreadable = replace(PAYMENTS, serializers="no_such_module:registry")
    assert set(results(populated, instance, unreadable)) == {
        "log_size",
        "no_leftovers",
        "reported",
        "committed",
    }


def test_one_check_runs_alone(populated, instance):
    checks = build_pipeline_checks(PAYMENTS)
    [key] = [each for each in checks[0].check_keys if each.name == "committed"]
    done = dg.materialize(
        checks,
        instance=instance,
        resources={"storage": populated},
        selection=dg.AssetSelection.checks(key),
    )
    assert [each.check_name for each in done.get_asset_check_evaluations()] == ["committed"]


def test_the_checks_are_one_step_and_only_the_commit_check_stops_what_comes_after_it():
    [checks] = build_pipeline_checks(PAYMENTS)
    blocking = {spec.name: spec.blocking for spec in checks.check_specs}
    assert [name for name, stops in blocking.items() if stops] == ["committed"]
