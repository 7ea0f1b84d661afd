"""How the changelog is used, from the first append to the truncation.

The same steps as the usage examples that Flink's users know, corrected where those show methods
that Flink does not have.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from dstl_core.changelog import FsStateChangelogStorage, FsStateChangelogWriter, LocalRecoveryConfig
from dstl_core.changelog.change_set import StateChangeSet
from dstl_core.changelog.persist import PersistFuture
from dstl_core.changelog.registry import TaskChangelogRegistry
from dstl_core.changelog.storage_metrics import ChangelogStorageMetricGroup
from dstl_core.changelog.upload import (
    BatchingStateChangeUploadScheduler,
    RetryPolicy,
    StateChangeFsUploader,
    StateChangeUploadScheduler,
    UploadResult,
    UploadTask,
    UploadTasksResult,
)
from dstl_core.config import ChangelogOptions
from dstl_core.errors import ChangelogError, StorageError, UploadFailedError
from dstl_core.metrics import MetricGroup
from dstl_core.model.change import StateChange
from dstl_core.model.handle import ChangelogStateHandleStream, FileStateHandle
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from dstl_core.testing import Fault, FaultyFileIO, MemoryFileIO, scripted_faults

JOB = JobID.for_name("usage")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[FsStateChangelogStorage]:
    made = FsStateChangelogStorage(JOB, ChangelogOptions.of(base_path=str(tmp_path)))
    yield made
    made.close()


@pytest.fixture
def writer(storage: FsStateChangelogStorage) -> FsStateChangelogWriter:
    return storage.create_writer("my-operator", KeyGroupRange.of(0, 127))


def changes(storage: FsStateChangelogStorage, handle: ChangelogStateHandleStream) -> list[bytes]:
    return [change.change for change in storage.create_reader().get_changes(handle)]


def failing_storage(*faults: Fault) -> FsStateChangelogStorage:
    return FsStateChangelogStorage(
        JOB,
        ChangelogOptions.of(base_path="s3://bucket/base", retry_policy="none"),
        FaultyFileIO(MemoryFileIO(), scripted_faults(faults), pause=lambda ms: None, pause_ms=0),
    )


# ---------------------------------------------------------------------------------- writers


def test_basic_writer_usage(
    storage: FsStateChangelogStorage, writer: FsStateChangelogWriter
) -> None:
    initial = writer.initial_sequence_number()
    writer.append_meta(b"operator-metadata")
    writer.append(5, b"change of 5")
    writer.append(15, b"change of 15")
    future = writer.persist(initial, 1)

    persisted: list[list[bytes]] = []
    future.add_done_callback(
        lambda done: persisted.append(changes(storage, done.result().job_manager_owned_snapshot))
    )
    future.result(30)
    assert persisted == [[b"operator-metadata", b"change of 5", b"change of 15"]]
    writer.close()


def test_writer_from_checkpoint_to_confirmation(
    storage: FsStateChangelogStorage, writer: FsStateChangelogWriter
) -> None:
    writer.append(5, b"of 5")
    writer.append(10, b"of 10")
    writer.append_meta(b"meta")
    upper = writer.next_sequence_number()
    result = writer.persist(writer.initial_sequence_number(), 7).result(30)
    # Flink has no getStreamStateHandles: a handle lists files with the offset of each set.
    [(stream, offset)] = result.job_manager_owned_snapshot.handles_and_offsets
    assert isinstance(stream, FileStateHandle)
    assert offset == 0
    assert list(storage.registry.tracked) == [stream.path]
    writer.confirm(writer.initial_sequence_number(), upper, 7)
    assert storage.registry.tracked == {}  # the checkpoint owns it


def test_sequence_numbers(writer: FsStateChangelogWriter) -> None:
    start = writer.initial_sequence_number()
    assert start == SequenceNumber.of(0)
    writer.append(1, b"x")
    writer.append(2, b"y")
    current = writer.next_sequence_number()
    # Changes move it, and asking does not: two changes are one set.
    assert current == writer.next_sequence_number() == SequenceNumber.of(1)
    assert writer.persist(start, 1).result(30).state_size == 2


def test_rollover_points(storage: FsStateChangelogStorage, writer: FsStateChangelogWriter) -> None:
    writer.append(1, b"change1")
    writer.append(2, b"change2")
    rollover = writer.next_sequence_number()
    writer.append(3, b"change3")
    writer.append(4, b"change4")
    assert writer.next_sequence_number() == rollover.next()
    result = writer.persist(rollover, 1).result(30)
    assert changes(storage, result.job_manager_owned_snapshot) == [b"change3", b"change4"]


def test_appending_within_the_key_group_range(storage: FsStateChangelogStorage) -> None:
    writer = storage.create_writer("operator-1", KeyGroupRange.of(0, 63))
    writer.append_meta(b'{"operator": "MyOperator", "version": "1.0"}')
    for key_group in range(64):
        writer.append(key_group, b"%d" % key_group)
    with pytest.raises(ChangelogError, match=r"expected \[0, 63\], got 100"):
        writer.append(100, b"some data")
    result = writer.persist(writer.initial_sequence_number(), 1).result(30)
    assert len(changes(storage, result.job_manager_owned_snapshot)) == 65


def test_persist_tells_the_remote_handle_and_the_local_one(tmp_path: Path) -> None:
    local = LocalRecoveryConfig((Location.parse(str(tmp_path / "local")),))
    storage = FsStateChangelogStorage(
        JOB, ChangelogOptions.of(base_path=str(tmp_path / "remote")), local_recovery=local
    )
    writer = storage.create_writer("operator", KeyGroupRange.of(0, 127))
    writer.append(1, b"x")
    result = writer.persist(writer.initial_sequence_number(), 1).result(30)
    assert result.task_local_snapshot is not None
    for handle, folder in (
        (result.job_manager_owned_snapshot, tmp_path / "remote"),
        (result.task_local_snapshot, tmp_path / "local"),
    ):
        [(stream, _)] = handle.handles_and_offsets
        assert isinstance(stream, FileStateHandle)
        assert Location.parse(stream.path).path.startswith(str(folder))
        assert changes(storage, handle) == [b"x"]
    storage.close()


def test_a_chain_of_persists(
    storage: FsStateChangelogStorage, writer: FsStateChangelogWriter
) -> None:
    start = writer.initial_sequence_number()
    second: list[PersistFuture[ChangelogStateHandleStream]] = []

    def then(first: PersistFuture[ChangelogStateHandleStream]) -> None:
        from_ = writer.next_sequence_number()  # before the change: it is part of the persist
        writer.append(3, b"more")
        second.append(writer.persist(from_, 12346))

    writer.append(1, b"x")
    future = writer.persist(start, 12345)
    future.add_done_callback(then)
    future.result(30)
    assert changes(storage, second[0].result(30).job_manager_owned_snapshot) == [b"more"]


def test_lifecycle_of_a_writer(
    storage: FsStateChangelogStorage, writer: FsStateChangelogWriter
) -> None:
    first = writer.next_sequence_number()
    writer.append(1, b"1")
    writer.append(2, b"2")
    second = writer.next_sequence_number()
    writer.persist(first, 1).result(30)
    writer.confirm(first, second, 1)
    writer.append(3, b"3")
    third = writer.next_sequence_number()
    writer.persist(first, 2).result(30)
    writer.reset(first, third, 2)  # checkpoint 2 was aborted: nothing is rolled back
    writer.truncate(second)  # a materialization covers the first set
    result = writer.persist(second, 3).result(30)
    assert changes(storage, result.job_manager_owned_snapshot) == [b"3"]
    writer.close()


def test_truncate_and_close(
    storage: FsStateChangelogStorage, writer: FsStateChangelogWriter, tmp_path: Path
) -> None:
    writer.append(1, b"in the checkpoint")
    upper = writer.next_sequence_number()
    result = writer.persist(writer.initial_sequence_number(), 1).result(30)
    writer.append(1, b"after it")
    writer.persist(upper, 2).result(30)
    writer.truncate_and_close(upper)
    storage.close()
    [(stream, _)] = result.job_manager_owned_snapshot.handles_and_offsets
    assert isinstance(stream, FileStateHandle)
    files = [str(Location.parse(str(path))) for path in (tmp_path / JOB.hex / "dstl").iterdir()]
    assert files == [stream.path]


def test_preemptive_persistence(tmp_path: Path) -> None:
    options = ChangelogOptions.of(
        **{
            "state.changelog.dstl.dfs.base-path": str(tmp_path),
            "state.changelog.dstl.dfs.preemptive-persist-threshold": "5MB",
            "state.changelog.dstl.dfs.batch.persist-delay": "0 ms",
        }
    )
    metrics = MetricGroup()
    storage = FsStateChangelogStorage(JOB, options, metrics=metrics)
    writer = storage.create_writer("operator", KeyGroupRange.of(0, 127))
    writer.append(1, bytes(5 << 20))  # uploaded without being asked
    writer.append(1, b"small")
    result = writer.persist(writer.initial_sequence_number(), 1).result(30)
    assert result.state_size == (5 << 20) + 5
    assert metrics.add_group("ChangelogStorage").counter("numberOfUploadRequests").count == 2
    storage.close()


def test_errors_of_a_writer() -> None:
    storage = failing_storage(Fault.REFUSED)
    writer = storage.create_writer("operator", KeyGroupRange.of(0, 5))
    with pytest.raises(ChangelogError, match="outside its writer's key groups"):
        writer.append(6, b"x")
    writer.append(0, b"x")
    future = writer.persist(writer.initial_sequence_number(), 1)
    failures: list[BaseException | None] = []
    future.add_done_callback(lambda done: failures.append(done.exception()))
    with pytest.raises(UploadFailedError, match="are kept, and the next persist"):
        future.result(30)
    assert isinstance(failures[0], UploadFailedError)
    # Unlike in Flink, the writer goes on.
    result = writer.persist(writer.initial_sequence_number(), 2).result(30)
    assert changes(storage, result.job_manager_owned_snapshot) == [b"x"]
    writer.close()
    storage.close()


# ---------------------------------------------------------------------------------- uploads


def change_set(number: int, *values: bytes) -> StateChangeSet:
    """A set as a writer makes it."""
    return StateChangeSet(
        UUID(int=0), SequenceNumber(number), [StateChange.of_data_change(1, v) for v in values]
    )


def fs_uploader(tmp_path: Path) -> StateChangeFsUploader:
    folder = Location.parse(str(tmp_path))
    return StateChangeFsUploader(open_file_io(folder), folder, TaskChangelogRegistry.NO_OP)


class Outcome:
    """Callbacks that remember."""

    def __init__(self) -> None:
        self.results: list[UploadResult] = []
        self.failures: list[tuple[list[SequenceNumber], BaseException]] = []
        self._ended = threading.Semaphore(0)

    def task(self, *sets: StateChangeSet) -> UploadTask:
        def succeeded(results: list[UploadResult]) -> None:
            self.results += results
            self._ended.release()

        def failed(numbers: list[SequenceNumber], error: BaseException) -> None:
            self.failures.append((numbers, error))
            self._ended.release()

        return UploadTask(sets, succeeded, failed)

    def wait_for(self, tasks: int) -> None:
        for _ in range(tasks):
            assert self._ended.acquire(timeout=30)


def test_basic_scheduler_usage(tmp_path: Path) -> None:
    scheduler = StateChangeUploadScheduler.direct_scheduler(fs_uploader(tmp_path))
    outcome = Outcome()
    scheduler.upload(outcome.task(change_set(0, b"x")))
    assert len(outcome.results) == 1
    assert outcome.failures == []
    scheduler.close()


def test_upload_task_usage(tmp_path: Path) -> None:
    outcome = Outcome()
    task = outcome.task(change_set(0, b"abc"), change_set(1, b"de"))
    assert task.size == 5
    assert [each.sequence_number.number for each in task.change_sets] == [0, 1]
    StateChangeUploadScheduler.direct_scheduler(fs_uploader(tmp_path)).upload(task)
    assert task.is_finished
    first, second = outcome.results
    assert (first.offset, first.size) == (0, 3)
    assert (second.offset, second.size) == (19, 2)  # 16 bytes of counts, 3 of payload
    assert first.stream_state_handle == second.stream_state_handle


def test_scheduler_from_configuration(tmp_path: Path) -> None:
    options = ChangelogOptions.of(
        **{
            "state.changelog.dstl.dfs.base-path": str(tmp_path),
            "state.changelog.dstl.dfs.upload.num-threads": 10,
            "state.changelog.dstl.dfs.upload.buffer-size": "2MB",
            "state.changelog.dstl.dfs.upload.max-in-flight": "200MB",
            "state.changelog.dstl.dfs.upload.max-attempts": 5,
            "state.changelog.dstl.dfs.upload.timeout": "30 s",
        }
    )
    metrics = MetricGroup()
    scheduler = StateChangeUploadScheduler.from_config(
        JOB, options, ChangelogStorageMetricGroup(metrics)
    )
    outcome = Outcome()
    for number in range(3):
        scheduler.upload(outcome.task(change_set(number, b"x")))
    outcome.wait_for(3)
    assert sorted(each.sequence_number.number for each in outcome.results) == [0, 1, 2]
    assert scheduler.bytes_in_flight == 0
    scheduler.close()
    sizes = metrics.add_group("ChangelogStorage").histogram("uploadBatchSizes")
    assert sizes.sum == 3


def test_a_scheduler_of_ones_own_deletes_copies_too(tmp_path: Path) -> None:
    local = LocalRecoveryConfig((Location.parse(str(tmp_path / "local")),))
    options = ChangelogOptions.of(base_path=str(tmp_path / "remote"))
    scheduler = StateChangeUploadScheduler.from_config(JOB, options, local_recovery=local)
    assert isinstance(scheduler, BatchingStateChangeUploadScheduler)
    result = scheduler._uploader.upload([Outcome().task(change_set(0, b"x"))])
    assert len(list(tmp_path.rglob("dstl/*"))) == len(list(tmp_path.rglob("taskowned/*"))) == 1
    result.discard()
    scheduler.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_uploader_of_ones_own() -> None:
    files: dict[str, list[StateChangeSet]] = {}

    class MyUploader:
        """Keeps sets in a dictionary: one file for all tasks, as the contract says."""

        def upload(self, tasks: Sequence[UploadTask]) -> UploadTasksResult:
            name = f"mine-{len(files)}"
            files[name] = [each for task in tasks for each in task.change_sets]
            offsets = {task: dict.fromkeys(task.change_sets, (0, 0)) for task in tasks}
            return UploadTasksResult(offsets, FileStateHandle(name, 1))

        def close(self) -> None:
            files.clear()

    scheduler = StateChangeUploadScheduler.direct_scheduler(MyUploader())
    outcome = Outcome()
    scheduler.upload(outcome.task(change_set(0, b"x")))
    assert [each.stream_state_handle.path for each in outcome.results] == ["mine-0"]
    scheduler.close()
    assert files == {}


def test_checking_for_room_before_uploading(tmp_path: Path) -> None:
    options = ChangelogOptions.of(base_path=str(tmp_path))
    scheduler = StateChangeUploadScheduler.from_config(JOB, options)
    provider = scheduler.get_availability_provider()
    outcome = Outcome()
    # Flink's method is getAvailableFuture; it is done at once while there is room.
    assert provider.is_available()
    provider.get_available_future().add_done_callback(
        lambda _: scheduler.upload(outcome.task(change_set(0, b"x")))
    )
    outcome.wait_for(1)
    assert len(outcome.results) == 1
    scheduler.close()


def test_retries_from_configuration() -> None:
    options = ChangelogOptions.of(
        **{
            "state.changelog.dstl.dfs.base-path": "s3://bucket/base",
            "state.changelog.dstl.dfs.upload.retry-policy": "fixed",
            "state.changelog.dstl.dfs.upload.max-attempts": 5,
            "state.changelog.dstl.dfs.upload.next-attempt-delay": "1 ms",
            "state.changelog.dstl.dfs.upload.timeout": "30 s",
            "state.changelog.dstl.dfs.batch.persist-delay": "0 ms",
        }
    )
    assert str(RetryPolicy.from_config(options)) == "timeout=30000, maxAttempts=5, delay=1"
    faulty = FaultyFileIO(
        MemoryFileIO(), scripted_faults([Fault.REFUSED] * 4), pause=lambda ms: None, pause_ms=0
    )
    storage = FsStateChangelogStorage(JOB, options, faulty)
    writer = storage.create_writer("operator", KeyGroupRange.of(0, 5))
    writer.append(0, b"x")
    result = writer.persist(writer.initial_sequence_number(), 1).result(30)
    assert changes(storage, result.job_manager_owned_snapshot) == [b"x"]
    storage.close()


def test_what_an_upload_can_fail_with(tmp_path: Path) -> None:
    faulty = FaultyFileIO(
        MemoryFileIO(), scripted_faults([Fault.REFUSED]), pause=lambda ms: None, pause_ms=0
    )
    folder = Location.parse("s3://bucket/base")
    scheduler = StateChangeUploadScheduler.direct_scheduler(
        StateChangeFsUploader(faulty, folder, TaskChangelogRegistry.NO_OP)
    )
    outcome = Outcome()
    scheduler.upload(outcome.task(change_set(4, b"x"), change_set(5, b"y")))
    [(numbers, error)] = outcome.failures
    assert [each.number for each in numbers] == [4, 5]
    assert isinstance(error, StorageError)
    scheduler.close()
    # Unlike in Flink, an upload after the close has an outcome too.
    scheduler.upload(outcome.task(change_set(6, b"z")))
    assert len(outcome.failures) == 2


def test_the_batching_scheduler_has_thresholds_and_no_batch_count(tmp_path: Path) -> None:
    options = ChangelogOptions.of(
        base_path=str(tmp_path),
        persist_delay_ms="1 h",
        persist_size_threshold=100,
        max_in_flight=1000,
    )
    storage = FsStateChangelogStorage(JOB, options)
    scheduler = BatchingStateChangeUploadScheduler.of_options(
        fs_uploader(tmp_path), storage._threads, options
    )
    outcome = Outcome()
    scheduler.upload(outcome.task(change_set(0, bytes(60))))
    scheduler.upload(outcome.task(change_set(1, bytes(60))))  # 120 bytes wait: sent at once
    outcome.wait_for(2)
    first, second = outcome.results
    assert first.stream_state_handle == second.stream_state_handle
    scheduler.close()
    storage.close()
