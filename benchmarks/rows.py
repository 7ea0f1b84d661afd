"""Functions by row, in one subtask without Spark: what an epoch of a function costs per row.

A case is a kind of state and a backend. Every epoch applies rows with random keys, in batches as
Spark gives them, logs what changed, and keeps the state warm for the next one. The first epoch
brings each key once. Rates are those of an epoch after one that warms up: rows applied until
the log is durable.

Expected before measuring: a function that reads and writes two long states makes four calls a row,
which are 0.1 us each in Python without any work. To make the row itself costs about 0.4 us. What
is per key (look up, decode, encode, store, log) should be below 1 us for a state.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import results
from dstl_core import KeyedOperator, ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from dstl_core.codec.serializers import Types
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.job_spec import JobSpec, TaskSpec, task_changelog_options
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.job.task.assigned_state import encode_assigned
from dstl_core.job.task.output_files import OutputFiles
from dstl_core.job.task.subtask import open_subtask
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.state.backends.timers import MIN_WATERMARK
from dstl_core.storage.file_io import open_file_io

BATCH = 100_000
BACKENDS = {"hashmap": HashMapStateBackend, "rocksdb": EmbeddedRocksDBStateBackend}


class Values(KeyedProcessFunction):
    """Counts and adds up, in two long states."""

    order_insensitive = True

    def open(self, runtime_context: Any) -> None:
        self._n = runtime_context.get_state(ValueStateDescriptor("n", "bigint"))
        self._total = runtime_context.get_state(ValueStateDescriptor("total", "bigint"))

    def process_element(self, value: Any, ctx: Any) -> None:
        self._n.update((self._n.value() or 0) + 1)
        self._total.update((self._total.value() or 0) + value["v"])


class Texts(KeyedProcessFunction):
    """Keeps the last text and a sum of decimals, of keys that are texts."""

    order_insensitive = True
    key_type = Types.STRING

    def open(self, runtime_context: Any) -> None:
        self._item = runtime_context.get_state(ValueStateDescriptor("item", "string"))
        self._total = runtime_context.get_state(ValueStateDescriptor("total", "decimal(18,2)"))

    def process_element(self, value: Any, ctx: Any) -> None:
        if value["item"] != self._item.value():
            self._item.update(value["item"])
        self._total.update((self._total.value() or 0) + value["amount"])


class Lists(KeyedProcessFunction):
    """Appends to a list."""

    order_insensitive = True

    def open(self, runtime_context: Any) -> None:
        self._list = runtime_context.get_list_state(ListStateDescriptor("list", "bigint"))

    def process_element(self, value: Any, ctx: Any) -> None:
        self._list.add(value["v"])


class Maps(KeyedProcessFunction):
    """Counts in a map of ten user keys."""

    order_insensitive = True

    def open(self, runtime_context: Any) -> None:
        self._map = runtime_context.get_map_state(MapStateDescriptor("map", "bigint", "bigint"))

    def process_element(self, value: Any, ctx: Any) -> None:
        at = value["v"] % 10
        self._map.put(at, (self._map.get(at) or 0) + 1)


class Timers(KeyedProcessFunction):
    """Counts, and keeps one timer per key in the future."""

    order_insensitive = True

    def open(self, runtime_context: Any) -> None:
        self._n = runtime_context.get_state(ValueStateDescriptor("n", "bigint"))

    def process_element(self, value: Any, ctx: Any) -> None:
        self._n.update((self._n.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(1_000)


FUNCTIONS: dict[str, Any] = {
    "values": Values,
    "texts": Texts,
    "lists": Lists,
    "maps": Maps,
    "timers": Timers,
}


class Job:
    """One subtask, from epoch to epoch."""

    def __init__(self, folder: Path, function: KeyedProcessFunction, backend: Any, keys: int):
        self._folder, self._function, self._backend, self._keys = folder, function, backend, keys
        self._handles: tuple[Any, ...] = ()
        self._epoch = 0

    def run(self, keys: Any) -> dict[str, float]:
        """An epoch; gives its seconds, by step."""
        self._epoch += 1
        key_type = getattr(self._function, "key_type", Types.LONG)
        job = JobSpec(
            name="rows",
            base_path=f"file:{self._folder}",
            operators=(KeyedOperator("u", "k", key_type, self._function),),
            parallelism=1,
            max_parallelism=64,
            changelog_options=task_changelog_options(str(self._folder), {}),
            state_backend=self._backend,
            local_copies=LocalCopies(str(self._folder / "local"), max_entries=4 * self._keys),
        )
        restored = PrioritizedOperatorSubtaskState(managed_keyed_state=self._handles)
        task = TaskSpec(job=job, parent=job.base_path, assigned=(encode_assigned(restored),))
        root = task.job.layout.root
        output = OutputFiles(open_file_io(root), task.job.layout.output(self._epoch), None, 0)
        rows = _rows(keys, is_text=key_type == Types.STRING)
        started, cpu = time.monotonic(), time.process_time()
        running = open_subtask(task, 0)
        restored_at = time.monotonic()
        running.begin(output)
        for start in range(0, len(keys), BATCH):
            running.apply(rows.slice(start, BATCH), output)
        running.finish(MIN_WATERMARK, output)
        applied_at = time.monotonic()
        options = CheckpointOptions.for_checkpoint_with_default_location()
        state = running.snapshot(CheckpointMetaData(self._epoch, 0), options)
        ended, used = time.monotonic(), time.process_time() - cpu
        running.close(state)
        self._handles = (state.managed_keyed_state,)
        return {
            "restore_s": round(restored_at - started, 3),
            "apply_s": round(applied_at - restored_at, 3),
            "persist_s": round(ended - applied_at, 3),
            "rows_per_s": round(len(keys) / (ended - restored_at)),
            "rows_per_cpu_s": round(len(keys) / used),
        }


def _rows(keys: Any, *, is_text: bool) -> pa.RecordBatch:
    """A row for each key, with a number, or with a text and a decimal."""
    values = pa.array(np.arange(len(keys)) % 1000)
    if not is_text:
        return pa.RecordBatch.from_arrays([pa.array(keys), values], names=["k", "v"])
    digits = pc.utf8_lpad(pa.array(keys).cast(pa.string()), 29, "0")
    texts = pc.binary_join_element_wise("key", digits, "-")
    items = pc.binary_join_element_wise("item", values.cast(pa.string()), "-")
    amounts = values.cast(pa.decimal128(21, 2)).cast(pa.decimal128(18, 2))
    columns = [texts, items, amounts]
    return pa.RecordBatch.from_arrays(columns, names=["k", "item", "amount"])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--states", nargs="*", default=list(FUNCTIONS), choices=list(FUNCTIONS))
    parser.add_argument("--backends", nargs="*", default=list(BACKENDS), choices=list(BACKENDS))


def run(arguments: argparse.Namespace) -> None:
    before = results.machine()
    cases = []
    for backend in arguments.backends:
        for state in arguments.states:
            print(f"# {state}, {backend}", file=sys.stderr)
            figures = measure(state, backend, arguments.rows, arguments.keys)
            cases.append({"state": state, "backend": backend, **figures})
            print(f"  {figures}", file=sys.stderr)
    machine = {**before, "load_average_after": results.machine()["load_average"]}
    summary = {
        "machine": machine,
        "rows": arguments.rows,
        "keys": arguments.keys,
        "cases": cases,
    }
    results.write("rows", summary, _table(summary))


def measure(state: str, backend: str, rows: int, keys: int) -> dict[str, float]:
    """The third epoch of a case."""
    random = np.random.default_rng(7)
    with results.work_folder() as folder:
        job = Job(folder, FUNCTIONS[state](), BACKENDS[backend](), keys)
        job.run(np.arange(keys))
        job.run(random.integers(0, keys, rows))
        return job.run(random.integers(0, keys, rows))


def _table(figures: dict[str, Any]) -> str:
    lines = [
        f"# Functions by row\n\n{results.describe(figures['machine'])} One subtask on one core, "
        f"{figures['rows']:,} rows on {figures['keys']:,} keys in an epoch, changelog on. Values "
        f"and texts are in columns, with RocksDB as well (decisions 33 and 50). Texts: keys of 33 "
        f"characters, a text and a decimal.\n\n"
        f"| state | backend | rows/s | rows per CPU second | apply (s) | persist (s) |\n"
        f"|---|---|---|---|---|---|\n"
    ]
    lines += [
        f"| {case['state']} | {case['backend']} | {case['rows_per_s']:,} | "
        f"{case['rows_per_cpu_s']:,} | {case['apply_s']:.2f} | {case['persist_s']:.2f} |\n"
        for case in figures["cases"]
    ]
    return "".join(lines)
