"""The changelog writer: append, persist, confirm, reset, truncate.

Source: ``FsStateChangelogWriter`` of Flink 2.2.1, whose hazards are fixed: a failed upload is kept
and uploaded again by a later persist, and closing ends every pending future.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from dstl_core.changelog.registry import TaskChangelogRegistry
from dstl_core.changelog.upload.scheduler import StateChangeUploadScheduler
from dstl_core.changelog.upload.task import UploadResult, UploadTask
from dstl_core.errors import ChangelogError, UploadFailedError, WriterClosedError
from dstl_core.model.change import META_KEY_GROUP, StateChange, StateChangeSet
from dstl_core.model.handle import ChangelogStateHandleStream
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber

_LOG = logging.getLogger(__name__)

_STORAGE_IDENTIFIER = "filesystem"

Mailbox = Callable[[Callable[[], None]], object]
"""Runs a function on the writer's thread, some time later (``executor.submit`` of its loop)."""


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """What a persist gives: the handle that a checkpoint keeps."""

    job_manager_owned_snapshot: ChangelogStateHandleStream


class PersistFuture:
    """The result of one persist.

    It is completed on the writer's own thread only, while that thread drains (in append, persist,
    next_sequence_number, drain, and ``result`` here). Another thread's ``result`` waits.
    """

    def __init__(self, writer: FsStateChangelogWriter) -> None:
        self._writer = writer
        self._done = threading.Event()
        self._result: SnapshotResult | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[PersistFuture], None]] = []

    def done(self) -> bool:
        return self._done.is_set()

    def result(self, timeout_s: float | None = None) -> SnapshotResult:
        """Waits for the uploads.

        Raises:
            UploadFailedError: An upload failed; its changes are kept for the next persist.
            WriterClosedError: The writer was closed first.
            TimeoutError: Not done in time; the upload goes on.
        """
        self._writer.wait_for(self._done, timeout_s)
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise InvalidStateError("a persist ended without a result")
        return self._result

    def exception(self) -> BaseException | None:
        """The error, if it is done and failed."""
        return self._error

    def add_done_callback(self, callback: Callable[[PersistFuture], None]) -> None:
        """Calls back on the writer's thread; at once if it is done. It may call the writer."""
        if self.done():
            callback(self)
        else:
            self._callbacks.append(callback)

    def finish(self, result: SnapshotResult | None, error: BaseException | None) -> None:
        """Ends the future; called by its writer. A callback that raises stops nobody."""
        self._result, self._error = result, error
        self._done.set()
        for callback in self._callbacks:
            try:
                callback(self)
            except Exception:
                _LOG.exception("a callback of a persist failed")


@dataclass(slots=True, eq=False)
class _PersistRequest:
    """A persist that waits for ``missing`` sequence numbers of its range ``[from_, to)``."""

    from_: int
    to: int
    future: PersistFuture
    missing: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Uploaded:
    results: list[UploadResult]


@dataclass(frozen=True, slots=True)
class _Failed:
    numbers: list[SequenceNumber]
    error: BaseException


class FsStateChangelogWriter:
    """Writes the changes of one backend to segment files.

    Owned by the thread that made it; no method is thread-safe. Uploads finish on other threads and
    only put their outcome into a queue, which the owner drains.

    Invariants:
        1. A change is in exactly one of: the active set, ``_not_uploaded``, ``_in_flight``,
           ``_uploaded``; or it is truncated.
        2. A set leaves ``_not_uploaded`` only into an upload, and comes back if that fails.
        3. ``_lowest <= every known number < _active``; ``_lowest`` never goes back.
        4. Every future ends: with a result, an upload's error, or the writer's close.
    """

    def __init__(
        self,
        log_id: UUID,
        key_group_range: KeyGroupRange,
        scheduler: StateChangeUploadScheduler,
        registry: TaskChangelogRegistry,
        *,
        preemptive_persist_threshold: int,
        mailbox: Mailbox | None = None,
    ) -> None:
        self._log_id = log_id
        self._key_group_range = key_group_range
        self._scheduler = scheduler
        self._registry = registry
        self._threshold = preemptive_persist_threshold
        self._mailbox = mailbox
        self._owner = threading.get_ident()
        self._inbox: queue.SimpleQueue[_Uploaded | _Failed] = queue.SimpleQueue()
        self._active = 0
        self._lowest = 0
        self._active_changes: list[StateChange] = []
        self._active_size = 0
        self._not_uploaded: dict[int, StateChangeSet] = {}
        self._in_flight: dict[int, StateChangeSet] = {}
        self._uploaded: dict[int, UploadResult] = {}
        self._reported: set[int] = set()
        self._requests: list[_PersistRequest] = []
        self._closed = False

    # ------------------------------------------------------------------------------ append

    def append(self, key_group: int, value: bytes) -> None:
        """Adds one change; uploads without waiting once the active set reaches the threshold.

        Raises:
            ChangelogError: The key group is not in the writer's range.
        """
        if not self._key_group_range.contains(key_group):
            raise ChangelogError(
                f"A change is outside its writer's key groups: expected "
                f"{self._key_group_range}, got {key_group}.",
                key_group=key_group,
            )
        self._append(StateChange(key_group, value))

    def append_meta(self, value: bytes) -> None:
        """Adds one metadata change; readers see it before the data of its set."""
        self._append(StateChange(META_KEY_GROUP, value))

    def _append(self, change: StateChange) -> None:
        self._check_open("append to")
        self._active_changes.append(change)
        self._active_size += len(change.change)
        if self._active_size >= self._threshold:
            self._rollover()
            self._upload(min(self._not_uploaded))
            self.drain()

    def initial_sequence_number(self) -> SequenceNumber:
        return SequenceNumber(0)

    def next_sequence_number(self) -> SequenceNumber:
        """Closes the active set and returns the number that the next change gets."""
        self._check_open("use")
        self.drain()
        self._rollover()
        return SequenceNumber(self._active)

    def _rollover(self) -> None:
        if not self._active_changes:
            return
        self._not_uploaded[self._active] = StateChangeSet(
            self._log_id,
            SequenceNumber(self._active),
            tuple(self._active_changes),
            self._active_size,
        )
        self._active += 1
        self._active_changes = []
        self._active_size = 0

    # ----------------------------------------------------------------------------- persist

    def persist(self, from_sqn: SequenceNumber, checkpoint_id: int) -> PersistFuture:
        """Makes all changes from ``from_sqn`` on durable.

        Sets that are uploaded or on their way are not uploaded again; failed ones are.

        Raises:
            ChangelogError: The changes were truncated, or are not yet appended.
        """
        self._check_open("persist")
        self.drain()
        if from_sqn.number < self._lowest:
            raise ChangelogError(
                f"Requested changes were truncated (requested: {from_sqn}, "
                f"truncated: {self._lowest}).",
                checkpoint_id=checkpoint_id,
            )
        if from_sqn.number > self._active:
            raise ChangelogError(
                f"Requested changes were not yet appended (requested: {from_sqn}, "
                f"appended: {self._active}).",
                checkpoint_id=checkpoint_id,
            )
        self._rollover()
        request = _PersistRequest(from_sqn.number, self._active, PersistFuture(self))
        wanted = range(request.from_, request.to)
        request.missing = {number for number in wanted if number not in self._uploaded}
        if not request.missing:
            self._complete(request)
            return request.future
        self._requests.append(request)
        self._upload(from_sqn.number)
        self.drain()
        return request.future

    def _upload(self, from_: int) -> None:
        numbers = sorted(number for number in self._not_uploaded if number >= from_)
        if not numbers:
            return
        sets = [self._not_uploaded.pop(number) for number in numbers]
        self._in_flight.update(zip(numbers, sets, strict=True))
        task = UploadTask(
            sets,
            on_success=lambda results: self._deliver(_Uploaded(results)),
            on_failure=lambda numbers, error: self._deliver(_Failed(numbers, error)),
        )
        try:
            self._scheduler.upload(task)
        except BaseException as error:
            task.fail(error)
            raise

    def _deliver(self, outcome: _Uploaded | _Failed) -> None:
        """Runs on an uploading thread."""
        self._inbox.put(outcome)
        if self._mailbox is not None:
            try:
                self._mailbox(self.drain)
            except Exception:
                # The outcome is in the inbox; a mailbox that refuses only delays it.
                _LOG.exception("a mailbox refused to drain its writer")

    def drain(self) -> None:
        """Takes over what uploads have finished. Completes futures, runs their callbacks."""
        while True:
            try:
                outcome = self._inbox.get_nowait()
            except queue.Empty:
                return
            self._take(outcome)

    def wait_for(self, done: threading.Event, timeout_s: float | None) -> None:
        """Waits for an event; on the owner's thread by draining until it is set."""
        if threading.get_ident() != self._owner:
            if not done.wait(timeout_s):
                raise TimeoutError(f"A persist is not done after {timeout_s} s.")
            return
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not done.is_set():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                self._take(self._inbox.get(timeout=left))
            except queue.Empty:
                raise TimeoutError(f"A persist is not done after {timeout_s} s.") from None

    def _take(self, outcome: _Uploaded | _Failed) -> None:
        match outcome:
            case _Uploaded(results):
                self._take_results(results)
            case _Failed(numbers, error):
                self._take_failure([number.number for number in numbers], error)

    def _take_results(self, results: list[UploadResult]) -> None:
        arrived = set()
        for result in results:
            number = result.sequence_number.number
            self._in_flight.pop(number, None)
            if self._closed or number < self._lowest:
                self._registry.release(result.handle)
                continue
            self._uploaded[number] = result
            arrived.add(number)
        for request in self._requests:
            request.missing -= arrived
        # One at a time, looked up anew: a callback may truncate, persist or close.
        while ready := next((each for each in self._requests if not each.missing), None):
            self._requests.remove(ready)
            self._complete(ready)

    def _take_failure(self, numbers: list[int], error: BaseException) -> None:
        for number in numbers:
            change_set = self._in_flight.pop(number, None)
            if change_set is not None and number >= self._lowest and not self._closed:
                self._not_uploaded[number] = change_set
        for request in self._take_out(lambda each: not each.missing.isdisjoint(numbers)):
            failure = UploadFailedError(
                f"The upload of changes {min(numbers)}..{max(numbers)} failed ({error}); they "
                f"are kept, and the next persist uploads them again."
            )
            failure.__cause__ = error
            request.future.finish(None, failure)

    def _take_out(self, wanted: Callable[[_PersistRequest], bool]) -> list[_PersistRequest]:
        """Removes and returns pending requests, before any of their callbacks runs."""
        taken = [request for request in self._requests if wanted(request)]
        self._requests = [request for request in self._requests if request not in taken]
        return taken

    def _complete(self, request: _PersistRequest) -> None:
        results = [self._uploaded[number] for number in range(request.from_, request.to)]
        new = [each for each in results if each.sequence_number.number not in self._reported]
        self._reported.update(each.sequence_number.number for each in new)
        handle = ChangelogStateHandleStream(
            tuple((each.handle, each.offset) for each in results),
            self._key_group_range,
            sum(each.size for each in results),
            sum(each.size for each in new),
            str(uuid4()),
            _STORAGE_IDENTIFIER,
        )
        request.future.finish(SnapshotResult(handle), None)

    # ------------------------------------------------------------- what a checkpoint decides

    def confirm(self, from_sqn: SequenceNumber, to_sqn: SequenceNumber, checkpoint_id: int) -> None:
        """The checkpoint is complete: files of ``[from_sqn, to_sqn)`` belong to it now."""
        self._check_open("confirm")
        self.drain()
        if not from_sqn <= to_sqn or to_sqn.number > self._active:
            raise ChangelogError(
                f"Invalid confirm range: [{from_sqn},{to_sqn}), active sqn: {self._active}.",
                checkpoint_id=checkpoint_id,
            )
        for number in range(from_sqn.number, to_sqn.number):
            result = self._uploaded.get(number)
            if result is not None:
                self._registry.stop_tracking(result.handle)

    def reset(self, from_sqn: SequenceNumber, to_sqn: SequenceNumber, checkpoint_id: int) -> None:
        """The checkpoint was aborted. Nothing is rolled back: its changes stay uploaded and are
        part of the next checkpoint.
        """
        self._check_open("reset")
        self.drain()

    def truncate(self, to: SequenceNumber) -> None:
        """Forgets all changes below ``to``; releases their files. Persists that wait for any of
        them fail, since their handle would name files that are gone.

        Raises:
            ChangelogError: ``to`` lies above what was rolled over, or below an earlier bound.
        """
        self._check_open("truncate")
        self.drain()
        if not self._lowest <= to.number <= self._active:
            raise ChangelogError(
                f"A changelog cannot be truncated to {to}: expected {self._lowest}..{self._active}."
            )
        self._lowest = to.number
        for number in [each for each in self._not_uploaded if each < to.number]:
            del self._not_uploaded[number]
        self._release([number for number in self._uploaded if number < to.number])
        for request in self._take_out(lambda each: each.from_ < to.number):
            failure = ChangelogError(
                f"The changes from {request.from_} were truncated to {to} before they were durable."
            )
            request.future.finish(None, failure)

    def truncate_and_close(self, from_: SequenceNumber) -> None:
        """Releases the files of all changes from ``from_`` on, then closes."""
        if not self._closed:
            self.drain()
            self._release([number for number in self._uploaded if number >= from_.number])
        self.close()

    def _release(self, numbers: list[int]) -> None:
        for number in numbers:
            self._registry.release(self._uploaded.pop(number).handle)
            self._reported.discard(number)

    def close(self) -> None:
        """Ends the writer. Pending futures fail; files of late uploads are released."""
        if self._closed:
            return
        self._closed = True
        self._active_changes = []
        self._not_uploaded.clear()
        self._uploaded.clear()
        for request in self._take_out(lambda _: True):
            request.future.finish(
                None, WriterClosedError("The changelog writer was closed before the persist ended.")
            )
        self.drain()

    def _check_open(self, verb: str) -> None:
        if self._closed:
            raise WriterClosedError(f"Cannot {verb} a changelog writer that is closed.")
