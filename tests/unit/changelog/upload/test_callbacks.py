from __future__ import annotations

import logging

import pytest

from dstl_core.changelog.upload.scheduler import CallbackLanes
from dstl_core.testing import ManualScheduler


class Owner:
    """Anything that a lane can belong to."""


def test_an_owners_callbacks_run_one_after_the_other_those_of_others_meanwhile() -> None:
    threads = ManualScheduler()
    lanes, a, b = CallbackLanes(threads), Owner(), Owner()
    seen: list[str] = []

    def slow() -> None:
        threads.pause(10)
        seen.append("a1")

    lanes.run(a, slow)
    lanes.run(a, lambda: seen.append("a2"))
    lanes.run(b, lambda: seen.append("b1"))
    threads.run_until_idle()
    assert seen == ["b1", "a1", "a2"]


def test_an_error_is_logged_and_the_lane_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    threads = ManualScheduler()
    lanes, owner = CallbackLanes(threads), Owner()
    seen: list[int] = []

    def fail() -> None:
        raise RuntimeError("mine")

    with caplog.at_level(logging.ERROR):
        lanes.run(owner, fail)
        lanes.run(owner, lambda: seen.append(1))
        threads.run_until_idle()
    assert seen == [1]
    assert "mine" in caplog.text


def test_without_threads_the_callers_own_runs_them() -> None:
    threads = ManualScheduler()
    threads.close(0)
    seen: list[int] = []
    lanes = CallbackLanes(threads)
    lanes.run(Owner(), lambda: seen.append(1))
    lanes.close(0)
    assert seen == [1]


def test_closing_waits_for_what_runs() -> None:
    threads = ManualScheduler()
    lanes = CallbackLanes(threads)
    seen: list[int] = []

    def slow() -> None:
        threads.pause(10)
        seen.append(1)

    owner = Owner()
    lanes.run(owner, slow)
    lanes.close(1_000)
    assert seen == [1]
