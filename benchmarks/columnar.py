"""Columns from and to stored state, on one core: four kinds of state, and a file of 1 GB.

Expected before measuring: a record of (String, Long) is 30 bytes; a general program decodes some 50
million a second, and the scan, the reads and the checks around it take as much again.
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

from benchmarks import results

RECORDS = {
    "string-long": 5_000_000,
    "long-row5": 2_000_000,
    "string-list10": 1_000_000,
    "string-map5": 500_000,
}
NAMES = {
    "string-long": "(String, Long)",
    "long-row5": "(Long, Row of 5 fields)",
    "string-list10": "(String, list of 10 Long)",
    "string-map5": "(String, map of 5)",
}
FORMS = ("sst", "heap", "changelog")
"""Steps with a fifth of the records."""
LARGE_RECORDS = 33_000_000
LARGE_MEMORY = 64 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records")
    results.add_folder(parser)


def run(arguments: argparse.Namespace) -> None:
    with results.work_folder(arguments.folder) as work:
        figures = _measure(arguments, work)
    results.write("columnar", figures, _table(figures))


def _measure(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    before = results.machine()
    cases: dict[str, Any] = {}
    for case, most in RECORDS.items():
        records = int(most * arguments.scale)
        print(f"# {records} x {case}", file=sys.stderr)
        measured: dict[str, Any] = {"records": records}
        shared = ["--records", str(records), "--rounds", str(arguments.rounds)]
        measured["encode"] = _worker("encode", case, shared, work / "none")
        measured["decode"] = _worker("decode", case, shared, work / "none")
        for form in ("plain", "compressed"):
            folder = work / f"{case}-{form}"
            flags = [*shared, *(["--compressed"] * (form == "compressed"))]
            measured[f"write {form}"] = _worker("write", case, flags, folder)
            measured[f"flat {form}"] = _worker("read", case, flags, folder)
            measured[f"keyed {form}"] = _worker("read", case, [*flags, "--form", "keyed"], folder)
        cases[case] = measured
        if case == "string-long":
            fewer = ["--records", str(records // 5), "--rounds", str(arguments.rounds)]
            for step in FORMS:
                measured[step] = _worker(step, case, fewer, work / step)
    first = _first(work / "string-long-plain", int(RECORDS["string-long"] * arguments.scale), work)
    large = _large(work)
    return {
        "machine": {**before, "load_average_after": results.machine()["load_average"]},
        "rounds": arguments.rounds,
        "cases": cases,
        "first": first,
        "large": large,
    }


def _worker(
    step: str, case: str, arguments: list[str], folder: Path, **environment: str
) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.columnar_worker", step, case, *arguments]
    command += ["--folder", str(folder)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **environment}
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _first(folder: Path, records: int, work: Path) -> dict[str, Any]:
    """A process that reads once: with nothing compiled, then with the kernels in the cache."""
    cache = str(work / "kernels")
    shared = ["--records", str(records)]
    seconds = {}
    for name in ("nothing compiled", "from the cache"):
        seconds[name] = _worker("first", "string-long", shared, folder, NUMBA_CACHE_DIR=cache)
    return seconds


def _large(work: Path) -> dict[str, Any]:
    folder = work / "large"
    shared = ["--records", str(LARGE_RECORDS), "--memory", str(LARGE_MEMORY)]
    written = _worker("write", "string-long", shared, folder)
    return {"write": written, "read": _worker("first", "string-long", shared, folder)}


# ---------------------------------------------------------------------------------- the table


def _speed(timed: dict[str, Any], records: int) -> str:
    seconds = statistics.median(each["seconds"] for each in timed["rounds"])
    size = timed["rounds"][0]["bytes"]
    return f"{records / seconds / 1e6:.2f} M/s, {size / seconds / 1e6:,.0f} MB/s"


STEPS = {
    "encode": "columns to runs by key group",
    "decode": "sections in memory to columns",
    "write plain": "columns to a savepoint, closed and synced",
    "write compressed": "the same, Snappy",
    "flat plain": "savepoint to columns, flat form",
    "flat compressed": "the same, Snappy",
    "keyed plain": "savepoint to columns, one row per key",
    "keyed compressed": "the same, Snappy",
    "sst": "RocksDB's table files to columns",
    "heap": "a native savepoint of the heap backend to columns",
    "changelog": "a changelog of SETs to columns",
}


def _table(figures: dict[str, Any]) -> str:
    machine = figures["machine"]
    lines = [
        "# Columns from and to stored state",
        "",
        f"One thread, medians of {figures['rounds']} rounds (writing: one); million keys and bytes "
        f"of the file (encoding: of the records) **a second of CPU time**, since the machine was "
        f"shared: wall times are in the JSON file.",
        "",
        f"{machine['cpu']}, {machine['memory_gib']} GiB, load {machine['load_average']:.1f} to "
        f"{machine['load_average_after']:.1f}, Python {machine['python']}, commit "
        f"{machine['commit']}{' with changes' if machine['dirty'] else ''}, {machine['date']}.",
        "",
        "| state | keys | what | speed |",
        "|---|---|---|---|",
    ]
    for case, measured in figures["cases"].items():
        for step, what in STEPS.items():
            if step in measured:
                rows = measured["records"] // (5 if step in FORMS else 1)
                speed = _speed(measured[step], rows)
                lines.append(f"| {NAMES[case]} | {rows:,} | {what} | {speed} |")
    lines += ["", "First read of a process, seconds by the clock on the wall under that load:", ""]
    lines += ["| kernels | imports | read | CPU time of it |", "|---|---|---|---|"]
    for name, answer in figures["first"].items():
        [once] = answer["rounds"]
        lines.append(
            f"| {name} | {once['imports']:.2f} | {once['wall']:.2f} | {once['seconds']:.2f} |"
        )
    large = figures["large"]
    size = large["write"]["rounds"][0]["bytes"]
    lines += [
        "",
        f"A state file of {size / 1e9:.2f} GB, peak memory of a process: "
        f"{large['write']['peak_kib'] / 1024:.0f} MiB to write it (64 MiB of records in memory), "
        f"{large['read']['peak_kib'] / 1024:.0f} MiB to read it.",
    ]
    return "\n".join(lines) + "\n"
