"""One case of the columnar benchmark in a process of its own. Prints one JSON line.

Seconds are CPU-bound wall time of one thread; bytes are those of the canonical records.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()

import numpy as np  # noqa: E402  # imports are part of what is timed
import pyarrow as pa  # noqa: E402

from dstl_core.codec.columnar.jit import CACHE_FOLDER  # noqa: E402
from dstl_core.codec.serializers import AnySerializer, Types  # noqa: E402
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot  # noqa: E402
from dstl_core.model.checkpoint import (  # noqa: E402
    CheckpointMetadata,
    OperatorState,
    OperatorSubtaskState,
)
from dstl_core.model.ids import OperatorID  # noqa: E402
from dstl_core.savepoint import Snapshot  # noqa: E402
from dstl_core.savepoint.folder import SavepointFolder  # noqa: E402
from dstl_core.savepoint.keyed_encoder import KeyedStateEncoder  # noqa: E402
from dstl_core.savepoint.keyed_sections import KeyedSections  # noqa: E402

BATCH = 1 << 16
MAX_PARALLELISM = 128
VALUE, LIST, MAP = KeyedStateType.VALUE, KeyedStateType.LIST, KeyedStateType.MAP


def _strings(start: int, count: int) -> pa.Array:
    return pa.array([f"key-{number}" for number in range(start, start + count)])


def _longs(start: int, count: int) -> pa.Array:
    return pa.array(np.arange(start, start + count))


def _row(start: int, count: int) -> pa.Array:
    numbers = np.arange(start, start + count)
    fields = {
        "f0": pa.array((numbers % 1000).astype(np.int32)),
        "f1": pa.array(numbers * 3),
        "f2": pa.array(numbers / 7.0),
        "f3": pa.array(numbers % 2 == 0),
        "f4": pa.array([f"text-{number % 5000}" for number in numbers]),
    }
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields))


def _lists(start: int, count: int) -> pa.Array:
    values = pa.array(np.arange(10 * start, 10 * (start + count)))
    return pa.ListArray.from_arrays(np.arange(0, 10 * count + 1, 10, dtype=np.int32), values)


def _maps(start: int, count: int) -> pa.Array:
    keys = pa.array([f"k{number}" for number in range(5)] * count)
    values = pa.array(np.arange(5 * start, 5 * (start + count)))
    return pa.MapArray.from_arrays(np.arange(0, 5 * count + 1, 5, dtype=np.int32), keys, values)


Make = Callable[[int, int], pa.Array]
ROW = Types.ROW(Types.INT, Types.LONG, Types.DOUBLE, Types.BOOLEAN, Types.STRING)
CASES: dict[str, tuple[AnySerializer, KeyedStateType, AnySerializer, Make, Make]] = {
    "string-long": (Types.STRING, VALUE, Types.LONG, _strings, _longs),
    "long-row5": (Types.LONG, VALUE, ROW, _longs, _row),
    "string-list10": (Types.STRING, LIST, Types.LIST(Types.LONG), _strings, _lists),
    "string-map5": (Types.STRING, MAP, Types.MAP(Types.STRING, Types.LONG), _strings, _maps),
}


class Work:
    """One case: rows in, a savepoint, rows out."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.records: int = arguments.records
        self.folder = Path(arguments.folder)
        self.compressed: bool = arguments.compressed
        key_type, kind, value, self._keys, self._values = CASES[arguments.case]
        meta = StateMetaInfoSnapshot.key_value("v", kind, value)
        self.encoder = KeyedStateEncoder(
            key_type, [meta], MAX_PARALLELISM, compressed=self.compressed
        )
        self.form: str = arguments.form

    def batches(self, at_once: int = BATCH) -> Any:
        for start in range(0, self.records, at_once):
            count = min(at_once, self.records - start)
            columns = [self._keys(start, count), self._values(start, count)]
            yield pa.RecordBatch.from_arrays(columns, names=["state_key", "v"])

    def encode(self, batches: Any) -> dict[str, float]:
        """Columns to runs by key group."""
        size, seconds = 0, 0.0
        for batch in batches:
            begin = time.perf_counter()
            [runs] = self.encoder.encode_keyed(batch)
            seconds += time.perf_counter() - begin
            size += int(runs.bounds[-1])
        return {"seconds": seconds, "bytes": size}

    def write(self, batches: Any, memory: int) -> dict[str, float]:
        """Columns to a savepoint; without the time that making the columns takes."""
        folder = SavepointFolder(self.folder)
        seconds = 0.0
        with KeyedSections(
            self.encoder.header, self.encoder.key_groups, MAX_PARALLELISM, memory=memory
        ) as sections:
            for batch in batches:
                begin = time.perf_counter()
                for runs in self.encoder.encode_keyed(batch):
                    sections.add(runs)
                seconds += time.perf_counter() - begin
            begin = time.perf_counter()
            handle = folder.add_keyed_stream(sections.stream())
        subtasks = (OperatorSubtaskState(0, managed_keyed_state=handle),)
        operator = OperatorState(OperatorID.for_uid("op"), 1, MAX_PARALLELISM, subtasks, uid="op")
        folder.publish(CheckpointMetadata(3, 1, (operator,)), {})
        seconds += time.perf_counter() - begin
        assert handle is not None
        return {"seconds": seconds, "bytes": handle.state_size}

    def read(self) -> dict[str, float]:
        """A savepoint to columns."""
        begin = time.perf_counter()
        operator = Snapshot.load(self.folder)["op"]
        reader = operator.keyed() if self.form == "keyed" else operator.flat("v")
        rows = sum(batch.num_rows for batch in reader.read())
        seconds = time.perf_counter() - begin
        [handle] = operator.keyed_handles
        return {"seconds": seconds, "bytes": handle.state_size, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=["encode", "write", "read", "first"])
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--compressed", action="store_true")
    parser.add_argument("--form", default="flat", choices=["flat", "keyed"])
    parser.add_argument("--memory", type=int, default=512 << 20)
    arguments = parser.parse_args()
    work = Work(arguments)
    found: list[dict[str, float]] = []
    if arguments.step == "encode":
        batches = list(work.batches())
        work.encode(batches[:1])
        found = [work.encode(batches) for _ in range(arguments.rounds)]
    elif arguments.step == "write":
        warm = argparse.Namespace(**{**vars(arguments), "records": 1000})
        warm.folder = f"{arguments.folder}-warm"
        Work(warm).write(Work(warm).batches(), arguments.memory)
        found = [work.write(work.batches(), arguments.memory)]
    elif arguments.step == "read":
        work.read()
        found = [work.read() for _ in range(arguments.rounds)]
    else:
        imported = time.perf_counter() - STARTED
        found = [work.read() | {"imports": imported}]
    print(
        json.dumps(
            {
                "rounds": found,
                "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                "cache": None if CACHE_FOLDER is None else os.fspath(CACHE_FOLDER),
            }
        )
    )


if __name__ == "__main__":
    main()
