"""The same units by one process, by a pool, and by a standalone cluster of Spark with two workers.

A worker of the cluster has one core. A process calls a command twice, and the second call counts,
without the start of Spark. Processes with one core and with two alternate. Wall time says something
only on a machine with nothing else to do; CPU seconds are those of the whole machine.

Expected before measuring: two processes take 1 / 1.8 of the time of one, and two workers 1 / 1.6.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.edits import size_of, source_of
from benchmarks.processes import run_process

COMMANDS = ("verify", "report", "rewrite")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=4_500_000)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    parser.add_argument(
        "--runners", nargs="+", choices=["pool", "spark"], default=["pool", "spark"]
    )
    parser.add_argument("--source", help="a checkpoint that is there already")
    results.add_folder(parser)


def run(arguments: argparse.Namespace) -> None:
    before = results.machine()
    with results.work_folder(arguments.folder) as work:
        source = source_of(arguments, work)
        if source is None:
            return
        measured = {
            runner: _measure(work, source, runner, arguments) for runner in arguments.runners
        }
        size = size_of(source.parent)
    machine = {**before, "load_average_after": results.machine()["load_average"]}
    figures = {"machine": machine, "bytes": size, "runners": measured}
    results.write("runners", figures, _table(figures))


def _measure(
    work: Path, source: Path, runner: str, arguments: argparse.Namespace
) -> dict[str, dict[str, list[dict[str, float]]]]:
    os.environ.setdefault("PYTHONPATH", os.getcwd())
    measured: dict[str, dict[str, list[dict[str, float]]]] = {}
    with _master(runner, work) as master:
        for _ in range(arguments.runs):
            for cores in ("1", "2"):
                words = [str(source), master, cores, *arguments.commands]
                ran = run_process([sys.executable, "-m", "benchmarks.runners", *words], work)
                for command in arguments.commands:
                    measured.setdefault(command, {}).setdefault(cores, []).append(ran[command])
    return measured


@contextmanager
def _master(runner: str, work: Path) -> Iterator[str]:
    """The address of a cluster with two workers; none for a pool."""
    if runner == "pool":
        yield ""
        return
    from tests.integration.spark.standalone_cluster import StandaloneCluster

    cluster = StandaloneCluster(work / "cluster")
    try:
        yield cluster.url
    finally:
        cluster.close()


def _worker(source: str, master: str, cores: int, commands: list[str]) -> None:
    """Prints seconds and CPU seconds of the second call of each command."""
    measured: dict[str, Any] = {}
    with _jobs(master, cores) as jobs:
        for command in commands:
            call = _call(command, source, Path.cwd())
            call(jobs)
            start, busy = time.perf_counter(), _busy_seconds()
            call(jobs)
            measured[command] = {
                "seconds": time.perf_counter() - start,
                "cpu": _busy_seconds() - busy,
            }
    print(json.dumps(measured))


def _call(command: str, source: str, work: Path) -> Callable[[Any], object]:
    from dstl_core import Snapshot, edit_savepoint, report_snapshot, verify_snapshot
    from dstl_core.savepoint import OperatorIdentifier

    def rewritten(jobs: Any) -> None:
        old, new = (OperatorIdentifier.for_uid(uid) for uid in ("old", "new"))
        edit = edit_savepoint(Snapshot.load(source)).with_files("canonical")
        edit.change_operator_identifier(old, new).write(work / "out", jobs=jobs)
        shutil.rmtree(work / "out")

    return {
        "verify": lambda jobs: verify_snapshot(Snapshot.load(source), jobs=jobs),
        "report": lambda jobs: report_snapshot(Snapshot.load(source), jobs=jobs),
        "rewrite": rewritten,
    }[command]


@contextmanager
def _jobs(master: str, cores: int) -> Iterator[Any]:
    """What runs units with some cores: the number of them for a pool."""
    if not master:
        yield cores
        return
    from dstl_core.spark.session_start import units_on

    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--conf spark.cores.max={cores} pyspark-shell"
    with units_on(master) as units:
        yield units


def _busy_seconds() -> float:
    """CPU seconds that this machine has spent since its start."""
    user, nice, system, *_ = Path("/proc/stat").read_text().split()[1:]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def _table(figures: dict[str, Any]) -> str:
    lines = [
        "# Three runners of the same units",
        "",
        f"{results.describe(figures['machine'])} An incremental checkpoint of RocksDB by Flink, "
        f"{figures['bytes'] / 2**30:.2f} GiB; medians of calls, with one core and two in "
        f"turn. Spark is a standalone cluster with a worker for each core.",
        "",
        "| runner | command | one, s | two, s | times as fast | CPU s, one | CPU s, two |",
        "|---|---|---|---|---|---|---|",
    ]
    for runner, commands in figures["runners"].items():
        for command, own in commands.items():
            one, two = (_medians(own[cores]) for cores in ("1", "2"))
            lines.append(
                f"| {runner} | {command} | {one[0]:.2f} | {two[0]:.2f} | {one[0] / two[0]:.2f} "
                f"| {one[1]:.1f} | {two[1]:.1f} |"
            )
    return "\n".join(lines) + "\n"


def _medians(runs: list[dict[str, float]]) -> tuple[float, float]:
    seconds, cpu = (statistics.median(run[name] for run in runs) for name in ("seconds", "cpu"))
    return seconds, cpu


if __name__ == "__main__":
    _worker(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
