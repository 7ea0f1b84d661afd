"""Tracks where each closed change set of a writer is, and who owns its file.

Source: the maps ``notUploaded`` and ``uploaded`` of Flink 2.2.1's ``FsStateChangelogWriter``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import uuid4

from dstl_core.changelog.change_set import StateChangeSet
from dstl_core.changelog.persist import SnapshotResult
from dstl_core.changelog.registry import LocalChangelogRegistry, TaskChangelogRegistry
from dstl_core.changelog.upload.task import UploadResult
from dstl_core.changelog.upload.throttle import InFlightAccount
from dstl_core.errors import ChangelogError
from dstl_core.model.handle import ChangelogStateHandleStream, FileStateHandle
from dstl_core.model.key_group import KeyGroupRange

STORAGE_IDENTIFIER = "filesystem"

FsSnapshotResult = SnapshotResult[ChangelogStateHandleStream]
Sets = dict[int, StateChangeSet]


@dataclass(frozen=True, slots=True)
class UploadOutcome:
    """The outcome of an upload of change sets."""

    change_sets: list[StateChangeSet]
    results: list[UploadResult]
    error: BaseException | None


class ChangeSetLedger:
    """The closed sets of one writer, by sequence number.

    Only the writer's thread uses it, except for ``settle_late``.

    Invariants:
        1. A known set is in exactly one of ``_not_uploaded``, ``_in_flight``, ``_failed``,
           ``_uploaded``.
        2. A set leaves ``_not_uploaded`` only for an upload. If the upload fails, the set waits in
           ``_failed``, and its bytes still count as in flight.
        3. ``lowest`` is at or below every known number and never decreases.
        4. A file with a set that a snapshot references is released only by ``truncate`` or
           ``release_from``, and never after ``confirm`` has handed it to a checkpoint.
    """

    def __init__(
        self,
        key_group_range: KeyGroupRange,
        registry: TaskChangelogRegistry,
        local_registry: LocalChangelogRegistry,
        account: InFlightAccount,
    ) -> None:
        self._key_group_range = key_group_range
        self._registry = registry
        self._local_registry = local_registry
        self.account = account
        self.lowest = 0
        self._not_uploaded: Sets = {}
        self._in_flight: Sets = {}
        self._failed: Sets = {}
        self._uploaded: dict[int, UploadResult] = {}
        self._reported: set[int] = set()

    # ---------------------------------------------------------------------------- uploading

    def add(self, change_set: StateChangeSet) -> None:
        """Adds a set that was closed."""
        self._not_uploaded[change_set.sequence_number.number] = change_set

    def take_back(self, number: int) -> None:
        """Removes the last set, because the writer opens it again."""
        del self._not_uploaded[number]

    def start_failed(self, from_: int) -> Sets:
        """Marks the failed sets from a number on as in flight; returns them."""
        return self._start(self._failed, from_)

    def start_waiting(self, from_: int) -> Sets:
        """Marks the sets from a number on that were never uploaded as in flight; returns them."""
        return self._start(self._not_uploaded, from_)

    def _start(self, waiting: Sets, from_: int) -> Sets:
        numbers = sorted(number for number in waiting if number >= from_)
        started = {number: waiting.pop(number) for number in numbers}
        self._in_flight.update(started)
        return started

    def not_started(self, sets: Sets, kept: bool) -> None:
        """Moves sets back that found no room for their upload."""
        for number in sets:
            del self._in_flight[number]
        (self._failed if kept else self._not_uploaded).update(sets)

    def settle(self, outcome: UploadOutcome) -> BaseException | None:
        """Applies the outcome of an upload; returns the error of sets that were not uploaded."""
        for result in outcome.results:
            number = result.sequence_number.number
            if self._in_flight.pop(number, None) is None or number < self.lowest:
                self._release(result)
            else:
                self._uploaded[number] = result
        error = outcome.error
        for change_set in outcome.change_sets:
            number = change_set.sequence_number.number
            if self._in_flight.pop(number, None) is None:
                continue
            if outcome.error is None:
                # Success without a result: the bytes no longer count as in flight, so the set
                # starts again.
                error = ChangelogError(f"The uploader reported nothing for change set {number}.")
                self._not_uploaded[number] = change_set
            elif number >= self.lowest:
                self._failed[number] = change_set
            else:
                self.account.give_up(change_set.size)
        return error

    def settle_late(self, outcome: UploadOutcome) -> None:
        """Handles an upload that ends after the close, on its thread: no handle references its
        sets.
        """
        for result in outcome.results:
            self._release(result)
        if outcome.error is not None:
            self.account.give_up(sum(each.size for each in outcome.change_sets))

    # ---------------------------------------------------------------------------- reporting

    def missing(self, from_: int, to: int) -> set[int]:
        """The numbers of ``[from_, to)`` that are not uploaded."""
        return {number for number in range(from_, to) if number not in self._uploaded}

    def arrived(self, numbers: set[int]) -> set[int]:
        """The numbers whose sets are uploaded."""
        return numbers.intersection(self._uploaded)

    def use_local_copies(self, from_: int, to: int, checkpoint_id: int) -> None:
        """Registers the local copies of the sets in ``[from_, to)`` for a checkpoint."""
        for number in range(from_, to):
            result = self._uploaded.get(number)
            if result is not None and result.local_stream_handle is not None:
                self._local_registry.register(result.local_stream_handle, checkpoint_id)

    def snapshot(self, from_: int, to: int) -> FsSnapshotResult:
        """The handles of ``[from_, to)``; all sets must be uploaded."""
        results = [self._uploaded[number] for number in range(from_, to)]
        # Every byte counts as new once: in the first handle that contains it.
        new = [each for each in results if each.sequence_number.number not in self._reported]
        self._reported.update(each.sequence_number.number for each in new)
        size = sum(each.size for each in results)
        remote = self._handle(
            ((each.stream_state_handle, each.offset) for each in results),
            size,
            sum(each.size for each in new),
        )
        if all(each.local_stream_handle is None for each in results):
            return SnapshotResult(remote)
        # A set without a copy refers to its remote file; readers prefer local copies.
        local = self._handle(
            (
                (result.stream_state_handle, result.offset)
                if result.local_stream_handle is None
                else (result.local_stream_handle, result.local_offset)
                for result in results
            ),
            size,
            0,
        )
        return SnapshotResult(remote, local)

    def _handle(
        self, places: Iterable[tuple[FileStateHandle, int]], size: int, incremental: int
    ) -> ChangelogStateHandleStream:
        return ChangelogStateHandleStream(
            tuple(places),
            self._key_group_range,
            size,
            incremental,
            str(uuid4()),
            STORAGE_IDENTIFIER,
        )

    # ---------------------------------------------------------------------------- ownership

    def confirm(self, from_: int, to: int, checkpoint_id: int) -> None:
        """Hands the files of ``[from_, to)`` over to a checkpoint.

        Raises:
            ChangelogError: A set of the range is not uploaded.
        """
        missing = self.missing(max(from_, self.lowest), to)
        if missing:
            raise ChangelogError(
                f"A checkpoint cannot own changes that are not durable: expected [{from_},{to}) "
                f"to be persisted, got nothing for {min(missing)}.",
                checkpoint_id=checkpoint_id,
            )
        for number in range(max(from_, self.lowest), to):
            result = self._uploaded[number]
            self._registry.stop_tracking(result.stream_state_handle)
            if result.local_stream_handle is not None:
                self._registry.stop_tracking(result.local_stream_handle)
        self.discard_local_copies(checkpoint_id)

    def discard_local_copies(self, up_to: int) -> None:
        """Deletes local copies that only checkpoints below ``up_to`` use.

        Later snapshots do not reference them.
        """
        gone = self._local_registry.discard_up_to_checkpoint(up_to)
        for number, result in self._uploaded.items():
            local = result.local_stream_handle
            if local is not None and local.path in gone:
                self._registry.stop_tracking(local)
                self._uploaded[number] = replace(result, local_stream_handle=None)

    def truncate(self, to: int) -> None:
        """Drops all sets below ``to``; the files of sets in flight are released when these
        arrive.
        """
        self.lowest = to
        for number in [each for each in self._not_uploaded if each < to]:
            del self._not_uploaded[number]
        for number in [each for each in self._failed if each < to]:
            self.account.give_up(self._failed.pop(number).size)
        self._forget([number for number in self._uploaded if number < to])

    def release_from(self, number: int) -> None:
        """Releases the files of uploaded sets from a number on."""
        self._forget([each for each in self._uploaded if each >= number])

    def close(self) -> None:
        """Drops all sets; releases files that no snapshot references."""
        self.account.give_up(sum(each.size for each in self._failed.values()))
        self._forget([number for number in self._uploaded if number not in self._reported])
        for sets in (self._not_uploaded, self._failed, self._in_flight):
            sets.clear()
        self._uploaded.clear()

    def _forget(self, numbers: list[int]) -> None:
        for number in numbers:
            self._release(self._uploaded.pop(number))
            self._reported.discard(number)

    def _release(self, result: UploadResult) -> None:
        self._registry.release(result.stream_state_handle)
        if result.local_stream_handle is not None:
            self._registry.release(result.local_stream_handle)
