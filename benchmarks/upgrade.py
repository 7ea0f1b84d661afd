"""``dstl upgrade`` of jobs of Flink 1.20.5, with many keys.

The jobs are golden files of the tests. Each key of the benchmark holds what one of the eight keys
of a job holds. In the job ``orders``, that is a POJO with a map, a list of POJOs and a set, which
Flink 1.x leaves to Kryo; a counter; and three entries of a map. Nothing else converts such state,
so the floor is ``cp``. The way of single objects is what kernels fall back to.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.processes import median, run_process
from dstl_core import Snapshot
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.keyed_canonical import StoredRecord, read_section, write_section
from dstl_core.codec.serializers import serialize_to_bytes
from dstl_core.codec.serializers.strings import StringSerializer
from dstl_core.codec.state_meta import BackendStateType, write_keyed_header
from dstl_core.model.handle import (
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, assign_to_key_group
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.restore.canonical import read_key_groups, read_stream_header

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
JOBS = {
    path.name: path
    for folder in ("upgrade-jobs", "jdk-jobs")
    for path in sorted((GOLDEN / folder).iterdir())
    if path.is_dir()
}
KERNELS = "dstl upgrade"
OBJECTS = "dstl upgrade, single objects"
COPY = "cp"
WORKS = (KERNELS, OBJECTS, COPY)
MOST_OBJECTS = 200_000
"""Keys up to which single objects are measured: five million take a quarter of an hour."""
_WITHOUT_KERNELS = """
import runpy
from dstl_core.savepoint.edit import converted_state
converted_state.KERNELS_FROM_BYTES = 1 << 62
runpy.run_module("dstl_core.cli", run_name="__main__")
"""

Record = tuple[int, bytes, bytes]
"""Number of the state; what stands behind the key; the value."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, nargs="+", default=[MOST_OBJECTS, 5_000_000])
    parser.add_argument("--job", choices=sorted(JOBS), default="orders")
    results.add_folder(parser)


def run(arguments: argparse.Namespace) -> None:
    machine = results.machine()
    with results.work_folder(arguments.folder) as work:
        job = JOBS[arguments.job]
        sizes = [_measure(job, keys, arguments.rounds, work) for keys in arguments.keys]
    machine["load_average_after"] = os.getloadavg()[0]
    figures = {"machine": machine, "job": arguments.job, "sizes": sizes}
    name = "upgrade" if arguments.job == "orders" else f"upgrade_{arguments.job}"
    results.write(name, figures, table_of(figures))


def _measure(job: Path, keys: int, rounds: int, work: Path) -> dict[str, Any]:
    source = work / "source"
    with _own_process() as process:
        size = process.submit(write_source, job, source, keys).result()
    out = work / "out"
    plain = "--keep-compression"  # what is compared is not compressed
    upgrade = ["upgrade", str(source), str(out), "--to", "2.2", "--jar", jar_of(job), plain]
    commands = {
        KERNELS: [sys.executable, "-m", "dstl_core.cli", *upgrade],
        OBJECTS: [sys.executable, "-c", _WITHOUT_KERNELS, *upgrade],
        COPY: ["cp", "-r", str(source), str(out)],
    }
    measured: dict[str, list[dict[str, Any]]] = {}
    for number in range(rounds):
        for name in WORKS:
            if name == OBJECTS and (keys > MOST_OBJECTS or number):
                continue
            print(f"# {keys} keys, {name}", file=sys.stderr)
            measured.setdefault(name, []).append(run_process(commands[name], work, as_json=False))
            if name == KERNELS and number == 0:
                with _own_process() as process:
                    process.submit(_check, job, out, keys, work).result()
            shutil.rmtree(out)
    shutil.rmtree(source)
    return {"keys": keys, "mib": size >> 20, "works": measured}


def jar_of(job: Path) -> str:
    return str(job / "job.jar")


def _savepoint_of(job: Path) -> Path:
    return next(job.glob("savepoint-*"))


def _own_process() -> ProcessPoolExecutor:
    """What takes memory here would count as the peak of the processes that are started later."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


# --------------------------------------------------------------------------------- the source


def write_source(job: Path, path: Path, keys: int) -> int:
    """Writes a savepoint of the job with as many keys; returns the bytes of keyed state."""
    small = _Stored(_savepoint_of(job), jar_of(job))
    templates = small.templates()
    groups: list[list[int]] = [[] for _ in range(small.operator.max_parallelism)]
    for number in range(keys):
        groups[small.key_group_of(f"k{number}")].append(number)
    target = SavepointFolder(path)
    offsets: list[int] = []
    size = 0

    def parts() -> Iterator[bytes]:
        nonlocal size
        out = DataOutput()
        write_keyed_header(out, small.header)
        size = out.position
        yield out.to_bytes()
        for key_group, own in enumerate(groups):
            section = _section(key_group, own, templates, len(small.header.states))
            offsets.append(size if section else 0)
            size += len(section)
            yield section

    target.file_io.write_new(target.folder.child("state"), parts())
    new = KeyGroupsSavepointStateHandle(
        KeyGroupRangeOffsets(small.handle.key_group_range, tuple(offsets)),
        RelativeFileStateHandle("state", size),
    )
    states = []
    for operator in small.snapshot.operators:
        subtasks = [
            replace(one, managed_keyed_state=new) if one.managed_keyed_state is not None else one
            for one in operator.state.subtasks
        ]
        states.append(replace(operator.state, subtasks=tuple(subtasks)))
    target.publish(replace(small.snapshot.metadata, operators=tuple(states)), {})
    return size


def _section(
    key_group: int, keys: Sequence[int], templates: Sequence[Sequence[Record]], states: int
) -> bytes:
    runs: list[list[tuple[bytes, bytes]]] = [[] for _ in range(states)]
    text = StringSerializer()
    for number in keys:
        key = bytes((key_group,)) + serialize_to_bytes(text, f"k{number}")
        for state, rest, value in templates[number % len(templates)]:
            runs[state].append((key + rest, value))
    return write_section((state, run) for state, run in enumerate(runs) if run)


def _check(job: Path, path: Path, keys: int, work: Path) -> None:
    """Keys hold what the conversion of the small job gives, which is done by single objects."""
    small = work / "small"
    source = Snapshot.load(_savepoint_of(job), jars=[jar_of(job)])
    SavepointUpgrade(source).write(small, keep_compression=True)
    truth = _Stored(small, jar_of(job)).templates()
    stored = _Stored(path, jar_of(job))
    shutil.rmtree(small)
    text = StringSerializer()
    step = max(1, keys // MOST_OBJECTS)
    for key_group in range(0, stored.operator.max_parallelism, step):
        for record in stored.records(key_group):
            data = DataInput(record.key, 1)
            key = text.deserialize(data)
            if key is None or key_group != stored.key_group_of(key):
                raise SystemExit(f"wrong key {key}")
            place = record.state_id, record.key[data.position :], record.value
            if place not in truth[int(key[1:]) % len(truth)]:
                raise SystemExit(f"wrong record of {key}")


class _Stored:
    """The keyed state of a job."""

    def __init__(self, path: Path, jar: str) -> None:
        self.snapshot = Snapshot.load(path, jars=[jar])
        [self.operator] = [each for each in self.snapshot.operators if each.keyed_handles]
        [handle] = self.operator.keyed_handles
        assert isinstance(handle, KeyGroupsSavepointStateHandle)
        self.handle = handle
        resolver = self.snapshot.resolver
        self.header = read_stream_header(handle, resolver, self.snapshot.registry)

    def key_group_of(self, key: str) -> int:
        hashed = StringSerializer().java_hash(key)
        return assign_to_key_group(hashed, self.operator.max_parallelism)

    def records(self, key_group: int) -> Iterator[StoredRecord]:
        handle, own = self.handle, KeyGroupRange(key_group, key_group)
        for _, data in read_key_groups(handle.offsets, handle.stream, own, self.snapshot.resolver):
            yield from read_section(data, len(self.header.states))

    def templates(self) -> list[list[Record]]:
        """The records of each key, by the number in the key."""
        by_key: dict[bytes, list[Record]] = {}
        for key_group in range(self.operator.max_parallelism):
            for record in self.records(key_group):
                meta = self.header.states[record.state_id]
                if meta.backend_state_type is BackendStateType.KEY_VALUE:
                    key, rest = record.key[1:4], record.key[4:]
                    by_key.setdefault(key, []).append((record.state_id, rest, record.value))
        assert sorted(by_key) == [f"\3k{number}".encode() for number in range(8)]
        return [by_key[key] for key in sorted(by_key)]


def table_of(figures: dict[str, Any]) -> str:
    lines = [
        "# Upgrades",
        "",
        f"{figures['machine']['date']}, {results.describe(figures['machine'])} "
        f"Keys hold what those of the job {figures.get('job', 'orders')} hold: in orders, a POJO "
        "with a map, a list of POJOs and a set, which Flink 1.20 leaves to "
        "Kryo, a counter, and three entries of a map. Whole processes, one after the other; "
        "medians. Single objects are what a value becomes that kernels do not know; they were "
        "measured once, and with the smaller size only. A peak counts what the benchmark itself "
        "holds when it starts a process, about 208 MiB.",
        "",
    ]
    for size in figures["sizes"]:
        lines += [
            f"## {size['keys']:,} keys, {size['mib']} MiB",
            "",
            "| work | s, process | CPU s | peak MiB | rounds |",
            "|---|---|---|---|---|",
        ]
        for name, runs in size["works"].items():
            peak = "-" if name == COPY else max(each["peak_mib"] for each in runs)
            lines.append(
                f"| {name} | {median(runs, 'process_seconds'):.1f} | "
                f"{median(runs, 'cpu_seconds'):.1f} | {peak} | "
                f"{len(runs)} |"
            )
        lines.append("")
        if OBJECTS in size["works"]:
            ratio = median(size["works"][OBJECTS], "process_seconds") / median(
                size["works"][KERNELS], "process_seconds"
            )
            lines += [f"Single objects take {ratio:.1f} times the seconds of kernels.", ""]
    return "\n".join(lines)
