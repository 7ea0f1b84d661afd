"""The memory option of the local engine: the same files, less memory, and what does not fit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, KeyedOperator, LocalEngine, StatefulJob, aggregates
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.job.task import warm_backend
from dstl_core.local import local_engine, subtask_memory
from dstl_core.local.subtask_memory import Room
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend
from dstl_core.windows import TumblingEventTimeWindows
from tests.integration.spark.job_functions import OUTPUT, SCHEMA, TotalsByRow, random_batch
from tests.job_files import files_of

SUMS = {"n": aggregates.count(), "total": aggregates.sum("v"), "text": aggregates.max("t")}
WINDOWS = {"window": TumblingEventTimeWindows.of(20_000), "event_time": "v"}
OPERATORS = {
    "aggregates": lambda: AggregateOperator("u", "k", SUMS, schema=SCHEMA, output=True),
    "windows": lambda: AggregateOperator("u", "k", SUMS, schema=SCHEMA, **WINDOWS),
    "by row": lambda: KeyedOperator("u", "k", Types.STRING, TotalsByRow(), OUTPUT),
}
MIB = 1 << 20


def job(base: Path, operator: AggregateOperator, memory: str | None, **options: Any):
    engine = LocalEngine(threads=4, memory=memory)
    copies = LocalCopies(str(base / "local"))
    return StatefulJob(engine, "job", str(base / "jobs"), operator, local_copies=copies, **options)


@pytest.mark.parametrize("name", OPERATORS)
def test_bounded_memory_gives_the_same_files(tmp_path: Path, name: str) -> None:
    files = []
    for memory in (None, "1 kb"):
        running = job(tmp_path / str(memory), OPERATORS[name](), memory, parallelism=3)
        for number in range(3):
            keys, values, texts = zip(*random_batch(number), strict=True)
            batch = pa.table({"k": keys, "v": values, "t": pa.array(texts, pa.string())})
            running.run(batch, number, order_by=["v"])
        files.append(files_of(running))
    assert files[0] == files[1]
    assert len(files[0]) > 6


def test_threads_keep_state_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {("another job", number): SimpleNamespace(entries=0) for number in range(20_000)}
    monkeypatch.setattr(warm_backend, "HELD", OrderedDict(others))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        running = job(tmp_path, OPERATORS["windows"](), None, parallelism=16)
        for number in range(2):
            keys, values, texts = zip(*random_batch(number), strict=True)
            batch = pa.table({"k": keys, "v": values, "t": pa.array(texts, pa.string())})
            running.run(batch, number, order_by=["v"])
    finally:
        sys.setswitchinterval(interval)
    assert len(warm_backend.HELD) == len(others) + 16


def large_texts(keys: int, size: int) -> pa.RecordBatchReader:
    """A row for each key, in batches of 200, which are made as they are read."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.string())])
    batches = (
        pa.record_batch(
            [pa.array(range(start, start + 200)), pa.array([f"{start}".zfill(size)] * 200)],
            schema=schema,
        )
        for start in range(0, keys, 200)
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def texts() -> AggregateOperator:
    return AggregateOperator("u", "k", {"t": aggregates.max("t")}, schema="k bigint, t string")


def test_a_subtask_that_does_not_fit_says_what_to_do(tmp_path: Path) -> None:
    # The text is 40 MB, and a subtask needs twice the memory of its rows.
    wanted = (
        r"Subtask 0 of operator 'u' does not fit into the memory of the local engine: it takes "
        r"about 76.3 MiB for 38.2 MiB of rows and \d+ bytes of state, and there are 60.0 MiB for "
        r"subtasks; nothing is committed; run the job with a parallelism of at least 2, or give "
        r"the engine more memory\.$"
    )
    with pytest.raises(ConfigError, match=wanted):
        job(tmp_path, texts(), "80 mb", parallelism=1).run(large_texts(1_000, 40_000), 1)
    running = job(tmp_path, texts(), "80 mb", parallelism=2)
    assert running.run(large_texts(1_000, 40_000), 1).facts.input.rows == 1_000


def test_a_database_takes_no_more_than_its_backend_has(tmp_path: Path) -> None:
    backend = EmbeddedRocksDBStateBackend(write_buffer_bytes=32 * MIB)  # of 224 MiB
    options = {"parallelism": 1, "state_backend": backend}
    operator, keys = OPERATORS["by row"](), ["a".zfill(40 * MIB)]
    rows = pa.table({"k": keys, "v": [1], "t": ["x"]})
    few = pa.table({"k": ["b"], "v": [1], "t": ["x"]})
    job(tmp_path, operator, "256 mb", **options).run(few, 0, order_by=["v"])
    job(tmp_path, operator, "256 mb", **options).run(few, 1, order_by=["v"])
    job(tmp_path, operator, None, **options).run(rows, 2, order_by=["v"])
    wanted = (
        r"takes about 224 MiB for \d+ bytes of rows and 80.0 MiB of state in a database of "
        r"224 MiB, and there are 128 MiB for subtasks; nothing is committed; run the job with a "
        r"parallelism of at least 4, or give the engine more memory, or give its "
        r"backend smaller cache_bytes and write_buffer_bytes\.$"
    )
    with pytest.raises(ConfigError, match=wanted):
        job(tmp_path, operator, "256 mb", **options).run(few, 3, order_by=["v"])


def test_subtasks_with_large_logs_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(tmp_path, texts(), None, parallelism=2).run(large_texts(1_000, 40_000), 0)
    shutil.rmtree(tmp_path / "local")
    rooms: list[Room] = []

    def room_of(task: TaskSpec, rows: dict[int, int], size: int) -> Room:
        rooms.append(subtask_memory.room_of(task, rows, size))
        return rooms[-1]

    monkeypatch.setattr(local_engine, "room_of", room_of)
    running = job(tmp_path, texts(), "80 mb", parallelism=2)
    assert running.run(large_texts(200, 10), 1).facts.input.rows == 200
    assert any(sum(room.subtasks.values()) > 60 * MIB for room in rooms)


PROGRAM = """
import json, sys
from pathlib import Path
from tests.unit.local.test_subtask_memory import job, large_texts, texts

def peak(memory):
    running = job(Path(sys.argv[1], str(memory)), texts(), memory, parallelism=16)
    running.run(large_texts(8_000, 10), 0)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    running.run(large_texts(8_000, 25_000), 1)
    return resident("VmHWM") - before

def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))

print(json.dumps([peak("80 mb"), peak(None)]))
"""


def test_a_batch_larger_than_the_memory_stays_within_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, check=True
    )
    bounded, free = json.loads(done.stdout)
    # The batch has 191 MiB. Libraries and threads take 100 MiB beside the memory of the engine.
    assert bounded < 300 * MIB
    assert free > 450 * MIB
