"""Savepoints of Scala, PyFlink and Protocol Buffers with a bit turned over: an error, or an answer.

They are read with the jars, the types and the descriptor sets that explain their values, so damage
reaches the readers of pickles, of messages and of what chill wrote.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.errors import DstlError
from tests.golden_files import GOLDEN
from tests.property.file_damage import (
    BYTES_PER_BYTE,
    ENDLESS_S,
    EXTRA_BYTES,
    memory_limit,
    time_limit,
)
from tests.property.test_file_damage import tell
from tests.unit.savepoint.test_protobuf_jobs import DESC, TYPES
from tests.unit.savepoint.test_pyflink_jobs import declared


@dataclass(frozen=True)
class Job:
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> bytes:
        [path] = self.folder.glob("savepoint-*/_metadata")
        return path.read_bytes()


def of_scala(name: str) -> Job:
    folder = GOLDEN / "scala-jobs" / name
    return Job(folder, {"jars": [folder / "job.jar"]})


JOBS = {name: of_scala(name) for name in ("adt", "colls", "keys", "orders")}
JOBS |= {
    mode: Job(GOLDEN / "pyflink-jobs" / mode, {"state_types": declared(mode)})
    for mode in ("process", "thread")
}
JOBS |= {
    "guessed": Job(GOLDEN / "pyflink-jobs" / "process"),
    "messages": Job(GOLDEN / "proto-jobs", {"protos": [DESC], "state_types": TYPES}),
    "flink-scala-api": Job(
        GOLDEN / "flink-scala-api", {"jars": [GOLDEN / "flink-scala-api/job.jar"]}
    ),
}


def dump(path: Path, options: dict[str, Any]) -> int:
    lines = [line for op in Snapshot.load(path, **options).operators for line in op.dump()]
    return len([json.dumps(line) for line in lines])


def check(job: Job, path: Path, at: int, bit: int) -> None:
    raw = bytearray(job.metadata)
    raw[at] ^= 1 << bit
    (path / "_metadata").write_bytes(raw)
    limit = EXTRA_BYTES + BYTES_PER_BYTE * len(raw)
    try:
        with time_limit(ENDLESS_S), memory_limit(limit):
            dump(path, job.options)
    except DstlError:
        pass
    except BaseException as error:
        error.add_note(f"{job.folder}: bit {bit} of byte {at}")
        raise


@pytest.mark.parametrize("name", JOBS)
def test_the_undamaged_ones_are_read(name: str) -> None:
    job = JOBS[name]
    [path] = job.folder.glob("savepoint-*")
    assert dump(path, job.options) >= 30


@pytest.mark.slow
def test_a_slice_of_flips(tmp_path: Path) -> None:
    """The same ones in each run."""
    chance = random.Random(41)
    for job in JOBS.values():
        for _ in range(6):
            check(job, tmp_path, chance.randrange(len(job.metadata)), chance.randrange(8))


FOUND = [("process", 3428, 3), ("thread", 2964, 3), ("colls", 1893, 1)]
"""Damage that made a dump end in another error: names of serializers and of classes."""


@pytest.mark.parametrize(("name", "at", "bit"), FOUND)
def test_what_flips_found_once(name: str, at: int, bit: int, tmp_path: Path) -> None:
    check(JOBS[name], tmp_path, at, bit)


@pytest.mark.soak
def test_random_flips(
    tmp_path: Path, soak_seed: int, soak_seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many as fit into the time, in every job in turn."""
    chance = random.Random(soak_seed)
    end, done = time.monotonic() + soak_seconds, 0
    while time.monotonic() < end:
        for job in JOBS.values():
            check(job, tmp_path, chance.randrange(len(job.metadata)), chance.randrange(8))
            done += 1
    tell(capsys, f"{done} flips over {len(JOBS)} jobs")
