"""Real threads: what every part of the changelog runs on outside tests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from dstl_core.errors import SchedulerClosedError
from dstl_core.scheduling import Action, BoundedExecutor, Slot, ThreadScheduler
from dstl_core.testing import ManualClock

WAIT_S = 30


@pytest.fixture
def threads() -> Iterator[ThreadScheduler]:
    scheduler = ThreadScheduler("test")
    yield scheduler
    assert scheduler.close(WAIT_S * 1000) == 0


def test_an_action_that_blocks_delays_no_other(threads: ThreadScheduler) -> None:
    release, done = threading.Event(), threading.Event()
    for _ in range(5):
        threads.execute(lambda: release.wait(WAIT_S))
    threads.execute(done.set)
    assert done.wait(WAIT_S)
    release.set()


class Handing(ThreadScheduler):
    """Keeps the actions in the order in which they are handed to threads."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__("handing", clock)
        self.handed: list[Action] = []

    def _enqueue(self, action: Action) -> None:
        self.handed.append(action)
        super()._enqueue(action)


def test_delayed_actions_are_handed_out_in_order_of_their_time() -> None:
    clock = ManualClock()
    scheduler = Handing(clock)
    actions: dict[int, Action] = {delay: lambda delay=delay: None for delay in (30, 10, 20)}  # type: ignore[misc]
    done = threading.Event()
    for delay, action in actions.items():
        scheduler.schedule(action, delay)
    scheduler.schedule(done.set, 40)
    clock.advance(40)
    assert done.wait(WAIT_S)
    assert scheduler.handed == [actions[10], actions[20], actions[30], done.set]
    assert scheduler.close(WAIT_S * 1000) == 0


def test_a_cancelled_action_does_not_run(threads: ThreadScheduler) -> None:
    seen: list[str] = []
    done = threading.Event()
    threads.schedule(lambda: seen.append("cancelled"), 5).cancel()
    threads.schedule(done.set, 10)
    assert done.wait(WAIT_S)
    assert seen == []


def test_an_action_that_raises_is_logged_and_its_thread_goes_on(
    threads: ThreadScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()

    def fail() -> None:
        raise RuntimeError("mine")

    with caplog.at_level(logging.ERROR):
        threads.execute(fail)
        threads.execute(done.set)
        assert done.wait(WAIT_S)
        threads.close(WAIT_S * 1000)
    assert "mine" in caplog.text


def test_a_closed_scheduler_takes_nothing_and_tells_what_still_runs() -> None:
    scheduler = ThreadScheduler()
    started, release = threading.Event(), threading.Event()

    def hang() -> None:
        started.set()
        release.wait(WAIT_S)

    scheduler.execute(hang)
    scheduler.schedule(lambda: None, 3_600_000)
    assert started.wait(WAIT_S)
    assert scheduler.close(0) == 1
    release.set()
    assert scheduler.close(WAIT_S * 1000) == 0
    for act in (lambda: scheduler.execute(hang), lambda: scheduler.schedule(hang, 1)):
        with pytest.raises(SchedulerClosedError, match="'dstl' is closed"):
            act()


def test_idle_threads_end_and_new_ones_start() -> None:
    scheduler = ThreadScheduler("idle", idle_s=0.01)
    for _ in range(3):
        ends: list[threading.Thread] = []
        done = threading.Event()

        def remember(ends: list[threading.Thread] = ends, done: threading.Event = done) -> None:
            ends.append(threading.current_thread())
            done.set()

        scheduler.schedule(remember, 1)
        assert done.wait(WAIT_S)
        ends[0].join(WAIT_S)
        assert not ends[0].is_alive()
    scheduler.close(WAIT_S * 1000)


def test_waiting_ends_with_the_predicate_or_the_time_out(threads: ThreadScheduler) -> None:
    condition = threading.Condition()
    events: list[int] = []

    def put() -> None:
        with condition:
            events.append(1)
            condition.notify_all()

    with condition:
        assert not threads.wait_for(condition, lambda: bool(events), 1)
        threads.execute(put)
        assert threads.wait_for(condition, lambda: bool(events), WAIT_S * 1000)


# ------------------------------------------------------------------------- BoundedExecutor


class Gate:
    """Actions that say when they run and wait until they may end."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self._changed = threading.Condition()
        self._released: set[int] = set()

    def action(self, number: int, free_first: bool = False):  # type: ignore[no-untyped-def]
        def run(slot: Slot) -> None:
            with self._changed:
                self.started.append(number)
                self._changed.notify_all()
            if free_first:
                slot.free()
            with self._changed:
                assert self._changed.wait_for(lambda: number in self._released, WAIT_S)

        return run

    def wait_started(self, *numbers: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.started == [*numbers], WAIT_S)

    def release(self, *numbers: int) -> None:
        with self._changed:
            self._released.update(numbers)
            self._changed.notify_all()


def test_at_most_so_many_at_once_in_order(threads: ThreadScheduler) -> None:
    gate, executor = Gate(), BoundedExecutor(threads, 2)
    executor.execute(gate.action(1))
    gate.wait_started(1)
    executor.execute(gate.action(2))
    gate.wait_started(1, 2)
    executor.execute(gate.action(3))
    executor.execute(gate.action(4))
    assert gate.started == [1, 2]
    gate.release(2)
    gate.wait_started(1, 2, 3)
    gate.release(1, 3, 4)
    gate.wait_started(1, 2, 3, 4)


def test_an_action_that_hangs_can_give_up_its_place(threads: ThreadScheduler) -> None:
    gate, executor = Gate(), BoundedExecutor(threads, 1)
    executor.execute(gate.action(1, free_first=True))
    gate.wait_started(1)
    executor.execute(gate.action(2))
    gate.wait_started(1, 2)
    gate.release(1, 2)


def test_closing_gives_back_what_has_not_started(threads: ThreadScheduler) -> None:
    gate, executor = Gate(), BoundedExecutor(threads, 1)
    executor.execute(gate.action(1))
    gate.wait_started(1)
    executor.execute(gate.action(2))
    assert not executor.idle
    assert len(executor.close()) == 1
    with pytest.raises(SchedulerClosedError):
        executor.execute(gate.action(3))
    gate.release(1)
    threads.close(WAIT_S * 1000)
    assert gate.started == [1]
    assert executor.idle


def test_an_executor_on_closed_threads_refuses_and_stays_idle() -> None:
    threads = ThreadScheduler()
    executor = BoundedExecutor(threads, 1)
    threads.close(0)
    for _ in range(2):
        with pytest.raises(SchedulerClosedError):
            executor.execute(lambda slot: None)
        assert executor.idle
