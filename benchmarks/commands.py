"""Every command that reads or writes all state, on one checkpoint of real Flink, by size.

The job has a text of some 190 characters, a counter and a timer for each key, in RocksDB. A command
is a whole process, with one process for its units. What it reads is what the system counts for its
``read`` calls, less those of a command that reads no state; so a file that is read twice counts
twice.

Expected before measuring: CPU seconds and bytes grow with the state, and memory does not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import flink, results
from benchmarks.edits import filled, size_of
from benchmarks.processes import run_process

GIB = 1 << 30
_COUNTED = """
import json, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
counts = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
print(json.dumps({"read": int(counts["rchar"])}))
sys.exit(code if code > 1 else 0)
"""
"""Linux counts for a process what its children have read once they have ended."""
RENAME = ("--rename", "old=new")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, nargs="+", default=[4_500_000, 18_000_000])
    parser.add_argument("--jobs", type=int, default=1, help="processes of a command")
    parser.add_argument("--only", nargs="*", help="these commands alone, by the first words")
    parser.add_argument("--keep", action="store_true", help="keep stored figures of other sizes")
    results.add_folder(parser)


def run(arguments: argparse.Namespace) -> None:
    before = results.machine()
    sizes = []
    with results.work_folder(arguments.folder) as work:
        classpath = flink.compiled_classpath(work)
        if classpath is None:
            print("# commands: Flink's jars or a Java development kit are missing", file=sys.stderr)
            return
        for keys in arguments.keys:
            job = work / str(keys)
            source = filled(work, classpath, keys, job)
            sizes.append(_measure(work, source, keys, arguments.jobs, arguments.only))
            shutil.rmtree(job)
    machine = {**before, "load_average_after": results.machine()["load_average"]}
    known = (results.read("commands") if arguments.keep else None) or {"sizes": []}
    kept = [size for size in known["sizes"] if size["keys"] not in arguments.keys]
    sizes = [*kept, *({**size, "machine": machine} for size in sizes)]
    sizes.sort(key=lambda size: size["keys"])
    figures = {"flink": flink.version(), "jobs": arguments.jobs, "sizes": sizes}
    results.write("commands", figures, table_of(figures))


def _commands(work: Path, source: str) -> dict[str, list[str]]:
    out, changed = str(work / "out"), str(work / "changed")
    rule: dict[str, Any] = {"key": "cast(key, INT)"}
    declaration: dict[str, Any] = {"migration": 1, "from": source, "operators": {"old": rule}}
    (work / "key.yaml").write_text(json.dumps(declaration))
    return {
        "verify": ["verify", source],
        "report": ["report", source, "--json"],
        "dump": ["dump", source],
        "rewrite, other uid": ["rewrite", source, out, "--canonical", *RENAME],
        "rewrite, canonical to native": ["rewrite", changed, out, "--format", "native", *RENAME],
        "rewrite, 1,000 key groups": ["rewrite", source, out, "--max-parallelism", "1000"],
        "migrate, other key": ["migrate", "apply", str(work / "key.yaml"), out],
        "diff, 5 % changed": ["diff", source, changed],
        "report --compare": ["report", changed, "--json", "--compare", source],
    }


def _measure(
    work: Path, source: str, keys: int, jobs: int, only: list[str] | None
) -> dict[str, Any]:
    fewer = [f"old/count=value >= {keys // 20}", "--canonical"]
    shutil.rmtree(work / "changed", ignore_errors=True)
    run_dstl(work, ["rewrite", source, str(work / "changed"), "--where", *fewer], jobs)
    nothing = run_dstl(work, ["inspect", source], None)["read"]
    measured: dict[str, Any] = {}
    for name, command in _commands(work, source).items():
        if only and not any(name.startswith(each) for each in only):
            continue
        print(f"# {keys} keys, {name}", file=sys.stderr)
        told = _forecast(command, jobs) if str(work / "out") in command else None
        measured[name] = run_dstl(work, command, jobs) | {"forecast": told}
        measured[name]["read"] -= nothing
        measured[name]["written"] = size_of(work / "out") if (work / "out").is_dir() else 0
        shutil.rmtree(work / "out", ignore_errors=True)
        print(f"# {measured[name]}", file=sys.stderr)
    return {"keys": keys, "bytes": size_of(Path(source).parent), "commands": measured}


def _forecast(command: list[str], jobs: int) -> Any:
    """What the command itself expects."""
    more = ["--jobs", str(jobs), "--dry-run", "--json"]
    dstl = [sys.executable, "-m", "dstl_core.cli", *command, *more]
    answer = json.loads(subprocess.run(dstl, capture_output=True, check=True).stdout)
    return (answer[0] if isinstance(answer, list) else answer)["forecast"]


def run_dstl(work: Path, command: list[str], jobs: int | None) -> dict[str, Any]:
    """Runs a command of dstl in a process of its own; what it reads counts, too."""
    more = [] if jobs is None else ["--jobs", str(jobs)]
    dstl = [sys.executable, "-m", "dstl_core.cli", *command, *more]
    os.environ.setdefault("PYTHONPATH", os.getcwd())
    return run_process([sys.executable, "-c", _COUNTED, *dstl], work)


def table_of(figures: dict[str, Any]) -> str:
    sizes = figures["sizes"]
    lines = [
        "# Commands that read or write all state",
        "",
        f"Flink {figures['flink']} wrote incremental checkpoints of RocksDB: a text, a counter and "
        f"a timer for each key. `--jobs {figures['jobs']}`, whole processes, one after the other.",
        "",
        *(f"* {size['keys']:,} keys: {results.describe(size['machine'])}" for size in sizes),
        "",
        "`--dry-run` is what the command expected, over what it took.",
        "",
        "| command | keys | state, GiB | CPU s | CPU s a GiB | peak MiB | read / state | "
        "written / state | `--dry-run`: read, written, memory, time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    names = dict.fromkeys(name for size in sizes for name in size["commands"])
    for name in names:
        for size in sizes:
            ran, state = size["commands"].get(name), size["bytes"]
            if ran is not None:
                cells = [
                    f"{size['keys']:,}",
                    f"{state / GIB:.2f}",
                    f"{ran['cpu_seconds']:.1f}",
                    f"{ran['cpu_seconds'] * GIB / state:.1f}",
                    f"{ran['peak_mib']:,}",
                    f"{ran['read'] / state:.2f}",
                    f"{ran['written'] / state:.2f}",
                    _judged(ran),
                ]
                lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _judged(ran: dict[str, Any]) -> str:
    told = ran["forecast"]
    if told is None:
        return "-"
    ratios = (
        told["bytes_read"] / ran["read"],
        told["bytes_written"] / ran["written"],
        told["memory"] / (ran["peak_mib"] << 20),
        told["seconds"] / ran["cpu_seconds"],
    )
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)
