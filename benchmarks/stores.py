"""A check of a checkpoint on a store whose requests take 20 ms, against the same files on a disk.

The runs alternate, because only their ratio counts. A store that waits takes time and no processor,
so the figure is the wall time; it says something only on a machine with nothing else to do.

Expected before measuring: with reads that begin before they are needed, 1.3 times the disk's time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.commands import GIB
from benchmarks.edits import size_of, source_of
from benchmarks.processes import run_process


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=1_500_000)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2], help="processes of a check")
    parser.add_argument("--wait", type=float, default=20, help="milliseconds of a request")
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    parser.add_argument("--source", help="a checkpoint of a job's folder that is there already")
    results.add_folder(parser)


@dataclass
class _Store:
    process: subprocess.Popen[str]
    port: int

    def counts(self) -> dict[str, int]:
        """The requests since the last call."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        counts: dict[str, int] = json.loads(self.process.stdout.readline())
        return counts


@contextmanager
def _store(folder: Path, milliseconds: float) -> Iterator[_Store]:
    command = [sys.executable, "-m", "benchmarks.slow_store", str(folder), str(milliseconds)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield _Store(process, int(process.stdout.readline()))
        finally:
            process.stdin.close()


def run(arguments: argparse.Namespace) -> None:
    before = results.machine()
    with results.work_folder(arguments.folder) as work:
        source = source_of(arguments, work)
        if source is None:
            return
        states = {
            "checkpoint of RocksDB": source,
            "canonical savepoint": _canonical(work, source),
        }
        measured = {name: _measure(work, folder, arguments) for name, folder in states.items()}
    machine = {**before, "load_average_after": results.machine()["load_average"]}
    figures = {"machine": machine, "wait": arguments.wait, "states": measured}
    results.write("stores", figures, _table(figures))


def _canonical(work: Path, source: Path) -> Path:
    """The same state as a canonical savepoint."""
    out = work / "canonical" / "out"
    _dstl(work, {}, "rewrite", str(source), str(out), "--canonical", "--rename", "old=new")
    return out


def _dstl(work: Path, environment: dict[str, str], *command: str) -> dict[str, Any]:
    os.environ.setdefault("PYTHONPATH", os.getcwd())
    words = [f"{name}={value}" for name, value in environment.items()]
    dstl = [sys.executable, "-m", "dstl_core.cli", *command]
    return run_process(["env", *words, *dstl], work, as_json=False)


def _measure(work: Path, source: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    base, measured = source.parents[1], {}
    with _store(base, arguments.wait) as store:
        environment = {
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.port}",
        }
        for jobs in arguments.jobs:
            more = ["--jobs", str(jobs)]
            disk, away = [], []
            for _ in range(arguments.runs):
                disk.append(_dstl(work, {}, "verify", str(source), *more))
                store.counts()
                place = f"s3://bucket/{source.relative_to(base)}"
                moved = ["--relocate", f"file:{base}=s3://bucket"]
                away.append(_dstl(work, environment, "verify", place, *more, *moved))
                away[-1]["requests"] = store.counts()
            measured[str(jobs)] = {"disk": disk, "store": away}
    return {"bytes": size_of(source.parent), "jobs": measured}


def _table(figures: dict[str, Any]) -> str:
    lines = [
        "# A check of state on a store",
        "",
        f"{results.describe(figures['machine'])} A server on this machine lets each request wait "
        f"{figures['wait']:g} ms. Whole processes of `dstl verify`, disk and store in turn; "
        f"medians.",
        "",
        "| state | GiB | `--jobs` | disk, s | store, s | store / disk | CPU s, disk | CPU s, store "
        "| requests | bytes / state |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, state in figures["states"].items():
        for jobs, runs in state["jobs"].items():
            disk, store = (_medians(runs[place]) for place in ("disk", "store"))
            requests = runs["store"][-1]["requests"]
            many = ", ".join(
                f"{n} {what}" for what, n in sorted(requests.items()) if what != "bytes"
            )
            lines.append(
                f"| {name} | {state['bytes'] / GIB:.2f} | {jobs} | {disk[0]:.2f} | {store[0]:.2f} "
                f"| {store[0] / disk[0]:.2f} | {disk[1]:.1f} | {store[1]:.1f} | {many} "
                f"| {requests['bytes'] / state['bytes']:.2f} |"
            )
    return "\n".join(lines) + "\n"


def _medians(runs: list[dict[str, Any]]) -> tuple[float, float]:
    wall, cpu = (
        statistics.median(each[name] for each in runs)
        for name in ("process_seconds", "cpu_seconds")
    )
    return wall, cpu
