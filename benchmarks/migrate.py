"""``dstl migrate`` next to real Flink, which fills the state of the changed job from nothing.

The old job has String keys and Integer values, the new one Long and Long. Flink's way has no
migration: a job fills the new state and takes a savepoint. Its time starts at the first row, and
the reading of its input costs nothing here. Both are whole processes; their peak memory is what
the system counts. Flink's heap is free to grow to the limit beside its figure, so its peak is no
need.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from benchmarks import flink, results
from benchmarks.processes import median, run_process
from benchmarks.savepoint import OPENS
from dstl_core import Snapshot

JAVA_MAIN = "dstl.bench.MigrationBench"
LARGE = 5_000_000
NEW_KEY = "apply, new key and value"
WORKS: dict[str, dict[str, Any]] = {
    NEW_KEY: {"key": "cast(key, BIGINT)"},
    "apply, new name of the state": {"states": {"renamed": {"from": "v"}}},
    "plan, new key and value": {"key": "cast(key, BIGINT)"},
}
FLINK = "Flink fills the new state"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, LARGE, 20_000_000])
    results.add_folder(parser)


def run(arguments: argparse.Namespace) -> None:
    machine = results.machine()
    with results.work_folder(arguments.folder) as work:
        classes = work / "classes"
        classes.mkdir()
        classpath = flink.compiled_classpath(classes)
        if classpath is None:
            raise SystemExit("dstl: the benchmark needs Flink: install the group 'flink', a JDK.")
        sizes = []
        for keys in arguments.keys:
            rounds = arguments.rounds if keys <= LARGE else 1
            sizes.append(_measure(keys, rounds, classpath, work / str(keys)))
            shutil.rmtree(work / str(keys))
    machine["load_average_after"] = os.getloadavg()[0]
    figures = {"machine": machine, "sizes": sizes}
    results.write("migrate", figures, table_of(figures))


def _measure(keys: int, rounds: int, classpath: str, work: Path) -> dict[str, Any]:
    work.mkdir(parents=True)
    heap = "3g" if keys <= LARGE else "8g"

    def fill(kind: str, count: int, name: str) -> dict[str, Any]:
        opens = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in OPENS]
        command = ["java", f"-Xmx{heap}", *opens, "-cp", classpath, JAVA_MAIN]
        return run_process([*command, kind, str(count), f"file:{work / name}"], work)

    old = fill("old", keys, "old")["path"].removeprefix("file:")
    template = fill("new", 0, "template")["path"].removeprefix("file:")
    for name, rule in WORKS.items():
        head: dict[str, Any] = {"migration": 1, "from": old, "operators": {"bench": rule}}
        if "key" in rule:
            head["to_template"] = template
        (work / f"{name}.yaml").write_text(json.dumps(head))
    measured: dict[str, list[dict[str, Any]]] = {name: [] for name in (*WORKS, FLINK)}
    for number in range(rounds):
        for name in WORKS:
            print(f"# {keys} keys, {name}", file=sys.stderr)
            out = work / "out"
            command = [sys.executable, "-m", "dstl_core.cli", "migrate", name.split(",")[0]]
            command += [str(work / f"{name}.yaml"), *([str(out)] if "apply" in name else [])]
            measured[name].append(run_process(command, work, as_json=False))
            if name == NEW_KEY and number == 0:
                _check(out, keys)
            shutil.rmtree(out, ignore_errors=True)
        print(f"# {keys} keys, {FLINK}", file=sys.stderr)
        made = fill("new", keys, "filled")
        if number == 0:
            _check(Path(made["path"].removeprefix("file:")), keys)
        measured[FLINK].append(made)
        shutil.rmtree(work / "filled")
    return {"keys": keys, "heap": heap, "works": measured}


def _check(path: Path, keys: int) -> None:
    """What was written is the state: every number is there once, as key and as value."""
    total = [0, 0, 0]
    for batch in Snapshot.load(path)["bench"].flat("v").read():
        key, value = batch.column("state_key"), batch.column("state_value")
        if pc.all(pc.equal(key, value)).as_py() is False:
            raise SystemExit("wrong rows")
        total[0] += batch.num_rows
        total[1] += pc.sum(key).as_py()
        total[2] += pc.sum(value).as_py()
    if total != [keys, keys * (keys - 1) // 2, keys * (keys - 1) // 2]:
        raise SystemExit(f"wrong rows: {total}")


def table_of(figures: dict[str, Any]) -> str:
    lines = [
        "# Migrations",
        "",
        f"{figures['machine']['date']}, {results.describe(figures['machine'])} "
        "The old job has String keys and Integer values, the new one Long and Long. Whole "
        "processes, one after the other; medians. Flink fills the new state from numbers that it "
        "makes, and takes a canonical savepoint; its seconds of work start at the first row, its "
        "seconds of the process at the start of the JVM. A peak of Flink is what its heap was "
        "allowed to take, not what it needs. Where the load is above the number of cores, CPU "
        "seconds are the fair figure.",
        "",
    ]
    for size in figures["sizes"]:
        theirs = size["works"][FLINK]
        lines += [
            f"## {size['keys']:,} keys",
            "",
            "| work | s, process | s, work | CPU s | peak MiB | rounds |",
            "|---|---|---|---|---|---|",
        ]
        for name, runs in size["works"].items():
            work = f"{median(runs, 'seconds'):.1f}" if name == FLINK else "-"
            heap = f" (heap {size['heap']})" if name == FLINK else ""
            lines.append(
                f"| {name}{heap} | {median(runs, 'process_seconds'):.1f} | {work} | "
                f"{median(runs, 'cpu_seconds'):.1f} | {max(e['peak_mib'] for e in runs)} | "
                f"{len(runs)} |"
            )
        ours = size["works"][NEW_KEY]
        process, cpu = (
            median(theirs, name) / median(ours, name) for name in ("process_seconds", "cpu_seconds")
        )
        work = median(theirs, "seconds") / median(ours, "process_seconds")
        lines += [
            "",
            f"Flink's process takes {process:.1f} times the seconds of `apply` with a new key and "
            f"a new value, and {cpu:.1f} times its CPU seconds; Flink's work without the start of "
            f"the JVM takes {work:.1f} times the seconds of the whole `apply`.",
            "",
        ]
    return "\n".join(lines)
