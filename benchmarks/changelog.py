"""The changelog next to real Flink's writer and reader, and to a raw write of the same bytes.

Expected before measuring: a record of 100 B is 108 B on disk; the page cache of one core takes 2-4
GB/s, so 20-40 M records/s until the file is closed; a Python call that stores a reference is 110 ns
at least, so 9 M appends/s. Ratios hold within one run only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import flink, results

SIZES = {32: 5_000_000, 100: 5_000_000, 1000: 1_000_000}
JAVA_MAIN = "org.apache.flink.changelog.fs.ChangelogBench"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records")
    results.add_folder(parser)


def run(arguments: argparse.Namespace) -> None:
    with results.work_folder(arguments.folder) as work:
        figures = _measure(arguments, work)
    results.write("changelog", figures, _table(figures))


def _measure(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    classes = work / "classes"
    classes.mkdir()
    classpath = flink.compiled_classpath(classes)
    cases = []
    before = results.machine()
    for size, most in SIZES.items():
        for compressed in (False, True):
            records = int(most * arguments.scale)
            case: dict[str, Any] = {"size": size, "records": records, "compressed": compressed}
            print(f"# {records} changes of {size} B, compressed={compressed}", file=sys.stderr)
            case["flink"] = (
                None if classpath is None else _jvm(classpath, case, arguments.rounds, work)
            )
            for way in ("call", "append", "single", "batch", "floor"):
                case[way] = _ours(way, case, arguments.rounds, work)
            if not compressed:
                for way in ("batch", "floor"):
                    case[f"{way}_fsync"] = _ours(way, case, arguments.rounds, work, fsync=True)
            cases.append(case)
    return {
        "machine": {**before, "load_average_after": results.machine()["load_average"]},
        "flink": None if classpath is None else flink.version(),
        "rounds": arguments.rounds,
        "cases": cases,
    }


def _jvm(classpath: str, case: dict[str, Any], rounds: int, work: Path) -> list[dict[str, float]]:
    command = ["java", "-Xmx3g", "--add-opens=java.base/java.util=ALL-UNNAMED"]
    command += ["-cp", classpath, JAVA_MAIN, str(case["records"]), str(case["size"]), str(rounds)]
    command += [str(work / "jvm"), str(case["compressed"]).lower()]
    os.sync()  # nobody pays for what another wrote
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _ours(
    way: str, case: dict[str, Any], rounds: int, work: Path, *, fsync: bool = False
) -> list[dict[str, float]]:
    command = [sys.executable, "-m", "benchmarks.changelog_worker", way]
    command += ["--records", str(case["records"]), "--size", str(case["size"])]
    command += ["--rounds", str(rounds), "--folder", str(work / "ours")]
    command += ["--compressed"] * case["compressed"] + ["--fsync"] * fsync
    os.sync()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


# ---------------------------------------------------------------------------------- the table


def _rate(case: dict[str, Any], way: str, field: str) -> float | None:
    """Median over the rounds, in million records a second."""
    rounds = case.get(way)
    if not rounds:
        return None
    return float(case["records"]) / statistics.median(each[field] for each in rounds) / 1e6


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _ratio(ours: float | None, theirs: float | None) -> str:
    return "-" if ours is None or theirs is None else f"{ours / theirs:.2f}x"


BY_BATCH = {False: ">= 4x", True: ">= 3x"}
READ_BACK = {False: ">= 4x", True: ">= 2.5x"}
"""Goals, plain and compressed."""
# What is measured, ours, theirs, the goal.
ROWS: list[tuple[str, tuple[str, str], tuple[str, str], str | dict[bool, str]]] = [
    ("append only, one a call", ("append", "append"), ("flink", "append"), ">= 0.8x"),
    ("the same, against a method that does nothing", ("append", "append"), ("call", "call"), ""),
    ("until durable, one a call", ("single", "durable"), ("flink", "durable"), ">= 1x"),
    ("until durable, by batch", ("batch", "durable"), ("flink", "durable"), BY_BATCH),
    ("the same, against a raw write", ("batch", "durable"), ("floor", "floor"), "or >= 0.8x"),
    ("read back", ("batch", "read"), ("flink", "read"), READ_BACK),
    (
        "until durable with fsync, by batch, against a raw write with fsync",
        ("batch_fsync", "durable"),
        ("floor_fsync", "floor"),
        "",
    ),
]


def _goal(goal: str | dict[bool, str], case: dict[str, Any]) -> str:
    return goal if isinstance(goal, str) else goal[case["compressed"]]


def _table(figures: dict[str, Any]) -> str:
    machine = figures["machine"]
    lines = [
        "# Changelog",
        "",
        f"Million changes a second, medians of {figures['rounds']} rounds; half of a "
        f"value is one byte again and again, the other half is random; "
        f'Flink {figures["flink"] or "not there"} in the same run; "durable" is file closed, '
        f"without fsync unless it says so.",
        "",
        f"{machine['cpu']}, {machine['memory_gib']} GiB, load {machine['load_average']:.1f} to "
        f"{machine['load_average_after']:.1f}, Python {machine['python']}, commit "
        f"{machine['commit']}{' with changes' if machine['dirty'] else ''}, {machine['date']}.",
        "",
        "| changes | what | dstl | peer | ratio | goal |",
        "|---|---|---|---|---|---|",
    ]
    for case in figures["cases"]:
        name = f"{case['size']} B{', snappy' if case['compressed'] else ''}"
        for what, ours, theirs, goal in ROWS:
            mine, other = _rate(case, *ours), _rate(case, *theirs)
            if mine is not None:
                lines.append(
                    f"| {name} | {what} | {_text(mine)} | {_text(other)} | "
                    f"{_ratio(mine, other)} | {_goal(goal, case)} |"
                )
    lines += [
        "",
        "Peak memory of each process, MiB:",
        "",
        "| changes | append only | one a call | by batch | Flink |",
        "|---|---|---|---|---|",
    ]
    for case in figures["cases"]:
        name = f"{case['records']:,} x {case['size']} B{', snappy' if case['compressed'] else ''}"
        peaks = [
            "-" if not case[way] else str(round(max(r["peak_kib"] for r in case[way]) / 1024))
            for way in ("append", "single", "batch", "flink")
        ]
        lines.append(f"| {name} | {' | '.join(peaks)} |")
    return "\n".join(lines) + "\n"
