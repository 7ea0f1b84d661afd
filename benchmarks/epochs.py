"""Epochs of real batches: aggregates, a function by column and one by row, next to what Spark users
write without dstl.

A case is a number of rows over a number of keys that have two long states. All forms do the same:
they add up one column, and count. In the same run, on the same batches: Spark's read, join and
write of a Parquet table, and a Delta merge (Spark groups the batch, the ``deltalake`` package
merges). Each form begins with all keys; the first epochs after that warm it up. The forms take
turns in each epoch, but for the one by row.

Expected before measuring: a rewrite costs what the state costs, so it loses where few keys change;
a form that sorts nothing and runs no Python per row costs about what Spark's own grouping of the
batch costs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import epoch_pyflink, epoch_streams, results
from benchmarks.epoch_peer import Peer, sums
from benchmarks.epoch_streams import TransformWithState
from benchmarks.sessions import local_session
from dstl_core import (
    AggregateOperator,
    EmbeddedRocksDBStateBackend,
    KeyedOperator,
    SavepointReader,
    StatefulJob,
    ValueStateDescriptor,
    aggregates,
)
from dstl_core.functions import ColumnResult, KeyedColumnFunction, KeyedProcessFunction
from dstl_core.job.spec.operators import LocalCopies

CASES = (
    *("10000:1000000", "200000:1000000", "2000000:1000000"),
    *("200000:1000000:0.01", "200000:1000000:0.1"),
    *("10000:10000000", "200000:10000000", "2000000:10000000"),
    *("10000:100000", "20000000:10000000"),
)
STREAMS = ("stream", "pandas")
PYFLINK = {"pyflink": "thread", "pyflink-process": "process"}
"""The mode of each form: in Flink's own process, or in Python processes beside it."""
FORMS = ("aggregate", "column", "row", "rocksdb", "rewrite", "delta", *STREAMS, *PYFLINK)
LARGE_ROWS, LARGE_EPOCHS = 5_000_000, 2
"""Of batches with more rows, fewer epochs are measured, and no functions by row."""
ROCKSDB_ROWS = 2_000_000
"""The batches of functions by row with RocksDB, which take long where the database is used."""
STREAM_LIMITS = {"rows": 10_000, "keys": 100_000}
"""Of ``transformWithState``, whose function asks the JVM for one key at a time."""
STREAM_EPOCHS = 2
STATES = (ValueStateDescriptor("n", "bigint"), ValueStateDescriptor("total", "bigint"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="rows:keys[:share of keys]")
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=FORMS)
    parser.add_argument("--epochs", type=int, default=5, help="epochs that are measured")
    results.add_folder(parser)


class ByColumn(KeyedColumnFunction):
    """Adds up and counts by columns."""

    order_insensitive = True
    states = STATES

    def process_batch(
        self, keys: pa.Array, state: pa.RecordBatch, rows: pa.RecordBatch
    ) -> ColumnResult:
        index = rows.column("key_index").to_numpy()
        count = pc.fill_null(state.column("n"), 0).to_numpy() + np.bincount(
            index, minlength=len(keys)
        )
        total = pc.fill_null(state.column("total"), 0).to_numpy().copy()
        np.add.at(total, index, rows.column("v").to_numpy())
        columns = [pa.array(count), pa.array(total)]
        return ColumnResult(pa.RecordBatch.from_arrays(columns, names=["n", "total"]))


class ByRow(KeyedProcessFunction):
    """The same row by row."""

    order_insensitive = True

    def open(self, runtime_context: Any) -> None:
        self._n, self._total = (runtime_context.get_state(each) for each in STATES)

    def process_element(self, value: Any, ctx: Any) -> None:
        self._n.update((self._n.value() or 0) + 1)
        self._total.update((self._total.value() or 0) + value["v"])


def run(arguments: argparse.Namespace) -> None:
    for module in (sys.modules[__name__], epoch_streams):
        cloudpickle.register_pickle_by_value(module)
    work = Path(tempfile.mkdtemp(prefix="dstl-bench-", dir=arguments.folder))
    before = results.machine()
    spark = local_session(work=work)
    cases = []
    try:
        for text in arguments.cases:
            size = _size(text)
            is_large = size[0] > LARGE_ROWS
            epochs = min(arguments.epochs, LARGE_EPOCHS) if is_large else arguments.epochs
            batches = _batches(spark, work / text, *size, epochs + 2)
            forms = [each for each in arguments.forms if _fits(each, *size)]
            case = {"rows": size[0], "keys": size[1], "share": size[2]}
            print(f"# {text} (rows:keys[:share])", file=sys.stderr)
            case["forms"] = _measure_forms(spark, work, forms, batches, size[1])
            shutil.rmtree(work / text)
            cases.append(case)
            machine = {**before, "load_average_after": results.machine()["load_average"]}
            figures = {"machine": machine, "cases": cases}
            results.write("epochs", figures, _table(figures))
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


def _size(text: str) -> tuple[int, int, float]:
    """Rows, keys, and the share of keys that a batch takes its rows from."""
    rows, keys, *share = text.split(":")
    return int(rows), int(keys), float(share[0]) if share else 1.0


def _fits(form: str, rows: int, keys: int, share: float) -> bool:
    if form in PYFLINK:
        limit = epoch_pyflink.LIMITS[PYFLINK[form]]
        return share == 1 and rows <= limit and keys <= epoch_pyflink.MOST_KEYS
    if form in STREAMS:
        return rows <= STREAM_LIMITS["rows"] and keys <= STREAM_LIMITS["keys"]
    if form == "rocksdb" and rows != ROCKSDB_ROWS:
        return False
    return form not in ("row", "rocksdb") or rows <= LARGE_ROWS


def _measure_forms(
    spark: SparkSession, work: Path, forms: list[str], batches: list[DataFrame], keys: int
) -> dict[str, dict[str, float]]:
    """Of each form; the sums of each are compared with those of the batches that it had."""
    measured: dict[str, dict[str, float]] = {}
    # Python per row, and the workers of a query, would slow the other forms.
    alone = [each for each in forms if each in ("row", "rocksdb", *STREAMS)]
    together = [each for each in forms if each not in (*alone, *PYFLINK)]
    for group in filter(None, (together, *([each] for each in alone))):
        print(f"# {', '.join(group)}", file=sys.stderr)
        own = batches[: 3 + STREAM_EPOCHS] if group[0] in STREAMS else batches
        peers = {form: _MAKERS[form](spark, work / form, keys) for form in group}
        try:
            measured |= _measure(peers, own)
            checks = {form: peer.check() for form, peer in peers.items()}
        finally:
            for peer in peers.values():
                peer.close()
        wanted = [sums(_grouped(each)) for each in own]
        expected = sum(n for n, _ in wanted), sum(total for _, total in wanted)
        if set(checks.values()) != {expected}:
            raise AssertionError(f"the forms do not hold {expected}: {checks}")
        for form in group:
            shutil.rmtree(work / form, ignore_errors=True)
    for form in (each for each in forms if each in PYFLINK):
        measured |= _measure_pyflink(form, work / form, batches[-1])
    return measured


def _measure_pyflink(form: str, folder: Path, batch: DataFrame) -> dict[str, dict[str, float]]:
    """Of PyFlink on one batch, which is its first; nothing if PyFlink cannot be installed."""
    python = epoch_pyflink.python_of()
    if python is None:
        return {}
    print(f"# {form}", file=sys.stderr)
    batch.write.csv(str(folder / "batch"))
    seen = epoch_pyflink.measure(python, PYFLINK[form], folder / "batch", folder / "seen")
    if (seen["rows"], seen["total"]) != sums(_grouped(batch)):
        raise AssertionError(f"{form} has seen other rows: {seen}")
    shutil.rmtree(folder)
    seconds = round(seen["seconds"], 3)
    print(f"  {seconds}", file=sys.stderr)
    return {form: {"median": seconds, "min": seconds, "max": seconds}}


def _batches(
    spark: SparkSession, work: Path, rows: int, keys: int, share: float, epochs: int
) -> list[DataFrame]:
    """All keys once, then the epochs, as files. Keys that a batch touches lie evenly among all."""
    frames = []
    few = max(round(keys * share), 1)
    for number in range(epochs + 1):
        ids = spark.range(0, rows if number else keys, 1, 2)
        one = F.pmod(F.xxhash64("id", F.lit(number)), F.lit(few)) * F.lit(keys // few)
        path = str(work / str(number))
        key = one if number else F.col("id")
        ids.select(key.alias("k"), (F.col("id") % 1000).alias("v")).write.parquet(path)
        frames.append(spark.read.schema("k bigint, v bigint").parquet(path))
    return frames


class Ours(Peer):
    """A job of dstl."""

    def __init__(
        self, spark: SparkSession, folder: Path, keys: int, operator: Any, **options: Any
    ) -> None:
        self._spark = spark
        local = LocalCopies(str(folder / "local"), max_entries=4 * keys)
        options["local_copies"] = local
        self._job = StatefulJob(spark, "bench", str(folder / "job"), operator, **options)

    def epoch(self, number: int, rows: DataFrame) -> None:
        self._job.run(rows, number)

    def check(self) -> tuple[int, int]:
        path = self._job.latest_path()
        frame = SavepointReader.read(self._spark, path).read_keyed_state("u")
        return sums(frame)


class Rewrite(Peer):
    """Spark reads a Parquet table, joins the batch, and writes the next table."""

    def __init__(self, spark: SparkSession, folder: Path, keys: int) -> None:
        self._spark, self._folder, self._latest = spark, folder, ""

    def epoch(self, number: int, rows: DataFrame) -> None:
        change = _grouped(rows)
        if self._latest:
            table = self._spark.read.parquet(self._latest)
            joined = table.join(change.withColumnsRenamed({"n": "m", "total": "more"}), "k", "full")
            zero = F.lit(0)
            change = joined.select(
                "k",
                (F.coalesce("n", zero) + F.coalesce("m", zero)).alias("n"),
                (F.coalesce("total", zero) + F.coalesce("more", zero)).alias("total"),
            )
        path = str(self._folder / str(number))
        change.write.parquet(path)
        if self._latest:
            shutil.rmtree(self._latest)
        self._latest = path

    def check(self) -> tuple[int, int]:
        return sums(self._spark.read.parquet(self._latest))


class Delta(Peer):
    """Spark groups the batch, and the ``deltalake`` package merges it into a table."""

    def __init__(self, spark: SparkSession, folder: Path, keys: int) -> None:
        self._path = str(folder)

    def epoch(self, number: int, rows: DataFrame) -> None:
        from deltalake import DeltaTable, write_deltalake  # only this peer needs the package

        change = _grouped(rows).toArrow()
        if number == 0:
            write_deltalake(self._path, change)
            return
        merge = DeltaTable(self._path).merge(
            change, "t.k = s.k", source_alias="s", target_alias="t"
        )
        merge.when_matched_update(
            {"n": "t.n + s.n", "total": "t.total + s.total"}
        ).when_not_matched_insert_all().execute()

    def check(self) -> tuple[int, int]:
        from deltalake import DeltaTable

        table = DeltaTable(self._path).to_pyarrow_table(columns=["n", "total"])
        return pc.sum(table["n"]).as_py(), pc.sum(table["total"]).as_py()


def _grouped(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("v").alias("total"))


_COUNT_AND_SUM = {"n": aggregates.count(), "total": aggregates.sum("v", "bigint")}
_MAKERS: Mapping[str, Callable[[SparkSession, Path, int], Peer]] = {
    "aggregate": lambda *place: Ours(*place, AggregateOperator("u", "k", _COUNT_AND_SUM, "bigint")),
    "column": lambda *place: Ours(*place, KeyedOperator("u", "k", "bigint", ByColumn())),
    "row": lambda *place: Ours(*place, KeyedOperator("u", "k", "bigint", ByRow())),
    "rocksdb": lambda *place: Ours(
        *place,
        KeyedOperator("u", "k", "bigint", ByRow()),
        state_backend=EmbeddedRocksDBStateBackend(),
    ),
    "rewrite": Rewrite,
    "delta": Delta,
    "stream": lambda *place: TransformWithState(*place, pandas=False),
    "pandas": lambda *place: TransformWithState(*place, pandas=True),
}


def _measure(peers: Mapping[str, Peer], batches: list[DataFrame]) -> dict[str, dict[str, float]]:
    """Seconds of the first batch, and of the epochs after two that warm up, of each form."""
    seconds: dict[str, list[float]] = {form: [] for form in peers}
    for number, rows in enumerate(batches):
        for form, peer in peers.items():
            started = time.monotonic()
            own = peer.epoch(number, rows)
            seconds[form].append(time.monotonic() - started if own is None else own)
        print(
            f"  {number}: { {form: round(own[-1], 2) for form, own in seconds.items()} }",
            file=sys.stderr,
        )
    return {
        form: {
            "bootstrap_s": round(own[0], 3),
            "median": round(statistics.median(own[3:]), 3),
            "min": round(min(own[3:]), 3),
            "max": round(max(own[3:]), 3),
        }
        for form, own in seconds.items()
    }


_GOALS = (
    (2_000_000, 1_000_000, "aggregate", "delta", 1.0),
    (2_000_000, 1_000_000, "aggregate", "rewrite", 0.6),
    (200_000, 10_000_000, "aggregate", "delta", 0.25),
    (200_000, 10_000_000, "aggregate", "rewrite", 0.1),
    (2_000_000, 1_000_000, "column", "rewrite", 0.8),
)
NAMES = {
    "aggregate": "dstl, declared aggregates",
    "column": "dstl, function by column",
    "row": "dstl, function by row",
    "rocksdb": "dstl, function by row, RocksDB",
    "rewrite": "Spark, Parquet read-join-write",
    "delta": "Spark groups, deltalake merges",
    "stream": "transformWithState, rows",
    "pandas": "transformWithState, pandas",
    "pyflink": "PyFlink, thread mode",
    "pyflink-process": "PyFlink, process mode",
}


def _table(figures: dict[str, Any]) -> str:
    lines = [
        f"# Epochs by size of batch and of state\n\n{results.describe(figures['machine'])} Seconds "
        f"of a warm epoch, median (min-max): one call, from the batch in Parquet files to the "
        f"commit. Two long states (a count and a sum), whole numbers as keys. *First batch*: all "
        f"keys once. *Taken from*: the share of keys that rows are spread over. The forms of a "
        f"case take turns on the same batches, but for the function by row and "
        f"`transformWithState`, which run alone. The sums of each form are compared with those of "
        f"its batches. `transformWithState` is a query that goes on, and its seconds are its "
        f"`triggerExecution`. It has at most {STREAM_LIMITS['rows']:,} rows on "
        f"{STREAM_LIMITS['keys']:,} keys, and {STREAM_EPOCHS} warm batches. PyFlink's "
        f"`KeyedProcessFunction` has the batch in CSV files, and its seconds are those from the "
        f"first row that a function sees to the last one. Its state is in memory and empty at "
        f"first, and there are no checkpoints.\n\n"
        f"| rows | keys | taken from | form | warm epoch | first batch |\n"
        f"|---|---|---|---|---|---|\n"
    ]
    medians = {}
    for case in figures["cases"]:
        for form, own in case["forms"].items():
            medians[case["rows"], case["keys"], case["share"], form] = own["median"]
            first = f"{own['bootstrap_s']:.2f}" if "bootstrap_s" in own else "-"
            lines.append(
                f"| {case['rows']:,} | {case['keys']:,} | {case['share']:.0%} | {NAMES[form]} "
                f"| {own['median']:.2f} ({own['min']:.2f}-{own['max']:.2f}) "
                f"| {first} |\n"
            )
    lines.append("\n| goal | ratio | at most | met |\n|---|---|---|---|\n")
    for rows, keys, form, other, at_most in _GOALS:
        one, two = (medians.get((rows, keys, 1.0, each)) for each in (form, other))
        if one is None or two is None:
            continue
        met = "yes" if one / two <= at_most else "**no**"
        what = f"{rows:,} rows on {keys:,} keys: {NAMES[form]} to {NAMES[other]}"
        lines.append(f"| {what} | {one / two:.2f} | {at_most} | {met} |\n")
    return "".join(lines)
