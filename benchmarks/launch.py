"""A daily run as Dagster starts it: ``dg launch`` of one day in a new process, until it has ended.

Each day has 20,000 rows on 50,000 text keys. The assets: a pipeline of dstl in one process and on
Spark, and a plain asset in which Spark groups the day and the ``deltalake`` package merges it into
a table. They take turns. Kernels are kept (``dstl warm``), as in an image that was built with them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import results
from benchmarks.processes import run_process

ROWS, KEYS = 20_000, 50_000
_PIPELINE = """
from typing import Any

import dagster as dg

import dstl_dagster as dstl
from dstl_core import aggregates

totals = dstl.aggregating_pipeline(
    "day",
    uid="totals",
    key_by="k",
    states={{"n": aggregates.count(), "total": aggregates.sum("v")}},
    schema="k string, v bigint",
    engine="engine",
)


@dstl.dstl_assets(pipeline=totals, partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
def epochs(
    context: dg.AssetExecutionContext,
    storage: dstl.DstlStorageResource,
    engine: dg.ResourceParam[Any],
):
    rows = lambda engine, day: f"{folder}/{{day}}.parquet"
    yield from dstl.run_epochs(context, totals, rows, storage=storage, engine=engine)


resources = {{
    "storage": dstl.DstlStorageResource(base_path="data"),
    "engine": {engine},
}}
defs = dg.Definitions.merge(
    dstl.build_pipeline_defs(totals, [epochs], resources=resources),
    dg.Definitions(executor=dg.in_process_executor),
)
"""
_SPARK = """dstl.DstlSparkResource(
        master="local[2]", spark_config={"spark.sql.shuffle.partitions": "2"}
    )"""
_PLAIN = """
import dagster as dg
from dagster_pyspark import PySparkResource
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F


@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
def totals(context: dg.AssetExecutionContext, spark: PySparkResource) -> None:
    session = spark.spark_session
    rows = session.read.parquet(f"{folder}/{{context.partition_key}}.parquet")
    day = rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("v").alias("total")).toArrow()
    if not DeltaTable.is_deltatable("data/totals"):
        write_deltalake("data/totals", day)
        return
    merge = DeltaTable("data/totals").merge(day, "t.k = s.k", source_alias="s", target_alias="t")
    merge.when_matched_update(
        {{"n": "t.n + s.n", "total": "t.total + s.total"}}
    ).when_not_matched_insert_all().execute()


spark = PySparkResource(
    spark_config={{"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}}
)
defs = dg.Definitions([totals], resources={{"spark": spark}}, executor=dg.in_process_executor)
"""
FORMS = {
    "local": (_PIPELINE, "dstl.DstlLocalEngineResource()", "key:day/day_checkpoint"),
    "spark": (_PIPELINE, _SPARK, "key:day/day_checkpoint"),
    "plain": (_PLAIN, "", "key:totals"),
}
NAMES = {
    "local": "dstl, one process",
    "spark": "dstl on Spark",
    "plain": "a plain asset: Spark groups, deltalake merges",
}
GOALS = (("local", 0.6), ("spark", 1.15))
"""At most this many times the plain asset."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--days", type=int, default=5, help="days that are measured")
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=FORMS)


def run(arguments: argparse.Namespace) -> None:
    before = results.machine()
    with results.work_folder() as work:
        days = [f"2026-01-{number:02}" for number in range(1, arguments.days + 2)]
        for number, day in enumerate(days):
            random = np.random.default_rng(number)
            keys = pa.array(random.integers(0, KEYS, ROWS)).cast(pa.string())
            rows = pa.table({"k": keys, "v": random.integers(0, 1000, ROWS)})
            pq.write_table(rows, work / f"{day}.parquet")
        runs: dict[str, list[dict[str, Any]]] = {form: [] for form in arguments.forms}
        for form in runs:
            _project(work, form)
        for day in days:
            for form, own in runs.items():
                own.append(_launch(work / form, FORMS[form][2], day))
                print(f"  {day} {form}: {own[-1]}", file=sys.stderr)
        machine = {**before, "load_average_after": results.machine()["load_average"]}
        figures = {"machine": machine, "forms": {form: own[1:] for form, own in runs.items()}}
        results.write("launch", figures, _table(figures))


def _project(work: Path, form: str) -> None:
    text, engine, _ = FORMS[form]
    (work / form / "home").mkdir(parents=True)
    (work / form / "home" / "dagster.yaml").touch()
    source = text.format(folder=work, engine=engine)
    (work / form / "definitions.py").write_text(source)


def _launch(project: Path, asset: str, day: str) -> dict[str, Any]:
    os.environ["DAGSTER_HOME"] = str(project / "home")
    os.environ["DAGSTER_DISABLE_TELEMETRY"] = "yes"
    dg = str(Path(sys.executable).with_name("dg"))
    assets = asset if asset == "key:totals" else f"+{asset}"
    command = [dg, "launch", "-f", "definitions.py", "--assets", assets, "--partition", day]
    return run_process(command, project, as_json=False)


def _table(figures: dict[str, Any]) -> str:
    forms = {
        form: [own["process_seconds"] for own in runs] for form, runs in figures["forms"].items()
    }
    medians = {form: statistics.median(own) for form, own in forms.items()}
    lines = [
        f"# A daily run\n\n{results.describe(figures['machine'])} Seconds of `dg launch` for one "
        f"day of {ROWS:,} rows on {KEYS:,} text keys, median (min-max): from the start of the "
        f"process to its end. One day before is not measured. Kernels are kept.\n\n"
        f"| asset | seconds | seconds of a core | peak of a process, MiB |\n|---|---|---|---|\n"
    ]
    for form, own in forms.items():
        runs = figures["forms"][form]
        cpu = statistics.median(each["cpu_seconds"] for each in runs)
        peak = max(each["peak_mib"] for each in runs)
        lines.append(
            f"| {NAMES[form]} | {medians[form]:.1f} ({min(own):.1f}-{max(own):.1f}) | {cpu:.1f} "
            f"| {peak:,} |\n"
        )
    lines.append("\n| goal | ratio | at most | met |\n|---|---|---|---|\n")
    for form, at_most in GOALS:
        if form in medians and "plain" in medians:
            ratio = medians[form] / medians["plain"]
            met = "yes" if ratio <= at_most else "**no**"
            lines.append(
                f"| {NAMES[form]} to {NAMES['plain']} | {ratio:.2f} | {at_most} | {met} |\n"
            )
    return "".join(lines)
