"""The result of a persist: a future, which completes with the handle that a checkpoint keeps.

Source: ``SnapshotResult`` of Flink 2.2.1.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from dstl_core.model.handle import ChangelogStateHandleStream, InMemoryChangelogStateHandle

_LOG = logging.getLogger(__name__)

Handle = TypeVar("Handle", bound=ChangelogStateHandleStream | InMemoryChangelogStateHandle)


@dataclass(frozen=True, slots=True)
class SnapshotResult(Generic[Handle]):
    """The handle that a checkpoint keeps, and the same handle with copies on this machine."""

    job_manager_owned_snapshot: Handle
    task_local_snapshot: Handle | None = None

    @property
    def state_size(self) -> int:
        return self.job_manager_owned_snapshot.state_size


class PersistOwner(Protocol):
    """The part of a writer that its futures use."""

    def wait_for(self, done: threading.Event, timeout_s: float | None) -> None:
        """Waits for an event; on the writer's own thread by draining until it is set.

        Raises:
            TimeoutError: The time is up.
        """
        ...


class PersistFuture(Generic[Handle]):
    """The result of one persist.

    Only the writer's own thread completes it, while it drains: in append, persist,
    next_sequence_number, drain, and in ``result``. In another thread ``result`` only waits.
    """

    def __init__(self, owner: PersistOwner) -> None:
        self._owner = owner
        self._done = threading.Event()
        self._result: SnapshotResult[Handle] | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[PersistFuture[Handle]], None]] = []

    def done(self) -> bool:
        return self._done.is_set()

    def result(self, timeout_s: float | None = None) -> SnapshotResult[Handle]:
        """Waits for the uploads; returns the handle.

        Raises:
            UploadFailedError: An upload failed; its changes are kept for the next persist.
            ChangesTruncatedError: The changes were truncated meanwhile.
            WriterClosedError: The writer was closed first.
            TimeoutError: The time is up. The upload goes on.
        """
        self._owner.wait_for(self._done, timeout_s)
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise InvalidStateError("a persist ended without a result")
        return self._result

    def exception(self) -> BaseException | None:
        """The error of a failed persist; None if it succeeded or is not complete."""
        return self._error

    def add_done_callback(self, callback: Callable[[PersistFuture[Handle]], None]) -> None:
        """Adds a callback, which may call the writer. A complete future runs it at once.

        Call this on the writer's thread; callbacks run there, too. The error of a callback is
        logged, and other callbacks still run.
        """
        if self.done():
            self._call(callback)
        else:
            self._callbacks.append(callback)

    def finish(self, result: SnapshotResult[Handle] | None, error: BaseException | None) -> None:
        """Ends the future; called by its writer."""
        self._result, self._error = result, error
        self._done.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[PersistFuture[Handle]], None]) -> None:
        try:
            callback(self)
        except Exception:
            # A user's callback: its error is its own.
            _LOG.exception("a callback of a persist failed")
