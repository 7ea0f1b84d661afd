"""The demo's assets through Dagster, on six days after a bootstrap of October."""

import json
from pathlib import Path

import dagster as dg
import pyarrow.dataset as ds
import pytest

from definitions import SPARK
from dstl_core import Snapshot
from dstl_dagster import DstlStorageResource
from examples.flights import assets as flights
from examples.flights.events import ingest
from examples.flights.run import RANGE_END, RANGE_START
from tests.integration.dagster.conftest import instance_in

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

DAYS = ("2013-11-01", "2013-11-06")
STORE = flights.FLIGHTS.store


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    return DstlStorageResource(base_path=str(tmp_path_factory.mktemp("demo")))


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    with instance_in(tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture(scope="module")
def run(storage, instance):
    def materialize(*selection, tags=None):
        return dg.materialize(
            [*flights.ASSETS, *flights.ALL_CHECKS],
            selection=dg.AssetSelection.assets(*selection),
            instance=instance,
            resources={"storage": storage, "spark": SPARK},
            tags=tags,
            raise_on_error=False,
        )

    return materialize


@pytest.fixture(scope="module", autouse=True)
def october():
    """The demo itself takes all months: ``make demo``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flights, "BOOTSTRAP_DAYS", ("2013-10-01", "2013-10-31"))
        yield


@pytest.fixture(scope="module")
def first_run(run):
    assert run(flights.flight_events, flights.bootstrapped_savepoint).success
    return run(flights.state, tags={RANGE_START: DAYS[0], RANGE_END: DAYS[1]})


@pytest.fixture(scope="module")
def behind(first_run, run):
    kinds = ("materialization", "savepoint", "rewritten")
    return run(*(flights.FLIGHTS.key(kind) for kind in kinds))


def test_the_events_are_counted(first_run, storage):
    events = flights.events_folder(storage.base_path)
    counts = ingest(events)
    assert (counts.total, counts.dropped, counts.cancelled) == (336_776, 2_512, 5_743)
    assert counts.already_there
    rows = sum(fragment.count_rows() for fragment in ds.dataset(events).get_fragments())
    assert rows == counts.kept == counts.total - counts.dropped
    assert len(list(events.glob("day=*"))) == 365


def test_a_backfill_is_one_run_with_one_epoch_a_day(first_run, storage):
    assert first_run.success
    history = STORE(storage).history()
    days = [each.facts.input.id for each in history if each.facts.input]
    assert days == [f"2013-11-0{day}" for day in range(1, 7)]
    retried = [event for event in first_run.all_events if event.is_step_up_for_retry]
    assert len(retried) == 1, "the planned failure is aborted once and retried"


def test_the_aborted_epoch_left_a_record_and_no_state(first_run, storage):
    store = STORE(storage)
    log = [json.loads(p.read_text()) for p in Path(store.layout.commit_log.path).glob("*.json")]
    aborted = [each["payload"]["checkpoint_id"] for each in log if each["type"] == "abort"]
    committed = [each.checkpoint_id for each in store.history()]
    assert len(aborted) == 1 and aborted[0] not in committed
    assert store.orphans() == []


def test_the_same_backfill_again_runs_nothing(first_run, run, storage):
    before = STORE(storage).history()
    again = run(flights.state, tags={RANGE_START: DAYS[0], RANGE_END: DAYS[1]})
    assert again.success and STORE(storage).history() == before
    latest = {
        (event.asset_key, event.partition): event.step_materialization_data.materialization.tags[
            "dagster/data_version"
        ]
        for event in again.get_asset_materialization_events()
    }
    recorded = {each.facts.input.id: each.data_version for each in before if each.facts.input}
    assert {day: latest[flights.FLIGHTS.key("state"), day] for day in recorded} == recorded


def test_savepoints_and_checks(behind):
    assert behind.success
    checks = {check.check_name: check for check in behind.get_asset_check_evaluations()}
    assert len(checks) == 5 and all(check.passed for check in checks.values())
    for name in ("savepoint_equals_aggregation", "rewritten_equals_aggregation"):
        assert checks[name].metadata["differing"].value == 0
    [event] = [
        event
        for event in behind.get_asset_materialization_events()
        if event.asset_key == flights.FLIGHTS.key("rewritten")
    ]
    path = str(event.step_materialization_data.materialization.metadata["dagster/uri"].value)
    [operator] = Snapshot.load(path).operators
    assert (operator.uid, operator.max_parallelism) == ("aircraft", 256)


def test_a_check_fails_when_the_state_is_wrong(behind, storage, monkeypatch):
    """The check can fail: events of one more day than the state knows of."""
    monkeypatch.setattr(flights, "last_committed_day", lambda storage: "2013-11-07")
    result = flights.savepoint_equals_aggregation(storage=storage, spark=SPARK)
    assert not result.passed
    assert result.metadata["differing"].value > 500
