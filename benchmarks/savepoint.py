"""Keyed state (String -> Long) through Spark next to real Flink, Spark's Parquet and the transport.

Expected before measuring: rows cost 0.12-0.2 us on their way from Python to the JVM, and back 0.2
us, or 0.4-0.8 us where Spark counts the bytes of each batch; so two cores read at most 10-16 M
rows/s and write 10 M rows/s, whatever decodes and encodes them. Flink restores 0.2-0.3 M keys/s
uncompressed (it does not buffer its stream), 1.3-1.5 M compressed: the compressed figure is the
fair one. Ratios hold within a run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import flink, results
from benchmarks.processes import cpu_with_descendants
from benchmarks.sessions import local_session
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.savepoint.bootstrap.transformations import OneInputStateTransformation
from dstl_core.savepoint.write.folder import KeyedForm
from dstl_core.spark.engine.workers import uncounted_bytes
from dstl_core.spark.savepoints.data_source import register
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader

JAVA_MAIN = "dstl.bench.SavepointBench"
OPENS = ["java.lang", "java.util", "java.util.concurrent", "java.net", "java.nio", "sun.nio.ch"]
FORMS = {
    "plain": "hashmap",
    "compressed": "hashmap",
    "incremental": "rocksdb",
    "native": "rocksdb",
}
"""What Flink writes, and the state backend that reads it again."""
NATIVE = "ours-native"
RESTORED = "read flink, native of ours"
_FLINK_ROUNDS = 2
"""How often Flink fills state in one cluster: its code is compiled after the first time."""
_CPU = "CPU s, "
UID = OperatorIdentifier.for_uid("bench")
ROWS_PER_BATCH = 10_000
ARROW_BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "100000"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 5_000_000])
    results.add_folder(parser)
    parser.add_argument(
        "--add", action="store_true", help="keep the other sizes of the last results"
    )


def run(arguments: argparse.Namespace) -> None:
    last = results.read("savepoint") if arguments.add else None
    kept = [] if last is None else last["sizes"]
    with results.work_folder(arguments.folder) as work:
        sizes = {each["keys"]: each for each in kept}
        for keys in arguments.keys:
            sizes[keys] = _measure(keys, arguments.rounds, work / str(keys))
    figures = {"machine": results.machine(), "sizes": [sizes[each] for each in sorted(sizes)]}
    results.write("savepoint", figures, table_of(figures))


def _measure(keys: int, rounds: int, work: Path) -> dict[str, Any]:
    work.mkdir(parents=True)
    figures: dict[str, Any] = {"keys": keys, "load_average": os.getloadavg()[0]}
    seconds: dict[str, list[float]] = {}
    sources: dict[str, str] = {}
    classes = work / "classes"
    classes.mkdir()
    classpath = flink.compiled_classpath(classes)
    if classpath is not None:
        for name, backend in FORMS.items():
            print(f"# Flink, {keys} keys, {name}", file=sys.stderr)
            place = f"file:{work}/flink-{name}"
            written = java_figures(classpath, work, "write", keys, place, name, _FLINK_ROUNDS)
            seconds[f"write flink {name}"] = written["seconds"]
            seconds[f"{_CPU}write flink {name}"] = written["cpu_seconds"]
            sources[name] = "/" + written["path"].removeprefix("file:").strip("/")
            read = java_figures(classpath, work, "read", keys, written["path"], 2, backend)
            seconds[f"read flink {name}"] = read["seconds"]
    spark = local_session(memory="3g", options=ARROW_BATCHES)
    register(spark)
    try:
        seconds |= _spark(spark, keys, rounds, work, sources)
    finally:
        spark.stop()
    if classpath is not None:
        read = java_figures(classpath, work, "read", keys, f"file:{work}/{NATIVE}", 2, "rocksdb")
        seconds[RESTORED] = read["seconds"]
    return figures | {"seconds": seconds, "goals": goals_of(keys, seconds)}


def java_figures(classpath: str, work: Path, *arguments: object) -> dict[str, Any]:
    """What the runner of Flink prints."""
    opens = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in OPENS]
    command = ["java", "-Xmx3g", *opens, "-cp", classpath, JAVA_MAIN, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=work)
    if done.returncode:
        raise SystemExit(f"the Flink runner failed:\n{done.stderr[-2000:]}")
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _spark(
    spark: SparkSession, keys: int, rounds: int, work: Path, sources: dict[str, str]
) -> dict[str, list[float]]:
    """Seconds of every work in every round, the works of a round one after the other."""
    rows = spark.range(0, keys, 1, 2).select(
        F.concat(F.lit("key-"), F.col("id").cast("string")).alias("k"), F.col("id").alias("v")
    )

    def write(name: str, start: OneInputStateTransformation, form: KeyedForm = "canonical") -> None:
        made = start.key_by("k").transform_columns()
        writer = SavepointWriter.new_savepoint(spark).with_format(form)
        writer.with_operator(UID, made).write(str(work / name))

    parquet = str(work / "parquet")
    rows.write.parquet(parquet)
    write("ours", OperatorTransformation.bootstrap_with(rows))
    write(NATIVE, OperatorTransformation.bootstrap_with(rows), "native")
    sources = sources or {"plain": str(work / "ours")}
    for path in (str(work / "ours"), *sources.values()):
        _check(spark, path, keys)
    scratch = "scratch"
    works: dict[str, Callable[[], Any]] = {
        "write ours": lambda: write(scratch, OperatorTransformation.bootstrap_with(rows)),
        "write parquet": lambda: rows.write.parquet(str(work / scratch)),
        "write ours from parquet files": lambda: write(
            scratch, OperatorTransformation.bootstrap_with_parquet(spark, parquet)
        ),
        "write floor": lambda: _write_floor(rows),
        "write floor, bytes counted": lambda: _noop(rows.mapInArrow(_drop, rows.schema)),
    }
    for name, path in sources.items():
        works |= {
            f"read source {name}": lambda s=path: _noop(_source(spark, s)),
            f"read reader {name}": lambda s=path: _noop(_reader(spark, s)),
            f"sum source {name}": lambda s=path: _sum(_source(spark, s, columns="v")),
            f"sum reader {name}": lambda s=path: _sum(_reader(spark, s, "v")),
        }
    one = f"key-{keys // 2}"
    works |= {
        "read parquet": lambda: _noop(spark.read.parquet(parquet)),
        "sum parquet": lambda: _sum(spark.read.parquet(parquet)),
        "read floor": lambda: _noop(_floor(spark, keys)),
        "one key": lambda: _one(_source(spark, sources["plain"], key=one), one),
        "one key parquet": lambda: _one(spark.read.parquet(parquet), one),
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    writes = [name for name in works if name.startswith("write ours")]
    seconds |= {f"{_CPU}{name}": [] for name in writes}
    for _ in range(rounds + 1):
        for name, measure in works.items():
            before, start = cpu_with_descendants(), time.perf_counter()
            measure()
            seconds[name].append(round(time.perf_counter() - start, 3))
            if name in writes:
                seconds[f"{_CPU}{name}"].append(round(cpu_with_descendants() - before, 2))
            shutil.rmtree(work / scratch, ignore_errors=True)
    print(json.dumps(seconds, indent=1), file=sys.stderr)
    return seconds


def _drop(batches: Any) -> Any:
    """Takes the rows and gives none: what it costs to bring them to Python."""
    for _ in batches:
        pass
    yield from ()


def _write_floor(rows: DataFrame) -> None:
    with uncounted_bytes(rows):
        _noop(rows.mapInArrow(_drop, rows.schema))


def _one(frame: DataFrame, key: str) -> None:
    [row] = frame.where(F.col("k") == key).collect()
    if row.k != key:
        raise SystemExit(f"wrong row: {row}")


def _source(
    spark: SparkSession, path: str, columns: str = "k,v", key: str | None = None
) -> DataFrame:
    renamed = columns.replace("k", "state_key")
    reader = (
        spark.read.format("savepoint").option("operator.uid", "bench").option("timers", "false")
    )
    if key is not None:
        reader = reader.option("key", key)
    frame = reader.option("columns", renamed).load(path)
    return frame.withColumnRenamed("state_key", "k")


def _reader(spark: SparkSession, path: str, *columns: str) -> DataFrame:
    wanted = list(columns) or ["state_key", "v"]
    return SavepointReader.read(spark, path).read_keyed_state(UID, columns=wanted)


def _floor(spark: SparkSession, keys: int) -> DataFrame:
    """The same rows from Python without decoding anything: one batch, sent again and again."""

    def send(batches: Any) -> Any:
        batch = pa.RecordBatch.from_pydict(
            {
                "k": pa.array([f"key-{keys // 2 + n}" for n in range(ROWS_PER_BATCH)]),
                "v": pa.array(range(ROWS_PER_BATCH), pa.int64()),
            }
        )
        for own_batch in batches:
            for _ in range(own_batch.num_rows * keys // 2 // ROWS_PER_BATCH):
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


def _warm(seconds: Mapping[str, list[float]], name: str) -> float:
    """The median of the rounds after the first."""
    return statistics.median(seconds[name][1:] or seconds[name])


def goals_of(keys: int, seconds: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    """Ratios of medians: ``at_least`` times as fast as a peer, or ``at_most`` times its time."""
    large = keys >= 5_000_000
    wanted = [
        ("read source plain", "read flink plain", "at_least", 25 if large else 8),
        ("read reader plain", "read flink plain", "at_least", 40 if large else 10),
        ("read source compressed", "read flink compressed", "at_least", 3 if large else 1.5),
        ("read reader compressed", "read flink compressed", "at_least", 3 if large else 1.5),
        ("read source incremental", "read flink incremental", "at_least", 10),
        ("read reader incremental", "read flink incremental", "at_least", 10),
        ("read reader plain", "read parquet", "at_most", 1.2),
        ("read source plain", "read parquet", "at_most", 2),
        ("sum reader plain", "sum parquet", "at_most", 3),
        ("sum source plain", "sum parquet", "at_most", 3),
        (RESTORED, "read flink native", "at_most", 1.3),
    ]
    if large:  # where fixed costs do not rule
        wanted += [
            ("write ours", "write flink plain", "at_least", 4),
            ("write ours", "write parquet", "at_most", 2),
            ("write ours from parquet files", "write flink plain", "at_least", 15),
        ]
    goals = []
    for ours, peer, kind, goal in wanted:
        if ours in seconds and peer in seconds:
            mine, theirs = _warm(seconds, ours), _warm(seconds, peer)
            ratio = theirs / mine if kind == "at_least" else mine / theirs
            met = ratio >= goal if kind == "at_least" else ratio <= goal
            goals.append(
                {
                    "work": ours,
                    "peer": peer,
                    kind: goal,
                    "ratio": round(ratio, 2),
                    "met": met,
                }
            )
    return goals


def table_of(figures: dict[str, Any]) -> str:
    machine = figures["machine"]
    lines = [
        "# Savepoints",
        "",
        f"{machine['date']}, {machine['cpu']}, commit {machine['commit']}"
        f"{' with changes' if machine['dirty'] else ''}. String -> Long. Flink restores and reads "
        "a savepoint in a job (plain, written with snapshot compression, native, and the last "
        "of several incremental checkpoints of RocksDB), and fills and saves "
        "state in another; what it writes counts from the first key in the function, so neither "
        "the start of Java nor that of the cluster counts, and the second time in one cluster. "
        "What dstl writes counts in a session that runs; its start does not count. CPU seconds are "
        "those of all processes: Flink's, and those of Python and Spark, which makes the rows. "
        '"source" is `format("savepoint")`, '
        '"reader" `SavepointReader`; the '
        "floors move the same rows between Python and the JVM and do nothing else (with bytes "
        "counted, as Spark does by itself). Medians of the rounds after the first, which stands "
        "beside them.",
        "",
    ]
    for size in figures["sizes"]:
        keys = size["keys"]
        lines += [
            f"## {keys:,} keys (load {size['load_average']:.1f} before)",
            "",
            "| work | s, best | s, median | M rows/s | first, s |",
            "|---|---|---|---|---|",
        ]
        for name, seconds in size["seconds"].items():
            best, middle = min(seconds[1:] or seconds), _warm(size["seconds"], name)
            rate = "-" if name.startswith("one key") else f"{keys / middle / 1e6:.2f}"
            lines.append(f"| {name} | {best:.2f} | {middle:.2f} | {rate} | {seconds[0]:.2f} |")
        lines += ["", "| goal | ratio | wanted | met |", "|---|---|---|---|"]
        for case in size["goals"]:
            times = "as fast as" if "at_least" in case else "times the time of"
            goal = f">= {case['at_least']}" if "at_least" in case else f"<= {case['at_most']}"
            lines.append(
                f"| {case['work']}, {times} {case['peer']} | {case['ratio']:.2f} | {goal} | "
                f"{'yes' if case['met'] else '**no**'} |"
            )
        lines.append("")
    return "\n".join(lines) + "\n"
