"""A session maps the archive of classes, and its workers are forks of a daemon that knows dstl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from dstl_core.spark.session_start import kept_archive


def test_the_jvm_maps_the_archive(spark: SparkSession) -> None:
    archive = kept_archive()
    assert archive is not None, "dstl warm makes it, which make setup calls"
    jvm = spark._jvm
    assert jvm is not None
    maps = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    assert str(archive) in maps


def test_workers_have_their_modules_from_the_daemon(spark: SparkSession) -> None:
    def modules_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys

        names = ("pyspark.worker", "dstl_core.job.task.subtask")
        files = [sys.modules[name].__file__ for name in names if name in sys.modules]
        command = Path(f"/proc/{os.getppid()}/cmdline").read_text()
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"files": [files], "daemon": [command]})

    rows = spark.range(1).mapInArrow(modules_of, "files array<string>, daemon string").collect()
    [(files, daemon)] = rows
    assert len(files) == 2
    assert not any("pyspark.zip" in file for file in files)
    assert "dstl_core.spark.worker_daemon" in daemon
