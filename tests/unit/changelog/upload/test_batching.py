"""Batches: Flink's BatchingStateChangeUploadSchedulerTest, then what it promises beyond."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from itertools import chain

import pytest

from dstl_core.changelog.storage_metrics import ChangelogStorageMetricGroup
from dstl_core.changelog.upload import BatchingStateChangeUploadScheduler, RetryPolicy
from dstl_core.changelog.upload.task import UploadTask, UploadTasksResult
from dstl_core.errors import (
    BackpressureTimeoutError,
    ConfigError,
    SchedulerClosedError,
    StorageError,
    UploadFailedError,
    UploadTimeoutError,
    WriterClosedError,
)
from dstl_core.metrics import MetricGroup
from dstl_core.model.handle import FileStateHandle
from dstl_core.scheduling import ThreadScheduler
from dstl_core.testing import ManualScheduler
from tests.unit.changelog.upload.doubles import Outcomes, ScriptedUploader

LIMIT = 10_000
NEVER_MS = 10**12


class Fixture:
    """A scheduler over a scripted uploader, on manual threads."""

    def __init__(
        self,
        *steps: BaseException | int,
        delay: int = 0,
        threshold: int = 0,
        limit: int = LIMIT,
        policy: RetryPolicy = RetryPolicy.NONE,
        num_threads: int = 1,
    ) -> None:
        self.threads = ManualScheduler()
        self.uploader = ScriptedUploader(self.threads, *steps)
        self.metrics = MetricGroup()
        self.scheduler = BatchingStateChangeUploadScheduler(
            self.uploader,
            self.threads,
            persist_delay_ms=delay,
            size_threshold=threshold,
            max_bytes_in_flight=limit,
            retry_policy=policy,
            num_upload_threads=num_threads,
            backpressure_timeout_ms=1_000,
            metrics=ChangelogStorageMetricGroup(self.metrics),
        )
        self.outcomes = Outcomes()

    def upload(self, *sizes: int, callback: Callable[[], None] = lambda: None) -> UploadTask:
        task = self.outcomes.task(*sizes, callback=callback)
        self.scheduler.upload(task)
        return task

    @property
    def available(self) -> bool:
        return self.scheduler.get_availability_provider().is_available()


# ------------------------------------------------- BatchingStateChangeUploadSchedulerTest


def test_no_delay_and_threshold() -> None:
    f = Fixture()
    for size in (1, 2, 3):
        f.upload(size)
        f.threads.run_ready()
    assert f.uploader.batches == [[1], [2], [3]]


def test_size_threshold() -> None:
    f = Fixture(delay=NEVER_MS, threshold=77)
    for _ in range(6):
        f.upload(11)
        f.threads.run_ready()
        assert f.uploader.batches == []
    f.upload(11)
    f.threads.run_ready()
    assert f.uploader.batches == [[11] * 7]


def test_delay() -> None:
    f = Fixture(delay=50, threshold=LIMIT)
    f.upload(1)
    f.threads.advance(30)
    f.upload(2)  # does not extend the delay of the first
    f.threads.advance(19)
    assert f.uploader.batches == []
    f.threads.advance(1)
    assert f.uploader.batches == [[1, 2]]
    f.upload(3)
    f.threads.advance(50)
    assert f.uploader.batches == [[1, 2], [3]]


def test_retry() -> None:
    f = Fixture(*[StorageError("no disk")] * 4, policy=RetryPolicy.fixed(5, 0, 0))
    task = f.upload(5)
    f.threads.run_until_idle()
    assert len(f.uploader.batches) == 5
    assert [each.size for each in f.outcomes.results[task]] == [5]
    assert f.outcomes.errors == {}


def test_upload_timeout() -> None:
    f = Fixture(1_000, policy=RetryPolicy.fixed(1, 1, 0))
    task = f.upload(5, 6)
    f.threads.run_until_idle()
    assert isinstance(f.outcomes.errors[task], UploadTimeoutError)
    assert [each.number for each in f.outcomes.numbers[task]] == [0, 1]
    assert f.uploader.discarded == ["memory://file-1"]


def test_retry_on_timeout() -> None:
    f = Fixture(1_000, 1_000, 0, policy=RetryPolicy.fixed(3, 10, 0))
    task = f.upload(5, 6)
    f.threads.run_until_idle()
    assert [each.sequence_number.number for each in f.outcomes.results[task]] == [0, 1]
    assert f.outcomes.errors == {}
    assert f.uploader.discarded == ["memory://file-1", "memory://file-2"]


def test_error_handling() -> None:
    # Threads that are gone: the original rejects the call; here the task gets its outcome.
    f = Fixture(delay=5)
    f.threads.close(0)
    task = f.upload(5)
    assert isinstance(f.outcomes.errors[task], SchedulerClosedError)
    assert f.scheduler.bytes_in_flight == 0


def test_close() -> None:
    f = Fixture()
    f.scheduler.close()
    f.scheduler.close()
    assert f.uploader.closed == 1


def test_back_pressure() -> None:
    f = Fixture(500, 600, limit=LIMIT, num_threads=2)
    provider = f.scheduler.get_availability_provider()
    assert provider.is_available()
    assert provider.is_approximately_available()
    f.upload(LIMIT // 2)
    assert f.available
    f.upload(LIMIT // 2)
    assert not f.available
    f.upload(1)  # waits until the first upload is over
    assert f.threads.clock.monotonic_ms() == 500
    assert f.metrics.add_group("ChangelogStorage").counter("backPressureMs").count == 500
    f.threads.run_until_idle()
    assert f.available
    assert sorted(chain.from_iterable(f.uploader.batches)) == [1, LIMIT // 2, LIMIT // 2]


def test_interrupted_when_back_pressured(monkeypatch: pytest.MonkeyPatch) -> None:
    f = Fixture(500)
    f.upload(LIMIT)

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(f.threads, "wait_for", interrupt)
    with pytest.raises(KeyboardInterrupt):
        f.upload(1)
    monkeypatch.undo()
    f.threads.run_until_idle()
    assert f.uploader.batches == [[LIMIT]]
    assert f.scheduler.bytes_in_flight == 0


# ----------------------------------------------------------------------------- beyond Flink


def test_waiting_for_room_is_bounded_and_takes_nothing() -> None:
    f = Fixture(NEVER_MS)
    f.upload(LIMIT)
    task = f.outcomes.task(1)
    with pytest.raises(BackpressureTimeoutError, match="within 1000 ms"):
        f.scheduler.upload(task)
    assert f.threads.clock.monotonic_ms() == 1_000
    assert not task.is_finished
    assert f.scheduler.bytes_in_flight == LIMIT


def test_the_available_future_tells_when_there_is_room_again() -> None:
    f = Fixture(500)
    f.upload(LIMIT)
    future = f.scheduler.get_availability_provider().get_available_future()
    seen: list[int] = []
    future.add_done_callback(lambda _: seen.append(f.threads.clock.monotonic_ms()))
    f.threads.run_until_idle()
    assert seen == [500]


def test_bytes_are_given_back_however_a_task_ends() -> None:
    f = Fixture(0, StorageError("no disk"), RuntimeError("a bug"), 300, num_threads=4)
    for size in (10, 20, 30, 40):
        f.upload(size)
    assert f.scheduler.bytes_in_flight == 100
    f.threads.run_ready()
    assert f.scheduler.bytes_in_flight == 40
    f.threads.run_until_idle()
    assert f.scheduler.bytes_in_flight == 0
    assert (len(f.outcomes.results), len(f.outcomes.errors)) == (2, 2)


def test_an_attempt_that_hangs_counts_until_it_returns() -> None:
    f = Fixture(5_000, 0, limit=640, policy=RetryPolicy.fixed(2, 100, 0))
    task = f.upload(50)
    f.threads.advance(100)
    assert task in f.outcomes.results
    assert f.scheduler.bytes_in_flight == 50
    f.threads.advance(5_000)
    assert f.scheduler.bytes_in_flight == 0


def test_a_failing_callback_starves_nobody(caplog: pytest.LogCaptureFixture) -> None:
    # Hazard H5: 9 of 20 runs of the original left the other tasks of a batch without an outcome.
    f = Fixture(delay=10, threshold=LIMIT)

    def refuse() -> None:
        raise RuntimeError("mailbox closed")

    others = [f.upload(1), f.upload(2, callback=refuse), f.upload(3)]
    with caplog.at_level(logging.ERROR):
        f.threads.run_until_idle()
    assert f.outcomes.results.keys() == {others[0], others[2]}
    assert f.scheduler.bytes_in_flight == 0
    assert "mailbox closed" in caplog.text


def test_a_slow_callback_holds_up_neither_others_nor_bytes() -> None:
    f = Fixture(delay=10, threshold=LIMIT)
    slow = f.upload(5_000, callback=lambda: f.threads.pause(60_000))
    other = f.upload(5_000)
    f.threads.advance(10)
    assert f.outcomes.results.keys() == {other}
    assert f.scheduler.bytes_in_flight == 0
    f.upload(LIMIT)
    f.threads.advance(10)
    assert len(f.outcomes.results) == 2
    f.threads.run_until_idle()
    assert slow in f.outcomes.results


def test_a_failing_callback_of_a_failed_batch_starves_nobody() -> None:
    f = Fixture(StorageError("no disk"), delay=10, threshold=LIMIT)

    def refuse() -> None:
        raise RuntimeError("mailbox closed")

    f.upload(1, callback=refuse)
    other = f.upload(2)
    f.threads.run_until_idle()
    assert f.outcomes.errors.keys() == {other}
    assert f.scheduler.bytes_in_flight == 0


# --------------------------------------------------------------------- uploaders of users


class Stingy:
    """An uploader of a user that forgets what it was given."""

    def __init__(self, forget: str) -> None:
        self._forget = forget

    def upload(self, tasks: list[UploadTask]) -> UploadTasksResult:
        offsets = {task: dict.fromkeys(task.change_sets, (0, 0)) for task in tasks}
        if self._forget == "a task":
            del offsets[tasks[-1]]
        else:
            offsets[tasks[-1]].popitem()
        return UploadTasksResult(offsets, FileStateHandle("memory://x", 1))

    def close(self) -> None: ...


@pytest.mark.parametrize("forget", ["a task", "a change set"])
def test_an_uploader_that_forgets_something_makes_nobody_wait_for_ever(forget: str) -> None:
    threads = ManualScheduler()
    scheduler = BatchingStateChangeUploadScheduler(
        Stingy(forget),  # type: ignore[arg-type]
        threads,
        persist_delay_ms=10,
        size_threshold=LIMIT,
        max_bytes_in_flight=LIMIT,
    )
    outcomes = Outcomes()
    first, last = outcomes.task(1, 2), outcomes.task(3, 4)
    scheduler.upload(first)
    scheduler.upload(last)
    threads.run_until_idle()
    assert outcomes.results.keys() == {first}
    assert isinstance(outcomes.errors[last], UploadFailedError)
    assert scheduler.bytes_in_flight == 0


# --------------------------------------------------------------------------------- closing


def test_closing_ends_every_task_and_takes_no_other() -> None:
    # Hazard H10: the original drops what comes after its close, and what waits for a retry.
    f = Fixture(100, NEVER_MS, delay=10, threshold=LIMIT, num_threads=2)
    ends = f.upload(1)
    f.threads.advance(10)
    hangs = f.upload(2)
    f.threads.advance(10)
    queued = f.upload(3)
    f.scheduler.close()
    assert ends in f.outcomes.results
    for task in (hangs, queued):
        assert isinstance(f.outcomes.errors[task], WriterClosedError)
    late = f.upload(4)
    assert isinstance(f.outcomes.errors[late], WriterClosedError)
    assert f.scheduler.bytes_in_flight == 0
    assert f.uploader.batches == [[1], [2]]
    f.threads.advance(NEVER_MS)
    assert f.uploader.discarded == ["memory://file-2"]


def test_closing_ends_the_wait_of_a_blocked_caller() -> None:
    f = Fixture(NEVER_MS)
    f.upload(LIMIT)
    f.threads.schedule(f.scheduler.close, 1)
    task = f.upload(1)
    assert isinstance(f.outcomes.errors[task], WriterClosedError)


def test_a_callback_that_hangs_does_not_hold_up_the_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    f = Fixture()
    f.upload(1, callback=lambda: f.threads.pause(NEVER_MS))
    f.threads.run_ready()
    with caplog.at_level(logging.ERROR):
        f.scheduler.close()
    assert "callbacks of uploads still run after the close: callbacks=1" in caplog.text


def test_a_threshold_above_the_limit_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"sizeThresholdBytes \(101\) must not exceed maxBytesInFlight \(100\)"
    ):
        Fixture(threshold=101, limit=100)


# --------------------------------------------------------------------------------- metrics


def gauge(metrics: MetricGroup, name: str) -> float:
    [group] = [group for group in metrics.walk() if group.scope]
    read = group.metrics()[name]
    assert callable(read)
    return read()


def test_queue_size_and_bytes_in_flight() -> None:
    f = Fixture(delay=10, threshold=LIMIT)
    for _ in range(11):
        f.upload(2)
    assert gauge(f.metrics, "uploadQueueSize") == 11
    assert gauge(f.metrics, "bytesInFlight") == 22
    f.threads.run_until_idle()
    assert gauge(f.metrics, "uploadQueueSize") == 0
    assert gauge(f.metrics, "bytesInFlight") == 0


# ----------------------------------------------------------------------- on real threads


def test_many_callers_on_real_threads() -> None:
    threads = ThreadScheduler("test")
    scheduler = BatchingStateChangeUploadScheduler(
        ScriptedUploader(ManualScheduler()),
        threads,
        persist_delay_ms=1,
        size_threshold=50,
        max_bytes_in_flight=100,
        num_upload_threads=3,
        owns_threads=True,
    )
    done = threading.Semaphore(0)
    outcomes = [Outcomes() for _ in range(8)]

    def submit(mine: Outcomes) -> None:
        for size in range(50):
            scheduler.upload(mine.task(size, callback=done.release))

    callers = [threading.Thread(target=submit, args=(mine,)) for mine in outcomes]
    for caller in callers:
        caller.start()
    for _ in range(8 * 50):
        assert done.acquire(timeout=30)
    for caller in callers:
        caller.join()
    scheduler.close()
    assert [len(mine.results) for mine in outcomes] == [50] * 8
    assert scheduler.bytes_in_flight == 0
