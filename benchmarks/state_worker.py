"""One case of the state benchmark; prints its figures as JSON."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random

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


def operations(case: Case, keys: int, changelog: bool) -> dict[str, float]:
    backend = case.create()
    log = None
    if changelog:
        options = ChangelogOptions.of(base_path=str(case.folder))
        storage = FsStateChangelogStorage(JobID.for_name("bench"), options)
        log = ChangelogKeyedStateBackend(backend, storage.create_writer("operator", ALL))
    figures: dict[str, float] = {"insert_per_s": round(fill(backend, keys))}
    figures["read_modify_write_per_s"] = round(update_at_random(backend, keys))
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
    fill(backend, keys)
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
    backend = case.create()
    figures: dict[str, float] = {"insert_per_s": round(fill(backend, keys))}
    figures["read_modify_write_per_s"] = round(update_at_random(backend, keys))
    before = memory_mb()
    handle = case.snapshot(backend)
    figures["snapshot_bytes"] = handle.state_size
    backend.close()
    return {**figures, **before, "peak_with_snapshot_mb": memory_mb()["peak_mb"]}


def main() -> None:
    name, backend, keys = sys.argv[1], sys.argv[2], int(sys.argv[3])
    folder = Path(tempfile.mkdtemp(prefix="dstl-bench-"))
    try:
        case = Case(folder, backend)
        if name == "operations":
            figures = operations(case, keys, "changelog" in sys.argv[4:])
        else:
            figures = {"restore": restore, "large": large}[name](case, keys)
        print(json.dumps(figures))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
