"""An archive of the classes that Spark loads: a JVM that maps it starts in half the time.

``make test`` makes it once. Java ignores an archive of another Java or another Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix, "spark.jsa")
VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS")
# Spark's JVM of a test lives for a minute: the second compiler costs more than it gives.
_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def jvm_options() -> str:
    """Options of the JVMs of tests."""
    if not ARCHIVE.exists():
        return _OPTIONS
    return f"{_OPTIONS} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable"


def run_spark() -> None:
    """What most tests run. The JVM has ended when this returns."""
    from pyspark import SparkContext

    from tests.spark_session import local_session

    session = local_session()
    with tempfile.TemporaryDirectory() as folder:
        rows = [(number, f"n{number % 3}", float(number)) for number in range(20)]
        frame = session.createDataFrame(rows, "id bigint, name string, amount double")
        frame.write.parquet(f"{folder}/rows")
        stored = session.read.parquet(f"{folder}/rows").repartition(2, "name")
        mapped = stored.mapInArrow(lambda batches: batches, stored.schema)
        mapped.groupBy("name").agg({"amount": "sum", "id": "max"}).orderBy("name").collect()
        session.sql("select sum(id) over (order by id) from range(3)").toArrow()
    jvm = SparkContext._gateway.proc
    session.stop()
    jvm.stdin.close()
    jvm.wait()


def make(archive: Path) -> None:
    """Keeps the classes of such a JVM. Two that make it at once do not disturb each other."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        made = Path(scratch, archive.name)
        options = f"{_OPTIONS} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        code = "from tests.spark_archive import run_spark; run_spark()"
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {VARIABLES[0]: options},
            capture_output=True,
            check=True,
        )
        if made.exists():  # a Java that cannot archive classes runs the tests, too
            made.rename(archive)


def main() -> None:
    if not ARCHIVE.exists():
        sys.stderr.write("dstl: archiving the classes of Spark (once; half a minute)\n")
        make(ARCHIVE)


if __name__ == "__main__":
    main()
