"""Runs a work of a benchmark in a process of its own."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
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


def median(runs: Sequence[dict[str, Any]], name: str) -> float:
    """The median of one figure of several runs."""
    return float(statistics.median(each[name] for each in runs))
