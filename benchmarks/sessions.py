"""The Spark session of a benchmark: local, quiet, and the same for every benchmark of one run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession


def local_session(
    cores: int = 2,
    memory: str = "4g",
    *,
    work: Path | None = None,
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """Starts a session on ``cores`` of this machine, with one shuffle partition per core.

    Args:
        cores: The number of Spark's task threads.
        memory: The heap of the JVM, as Spark writes it.
        work: The folder of Spark's own files; Spark's default without it.
        options: Spark's options of this benchmark alone.
    """
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.pyspark.python": sys.executable,
        "spark.log.level": "OFF",
    }
    if work is not None:
        settings["spark.local.dir"] = str(work / "spark")
    builder = SparkSession.builder.master(f"local[{cores}]").appName("dstl benchmark")
    return builder.config(map=settings | dict(options or {})).getOrCreate()
