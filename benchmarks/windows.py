"""Epochs of windows: declared aggregates per tumbling window, and what a Spark user writes without
dstl.

A case is a number of rows over a number of keys; each epoch is ten windows of event time, and
rows come up to a window late. Both ways count and add up one column per key and window, keep open
windows, and give the others away. In the same run, on the same batches, one after the other in
each epoch: Spark groups the batch by key and window, joins the open windows of a Parquet table,
and writes the table again, divided into open windows and others.

Expected before measuring: the rewrite costs what the open windows cost. Ours costs Python objects,
some microseconds, for each key and window, so it is near where many rows share a window and far
where they do not.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import results
from benchmarks.sessions import local_session
from dstl_core import AggregateOperator, StatefulJob, aggregates, windows
from dstl_core.job.spec.operators import LocalCopies

CASES = ("2000000:1000", "2000000:10000", "2000000:100000")
SIZE = 60_000
WINDOWS = 10
SPAN = SIZE * WINDOWS
WARM_UP = 2
GOAL = 1.5
SCHEMA = "k bigint, v bigint, t bigint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="rows:keys")
    parser.add_argument("--epochs", type=int, default=5, help="epochs that are measured")
    results.add_folder(parser)


def run(arguments: argparse.Namespace) -> None:
    work = Path(tempfile.mkdtemp(prefix="dstl-bench-", dir=arguments.folder))
    before = results.machine()
    spark = local_session(work=work)
    cases = []
    try:
        for text in arguments.cases:
            rows, keys = (int(each) for each in text.split(":"))
            cases.append(_case(spark, work / text.replace(":", "-"), rows, keys, arguments.epochs))
            machine = {**before, "load_average_after": results.machine()["load_average"]}
            figures = {"machine": machine, "cases": cases}
            results.write("windows", figures, _table(figures))
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


def _case(spark: SparkSession, work: Path, rows: int, keys: int, epochs: int) -> dict[str, Any]:
    batches = [_batch(spark, work, rows, keys, number) for number in range(epochs + WARM_UP)]
    ways = {"dstl": Declared(spark, work / "dstl"), "rewrite": Rewrite(spark, work / "rewrite")}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    fired: dict[str, list[tuple[int, ...]]] = {name: [] for name in ways}
    for number, batch in enumerate(batches):
        for name, way in ways.items():
            started = time.monotonic()
            output = way.epoch(number, batch)
            seconds[name].append(time.monotonic() - started)
            fired[name].append(_sums(output))
    if fired["dstl"] != fired["rewrite"]:
        raise AssertionError(f"the ways do not agree: {fired}")
    shutil.rmtree(work)
    case: dict[str, Any] = {
        "rows": rows,
        "keys": keys,
        "fired": statistics.median(each[0] for each in fired["dstl"][WARM_UP:]),
    }
    for name, all_seconds in seconds.items():
        warm = all_seconds[WARM_UP:]
        case[name] = {
            "median": round(statistics.median(warm), 3),
            "min": round(min(warm), 3),
            "max": round(max(warm), 3),
        }
    return case


def _batch(spark: SparkSession, work: Path, rows: int, keys: int, number: int) -> DataFrame:
    key = F.pmod(F.xxhash64("id", F.lit(number)), F.lit(keys))
    late = F.pmod(F.xxhash64("id", F.lit("late"), F.lit(number)), F.lit(SIZE))
    time = F.lit(number * SPAN) + F.floor(F.col("id") * F.lit(SPAN) / F.lit(rows)) - late
    path = str(work / f"batch-{number}")
    spark.range(0, rows, 1, 2).select(
        key.alias("k"), (F.col("id") % 1000).alias("v"), time.alias("t")
    ).write.parquet(path)
    return spark.read.schema(SCHEMA).parquet(path)


def _sums(fired: DataFrame) -> tuple[int, ...]:
    totals = fired.agg(
        F.count(F.lit(1)), F.sum("n"), F.sum("total"), F.sum("window_start")
    ).collect()[0]
    return tuple(int(each or 0) for each in totals)


class Declared:
    """A job of dstl; the watermark follows from the times of the batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        operator = AggregateOperator(
            "u",
            "k",
            {"n": aggregates.count(), "total": aggregates.sum("v")},
            schema=SCHEMA,
            window=windows.TumblingEventTimeWindows.of(SIZE),
            event_time="t",
            out_of_orderness_ms=SIZE,
        )
        local = LocalCopies(str(folder / "local"))
        self._job = StatefulJob(spark, "bench", str(folder / "job"), operator, local_copies=local)

    def epoch(self, number: int, rows: DataFrame) -> DataFrame:
        output = self._job.run(rows, number).output
        assert output is not None
        return output


class Rewrite:
    """Spark groups by key and window, joins the open windows, and writes all of them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder

    def epoch(self, number: int, rows: DataFrame) -> DataFrame:
        watermark = rows.agg(F.max("t")).collect()[0][0] - SIZE - 1
        start = (F.col("t") - F.pmod("t", F.lit(SIZE))).alias("window_start")
        joined = rows.groupBy("k", start).agg(
            F.count(F.lit(1)).alias("n"), F.sum("v").alias("total")
        )
        if number:
            held = self._read(number - 1, is_open=True)
            change = joined.withColumnsRenamed({"n": "m", "total": "more"})
            zero = F.lit(0)
            joined = held.join(change, ["k", "window_start"], "full").select(
                "k",
                "window_start",
                (F.coalesce("n", zero) + F.coalesce("m", zero)).alias("n"),
                (F.coalesce("total", zero) + F.coalesce("more", zero)).alias("total"),
            )
        is_open = F.col("window_start") + F.lit(SIZE - 1) > F.lit(watermark)
        joined.withColumn("open", is_open).write.partitionBy("open").parquet(self._path(number))
        return self._read(number, is_open=False)

    def _read(self, number: int, *, is_open: bool) -> DataFrame:
        schema = "k bigint, window_start bigint, n bigint, total bigint"
        path = f"{self._path(number)}/open={str(is_open).lower()}"
        return self._spark.read.schema(schema).parquet(path)

    def _path(self, number: int) -> str:
        return str(self._folder / str(number))


def _table(figures: dict[str, Any]) -> str:
    lines = [
        f"# Epochs of windows\n\n{results.describe(figures['machine'])} Seconds of a warm epoch, "
        f"median (min-max): one call, from the batch in Parquet files to the commit. A count and a "
        f"sum per key and tumbling window; an epoch is {WINDOWS} windows, and rows come up to one "
        f"window late. The two ways take turns on the same batches, and what they give is compared "
        f"after each.\n\n"
        f"| rows | keys | windows that fire | dstl, declared aggregates | Spark, windowed groupBy "
        f"and Parquet rewrite | ratio | at most {GOAL} |\n|---|---|---|---|---|---|---|\n"
    ]
    for case in figures["cases"]:
        ratio = case["dstl"]["median"] / case["rewrite"]["median"]
        shown = [
            f"{times['median']:.2f} ({times['min']:.2f}-{times['max']:.2f})"
            for times in (case["dstl"], case["rewrite"])
        ]
        lines.append(
            f"| {case['rows']:,} | {case['keys']:,} | {case['fired']:,.0f} | {shown[0]} | "
            f"{shown[1]} | {ratio:.2f} | {'yes' if ratio <= GOAL else '**no**'} |\n"
        )
    return "".join(lines)
