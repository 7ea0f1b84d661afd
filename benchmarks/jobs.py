"""Epochs of a stateful job as its state grows and the change stays the same.

One run measures, for each size of state and the same change: a warm epoch, the commit alone, a cold
epoch (no local copy: recovery), bytes per epoch, and a full snapshot of the same state; by columns,
by rows with state in memory and in RocksDB, and by Spark's own ``transformWithState`` (RocksDB,
changelog checkpointing) on the same rows. Runs may be done one by one: each replaces its own cases
in the results. ``--seeds`` keeps the states of ``transformWithState``, which take long to make, for
later runs; ``--seed-only`` makes them.

Expected before measuring: two Python stages of Spark take about 0.25 s whatever the state; a binary
search in a mapped file takes microseconds a key; so a warm epoch does not grow, and a full snapshot
and a cold epoch grow with the state.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import jobs_peer, results
from benchmarks.sessions import local_session
from dstl_core.checkpoint.store.state_files import check_state_files
from dstl_core.codec.serializers import Types
from dstl_core.functions import (
    ColumnResult,
    Context,
    KeyedColumnFunction,
    KeyedProcessFunction,
    RichFunction,
    Row,
    RuntimeContext,
)
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.stateful_job import StatefulJob
from dstl_core.storage.location import Location

SIZES = (100_000, 1_000_000, 10_000_000)
ROW_SIZES = SIZES
ROCKSDB_SIZES = (1_000_000, 10_000_000)
CHANGE = 10_000
EPOCHS = 7
STATE_STORE = {
    "spark.sql.shuffle.partitions": str(jobs_peer.PARTITIONS),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, sizes in (
        ("column", SIZES),
        ("row", ROW_SIZES),
        ("rocksdb", ROCKSDB_SIZES),
        ("peer", SIZES),
    ):
        parser.add_argument(
            f"--{name}-sizes", type=int, nargs="*", default=list(sizes), help="keys of state"
        )
    parser.add_argument("--change", type=int, default=CHANGE, help="rows of an epoch")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--base", help="URL under which jobs keep their state")
    results.add_folder(parser)
    parser.add_argument("--seeds", help="where states of transformWithState are kept between runs")
    parser.add_argument("--seed-only", action="store_true", help="make them, and measure nothing")


class Sums(KeyedColumnFunction):
    """Adds up a number per key."""

    order_insensitive = True
    states = (ValueStateDescriptor("total", Types.LONG),)

    def process_batch(
        self, keys: pa.Array, state: pa.RecordBatch, rows: pa.RecordBatch
    ) -> ColumnResult:
        total = pc.fill_null(state.column("total"), 0).to_numpy().copy()
        np.add.at(total, rows.column("key_index").to_numpy(), rows.column("v").to_numpy())
        return ColumnResult(pa.RecordBatch.from_arrays([pa.array(total)], names=["total"]))


class SumsByRow(KeyedProcessFunction):
    """The same row by row."""

    order_insensitive = True

    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(Sums.states[0])

    def process_element(self, value: Row, ctx: Context) -> None:
        self._total.update((self._total.value() or 0) + value["v"])


def run(arguments: argparse.Namespace) -> None:
    work = Path(tempfile.mkdtemp(prefix="dstl-bench-", dir=arguments.folder))
    for module in (sys.modules[__name__], jobs_peer):
        cloudpickle.register_pickle_by_value(module)
    spark = local_session(work=work, options=STATE_STORE)
    before = results.machine()
    measures = {"column": _case, "row": _case, "rocksdb": _case, "peer": _peer}
    try:
        for kind in ["peer"] if arguments.seed_only else measures:
            for size in getattr(arguments, f"{kind}_sizes"):
                print(f"# {kind}, {size:,} keys", file=sys.stderr)
                folder = work / f"{kind}-{size}"
                if arguments.seed_only:
                    jobs_peer.seed(spark, Path(arguments.seeds) / str(size), size)
                    continue
                case = measures[kind](spark, folder, size, arguments, kind)
                _write(arguments.change, {"kind": kind, "keys": size, "machine": before, **case})
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


def _write(change: int, case: dict[str, Any]) -> None:
    """Writes a case, and those of earlier runs that were not measured again."""
    stored = results.RESULTS / "jobs.json"
    earlier = json.loads(stored.read_text()) if stored.exists() else {}
    if earlier.get("change") != change or any("kind" not in each for each in earlier["cases"]):
        earlier = {"cases": []}
    by_place = {(each["kind"], each["keys"]): each for each in [*earlier["cases"], case]}
    figures = {"change": change, "cases": [by_place[place] for place in sorted(by_place)]}
    results.write("jobs", figures, _table(figures))


def _rows(spark: SparkSession, size: int, count: int, seed: int) -> DataFrame:
    """``count`` rows with keys out of ``size``; all keys once if that is the same number."""
    numbers = spark.range(0, count, 1, 2)
    key = F.col("id") if count == size else F.pmod(F.xxhash64("id", F.lit(seed)), F.lit(size))
    text = F.format_string("key-%012d", key)
    return numbers.select(text.alias("k"), (F.col("id") + seed).alias("v"))


def _case(
    spark: SparkSession, work: Path, size: int, arguments: argparse.Namespace, kind: str
) -> dict[str, Any]:
    local = LocalCopies(str(work / "local"), max_entries=2 * size)

    backend = EmbeddedRocksDBStateBackend() if kind == "rocksdb" else HashMapStateBackend()

    def job_of(function: RichFunction) -> StatefulJob:
        operator = KeyedOperator("sums", "k", Types.STRING, function)
        return StatefulJob(
            spark, "bench", base, operator, local_copies=local, state_backend=backend
        )

    base = f"{arguments.base}/{work.name}" if arguments.base else str(work)

    job = job_of(Sums())
    change = arguments.change
    case: dict[str, Any] = {}
    case["bootstrap_s"], _ = _timed(lambda: job.run(_rows(spark, size, size, 0), 0))
    if kind != "column":
        job = job_of(SumsByRow())
    case["full_snapshot_s"], committed = _timed(job.materialize)
    case["full_snapshot_bytes"] = committed.facts.materialized_bytes
    warm, tasks, commits, checks = [], [], [], []
    warmth: Counter[str] = Counter()
    for epoch in range(1, arguments.epochs + 3):
        rows = _stored(spark, work, _rows(spark, size, change, epoch), epoch)
        seconds, result = _timed(lambda rows=rows, epoch=epoch: job.run(rows, epoch))
        own = result.facts.operators["sums"]
        if epoch > 2:  # the first ones warm up, each worker process for itself
            warmth.update(own.warmth)
            warm.append(seconds)
            commits.append(result.commit_seconds)
            checks.append(_seconds_of_looking_up_files(job))
            tasks.append((own.restore_ms + own.apply_ms + own.persist_ms) / 1000)
    case["warm_epoch_s"], case["warm_task_s"] = _summary(warm), _summary(tasks)
    case["log_bytes"], case["changed_keys"] = own.log_bytes, own.changed_keys
    case["warmth"] = dict(warmth)
    case["commit_s"], case["check_s"] = _summary(commits), _summary(checks)
    case["base"] = Location.parse(base).scheme
    shutil.rmtree(work / "local", ignore_errors=True)
    rows = _stored(spark, work, _rows(spark, size, change, 1000), 1000)
    recovered = replace(job, local_copies=LocalCopies(str(work / "none"), max_bytes=0))
    case["cold_epoch_s"], result = _timed(lambda: recovered.run(rows, 1000))
    own = result.facts.operators["sums"]
    case["cold_restore_s"], case["cold_warmth"] = own.restore_ms / 1000, own.warmth
    return case


def _seconds_of_looking_up_files(job: StatefulJob) -> float:
    """Of the look at all its files with which the last commit began."""
    snapshot = job.snapshot()
    seconds, _ = _timed(
        lambda: check_state_files(
            snapshot.metadata, snapshot.folder, lambda _: snapshot.file_io, ()
        )
    )
    return seconds


def _stored(spark: SparkSession, work: Path, rows: DataFrame, number: int) -> DataFrame:
    """The rows of an epoch as files, as they would come."""
    path = str(work / "batches" / str(number))
    rows.coalesce(1).write.parquet(path)
    return spark.read.schema("k string, v long").parquet(path)


def _peer(
    spark: SparkSession, work: Path, size: int, arguments: argparse.Namespace, kind: str
) -> dict[str, Any]:
    """Micro-batches of the same rows by ``transformWithState``."""
    folder = Path(arguments.seeds) / str(size) if arguments.seeds else work
    jobs_peer.seed(spark, folder, size)
    epochs = range(1, arguments.epochs + 3)
    batches = (_rows(spark, size, arguments.change, epoch) for epoch in epochs)
    seconds, stored_bytes = jobs_peer.measure(spark, folder, size, batches)
    if arguments.seeds:
        shutil.rmtree(folder)  # it holds the epochs now
    return {"warm_epoch_s": _summary(seconds), "log_bytes": stored_bytes}


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.monotonic()
    result = work()
    return time.monotonic() - started, result


def _summary(seconds: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(seconds), 4),
        "min": round(min(seconds), 4),
        "max": round(max(seconds), 4),
    }


_NAMES = {
    "column": "by column",
    "row": "by row, in memory",
    "rocksdb": "by row, in RocksDB",
    "peer": "transformWithState",
}


def goals_of(cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the figures are measured against: growth with the state, and Spark's own way."""
    warm = {(each["kind"], each["keys"]): each["warm_epoch_s"]["median"] for each in cases}
    goals = []

    def goal(what: str, ratio: float, at_most: float) -> None:
        met = ratio <= at_most
        goals.append({"what": what, "ratio": round(ratio, 2), "at_most": at_most, "met": met})

    for (kind, keys), seconds in warm.items():
        less = keys // 10
        if kind != "peer" and (kind, less) in warm:
            what = f"warm epoch {_NAMES[kind]}, {keys:,} keys, to that of {less:,} keys"
            goal(what, seconds / warm[kind, less], 1.2)
        if kind != "peer" and ("peer", keys) in warm:
            what = f"warm epoch {_NAMES[kind]}, {keys:,} keys, to that of transformWithState"
            goal(what, seconds / warm["peer", keys], 1.0)
    return goals


def _table(figures: dict[str, Any]) -> str:
    cases = figures["cases"]
    head = (
        f"# Epochs of {figures['change']:,} rows\n\n{cases[0]['machine']['cpu']}. Seconds, median "
        f"(min-max) of the epochs of a run. *Warm epoch*: one call of `run`, from its batch to its "
        f"commit, on local copies. *Its tasks*: restore, apply and persist of the slowest subtask; "
        f"where its state came from. *Commit alone*: from the last report to the commit; of it, "
        f"looking up every file that the checkpoint names, and its share of the epoch. *Cold "
        f"epoch*: recovery, an epoch without local copies; of it, the restore. *Full snapshot*: "
        f"what each epoch would cost without the changelog, in a Spark job of its own. State in "
        f"memory may have as many entries as there are (`max_entries`). *Bytes*: "
        f"what an epoch adds, and those of the full snapshot. A warm micro-batch of "
        f"transformWithState is its `triggerExecution`, of a query that goes on; its state is in "
        f"RocksDB, with changelog checkpointing.\n\n"
        "| function | keys | warm epoch | its tasks | commit alone; files looked up | "
        "cold epoch (restore) | full snapshot | bytes: epoch / full | load before, commit |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
    )
    lines = [head, *(_line(_NAMES[case["kind"]], case) for case in cases)]
    lines += ["\n| goal | ratio | at most | met |\n|---|---|---|---|\n"]
    for goal in goals_of(cases):
        met = "yes" if goal["met"] else "**no**"
        lines.append(f"| {goal['what']} | {goal['ratio']:.2f} | {goal['at_most']} | {met} |\n")
    return "".join(lines)


def _line(name: str, case: dict[str, Any]) -> str:
    machine = case["machine"]
    run = f"{machine['load_average']:.1f}, {machine['commit']}"
    cells = [name, f"{case['keys']:,}", _cell(case["warm_epoch_s"])]
    if "commit_s" in case:
        warmth = ", ".join(f"{count} {how}" for how, count in case["warmth"].items())
        cells += [
            f"{_cell(case['warm_task_s'])}; {warmth}",
            f"{_cell(case['commit_s'])}{_check_cell(case)}",
            f"{case['cold_epoch_s']:.2f} ({case['cold_restore_s']:.2f})",
            f"{case['full_snapshot_s']:.2f}",
            f"{case['log_bytes']:,} / {case['full_snapshot_bytes']:,}",
        ]
    else:
        stored = f"{case['log_bytes']:,} / -" if "log_bytes" in case else "-"
        cells += [*["-"] * 4, stored]
    return f"| {' | '.join([*cells, run])} |\n"


def _check_cell(case: Mapping[str, Any]) -> str:
    if "check_s" not in case:
        return ""
    seconds = case["check_s"]["median"]
    share = 100 * seconds / case["warm_epoch_s"]["median"]
    return f"; {case['base']}: {1000 * seconds:.1f} ms, {share:.1f} %"


def _cell(summary: dict[str, float]) -> str:
    return f"{summary['median']:.3f} ({summary['min']:.3f}-{summary['max']:.3f})"
