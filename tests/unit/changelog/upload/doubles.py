"""Uploaders and tasks for tests of schedulers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from dstl_core.changelog.change_set import StateChangeSet
from dstl_core.changelog.upload import UploadResult, UploadTask, UploadTasksResult
from dstl_core.model.change import StateChange
from dstl_core.model.handle import FileStateHandle
from dstl_core.model.sequence import SequenceNumber
from dstl_core.testing import ManualScheduler


def change_set(size: int, *, log: int = 0, number: int = 0) -> StateChangeSet:
    return StateChangeSet(UUID(int=log), SequenceNumber(number), [StateChange(0, bytes(size))])


class Outcomes:
    """Tasks, and how each ended: its results, or its error."""

    def __init__(self) -> None:
        self.results: dict[UploadTask, list[UploadResult]] = {}
        self.errors: dict[UploadTask, BaseException] = {}
        self.numbers: dict[UploadTask, list[SequenceNumber]] = {}

    def task(self, *sizes: int, callback: Callable[[], None] = lambda: None) -> UploadTask:
        def succeeded(results: list[UploadResult]) -> None:
            callback()
            assert task not in self.results
            self.results[task] = results

        def failed(numbers: list[SequenceNumber], error: BaseException) -> None:
            callback()
            assert task not in self.errors
            self.errors[task] = error
            self.numbers[task] = numbers

        sets = [change_set(size, number=number) for number, size in enumerate(sizes)]
        task = UploadTask(sets, succeeded, failed)
        return task


class ScriptedUploader:
    """Remembers batches; each upload takes its next step: an error, or so many milliseconds."""

    def __init__(self, threads: ManualScheduler, *steps: BaseException | int) -> None:
        self._threads = threads
        self._steps = list(steps)
        self.batches: list[list[int]] = []
        """Sizes of the tasks of each upload that began."""
        self.discarded: list[str] = []
        self.closed = 0

    def upload(self, tasks: Sequence[UploadTask]) -> UploadTasksResult:
        self.batches.append([task.size for task in tasks])
        name = f"memory://file-{len(self.batches)}"
        step = self._steps.pop(0) if self._steps else 0
        if isinstance(step, BaseException):
            raise step
        if step:
            self._threads.pause(step)
        offsets = {task: dict.fromkeys(task.change_sets, (0, 0)) for task in tasks}
        return UploadTasksResult(
            offsets,
            FileStateHandle(name, 1),
            discard_handle=lambda handle: self.discarded.append(handle.path),
        )

    def close(self) -> None:
        self.closed += 1
