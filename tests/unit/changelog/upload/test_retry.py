"""Retries: Flink's RetryingExecutorTest, then what closing and hanging attempts do.

All of it under a manual scheduler: an attempt that takes long pauses, nothing sleeps.
"""

from __future__ import annotations

import logging

import pytest

from dstl_core.changelog.upload.retry import RetryingExecutor, RetryPolicy
from dstl_core.config import ChangelogOptions
from dstl_core.errors import (
    SchedulerClosedError,
    StorageError,
    UploadTimeoutError,
    WriterClosedError,
)
from dstl_core.metrics import Histogram
from dstl_core.testing import ManualScheduler

Step = BaseException | int
"""What an attempt does: raise, or succeed after so many milliseconds."""


class Action:
    """Attempts by script; a result is the attempt's number, from 0."""

    def __init__(self, threads: ManualScheduler, *steps: Step) -> None:
        self._threads = threads
        self._steps = steps
        self.started_at: list[int] = []
        self.completed: list[int] = []
        self.discarded: list[int] = []
        self.failures: list[BaseException] = []
        self.hanging = 0

    def try_execute(self) -> int:
        attempt = len(self.started_at)
        self.started_at.append(self._threads.clock.monotonic_ms())
        step = self._steps[min(attempt, len(self._steps) - 1)]
        if isinstance(step, BaseException):
            raise step
        if step:
            self._threads.pause(step)
        return attempt

    def complete_with_result(self, result: int) -> None:
        self.completed.append(result)

    def discard_result(self, result: int) -> None:
        self.discarded.append(result)

    def handle_failure(self, error: BaseException) -> None:
        self.failures.append(error)

    def attempt_hangs(self) -> None:
        self.hanging += 1

    def attempt_returned(self) -> None:
        self.hanging -= 1


def run(policy: RetryPolicy, *steps: Step, num_threads: int = 1) -> Action:
    threads = ManualScheduler()
    action = Action(threads, *steps)
    RetryingExecutor(threads, num_threads).execute(policy, action)
    threads.run_until_idle()
    assert len(action.completed) + len(action.failures) == 1
    assert action.hanging == 0
    return action


IO_ERROR = StorageError("no disk")


def test_no_retries() -> None:
    action = run(RetryPolicy.NONE, IO_ERROR)
    assert (len(action.started_at), action.failures) == (1, [IO_ERROR])


def test_fixed_retry_limit() -> None:
    action = run(RetryPolicy.fixed(5, 0, 0), IO_ERROR)
    assert (len(action.started_at), action.failures) == (5, [IO_ERROR])


def test_fixed_retry_success() -> None:
    action = run(RetryPolicy.fixed(6, 0, 0), IO_ERROR, IO_ERROR, 0)
    assert (len(action.started_at), action.completed) == (3, [2])


def test_non_retryable_exception() -> None:
    error = RuntimeError("a bug")
    action = run(RetryPolicy.fixed(5, 0, 0), error)
    assert (len(action.started_at), action.failures) == (1, [error])


def test_retry_delay() -> None:
    action = run(RetryPolicy.fixed(2, 0, 123), IO_ERROR, 0)
    assert action.started_at == [0, 123]


def test_no_retry_delay_if_timeout() -> None:
    action = run(RetryPolicy.fixed(2, 0, 1_000_000), TimeoutError("slow"), 0)
    assert action.started_at == [0, 0]


def test_timeout() -> None:
    action = run(RetryPolicy.fixed(2, 500, 10), 2_000, 0)
    assert action.started_at == [0, 500]
    assert (action.completed, action.discarded) == ([1], [0])


def test_discard_on_timeout() -> None:
    action = run(RetryPolicy.fixed(7, 5, 0), *[1_000] * 6, 0)
    assert action.completed == [6]
    assert sorted(action.discarded) == [0, 1, 2, 3, 4, 5]
    assert action.failures == []


# ----------------------------------------------------------------------------- beyond Flink


def test_the_first_success_wins_even_if_it_timed_out() -> None:
    action = run(RetryPolicy.fixed(3, 100, 0), 150, 10_000)
    assert (action.completed, action.discarded) == ([0], [1])


def test_a_hanging_attempt_does_not_block_its_own_retry() -> None:
    # In the original a pool of one thread waits for the attempt that hangs.
    action = run(RetryPolicy.fixed(2, 50, 0), 1_000_000, 0, num_threads=1)
    assert action.started_at == [0, 50]
    assert action.completed == [1]


def test_after_the_last_time_out_the_action_fails_and_late_results_are_discarded() -> None:
    action = run(RetryPolicy.fixed(2, 50, 0), 300)
    [error] = action.failures
    assert isinstance(error, UploadTimeoutError)
    assert str(error) == "Attempt 2 timed out after 50 ms."
    assert sorted(action.discarded) == [0, 1]


def test_an_error_after_the_time_out_of_the_same_attempt_counts_once() -> None:
    threads = ManualScheduler()

    class LateError(Action):
        def try_execute(self) -> int:
            result = super().try_execute()
            if result == 0:
                raise IO_ERROR
            return result

    action = LateError(threads, 70, 100)
    RetryingExecutor(threads, 5).execute(RetryPolicy.fixed(2, 50, 0), action)
    threads.run_until_idle()
    assert action.started_at == [0, 50]
    # The second attempt timed out too, at 100, before it would have succeeded at 150.
    assert [str(each) for each in action.failures] == ["Attempt 2 timed out after 50 ms."]
    assert action.discarded == [1]


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), MemoryError()])
def test_an_error_that_is_no_exception_ends_the_action_too(error: BaseException) -> None:
    # The original swallows java.lang.Error: its tasks hang for ever.
    action = run(RetryPolicy.fixed(5, 100, 0), error)
    assert (len(action.started_at), action.failures) == (1, [error])


def test_a_result_that_cannot_be_delivered_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    threads = ManualScheduler()

    class Broken(Action):
        def complete_with_result(self, result: int) -> None:
            super().complete_with_result(result)
            raise RuntimeError("nobody takes it")

    action = Broken(threads, 0)
    with caplog.at_level(logging.ERROR):
        RetryingExecutor(threads, 1).execute(RetryPolicy.NONE, action)
        threads.run_until_idle()
    assert (action.completed, action.failures) == ([0], [])
    assert "nobody takes it" in caplog.text


def test_metrics_count_the_winner_and_all_that_started() -> None:
    threads = ManualScheduler()
    attempts, total = Histogram(), Histogram()
    executor = RetryingExecutor(threads, 5, attempts, total)
    executor.execute(RetryPolicy.fixed(3, 50, 0), Action(threads, 1_000, IO_ERROR, 0))
    executor.execute(RetryPolicy.fixed(3, 50, 0), Action(threads, IO_ERROR))
    threads.run_until_idle()
    assert attempts.statistics().samples == (3,)
    assert total.statistics().samples == (3,)


def test_so_many_attempts_at_once() -> None:
    threads = ManualScheduler()
    executor = RetryingExecutor(threads, 2)
    actions = [Action(threads, 10) for _ in range(5)]
    for action in actions:
        executor.execute(RetryPolicy.NONE, action)
    threads.run_until_idle()
    assert [action.started_at for action in actions] == [[0], [0], [10], [10], [20]]


# --------------------------------------------------------------------------------- closing


def test_closing_gives_what_runs_a_while_and_fails_the_rest() -> None:
    # Hazard H10: the original drops queued attempts and retries without a word.
    threads = ManualScheduler()
    executor = RetryingExecutor(threads, 2)
    soon, hangs, queued, waits = (
        Action(threads, 100),
        Action(threads, 1_000_000),
        Action(threads, 0),
        Action(threads, IO_ERROR),
    )
    policy = RetryPolicy.fixed(3, 0, 5_000)
    executor.execute(policy, waits)
    threads.run_ready()
    for action in (soon, hangs, queued):
        executor.execute(policy, action)
    threads.run_ready()
    executor.close(1_000)
    executor.close(1_000)
    assert soon.completed == [0]
    for action in (hangs, queued, waits):
        [error] = action.failures
        assert isinstance(error, WriterClosedError)
    assert queued.started_at == []
    threads.run_until_idle()
    assert hangs.discarded == [0]
    assert len(waits.started_at) == 1
    with pytest.raises(SchedulerClosedError):
        executor.execute(policy, Action(threads, 0))


def test_an_io_error_after_the_close_is_not_tried_again() -> None:
    threads = ManualScheduler()
    executor = RetryingExecutor(threads, 1)

    class Failing(Action):
        def try_execute(self) -> int:
            super().try_execute()
            raise IO_ERROR

    action = Failing(threads, 100)
    executor.execute(RetryPolicy.fixed(9, 0, 10), action)
    threads.run_ready()
    executor.close(1_000)
    assert (len(action.started_at), action.failures) == (1, [IO_ERROR])


# -------------------------------------------------------------------------------- policies


def test_policies_in_words_and_from_options() -> None:
    assert str(RetryPolicy.NONE) == "none"
    assert (RetryPolicy.NONE.timeout_for(1), RetryPolicy.NONE.retry_after(1, IO_ERROR)) == (0, -1)
    options = ChangelogOptions.of(
        upload_timeout_ms="1 s", max_attempts=3, next_attempt_delay_ms="500 ms"
    )
    assert str(RetryPolicy.from_config(options)) == "timeout=1000, maxAttempts=3, delay=500"
    none = ChangelogOptions.of(retry_policy="none")
    assert RetryPolicy.from_config(none) is RetryPolicy.NONE


def test_what_the_fixed_policy_tries_again() -> None:
    policy = RetryPolicy.fixed(3, 1_000, 500)
    assert policy.timeout_for(2) == 1_000
    assert policy.retry_after(1, TimeoutError()) == 0
    assert policy.retry_after(1, UploadTimeoutError("slow")) == 0
    assert policy.retry_after(1, IO_ERROR) == policy.retry_after(2, OSError()) == 500
    assert policy.retry_after(3, IO_ERROR) == policy.retry_after(3, TimeoutError()) == -1
    assert policy.retry_after(1, ValueError()) == -1
