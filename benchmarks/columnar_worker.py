"""One case of the columnar benchmark in a process of its own. Prints one JSON line.

Seconds are CPU time, since the machine may be shared, and wall time.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()

import numpy as np  # noqa: E402  # imports are part of what is timed
import pyarrow as pa  # noqa: E402

from benchmarks.stored_forms import write_changelog, write_heap  # noqa: E402
from dstl_core import Snapshot  # noqa: E402
from dstl_core.codec.columnar.keyed.decoder import StateDecoder  # noqa: E402
from dstl_core.codec.columnar.keyed.sections import (  # noqa: E402
    Section,
    SectionChunk,
    SectionChunks,
)
from dstl_core.codec.columnar.keyed.spans import SectionScanner, Source, SpanBatch  # noqa: E402
from dstl_core.codec.columnar.keyed.sst_blocks import TableReader  # noqa: E402
from dstl_core.codec.columnar.keyed.sst_rows import merged_spans  # noqa: E402
from dstl_core.codec.keyed_records import RecordFormat  # noqa: E402
from dstl_core.codec.serializers import AnySerializer, Types  # noqa: E402
from dstl_core.codec.sst.file import SstFile  # noqa: E402
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot  # noqa: E402
from dstl_core.model.checkpoint import (  # noqa: E402
    CheckpointMetadata,
    OperatorState,
    OperatorSubtaskState,
)
from dstl_core.model.ids import OperatorID  # noqa: E402
from dstl_core.savepoint.write.folder import SavepointFolder  # noqa: E402
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder, StateRuns  # noqa: E402
from dstl_core.state.columns.keyed_sections import KeyedSections  # noqa: E402

STEPS = ["encode", "decode", "write", "read", "first", "sst", "heap", "changelog"]
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


class Stopwatch:
    """Seconds of CPU time and of wall time, summed over its blocks."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0

    def __enter__(self) -> None:
        self._begin = time.process_time(), time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.cpu += time.process_time() - self._begin[0]
        self.wall += time.perf_counter() - self._begin[1]

    def figures(self, **more: float) -> dict[str, float]:
        return {"seconds": self.cpu, "wall": self.wall, **more}


class Work:
    """One case: rows in, a savepoint, rows out."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.records: int = arguments.records
        self.folder = Path(arguments.folder)
        self.compressed: bool = arguments.compressed
        key_type, kind, value, self._keys, self._values = CASES[arguments.case]
        self._key_type = key_type
        meta = self._meta = StateMetaInfoSnapshot.key_value("v", kind, value)
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
        size, watch = 0, Stopwatch()
        for batch in batches:
            with watch:
                [runs] = self.encoder.encode_keyed(batch)
            size += int(runs.bounds[-1])
        return watch.figures(bytes=size)

    def write(self, batches: Any, memory: int) -> dict[str, float]:
        """Columns to a savepoint; without the time that making the columns takes."""
        folder = SavepointFolder(self.folder)
        watch = Stopwatch()
        with KeyedSections(
            self.encoder.header, self.encoder.key_groups, MAX_PARALLELISM, memory=memory
        ) as sections:
            for batch in batches:
                with watch:
                    for runs in self.encoder.encode_keyed(batch):
                        sections.add(runs)
            with watch:
                handle = folder.add_keyed_stream(sections.stream())
        subtasks = (OperatorSubtaskState(0, managed_keyed_state=handle),)
        operator = OperatorState(OperatorID.for_uid("op"), 1, MAX_PARALLELISM, subtasks, uid="op")
        folder.publish(CheckpointMetadata(3, 1, (operator,)), {})
        assert handle is not None
        return watch.figures(bytes=handle.state_size)

    def read(self) -> dict[str, float]:
        """A savepoint to columns."""
        watch = Stopwatch()
        with watch:
            operator = Snapshot.load(self.folder)["op"]
            reader = operator.keyed() if self.form == "keyed" else operator.flat("v")
            rows = sum(batch.num_rows for batch in reader.read())
        [handle] = operator.keyed_handles
        return watch.figures(bytes=handle.state_size, rows=rows)

    def decode(self) -> dict[str, float]:
        """Sections in memory to columns: what the kernels do, without reading a file."""
        with KeyedSections(
            self.encoder.header, self.encoder.key_groups, MAX_PARALLELISM, check_duplicates=False
        ) as sections:
            for batch in self.batches():
                [runs] = self.encoder.encode_keyed(batch)
                sections.add(runs)
            stored = [
                SectionChunk(raw, [Section(key_group, 0, len(raw), 0)])
                for key_group in self.encoder.key_groups
                for raw in [sections.section(key_group)]
                if raw
            ]
        record_format = RecordFormat(self._meta, self._key_type)
        decoder = StateDecoder(record_format, 1)
        rows, watch = 0, Stopwatch()
        with watch:
            for spans in SectionScanner(1, [True]).batches(_one_by_one(stored)):
                rows += len(decoder.decode(spans, set(decoder.columns))["value"])
        return watch.figures(bytes=sum(len(each.data) for each in stored), rows=rows)

    def make_form(self, form: str) -> None:
        """The same rows in the heap's own form, or as a changelog."""
        if self.folder.exists():
            return
        if form == "heap":
            write_heap(self.folder, self.encoder, self.batches())
        else:
            write_changelog(self.folder, self.encoder, self._key_type, self._meta, self.batches())

    def read_table_files(self) -> dict[str, float]:
        """RocksDB's table files to columns; the files are made by RocksDB itself."""
        paths = sorted(self.folder.glob("*.sst")) or self._make_table_files()
        raw = [path.read_bytes() for path in paths]
        meta = self.encoder.header.states[0]
        record_format = RecordFormat(meta, self.encoder.header.key_serializer)
        decoder = StateDecoder(record_format, 1)
        rows, watch = 0, Stopwatch()
        with watch:
            files = [SstFile(partial(_part, each), len(each)) for each in raw]
            for merged in merged_spans(list(map(TableReader, files)), 0, MAX_PARALLELISM - 1, 1):
                batch = SpanBatch(merged.spans, Source(b"", []))
                rows += len(decoder.decode(batch, {"key", "value"})["value"])
        assert rows == self.records
        return watch.figures(bytes=sum(map(len, raw)), rows=rows)

    def _make_table_files(self) -> list[Path]:
        import rocksdict  # of the tests' group

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        table = rocksdict.BlockBasedOptions()
        table.set_format_version(5)  # as Flink's
        options.set_block_based_table_factory(table)
        database = rocksdict.Rdict(str(self.folder), options)
        for batch in self.batches():
            [runs] = self.encoder.encode_keyed(batch)
            chunks = _sections_of(runs)
            for spans in SectionScanner(1, [True]).batches(chunks):
                base, data = spans.source.base, spans.source.data
                written = rocksdict.WriteBatch(raw_mode=True)
                for start, end, value, value_end, _ in (spans.spans - base).tolist():
                    key = bytearray(data[start - 1 : end])
                    key[0] &= 0x7F
                    written.put(bytes(key), data[value:value_end])
                database.write(written)
        database.flush()
        database.close()
        return sorted(self.folder.glob("*.sst"))


def _part(raw: bytes, start: int, end: int) -> bytes:
    return raw[start:end]


def _one_by_one(chunks: list[SectionChunk]) -> SectionChunks:
    """Whole sections only, so that nothing is sent back."""
    yield from chunks


def _sections_of(runs: StateRuns) -> Iterator[SectionChunk]:
    for at, key_group in enumerate(runs.key_groups):
        part = bytes(memoryview(runs.data)[runs.bounds[at] : runs.bounds[at + 1]])
        if part:
            data = part + b"\xff\xff"
            yield SectionChunk(data, [Section(key_group, 0, len(data), 0)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--compressed", action="store_true")
    parser.add_argument("--form", default="flat", choices=["flat", "keyed"])
    parser.add_argument("--memory", type=int, default=512 << 20)
    arguments = parser.parse_args()
    work = Work(arguments)
    rounds: list[dict[str, float]] = []
    if arguments.step == "encode":
        batches = list(work.batches())
        work.encode(batches[:1])
        rounds = [work.encode(batches) for _ in range(arguments.rounds)]
    elif arguments.step == "write":
        warm = argparse.Namespace(**{**vars(arguments), "records": 1000})
        warm.folder = f"{arguments.folder}-warm"
        Work(warm).write(Work(warm).batches(), arguments.memory)
        rounds = [work.write(work.batches(), arguments.memory)]
    elif arguments.step == "read":
        work.read()
        rounds = [work.read() for _ in range(arguments.rounds)]
    elif arguments.step == "decode":
        work.decode()
        rounds = [work.decode() for _ in range(arguments.rounds)]
    elif arguments.step in ("heap", "changelog"):
        work.make_form(arguments.step)
        work.read()
        rounds = [work.read() for _ in range(arguments.rounds)]
    elif arguments.step == "sst":
        work.read_table_files()
        rounds = [work.read_table_files() for _ in range(arguments.rounds)]
    else:
        imported = time.perf_counter() - STARTED
        rounds = [work.read() | {"imports": imported}]
    print(
        json.dumps(
            {
                "rounds": rounds,
                "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            }
        )
    )


if __name__ == "__main__":
    main()
