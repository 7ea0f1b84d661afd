"""Edits, upgrades and migrations of a RocksDB checkpoint, and Flink's restore of what they write.

Real Flink writes the checkpoint. The operator gets another uid and its state another name: by
reference, as a copy of the files, and in canonical form, compressed and not. The
canonical savepoint then becomes native: every record is sorted into new files of RocksDB, also with
other key groups, and with a state of another type. A checkpoint of Flink 1.20 is upgraded: one of
its states has values of Kryo. And one key of 20,000 is erased, spread over all files.

Expected before measuring: by reference costs the start of the command, whatever the size is, and
Flink restores the result as fast as the checkpoint. Canonical form costs both of them a pass over
the state, and native form only dstl. An erasure looks at all timers, and copies each file that has
such a key: a fifth of a rewriting.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median as middle
from typing import Any

from benchmarks import flink, results
from benchmarks.processes import median, run_process

OWN = "checkpoint"
OWN_AT_3 = "checkpoint, parallelism 3"
FLINK_1 = "checkpoint of Flink 1"
EMPTY = "no state"
CANONICAL, NATIVE = "--canonical", "--format native"
NATIVE_AT_3 = "--format native, parallelism 3"
PLAIN = "--canonical --keep-compression"
"""Key groups as the checkpoint has them: without compression."""
ERASE = "--erase-keys"
ERASED_OF = 20_000
OLD_RELEASE = "1.20.5"
UID, STATE = ("old", "new"), ("text", "words")
RENAMED = f"--rename {UID[0]}={UID[1]} --rename-state {UID[0]}/{STATE[0]}={STATE[1]}"
IDS = {"ids": "true"}
"""Of each job here: the state with values of Kryo, too."""
GOAL = 1.3
"""What a restore of native state may take, times that of Flink's own checkpoint."""
OPENED = (
    "java.io", "java.lang", "java.lang.reflect", "java.net", "java.nio", "java.text", "java.time",
    "java.util", "java.util.concurrent", "java.util.concurrent.atomic",
    "java.util.concurrent.locks", "sun.nio.ch",
)  # fmt: skip
"""What Flink's own start scripts open to its reflection."""


@dataclass(frozen=True)
class Work:
    """A command of dstl, and the job that restores what it wrote.

    Args:
        command: What stands behind ``dstl``, with places for files.
        source: What it changes: a checkpoint of Flink, or what another work wrote.
        is_new: Whether uid and state have their new names in the result.
        job: Properties of the job.
    """

    command: str
    source: str = OWN
    is_new: bool = True
    job: Mapping[str, str] = field(default_factory=dict)


_DOUBLES = {"doubles": "true"}
WORKS = {
    "--share": Work(f"rewrite {{source}} {{out}} --share {RENAMED}"),
    "--copy": Work(f"rewrite {{source}} {{out}} --copy {RENAMED}"),
    PLAIN: Work(f"rewrite {{source}} {{out}} {PLAIN} {RENAMED}"),
    CANONICAL: Work(f"rewrite {{source}} {{out}} --canonical {RENAMED}"),
    NATIVE: Work("rewrite {source} {out} --format native", CANONICAL),
    "--format native --max-parallelism 4096": Work(
        "rewrite {source} {out} --format native --max-parallelism 4096",
        CANONICAL,
        job={"maxParallelism": "4096"},
    ),
    "migrate apply --format native": Work(
        "migrate apply {declared} {out} --format native", CANONICAL, job=_DOUBLES
    ),
    "migrate apply --format native, of the checkpoint": Work(
        "migrate apply {declared} {out} --format native", is_new=False, job=_DOUBLES
    ),
    "upgrade --format native": Work(
        "upgrade {source} {out} --format native --type old/id=java.util.UUID", FLINK_1, is_new=False
    ),
    ERASE: Work(f"rewrite {{source}} {{out}} {ERASE}={UID[0]}={{keys}}", is_new=False),
}
NATIVE_WORKS = [name for name in WORKS if "native" in name]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    results.add_folder(parser)


def run(arguments: argparse.Namespace) -> None:
    before = results.machine()
    with results.work_folder(arguments.folder) as work:
        classpath = flink.compiled_classpath(work)
        if classpath is None:
            print("# edits: Flink's jars or a Java development kit are missing", file=sys.stderr)
            return
        figures = _measure(work, classpath, arguments.keys, arguments.rounds)
    figures["machine"] = {**before, "load_average_after": results.machine()["load_average"]}
    results.write("edits", figures, _table(figures))


def _measure(work: Path, classpath: str, keys: int, rounds: int) -> dict[str, Any]:
    sources = {
        OWN: filled(work, classpath, keys, work / "job", IDS),
        FLINK_1: filled(work, _flink_1(work / "flink-1"), keys, work / "job-1", IDS),
    }
    # Flink compares each thousandth key, and these are none of them.
    (work / "keys").write_text("".join(f"{at}\n" for at in range(1, keys, ERASED_OF)))
    written: dict[str, dict[str, Any]] = {}
    places = dict(sources)
    for at, (name, one) in enumerate(WORKS.items()):
        print(f"# {name}", file=sys.stderr)
        places[name] = str(work / f"out-{at}")
        ran = _run_dstl(work, one, places[one.source], places[name])
        written[name] = ran | {"bytes": size_of(Path(places[name]))}
    restores: dict[str, list[dict[str, Any]]] = {}
    for number in range(rounds):
        print(f"# round {number + 1} of restores", file=sys.stderr)
        for name, ran in _restored(work, classpath, keys, places).items():
            restores.setdefault(name, []).append(ran)
    return {
        "flink": flink.version(),
        "keys": keys,
        "bytes": size_of(Path(sources[OWN]).parent),
        "rewrites": written,
        "restores": restores,
    }


def _run_dstl(work: Path, one: Work, source: str, out: str) -> dict[str, Any]:
    """Runs a command. A migration gives the counter another type."""
    uid = UID[one.source == CANONICAL]
    rule = {"from": "count", "type": "double", "value": "cast(value, DOUBLE)"}
    operators = {uid: {"states": {"count": rule}}}
    declared = {"migration": 1, "from": source, "operators": operators}
    (work / "declared.yaml").write_text(json.dumps(declared))
    names = {"source": source, "out": out, "keys": work / "keys"}
    filled_in = one.command.format(declared=work / "declared.yaml", **names)
    return run_process(
        [sys.executable, "-m", "dstl_core.cli", *filled_in.split()], work, as_json=False
    )


def _restored(
    work: Path, classpath: str, keys: int, places: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Flink restores its own checkpoint and what dstl wrote, one after the other."""
    jobs = {OWN: (OWN, {}), OWN_AT_3: (OWN, {"parallelism": "3"})}
    jobs |= {name: (name, {**one.job}) for name, one in WORKS.items()}
    jobs[NATIVE_AT_3] = (NATIVE, {"parallelism": "3"})
    restores = {}
    for name, (place, job) in {EMPTY: (OWN, {}), **jobs}.items():
        is_new = place in WORKS and WORKS[place].is_new
        snapshot = "none" if name == EMPTY else f"file:{places[place]}"
        words = ["restore", keys, work / "next", UID[is_new], STATE[is_new], snapshot]
        ran = restores[name] = _flink(work, classpath, {**IDS, **job}, *words)
        if ran["wrong"]:
            raise SystemExit(f"{ran['wrong']} keys of {name} have other values.")
        shutil.rmtree(work / "next")
    return restores


def filled(
    work: Path, classpath: str, keys: int, folder: Path, job: Mapping[str, str] | None = None
) -> str:
    """The checkpoint of a job that Flink filled."""
    path = _flink(work, classpath, job or {}, "fill", keys, folder, UID[0], STATE[0])["checkpoint"]
    return str(path.removeprefix("file:"))


def _flink_1(classes: Path) -> str:
    """The job for Flink 1, where its source has another package."""
    from tests.integration.flink.releases import jars_of

    classes.mkdir()
    source = (flink.SOURCES / "dstl/bench/EditBench.java").read_text()
    (classes / "EditBench.java").write_text(source.replace(".source.legacy.", ".source."))
    return flink.compiled(classes, [classes / "EditBench.java"], jars_of(OLD_RELEASE))


def source_of(arguments: argparse.Namespace, work: Path) -> Path | None:
    """The checkpoint of ``--source``, or one that Flink fills; None, with a line, without Flink."""
    if arguments.source is not None:
        return Path(arguments.source)
    classpath = flink.compiled_classpath(work)
    if classpath is None:
        print(f"# {arguments.name}: Flink's jars or a Java development kit are missing")
        return None
    return Path(filled(work, classpath, arguments.keys, work / "job"))


def _flink(
    work: Path, classpath: str, job: Mapping[str, str], *arguments: object
) -> dict[str, Any]:
    options = ["-Xmx1500m", "--add-exports=java.base/sun.net.util=ALL-UNNAMED"]
    options += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    options += [f"-D{name}={value}" for name, value in job.items()]
    command = ["java", *options, "-cp", classpath, "dstl.bench.EditBench", *map(str, arguments)]
    return run_process(command, work)


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def times_own(restores: Mapping[str, list[dict[str, Any]]], name: str, without: float = 0) -> float:
    """CPU seconds of a restore, times those of Flink's own checkpoint in the same round; without
    what a start takes.
    """
    peers = restores[OWN_AT_3 if name == NATIVE_AT_3 else OWN]
    ratios = [
        (ours["open_cpu_seconds"] - without) / (peer["open_cpu_seconds"] - without)
        for ours, peer in zip(restores[name], peers, strict=True)
    ]
    return float(middle(ratios))


def _table(figures: dict[str, Any]) -> str:
    restores = figures["restores"]
    lines = [
        "# Edits, upgrades and migrations of a checkpoint",
        "",
        f"{results.describe(figures['machine'])} Flink {figures['flink']} wrote an incremental "
        f"checkpoint of RocksDB with {figures['keys']:,} keys and "
        f"{figures['bytes'] / 2**20:.0f} MiB in all: a text, a counter, a UUID by Kryo and a timer "
        f"for each key. The operator gets another uid, and a state another name; `{NATIVE}` makes "
        f"files of RocksDB of what `--canonical` wrote, and `{ERASE}` takes out one key of "
        f"{ERASED_OF:,}. `migrate` makes doubles of the counter, in what `--canonical` wrote and "
        f"in the checkpoint, and `upgrade` converts the UUIDs of a checkpoint of Flink "
        f"{OLD_RELEASE}. Of a checkpoint, both keep the files of all other states. Whole "
        f"processes, one after the other. Flink's restore is the time until all tasks of the job "
        f"have opened their state, and every thousandth key was then compared; medians of "
        f"{len(restores[OWN])} rounds, of which each restores everything once. Its CPU seconds are "
        f"those of the whole JVM, which a job without state takes, too; the last column is "
        f"without these.",
        "",
        "| dstl | s | CPU s | peak MiB | bytes written |",
        "|---|---|---|---|---|",
    ]
    for name, ran in figures["rewrites"].items():
        lines.append(
            f"| `{name}` | {ran['process_seconds']:.1f} | {ran['cpu_seconds']:.1f} | "
            f"{ran['peak_mib']} | {ran['bytes']:,} |"
        )
    lines += ["", "| Flink restores | s | CPU s | times its own | without the start |"]
    lines.append("|---|---|---|---|---|")
    start = median(restores[EMPTY], "open_cpu_seconds")
    for name, runs in restores.items():
        label = f"what `{name}` wrote" if name.partition(",")[0] in WORKS else name
        numbers = [median(runs, each) for each in ("open_seconds", "open_cpu_seconds")]
        ratios = "- | -"
        if name not in (EMPTY, OWN, OWN_AT_3):
            ratios = f"{times_own(restores, name):.2f} | {times_own(restores, name, start):.2f}"
        lines.append(f"| {label} | {numbers[0]:.1f} | {numbers[1]:.1f} | {ratios} |")
    most = max(times_own(restores, name) for name in (*NATIVE_WORKS, NATIVE_AT_3))
    lines += [
        "",
        f"Goal: native state takes at most {GOAL} times the CPU seconds of Flink's own checkpoint. "
        f"The most is {most:.2f}: {'met' if most <= GOAL else '**not met**'}.",
    ]
    return "\n".join(lines) + "\n"
