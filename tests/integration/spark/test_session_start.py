"""A session maps the archive of classes, and its workers are forks of a daemon that knows dstl."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dstl_core.errors import ConfigError
from dstl_core.spark.session_start import archive_of
from dstl_core.spark.warm import make_archive


def test_the_jvm_maps_the_archive(spark: SparkSession) -> None:
    options = os.environ["SPARK_SUBMIT_OPTS"]
    archive = re.search(r"-XX:SharedArchiveFile=(\S+)", options)
    assert archive is not None, "scripts/setup-venv dev calls dstl warm, which makes it"
    jvm = spark._jvm
    assert jvm is not None
    maps = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    assert archive[1] in maps


@pytest.mark.soak  # scripts/setup-venv dev makes one, which test_the_jvm_maps_the_archive looks at
def test_an_archive_is_made_where_another_python_is_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The Python of the virtual environment has pyspark, that of the machine has not.
    monkeypatch.setenv("PATH", f"{sys.base_prefix}/bin", prepend=os.pathsep)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")  # a JVM that maps an archive makes none
    (tmp_path / "spark-of-other-jars.jsa").touch()
    make_archive(tmp_path)
    [archive] = tmp_path.glob("*.jsa")
    assert archive == archive_of(tmp_path, archive.stat().st_size)


def test_a_spark_that_does_not_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"Spark did not run, and its classes are not kept: .*Err"
    ):
        make_archive(tmp_path)
    assert list(tmp_path.iterdir()) == []


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
