"""Runs a work of a benchmark in a process of its own."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def run_process(command: Sequence[str], work: Path, *, as_json: bool = True) -> dict[str, Any]:
    """Runs a process: seconds and peak memory of it, and the last line that it prints."""
    start = time.perf_counter()
    with (work / "stdout").open("w+") as out, (work / "stderr").open("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, cwd=work)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{command[-3:]} failed:\n{(work / 'stderr').read_text()[-2000:]}")
        lines = (work / "stdout").read_text().splitlines()
    figures = {"process_seconds": round(wall, 2), "peak_mib": usage.ru_maxrss // 1024}
    figures["cpu_seconds"] = round(usage.ru_utime + usage.ru_stime, 2)
    return figures | (json.loads(lines[-1]) if as_json else {})


def cpu_with_descendants() -> float:
    """CPU seconds that this process and the processes below it have used (Linux)."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))  # its own, and of ended children
    own, total = os.getpid(), 0
    for process in ticks:
        above = process
        while above not in (0, own):
            above = parents.get(above, 0)
        total += ticks[process] if above == own else 0
    return total / os.sysconf("SC_CLK_TCK")


def median(runs: Sequence[dict[str, Any]], name: str) -> float:
    """The median of one figure of several runs."""
    return float(statistics.median(each[name] for each in runs))
