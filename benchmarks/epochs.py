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
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import results
from benchmarks.sessions import local_session
from dstl_core import (
    AggregateOperator,
    ColumnResult,
    KeyedColumnFunction,
    KeyedOperator,
    KeyedProcessFunction,
    SavepointReader,
    StatefulJob,
    ValueStateDescriptor,
    aggregates,
)
from dstl_core.spark.task.operators import LocalCopies

CASES = ("2000000:1000000", "200000:10000000", "10000:1000000")
FORMS = ("aggregate", "column", "row", "rewrite", "delta")
ROW_LIMIT = 1_000_000
"""Keys above which the function by row is not measured: its state is in memory."""
STATES = (ValueStateDescriptor("n", "bigint"), ValueStateDescriptor("total", "bigint"))
Epoch = Callable[[int, DataFrame], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="rows:keys")
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=FORMS)
    parser.add_argument("--epochs", type=int, default=7, help="epochs that are measured")
    parser.add_argument("--folder", help="where files go (default: a temporary folder)")


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
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    work = Path(tempfile.mkdtemp(prefix="dstl-bench-", dir=arguments.folder))
    before = results.machine()
    spark = local_session(work=work)
    cases = []
    try:
        for text in arguments.cases:
            rows, keys = (int(each) for each in text.split(":"))
            case: dict[str, Any] = {"rows": rows, "keys": keys, "forms": {}}
            batches = _batches(spark, work, rows, keys, arguments.epochs + 2)
            forms = [each for each in arguments.forms if each != "row" or keys <= ROW_LIMIT]
            folders = {form: work / f"{form}-{rows}-{keys}" for form in forms}
            peers = {form: _MAKERS[form](spark, folders[form], keys) for form in forms}
            # The function by row keeps its state in the workers' memory, and would slow the others.
            alone = {form: peer for form, peer in peers.items() if form == "row"}
            together = {form: peer for form, peer in peers.items() if form != "row"}
            for group in filter(None, (together, alone)):
                print(f"# {rows:,} rows on {keys:,} keys: {', '.join(group)}", file=sys.stderr)
                case["forms"] |= _measure(group, batches)
            checks = {form: peer.check() for form, peer in peers.items()}
            for folder in folders.values():
                shutil.rmtree(folder, ignore_errors=True)
            if len(set(checks.values())) > 1:
                raise AssertionError(f"the forms do not agree: {checks}")
            cases.append(case)
            machine = {**before, "load_average_after": results.machine()["load_average"]}
            figures = {"machine": machine, "cases": cases}
            results.write("epochs", figures, _table(figures))
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


def _batches(spark: SparkSession, work: Path, rows: int, keys: int, epochs: int) -> list[DataFrame]:
    """All keys once, then the epochs, as files."""
    found = []
    for number in range(epochs + 1):
        ids = spark.range(0, rows if number else keys, 1, 2)
        key = F.pmod(F.xxhash64("id", F.lit(number)), F.lit(keys)) if number else F.col("id")
        path = str(work / f"batch-{rows}-{keys}-{number}")
        ids.select(key.alias("k"), (F.col("id") % 1000).alias("v")).write.parquet(path)
        found.append(spark.read.schema("k bigint, v bigint").parquet(path))
    return found


class Peer(ABC):
    """What keeps state, by one way or another."""

    @abstractmethod
    def epoch(self, number: int, rows: DataFrame) -> None:
        """Applies a batch."""

    @abstractmethod
    def check(self) -> tuple[int, int]:
        """The sums of both states over all keys, which have to be those of every other way."""


class Ours(Peer):
    """A job of dstl."""

    def __init__(self, spark: SparkSession, folder: Path, keys: int, operator: Any) -> None:
        self._spark = spark
        local = LocalCopies(str(folder / "local"), max_entries=4 * keys)
        self._job = StatefulJob(spark, "bench", str(folder / "job"), operator, local_copies=local)

    def epoch(self, number: int, rows: DataFrame) -> None:
        self._job.run(rows, number)

    def check(self) -> tuple[int, int]:
        path = self._job.latest_path()
        frame = SavepointReader.read(self._spark, path).read_keyed_state("u")
        return _sums(frame)


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
        return _sums(self._spark.read.parquet(self._latest))


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


def _sums(frame: DataFrame) -> tuple[int, int]:
    found = frame.agg(F.sum("n").alias("n"), F.sum("total").alias("total")).collect()[0]
    return found["n"], found["total"]


_COUNT_AND_SUM = {"n": aggregates.count(), "total": aggregates.sum("v", "bigint")}
_MAKERS: Mapping[str, Callable[[SparkSession, Path, int], Peer]] = {
    "aggregate": lambda *place: Ours(*place, AggregateOperator("u", "k", _COUNT_AND_SUM, "bigint")),
    "column": lambda *place: Ours(*place, KeyedOperator("u", "k", "bigint", ByColumn())),
    "row": lambda *place: Ours(*place, KeyedOperator("u", "k", "bigint", ByRow())),
    "rewrite": Rewrite,
    "delta": Delta,
}


def _measure(peers: Mapping[str, Peer], batches: list[DataFrame]) -> dict[str, dict[str, float]]:
    """Seconds of the first batch, and of the epochs after two that warm up, of each form."""
    seconds: dict[str, list[float]] = {form: [] for form in peers}
    for number, rows in enumerate(batches):
        for form, peer in peers.items():
            started = time.monotonic()
            peer.epoch(number, rows)
            seconds[form].append(time.monotonic() - started)
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
_NAMES = {
    "aggregate": "dstl, declared aggregates",
    "column": "dstl, function by column",
    "row": "dstl, function by row",
    "rewrite": "Spark, Parquet read-join-write",
    "delta": "Spark groups, deltalake merges",
}


def _table(figures: dict[str, Any]) -> str:
    lines = [
        f"# Epochs by size of batch and of state\n\n{results.describe(figures['machine'])} Seconds "
        f"of a warm epoch, median (min-max): one call, from the batch in Parquet files to the "
        f"commit. Two long states (a count and a sum), whole numbers as keys. *First batch*: all "
        f"keys once. The forms of a case take turns on the same batches, but for the "
        f"function by row, which runs alone; their sums are compared at the end.\n\n"
        f"| rows | keys | form | warm epoch | first batch |\n|---|---|---|---|---|\n"
    ]
    medians = {}
    for case in figures["cases"]:
        for form, own in case["forms"].items():
            medians[case["rows"], case["keys"], form] = own["median"]
            lines.append(
                f"| {case['rows']:,} | {case['keys']:,} | {_NAMES[form]} | {own['median']:.2f} "
                f"({own['min']:.2f}-{own['max']:.2f}) | {own['bootstrap_s']:.2f} |\n"
            )
    lines.append("\n| goal | ratio | at most | met |\n|---|---|---|---|\n")
    for rows, keys, form, other, at_most in _GOALS:
        one, two = medians.get((rows, keys, form)), medians.get((rows, keys, other))
        if one is None or two is None:
            continue
        met = "yes" if one / two <= at_most else "**no**"
        what = f"{rows:,} rows on {keys:,} keys: {_NAMES[form]} to {_NAMES[other]}"
        lines.append(f"| {what} | {one / two:.2f} | {at_most} | {met} |\n")
    return "".join(lines)
