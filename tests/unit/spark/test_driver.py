"""Persist and confirm, without Spark: what one half may do to what the other has left."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dstl_core.checkpoint.coordination.pending import OperatorPlan
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.clock import SystemClock
from dstl_core.errors import CheckpointError, StorageError
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.key_group import compute_key_group_range_for_operator_index
from dstl_core.spark.job.driver import CheckpointDriver
from dstl_core.spark.task.reports import SubtaskReport, encode_state
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

    def driver(self, clock=None):
        clock = clock or SystemClock()
        return CheckpointDriver(self.layout, num_retained=1, timeout_ms=60_000, clock=clock)

    def output(self, checkpoint_id):
        return self.layout.output(checkpoint_id).child("rows")

    def latest_id(self, driver):
        latest = driver.latest()
        return None if latest is None else latest.checkpoint_id

    def persist(self, driver, *plans, meanwhile=lambda: None):
        plans = plans or (plan(),)

        def run(checkpoint_id):
            self.files.write_new(self.output(checkpoint_id), b"rows")
            meanwhile()
            return [
                SubtaskReport(each.uid, subtask, encode_state(state(each, subtask)))
                for each in plans
                for subtask in range(each.parallelism)
            ]

        return driver.persist(
            JOB, plans, run, lambda _: EpochFacts(kind="epoch"), after=self.latest_id(driver)
        )


@pytest.fixture
def pipeline(tmp_path):
    return Pipeline(tmp_path)


def test_a_late_confirm_leaves_what_was_persisted_since(pipeline):
    driver = pipeline.driver()
    late = pipeline.persist(driver)
    driver.confirm(JOB, [plan()], late)
    waiting = pipeline.persist(driver)
    with pytest.raises(CheckpointError, match="the next one to commit is 2"):
        driver.confirm(JOB, [plan()], late)
    assert pipeline.files.size(pipeline.output(waiting.checkpoint_id)) == 4
    assert driver.confirm(JOB, [plan()], waiting).checkpoint_id == waiting.checkpoint_id


def test_what_was_not_written_in_time_is_not_persisted(pipeline):
    clock = ManualClock(0)
    driver = pipeline.driver(clock)
    with pytest.raises(CheckpointError, match=r"was given up.*Raise checkpoint_timeout_s"):
        pipeline.persist(driver, meanwhile=lambda: clock.advance(60_001))
    assert not list(Path(pipeline.layout.root.path).glob("_dstl/output/*/*"))
    persisted = pipeline.persist(driver, meanwhile=lambda: clock.advance(59_000))
    clock.advance(3_600_000)  # what is written may wait
    assert driver.confirm(JOB, [plan()], persisted).checkpoint_id == persisted.checkpoint_id


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
    driver = pipeline.driver()
    persisted = pipeline.persist(driver)
    with pytest.raises(CheckpointError, match="other operators, parallelism or max parallelism"):
        pipeline.driver().confirm(JOB, others, persisted)
    assert driver.latest() is None
    assert driver.confirm(JOB, [plan()], persisted).checkpoint_id == persisted.checkpoint_id


def test_state_of_an_operator_that_the_job_has_no_more_is_not_dropped(pipeline):
    driver = pipeline.driver()
    persisted = pipeline.persist(driver, plan(), plan(uid="second"))
    with pytest.raises(CheckpointError, match="other operators"):
        driver.confirm(JOB, [plan()], persisted)
    assert driver.latest() is None


def everything_in(pipeline):
    root = Path(pipeline.layout.root.path)
    return {str(each): each.read_bytes() for each in root.rglob("*") if each.is_file()}


def test_a_driver_that_could_not_claim_on_a_full_disk_claims_when_there_is_room(pipeline):
    driver = pipeline.driver()
    for _ in range(2):
        with full_disk(), pytest.raises(StorageError, match=r"Cannot publish .*File too large"):
            pipeline.persist(driver)
        assert everything_in(pipeline) == {}
    persisted = pipeline.persist(driver)
    assert driver.confirm(JOB, [plan()], persisted).checkpoint_id == persisted.checkpoint_id


@pytest.mark.parametrize("another", [False, True], ids=["same driver", "new driver"])
def test_a_disk_that_is_full_at_the_commit_costs_only_the_epoch(pipeline, another):
    driver = pipeline.driver()
    committed = driver.confirm(JOB, [plan()], pipeline.persist(driver))
    late = pipeline.persist(driver)
    with full_disk(), pytest.raises(CheckpointError, match="File too large"):
        driver.confirm(JOB, [plan()], late)
    assert driver.latest() == committed
    if another:
        driver = pipeline.driver()
    again = driver.confirm(JOB, [plan()], pipeline.persist(driver))
    assert driver.history() == [committed, again]
    assert pipeline.driver().latest_file().metadata.checkpoint_id == again.checkpoint_id


def test_a_folder_that_nobody_may_write_to_costs_only_the_epoch():
    with public_folder() as folder:
        pipeline = Pipeline(folder)
        driver = pipeline.driver()
        committed = driver.confirm(JOB, [plan()], pipeline.persist(driver))
        before = everything_in(pipeline)
        folders = [folder, *(each for each in folder.rglob("*") if each.is_dir())]
        for each in folders:
            each.chmod(0o555)
        with unprivileged():
            for one in (driver, pipeline.driver()):
                with pytest.raises(StorageError, match=r"Cannot .*: Permission denied"):
                    pipeline.persist(one)
        assert everything_in(pipeline) == before
        for each in folders:
            each.chmod(0o755)
        assert driver.latest() == committed
        again = driver.confirm(JOB, [plan()], pipeline.persist(driver))
        assert pipeline.driver().history() == [committed, again]


def test_without_its_commit_log_a_pipeline_does_not_go_on(pipeline, tmp_path):
    driver = pipeline.driver()
    committed = driver.confirm(JOB, [plan()], pipeline.persist(driver))
    log, aside = Path(pipeline.layout.commit_log.path), tmp_path / "aside"
    log.rename(aside)
    before = everything_in(pipeline)
    with pytest.raises(CheckpointError, match=r"record \d+ of the commit log is gone"):
        pipeline.persist(driver)
    with pytest.raises(CheckpointError, match="the latest is chk-1, and no commit log"):
        pipeline.persist(pipeline.driver())
    assert everything_in(pipeline) == before
    aside.rename(log)
    again = driver.confirm(JOB, [plan()], pipeline.persist(driver))
    assert pipeline.driver().history() == [committed, again]


def test_output_of_a_commit_stays_when_another_epoch_of_its_id_is_given_up(pipeline):
    driver = pipeline.driver()
    persisted = pipeline.persist(driver)

    def confirm_elsewhere():
        pipeline.driver().confirm(JOB, [plan()], persisted)
        raise RuntimeError("the epoch fails")

    pipeline.files.delete(pipeline.output(persisted.checkpoint_id))  # each epoch writes this name
    with pytest.raises(RuntimeError, match="the epoch fails"):
        pipeline.persist(driver, meanwhile=confirm_elsewhere)
    assert driver.latest().checkpoint_id == persisted.checkpoint_id
    assert pipeline.files.size(pipeline.output(persisted.checkpoint_id)) == 4


def test_readers_in_other_threads_see_whole_histories(pipeline):
    driver, done = pipeline.driver(), threading.Event()

    def read():
        seen = []
        while not done.is_set():
            seen.append([each.checkpoint_id for each in driver.history()])
        return seen

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for _ in range(10):
                driver.confirm(JOB, [plan()], pipeline.persist(driver))
        finally:
            done.set()
    ids = [each.checkpoint_id for each in driver.history()]
    assert len(ids) == 10
    for reader in readers:
        assert all(seen == ids[: len(seen)] for seen in reader.result())
