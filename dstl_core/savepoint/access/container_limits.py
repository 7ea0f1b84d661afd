"""How many processes a machine, or a container, has room for."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
"""Where Linux shows the limits of a container (version 2 of control groups)."""
PROCESS_BYTES = 512 << 20
"""What a process that reads state takes at most: libraries, a unit, and its results."""


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
