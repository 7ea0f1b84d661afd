"""Divides the keyed state of an operator into units of work, and says how many run at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing import current_process
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol

from dstl_core.errors import ConfigError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.entry_reader import key_group_ranges
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog

POOL_FROM_BYTES = 128 << 20
"""By default, keyed state of this size and more is read by several processes: one core reads it in
about a second.
"""
_TIMES_ON_STORE = 8
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

    @property
    def workers(self) -> int:
        """How many units it runs at once."""
        ...

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
    number: Any = jobs
    if number is not None and (not isinstance(number, Integral) or number < 1):
        raise ConfigError(f"Number of processes (jobs, --jobs): expected 1 or more, got {jobs!r}.")
    if not sys.platform.startswith("linux"):
        return 1  # elsewhere, a process that has threads cannot be forked
    if current_process().daemon:
        return 1  # one of a pool, e.g. of multiprocessing, may have no processes of its own
    if number is not None:
        return int(number)
    return processes_that_fit() if size >= POOL_FROM_BYTES else 1


def workers_of(jobs: int | UnitRunner) -> int:
    """How many units run at once."""
    return jobs if isinstance(jobs, int) else jobs.workers


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
