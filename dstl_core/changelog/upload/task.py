"""Tasks and results of uploads.

Source: ``UploadTask``, ``UploadResult`` and ``UploadTasksResult`` of Flink 2.2.1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dstl_core.changelog.change_set import StateChangeSet
from dstl_core.changelog.upload.throttle import InFlightAccount
from dstl_core.errors import UploadFailedError
from dstl_core.model.handle import FileStateHandle
from dstl_core.model.sequence import SequenceNumber


@dataclass(frozen=True, slots=True)
class UploadResult:
    """The place of one change set. ``size`` is its payload in bytes; the local handle is the copy
    for local recovery.
    """

    stream_state_handle: FileStateHandle
    local_stream_handle: FileStateHandle | None
    offset: int
    local_offset: int
    sequence_number: SequenceNumber
    size: int

    @classmethod
    def of(
        cls,
        handle: FileStateHandle,
        local_handle: FileStateHandle | None,
        change_set: StateChangeSet,
        offset: int,
        local_offset: int,
    ) -> UploadResult:
        return cls(
            handle,
            local_handle,
            offset,
            local_offset,
            change_set.sequence_number,
            change_set.size,
        )


SuccessCallback = Callable[[list[UploadResult]], None]
FailureCallback = Callable[[list[SequenceNumber], BaseException], None]


class UploadTask:
    """Change sets that are uploaded together. Thread-safe.

    The first outcome wins; later ones are ignored. Two tasks are equal only if they are identical.

    Args:
        change_sets: The sets to upload.
        success_callback: Gets one result per set.
        failure_callback: Gets the sequence numbers of all sets, and the error.
        account: The account of a writer that keeps failed sets. Their bytes still count as in
            flight.
        kept: Whether the account counts these bytes already, from an earlier failure.
    """

    def __init__(
        self,
        change_sets: Iterable[StateChangeSet],
        success_callback: SuccessCallback,
        failure_callback: FailureCallback,
        *,
        account: InFlightAccount | None = None,
        kept: bool = False,
    ) -> None:
        self.change_sets: Sequence[StateChangeSet] = tuple(change_sets)
        self.size = sum(change_set.size for change_set in self.change_sets)
        """Payload bytes."""
        self.account = account
        self.kept = kept
        self._success_callback = success_callback
        self._failure_callback = failure_callback
        self._lock = threading.Lock()
        self._finished = False

    @property
    def is_finished(self) -> bool:
        return self._finished

    def complete(self, results: list[UploadResult]) -> None:
        if self._finish():
            self._success_callback(results)

    def fail(self, error: BaseException) -> None:
        if self._finish():
            self._failure_callback([each.sequence_number for each in self.change_sets], error)

    def _finish(self) -> bool:
        with self._lock:
            first, self._finished = not self._finished, True
            return first


Offsets = tuple[int, int]
"""Offsets of a change set in the remote file and in the local file."""


def _nothing(handle: FileStateHandle) -> None:
    """Does nothing: an uploader without a registry does not own its files."""


class UploadTasksResult:
    """One file that holds the change sets of all tasks of an upload.

    Args:
        tasks_offsets: For each task, the offsets of its sets.
        handle: The file.
        local_handle: The local copy of the file, if there is one.
        discard_handle: Deletes a file that nobody references.
    """

    def __init__(
        self,
        tasks_offsets: Mapping[UploadTask, Mapping[StateChangeSet, Offsets]],
        handle: FileStateHandle,
        local_handle: FileStateHandle | None = None,
        *,
        discard_handle: Callable[[FileStateHandle], None] = _nothing,
    ) -> None:
        self.tasks_offsets = tasks_offsets
        self.handle = handle
        self.local_handle = local_handle
        self._discard_handle = discard_handle

    @property
    def state_size(self) -> int:
        """Bytes of the file's uncompressed body."""
        return self.handle.state_size

    def complete(self) -> None:
        """Completes every task with the places of its change sets.

        If a callback raises, the other callbacks still run.

        Raises:
            ExceptionGroup: Errors of callbacks, after all tasks are complete.
        """
        errors = []
        for task, offsets in self.tasks_offsets.items():
            try:
                self._complete(task, offsets)
            except Exception as error:
                errors.append(error)
        if errors:
            raise ExceptionGroup("upload callbacks failed", errors)

    def _complete(self, task: UploadTask, offsets: Mapping[StateChangeSet, Offsets]) -> None:
        if any(change_set not in offsets for change_set in task.change_sets):
            task.fail(
                UploadFailedError(
                    f"The uploader reported {len(offsets)} of {len(task.change_sets)} change sets "
                    f"of a task; it has to report all of them."
                )
            )
            return
        task.complete(
            [
                UploadResult.of(self.handle, self.local_handle, change_set, *offsets[change_set])
                for change_set in task.change_sets
            ]
        )

    def discard(self) -> None:
        """Deletes the file and its local copy, because another attempt won."""
        self._discard_handle(self.handle)
        if self.local_handle is not None:
            self._discard_handle(self.local_handle)
