"""Keyed state (String -> Long) through Spark next to real Flink, Spark's Parquet and the transport.

Expected before measuring: rows cost 0.12-0.2 us on their way from Python to the JVM and 0.4-0.5 us
back, so two cores read at most 10-16 M rows/s and write 4 M rows/s, whatever decodes and encodes
them; a Python task costs 75 ms. Flink restores 0.2-0.3 M keys/s uncompressed (it does not buffer
its stream), 1.3-1.5 M compressed: the compressed figure is the fair one. Ratios hold within a run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import flink, results
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.spark import OperatorTransformation, SavepointReader, SavepointWriter, register

JAVA_MAIN = "dstl.bench.SavepointBench"
OPENS = ["java.lang", "java.util", "java.util.concurrent", "java.net", "java.nio", "sun.nio.ch"]
UID = OperatorIdentifier.for_uid("bench")
ROWS_PER_BATCH = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--folder", help="where files go (default: a temporary folder)")


def run(arguments: argparse.Namespace) -> None:
    work = Path(tempfile.mkdtemp(prefix="dstl-bench-", dir=arguments.folder))
    try:
        figures = {"machine": results.machine(), "sizes": []}
        for keys in arguments.keys:
            figures["sizes"].append(_measure(keys, arguments.rounds, work / str(keys)))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    results.write("savepoint", figures, _table(figures))


def _measure(keys: int, rounds: int, work: Path) -> dict[str, Any]:
    work.mkdir(parents=True)
    figures: dict[str, Any] = {"keys": keys}
    sources: dict[str, str | None] = {"plain": None, "compressed": None}
    classes = work / "classes"
    classes.mkdir()
    classpath = flink.compiled_classpath(classes)
    if classpath is not None:
        for name, compressed in (("plain", "false"), ("compressed", "true")):
            print(f"# Flink, {keys} keys, {name}", file=sys.stderr)
            written = _java(classpath, work, "write", keys, f"file:{work}/flink-{name}", compressed)
            figures[f"write flink {name}"] = [written["seconds"]]
            sources[name] = written["path"].removeprefix("file:")
            read = _java(classpath, work, "read", keys, written["path"], min(rounds, 3))
            figures[f"read flink {name}"] = read["seconds"]
    spark = _session()
    try:
        figures |= _spark(spark, keys, rounds, work, sources)
    finally:
        spark.stop()
    return figures


def _java(classpath: str, work: Path, *arguments: object) -> dict[str, Any]:
    opens = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in OPENS]
    command = ["java", "-Xmx3g", *opens, "-cp", classpath, JAVA_MAIN, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=work)
    if done.returncode:
        raise SystemExit(f"the Flink runner failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _session() -> SparkSession:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    register(session)
    return session


def _spark(
    spark: SparkSession, keys: int, rounds: int, work: Path, sources: dict[str, str | None]
) -> dict[str, Any]:
    rows = spark.range(0, keys, 1, 2).select(
        F.concat(F.lit("key-"), F.col("id").cast("string")).alias("k"), F.col("id").alias("v")
    )
    figures: dict[str, Any] = {}

    def write_ours(round_: int) -> None:
        made = OperatorTransformation.bootstrap_with(rows).key_by("k").transform_columns()
        path = str(work / f"ours-{round_}")
        SavepointWriter.new_savepoint(spark).with_operator(UID, made).write(path)

    def write_parquet(round_: int) -> None:
        rows.write.parquet(str(work / f"parquet-{round_}"))

    figures |= _timed("write ours", rounds, write_ours)
    figures |= _timed("write parquet", rounds, write_parquet)
    parquet = str(work / "parquet-0")
    for name, path in sources.items():
        source = path or (str(work / "ours-0") if name == "plain" else None)
        if source is None:
            continue
        _check(spark, source, keys)
        figures |= _timed(
            f"read source {name}", rounds, lambda _, s=source: _noop(_source(spark, s))
        )
        figures |= _timed(
            f"read reader {name}", rounds, lambda _, s=source: _noop(_reader(spark, s))
        )
        figures |= _timed(
            f"sum source {name}", rounds, lambda _, s=source: _sum(_source(spark, s, columns="v"))
        )
    figures |= _timed("read parquet", rounds, lambda _: _noop(spark.read.parquet(parquet)))
    figures |= _timed("sum parquet", rounds, lambda _: _sum(spark.read.parquet(parquet)))
    figures |= _timed("read floor", rounds, lambda _: _noop(_floor(spark, keys)))
    plain = sources["plain"] or str(work / "ours-0")
    one = f"key-{keys // 2}"
    figures |= _timed(
        "one key", rounds, lambda _: _source(spark, plain).where(F.col("k") == one).collect()
    )
    return figures


def _timed(name: str, rounds: int, work: Callable[[int], Any]) -> dict[str, list[float]]:
    """Seconds of each round; the first one is cold."""
    found = []
    for number in range(rounds):
        start = time.perf_counter()
        work(number)
        found.append(round(time.perf_counter() - start, 3))
    print(f"# {name}: {found}", file=sys.stderr)
    return {name: found}


def _source(spark: SparkSession, path: str, columns: str = "k,v") -> DataFrame:
    renamed = columns.replace("k", "state_key")
    reader = (
        spark.read.format("savepoint").option("operator.uid", "bench").option("timers", "false")
    )
    frame = reader.option("columns", renamed).load(path)
    return frame.withColumnRenamed("state_key", "k")


def _reader(spark: SparkSession, path: str) -> DataFrame:
    return SavepointReader.read(spark, path).read_keyed_state(UID, columns=["state_key", "v"])


def _floor(spark: SparkSession, keys: int) -> DataFrame:
    """The same rows from Python without decoding anything: one batch, sent again and again."""

    def send(batches: Any) -> Any:
        batch = pa.RecordBatch.from_pydict(
            {
                "k": pa.array([f"key-{keys // 2 + n}" for n in range(ROWS_PER_BATCH)]),
                "v": pa.array(range(ROWS_PER_BATCH), pa.int64()),
            }
        )
        for given in batches:
            for _ in range(given.num_rows * keys // 2 // ROWS_PER_BATCH):
                yield batch

    return spark.range(0, 2, 1, 2).mapInArrow(send, "k string, v long")


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _sum(frame: DataFrame) -> Any:
    return frame.agg(F.sum("v"), F.max("v")).collect()


def _check(spark: SparkSession, path: str, keys: int) -> None:
    [row] = _source(spark, path).agg(F.count("k").alias("n"), F.sum("v").alias("s")).collect()
    if (row.n, row.s) != (keys, keys * (keys - 1) // 2):
        raise SystemExit(f"wrong rows: {row}")


def _table(figures: dict[str, Any]) -> str:
    machine = figures["machine"]
    lines = [
        "# Savepoints",
        "",
        f"{machine['date']}, {machine['cpu']}, load {machine['load_average']:.1f}, commit "
        f"{machine['commit']}{' with changes' if machine['dirty'] else ''}. String -> Long; best "
        'and median of the warm rounds; "source" is `format("savepoint")`, "reader" is '
        "`SavepointReader`; the floor sends the same rows from Python without decoding.",
        "",
    ]
    for size in figures["sizes"]:
        keys = size["keys"]
        lines += [
            f"## {keys:,} keys",
            "",
            "| work | s, best | s, median | M rows/s | first, s |",
            "|---|---|---|---|---|",
        ]
        for name, seconds in size.items():
            if name == "keys":
                continue
            warm = seconds[1:] or seconds
            middle = statistics.median(warm)
            rate = f"{keys / middle / 1e6:.2f}" if name != "one key" else "-"
            lines.append(f"| {name} | {min(warm):.2f} | {middle:.2f} | {rate} | {seconds[0]:.2f} |")
        lines.append("")
    return "\n".join(lines) + "\n"
