"""One large state from its bootstrap to another parallelism: seconds and memory by number of keys.

A state has a long key and two longs for each of N keys. Each step checks what it did: the number
of keys, and the sum of a state over all of them. Expected before measuring: a step that touches
every key takes a time that grows with N, and a warm epoch takes the time of its rows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import results
from benchmarks.sessions import local_session
from dstl_core import AggregateOperator, OperatorIdentifier, StatefulJob, aggregates, register
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter

KEYS = (10_000_000, 100_000_000)
ROWS = 1_000_000
PARALLELISM, RESCALED = 8, 12
WARM_EPOCHS = 3
WARM_UP_KEYS = 20_000
"""A size that is not kept: it compiles what the others use."""
SCHEMA = "k bigint, v bigint"
STEPS = {
    "bootstrap": "bootstrap a savepoint",
    "read": "read it, count keys, add up a state",
    "first": "start from it, first epoch",
    "warm": "warm epoch (median)",
    "checkpoint": "read the checkpoint: base and changelog",
    "materialize": "materialize",
    "savepoint": "savepoint",
    "rescaled": f"epoch after {PARALLELISM} -> {RESCALED} subtasks",
    "wider": "read the checkpoint after it",
}
T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, nargs="+", default=list(KEYS))
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of an epoch")
    results.add_folder(parser)


def run(arguments: argparse.Namespace) -> None:
    before = results.machine()
    sizes = []
    for keys in [WARM_UP_KEYS, *arguments.keys]:
        work = Path(tempfile.mkdtemp(prefix="dstl-bench-", dir=arguments.folder))
        spark = local_session(work=work)
        try:
            figures = Scale(spark, work, keys, arguments.rows).measure()
        finally:
            spark.stop()
            shutil.rmtree(work, ignore_errors=True)
        if keys == WARM_UP_KEYS:
            continue
        sizes.append(figures)
        machine = {**before, "load_average_after": results.machine()["load_average"]}
        summary = {"machine": machine, "rows": arguments.rows, "sizes": sizes}
        results.write("scale", summary, table_of(summary))


class Scale:
    """The steps of one size."""

    def __init__(self, spark: SparkSession, work: Path, keys: int, rows: int) -> None:
        register(spark)
        self._spark, self._work, self._keys, self._rows = spark, work, keys, rows
        self._added = 0
        self._figures: dict[str, Any] = {"keys": keys}

    def measure(self) -> dict[str, Any]:
        first = str(self._work / "bootstrapped")
        self._step("bootstrap", lambda: self._bootstrap(first))
        self._figures["savepoint_bytes"] = _bytes(first)
        self._step("read", lambda: self._check(first))
        job = self._job(PARALLELISM)
        self._step("first", lambda: self._start(job, first))
        seconds = sorted(self._seconds(lambda: self._epoch(job)) for _ in range(WARM_EPOCHS))
        self._note("warm", seconds[len(seconds) // 2])
        self._step("checkpoint", lambda: self._check(job.latest_path()))
        self._step("materialize", job.materialize)
        second = str(self._work / "savepoint")
        self._step("savepoint", lambda: job.savepoint(second))
        self._check(second)
        shutil.rmtree(second)
        wider = self._job(RESCALED)
        self._step("rescaled", lambda: self._epoch(wider))
        self._step("wider", lambda: self._check(wider.latest_path()))
        return self._figures

    def _step(self, name: str, work: Callable[[], T]) -> None:
        self._note(name, self._seconds(work))

    def _note(self, name: str, seconds: float) -> None:
        memory = _memory()
        self._figures[name] = {"seconds": round(seconds, 2), "worker_peak_mib": memory}
        print(f"{self._keys:,} keys, {name}: {seconds:.1f} s, worker {memory} MiB", flush=True)

    def _seconds(self, work: Callable[[], T]) -> float:
        started = time.monotonic()
        work()
        return time.monotonic() - started

    def _bootstrap(self, path: str) -> None:
        rows = self._spark.range(0, self._keys, 1, PARALLELISM).select(
            F.col("id").alias("k"), F.lit(1).cast("long").alias("n"), F.col("id").alias("total")
        )
        state = OperatorTransformation.bootstrap_with(rows).key_by("k").transform_columns()
        writer = SavepointWriter.new_savepoint(self._spark, 128, PARALLELISM)
        writer.with_operator(OperatorIdentifier.for_uid("u"), state).write(path)

    def _check(self, path: str) -> None:
        frame = self._spark.read.format("savepoint").option("operator.uid", "u").load(path)
        totals = frame.agg(F.count(F.lit(1)), F.sum("n")).collect()[0]
        wanted = (self._keys, self._keys + self._added)
        if tuple(totals) != wanted:
            raise AssertionError(f"{path} has {tuple(totals)}, expected {wanted}")

    def _job(self, parallelism: int) -> StatefulJob:
        operator = AggregateOperator(
            "u", "k", {"n": aggregates.count(), "total": aggregates.sum("v")}, schema=SCHEMA
        )
        return StatefulJob(
            self._spark,
            "scale",
            str(self._work / "jobs"),
            operator,
            parallelism=parallelism,
            local_copies=LocalCopies(str(self._work / "local")),
        )

    def _start(self, job: StatefulJob, path: str) -> None:
        job.start(path)
        self._epoch(job)

    def _epoch(self, job: StatefulJob) -> None:
        self._added += self._rows
        job.run(self._batch(self._added), self._added)

    def _batch(self, seed: int) -> DataFrame:
        key = F.pmod(F.xxhash64("id", F.lit(seed)), F.lit(self._keys))
        return self._spark.range(0, self._rows, 1, 2).select(
            key.alias("k"), (F.col("id") % 1000).alias("v")
        )


def _memory() -> int:
    """The largest memory that a Python worker of this process has had, in MiB."""
    parents: dict[int, int] = {}
    peaks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines = dict(
                line.split(":", 1) for line in (folder / "status").read_text().splitlines()
            )
        except OSError:
            continue
        pid = int(folder.name)
        parents[pid] = int(lines["PPid"])
        if lines["Name"].strip().startswith("python") and "VmHWM" in lines:
            peaks[pid] = int(lines["VmHWM"].split()[0])
    own = [each for each in peaks if each != os.getpid() and _is_under(each, parents)]
    return max((peaks[each] for each in own), default=0) // 1024


def _is_under(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False


def _bytes(folder: str) -> int:
    return sum(each.stat().st_size for each in Path(folder).rglob("*") if each.is_file())


def table_of(figures: dict[str, Any]) -> str:
    sizes = figures["sizes"]
    lines = [
        "# One large state: seconds, and the peak memory of a worker",
        "",
        "`python -m benchmarks scale` writes this file.",
        "",
        f"{results.describe(figures['machine'])} A long key and two longs; epochs of "
        f"{figures['rows']:,} rows over all keys.",
        "",
        "| step | " + " | ".join(f"{each['keys']:,} keys" for each in sizes) + " | ratio |",
        "|---|" + "---|" * (len(sizes) + 1),
    ]
    for name, title in STEPS.items():
        cells = [
            f"{own[name]['seconds']:.2f} s, {own[name]['worker_peak_mib']:,} MiB" for own in sizes
        ]
        ratio = sizes[-1][name]["seconds"] / sizes[0][name]["seconds"]
        lines.append(f"| {title} | {' | '.join(cells)} | {ratio:.1f} |")
    return "\n".join(lines) + "\n"
