"""The whole pipeline on S3, by the resources, while another process commits to the same folder.

Both run without Spark. ``test_s3_cluster.py`` runs the same pipeline on a cluster of Spark.
"""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import dagster as dg
import pytest

from dstl_core import LocalEngine, Snapshot
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.storage.file_io import open_file_io
from dstl_dagster import DstlStorageResource
from dstl_dagster.pipelines.jobs import build_gc_job, build_reset_job
from dstl_dagster.resources import S3Credentials
from dstl_dagster.sensors import build_external_checkpoint_sensor
from tests.integration.dagster.conftest import instance_in
from tests.integration.dagster.orders import (
    ALL_DAYS,
    BEHIND,
    DEFS,
    LOCAL_ENGINE,
    ORDERS,
    answer_of,
    expected_totals,
    materialize,
    orders_of,
    pipeline_process,
    run_days,
    state_in,
)
from tests.integration.dagster.small_pipeline import LOCAL

pytestmark = pytest.mark.dagster

BACKFILL, FOREIGN, RACED, AFTER = ALL_DAYS[:3], ALL_DAYS[3], ALL_DAYS[4], ALL_DAYS[5]


@pytest.fixture(scope="module")
def storage(s3):
    credentials = S3Credentials(
        access_key_id=s3.key, secret_access_key=s3.secret, endpoint_url=s3.endpoint_url
    )
    base = s3.make_bucket("pipeline-of-orders")
    made = DstlStorageResource(base_path=f"{base}/dstl", credentials=credentials)
    made.connect()
    return made


@pytest.fixture(scope="module")
def other(storage, s3, tmp_path_factory):
    """Another driver, with credentials from its environment."""
    log = tmp_path_factory.mktemp("other") / "driver.log"
    with pipeline_process(storage.base_path, LOCAL_ENGINE, s3.environment, log) as process:
        yield process


@pytest.fixture(scope="module")
def setup(storage, other, tmp_path_factory):
    """Storage, engine and instance of this process, after a backfill of three days."""
    with instance_in(tmp_path_factory.mktemp("home")) as instance:
        parts = (storage, LOCAL, instance)
        done = run_days(BACKFILL[0], BACKFILL[-1], *parts)
        assert done.success, answer_of(done)["errors"]
        assert other.answer() == {}
        yield parts


@pytest.fixture(scope="module")
def store(storage):
    """One look at the pipeline for all tests: what it has seen must not hide what is new."""
    return ORDERS.store(storage)


def days_of(store):
    return [each.facts.input.id for each in store.history() if each.facts.input]


def totals_of(store):
    snapshot = Snapshot.load(store.path_of(store.require_latest()))
    assert verify_snapshot(snapshot).findings == []
    totals = state_in(snapshot, "totals", "total")
    assert state_in(snapshot, "largest", "largest") == totals
    return totals


def tick(name, setup, sensor=None):
    storage, _, instance = setup
    [sensor_found] = [sensor] if sensor else [each for each in DEFS.sensors if each.name == name]
    context = dg.build_sensor_context(instance=instance, resources={"storage": storage})
    return sensor_found(context)


def test_a_backfill_commits_each_day(setup, store):
    assert days_of(store) == list(BACKFILL)
    assert totals_of(store) == expected_totals(*BACKFILL)
    storage, _, _ = setup
    output = ORDERS.open(LocalEngine(), storage).output_of(store.require_latest())["totals"]
    assert output.to_arrow().num_rows == len(orders_of(BACKFILL[-1]))


def test_what_another_process_commits_is_seen_at_once(setup, store, other):
    before = store.require_latest()
    sensor = build_external_checkpoint_sensor(
        dg.AssetKey("external"), str(store.layout.root), name="external"
    )
    seen = len(tick("external", setup, sensor).asset_events)
    told = other.do("run", days=[FOREIGN])
    assert told["success"], told["errors"]
    latest = store.require_latest()
    assert latest.checkpoint_id > before.checkpoint_id and days_of(store)[-1] == FOREIGN
    events = tick("external", setup, sensor).asset_events
    assert str(latest.checkpoint_id) in str(events[-1].metadata)
    assert len(events) == seen + 1
    again = answer_of(run_days(FOREIGN, FOREIGN, *setup))
    assert store.require_latest() == latest, "it was committed before: nothing runs"
    key = "/".join([*ORDERS.key("state").path, FOREIGN])
    assert again["versions"][key] == told["versions"][key] == latest.data_version
    assert totals_of(store) == expected_totals(*BACKFILL, FOREIGN)


def test_of_two_processes_on_one_day_one_commits(setup, store, other):
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(other.do, "run", days=[RACED])
        ours = answer_of(run_days(RACED, RACED, *setup))
    results = [ours, theirs.result()]
    assert any(each["success"] for each in results)
    for outcome in results:
        assert (
            outcome["success"]
            or "FencedError" in outcome["errors"][0]
            or "claimed" in outcome["errors"][0]
        )
    assert days_of(store) == [*BACKFILL, FOREIGN, RACED]
    assert totals_of(store) == expected_totals(*BACKFILL, FOREIGN, RACED)


def test_the_log_of_the_other_process_is_truncated(setup, store, other):
    """Materialization, savepoint, rewritten savepoint and all checks; then the sensor rests until
    the other process has written a new log.
    """
    storage, engine, instance = setup
    [request] = tick("orders_truncation", setup).run_requests
    assert request.run_key.endswith(f":{store.require_latest().checkpoint_id}:0")
    behind = answer_of(materialize(BEHIND, *setup))
    assert behind["success"] and all(behind["checks"].values()), behind
    assert store.size().log == 0
    assert "nothing to truncate" in tick("orders_truncation", setup).skip_message
    totals = expected_totals(*BACKFILL, FOREIGN, RACED)
    for kind, uid in (("savepoint", "totals"), ("rewritten", "sums")):
        snapshot = Snapshot.load(behind["uris"]["/".join(ORDERS.key(kind).path)])
        assert str(snapshot.folder).startswith(storage.base_path)
        assert verify_snapshot(snapshot).findings == []
        assert state_in(snapshot, uid, "total") == totals
    assert other.do("run", days=[AFTER])["success"]
    [request] = tick("orders_truncation", setup).run_requests
    assert request.run_key.endswith(f":{store.require_latest().checkpoint_id}:0")
    resources = dg.Definitions(resources={"storage": storage, "engine": engine})
    truncate = dg.Definitions.merge(DEFS, resources).resolve_job_def("orders_materialize")
    done = truncate.execute_in_process(instance=instance)
    assert done.success and store.size().log == 0
    assert totals_of(store) == expected_totals(*BACKFILL, FOREIGN, RACED, AFTER)


def until_the_next_second(files, file):
    """S3 stamps in whole seconds, and gc keeps a file of the second of the latest claim."""
    probe = file.parent.child("probe")

    def stamp(location):
        return {each.location: each.modified_ms for each in files.list_folder(file.parent)}[
            location
        ]

    while True:
        files.write_new(probe, b"")
        is_later = stamp(probe) > stamp(file)
        files.delete(probe)
        if is_later:
            return


def test_reset_removes_what_a_dead_run_left_and_gc_what_nothing_names(setup, store, other):
    storage, _, instance = setup
    reset, gc = build_reset_job(ORDERS), build_gc_job(ORDERS)
    files = open_file_io(store.layout.root)
    dead = instance.create_run_for_job(reset, status=dg.DagsterRunStatus.CANCELED).run_id
    store.begin(dead)
    left = store.layout.changelog.child(str(uuid4()))
    files.write_new(left, b"of a run that was killed")
    assert len(tick("orders_sweeper", setup).run_requests) == 1
    resources = {"storage": storage}
    assert reset.execute_in_process(instance=instance, resources=resources).success
    assert files.size(left) is None and store.leases() == []
    assert "no run was killed" in tick("orders_sweeper", setup).skip_message

    lost = store.layout.task_owned.child(str(uuid4()))
    files.write_new(lost, b"of nobody")
    until_the_next_second(files, lost)
    config = {"delete": True, "older_than_hours": 0}
    # The reset has taken the pipeline over, and this process has listed it: the other one goes on.
    assert other.do("run", days=[ALL_DAYS[6]])["success"]
    done = gc.execute_in_process(
        run_config={"ops": {"orders_gc_op": {"config": config}}},
        instance=instance,
        resources=resources,
    )
    [event] = [each for each in done.all_events if each.event_type_value == "ASSET_OBSERVATION"]
    shown = event.event_specific_data.asset_observation.metadata
    assert shown["dstl/garbage_deleted"].value >= 1 and files.size(lost) is None
    assert totals_of(store) == expected_totals(*ALL_DAYS[:7])
    assert run_days(ALL_DAYS[7], ALL_DAYS[7], *setup).success
    assert totals_of(store) == expected_totals(*ALL_DAYS[:8])
