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
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.changelog_backend import ChangelogKeyedStateBackend
from dstl_core.state.backends.materialization import write_state
from dstl_core.state.backends.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedStateBackendParameters,
)
from dstl_core.state.backends.streams import FsCheckpointStreamFactory
from dstl_core.state.tables.descriptor import ValueStateDescriptor
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


class Watch:
    """Wall time, and CPU time of this thread, since it was made: other work on the machine slows
    the first one down, and the second one hardly.
    """

    def __init__(self) -> None:
        self._started = time.perf_counter(), time.thread_time()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started[0]

    @property
    def cpu_seconds(self) -> float:
        return time.thread_time() - self._started[1]

    def rates(self, name: str, done: int) -> dict[str, float]:
        return {
            f"{name}_per_s": round(done / self.seconds),
            f"{name}_per_cpu_s": round(done / self.cpu_seconds),
        }

    def times(self, name: str, unit: float = 1.0) -> dict[str, float]:
        return {
            f"{name}_s": round(self.seconds / unit, 3),
            f"{name}_cpu_s": round(self.cpu_seconds / unit, 3),
        }


def fill(backend: KeyedStateBackend, keys: int) -> dict[str, float]:
    """Writes each key once."""
    count = backend.get_value_state(COUNT)
    watch = Watch()
    for key in range(keys):
        backend.set_current_key(key)
        count.update(key)
    return watch.rates("insert", keys)


def update_at_random(
    backend: KeyedStateBackend, keys: int, seconds: float = SECONDS
) -> dict[str, float]:
    """Reads and writes random keys."""
    count, random, done = backend.get_value_state(COUNT), Random(1), 0
    watch = Watch()
    while watch.seconds < seconds:
        for _ in range(1_000):
            backend.set_current_key(random.randrange(keys))
            count.update(count.value() + 1)
        done += 1_000
    return watch.rates("read_modify_write", done)


def fill_columns(backend: KeyedStateBackend, keys: int) -> dict[str, float]:
    """As ``fill``, a batch at a time."""
    count = backend.get_value_columns(COUNT)
    count.put(pa.array([0]), pa.array([0]))  # compiles, or loads what is compiled
    watch = Watch()
    for start in range(0, keys, BATCH):
        batch = pa.array(np.arange(start, min(start + BATCH, keys)))
        count.put(batch, batch)
    return watch.rates("insert", keys)


def update_columns(
    backend: KeyedStateBackend, keys: int, seconds: float = SECONDS
) -> dict[str, float]:
    """As ``update_at_random``, a batch of distinct keys at a time."""
    count, random, done = backend.get_value_columns(COUNT), np.random.default_rng(1), 0
    count.get(pa.array([0]))
    watch = Watch()
    while watch.seconds < seconds:
        batch = pa.array(np.unique(random.integers(0, keys, BATCH)))
        count.put(batch, pc.add(count.get(batch), 1))
        done += len(batch)
    return watch.rates("read_modify_write", done)


WAYS = {"rows": (fill, update_at_random), "columns": (fill_columns, update_columns)}


def operations(case: Case, keys: int, way: str, changelog: bool) -> dict[str, float]:
    backend = case.create()
    insert, update = WAYS[way]
    log = None
    if changelog:
        options = ChangelogOptions.of(base_path=str(case.folder))
        storage = FsStateChangelogStorage(JobID.for_name("bench"), options)
        log = ChangelogKeyedStateBackend(backend, storage.create_writer("operator", ALL))
    figures = insert(backend, keys) | update(backend, keys)
    if log is not None:
        watch = Watch()
        log.snapshot(1)
        figures |= watch.times("checkpoint")
        log.close()
        storage.close()
    backend.close()
    return {**figures, **memory_mb()}


def restore(case: Case, keys: int) -> dict[str, float]:
    # Kernels are loaded before, as in a process that has restored something.
    small = case.create()
    fill_columns(small, 100_000)
    case.create((case.snapshot(small),)).close()
    small.close()
    backend = case.create()
    fill_columns(backend, keys)
    watch = Watch()
    handle = case.snapshot(backend)
    figures = watch.times("snapshot_per_million", keys / 1e6)
    backend.close()
    watch = Watch()
    restored = case.create((handle,))
    figures |= watch.times("restore_per_million", keys / 1e6)
    restored.set_current_key(keys - 1)
    if restored.get_value_state(COUNT).value() != keys - 1:
        raise SystemExit("the restored state is another one")
    restored.close()
    return figures


def large(case: Case, keys: int) -> dict[str, float]:
    """All of it within ``MOST_MEMORY_MB``, interpreter and libraries included."""
    backend = case.create()
    figures = fill_columns(backend, keys)
    for way, update in (("columns", update_columns), ("rows", update_at_random)):
        done = update(backend, keys, 20)
        figures |= {f"{way}_{name}": value for name, value in done.items()}
    watch = Watch()
    handle = case.snapshot(backend)
    figures |= watch.times("snapshot")
    figures["snapshot_mb"] = handle.state_size >> 20
    backend.close()
    watch = Watch()
    restored = case.create((handle,))
    figures |= watch.times("restore")
    values = restored.get_value_columns(COUNT).get(pa.array([0, keys - 1]))
    if values.null_count:
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
