"""Keyed state from rows: both engines next to real Flink, which fills the same state.

Expected before measuring: without Spark, 1.7 of the 2.6 CPU seconds for 5,000,000 texts to numbers
would be left (decision 47), and Flink takes 9.4: five times as much.

All write native state. Flink's work begins with the first key in the function and ends with its
savepoint, the second time in one cluster. Ours has warm kernels, reads Parquet files, and reads
back what it wrote. Rounds are interleaved.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import flink, results
from benchmarks.processes import cpu_with_descendants
from benchmarks.savepoint import java_figures
from benchmarks.sessions import local_session
from dstl_core import OperatorIdentifier, OperatorTransformation, SavepointWriter

FLINK, SPARK, FILES, LOCAL, BOUNDED = (
    "Flink",
    "Spark, a DataFrame",
    "Spark, Parquet files",
    "local engine, Parquet files",
    "local engine, memory of 256 mb",
)
WORKS = (FLINK, SPARK, FILES, LOCAL, BOUNDED)
KINDS = {"native": "texts to numbers", "wide": "texts to a number, a decimal and a text"}
GOAL = 4
_FLINK_ROUNDS = 2
_ROW_GROUP = 1 << 20
_BOUND = "256mb"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--wide-keys", type=int, nargs="*", default=[1_000_000])
    results.add_folder(parser)


def run(arguments: argparse.Namespace) -> None:
    cases = [("native", keys) for keys in arguments.keys]
    cases += [("wide", keys) for keys in arguments.wide_keys]
    machine = results.machine()
    with results.work_folder(arguments.folder) as work:
        classes = work / "classes"
        classes.mkdir()
        classpath = flink.compiled_classpath(classes)
        measured = [_measure(*case, arguments.rounds, work, classpath) for case in cases]
    figures = {
        "machine": machine | {"load_average_after": os.getloadavg()[0]},
        "flink": None if classpath is None else flink.version(),
        "cases": measured,
    }
    results.write("bootstrap", figures, table_of(figures))


def rows_of(kind: str, keys: int) -> pa.Table:
    """The rows that ``SavepointBench`` fills: the same keys and values."""
    numbers = pa.array(range(keys), pa.int64())
    texts = pc.binary_join_element_wise("key-", numbers.cast(pa.string()), "")
    columns = {"k": texts, "v": numbers}
    if kind == "wide":
        cents = pc.divide(pc.multiply(numbers, 100), 7).cast(pa.decimal128(19, 0))
        digits = pa.decimal128(18, 2)  # of the same digits, two stand after the point
        columns["amount"] = pa.Array.from_buffers(digits, keys, cents.buffers())
        items = pc.subtract(numbers, pc.multiply(pc.divide(numbers, 1000), 1000))
        columns["item"] = pc.binary_join_element_wise("item number ", items.cast(pa.string()), "")
    return pa.table(columns)


def _measure(
    kind: str, keys: int, rounds: int, work: Path, classpath: str | None
) -> dict[str, Any]:
    print(f"# {keys} {KINDS[kind]}", file=sys.stderr)
    folder = work / f"{kind}-{keys}"
    folder.mkdir()
    parquet, output = folder / "rows.parquet", folder / "savepoint"
    pq.write_table(rows_of(kind, keys), parquet, row_group_size=_ROW_GROUP)
    spark = local_session(memory="3g")
    frame = spark.read.parquet(str(parquet)).localCheckpoint()  # rows that Spark has
    starts = {
        SPARK: lambda: OperatorTransformation.bootstrap_with(frame),
        FILES: lambda: OperatorTransformation.bootstrap_with_parquet(spark, str(parquet)),
    }

    def by_spark(name: str) -> dict[str, Any]:
        start, before = time.perf_counter(), cpu_with_descendants()
        keyed = starts[name]().key_by("k").transform_columns()
        writer = SavepointWriter.new_savepoint(spark).with_format("native")
        writer.with_operator(OperatorIdentifier.for_uid("bench"), keyed).write(output)
        seconds, cpu = time.perf_counter() - start, cpu_with_descendants() - before
        shutil.rmtree(output)
        return {"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 2)}

    def by_flink() -> dict[str, Any]:
        assert classpath is not None
        target = folder / "flink"
        written = java_figures(
            classpath, folder, "write", keys, f"file:{target}", kind, _FLINK_ROUNDS
        )
        shutil.rmtree(target)
        return {name: written[name][-1] for name in ("seconds", "cpu_seconds")}

    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in WORKS}
    workers = {
        LOCAL: _worker(parquet, folder / "local"),
        BOUNDED: _worker(parquet, folder / "bounded", _BOUND),
    }
    try:
        for _ in range(rounds + 1):
            if classpath is not None:
                runs[FLINK].append(by_flink())
            for name in (SPARK, FILES):
                runs[name].append(by_spark(name))
            for name, worker in workers.items():
                runs[name].append(_answer(worker))
    finally:
        spark.stop()
        for worker in workers.values():
            worker.communicate()
    return {"kind": kind, "keys": keys, "runs": runs, "goals": goals_of(runs)}


def _worker(parquet: Path, output: Path, *memory: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.bootstrap_worker", str(parquet), str(output)]
    worker = subprocess.Popen(
        [*command, "native", *memory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    worker.stdout.readline()
    return worker


def _answer(worker: subprocess.Popen[str]) -> dict[str, Any]:
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    answer: dict[str, Any] = json.loads(worker.stdout.readline())
    return answer


def _median(runs: Sequence[Mapping[str, Any]], name: str) -> float:
    """The median of the rounds after the first."""
    return float(statistics.median(each[name] for each in runs[1:] or runs))


def goals_of(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """How many times as fast as Flink the local engine is."""
    if not runs[FLINK]:
        return []
    goals = []
    for name in ("cpu_seconds", "seconds"):
        ratio = _median(runs[FLINK], name) / _median(runs[LOCAL], name)
        goals.append({"figure": name, "ratio": round(ratio, 2), "met": ratio >= GOAL})
    return goals


def table_of(figures: dict[str, Any]) -> str:
    version = figures["flink"]
    lines = [
        "# Bootstraps",
        "",
        f"{results.describe(figures['machine'])} Native state from rows. Flink "
        f"{version or '(none here)'} fills the same state and takes its savepoint, from the first "
        f"key in the function on, the second time in one cluster. dstl reads back what it wrote. "
        f"Kernels and sessions are warm, starts do not count. CPU seconds are those of all "
        f"processes. Medians of interleaved rounds after the first. The goal is {GOAL} times "
        f"Flink's speed.",
        "",
    ]
    for case in figures["cases"]:
        lines += [
            f"## {case['keys']:,} {KINDS[case['kind']]}",
            "",
            "| work | CPU s | s | times Flink's speed by CPU | by time | largest process, MiB |",
            "|---|---|---|---|---|---|",
        ]
        runs = case["runs"]
        for name in (name for name in WORKS if runs[name]):
            figure = [_median(runs[name], each) for each in ("cpu_seconds", "seconds")]
            peers = [_median(runs[FLINK], each) for each in ("cpu_seconds", "seconds")]
            ratios = [f"{theirs / mine:.1f}" for theirs, mine in zip(peers, figure, strict=True)]
            peak = max((each.get("peak_mib", 0) for each in runs[name]), default=0)
            lines.append(
                f"| {name} | {figure[0]:.2f} | {figure[1]:.2f} | {ratios[0]} | {ratios[1]} | "
                f"{peak or '-'} |"
            )
        lines.append("")
    return "\n".join(lines)
