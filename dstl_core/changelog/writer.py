"""The changelog writer: append, persist, confirm, reset, truncate.

Source: ``FsStateChangelogWriter`` of Flink 2.2.1, whose hazards are fixed. The changes of a failed
upload are kept, and a later persist uploads them again. Closing completes every pending future.
Misuse is an error.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING
from uuid import UUID

from dstl_core.changelog.change_buffer import ChangeBuffer, check_key_group, check_payload
from dstl_core.changelog.change_set import StateChangeSet
from dstl_core.changelog.inbox import Mailbox, UploadInbox
from dstl_core.changelog.ledger import ChangeSetLedger, FsSnapshotResult, Sets, UploadOutcome
from dstl_core.changelog.owning_thread import check_owning_thread
from dstl_core.changelog.persist import PersistFuture
from dstl_core.changelog.registry import LocalChangelogRegistry, TaskChangelogRegistry
from dstl_core.changelog.upload.scheduler import StateChangeUploadScheduler
from dstl_core.changelog.upload.task import UploadTask
from dstl_core.closing import Closing
from dstl_core.errors import (
    BackpressureTimeoutError,
    ChangelogError,
    ChangesTruncatedError,
    UploadFailedError,
    WriterClosedError,
)
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.handle import ChangelogStateHandleStream
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber, number_of
from dstl_core.scheduling import Scheduler, ThreadScheduler

if TYPE_CHECKING:
    from dstl_core.changelog.columnar_sets import KeyGroupColumn, ValueColumn
    from dstl_core.codec.columnar.changes.sets import ChangeColumns

_LOG = logging.getLogger(__name__)

_DRAIN_NOW = -1

FsPersistFuture = PersistFuture[ChangelogStateHandleStream]


@dataclass(slots=True)
class _PersistRequest:
    """A persist that waits for ``missing`` sequence numbers of its range ``[from_, to)``."""

    from_: int
    to: int
    checkpoint_id: int
    future: FsPersistFuture
    missing: set[int]


class FsStateChangelogWriter(Closing):
    """Writes the changes of one backend to segment files.

    The thread that made it owns it. Uploads finish on other threads, which put the outcome into an
    inbox. The owner drains the inbox.

    Invariants:
        1. A change is in exactly one of the active buffer and the ledger; or it is truncated.
        2. Every known number is below ``_active``.
        3. Every future completes: with a result, an upload's error, a truncation, or the close.
        4. Callbacks run after all bookkeeping, so they may call any method.

    Args:
        log_id: Identifies this writer among the writers of a file.
        preemptive_persist_threshold: Size of the active changes that starts an upload.
        mailbox: Runs ``drain`` after an upload has ended.
        threads: Lets the owner wait.
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
        local_registry: LocalChangelogRegistry = LocalChangelogRegistry.NO_OP,
        threads: Scheduler | None = None,
    ) -> None:
        self._log_id = log_id
        self._key_group_range = key_group_range
        self._scheduler = scheduler
        self._threshold = preemptive_persist_threshold
        self._ledger = ChangeSetLedger(
            key_group_range, registry, local_registry, scheduler.open_account()
        )
        self._owner = get_ident()
        self._inbox = UploadInbox(
            threads if threads is not None else ThreadScheduler(),
            arrived=self._leave_fast_path,
            drain=self.drain,
            mailbox=mailbox,
            settle_late=self._ledger.settle_late,
        )
        self._ended: deque[
            tuple[FsPersistFuture, FsSnapshotResult | None, BaseException | None]
        ] = deque()
        self._active = 0
        self._buffer = ChangeBuffer()
        self._appends = self._buffer.appends
        self._active_size = 0
        # The size at which append leaves its fast path: the threshold, or at once when something
        # has arrived. Set by uploading threads too.
        self._limit = preemptive_persist_threshold
        self._requests: list[_PersistRequest] = []
        self._closed = False

    # ------------------------------------------------------------------------------ append

    def append(self, key_group: int, value: bytes) -> None:
        """Appends one change. It starts an upload, without waiting, at the threshold.

        Raises:
            ChangelogError: The key group is not in the writer's range, or the thread is not the
                writer's.
            BackpressureTimeoutError: Uploads did not catch up. The change was not appended;
                earlier changes are kept. Append it again later.
            WriterClosedError: The writer is closed.
        """
        # Compared here, because one more call costs more than the comparison.
        if get_ident() != self._owner:
            check_owning_thread(self._owner)
        if value.__class__ is not bytes:
            value = check_payload(value)
        # One look-up finds the group's list and checks the range; nothing is packed here.
        try:
            self._appends[key_group](value)
        except KeyError:
            self._open_group(key_group)(value)
        self._active_size += len(value)
        if self._active_size >= self._limit:
            self._after_append(key_group, len(value))

    def append_meta(self, value: bytes) -> None:
        """Appends one metadata change. Readers see it before the data of its set. Raises the errors
        of ``append``.
        """
        self._check_usable("append to")
        value = check_payload(value)
        self._buffer.append_meta(value)
        self._active_size += len(value)
        if self._active_size >= self._limit:
            self._after_append(META_KEY_GROUP, len(value))

    def append_batch(self, key_groups: KeyGroupColumn, values: ValueColumn) -> None:
        """Appends the changes of two columns in order.

        The bytes on disk are those of one ``append`` per change, cut at the same change where the
        threshold is reached.

        Args:
            key_groups: ``[n]`` integers: NumPy, Arrow, or a list.
            values: ``[n]`` byte strings: Arrow binary of any kind, a NumPy matrix of uint8 with
                one value a row, or a list of bytes. The writer keeps no reference to it.

        Raises:
            ConfigError: The columns are wrong; nothing was appended.
            BackpressureTimeoutError: Uploads did not catch up. ``context["appended"]`` is the
                number of changes of the batch that were appended.
            WriterClosedError: The writer is closed.
        """
        from dstl_core.changelog.columnar_sets import change_columns

        self._check_usable("append to")
        appended = 0
        for columns in change_columns(key_groups, values, self._key_group_range):
            self._append_columns(columns, appended)
            appended += len(columns)
        self._drain_if_due()

    def _append_columns(self, columns: ChangeColumns, before: int) -> None:
        start, end = 0, len(columns)
        while start < end:
            stop = columns.stop_at(start, self._threshold - self._active_size)
            if stop > end:
                # The rest stays in memory: it must not keep the whole batch alive with it.
                rest = columns.slice(start, end).compact()
                self._buffer.add_columns(rest)
                self._active_size += rest.size
                return
            part = columns.slice(start, stop)
            self._buffer.add_columns(part)
            self._active_size += part.size
            try:
                self._flush()
            except BackpressureTimeoutError as error:
                self._buffer.take_back_columns()
                self._active_size -= part.size
                self._run_ended()
                error.context["appended"] = before + start
                raise
            start = stop

    def _open_group(self, key_group: int) -> Callable[[bytes], None]:
        self._check_usable("append to")
        number = check_key_group(key_group, self._key_group_range)
        # An integer of another type may look like none that is open.
        return self._appends.get(number) or self._buffer.open_group(number)

    def _after_append(self, key_group: int, size: int) -> None:
        if self._active_size >= self._threshold:
            try:
                self._flush()
            except BackpressureTimeoutError:
                self._buffer.take_back(int(key_group))
                self._active_size -= size
                self._run_ended()
                raise
        self._drain_if_due()

    def _drain_if_due(self) -> None:
        if self._limit == _DRAIN_NOW or self._ended:
            self.drain()

    def _flush(self) -> None:
        """Uploads the active changes, and older sets that were not persisted yet."""
        # Failed sets are uploaded, too. Callbacks wait: their appends must not come between the
        # caller's change and its removal.
        self._take_all()
        buffer, size = self._buffer, self._active_size
        self._rollover()
        try:
            self._submit(0)
        except BackpressureTimeoutError:
            # The set is opened again, so that its last append can be undone.
            self._active -= 1
            self._ledger.take_back(self._active)
            self._activate(buffer, size)
            raise

    # -------------------------------------------------------------------- sequence numbers

    def initial_sequence_number(self) -> SequenceNumber:
        check_owning_thread(self._owner)
        return SequenceNumber(0)

    def next_sequence_number(self) -> SequenceNumber:
        """Closes the active set; returns the sequence number of the next change."""
        self._check_usable("use")
        self.drain()
        self._check_usable("use")
        self._rollover()
        return SequenceNumber(self._active)

    def _rollover(self) -> None:
        if not self._buffer:
            return
        self._ledger.add(
            StateChangeSet.of_encoded(
                self._log_id,
                SequenceNumber(self._active),
                self._buffer.encode(self._key_group_range),
                self._active_size,
            )
        )
        self._active += 1
        self._activate(ChangeBuffer(), 0)

    def _activate(self, buffer: ChangeBuffer, size: int) -> None:
        self._buffer = buffer
        self._appends = buffer.appends
        self._active_size = size

    # ----------------------------------------------------------------------------- persist

    def persist(self, from_sqn: SequenceNumber, checkpoint_id: int) -> FsPersistFuture:
        """Makes all changes from ``from_sqn`` on durable.

        Sets that are uploaded or in progress are not uploaded again. Failed sets are.

        Raises:
            ChangesTruncatedError: The changes were truncated.
            ChangelogError: The changes were not appended yet.
            BackpressureTimeoutError: The upload found no room; all changes are kept.
        """
        self._check_usable("persist")
        self.drain()
        self._check_usable("persist")
        from_ = number_of(from_sqn)
        if from_ < self._ledger.lowest:
            raise ChangesTruncatedError(
                f"Requested changes were truncated (requested: {from_sqn}, "
                f"truncated: {self._ledger.lowest}).",
                checkpoint_id=checkpoint_id,
            )
        if from_ > self._active:
            raise ChangelogError(
                f"Requested changes were not yet appended (requested: {from_sqn}, "
                f"appended: {self._active}).",
                checkpoint_id=checkpoint_id,
            )
        self._rollover()
        future = FsPersistFuture(self)
        to = self._active
        missing = self._ledger.missing(from_, to)
        request = _PersistRequest(from_, to, checkpoint_id, future, missing)
        if not missing:
            future.finish(self._snapshot(request), None)
            return future
        # At once, so that no confirm of an earlier checkpoint deletes them meanwhile.
        self._ledger.use_local_copies(from_, to, checkpoint_id)
        self._requests.append(request)
        try:
            self._submit(from_)
        except BaseException:
            self._requests.remove(request)
            raise
        self.drain()
        return future

    def _submit(self, from_: int) -> None:
        """Uploads all sets from a number on that are neither uploaded nor in progress."""
        # Failed sets go apart: their bytes are counted already, so they never wait for room that
        # only they could make.
        self._upload(self._ledger.start_failed(from_), kept=True)
        self._upload(self._ledger.start_waiting(from_), kept=False)

    def _upload(self, sets: Sets, *, kept: bool) -> None:
        if not sets:
            return
        change_sets = list(sets.values())
        task = UploadTask(
            change_sets,
            lambda results: self._inbox.put(UploadOutcome(change_sets, results, None)),
            lambda numbers, error: self._inbox.put(UploadOutcome(change_sets, [], error)),
            account=self._ledger.account,
            kept=kept,
        )
        try:
            self._scheduler.upload(task)
        except BackpressureTimeoutError:
            self._ledger.not_started(sets, kept)
            raise
        except BaseException as error:
            task.fail(error)
            raise

    # --------------------------------------------------------------------- upload outcomes

    def _leave_fast_path(self) -> None:
        """Runs on an uploading thread."""
        self._limit = _DRAIN_NOW

    def drain(self) -> None:
        """Handles finished uploads: completes futures and runs their callbacks."""
        if self._closed:
            return
        check_owning_thread(self._owner)
        self._take_all()
        self._run_ended()

    def _take_all(self) -> None:
        self._limit = self._threshold
        while (outcome := self._inbox.take()) is not None:
            self._take(outcome)

    def _run_ended(self) -> None:
        # After all bookkeeping, because callbacks may call any method of this writer.
        while self._ended:
            future, result, error = self._ended.popleft()
            future.finish(result, error)

    def wait_for(self, done: threading.Event, timeout_s: float | None) -> None:
        """Waits for an event; on the owner's thread by draining until it is set."""
        is_owner = get_ident() == self._owner
        if not (self._inbox.wait_for(done, timeout_s) if is_owner else done.wait(timeout_s)):
            raise TimeoutError(f"A persist is not done after {timeout_s} s.")

    def _take(self, outcome: UploadOutcome) -> None:
        error = self._ledger.settle(outcome)
        if error is not None:
            self._fail_requests(
                [each.sequence_number.number for each in outcome.change_sets], error
            )
        for request in list(self._requests):
            request.missing -= self._ledger.arrived(request.missing)
            if not request.missing:
                self._requests.remove(request)
                self._ended.append((request.future, self._snapshot(request), None))

    def _fail_requests(self, numbers: list[int], error: BaseException) -> None:
        failed = [each for each in self._requests if not each.missing.isdisjoint(numbers)]
        if not failed:
            _LOG.warning("an upload failed; its changes are kept: error=%s", error)
        for request in failed:
            failure = UploadFailedError(
                f"The upload of changes {min(numbers)}..{max(numbers)} failed ({error}); they "
                f"are kept, and the next persist uploads them again.",
                checkpoint_id=request.checkpoint_id,
            )
            failure.__cause__ = error
            self._end(request, failure)

    def _end(self, request: _PersistRequest, error: BaseException) -> None:
        self._requests.remove(request)
        self._ended.append((request.future, None, error))

    def _snapshot(self, request: _PersistRequest) -> FsSnapshotResult:
        self._ledger.use_local_copies(request.from_, request.to, request.checkpoint_id)
        return self._ledger.snapshot(request.from_, request.to)

    # ------------------------------------------------------------- what a checkpoint decides

    def confirm(self, from_sqn: SequenceNumber, to_sqn: SequenceNumber, checkpoint_id: int) -> None:
        """Confirms a completed checkpoint: it owns the files of ``[from_sqn, to_sqn)`` from now on.

        It deletes local copies that only older checkpoints use.

        Raises:
            ChangelogError: The range is invalid, or part of it was not persisted.
        """
        self._check_usable("confirm")
        self.drain()
        from_, to = number_of(from_sqn), number_of(to_sqn)
        if not from_ <= to <= self._active:
            raise ChangelogError(
                f"Invalid confirm range: [{from_sqn},{to_sqn}), active sqn: {self._active}.",
                checkpoint_id=checkpoint_id,
            )
        self._ledger.confirm(from_, to, checkpoint_id)

    def reset(self, from_sqn: SequenceNumber, to_sqn: SequenceNumber, checkpoint_id: int) -> None:
        """Handles an aborted checkpoint. Its changes stay uploaded, and the next checkpoint has
        them. It deletes local copies that only this and older checkpoints use.
        """
        self._check_usable("reset")
        self.drain()
        self._ledger.discard_local_copies(checkpoint_id + 1)

    def truncate(self, to: SequenceNumber) -> None:
        """Drops all changes below ``to`` and releases their files. Persists that wait for them
        fail.

        Raises:
            ChangelogError: ``to`` is above the start of the active set, or below an earlier bound.
        """
        self._check_usable("truncate")
        self.drain()
        lowest, number = self._ledger.lowest, number_of(to)
        if not lowest <= number <= self._active:
            raise ChangelogError(
                f"A changelog cannot be truncated to {to}: expected {lowest}..{self._active}."
            )
        self._ledger.truncate(number)
        for request in [each for each in self._requests if each.from_ < number]:
            failure = ChangesTruncatedError(
                f"The changes from {request.from_} were truncated to {to} before they were "
                f"durable.",
                checkpoint_id=request.checkpoint_id,
            )
            self._end(request, failure)
        self._run_ended()

    def truncate_and_close(self, from_: SequenceNumber) -> None:
        """Releases the files of all changes from ``from_`` on, then closes the writer."""
        if self._closed:
            return
        check_owning_thread(self._owner)
        number = number_of(from_)
        self.drain()
        self._ledger.release_from(number)
        self.close()

    def close(self) -> None:
        """Closes the writer. Pending futures fail. Files that no handle references are released,
        also those of uploads that end later.
        """
        if self._closed:
            return
        check_owning_thread(self._owner)
        self.drain()
        self._closed = True
        for outcome in self._inbox.close():
            self._ledger.settle_late(outcome)
        self._ledger.close()
        self._activate(ChangeBuffer(), 0)
        for request in list(self._requests):
            failure = WriterClosedError(
                "The changelog writer was closed before the persist ended.",
                checkpoint_id=request.checkpoint_id,
            )
            self._end(request, failure)
        self._run_ended()

    def _check_usable(self, verb: str) -> None:
        if self._closed:
            raise WriterClosedError(f"Cannot {verb} a changelog writer that is closed.")
        check_owning_thread(self._owner)
