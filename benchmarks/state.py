"""State operations row-wise and by column, restore per million keys, state larger than memory.

Expected before measuring: a Python call that reads, adds and writes a Long on a dictionary is about
2 us with the change of key; RocksDB adds one look-up and one write, 3-6 us. By column what stays
per row is the look-up and the write of the store: 0.3 us, and 2-4 us. Each case runs in a process
of its own, so that its memory is its own. State larger than memory goes into a table of its own, so
that either part can be run alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from benchmarks import results

BACKENDS = ("hashmap", "rocksdb")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=1_000_000, help="0 leaves out all but --large")
    parser.add_argument("--large-keys", type=int, default=20_000_000, help="0 leaves them out")


def run(arguments: argparse.Namespace) -> None:
    before = results.machine()
    if arguments.keys:
        cases = [
            _case("operations", backend, arguments.keys, way, changelog=changelog)
            for backend in BACKENDS
            for way in ("rows", "columns")
            for changelog in (False, True)
        ]
        cases += [_case("restore", backend, arguments.keys) for backend in BACKENDS]
        _write("state", before, cases)
    if arguments.large_keys:
        _write("large_state", before, [_case("large", "rocksdb", arguments.large_keys)])


def _write(name: str, before: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    figures = {
        "machine": {**before, "load_average_after": results.machine()["load_average"]},
        "cases": cases,
    }
    results.write(name, figures, _table(figures))


def _case(
    name: str, backend: str, keys: int, way: str = "", *, changelog: bool = False
) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.state_worker", name, backend, str(keys), way]
    command += ["changelog"] if changelog else []
    print("#", *command[3:], file=sys.stderr)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    case = f"{name} by {way}" if way else name
    return {"case": case, "backend": backend, "keys": keys, "changelog": changelog, **figures}


def _table(figures: dict[str, Any]) -> str:
    lines = [
        "# State",
        "",
        results.describe(figures["machine"]),
        "Times are wall times; `cpu` counts the CPU time of the one thread that works, which other",
        "load on the machine hardly changes.",
        "",
        "| case | backend | changelog | keys | figures |",
        "|---|---|---|---|---|",
    ]
    for case in figures["cases"]:
        shown = ", ".join(
            f"{name} {value:,}"
            for name, value in case.items()
            if name not in ("case", "backend", "changelog", "keys")
        )
        changelog = "on" if case["changelog"] else "off"
        lines.append(
            f"| {case['case']} | {case['backend']} | {changelog} | {case['keys']:,} | {shown} |"
        )
    return "\n".join(lines) + "\n"
