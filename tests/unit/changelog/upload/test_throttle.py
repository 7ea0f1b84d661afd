"""The limit of bytes in flight."""

from __future__ import annotations

import pytest

from dstl_core.changelog.upload.throttle import InFlightAccount, UploadThrottle
from dstl_core.errors import BackpressureTimeoutError, InvariantViolation, WriterClosedError
from dstl_core.testing import ManualScheduler


def throttle(limit: int = 100) -> tuple[UploadThrottle, ManualScheduler]:
    threads = ManualScheduler()
    return UploadThrottle(limit, threads), threads


def test_bytes_are_seized_and_released() -> None:
    limit, _ = throttle()
    limit.seize(60, None, 0)
    assert limit.bytes_in_flight == 60
    assert limit.has_capacity()
    limit.seize(40, None, 0)
    assert not limit.has_capacity()
    assert not limit.availability.is_available()
    limit.release(60)
    limit.release(40)
    assert limit.bytes_in_flight == 0
    assert limit.availability.is_approximately_available()


def test_the_size_of_a_task_counts_before_it_is_admitted() -> None:
    # The original lets any task pass while a single byte is free.
    limit, threads = throttle()
    limit.seize(99, None, 0)
    with pytest.raises(BackpressureTimeoutError, match=r"room for 2 bytes within 50 ms, got 99"):
        limit.seize(2, None, 50)
    assert threads.clock.monotonic_ms() == 50
    assert limit.bytes_in_flight == 99
    limit.seize(1, None, 0)


def test_a_task_larger_than_the_limit_is_admitted_alone() -> None:
    limit, _ = throttle()
    limit.seize(1, None, 0)
    with pytest.raises(BackpressureTimeoutError):
        limit.seize(500, None, 10)
    limit.release(1)
    limit.seize(500, None, 0)
    with pytest.raises(BackpressureTimeoutError):
        limit.seize(1, None, 10)


def test_room_that_comes_in_time_ends_the_wait() -> None:
    limit, threads = throttle()
    limit.seize(100, None, 0)
    threads.schedule(lambda: limit.release(100), 30)
    limit.seize(100, None, 50)
    assert threads.clock.monotonic_ms() == 30


def test_failed_bytes_go_on_counting_for_their_writer_only() -> None:
    limit, _ = throttle()
    first, second = InFlightAccount(limit), InFlightAccount(limit)
    limit.seize(100, first, 0)
    limit.hold(first, 100)
    assert (limit.bytes_in_flight, first.held) == (100, 100)
    assert not limit.availability.is_available()
    with pytest.raises(BackpressureTimeoutError, match="100 of them failed before"):
        limit.seize(1, first, 10)
    # Another writer goes on, one task at a time.
    limit.seize(7, second, 0)
    with pytest.raises(BackpressureTimeoutError):
        limit.seize(7, second, 10)
    limit.release(7)
    # Uploading the failed bytes again needs no room.
    limit.seize(100, first, 0, kept=True)
    first.give_up(100)
    assert (limit.bytes_in_flight, first.held) == (0, 0)
    assert limit.availability.is_available()


def test_giving_up_more_than_is_held_gives_up_what_is_held() -> None:
    limit, _ = throttle()
    account = InFlightAccount(limit)
    limit.seize(10, account, 0)
    limit.hold(account, 10)
    account.give_up(25)
    assert (limit.bytes_in_flight, account.held) == (0, 0)
    InFlightAccount().give_up(5)


def test_releasing_what_was_never_seized_is_a_bug() -> None:
    limit, _ = throttle()
    with pytest.raises(InvariantViolation, match="more bytes were released"):
        limit.release(1)


def test_hanging_attempts_hold_their_bytes_and_a_share_at_least() -> None:
    limit, _ = throttle(6_400)
    account = InFlightAccount(limit)
    charges = [limit.attempt_hangs(size) for size in (1, 1_000)]
    assert charges == [100, 1_000]
    assert limit.bytes_in_flight == 1_100
    limit.seize(5_300, account, 0)
    limit.hold(account, 5_300)
    with pytest.raises(BackpressureTimeoutError, match="1100 in attempts that hang"):
        limit.seize(1, account, 10)
    # Even bytes that are counted already wait while too much hangs.
    with pytest.raises(BackpressureTimeoutError):
        limit.seize(5_301, account, 10, kept=True)
    limit.seize(5_300, account, 0, kept=True)
    for charge in charges:
        limit.attempt_returned(charge)
    assert limit.bytes_in_flight == 5_300


def test_a_full_load_of_hanging_attempts_stops_even_a_lonely_task() -> None:
    limit, _ = throttle(64)
    for _ in range(64):
        limit.attempt_hangs(0)
    with pytest.raises(BackpressureTimeoutError):
        limit.seize(1, None, 10)


def test_the_available_future_is_done_when_there_is_room() -> None:
    limit, _ = throttle()
    assert limit.availability.get_available_future().done()
    limit.seize(100, None, 0)
    future = limit.availability.get_available_future()
    assert not future.done()
    assert limit.availability.get_available_future() is future
    limit.release(1)
    assert future.done()
    assert limit.availability.is_available()


def test_closing_wakes_those_who_wait() -> None:
    limit, threads = throttle()
    limit.seize(100, None, 0)
    future = limit.availability.get_available_future()
    threads.schedule(limit.close, 5)
    with pytest.raises(WriterClosedError, match="while a task waited"):
        limit.seize(1, None, 1_000)
    assert threads.clock.monotonic_ms() == 5
    assert future.done()
