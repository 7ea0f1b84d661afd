"""A line of progress for long test runs: how many tests are done, and how long the rest takes.

Tests of a folder weigh what they take of a core on average, so that the estimate holds although the
long tests come first. The estimate begins with all cores at work, and follows the machine that the
run is on.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import pytest

EVERY_S = 30.0
TABLE_S = 60.0
"""Seconds of the table that the estimate starts with, so that the first test does not decide."""
SECONDS: Mapping[str, float] = {
    "tests/docs": 0.25,
    "tests/integration/dagster": 0.3,
    "tests/integration/spark": 2.3,
    "tests/integration/flink": 1.2,
    "tests/integration/browser": 15.0,
    "tests/property": 0.3,
    "tests/simulation": 1.0,
    "tests/contract": 0.1,
    "tests": 0.025,
}
"""What a test of a folder takes of a core on average; the first name that fits counts."""
FAST_SECONDS: Mapping[str, float] = {"tests/property": 0.04, "tests": 0.0135}
"""The same for ``make test-fast``: few examples, and none of the slow tests."""


def seconds_of(nodeid: str, table: Mapping[str, float]) -> float:
    return next(seconds for folder, seconds in table.items() if nodeid.startswith(f"{folder}/"))


class Progress:
    """Counts finished tests. Lives in the process that reports, not in those that run tests.

    Args:
        write: Takes a line.
        clock: Seconds, from any moment.
        cores: How many cores the tests have.
        table: What a test of a folder takes.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        clock: Callable[[], float],
        cores: int,
        table: Mapping[str, float] = SECONDS,
    ) -> None:
        self._table = table
        self._write = write
        self._clock = clock
        self._cores = cores
        self._started = self._told = clock()
        self._total: list[str] = []
        self._done: Counter[str] = Counter()

    def begin(self, nodeids: list[str]) -> None:
        """Says how many tests there are. Each process of xdist tells of the same ones."""
        if not self._total:
            self._total = nodeids
            self._started = self._told = self._clock()
            self._write(f"{len(nodeids):,} tests, {_time(self._expected())}")

    def finish(self, nodeid: str) -> None:
        self._done[nodeid] += 1
        now = self._clock()
        if self._total and now - self._told >= EVERY_S:
            self._told = now
            count = f"{len(self._done):,} of {len(self._total):,} tests"
            self._write(f"{count}, {_time(self._left(now))} left")

    def _expected(self) -> float:
        return self._core_seconds(self._total) / self._cores

    def _left(self, now: float) -> float:
        """The rest of the work, at the speed of the work that is done."""
        done = self._core_seconds(self._done) / self._cores
        pace = (now - self._started + TABLE_S) / (done + TABLE_S)
        return (self._expected() - done) * pace

    def _core_seconds(self, nodeids: Iterable[str]) -> float:
        return sum(seconds_of(nodeid, self._table) for nodeid in nodeids)


def _time(seconds: float) -> str:
    """Minutes, or tens of seconds where half a minute would be lost."""
    if seconds > 100:
        return f"about {round(seconds / 60)} min"
    return f"about {max(1, math.ceil(seconds / 10)) * 10} s"


class ProgressPlugin:
    """Feeds ``Progress`` from the hooks of pytest and of xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._reporter = config.pluginmanager.get_plugin("terminalreporter")
        processes = config.getoption("numprocesses", default=None) or 1
        cores = min(processes, os.cpu_count() or 1)
        table = FAST_SECONDS if os.environ.get("DSTL_PROFILE") == "fast" else SECONDS
        self._progress = Progress(self._write, time.monotonic, cores, table)

    def _write(self, line: str) -> None:
        self._reporter.ensure_newline()
        self._reporter.write_line(line)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:  # with xdist, the processes have them
            self._progress.begin([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self._progress.begin(ids)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._progress.finish(nodeid)
