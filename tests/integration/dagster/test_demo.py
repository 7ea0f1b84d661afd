"""The demo's assets through Dagster, on a few days."""

import json

import dagster as dg
import pytest

from definitions import SPARK
from dstl_core.savepoint import Snapshot
from dstl_dagster import DstlStorageResource
from examples.flights import assets as flights
from examples.flights.events import ingest, read_flights
from examples.flights.pipeline import flights_job
from examples.flights.run import RANGE_END, RANGE_START

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

DAYS = ("2013-11-01", "2013-11-06")


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    return DstlStorageResource(base_path=str(tmp_path_factory.mktemp("demo")))


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("home"))) as found:
        yield found


@pytest.fixture(scope="module")
def run(storage, instance):
    def materialize(*selection, tags=None):
        return dg.materialize(
            [*flights.ASSETS, *flights.CHECKS],
            selection=dg.AssetSelection.assets(*selection),
            instance=instance,
            resources={"storage": storage, "spark": SPARK},
            tags=tags,
            raise_on_error=False,
        )

    yield materialize
    SPARK.spark_session.stop()


@pytest.fixture(scope="module")
def first_run(run):
    assert run(flights.flight_events, flights.bootstrapped_savepoint).success
    return run(flights.state, tags={RANGE_START: DAYS[0], RANGE_END: DAYS[1]})


def test_the_events_are_counted(tmp_path):
    counts = ingest(tmp_path / "events")
    assert (counts.total, counts.dropped, counts.cancelled) == (336_776, 2_512, 5_743)
    assert read_flights().num_rows == counts.kept + counts.dropped
    assert len(list((tmp_path / "events").glob("day=*"))) == 365
    assert ingest(tmp_path / "events").already_there


def test_a_backfill_is_one_run_with_one_epoch_a_day(first_run, storage):
    assert first_run.success
    job = flights_job(SPARK.spark_session, storage.jobs)
    days = [each.facts["input"]["id"] for each in job.history() if "input" in each.facts]
    assert days == [f"2013-11-0{day}" for day in range(1, 7)]
    retried = [event for event in first_run.all_events if event.is_step_up_for_retry]
    assert len(retried) == 1, "the planned failure is aborted once and retried"


def test_the_aborted_epoch_left_a_record_and_no_state(first_run, storage, tmp_path):
    job = flights_job(SPARK.spark_session, storage.jobs)
    log = [json.loads(path.read_text()) for path in _log_files(job)]
    aborted = [each["payload"]["checkpoint_id"] for each in log if each["type"] == "abort"]
    committed = [each.checkpoint_id for each in job.history()]
    assert len(aborted) == 1 and aborted[0] not in committed


def _log_files(job):
    from pathlib import Path

    folder = Path(job.path.removeprefix("file:"), "_dstl", "log")
    return sorted(folder.glob("*.json"), key=lambda path: int(path.stem))


def test_the_same_backfill_again_runs_nothing(first_run, run, storage, instance):
    job = flights_job(SPARK.spark_session, storage.jobs)
    before = job.history()
    again = run(flights.state, tags={RANGE_START: DAYS[0], RANGE_END: DAYS[1]})
    assert again.success and job.history() == before
    [version] = {
        event.event_specific_data.materialization.tags["dagster/data_version"]
        for event in again.get_asset_materialization_events()
    }
    assert version == before[-1].data_version


def test_savepoints_and_checks(first_run, run, storage):
    done = run(flights.checkpoint, flights.savepoint, flights.rewritten_savepoint)
    assert done.success
    checks = done.get_asset_check_evaluations()
    assert len(checks) == 3 and all(check.passed for check in checks)
    assert all(check.metadata["differing"].value == 0 for check in checks)
    latest = flights_job(SPARK.spark_session, storage.jobs).latest()
    name = f"after-checkpoint-{latest.checkpoint_id}-rewritten"
    [operator] = Snapshot.load(storage.savepoint(name)).operators
    assert (operator.uid, operator.max_parallelism) == ("aircraft", 256)


def test_a_check_fails_when_the_state_is_wrong(first_run, storage, monkeypatch):
    """The check can fail: events of one more day than the state knows of."""
    monkeypatch.setattr(flights, "last_committed_day", lambda job: "2013-11-07")
    result = flights.checkpoint_equals_aggregation(storage=storage, spark=SPARK)
    assert not result.passed
    assert result.metadata["differing"].value > 500
