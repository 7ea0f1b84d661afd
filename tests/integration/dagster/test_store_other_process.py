"""Leases, sensors and reset while another process writes, on a local disk and on S3.

Nothing is kept of an earlier look: each look sees what the other process has written by then.
"""

import json
import shutil
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest

from dstl_core import Snapshot
from dstl_core.checkpoint.store.metadata_file import publish_metadata_file
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.model.ids import JobID
from dstl_core.storage.location import Location
from dstl_dagster import DstlStorageResource
from dstl_dagster.pipelines.jobs import build_reset_job
from dstl_dagster.pipelines.leases import working_runs
from dstl_dagster.resources.storage_resource import S3Credentials
from dstl_dagster.sensors import build_external_checkpoint_sensor
from tests.contract.test_deletion_other_process import commit, place, sizes, state_file
from tests.integration.dagster.small_pipeline import PAYMENTS
from tests.integration.flink.checker import State
from tests.integration.flink.writing import LoggingJob
from tests.unit.checkpoint.pipeline import Pipeline, metadata

pytestmark = pytest.mark.dagster

RESET = build_reset_job(PAYMENTS)


@pytest.fixture(params=["local", "s3"])
def storage(request, tmp_path, s3):
    if request.param == "local":
        return DstlStorageResource(base_path=str(tmp_path / "state"))
    keys = S3Credentials(
        access_key_id=s3.key, secret_access_key=s3.secret, endpoint_url=s3.endpoint_url
    )
    bucket = request.getfixturevalue("bucket")
    made = DstlStorageResource(base_path=f"{bucket}/state", credentials=keys)
    made.connect()
    return made


@pytest.fixture
def theirs(storage, other_processes):
    """The pipeline, as the other process reaches it."""
    base = Location.parse(storage.jobs)
    return Pipeline(base, other_processes[base.scheme], JobID.for_name(PAYMENTS.name).hex)


def begin(theirs, run_id):
    """The other process marks a run as working."""
    content = json.dumps({"run_id": run_id, "since_ms": 1}).encode()
    lease = theirs.layout.root.child("_dstl", "leases", f"{run_id}.json")
    assert theirs.files.publish_once(lease, content)
    return lease


def test_commits_and_leases_of_another_process_are_seen_at_once(storage, theirs):
    store = PAYMENTS.store(storage)
    assert store.latest() is None and store.leases() == []
    owner = theirs.owner()
    seen = []
    for number in range(3):
        committed = commit(owner, state_file(theirs))
        lease = begin(theirs, f"run-{number}")
        assert store.latest().checkpoint_id == committed
        assert [each.run_id for each in store.leases()] == [f"run-{number}"]
        seen.append(committed)
        theirs.files.delete(lease)
        assert store.leases() == []
    assert [each.checkpoint_id for each in store.history()] == seen


def test_a_run_of_another_process_counts_as_working_from_its_lease_on(storage, theirs, instance):
    store = PAYMENTS.store(storage)
    assert working_runs(instance, store) == []
    run = instance.create_run_for_job(RESET, status=dg.DagsterRunStatus.STARTED)
    begin(theirs, run.run_id)
    left = state_file(theirs)
    assert working_runs(instance, store) == [run.run_id]
    assert store.reset("reset", lambda run_id: run_id == run.run_id).busy == (run.run_id,)
    assert theirs.files.size(place(left)) == 4


def test_checkpoints_that_another_process_completes_are_reported(storage, theirs, instance):
    """As a Flink job leaves them: metadata in ``chk-<n>``, and no log."""
    folder = str(theirs.layout.root)
    sensor = build_external_checkpoint_sensor(dg.AssetKey("external"), folder, name="external")

    def tick(cursor):
        context = dg.build_sensor_context(
            instance=instance, cursor=cursor, resources={"storage": storage}
        )
        return sensor(context)

    cursor = None
    for number in (1, 2, 3):
        assert "no checkpoint" in tick(cursor).skip_message
        snapshot = metadata(number, state_file(theirs, "shared"))
        publish_metadata_file(theirs.files, theirs.layout.checkpoint(number), snapshot, {})
        ticked = tick(cursor)
        assert [each.metadata["dstl/checkpoint_id"].value for each in ticked.asset_events] == [
            number
        ]
        cursor = ticked.cursor


def test_a_reset_leaves_what_another_process_commits_meanwhile(storage, theirs):
    base = state_file(theirs)
    owner = theirs.owner("dead")
    commit(owner, base)
    left = sorted((state_file(theirs) for _ in range(3)), key=lambda handle: handle.path)
    begin(theirs, "dead")
    store = PAYMENTS.store(storage)
    real = store._file_io.delete

    def delete(location):
        """Right before the first file goes, the next owner commits with the second."""
        if not committed:
            committed.append(theirs.owner("next"))
            commit(committed[0], base, left[1])
        return real(location)

    committed = []
    store._file_io.delete = delete
    done = store.reset("reset", lambda run_id: False)
    assert committed
    assert set(done.deleted) == {str(place(left[0])), str(place(left[2]))}
    assert sizes(theirs, committed[0]) == [4, 4]


def test_a_reset_after_a_reset_of_another_process_sees_what_that_one_left(storage, theirs):
    base = state_file(theirs)
    commit(theirs.owner("dead"), base)
    left = state_file(theirs)
    begin(theirs, "dead")
    store = PAYMENTS.store(storage)
    assert store.orphans() == [str(place(left))]
    commit(theirs.owner("next"), base, left)
    assert store.orphans() == []
    assert store.reset("reset", lambda run_id: False).deleted == ()
    assert sizes(theirs, theirs.store()) == [4, 4]


# ------------------------------------------------------------------------- moved and linked

STATES = [State("n", "value", "long")]
UPDATES = [{"key": f"{at:0100}", "state": "n", "do": "update", "value": at} for at in range(500)]


def one_epoch(base: Path, *, materialize: bool) -> None:
    run = LoggingJob(base, "op", "string", max_parallelism=128).run(STATES, parallelism=2)
    run.apply(UPDATES)
    if materialize:
        run.materialize()
    run.apply([{"key": f"k{at}", "state": "n", "do": "update", "value": at} for at in range(9)])
    run.checkpoint()
    run.close()


def reset_of(base: Path) -> tuple[str, ...]:
    store = PipelineStore(str(base), "op")
    store.begin("dead")
    orphan = Path(store.layout.task_owned.path, str(uuid4()))
    orphan.write_bytes(b"left behind")
    deleted = store.reset("reset", lambda run_id: False).deleted
    assert not orphan.exists()
    latest = Snapshot.load(store.path_of(store.require_latest()))
    assert len(list(latest["op"].dump())) == 509
    assert len(list(Snapshot.load(str(latest.folder))["op"].dump())) == 509
    return deleted


@pytest.mark.parametrize("reached", ["by the link", "where it lies"])
@pytest.mark.parametrize("runs_on", [True, False], ids=["an epoch since", "no epoch since"])
def test_a_reset_of_a_moved_pipeline_that_a_link_leads_to(
    tmp_path: Path, reached: str, runs_on: bool
) -> None:
    old, new = tmp_path / "old", tmp_path / "other disk" / "new"
    one_epoch(old, materialize=True)
    new.parent.mkdir()
    old.rename(new)
    old.symlink_to(new)
    if runs_on:
        one_epoch(old, materialize=False)
    assert len(reset_of(old if reached == "by the link" else new)) == 1


@pytest.mark.parametrize("original", ["gone", "still there"])
def test_a_reset_of_a_moved_pipeline_whose_handles_name_the_old_folder(
    tmp_path: Path, original: str
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    one_epoch(old, materialize=True)
    shutil.copytree(old, new)
    if original == "gone":
        shutil.rmtree(old)
    assert len(reset_of(new)) == 1
    if original == "still there":
        assert len(reset_of(old)) == 1
