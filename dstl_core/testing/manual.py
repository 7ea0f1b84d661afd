"""A clock and a scheduler that a test drives.

With a seeded ``Random`` the scheduler chooses among actions that are due at the same time. One seed
gives one interleaving.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from dstl_core.errors import InvariantViolation, SchedulerClosedError
from dstl_core.scheduling import Action


class ManualClock:
    """A clock that only ``advance`` moves."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        if by_ms < 0:
            raise InvariantViolation("a clock does not go back")
        self._now_ms += by_ms
        self._monotonic_ms += by_ms


class _Abandoned(BaseException):
    """Ends an action that was paused when its scheduler closed."""


class _Runner:
    """A thread that runs actions while the test waits."""

    def __init__(self, owner: ManualScheduler) -> None:
        self._owner = owner
        self._go = threading.Semaphore(0)
        self._action: Action | None = None
        self.abandoned = False
        self.thread = threading.Thread(target=self._loop, name="manual-runner", daemon=True)
        self.thread.start()

    def run(self, action: Action | None) -> None:
        """Hands over an action, or lets a paused one continue. The test calls it."""
        self._action = action
        self._go.release()

    def wait(self) -> None:
        self._go.acquire()
        if self.abandoned:
            raise _Abandoned

    def _loop(self) -> None:
        while True:
            self._go.acquire()
            action = self._action
            if action is None:
                return
            try:
                action()
            except _Abandoned:
                return
            except BaseException as error:
                self._owner.failures.append(error)
            if self.abandoned:
                return
            self._owner.hand_back(self)


@dataclass(order=True)
class _DueAction:
    due_ms: int
    order: int
    action: Action = field(compare=False)
    runner: _Runner | None = field(compare=False, default=None)
    cancelled: bool = field(compare=False, default=False)

    def cancel(self) -> None:
        self.cancelled = True


class ManualScheduler:
    """Runs one action at a time, in order of due time, when the test asks for it.

    Actions run on their own threads, so that they can ``pause``, but never two at once. The seed
    decides the whole run.

    Supported: execute, schedule, cancel, waiting by the test (which runs what is due) and by an
    action (which lets others run), pausing by an action. Not supported: any other thread.
    """

    def __init__(self, clock: ManualClock | None = None, random: Random | None = None) -> None:
        self.clock = clock if clock is not None else ManualClock()
        self.failures: list[BaseException] = []
        self._random = random
        self._entries: list[_DueAction] = []
        self._order = itertools.count()
        self._turn = threading.Semaphore(0)
        self._idle_runners: list[_Runner] = []
        self._current: _Runner | None = None
        self._closed = False

    # ------------------------------------------------------------------------- as a scheduler

    def execute(self, action: Action) -> None:
        self._add(action, 0)

    def schedule(self, action: Action, delay_ms: int) -> _DueAction:
        return self._add(action, max(delay_ms, 0))

    def wait_for(
        self,
        condition: threading.Condition,
        predicate: Callable[[], bool],
        timeout_ms: int | None,
    ) -> bool:
        deadline = None if timeout_ms is None else self.clock.monotonic_ms() + timeout_ms
        let_others_run = self._pause_for_others if self._in_action() else self._step
        while not predicate():
            condition.release()
            try:
                ran = let_others_run(deadline)
            finally:
                condition.acquire()
            if not ran and not predicate():
                if deadline is None:
                    raise InvariantViolation("a wait without a time-out would never end")
                self.clock.advance(max(0, deadline - self.clock.monotonic_ms()))
                return False
        return True

    def _pause_for_others(self, deadline_ms: int | None) -> bool:
        """Pauses the running action until another one has run; returns False if there is none."""
        others = [entry.due_ms for entry in self._entries if not entry.cancelled]
        if not others or (deadline_ms is not None and min(others) > deadline_ms):
            return False
        self.pause(max(0, min(others) - self.clock.monotonic_ms()))
        return True

    def close(self, timeout_ms: int) -> int:
        """Lets ``timeout_ms`` of virtual time pass, then ends paused actions where they are."""
        deadline = self.clock.monotonic_ms() + timeout_ms
        while any(entry.runner is not None for entry in self._entries) and self._step(deadline):
            pass
        self._closed = True
        paused = [entry.runner for entry in self._entries if entry.runner is not None]
        self._entries.clear()
        for runner in paused:
            runner.abandoned = True
            runner.run(None)
        for runner in self._idle_runners:
            runner.run(None)
        for runner in paused + self._idle_runners:
            runner.thread.join()
        self._idle_runners.clear()
        return len(paused)

    # ------------------------------------------------------------------------ for the test

    @property
    def pending(self) -> int:
        """Actions that wait for their due time, and paused actions."""
        return sum(not entry.cancelled for entry in self._entries)

    def run_ready(self) -> None:
        """Runs all actions that are due now, also those that they add."""
        while self._step(self.clock.monotonic_ms()):
            pass

    def advance(self, by_ms: int) -> None:
        """Moves the clock, and runs each action at its due time."""
        end = self.clock.monotonic_ms() + by_ms
        while self._step(end):
            pass
        self.clock.advance(end - self.clock.monotonic_ms())

    def run_until_idle(self, limit_ms: int = 3_600_000) -> None:
        """Moves the clock until no action is left."""
        end = self.clock.monotonic_ms() + limit_ms
        while self._step(end):
            pass
        if self.pending:
            raise InvariantViolation(f"{self.pending} actions are left after {limit_ms} ms")

    # ------------------------------------------------------------------------ for an action

    def pause(self, for_ms: int) -> None:
        """Lets other actions run until this time has passed. An action calls it."""
        runner = self._current
        if not self._in_action() or runner is None:
            self.advance(for_ms)
            return
        due = self.clock.monotonic_ms() + for_ms
        self._entries.append(_DueAction(due, next(self._order), _nothing, runner))
        self._turn.release()
        runner.wait()

    def hand_back(self, runner: _Runner) -> None:
        """Runs when the action of a runner has ended."""
        self._idle_runners.append(runner)
        self._turn.release()

    # --------------------------------------------------------------------------------- inside

    def _add(self, action: Action, delay_ms: int) -> _DueAction:
        if self._closed:
            raise SchedulerClosedError("The manual scheduler is closed.")
        entry = _DueAction(self.clock.monotonic_ms() + delay_ms, next(self._order), action)
        self._entries.append(entry)
        return entry

    def _in_action(self) -> bool:
        return self._current is not None and threading.current_thread() is self._current.thread

    def _step(self, deadline_ms: int | None) -> bool:
        """Runs one action that is due by the deadline; False if there is none."""
        self._entries = [entry for entry in self._entries if not entry.cancelled]
        if not self._entries:
            return False
        first = min(self._entries)
        if deadline_ms is not None and first.due_ms > deadline_ms:
            return False
        self.clock.advance(max(0, first.due_ms - self.clock.monotonic_ms()))
        if self._random is not None:
            due = [each for each in self._entries if each.due_ms <= self.clock.monotonic_ms()]
            first = self._random.choice(sorted(due))
        self._entries.remove(first)
        runner = first.runner
        if runner is None:
            runner = self._idle_runners.pop() if self._idle_runners else _Runner(self)
        previous, self._current = self._current, runner
        runner.run(first.action)
        self._turn.acquire()
        self._current = previous
        if self.failures:
            raise InvariantViolation("an action failed") from self.failures.pop()
        return True


def _nothing() -> None:
    """Placeholder of a paused action in the queue."""
