"""Epochs of a stateful job as its state grows and the change stays the same.

One run measures, for each size of state and the same change: a warm epoch by columns, the commit
alone, a cold epoch (no local copy: recovery), bytes per epoch, a full snapshot of the same
state, and Spark's own ``transformWithState`` (RocksDB, changelog checkpointing) on the same rows.

Expected before measuring: two Python stages of Spark take about 0.25 s whatever the state; a binary
search in a mapped file takes microseconds a key; so a warm epoch does not grow, and a full snapshot
and a cold epoch grow with the state.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks import results
from dstl_core.codec.serializers import Types
from dstl_core.spark import (
    ColumnResult,
    KeyedColumnFunction,
    KeyedOperator,
    LocalCopies,
    StatefulJob,
)
from dstl_core.state import ValueStateDescriptor

SIZES = (100_000, 1_000_000)
CHANGE = 10_000
EPOCHS = 7


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="keys")
    parser.add_argument("--change", type=int, default=CHANGE, help="rows of an epoch")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument(
        "--peer-keys",
        type=int,
        default=1_000_000,
        help="largest state for transformWithState, which takes minutes to fill (0: none)",
    )
    parser.add_argument("--folder", help="where files go (default: a temporary folder)")


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


class PeerSums(StatefulProcessor):
    """The same for Spark's transformWithState."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        total = self._total.get()[0] if self._total.exists() else 0
        self._total.update((total + sum(row.v for row in rows),))
        return iter(())

    def close(self) -> None:
        pass


def run(arguments: argparse.Namespace) -> None:
    work = Path(tempfile.mkdtemp(prefix="dstl-bench-", dir=arguments.folder))
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = _session(work)
    try:
        before = results.machine()
        cases = [_case(spark, work / str(size), size, arguments) for size in arguments.sizes]
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)
    figures = {"machine": before, "change": arguments.change, "cases": cases}
    results.write("jobs", figures, _table(figures))


def _session(work: Path) -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .appName("dstl benchmark")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(work / "spark"))
        .config("spark.pyspark.python", sys.executable)
        .config("spark.log.level", "OFF")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )


def _rows(spark: SparkSession, size: int, count: int, seed: int) -> DataFrame:
    """``count`` rows with keys out of ``size``; all keys once if that is the same number."""
    numbers = spark.range(0, count, 1, 2)
    key = F.col("id") if count == size else F.pmod(F.xxhash64("id", F.lit(seed)), F.lit(size))
    text = F.format_string("key-%012d", key)
    return numbers.select(text.alias("k"), (F.col("id") + seed).alias("v"))


def _case(
    spark: SparkSession, work: Path, size: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    print(f"# {size:,} keys", file=sys.stderr)
    local = LocalCopies(str(work / "local"))
    operator = KeyedOperator("sums", "k", Types.STRING, Sums())
    job = StatefulJob(spark, "bench", str(work), operator, local_copies=local)
    change = arguments.change
    seconds, _ = _timed(lambda: job.run(_rows(spark, size, size, 0), 0))
    case: dict[str, Any] = {"keys": size, "bootstrap_s": seconds}
    materialize_s, committed = _timed(job.materialize)
    case["full_snapshot_s"] = materialize_s
    case["full_snapshot_bytes"] = committed.facts["materialized_bytes"]
    warm, tasks, commits, facts = [], [], [], {}
    for epoch in range(1, arguments.epochs + 2):
        rows = _stored(spark, work, _rows(spark, size, change, epoch), epoch)
        seconds, result = _timed(lambda rows=rows, epoch=epoch: job.run(rows, epoch))
        facts = dict(result.facts)
        own = facts["operators"]["sums"]
        if epoch > 1:  # the first one warms up
            warm.append(seconds)
            commits.append(result.commit_seconds)
            tasks.append((own["restore_ms"] + own["apply_ms"] + own["persist_ms"]) / 1000)
    case["warm_epoch_s"], case["warm_task_s"] = _summary(warm), _summary(tasks)
    case["log_bytes"], case["changed_keys"] = facts["log_bytes"], facts["changed_keys"]
    case["warmth"] = facts["operators"]["sums"]["warmth"]
    case["commit_s"] = _summary(commits)
    shutil.rmtree(work / "local")
    rows = _stored(spark, work, _rows(spark, size, change, 1000), 1000)
    case["cold_epoch_s"], result = _timed(lambda: job.run(rows, 1000))
    case["cold_restore_ms"] = result.facts["operators"]["sums"]["restore_ms"]
    case["cold_warmth"] = result.facts["operators"]["sums"]["warmth"]
    if size <= arguments.peer_keys:
        case["transform_with_state_s"] = _peer(spark, work, size, arguments)
    return case


def _stored(spark: SparkSession, work: Path, rows: DataFrame, number: int) -> DataFrame:
    """The rows of an epoch as files, as they would come."""
    path = str(work / "batches" / str(number))
    rows.coalesce(1).write.parquet(path)
    return spark.read.schema("k string, v long").parquet(path)


def _peer(
    spark: SparkSession, work: Path, size: int, arguments: argparse.Namespace
) -> dict[str, float]:
    """Micro-batches of the same rows; the first one has all keys."""
    source = work / "peer"
    _rows(spark, size, size, 0).coalesce(1).write.parquet(str(source / "n=0"))
    for epoch in range(1, arguments.epochs + 2):
        _rows(spark, size, arguments.change, epoch).coalesce(1).write.parquet(
            str(source / f"n={epoch}")
        )
    stream = (
        spark.readStream.schema("k string, v long, n int")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
        .groupBy("k")
        .transformWithState(PeerSums(), "k string", "Update", "None")
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(work / "peer-checkpoints"))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    took = [
        each["durationMs"]["triggerExecution"] / 1000
        for each in stream.recentProgress
        if each["numInputRows"] == arguments.change
    ]
    return _summary(took[1:])


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.monotonic()
    found = work()
    return time.monotonic() - started, found


def _summary(seconds: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(seconds), 4),
        "min": round(min(seconds), 4),
        "max": round(max(seconds), 4),
    }


def _table(figures: dict[str, Any]) -> str:
    machine = figures["machine"]
    head = (
        f"# Epochs of {figures['change']:,} rows\n\n{machine['cpu']}, load "
        f"{machine['load_average']:.1f} before, commit {machine['commit']}"
        f"{' (changed)' if machine['dirty'] else ''}. Seconds, median (min-max) of the run.\n\n"
        "| keys | warm epoch | its tasks | commit alone | cold epoch (restore) | full snapshot | "
        "log bytes / full bytes | transformWithState |\n|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(map(_line, figures["cases"]))


def _line(case: dict[str, Any]) -> str:
    peer = case.get("transform_with_state_s")
    cells = [
        f"{case['keys']:,}",
        _cell(case["warm_epoch_s"]),
        _cell(case["warm_task_s"]),
        _cell(case["commit_s"]),
        f"{case['cold_epoch_s']:.2f} ({case['cold_restore_ms'] / 1000:.2f})",
        f"{case['full_snapshot_s']:.2f}",
        f"{case['log_bytes']:,} / {case['full_snapshot_bytes']:,}",
        "-" if peer is None else _cell(peer),
    ]
    return f"| {' | '.join(cells)} |\n"


def _cell(summary: dict[str, float]) -> str:
    return f"{summary['median']:.3f} ({summary['min']:.3f}-{summary['max']:.3f})"
