"""Runs units by threads of this process: for work that is done in kernels, which need no lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from dstl_core.savepoint.access.units import Unit

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ThreadRunner:
    """Runs units as ``run_units`` does. It stands where a number of processes (``jobs``) does.

    Threads share the task, and each holds a unit in memory.

    Args:
        workers: Number of threads.
    """

    workers: int

    def __call__(
        self, task: Callable[[Unit], Any], units: Sequence[Unit]
    ) -> Generator[tuple[Unit, Any], None, None]:
        with ThreadPoolExecutor(self.workers, "dstl-units") as pool:
            results = in_threads(pool, task, units, self.workers)
            with closing(results):
                yield from zip(units, results, strict=True)


def in_threads(
    pool: ThreadPoolExecutor, call: Callable[[Item], Result], items: Iterable[Item], most: int
) -> Generator[Result, None, None]:
    """The results in the order of the items; at most ``most`` run, or wait for earlier ones."""
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) == most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
