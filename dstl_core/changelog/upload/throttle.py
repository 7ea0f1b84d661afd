"""The limit of bytes in flight, shared by all writers of a scheduler.

Source: ``UploadThrottle`` of Flink 2.2.1. Unlike in Flink, the size of a new task counts before it
is admitted. Failed data that a writer keeps still counts, and so do the bytes of hanging attempts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from dstl_core.errors import BackpressureTimeoutError, InvariantViolation, WriterClosedError
from dstl_core.scheduling import Scheduler

_MOST_HANGING_ATTEMPTS = 64


class InFlightAccount:
    """Failed bytes that one writer keeps. The throttle's lock guards ``held``."""

    def __init__(self, throttle: UploadThrottle | None = None) -> None:
        self._throttle = throttle
        self.held = 0

    def give_up(self, size: int) -> None:
        """Removes failed bytes that were truncated, closed or uploaded."""
        if self._throttle is not None:
            self._throttle.give_up(self, size)


class AvailabilityProvider:
    """Says whether uploads have room. Callers that must not block append only then.

    There is room for a task of the size that its throttle promises. While a larger task waits, or
    after it was refused, there is room only when that task fits. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._available: Future[None] = _completed()

    def is_available(self) -> bool:
        return self._available.done()

    def is_approximately_available(self) -> bool:
        """Whether uploads have room. Takes no lock, so it may be out of date."""
        return self._available.done()

    def get_available_future(self) -> Future[None]:
        """A future that completes when there is room. If there is room, it is complete."""
        return self._available

    def set_unavailable(self) -> None:
        with self._lock:
            if self._available.done():
                self._available = Future()

    def set_available(self) -> Future[None] | None:
        """Notes that there is room; returns the future that the caller must complete."""
        with self._lock:
            waiting, self._available = self._available, _completed()
        return None if waiting.done() else waiting


def _completed() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


ALWAYS_AVAILABLE = AvailabilityProvider()


class UploadThrottle:
    """Counts bytes in flight and makes ``seize`` wait for room. Thread-safe.

    Bytes in flight are the bytes of tasks in their first upload (``fresh``), of failed sets that
    writers keep (``held``), and of attempts that timed out and have not returned (``hanging``).

    Invariants:
        1. After ``seize`` the sum is at most the limit, or the task is the only fresh one, comes
           from a writer that holds nothing, and less than the limit hangs. So the sum stays below
           twice the limit plus one task for each writer.
        2. Bytes that one writer holds make the other writers wait for each other, never for that
           writer.
        3. While ``availability`` says that there is room, ``seize`` of ``promised`` bytes or fewer
           does not wait, and no other ``seize`` waits.

    Args:
        max_bytes_in_flight: The limit.
        threads: Let ``seize`` wait.
        notify: Completes the futures of ``availability``.
        promised: Size of a task, in bytes, for which ``availability`` promises room.
    """

    def __init__(
        self,
        max_bytes_in_flight: int,
        threads: Scheduler,
        notify: Callable[[Future[None]], None] = lambda future: future.set_result(None),
        *,
        promised: int = 1,
    ) -> None:
        self._max = max_bytes_in_flight
        self._promised = promised
        self._refused = 0
        """Size of the largest task that found no room, until there is room for it."""
        self._threads = threads
        self._notify = notify
        self._changed = threading.Condition(threading.Lock())
        self._fresh = 0
        self._held = 0
        self._hanging = 0
        self._closed = False
        self.availability = AvailabilityProvider()

    @property
    def bytes_in_flight(self) -> int:
        with self._changed:
            return self._total

    @property
    def _total(self) -> int:
        return self._fresh + self._held + self._hanging

    def has_capacity(self) -> bool:
        return self.bytes_in_flight < self._max

    def seize(
        self, size: int, account: InFlightAccount | None, timeout_ms: int, *, kept: bool = False
    ) -> None:
        """Waits for room, then counts ``size`` fresh bytes. ``kept`` bytes are counted already and
        wait only for hanging attempts.

        Raises:
            BackpressureTimeoutError: The time is up; nothing was counted.
            WriterClosedError: The scheduler was closed.
        """
        with self._changed:
            self._threads.wait_for(
                self._changed,
                lambda: self._closed or self._admits(size, account, kept),
                timeout_ms,
            )
            if self._closed:
                raise WriterClosedError("The upload scheduler was closed while a task waited.")
            if not self._has_room(size, account, kept):
                raise BackpressureTimeoutError(
                    f"Uploads do not catch up: expected room for {size} bytes within "
                    f"{timeout_ms} ms, got {self._total} of {self._max} bytes in flight "
                    f"({self._held} of them failed before, {self._hanging} in attempts that "
                    f"hang); check the storage, or raise "
                    f"state.changelog.dstl.dfs.upload.max-in-flight.",
                    bytes_in_flight=self._total,
                )
            if not kept:
                self._fresh += size
            self._update()

    def release(self, size: int) -> None:
        """Removes the bytes of a fresh task that succeeded, or failed and is not kept."""
        with self._changed:
            self._fresh -= size
            future = self._update()
        self._complete(future)

    def hold(self, account: InFlightAccount, size: int) -> None:
        """Moves the bytes of a failed fresh task to its writer, which keeps them."""
        with self._changed:
            self._fresh -= size
            self._held += size
            account.held += size
            self._update()

    def give_up(self, account: InFlightAccount, size: int) -> None:
        """Removes failed bytes that a writer no longer keeps. It may remove fewer than ``size``:
        bytes of tasks that were never admitted are not held.
        """
        with self._changed:
            size = min(size, account.held)
            account.held -= size
            self._held -= size
            future = self._update()
        self._complete(future)

    def attempt_hangs(self, size: int) -> int:
        """Counts an attempt that timed out and still runs; returns the bytes that it counts.

        Each attempt counts at least a share of the limit, so that small attempts cannot pile up
        threads.
        """
        charge = max(size, self._max // _MOST_HANGING_ATTEMPTS)
        with self._changed:
            self._hanging += charge
            self._update()
        return charge

    def attempt_returned(self, charge: int) -> None:
        with self._changed:
            self._hanging -= charge
            future = self._update()
        self._complete(future)

    def close(self) -> None:
        """Wakes all callers that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            future = self.availability.set_available()
        self._complete(future)

    def _admits(self, size: int, account: InFlightAccount | None, kept: bool) -> bool:
        if self._has_room(size, account, kept):
            return True
        if not kept:
            self._refused = max(self._refused, size)
        if not self._closed:
            self.availability.set_unavailable()
        return False

    def _has_room(self, size: int, account: InFlightAccount | None, kept: bool) -> bool:
        if kept:
            return self._hanging == 0 or self._hanging + size <= self._max
        if self._total + size <= self._max:
            return True
        alone = self._fresh == 0 and (account is None or account.held == 0)
        return alone and self._hanging < self._max

    def _update(self) -> Future[None] | None:
        """Runs after every change, with the lock held."""
        if min(self._fresh, self._held, self._hanging) < 0:
            raise InvariantViolation("more bytes were released than were in flight")
        self._changed.notify_all()
        room = self._max - max(self._promised, self._refused)
        if self._total > max(0, room) and not self._closed:
            self.availability.set_unavailable()
            return None
        self._refused = 0
        return self.availability.set_available()

    def _complete(self, future: Future[None] | None) -> None:
        """Completes a future outside the lock, because its callbacks may run any code."""
        if future is not None:
            self._notify(future)
