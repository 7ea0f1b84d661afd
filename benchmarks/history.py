"""What an epoch and a new process cost as the number of commits grows.

One pipeline gets as many commits as asked for. Up to each mark the last epochs are run by Spark in
a process of its own, the same number each time, and measured; the commits between them are made by
the same driver without a Spark job (metadata, records, index and retirement are real).

Expected before measuring: nothing grows. A new process reads the head of the index and a few
records; an epoch looks at the last commits only; Spark's own list of past queries grows with the
epochs of one process, up to its limits.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks import results

COLUMNS = {
    "commits": "commits",
    "epoch_ms": "epoch, ms",
    "open_ms": "open, ms",
    "open_requests": "requests to open",
    "driver_mb": "driver, MB",
    "jvm_live_mb": "JVM live, MB",
    "jvm_mb": "JVM resident, MB",
    "workers_mb": "workers, MB",
    "driver_files": "files of driver",
    "jvm_files": "of JVM",
    "workers_files": "of workers",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--marks", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--epochs", type=int, default=100, help="run by Spark up to each mark")


def run(arguments: argparse.Namespace) -> None:
    before = results.machine()
    base = tempfile.mkdtemp(prefix="dstl-history-")
    try:
        cases = []
        for mark in arguments.marks:
            if mark > arguments.epochs:
                _worker(base, "--fill", str(mark - arguments.epochs))
            [line] = _worker(base, "--until", str(mark), "--mark", str(mark), "--gc")
            cases.append(json.loads(line))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    figures = {
        "machine": {**before, "load_average_after": results.machine()["load_average"]},
        "epochs": arguments.epochs,
        "cases": cases,
    }
    results.write("history", figures, _table(figures))


def _worker(base: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.history_worker", base, *arguments]
    print("#", *command[3:], file=sys.stderr)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line.startswith("{")]


def _table(figures: dict[str, Any]) -> str:
    lines = [
        "# History",
        "",
        results.describe(figures["machine"]),
        f"The last {figures['epochs']} epochs before each mark ran in Spark, `local[1]`, one row "
        f"each, in a process of their own; the other commits were made without a Spark job. Times "
        f"are medians of the last 50 epochs; memory is measured at the mark, after a collection.",
        "",
        "| " + " | ".join(COLUMNS.values()) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    lines += [
        "| " + " | ".join(f"{case[name]:,}" for name in COLUMNS) + " |" for case in figures["cases"]
    ]
    return "\n".join(lines) + "\n"
