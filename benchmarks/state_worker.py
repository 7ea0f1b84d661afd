"""One case of the state benchmark; prints its figures as JSON."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.clock import SystemClock
from dstl_core.codec.serializers import Types
from dstl_core.config import ChangelogOptions
from dstl_core.model.handle import CheckpointedStateScope, KeyedStateHandle
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state import ChangelogKeyedStateBackend, KeyedStateBackend, ValueStateDescriptor
from dstl_core.state.materialization import write_state
from dstl_core.state.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedStateBackendParameters,
)
from dstl_core.state.streams import FsCheckpointStreamFactory
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location

BATCH = 100_000
MOST_MEMORY_MB = 1024
ALL = KeyGroupRange(0, 127)
COUNT = ValueStateDescriptor("count", Types.LONG)
SECONDS = 5.0


def memory_mb() -> dict[str, int]:
    """The peak of this process, and what of it is not a cached file now."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "peak_mb": int(status["VmHWM"].split()[0]) >> 10,
        "anonymous_mb": int(status["RssAnon"].split()[0]) >> 10,
    }


class Case:
    """A backend in a folder."""

    def __init__(self, folder: Path, backend: str) -> None:
        self.folder = Location.parse(folder)
        self.file_io = open_file_io(self.folder)
        self._backend = (
            HashMapStateBackend()
            if backend == "hashmap"
            else EmbeddedRocksDBStateBackend(local_dir=str(folder / "db"))
        )

    def create(self, handles: tuple[KeyedStateHandle, ...] = ()) -> KeyedStateBackend:
        resolver = HandleResolver(self.file_io, self.folder)
        return self._backend.create_keyed_state_backend(
            KeyedStateBackendParameters(Types.LONG, 128, ALL, handles, resolver, SystemClock())
        )

    def snapshot(self, backend: KeyedStateBackend) -> KeyedStateHandle:
        streams = FsCheckpointStreamFactory(
            self.file_io, self.folder, self.folder, inline_threshold=0
        )
        return write_state(backend.state.capture(), streams, CheckpointedStateScope.EXCLUSIVE)


def fill(backend: KeyedStateBackend, keys: int) -> float:
    """Writes each key once; operations per second."""
    count = backend.get_value_state(COUNT)
    started = time.perf_counter()
    for key in range(keys):
        backend.set_current_key(key)
        count.update(key)
    return keys / (time.perf_counter() - started)


def update_at_random(backend: KeyedStateBackend, keys: int, seconds: float = SECONDS) -> float:
    """Reads and writes random keys; read-modify-writes per second."""
    count, random, done = backend.get_value_state(COUNT), Random(1), 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        for _ in range(1_000):
            backend.set_current_key(random.randrange(keys))
            count.update(count.value() + 1)
        done += 1_000
    return done / (time.perf_counter() - started)


def fill_columns(backend: KeyedStateBackend, keys: int) -> float:
    """As ``fill``, a batch at a time."""
    count = backend.get_value_columns(COUNT)
    count.put(pa.array([0]), pa.array([0]))  # compiles, or loads what is compiled
    started = time.perf_counter()
    for start in range(0, keys, BATCH):
        batch = pa.array(np.arange(start, min(start + BATCH, keys)))
        count.put(batch, batch)
    return keys / (time.perf_counter() - started)


def update_columns(backend: KeyedStateBackend, keys: int, seconds: float = SECONDS) -> float:
    """As ``update_at_random``, a batch of distinct keys at a time."""
    count, random, done = backend.get_value_columns(COUNT), np.random.default_rng(1), 0
    count.get(pa.array([0]))
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        batch = pa.array(np.unique(random.integers(0, keys, BATCH)))
        count.put(batch, pc.add(count.get(batch), 1))
        done += len(batch)
    return done / (time.perf_counter() - started)


WAYS = {"rows": (fill, update_at_random), "columns": (fill_columns, update_columns)}


def operations(case: Case, keys: int, way: str, changelog: bool) -> dict[str, float]:
    backend = case.create()
    insert, update = WAYS[way]
    log = None
    if changelog:
        options = ChangelogOptions.of(base_path=str(case.folder))
        storage = FsStateChangelogStorage(JobID.for_name("bench"), options)
        log = ChangelogKeyedStateBackend(backend, storage.create_writer("operator", ALL))
    figures: dict[str, float] = {"insert_per_s": round(insert(backend, keys))}
    figures["read_modify_write_per_s"] = round(update(backend, keys))
    if log is not None:
        started = time.perf_counter()
        log.snapshot(1)
        figures["checkpoint_s"] = round(time.perf_counter() - started, 3)
        log.close()
        storage.close()
    backend.close()
    return {**figures, **memory_mb()}


def restore(case: Case, keys: int) -> dict[str, float]:
    backend = case.create()
    fill_columns(backend, keys)
    started = time.perf_counter()
    handle = case.snapshot(backend)
    written = time.perf_counter()
    backend.close()
    restored = case.create((handle,))
    done = time.perf_counter()
    restored.set_current_key(keys - 1)
    if restored.get_value_state(COUNT).value() != keys - 1:
        raise SystemExit("the restored state is another one")
    restored.close()
    millions = keys / 1e6
    return {
        "snapshot_s_per_million": round((written - started) / millions, 3),
        "restore_s_per_million": round((done - written) / millions, 3),
    }


def large(case: Case, keys: int) -> dict[str, float]:
    """All of it within ``MOST_MEMORY_MB``, interpreter and libraries included."""
    backend = case.create()
    figures: dict[str, float] = {"columns_insert_per_s": round(fill_columns(backend, keys))}
    figures["columns_read_modify_write_per_s"] = round(update_columns(backend, keys, 20))
    figures["rows_read_modify_write_per_s"] = round(update_at_random(backend, keys, 20))
    started = time.perf_counter()
    handle = case.snapshot(backend)
    figures["snapshot_s"] = round(time.perf_counter() - started, 1)
    figures["snapshot_mb"] = handle.state_size >> 20
    backend.close()
    started = time.perf_counter()
    restored = case.create((handle,))
    figures["restore_s"] = round(time.perf_counter() - started, 1)
    found = restored.get_value_columns(COUNT).get(pa.array([0, keys - 1]))
    if found.null_count:
        raise SystemExit("the restored state is another one")
    restored.close()
    memory = memory_mb()
    if memory["peak_mb"] > MOST_MEMORY_MB:
        raise SystemExit(f"the peak was {memory['peak_mb']} MB, expected {MOST_MEMORY_MB} at most")
    return {**figures, **memory}


def main() -> None:
    name, backend, keys = sys.argv[1], sys.argv[2], int(sys.argv[3])
    folder = Path(tempfile.mkdtemp(prefix="dstl-bench-"))
    try:
        case = Case(folder, backend)
        if name == "operations":
            figures = operations(case, keys, sys.argv[4], "changelog" in sys.argv[5:])
        else:
            figures = {"restore": restore, "large": large}[name](case, keys)
        print(json.dumps(figures))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
