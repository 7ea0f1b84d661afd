"""Edits that change no state: ``dstl rewrite`` of a RocksDB checkpoint, and Flink's restore of it.

Real Flink writes the checkpoint. The operator gets another uid and its state another name: by
reference, as a copy of the files, and in canonical form, compressed and not. The
canonical savepoint then becomes native: every record is sorted into new files of RocksDB. And one
key of 20,000 is erased, spread over all files.

Expected before measuring: by reference costs the start of the command, whatever the size is, and
Flink restores the result as fast as the checkpoint. Canonical form costs both of them a pass over
the state, and native form only dstl. An erasure looks at all timers, and copies each file that has
such a key: a fifth of a rewriting.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import flink, results
from benchmarks.processes import median, run_process

NATIVE = "--format native"
PLAIN = "--canonical --keep-compression"
"""Key groups as the checkpoint has them: without compression."""
ERASE = "--erase-keys"
ERASED_OF = 20_000
HOW = ("--share", "--copy", PLAIN, "--canonical", NATIVE, ERASE)
UID, STATE = ("old", "new"), ("text", "words")
OPENED = (
    "java.io", "java.lang", "java.lang.reflect", "java.net", "java.nio", "java.text", "java.time",
    "java.util", "java.util.concurrent", "java.util.concurrent.atomic",
    "java.util.concurrent.locks", "sun.nio.ch",
)  # fmt: skip
"""What Flink's own start scripts open to its reflection."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where files go (default: a temporary folder)")


def run(arguments: argparse.Namespace) -> None:
    before = results.machine()
    work = Path(tempfile.mkdtemp(prefix="dstl-bench-", dir=arguments.folder))
    try:
        classpath = flink.compiled_classpath(work)
        if classpath is None:
            print("# edits: Flink's jars or a Java development kit are missing", file=sys.stderr)
            return
        figures = _measure(work, classpath, arguments.keys, arguments.rounds)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    figures["machine"] = {**before, "load_average_after": results.machine()["load_average"]}
    results.write("edits", figures, _table(figures))


def _measure(work: Path, classpath: str, keys: int, rounds: int) -> dict[str, Any]:
    source = Path(filled(work, classpath, keys, work / "job"))
    rewrites: dict[str, list[dict[str, Any]]] = {each: [] for each in HOW}
    restores: dict[str, list[dict[str, Any]]] = {each: [] for each in ("checkpoint", *HOW)}
    for number in range(rounds):
        places = {"checkpoint": source}
        for how in HOW:
            out = places[how] = work / f"out-{HOW.index(how)}-{number}"
            command = ["-m", "dstl_core.cli", "rewrite"]
            if how == NATIVE:
                command += [str(places["--canonical"]), str(out), *how.split()]
            elif how == ERASE:
                # Flink compares each thousandth key, and these are none of them.
                (work / "keys").write_text("".join(f"{at}\n" for at in range(1, keys, ERASED_OF)))
                command += [str(source), str(out), f"{ERASE}={UID[0]}={work / 'keys'}"]
            else:
                command += [str(source), str(out), *how.split(), "--rename", f"{UID[0]}={UID[1]}"]
                command += ["--rename-state", f"{UID[0]}/{STATE[0]}={STATE[1]}"]
            ran = run_process([sys.executable, *command], work, as_json=False)
            rewrites[how].append(ran | {"bytes": size_of(out)})
        for name, place in places.items():
            is_old = name in ("checkpoint", ERASE)
            names = (UID[0], STATE[0]) if is_old else (UID[1], STATE[1])
            ran = _flink(work, classpath, "restore", keys, work / "next", *names, f"file:{place}")
            if ran["wrong"]:
                raise SystemExit(f"{ran['wrong']} keys of {name} have other values.")
            restores[name].append(ran)
            shutil.rmtree(work / "next")
        for how in HOW:
            shutil.rmtree(places[how])
    return {
        "flink": flink.version(),
        "keys": keys,
        "bytes": size_of(source.parent),
        "rewrites": rewrites,
        "restores": restores,
    }


def filled(work: Path, classpath: str, keys: int, folder: Path) -> str:
    """The checkpoint of a job that Flink filled."""
    path = _flink(work, classpath, "fill", keys, folder, UID[0], STATE[0])["checkpoint"]
    return str(path.removeprefix("file:"))


def source_of(arguments: argparse.Namespace, work: Path) -> Path | None:
    """The checkpoint of ``--source``, or one that Flink fills; None, with a line, without Flink."""
    if arguments.source is not None:
        return Path(arguments.source)
    classpath = flink.compiled_classpath(work)
    if classpath is None:
        print(f"# {arguments.name}: Flink's jars or a Java development kit are missing")
        return None
    return Path(filled(work, classpath, arguments.keys, work / "job"))


def _flink(work: Path, classpath: str, *arguments: object) -> dict[str, Any]:
    options = ["-Xmx1500m", "--add-exports=java.base/sun.net.util=ALL-UNNAMED"]
    options += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    command = ["java", *options, "-cp", classpath, "dstl.bench.EditBench", *map(str, arguments)]
    return run_process(command, work)


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def _table(figures: dict[str, Any]) -> str:
    lines = [
        "# Edits that change no state",
        "",
        f"{results.describe(figures['machine'])} Flink {figures['flink']} wrote an incremental "
        f"checkpoint of RocksDB with {figures['keys']:,} keys and "
        f"{figures['bytes'] / 2**20:.0f} MiB in all: a text, a counter and a timer for each key. "
        f"The operator gets another uid, and a state another name; `{NATIVE}` makes files of "
        f"RocksDB of what `--canonical` wrote, and `{ERASE}` takes out one key of "
        f"{ERASED_OF:,}. Whole processes, one after the "
        f"other; medians of {len(figures['restores']['checkpoint'])}. Flink's restore is the time "
        f"until both tasks of the job have opened their state, and every thousandth key was then "
        f"compared.",
        "",
        "| dstl rewrite | s | CPU s | peak MiB | bytes written |",
        "|---|---|---|---|---|",
    ]
    for how, runs in figures["rewrites"].items():
        numbers = [median(runs, each) for each in ("process_seconds", "cpu_seconds")]
        size = int(median(runs, "bytes"))
        lines.append(
            f"| `{how}` | {numbers[0]:.1f} | {numbers[1]:.1f} | "
            f"{median(runs, 'peak_mib'):.0f} | {size:,} |"
        )
    lines += ["", "| Flink restores | s | CPU s |", "|---|---|---|"]
    for name, runs in figures["restores"].items():
        label = "the checkpoint itself" if name == "checkpoint" else f"what `{name}` wrote"
        numbers = [median(runs, each) for each in ("open_seconds", "open_cpu_seconds")]
        lines.append(f"| {label} | {numbers[0]:.1f} | {numbers[1]:.1f} |")
    return "\n".join(lines) + "\n"
