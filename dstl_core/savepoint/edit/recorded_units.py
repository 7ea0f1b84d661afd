"""Runs units and keeps what they gave in the record of a rewriting, so that a run after a kill does
only what is not there.

A unit writes its own entry, in whatever process it runs: the process that puts a file together
reads it, and nothing but its name comes over the pipe.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.metadata.handles import read_keyed_handle, write_keyed_handle
from dstl_core.model.checkpoint import keyed_state_streams
from dstl_core.model.handle import (
    KeyGroupsStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access.units import Jobs, Unit, jobs_for, run_units
from dstl_core.savepoint.write.folder import StateFiles, StoredKeyedHandle
from dstl_core.savepoint.write.work_record import PIECES, Entries, Entry, NumberedPiece, gone
from dstl_core.state.columns.keyed_sections import StateRuns, StreamSection

Result = TypeVar("Result")
Facts = Mapping[str, Any]
_RUNS = struct.Struct("<5Q")
"""State, first and last key group, bytes of the bounds and of the data."""


class Form(Protocol[Result]):
    """How what a unit gives is kept: facts, which are JSON values, and bytes."""

    def pack(self, result: Result) -> tuple[Facts, Iterable[bytes | memoryview]]: ...

    def unpack(self, entry: Entry) -> Result: ...


class RunsForm:
    """Runs of records, and a report."""

    def pack(
        self, result: tuple[list[StateRuns], Any]
    ) -> tuple[Facts, Iterable[bytes | memoryview]]:
        runs, report = result
        parts = [part for own in runs for part in packed_runs(own)]
        return {"runs": len(runs), "report": report}, parts

    def unpack(self, entry: Entry) -> tuple[list[StateRuns], Any]:
        runs, data = [], memoryview(entry.data)
        for _ in range(entry.facts["runs"]):
            run, data = unpacked_runs(data)
            runs.append(run)
        return runs, entry.facts["report"]


def packed_runs(runs: StateRuns) -> list[bytes | memoryview]:
    """Runs as bytes, in parts."""
    key_groups = runs.key_groups
    bounds, data = np.asarray(runs.bounds).astype("<i8").tobytes(), memoryview(runs.data)
    first, last = key_groups.start_key_group, key_groups.end_key_group
    return [_RUNS.pack(runs.state_id, first, last, len(bounds), len(data)), bounds, data]


def unpacked_runs(data: memoryview) -> tuple[StateRuns, memoryview]:
    """The runs at the start of some bytes, and the bytes behind them."""
    state_id, first, last, bounds_bytes, size = _RUNS.unpack_from(data)
    start = _RUNS.size + bounds_bytes
    bounds = np.frombuffer(data[_RUNS.size : start], "<i8").astype(np.int64)
    spans = pa.py_buffer(data[start : start + size])
    return StateRuns(state_id, KeyGroupRange(first, last), spans, bounds), data[start + size :]


def _sent(pieces: list[NumberedPiece], report: Any) -> Streamed:
    return Streamed(iter(pieces), lambda: report)


@dataclass
class Streamed:
    """What a unit gives that is too large for memory: a piece at a time. It is read once.

    Args:
        pieces: The bytes, each with a number that says what they are: a key group.
        report: What the author of the unit wants to know, once all pieces were read.
    """

    pieces: Iterator[NumberedPiece]
    report: Callable[[], Any]

    def __reduce__(self) -> Any:
        """What a process sends is whole. State that is large has a record, and is not sent."""
        return _sent, ([(number, bytes(piece)) for number, piece in self.pieces], self.report())

    def sections(self, key_groups: KeyGroupRange) -> Iterator[StreamSection]:
        """The section of each key group. They are read in order, each as a whole."""
        by_number = groupby(self.pieces, key=itemgetter(0))
        known = next(by_number, None)
        for key_group in key_groups:
            if known is None or known[0] != key_group:
                yield b""
                continue
            yield (piece for _, piece in known[1])
            known = next(by_number, None)


def unit_name(number: int, unit: Unit) -> str:
    """The name of the entry of a unit in some part of the work."""
    first, last = unit.key_groups.start_key_group, unit.key_groups.end_key_group
    return f"unit-{number}-{unit.handle}-{first}-{last}"


@dataclass(frozen=True)
class _Recorded(Generic[Result]):
    """The task of a unit that keeps its result, unless an earlier run has done so.

    Args:
        task: The task.
        entries: Where results are kept.
        number: The number of the part of the work.
        form: How a result is kept.
        returns: Whether to give the result, too: this process needs it.
    """

    task: Callable[[Unit], Result | Streamed]
    entries: Entries
    number: int
    form: Form[Result]
    returns: bool

    def name(self, unit: Unit) -> str:
        return unit_name(self.number, unit)

    def __call__(self, unit: Unit) -> Result | Streamed | None:
        name = self.name(unit)
        if self.entries.continues and self.entries.get(name) is not None:
            return None
        result = self.task(unit)
        if isinstance(result, Streamed):
            self.entries.keep_pieces(name, result.pieces, result.report)
            return None
        facts, parts = self.form.pack(result)
        self.entries.keep(name, facts, parts)
        return result if self.returns else None

    def stored(self, unit: Unit) -> Result | Streamed:
        name = self.name(unit)
        entry = self.entries.get(name)
        if entry is None:
            raise gone(self.entries.folder.child(name))
        if PIECES in entry.facts:
            report = entry.facts["report"]
            return Streamed(self.entries.pieces(name, entry), lambda: report)
        return self.form.unpack(entry)


def run_recorded(
    task: Callable[[Unit], Result | Streamed],
    units: Sequence[Unit],
    size: int,
    jobs: Jobs,
    target: StateFiles,
    form: Form[Result],
    number: int,
) -> Generator[tuple[Unit, Result | Streamed], None, None]:
    """As ``run_units``. With a record in the target, what an earlier run kept is not done again.

    Args:
        task: What to do.
        units: The units.
        size: Bytes that they read.
        jobs: Number of processes, or what runs the units.
        target: The output.
        form: How a result is kept.
        number: The number of this part of the work.
    """
    processes, record = jobs_for(size, jobs), target.record
    if record is None:
        yield from run_units(task, units, processes)
        return
    recorded = _Recorded(task, record.entries, number, form, processes == 1)
    with closing(run_units(recorded, units, processes)) as results:
        for unit, result in results:
            yield unit, recorded.stored(unit) if result is None else result


@dataclass
class KnownStream:
    """A stream that is written.

    Args:
        handle: Its handle; None if it has no record.
        reports: What its units have reported.
    """

    handle: StoredKeyedHandle | None
    reports: list[Any] = field(default_factory=list)


class RecordedStreams:
    """The streams of one operator that are whole, in the record of the output."""

    def __init__(self, target: StateFiles) -> None:
        self._target = target
        self.number = target.names.begin()
        """The number of this part of the work."""
        self._label = f"stream-{self.number}"

    def get(self, place: int) -> KnownStream | None:
        """The stream at a place, if an earlier run has written it and all its files are here."""
        record = self._target.record
        entry = None
        if record is not None and record.continues:
            entry = record.entries.get(f"{self._label}-{place}")
        if entry is None or not self._target.holds(entry.facts["files"]):
            return None
        data = DataInput(entry.data)
        handle, timers = read_keyed_handle(data), read_keyed_handle(data)
        assert handle is None or isinstance(handle, StoredKeyedHandle)
        if isinstance(timers, KeyGroupsStateHandle) and self._target.heap_timers is not None:
            self._target.heap_timers[timers.key_group_range] = timers
        return KnownStream(handle, entry.facts["reports"])

    def keep(
        self,
        place: int,
        key_groups: KeyGroupRange,
        stream: KnownStream,
        units: Sequence[Unit] = (),
    ) -> None:
        """Keeps a stream of some key groups whose files are whole, with the timers beside it;
        nothing needs its units any more.
        """
        record = self._target.record
        if record is None:
            return
        record.check_owner()
        out, names = DataOutput(), list[str]()
        for handle in (stream.handle, (self._target.heap_timers or {}).get(key_groups)):
            write_keyed_handle(out, handle)
            streams = [] if handle is None else keyed_state_streams(handle)
            names += [e.relative_path for e in streams if isinstance(e, RelativeFileStateHandle)]
        facts = {"files": self._target.known(names), "reports": stream.reports}
        record.entries.keep(f"{self._label}-{place}", facts, [out.to_bytes()])
        record.entries.forget(unit_name(self.number, unit) for unit in units)
