"""Parts that a user writes, from public packages alone: uploader, scheduler, copies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from dstl_core.changelog import (
    ChangelogOptions,
    FsStateChangelogStorage,
    JobID,
    KeyGroupRange,
    LocalRecoveryConfig,
    SequenceNumber,
)
from dstl_core.changelog.upload import (
    FileStateHandle,
    StateChangeUploader,
    StateChangeUploadScheduler,
    UploadTask,
    UploadTasksResult,
)
from dstl_core.errors import UploadFailedError

JOB = JobID.for_name("own")
ALL = KeyGroupRange.of(0, 127)
ZERO = SequenceNumber(0)


class PlainUploader(StateChangeUploader):
    """Writes files with Python alone; the first attempts raise errors."""

    def __init__(self, folder: Path, *errors: Exception) -> None:
        self.folder = folder
        self.errors = list(errors)
        self.sets: dict[FileStateHandle, int] = {}
        self.closed = False

    def upload(self, tasks: Sequence[UploadTask]) -> UploadTasksResult:
        if self.errors:
            raise self.errors.pop(0)
        body = bytearray()
        offsets: dict[UploadTask, dict[object, tuple[int, int]]] = {}
        for task in tasks:
            offsets[task] = {}
            for change_set in task.change_sets:
                offsets[task][change_set] = (len(body), len(body))
                body += change_set.encoded
        path = self.folder / str(uuid4())
        path.write_bytes(b"\0" + body)
        handle = FileStateHandle(f"file:{path}", len(body))
        self.sets[handle] = sum(len(task.change_sets) for task in tasks)
        return UploadTasksResult(offsets, handle)  # type: ignore[arg-type]  # keys are sets

    def close(self) -> None:
        self.closed = True


class CountingScheduler(StateChangeUploadScheduler):
    """Uploads each task at once, and counts."""

    def __init__(self, uploader: StateChangeUploader) -> None:
        self.uploader = uploader
        self.outcomes: list[str] = []

    def upload(self, task: UploadTask) -> None:
        try:
            self.uploader.upload([task]).complete()
            self.outcomes.append("complete")
        except OSError as error:
            task.fail(error)
            self.outcomes.append("failed")

    def close(self) -> None:
        self.uploader.close()


def options(folder: Path, **more: object) -> ChangelogOptions:
    return ChangelogOptions.of(base_path=str(folder), persist_delay_ms=0, **more)


def test_an_uploader_of_ones_own_is_retried_and_read_back(tmp_path: Path) -> None:
    uploader = PlainUploader(tmp_path, OSError("busy"))
    with FsStateChangelogStorage(
        JOB, options(tmp_path, next_attempt_delay_ms=1), uploader=uploader
    ) as storage:
        writer = storage.create_writer("operator", ALL)
        writer.append(5, b"one")
        writer.append(9, b"two")
        handle = writer.persist(ZERO, 1).result(30).job_manager_owned_snapshot
        changes = storage.create_reader().get_changes(handle)
        assert [(each.key_group, each.change) for each in changes] == [(5, b"one"), (9, b"two")]
        writer.close()
    assert uploader.closed


def test_an_error_that_is_no_io_error_fails_the_upload_and_keeps_the_changes(
    tmp_path: Path,
) -> None:
    uploader = PlainUploader(tmp_path, ValueError("no"))
    with FsStateChangelogStorage(JOB, options(tmp_path), uploader=uploader) as storage:
        writer = storage.create_writer("operator", ALL)
        writer.append(5, b"one")
        with pytest.raises(UploadFailedError, match="no"):
            writer.persist(ZERO, 1).result(30)
        handle = writer.persist(ZERO, 2).result(30).job_manager_owned_snapshot
        assert [each.change for each in storage.create_reader().get_changes(handle)] == [b"one"]
        writer.close()


@pytest.mark.parametrize("tracked", [True, False])
def test_files_of_ones_own_uploader_go_only_if_they_are_tracked(
    tmp_path: Path, tracked: bool
) -> None:
    uploader = PlainUploader(tmp_path)
    with FsStateChangelogStorage(JOB, options(tmp_path), uploader=uploader) as storage:
        writer = storage.create_writer("operator", ALL)
        writer.append(5, b"one")
        writer.persist(ZERO, 1).result(30)
        if tracked:
            for handle, sets in uploader.sets.items():
                storage.registry.start_tracking(handle, sets)
        writer.truncate(writer.next_sequence_number())
        writer.close()
    assert len(list(tmp_path.iterdir())) == (0 if tracked else 1)


def test_a_scheduler_of_ones_own_gives_each_task_its_outcome(tmp_path: Path) -> None:
    schedulers: list[CountingScheduler] = []

    def counting(uploader: StateChangeUploader) -> CountingScheduler:
        schedulers.append(CountingScheduler(uploader))
        return schedulers[-1]

    uploader = PlainUploader(tmp_path, OSError("busy"))
    with FsStateChangelogStorage(
        JOB, options(tmp_path), uploader=uploader, scheduler=counting
    ) as storage:
        writer = storage.create_writer("operator", ALL)
        assert storage.get_availability_provider().is_available()
        writer.append(5, b"one")
        with pytest.raises(UploadFailedError, match="busy"):
            writer.persist(ZERO, 1).result(30)
        handle = writer.persist(ZERO, 2).result(30).job_manager_owned_snapshot
        assert [each.change for each in storage.create_reader().get_changes(handle)] == [b"one"]
        writer.close()
    [scheduler] = schedulers
    assert scheduler.outcomes == ["failed", "complete"]
    assert uploader.closed


def test_a_scheduler_of_ones_own_uploads_with_the_products_uploader_and_copies(
    tmp_path: Path,
) -> None:
    copies = LocalRecoveryConfig([tmp_path / "disk"])
    with FsStateChangelogStorage(
        JOB, options(tmp_path / "base"), local_recovery=copies, scheduler=CountingScheduler
    ) as storage:
        writer = storage.create_writer("operator", ALL)
        writer.append(5, b"one")
        result = writer.persist(ZERO, 1).result(30)
        assert result.task_local_snapshot is not None
        assert len(list((tmp_path / "disk").rglob("taskowned/*"))) == 1
        writer.close()
