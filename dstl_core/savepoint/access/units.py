"""Divides the keyed state of an operator into units of work, and runs a function of a unit on all.

The same function runs in this process or in a pool of processes. It is pure: it gets a unit and
returns what it found, and the results come in the order of the units.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import current_process, get_context
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dstl_core.errors import ConfigError, DstlError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.entry_reader import key_group_ranges
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog

POOL_FROM_BYTES = 128 << 20
"""By default, keyed state of this size and more is read by several processes: one core reads it in
about a second.
"""
_PARENT_DEATH_SIGNAL = 1
"""``PR_SET_PDEATHSIG`` of Linux."""
_TIMES_ON_STORE = 8
_WAITING = 2
"""Units for each process that run, or whose results wait for those of earlier ones."""

Result = TypeVar("Result")

CGROUP = Path("/sys/fs/cgroup")
"""Where Linux shows the limits of a container (version 2 of control groups)."""
PROCESS_BYTES = 512 << 20
"""What a process that reads state takes at most: libraries, a unit, and its results."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Some key groups of one handle.

    ``handle`` is its place in ``keyed_handles``, and ``size`` the bytes that the key groups take in
    it, if all have equal shares.
    """

    handle: int
    key_groups: KeyGroupRange
    size: int


class UnitRunner(Protocol):
    """Runs a task on units, e.g. on other machines; ``run_units`` says how."""

    def __call__(
        self, task: Callable[[Unit], Any], units: Sequence[Unit]
    ) -> Generator[tuple[Unit, Any], None, None]: ...


Jobs = int | None | UnitRunner
"""The number of processes, None for as many as fit if the state is large; or what runs units."""


def units_of(operator: OperatorCatalog) -> list[Unit]:
    """The units of an operator's keyed state. They are read one at a time by one process."""
    return _units(operator, 1)


def units_to_count(operator: OperatorCatalog) -> list[Unit]:
    """As ``units_of``, for a task that keeps little of what it reads: on a store, requests for more
    bytes cost less of the processor, and fewer units wait for their first bytes.
    """
    return _units(operator, _TIMES_ON_STORE if operator.snapshot.resolver.reads_ahead else 1)


def _units(operator: OperatorCatalog, times: int) -> list[Unit]:
    return [
        Unit(at, key_groups, handle.state_size * len(key_groups) // len(handle.key_group_range))
        for at, handle in enumerate(operator.keyed_handles)
        for key_groups in key_group_ranges(handle, times)
    ]


def jobs_for(size: int, jobs: Jobs) -> int | UnitRunner:
    """The number of processes for state of some size, or what runs its units.

    Args:
        size: Bytes of keyed state.
        jobs: What was asked for; None: one process, and for large state as many as fit.

    Raises:
        ConfigError: The number is wrong.
    """
    if callable(jobs):
        return jobs
    if jobs is not None and jobs < 1:
        raise ConfigError(f"Number of processes (jobs, --jobs): expected 1 or more, got {jobs}.")
    if not sys.platform.startswith("linux"):
        return 1  # elsewhere, a process that has threads cannot be forked
    if current_process().daemon:
        return 1  # one of a pool, e.g. of multiprocessing, may have no processes of its own
    if jobs is not None:
        return jobs
    return processes_that_fit() if size >= POOL_FROM_BYTES else 1


def run_units(
    task: Callable[[Unit], Result], units: Sequence[Unit], jobs: int | UnitRunner
) -> Generator[tuple[Unit, Result], None, None]:
    """Yields each unit with the result of the task, in the order of the units.

    A pool holds at most ``2 * jobs`` results. Its processes are forks, so that they share what is
    loaded: the metadata and the compiler. This process only waits for them.

    Args:
        task: What to do. A result is pickled, unless one process does all.
        units: The units.
        jobs: Number of processes, or what runs the units.

    Raises:
        DstlError: A process ended before its unit did. Errors of the task are raised as they are.
    """
    if callable(jobs):
        yield from jobs(task, units)
        return
    processes = min(jobs, len(units))
    if processes > 1:
        yield from _pooled(task, units, processes)
        return
    for unit in units:
        yield unit, task(unit)


def _pooled(
    task: Callable[[Unit], Result], units: Sequence[Unit], jobs: int
) -> Generator[tuple[Unit, Result], None, None]:
    if "numba" in sys.modules:  # the task has kernels
        _load_compiler()
    pool = ProcessPoolExecutor(jobs, get_context("fork"), _adopt, (task, os.getpid()))
    waiting: deque[tuple[Unit, Future[Any]]] = deque()
    try:
        for unit in units:
            waiting.append((unit, pool.submit(_run, unit)))
            if len(waiting) == _WAITING * jobs:
                yield _next(waiting)
        while waiting:
            yield _next(waiting)
    except BrokenProcessPool as error:
        raise DstlError(
            f"One of {jobs} processes was killed while it read key groups "
            f"{waiting[0][0].key_groups if waiting else 'of the last unit'}, perhaps for want of "
            f"memory; run it with fewer of them (jobs, --jobs)."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _load_compiler() -> None:
    """Calls a kernel and makes an array: what the first ones load, the forks of this process share.
    It takes 0.4 s, and each of them would take as long.
    """
    import numpy as np
    import pyarrow as pa

    from dstl_core.codec.columnar.keyed.byte_index import Ranges, hashes_of

    nothing = np.empty(0, np.int64)
    hashes_of(Ranges(nothing, nothing))
    pa.array([], pa.int64())


def _next(waiting: deque[tuple[Unit, Future[Any]]]) -> tuple[Unit, Any]:
    result = waiting[0][1].result()
    return waiting.popleft()[0], result


_task: list[Callable[[Unit], Any]] = []
"""The task of a process of a pool."""


def _adopt(task: Callable[[Unit], Any], parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for this one ends it
    # If that one is killed, nobody does: this one would wait for ever, and hold its output open.
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    _task[:] = [task]


def _run(unit: Unit) -> Any:
    return _task[0](unit)


def processes_that_fit(cgroup: Path = CGROUP) -> int:
    """The number of cores, or less where a container may use less of them or of memory.

    A container sees all cores of its machine. More processes than its share are slowed down, and
    more than its memory holds are killed.
    """
    cores = len(os.sched_getaffinity(0))
    quota, _, period = _limit(cgroup / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        cores = min(cores, -(-int(quota) // int(period)))
    memory = _limit(cgroup / "memory.max")
    if memory.isdigit():
        cores = min(cores, int(memory) // PROCESS_BYTES)
    return max(1, cores)


def _limit(file: Path) -> str:
    """A limit as Linux writes it; empty without one."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
