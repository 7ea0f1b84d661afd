"""Bugs to plant in the changelog: the model has to find each of them.

Every function takes a ``pytest.MonkeyPatch`` and breaks one mechanism of the real code.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dstl_core.changelog.change_buffer import ChangeBuffer
from dstl_core.changelog.ledger import ChangeSetLedger
from dstl_core.changelog.registry import TaskChangelogRegistry
from dstl_core.changelog.upload.scheduler import BatchingStateChangeUploadScheduler
from dstl_core.changelog.upload.task import UploadResult, UploadTasksResult
from dstl_core.changelog.upload.throttle import UploadThrottle
from dstl_core.changelog.writer import FsStateChangelogWriter
from dstl_core.errors import StorageError
from dstl_core.testing import FaultyFileIO


def believes_every_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that failed counts as done."""
    real = FaultyFileIO.write_new

    def write_new(self: Any, location: Any, data: Any) -> None:
        try:
            real(self, location, data)
        except StorageError:
            pass

    monkeypatch.setattr(FaultyFileIO, "write_new", write_new)


def forgets_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set whose upload failed is never uploaded again."""
    monkeypatch.setattr(ChangeSetLedger, "start_failed", lambda self, from_: {})


def keeps_what_did_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that was refused for want of room stays appended."""
    monkeypatch.setattr(ChangeBuffer, "take_back", lambda self, key_group: None)


def keeps_a_batch_that_did_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChangeBuffer, "take_back_columns", lambda self: None)


def reports_sets_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handle of a persist names its sets the latest first."""
    real = ChangeSetLedger._handle

    def handle(self: Any, places: Any, *sizes: int) -> Any:
        return real(self, list(places)[::-1], *sizes)

    monkeypatch.setattr(ChangeSetLedger, "_handle", handle)


def reports_more_than_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A persist takes what was appended and uploaded after it."""
    real = FsStateChangelogWriter._snapshot

    def snapshot(self: Any, request: Any) -> Any:
        if request.to in self._ledger._uploaded:
            request.to += 1
        return real(self, request)

    monkeypatch.setattr(FsStateChangelogWriter, "_snapshot", snapshot)


def reports_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second task of a file is said to begin where the first does."""
    real = UploadTasksResult.complete

    def complete(self: Any) -> None:
        first = next(iter(next(iter(self.tasks_offsets.values())).values()))
        for offsets in self.tasks_offsets.values():
            offsets[next(iter(offsets))] = first
        real(self)

    monkeypatch.setattr(UploadTasksResult, "complete", complete)


def truncates_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ChangeSetLedger._forget

    def forget(self: Any, numbers: list[int]) -> None:
        more = [number for number in self._uploaded if number == self.lowest]
        real(self, [*dict.fromkeys([*numbers, *more])])

    monkeypatch.setattr(ChangeSetLedger, "_forget", forget)


def leaves_confirmed_files_to_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that a checkpoint owns is deleted when the writer truncates."""
    monkeypatch.setattr(TaskChangelogRegistry, "stop_tracking", lambda self, handle: None)


def deletes_what_others_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first set that is released takes the file with it."""
    real = TaskChangelogRegistry.start_tracking
    monkeypatch.setattr(
        TaskChangelogRegistry,
        "start_tracking",
        lambda self, handle, references: real(self, handle, 1),
    )


def rolls_back_on_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """An aborted checkpoint takes its changes with it."""

    def reset(self: Any, from_: Any, to: Any, checkpoint_id: int) -> None:
        self.drain()
        self._ledger.release_from(max(self._ledger._uploaded, default=0))

    monkeypatch.setattr(FsStateChangelogWriter, "reset", reset)


def ignores_what_arrives_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a set that was truncated on its way stays for ever."""
    real = ChangeSetLedger.settle

    def settle(self: Any, outcome: Any) -> Any:
        late = [each for each in outcome.results if each.sequence_number.number < self.lowest]
        for result in late:
            self._in_flight.pop(result.sequence_number.number, None)
        kept = [each for each in outcome.results if each not in late]
        return real(self, replace(outcome, results=kept))

    monkeypatch.setattr(ChangeSetLedger, "settle", settle)


def ignores_what_arrives_after_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChangeSetLedger, "settle_late", lambda self, outcome: None)


def keeps_what_came_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of an attempt that another one has beaten stays for ever."""
    monkeypatch.setattr(UploadTasksResult, "discard", lambda self: None)


def leaks_bytes_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed bytes that are given up count on."""
    monkeypatch.setattr(UploadThrottle, "give_up", lambda self, account, size: None)


def admits_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UploadThrottle, "_has_room", lambda self, size, account, kept: True)


def leaves_waiters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A persist that waits for truncated changes is not told."""
    real = FsStateChangelogWriter._end

    def end(self: Any, request: Any, error: Any) -> None:
        if type(error).__name__ == "ChangesTruncatedError":
            self._requests.remove(request)
        else:
            real(self, request, error)

    monkeypatch.setattr(FsStateChangelogWriter, "_end", end)


def fails_the_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that closes takes the uploads of all writers with it."""
    real = FsStateChangelogWriter.close

    def close(self: Any) -> None:
        queue = self._scheduler._queue
        waiting, queue[:] = list(queue), []
        for task in waiting:
            task.fail(StorageError("a neighbour closed"))
        real(self)

    monkeypatch.setattr(FsStateChangelogWriter, "close", close)


def accepts_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A confirm of changes that were never appended goes through."""
    real = FsStateChangelogWriter.confirm

    def confirm(self: Any, from_: Any, to: Any, checkpoint_id: int) -> None:
        if to.number <= self._active:
            real(self, from_, to, checkpoint_id)

    monkeypatch.setattr(FsStateChangelogWriter, "confirm", confirm)


def mixes_up_local_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy on this machine is read from another place than it was written to."""
    real = UploadResult.of

    def of(*arguments: Any) -> Any:
        made = real(*arguments)
        return replace(made, local_offset=0)

    monkeypatch.setattr(UploadResult, "of", of)


def keeps_local_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is released on the remote disk stays on this machine's."""
    real = TaskChangelogRegistry.release

    def release(self: Any, handle: Any) -> None:
        if not handle.path.startswith("file:"):
            real(self, handle)

    monkeypatch.setattr(TaskChangelogRegistry, "release", release)


def loses_the_queue_of_a_closed_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BatchingStateChangeUploadScheduler.close

    def close(self: Any) -> None:
        self._queue = []
        real(self)

    monkeypatch.setattr(BatchingStateChangeUploadScheduler, "close", close)


BUGS = [
    bug
    for bug in vars().copy().values()
    if callable(bug) and getattr(bug, "__module__", None) == __name__
]
