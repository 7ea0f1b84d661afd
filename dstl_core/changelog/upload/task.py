"""The parcels of an upload: what a writer hands over, and what comes back.

Source: ``UploadTask``, ``UploadResult`` and ``UploadTasksResult`` of Flink 2.2.1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dstl_core.model.change import StateChangeSet
from dstl_core.model.handle import FileStateHandle
from dstl_core.model.sequence import SequenceNumber


@dataclass(frozen=True, slots=True)
class UploadResult:
    """Where one change set lies. ``size`` is its payload in bytes."""

    handle: FileStateHandle
    offset: int
    sequence_number: SequenceNumber
    size: int


class UploadTask:
    """Change sets of one writer that travel together. The first outcome wins, later ones are
    ignored. The two callbacks run on the uploading thread and must only hand over.
    """

    def __init__(
        self,
        change_sets: Sequence[StateChangeSet],
        on_success: Callable[[list[UploadResult]], None],
        on_failure: Callable[[list[SequenceNumber], BaseException], None],
    ) -> None:
        self.change_sets = tuple(change_sets)
        self.size = sum(change_set.size for change_set in self.change_sets)
        self._on_success = on_success
        self._on_failure = on_failure
        self._finished = False
        self._lock = threading.Lock()

    @property
    def is_finished(self) -> bool:
        return self._finished

    def complete(self, results: list[UploadResult]) -> None:
        if self._finish():
            self._on_success(results)

    def fail(self, error: BaseException) -> None:
        if self._finish():
            numbers = [change_set.sequence_number for change_set in self.change_sets]
            self._on_failure(numbers, error)

    def _finish(self) -> bool:
        with self._lock:
            first = not self._finished
            self._finished = True
            return first


@dataclass(frozen=True, slots=True)
class UploadTasksResult:
    """One file that holds the change sets of all tasks of an upload."""

    handle: FileStateHandle
    results: tuple[tuple[UploadTask, tuple[UploadResult, ...]], ...]

    def complete(self) -> None:
        """Tells every task where its change sets lie."""
        for task, results in self.results:
            task.complete(list(results))
