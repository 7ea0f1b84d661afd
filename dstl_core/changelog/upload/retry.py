"""Runs an action until one of its attempts succeeds or its policy gives up.

Source: ``RetryPolicy`` and ``RetryingExecutor`` of Flink 2.2.1. Unlike in Flink, an attempt that
    hangs
gives its place to the next one, errors of any kind end an action, and closing ends actions that
have not started.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dstl_core.config import ChangelogOptions
from dstl_core.errors import SchedulerClosedError, UploadTimeoutError, WriterClosedError
from dstl_core.metrics import Histogram
from dstl_core.scheduling import BoundedExecutor, Cancellable, Scheduler, Slot

_LOG = logging.getLogger(__name__)

_GIVE_UP = -1


class RetryPolicy(ABC):
    """Decides about further attempts. Times are milliseconds."""

    NONE: RetryPolicy

    @abstractmethod
    def timeout_for(self, attempt: int) -> int:
        """Timeout of attempt 1, 2, .., after which another one starts; <= 0 is no timeout."""

    @abstractmethod
    def retry_after(self, attempt: int, error: BaseException) -> int:
        """The pause before the next attempt; negative if there is none."""

    @staticmethod
    def fixed(max_attempts: int, timeout_ms: int, delay_ms: int) -> RetryPolicy:
        return FixedRetryPolicy(max_attempts, timeout_ms, delay_ms)

    @staticmethod
    def from_config(options: ChangelogOptions) -> RetryPolicy:
        if options.retry_policy == "none":
            return RetryPolicy.NONE
        return FixedRetryPolicy(
            options.max_attempts, options.upload_timeout_ms, options.next_attempt_delay_ms
        )


class NoRetryPolicy(RetryPolicy):
    """Allows one attempt, without a timeout."""

    def timeout_for(self, attempt: int) -> int:
        return 0

    def retry_after(self, attempt: int, error: BaseException) -> int:
        return _GIVE_UP

    def __str__(self) -> str:
        return "none"


RetryPolicy.NONE = NoRetryPolicy()


@dataclass(frozen=True, slots=True)
class FixedRetryPolicy(RetryPolicy):
    """Allows ``max_attempts``: at once after a timeout, after ``delay_ms`` after an I/O error,
    and none after any other error.
    """

    max_attempts: int
    timeout_ms: int
    delay_ms: int

    def timeout_for(self, attempt: int) -> int:
        return self.timeout_ms

    def retry_after(self, attempt: int, error: BaseException) -> int:
        if attempt >= self.max_attempts:
            return _GIVE_UP
        if isinstance(error, TimeoutError):
            return 0
        return self.delay_ms if isinstance(error, OSError) else _GIVE_UP

    def __str__(self) -> str:
        return f"timeout={self.timeout_ms}, maxAttempts={self.max_attempts}, delay={self.delay_ms}"


Result = TypeVar("Result")


class RetriableAction(Protocol[Result]):
    """An action to try. Attempts may overlap; exactly one of ``complete_with_result`` and
    ``handle_failure`` is called, once.
    """

    def try_execute(self) -> Result: ...

    def complete_with_result(self, result: Result) -> None: ...

    def discard_result(self, result: Result) -> None:
        """Undoes an attempt that succeeded after the action had ended."""
        ...

    def handle_failure(self, error: BaseException) -> None: ...

    def attempt_hangs(self) -> None:
        """Notes an attempt that timed out and still runs."""
        ...

    def attempt_returned(self) -> None:
        """Notes the end of an attempt that had timed out."""
        ...


# An action's result type matters between its own methods only.
_AnyAction = RetriableAction[Any]


class _Execution:
    """One action: whether it has ended, and its attempts."""

    def __init__(self, owner: RetryingExecutor, policy: RetryPolicy, action: _AnyAction) -> None:
        self.owner = owner
        self.policy = policy
        self.action = action
        self.lock = threading.Lock()
        self.ended = False
        self.active = 1
        """Attempts that may still succeed."""
        self.total = 1
        self.running = 0
        """Attempts that run on a thread."""

    def end(self) -> bool:
        """Ends the action; True for the first call only."""
        with self.lock:
            first, self.ended = not self.ended, True
        return first

    def fail(self, error: BaseException) -> None:
        if not self.end():
            return
        try:
            self.action.handle_failure(error)
        except Exception:
            _LOG.exception("a failure handler failed")
        self.owner.forget(self)


class _Attempt:
    """One run of an action. Its first error or its timeout counts."""

    def __init__(self, execution: _Execution, number: int) -> None:
        self._execution = execution
        self._number = number
        self._lock = threading.Lock()
        self._failed = False
        self._returned = False
        self._hangs = False
        self._slot: Slot | None = None

    def run(self, slot: Slot) -> None:
        execution = self._execution
        if not execution.owner.attempt_starts(execution):
            return
        self._slot = slot
        timer = self._start_timer()
        try:
            result = execution.action.try_execute()
        except BaseException as error:
            self._fail(error)
        else:
            self._succeed(result)
        finally:
            if timer is not None:
                timer.cancel()
            with self._lock:
                self._returned = True
                hung = self._hangs
            if hung:
                execution.action.attempt_returned()
            execution.owner.attempt_ends(execution)

    def _start_timer(self) -> Cancellable | None:
        timeout_ms = self._execution.policy.timeout_for(self._number)
        if timeout_ms <= 0:
            return None
        try:
            return self._execution.owner.threads.schedule(
                lambda: self._time_out(timeout_ms), timeout_ms
            )
        except SchedulerClosedError:
            return None  # closing ends the action; no time-out is needed

    def _time_out(self, timeout_ms: int) -> None:
        with self._lock:
            if self._returned:
                return
            self._hangs = True
            self._execution.action.attempt_hangs()
        if self._slot is not None:
            self._slot.free()
        self._fail(UploadTimeoutError(f"Attempt {self._number} timed out after {timeout_ms} ms."))

    def _succeed(self, result: Result) -> None:
        execution = self._execution
        if not execution.end():
            try:
                execution.action.discard_result(result)
            except Exception:
                _LOG.exception("the result of a late attempt could not be discarded")
            return
        try:
            execution.action.complete_with_result(result)
        except Exception:
            _LOG.exception("a result could not be delivered to all waiting tasks")
        execution.owner.succeeded(execution, self._number)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._failed:
                return
            self._failed = True
        execution = self._execution
        with execution.lock:
            if execution.ended:
                return
            delay = execution.policy.retry_after(self._number, error)
            retry = delay >= 0 and not execution.owner.closed
            if retry:
                execution.active += 1
                execution.total += 1
            execution.active -= 1
            last = execution.active == 0
        if retry:
            _LOG.warning(
                "an upload attempt failed and is tried again: attempt=%d delay_ms=%d error=%s",
                self._number,
                delay,
                error,
            )
            execution.owner.start(_Attempt(execution, self._number + 1), execution, delay)
        elif last:
            execution.fail(error)


class RetryingExecutor:
    """Runs actions under retry policies, at most ``num_threads`` attempts at once.

    Attempts that timed out do not count: they keep a thread of their own until they return, so
    that a hanging storage cannot block the retry that would succeed.
    """

    def __init__(
        self,
        threads: Scheduler,
        num_threads: int,
        attempts_per_action: Histogram | None = None,
        total_attempts_per_action: Histogram | None = None,
    ) -> None:
        self.threads = threads
        self.closed = False
        self._executor = BoundedExecutor(threads, num_threads)
        self._attempts = attempts_per_action
        self._total_attempts = total_attempts_per_action
        self._changed = threading.Condition(threading.Lock())
        self._open: set[_Execution] = set()

    def execute(self, policy: RetryPolicy, action: RetriableAction[Result]) -> None:
        """Raises: SchedulerClosedError: The executor is closed; the action was not accepted."""
        execution = _Execution(self, policy, action)
        with self._changed:
            if self.closed:
                raise SchedulerClosedError("The retrying executor is closed.")
            self._open.add(execution)
        self.start(_Attempt(execution, 1), execution, 0)

    def start(self, attempt: _Attempt, execution: _Execution, delay_ms: int) -> None:
        """Runs an attempt after a delay. Executions call it."""
        try:
            if delay_ms > 0:
                self.threads.schedule(lambda: self.start(attempt, execution, 0), delay_ms)
            else:
                self._executor.execute(attempt.run)
        except SchedulerClosedError as error:
            execution.fail(error)

    def attempt_starts(self, execution: _Execution) -> bool:
        """Runs at the start of an attempt, on its thread; False if the action has ended."""
        with self._changed:
            if execution.ended:
                return False
            execution.running += 1
            return True

    def attempt_ends(self, execution: _Execution) -> None:
        with self._changed:
            execution.running -= 1
            self._changed.notify_all()

    def succeeded(self, execution: _Execution, attempt: int) -> None:
        """Runs when an execution has succeeded."""
        if self._attempts is not None:
            self._attempts.update(attempt)
        if self._total_attempts is not None:
            self._total_attempts.update(execution.total)
        self.forget(execution)

    def forget(self, execution: _Execution) -> None:
        """Runs when an execution has ended."""
        with self._changed:
            self._open.discard(execution)
            self._changed.notify_all()

    def close(self, timeout_ms: int) -> None:
        """Starts no more attempts, waits for running ones, and fails actions that have not ended.

        If an attempt still runs after that, ``discard_result`` undoes it.
        """
        with self._changed:
            if self.closed:
                return
            self.closed = True
        self._executor.close()
        with self._changed:
            waiting = [each for each in self._open if not each.running]
        self._fail(waiting)
        with self._changed:
            self.threads.wait_for(self._changed, lambda: not self._open, timeout_ms)
            left = list(self._open)
        self._fail(left)

    def _fail(self, executions: list[_Execution]) -> None:
        for execution in executions:
            execution.fail(
                WriterClosedError("The upload scheduler was closed before the upload ended.")
            )
