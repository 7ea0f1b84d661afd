"""The direct scheduler: every task ends exactly once, on the caller's thread."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from dstl_core.changelog.upload import StateChangeUploadScheduler, UploadTask
from dstl_core.changelog.upload.task import UploadTasksResult
from dstl_core.errors import StorageError, WriterClosedError


class FailingUploader:
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.closed = 0

    def upload(self, tasks: Sequence[UploadTask]) -> UploadTasksResult:
        raise self.error

    def close(self) -> None:
        self.closed += 1


class Outcomes:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def task(self) -> UploadTask:
        return UploadTask([], self.seen.append, lambda _, error: self.seen.append(error))


@pytest.mark.parametrize("error", [StorageError("no disk"), RuntimeError("a bug"), KeyError(UUID)])
def test_whatever_an_uploader_raises_is_the_tasks_outcome(error: Exception) -> None:
    outcomes = Outcomes()
    StateChangeUploadScheduler.direct_scheduler(FailingUploader(error)).upload(outcomes.task())
    assert outcomes.seen == [error]


def test_after_the_close_tasks_fail_and_the_uploader_is_closed_once() -> None:
    uploader = FailingUploader(RuntimeError("not reached"))
    scheduler = StateChangeUploadScheduler.direct_scheduler(uploader)
    scheduler.close()
    scheduler.close()
    assert uploader.closed == 1
    outcomes = Outcomes()
    scheduler.upload(outcomes.task())
    [error] = outcomes.seen
    assert isinstance(error, WriterClosedError)


def test_the_first_outcome_of_a_task_wins() -> None:
    outcomes = Outcomes()
    task = outcomes.task()
    assert not task.is_finished
    task.fail(RuntimeError("first"))
    task.complete([])
    task.fail(RuntimeError("second"))
    assert task.is_finished
    assert [str(each) for each in outcomes.seen] == ["first"]
