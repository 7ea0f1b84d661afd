"""One case of the changelog benchmark in a process of its own, so that its peak memory is its own.

Prints one JSON line a round. Seconds are of the whole case, sizes in bytes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.config import ChangelogOptions
from dstl_core.model.handle import ChangelogStateHandleStream
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber

VALUES = BATCH = 65_536
"""Distinct values, which no compression window sees twice; also the changes of a batch."""
JOB = JobID.for_name("bench")
ZERO = SequenceNumber(0)


class Case:
    """The same changes for every way: record i has key group i & 127 and value i & 65535."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.records: int = arguments.records
        self.size: int = arguments.size
        self.folder = Path(arguments.folder)
        self.compressed: bool = arguments.compressed
        self.fsync: bool = arguments.fsync
        rng = random.Random(7)
        half = self.size // 2  # half of it compresses
        self.values = [b"\7" * half + rng.randbytes(self.size - half) for _ in range(VALUES)]

    def storage(self, threshold: str = "5 mb") -> FsStateChangelogStorage:
        return FsStateChangelogStorage(
            JOB,
            ChangelogOptions.of(
                base_path=str(self.folder),
                preemptive_persist_threshold=threshold,
                compression_enabled=self.compressed,
                fsync=self.fsync,
                upload_timeout_ms=60_000,
            ),
        )

    def segments(self) -> list[Path]:
        return sorted((self.folder / JOB.hex / "dstl").iterdir())

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def call(case: Case) -> dict[str, float]:
    """The loop of ``append`` around a method that does nothing: what Python itself takes."""
    values, add = case.values, _Nothing().append
    started = time.perf_counter()
    for i in range(case.records):
        add(i & 127, values[i & 65535])
    return {"call": time.perf_counter() - started}


class _Nothing:
    def append(self, key_group: int, value: bytes) -> None: ...


def append(case: Case) -> dict[str, float]:
    """One change a call into memory: the threshold is out of reach."""
    storage = case.storage("1000 gb")
    writer = storage.create_writer("bench", KeyGroupRange(0, 127))
    values, add = case.values, writer.append
    started = time.perf_counter()
    for i in range(case.records):
        add(i & 127, values[i & 65535])
    seconds = time.perf_counter() - started
    writer.close()
    storage.close()
    return {"append": seconds}


def single(case: Case) -> dict[str, float]:
    """One change a call until all is durable, then read back."""
    storage = case.storage()
    writer = storage.create_writer("bench", KeyGroupRange(0, 127))
    values, add = case.values, writer.append
    started = time.perf_counter()
    for i in range(case.records):
        add(i & 127, values[i & 65535])
    handle = writer.persist(ZERO, 1).result(600).job_manager_owned_snapshot
    return _finish(case, storage, handle, started)


def batch(case: Case) -> dict[str, float]:
    """Columns of 65,536 changes a call until all is durable, then read back."""
    ready = _columns(case)
    storage = case.storage()
    writer = storage.create_writer("bench", KeyGroupRange(0, 127))
    started = time.perf_counter()
    for key_groups, values in ready:
        writer.append_batch(key_groups, values)
    handle = writer.persist(ZERO, 1).result(600).job_manager_owned_snapshot
    return _finish(case, storage, handle, started)


def _columns(case: Case) -> list[tuple[Any, Any]]:
    whole = pa.array(case.values, pa.binary())
    groups = (np.arange(BATCH) & 127).astype(np.int32)
    rows = [BATCH] * (case.records // BATCH) + [case.records % BATCH]
    return [(groups[:count], whole.slice(0, count)) for count in rows if count]


def _finish(
    case: Case, storage: FsStateChangelogStorage, handle: ChangelogStateHandleStream, started: float
) -> dict[str, float]:
    durable = time.perf_counter() - started
    reads = [_read(case, storage, handle) for _ in range(2)]
    storage.close()
    files = [path.stat().st_size for path in case.segments()]
    return {"durable": durable, "read": min(reads), "files": len(files), "bytes": sum(files)}


def _read(
    case: Case, storage: FsStateChangelogStorage, handle: ChangelogStateHandleStream
) -> float:
    started = time.perf_counter()
    count = size = 0
    for changes in storage.create_reader().read_batches(handle):
        count += changes.num_rows
        offsets = np.frombuffer(
            changes.column("value").buffers()[1], np.int32, changes.num_rows + 1
        )
        size += int(offsets[-1])
    seconds = time.perf_counter() - started
    assert (count, size) == (case.records, case.records * case.size)
    return seconds


def floor(case: Case) -> dict[str, float]:
    """The bytes that ``batch`` made, written raw into files of the same sizes."""
    batch(case)
    contents = [path.read_bytes() for path in case.segments()]
    case.clear()
    case.folder.mkdir(parents=True)
    started = time.perf_counter()
    for number, content in enumerate(contents):
        with open(case.folder / str(number), "xb", buffering=0) as file:
            file.write(content)
            if case.fsync:
                os.fsync(file.fileno())
    return {"floor": time.perf_counter() - started}


WAYS: dict[str, Callable[[Case], dict[str, float]]] = {
    "call": call,
    "append": append,
    "single": single,
    "batch": batch,
    "floor": floor,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--compressed", action="store_true")
    parser.add_argument("--fsync", action="store_true")
    arguments = parser.parse_args()
    case = Case(arguments)
    small = Case(argparse.Namespace(**{**vars(arguments), "records": BATCH}))
    WAYS[arguments.way](small)  # kernels are loaded, folders made
    small.clear()
    for _ in range(arguments.rounds):
        gc.collect()
        figures = WAYS[arguments.way](case)
        case.clear()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({**figures, "peak_kib": peak}), flush=True)


if __name__ == "__main__":
    main()
