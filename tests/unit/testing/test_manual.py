"""The manual scheduler: time, order, pauses, waiting."""

from __future__ import annotations

import threading
from random import Random

import pytest

from dstl_core.errors import InvariantViolation, SchedulerClosedError
from dstl_core.testing import ManualClock, ManualScheduler


def test_time_moves_only_when_told() -> None:
    clock = ManualClock(1_000)
    clock.advance(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_005, 5)
    with pytest.raises(InvariantViolation, match="does not go back"):
        clock.advance(-1)


def test_actions_run_when_they_are_due_and_see_that_time() -> None:
    threads = ManualScheduler()
    seen: list[tuple[str, int]] = []

    def see(name: str) -> None:
        seen.append((name, threads.clock.monotonic_ms()))

    threads.schedule(lambda: see("late"), 20)
    threads.schedule(lambda: see("early"), 10)
    threads.execute(lambda: see("now"))
    assert threads.pending == 3
    threads.run_ready()
    assert seen == [("now", 0)]
    threads.advance(15)
    assert seen[1:] == [("early", 10)]
    assert threads.clock.monotonic_ms() == 15
    threads.run_until_idle()
    assert seen[2:] == [("late", 20)]
    assert threads.clock.monotonic_ms() == 20


def test_a_cancelled_action_is_gone() -> None:
    threads = ManualScheduler()
    threads.schedule(lambda: pytest.fail("cancelled"), 5).cancel()
    assert threads.pending == 0
    threads.run_until_idle()


def test_a_paused_action_lets_others_run_and_goes_on_later() -> None:
    threads = ManualScheduler()
    seen: list[str] = []

    def pausing() -> None:
        seen.append("before")
        threads.pause(10)
        seen.append("after")

    threads.execute(pausing)
    threads.execute(lambda: seen.append("other"))
    threads.advance(9)
    assert seen == ["before", "other"]
    threads.advance(1)
    assert seen == ["before", "other", "after"]


def test_a_wait_runs_what_is_due_until_it_is_over() -> None:
    threads = ManualScheduler()
    condition = threading.Condition(threading.Lock())
    events: list[int] = []

    def put() -> None:
        with condition:
            events.append(1)

    threads.schedule(put, 10)
    with condition:
        assert not threads.wait_for(condition, lambda: bool(events), 9)
        assert threads.clock.monotonic_ms() == 9
        assert threads.wait_for(condition, lambda: bool(events), 9)
        assert threads.clock.monotonic_ms() == 10


def test_a_wait_that_would_never_end_is_found() -> None:
    threads = ManualScheduler()
    condition = threading.Condition(threading.Lock())
    with condition, pytest.raises(InvariantViolation, match="never end"):
        threads.wait_for(condition, lambda: False, None)


def test_an_error_of_an_action_reaches_the_test() -> None:
    threads = ManualScheduler()

    def fail() -> None:
        raise RuntimeError("mine")

    threads.execute(fail)
    with pytest.raises(InvariantViolation, match="an action failed") as caught:
        threads.run_ready()
    assert str(caught.value.__cause__) == "mine"


def test_a_seed_is_an_interleaving() -> None:
    def order(seed: int) -> list[int]:
        threads = ManualScheduler(random=Random(seed))
        seen: list[int] = []
        for number in range(20):
            threads.execute(lambda number=number: seen.append(number))  # type: ignore[misc]
        threads.run_ready()
        return seen

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(20))


def test_closing_ends_paused_actions_where_they_stand() -> None:
    threads = ManualScheduler()
    seen: list[str] = []

    def pausing(for_ms: int) -> None:
        try:
            threads.pause(for_ms)
        finally:
            seen.append(f"ended {for_ms}")
        seen.append("went on")

    threads.execute(lambda: pausing(5))
    threads.execute(lambda: pausing(500))
    threads.run_ready()
    assert threads.close(50) == 1
    assert seen == ["ended 5", "went on", "ended 500"]
    with pytest.raises(SchedulerClosedError):
        threads.execute(lambda: None)


def test_an_action_may_wait_for_another_one() -> None:
    threads = ManualScheduler()
    condition = threading.Condition(threading.Lock())
    events: list[int] = []
    seen: list[tuple[bool, int]] = []

    def wait() -> None:
        with condition:
            for timeout in (9, 9):
                is_met = threads.wait_for(condition, lambda: bool(events), timeout)
                seen.append((is_met, threads.clock.monotonic_ms()))

    def put() -> None:
        with condition:
            events.append(1)

    threads.execute(wait)
    threads.schedule(put, 10)
    threads.run_until_idle()
    assert seen == [(False, 9), (True, 10)]


def test_a_run_that_does_not_end_in_time_says_so() -> None:
    threads = ManualScheduler()
    threads.schedule(lambda: None, 100)
    with pytest.raises(InvariantViolation, match="1 actions are left after 99 ms"):
        threads.run_until_idle(99)
