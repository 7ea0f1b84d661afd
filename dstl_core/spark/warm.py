"""Makes the archive of Spark's classes: a session runs what ordinary days run, and ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from dstl_core.errors import ConfigError
from dstl_core.spark import worker_daemon
from dstl_core.spark.session_start import DAEMON, OPTIONS, archive_of, making


def make_archive(folder: Path) -> None:
    """Makes an archive in place of an older one, in a process of its own.

    Two of them do not disturb each other.

    Args:
        folder: Where it is kept. Nothing is made by a Java that has no such archives.

    Raises:
        ConfigError: Spark did not start, or did not run.
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch, "spark.jsa")
        command = [sys.executable, "-m", __name__, str(made)]
        # PySpark would take the Python of its workers from the PATH.
        variables = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        # It also waits for the end of the JVM, which has these pipes, too.
        done = subprocess.run(command, env=variables, capture_output=True, check=False, text=True)
        if done.returncode:
            lines = [line.strip() for line in done.stderr.splitlines()]
            errors = [line for line in lines if "Error:" in line or "Exception:" in line]
            why = (errors or lines or ["it printed nothing"])[-1]
            raise ConfigError(f"Spark did not run, and its classes are not kept: {why}")
        if made.exists():
            archive = made.replace(archive_of(folder, made.stat().st_size))
            forget_older(archive)


def forget_older(archive: Path) -> None:
    """Deletes the archives beside one that are older: of jars that are gone, or of a process that
    made one at the same time. A JVM that maps one goes on.
    """
    with suppress(FileNotFoundError):  # another process made a newer one
        made_ns = archive.stat().st_mtime_ns
        for other in set(archive.parent.glob("*.jsa")) - {archive}:
            with suppress(FileNotFoundError):
                if other.stat().st_mtime_ns < made_ns:
                    other.unlink()


def run_days(archive: Path, work: Path) -> None:
    """Runs epochs, readers and queries."""
    from pyspark.sql import SparkSession

    from dstl_core import aggregates
    from dstl_core.job.coordination.job_on_engine import JobOnEngine
    from dstl_core.job.spec.operators import AggregateOperator, LocalCopies
    from dstl_core.spark.job.spark_engine import SparkEngine
    from dstl_core.spark.savepoints.data_source import register

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    builder = builder.config(DAEMON, worker_daemon.MODULE)
    session = builder.config(OPTIONS, making(archive)).getOrCreate()
    columns = "k string, amount double, price decimal(18,2), at timestamp"
    rows = session.range(20).selectExpr(
        "cast(id % 3 as string) k",
        "cast(id as double) amount",
        "cast(id as decimal(18,2)) price",
        "timestamp_seconds(id) at",
    )
    rows.write.parquet(f"{work}/rows")
    stored = session.read.parquet(f"{work}/rows")
    states = {
        "n": aggregates.count(),
        "total": aggregates.sum("amount"),
        "paid": aggregates.sum("price"),
    }
    operator = AggregateOperator("warm", "k", states, schema=columns, output=True)
    copies = LocalCopies(f"{work}/copies")
    job = JobOnEngine(SparkEngine(session), "warm", f"{work}/jobs", operator, local_copies=copies)
    for epoch in range(2):
        job.run(stored, epoch)
    savepoint = job.savepoint(f"{work}/savepoint")
    register(session)
    session.read.format("savepoint").load(savepoint).collect()
    grouped = stored.repartition(2, "k").groupBy("k").agg({"amount": "sum", "price": "max"})
    grouped.orderBy("k").toArrow()
    session.sql("select sum(id) over (order by id) from range(3)").collect()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="dstl-warm-") as folder:
        run_days(Path(sys.argv[1]), Path(folder))
