"""Threads and waiting as an argument, so that everything can run under a manual scheduler.

A component never starts a thread, sleeps or waits by itself: it asks its ``Scheduler``.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from dstl_core.clock import Clock, SystemClock
from dstl_core.errors import SchedulerClosedError

_LOG = logging.getLogger(__name__)

Action = Callable[[], None]


class Cancellable(Protocol):
    """A delayed action."""

    def cancel(self) -> None:
        """Takes the action back if it has not started; nothing otherwise."""
        ...


class Scheduler(Protocol):
    """Runs actions on other threads. An action that blocks never delays another one."""

    @property
    def clock(self) -> Clock: ...

    def execute(self, action: Action) -> None:
        """Runs the action soon.

        Raises:
            SchedulerClosedError: The scheduler is closed; the action will not run.
        """
        ...

    def schedule(self, action: Action, delay_ms: int) -> Cancellable:
        """Runs the action after a delay. Raises as ``execute`` does."""
        ...

    def wait_for(
        self,
        condition: threading.Condition,
        predicate: Callable[[], bool],
        timeout_ms: int | None,
    ) -> bool:
        """Waits, with ``condition`` held, until the predicate holds; False after the time-out."""
        ...

    def close(self, timeout_ms: int) -> int:
        """Drops what has not started and waits for the rest.

        Returns:
            The number of actions that still run: they hang, and keep their threads.
        """
        ...


class _Delayed:
    """An action in the timer's heap; a cancelled one is dropped when its time comes."""

    __slots__ = ("_action", "_lock")

    def __init__(self, action: Action) -> None:
        self._action: Action | None = action
        self._lock = threading.Lock()

    def cancel(self) -> None:
        self.take()

    def take(self) -> Action | None:
        with self._lock:
            action, self._action = self._action, None
        return action


class ThreadScheduler:
    """Daemon threads that are made when all others are busy and end when idle, like the timer.

    Owns its threads; every method is safe on every thread. Callers that need a
    limit wrap it in a ``BoundedExecutor``.
    """

    def __init__(self, name: str = "dstl", clock: Clock | None = None, idle_s: float = 5.0) -> None:
        self.clock: Clock = clock if clock is not None else SystemClock()
        self._name = name
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._timer_wake = threading.Condition(self._lock)
        self._ended = threading.Condition(self._lock)
        self._ready: deque[Action] = deque()
        self._delayed: list[tuple[int, int, _Delayed]] = []
        self._order = itertools.count()
        self._idle = 0
        self._alive: set[threading.Thread] = set()
        self._busy: set[threading.Thread] = set()
        self._timer_runs = False
        self._closed = False

    def execute(self, action: Action) -> None:
        with self._lock:
            self._check_open()
            self._enqueue(action)

    def schedule(self, action: Action, delay_ms: int) -> Cancellable:
        delayed = _Delayed(action)
        with self._lock:
            self._check_open()
            due = self.clock.monotonic_ms() + max(delay_ms, 0)
            heapq.heappush(self._delayed, (due, next(self._order), delayed))
            if not self._timer_runs:
                self._timer_runs = True
                self._start(self._run_timer, "timer")
            self._timer_wake.notify()
        return delayed

    def wait_for(
        self,
        condition: threading.Condition,
        predicate: Callable[[], bool],
        timeout_ms: int | None,
    ) -> bool:
        return condition.wait_for(predicate, None if timeout_ms is None else timeout_ms / 1000)

    def close(self, timeout_ms: int) -> int:
        with self._lock:
            self._closed = True
            self._ready.clear()
            self._delayed.clear()
            self._wake.notify_all()
            self._timer_wake.notify_all()
            # All of them, so that none is left; those that hang are told.
            others = self._alive - {threading.current_thread()}
            self._ended.wait_for(lambda: not others & self._alive, timeout_ms / 1000)
            return len(others & self._busy)

    def _check_open(self) -> None:
        if self._closed:
            raise SchedulerClosedError(f"The scheduler {self._name!r} is closed.")

    def _enqueue(self, action: Action) -> None:
        """With the lock held."""
        self._ready.append(action)
        if len(self._ready) > self._idle:
            self._start(self._work, "worker")
        else:
            self._wake.notify()

    def _start(self, target: Action, role: str) -> None:
        """With the lock held."""

        def run() -> None:
            try:
                target()
            finally:
                with self._lock:
                    self._alive.discard(thread)
                    self._busy.discard(thread)
                    self._ended.notify_all()

        thread = threading.Thread(target=run, name=f"{self._name}-{role}", daemon=True)
        self._alive.add(thread)
        thread.start()

    def _work(self) -> None:
        while (action := self._next_action()) is not None:
            try:
                action()
            except BaseException:
                # An action answers for its own errors; one that slips through must not end the
                # thread silently.
                _LOG.exception("an action failed on a thread of scheduler=%s", self._name)

    def _next_action(self) -> Action | None:
        with self._lock:
            self._busy.discard(threading.current_thread())
            while not self._ready:
                if self._closed:
                    return None
                self._idle += 1
                woken = self._wake.wait(self._idle_s)
                self._idle -= 1
                if not woken and not self._ready:
                    return None
            self._busy.add(threading.current_thread())
            return self._ready.popleft()

    def _run_timer(self) -> None:
        with self._lock:
            while not self._closed:
                if not self._delayed:
                    if not self._timer_wake.wait(self._idle_s) and not self._delayed:
                        self._timer_runs = False
                        return
                    continue
                wait_ms = self._delayed[0][0] - self.clock.monotonic_ms()
                if wait_ms > 0:
                    self._timer_wake.wait(wait_ms / 1000)
                    continue
                action = heapq.heappop(self._delayed)[2].take()
                if action is not None:
                    self._enqueue(action)


class Slot:
    """The place of one action in a ``BoundedExecutor``."""

    __slots__ = ("_executor", "_free", "_lock")

    def __init__(self, executor: BoundedExecutor) -> None:
        self._executor = executor
        self._free = False
        self._lock = threading.Lock()

    def free(self) -> None:
        """Gives the place to the next action; the first call counts."""
        with self._lock:
            first, self._free = not self._free, True
        if first:
            self._executor._next()  # noqa: SLF001  # a slot is part of its executor


class BoundedExecutor:
    """At most ``limit`` actions at once, in the order of submission, on a scheduler's threads.

    An action that hangs can be told to ``free`` its slot early, so that others go on.
    """

    def __init__(self, scheduler: Scheduler, limit: int) -> None:
        self._scheduler = scheduler
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[Slot], None]] = deque()
        self._active = 0
        self._closed = False

    @property
    def idle(self) -> bool:
        with self._lock:
            return self._active == 0 and not self._waiting

    def execute(self, action: Callable[[Slot], None]) -> None:
        """Raises: SchedulerClosedError: This executor or its scheduler is closed."""
        with self._lock:
            if self._closed:
                raise SchedulerClosedError("An executor is closed.")
            if self._active >= self._limit:
                self._waiting.append(action)
                return
            self._active += 1
        try:
            self._launch(action)
        except SchedulerClosedError:
            with self._lock:
                self._active -= 1
            raise

    def close(self) -> list[Callable[[Slot], None]]:
        """Takes back the actions that have not started."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
        return waiting

    def _launch(self, action: Callable[[Slot], None]) -> None:
        slot = Slot(self)

        def run() -> None:
            try:
                action(slot)
            finally:
                slot.free()

        self._scheduler.execute(run)

    def _next(self) -> None:
        with self._lock:
            if not self._waiting:
                self._active -= 1
                return
            action = self._waiting.popleft()
        try:
            self._launch(action)
        except SchedulerClosedError:
            # Whoever closes the scheduler first closes this executor and answers for the rest.
            _LOG.warning("an action was dropped: its scheduler closed before its executor")
