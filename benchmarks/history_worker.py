"""One process of the benchmark ``history``: commits that cost little, or epochs that are measured.

Prints one JSON object a line.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from benchmarks.sessions import local_session
from dstl_core import KeyedOperator, StatefulJob, ValueStateDescriptor
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.storage.commit_log import CommitLog
from dstl_core.storage.file_io import FsspecFileIO, open_file_io
from dstl_core.storage.location import JobLayout, Location

NAME, UID = "history", "count"
SCHEMA = "k string, v long"


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", "bigint"))

    def process_element(self, value: Mapping[str, Any], ctx: Any) -> Sequence[Any]:
        self._count.update((self._count.value() or 0) + 1)
        return ()


def session(options: Sequence[str]) -> SparkSession:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return local_session(1, "1g", options=dict(each.split("=", 1) for each in options))


def job_on(spark: SparkSession, base: Path) -> StatefulJob:
    operator = KeyedOperator(UID, "k", "string", Count())
    local = LocalCopies(str(base / "local"))
    return StatefulJob(
        spark, NAME, str(base), operator, parallelism=1, max_parallelism=1, local_copies=local
    )


def fill(spark: SparkSession, base: Path, number: int) -> None:
    """Commits the latest state again as if inputs had been applied, up to so many commits.

    Metadata, records, index and retirement are real; there is no Spark job.
    """
    job = job_on(spark, base)
    latest = job.latest()
    assert latest is not None, "run an epoch first"
    epoch_input = latest.facts.input
    assert epoch_input is not None, "run an epoch last"
    for at in range(latest.checkpoint_id + 1, number + 1):
        job._tasks.carry(replace(latest.facts, input=replace(epoch_input, id=at)))


def epochs(
    spark: SparkSession, base: Path, until: int, marks: Sequence[int], *, gc_too: bool
) -> None:
    """Runs epochs of one row each, and prints the figures at some of them."""
    begun = time.monotonic()
    job = job_on(spark, base)
    latest = job.latest()
    opened = time.monotonic() - begun
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr,operator]
    done = 1 if latest is None else latest.checkpoint_id
    times: list[float] = []
    for number in range(done + 1, until + 1):
        begun = time.monotonic()
        job.run(spark.createDataFrame([("a", number)], SCHEMA), number, order_by=["v"])
        times.append(time.monotonic() - begun)
        if number in marks:
            figures = {
                "commits": number,
                "open_ms": round(1000 * opened, 1),
                "open_requests": requests_to_open(base),
                "epoch_ms": round(1000 * statistics.median(times[-50:]), 1),
                **memory(jvm, gc_too=gc_too),
            }
            print(json.dumps(figures), flush=True)


def requests_to_open(base: Path) -> int:
    """Requests of a new process until it knows the latest commit."""
    layout = JobLayout.of(Location.parse(base), _job_id(base))
    files = _Counting(open_file_io(layout.root))
    log = CommitLog(files, layout.commit_log, None)  # type: ignore[arg-type]  # it only reads
    log.refresh()
    return files.requests


def _job_id(base: Path) -> str:
    [job_id] = (path.name for path in base.iterdir() if (path / "_dstl").is_dir())
    return job_id


class _Counting:
    def __init__(self, files: FsspecFileIO) -> None:
        self._files = files
        self.requests = 0

    def read_each(self, locations: Sequence[Location]) -> list[bytes | None]:
        self.requests += len(locations)
        return self._files.read_each(locations)

    def size(self, location: Location) -> int | None:
        self.requests += 1
        return self._files.size(location)


def memory(jvm: int, *, gc_too: bool) -> dict[str, float]:
    """Resident memory and open files of driver, JVM and workers; what is live in the JVM."""
    gc.collect()
    workers = [pid for pid in _descendants(jvm) if pid != jvm]
    sizes: dict[str, float] = {
        "driver_mb": _resident(os.getpid()),
        "jvm_mb": _resident(jvm),
        "workers_mb": round(sum(map(_resident, workers)), 1),
        "driver_files": _files(os.getpid()),
        "jvm_files": _files(jvm),
        "workers_files": sum(map(_files, workers)),
    }
    if gc_too:
        command = ["jcmd", str(jvm), "GC.class_histogram"]  # collects all garbage first
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        [total] = [line for line in lines.splitlines() if line.startswith("Total")]
        sizes["jvm_live_mb"] = round(int(total.split()[2]) / 1e6, 1)
    return sizes


def _descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task").glob("*/children")
    own = [int(child) for each in children for child in each.read_text().split()]
    return [pid, *(below for child in own for below in _descendants(child))]


def _resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = [int(line.split()[1]) for line in lines if line.startswith("VmRSS")]
    return round(sum(sizes) / 1024, 1)  # a process that has just ended has none


def _files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("--fill", type=int, default=0)
    parser.add_argument("--until", type=int, default=0)
    parser.add_argument("--mark", type=int, action="append", default=[])
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--gc", action="store_true")
    arguments = parser.parse_args()
    spark = session(arguments.conf)
    if arguments.fill:
        fill(spark, arguments.base, arguments.fill)
    if arguments.until:
        epochs(spark, arguments.base, arguments.until, arguments.mark, gc_too=arguments.gc)
    spark.stop()


if __name__ == "__main__":
    main()
