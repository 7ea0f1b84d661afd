"""Persist and confirm, without Spark: what one half may do to what the other has left."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dstl_core.checkpoint.coordination.pending import OperatorPlan
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.clock import SystemClock
from dstl_core.errors import CheckpointError, FormatError, StorageError
from dstl_core.job.coordination.job_coordinator import JobCoordinator, PersistedCheckpoint
from dstl_core.job.task.reports import SubtaskReport, encode_state
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.key_group import compute_key_group_range_for_operator_index
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import JobLayout, Location
from dstl_core.testing import ManualClock
from tests.full_disk import full_disk
from tests.unprivileged import public_folder, unprivileged

JOB = JobID.for_name("a job")


def plan(parallelism=2, max_parallelism=128, uid="op"):
    return OperatorPlan(OperatorID.for_uid(uid), uid, parallelism, max_parallelism)


def state(plan, subtask):
    own = compute_key_group_range_for_operator_index(
        plan.max_parallelism, plan.parallelism, subtask
    )
    stream = ByteStreamStateHandle("some", b"bytes")
    handle = KeyGroupsSavepointStateHandle(KeyGroupRangeOffsets(own, (0,) * len(own)), stream)
    return OperatorSubtaskState(subtask, managed_keyed_state=handle)


class Pipeline:
    def __init__(self, root):
        self.layout = JobLayout.of(Location.parse(str(root)), JOB.hex)
        self.files = open_file_io(self.layout.root)

    def coordinator(self, clock=None):
        clock = clock or SystemClock()
        return JobCoordinator(self.layout, num_retained=1, timeout_ms=60_000, clock=clock)

    def output(self, checkpoint_id):
        return self.layout.output(checkpoint_id).child("rows")

    def latest_id(self, coordinator):
        latest = coordinator.latest()
        return None if latest is None else latest.checkpoint_id

    def persist(self, coordinator, *plans, meanwhile=lambda: None):
        plans = plans or (plan(),)

        def run(checkpoint_id):
            self.files.write_new(self.output(checkpoint_id), b"rows")
            meanwhile()
            return [
                SubtaskReport(
                    operator_plan.uid, subtask, encode_state(state(operator_plan, subtask))
                )
                for operator_plan in plans
                for subtask in range(operator_plan.parallelism)
            ]

        return coordinator.persist(
            JOB, plans, run, lambda _: EpochFacts(kind="epoch"), after=self.latest_id(coordinator)
        )


@pytest.fixture
def pipeline(tmp_path):
    return Pipeline(tmp_path)


def test_a_late_confirm_leaves_what_was_persisted_since(pipeline):
    coordinator = pipeline.coordinator()
    late = pipeline.persist(coordinator)
    coordinator.confirm(JOB, [plan()], late)
    waiting = pipeline.persist(coordinator)
    with pytest.raises(CheckpointError, match="the next checkpoint id is 2"):
        coordinator.confirm(JOB, [plan()], late)
    assert pipeline.files.size(pipeline.output(waiting.checkpoint_id)) == 4
    assert coordinator.confirm(JOB, [plan()], waiting).checkpoint_id == waiting.checkpoint_id


def test_what_was_not_written_in_time_is_not_persisted(pipeline):
    clock = ManualClock(0)
    coordinator = pipeline.coordinator(clock)
    with pytest.raises(CheckpointError, match=r"was aborted.*Raise checkpoint_timeout_s"):
        pipeline.persist(coordinator, meanwhile=lambda: clock.advance(60_001))
    assert not list(Path(pipeline.layout.root.path).glob("_dstl/output/*/*"))
    persisted = pipeline.persist(coordinator, meanwhile=lambda: clock.advance(59_000))
    clock.advance(3_600_000)  # what is written may wait
    assert coordinator.confirm(JOB, [plan()], persisted).checkpoint_id == persisted.checkpoint_id


@pytest.mark.parametrize(
    "others",
    [
        [plan(parallelism=1)],
        [plan(parallelism=3)],
        [plan(max_parallelism=64)],
        [plan(uid="another")],
        [plan(), plan(uid="another")],
    ],
    ids=["fewer", "more", "max parallelism", "uid", "one operator more"],
)
def test_another_job_does_not_confirm(pipeline, others):
    coordinator = pipeline.coordinator()
    persisted = pipeline.persist(coordinator)
    with pytest.raises(CheckpointError, match="other operators, parallelism or max parallelism"):
        pipeline.coordinator().confirm(JOB, others, persisted)
    assert coordinator.latest() is None
    assert coordinator.confirm(JOB, [plan()], persisted).checkpoint_id == persisted.checkpoint_id


@pytest.mark.parametrize("body", ["{}", b"{}", None, []])
def test_what_is_no_object_of_json_is_no_persisted_checkpoint(body):
    with pytest.raises(FormatError, match=r"expected the object that its to_json returns, got a "):
        PersistedCheckpoint.from_json(body)


def test_state_of_an_operator_that_the_job_has_no_more_is_not_dropped(pipeline):
    coordinator = pipeline.coordinator()
    persisted = pipeline.persist(coordinator, plan(), plan(uid="second"))
    with pytest.raises(CheckpointError, match="other operators"):
        coordinator.confirm(JOB, [plan()], persisted)
    assert coordinator.latest() is None


def everything_in(pipeline):
    root = Path(pipeline.layout.root.path)
    return {str(each): each.read_bytes() for each in root.rglob("*") if each.is_file()}


def test_a_driver_that_could_not_claim_on_a_full_disk_claims_when_there_is_room(pipeline):
    coordinator = pipeline.coordinator()
    for _ in range(2):
        with full_disk(), pytest.raises(StorageError, match=r"Cannot publish .*File too large"):
            pipeline.persist(coordinator)
        assert everything_in(pipeline) == {}
    persisted = pipeline.persist(coordinator)
    assert coordinator.confirm(JOB, [plan()], persisted).checkpoint_id == persisted.checkpoint_id


@pytest.mark.parametrize("another", [False, True], ids=["same coordinator", "new coordinator"])
def test_a_disk_that_is_full_at_the_commit_costs_only_the_epoch(pipeline, another):
    coordinator = pipeline.coordinator()
    committed = coordinator.confirm(JOB, [plan()], pipeline.persist(coordinator))
    late = pipeline.persist(coordinator)
    with full_disk(), pytest.raises(CheckpointError, match="File too large"):
        coordinator.confirm(JOB, [plan()], late)
    assert coordinator.latest() == committed
    if another:
        coordinator = pipeline.coordinator()
    again = coordinator.confirm(JOB, [plan()], pipeline.persist(coordinator))
    assert coordinator.history() == [committed, again]
    assert pipeline.coordinator().latest_file().metadata.checkpoint_id == again.checkpoint_id


def test_a_folder_that_nobody_may_write_to_costs_only_the_epoch():
    with public_folder() as folder:
        pipeline = Pipeline(folder)
        coordinator = pipeline.coordinator()
        committed = coordinator.confirm(JOB, [plan()], pipeline.persist(coordinator))
        before = everything_in(pipeline)
        folders = [folder, *(each for each in folder.rglob("*") if each.is_dir())]
        for locked in folders:
            locked.chmod(0o555)
        with unprivileged():
            for one in (coordinator, pipeline.coordinator()):
                with pytest.raises(StorageError, match=r"Cannot .*: Permission denied"):
                    pipeline.persist(one)
        assert everything_in(pipeline) == before
        for locked in folders:
            locked.chmod(0o755)
        assert coordinator.latest() == committed
        again = coordinator.confirm(JOB, [plan()], pipeline.persist(coordinator))
        assert pipeline.coordinator().history() == [committed, again]


def test_without_its_commit_log_a_pipeline_does_not_go_on(pipeline, tmp_path):
    coordinator = pipeline.coordinator()
    committed = coordinator.confirm(JOB, [plan()], pipeline.persist(coordinator))
    log, aside = Path(pipeline.layout.commit_log.path), tmp_path / "aside"
    log.rename(aside)
    before = everything_in(pipeline)
    with pytest.raises(CheckpointError, match=r"record \d+ of the commit log is missing"):
        pipeline.persist(coordinator)
    with pytest.raises(CheckpointError, match="the latest is chk-1, but no commit log"):
        pipeline.persist(pipeline.coordinator())
    assert everything_in(pipeline) == before
    aside.rename(log)
    again = coordinator.confirm(JOB, [plan()], pipeline.persist(coordinator))
    assert pipeline.coordinator().history() == [committed, again]


def test_output_of_a_commit_stays_when_another_epoch_of_its_id_is_given_up(pipeline):
    coordinator = pipeline.coordinator()
    persisted = pipeline.persist(coordinator)

    def confirm_elsewhere():
        pipeline.coordinator().confirm(JOB, [plan()], persisted)
        raise RuntimeError("the epoch fails")

    pipeline.files.delete(pipeline.output(persisted.checkpoint_id))  # each epoch writes this name
    with pytest.raises(RuntimeError, match="the epoch fails"):
        pipeline.persist(coordinator, meanwhile=confirm_elsewhere)
    assert coordinator.latest().checkpoint_id == persisted.checkpoint_id
    assert pipeline.files.size(pipeline.output(persisted.checkpoint_id)) == 4


def test_readers_in_other_threads_see_whole_histories(pipeline):
    coordinator, done = pipeline.coordinator(), threading.Event()

    def read():
        seen = []
        while not done.is_set():
            seen.append([each.checkpoint_id for each in coordinator.history()])
        return seen

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for _ in range(10):
                coordinator.confirm(JOB, [plan()], pipeline.persist(coordinator))
        finally:
            done.set()
    ids = [each.checkpoint_id for each in coordinator.history()]
    assert len(ids) == 10
    for reader in readers:
        assert all(seen == ids[: len(seen)] for seen in reader.result())
