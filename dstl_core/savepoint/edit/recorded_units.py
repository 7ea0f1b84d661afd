"""Runs units and keeps what they gave in the record of a rewriting, so that a run after a kill does
only what is not there.

A unit of a file that several processes share writes its own entry, in whatever process it runs: the
process that puts the file together reads it, and nothing but its name comes over the pipe. A unit
of a file that one process writes has its bytes there alone, on a local disk.
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
import xxhash

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.metadata.handles import read_keyed_handle, write_keyed_handle
from dstl_core.model.checkpoint import keyed_state_streams
from dstl_core.model.handle import (
    KeyGroupsStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access.unit_pool import run_units
from dstl_core.savepoint.access.units import Jobs, Unit, jobs_for
from dstl_core.savepoint.write.folder import (
    DATA_INLINE_THRESHOLD,
    KnownFiles,
    StateFiles,
    StoredKeyedHandle,
)
from dstl_core.savepoint.write.work_record import (
    PIECES,
    PLACE,
    Entries,
    Entry,
    NumberedPiece,
    gone,
)
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
class Recorded(Generic[Result]):
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
        return self.keep(unit)

    def keep(self, unit: Unit) -> Result | Streamed | None:
        name, result = self.name(unit), self.task(unit)
        if isinstance(result, Streamed):
            self.entries.keep_pieces(name, result.pieces, result.report)
            return None
        facts, parts = self.form.pack(result)
        self.entries.keep(name, facts, parts)
        return result if self.returns else None

    def kept(self, unit: Unit, at: tuple[str, int] | None = None) -> Result | Streamed | None:
        """The result that is kept of a unit; None if there is none.

        Args:
            unit: The unit.
            at: The file and the place where its bytes go now. Those that are elsewhere in this file
                do not count, because others go there.
        """
        name = self.name(unit)
        entry = self.entries.get(name)
        if entry is None:
            return None
        report = entry.facts["report"]
        if PIECES in entry.facts:
            return Streamed(self.entries.pieces(name, entry), lambda: report)
        if PLACE not in entry.facts:
            return self.form.unpack(entry)
        file, start, _ = entry.facts[PLACE]
        is_moved = at is not None and file == at[0] and start != at[1]
        if is_moved or not self.entries.holds_place(entry):
            return None
        first = unit.key_groups.start_key_group
        parts = ((first + part, piece) for part, piece in self.entries.placed_parts(name, entry))
        return Streamed(parts, lambda: report)

    def stored(self, unit: Unit) -> Result | Streamed:
        result = self.kept(unit)
        if result is None:
            raise gone(self.entries.folder.child(self.name(unit)))
        return result

    def results(self, units: Sequence[Unit]) -> Iterator[tuple[Unit, Result | Streamed]]:
        """Does units here, one after the other, but for those whose results are kept."""
        names = self.names()
        for unit in units:
            result = self.kept(unit) if self.name(unit) in names else None
            if result is None:
                result = self.keep(unit)
            yield unit, self.stored(unit) if result is None else result

    def names(self) -> set[str]:
        """The names of the entries that may be there."""
        return self.entries.names() if self.entries.continues else set()


class PlacedUnits(Generic[Result]):
    """The units of a stream that one process writes into a file, in order. The record says where
    they are in it, and a run after a kill finds them there: their bytes are written once.

    Args:
        recorded: Does a unit.
        file: The name of the file.
        at: Where the first unit begins.
    """

    def __init__(self, recorded: Recorded[Result], file: str, at: int) -> None:
        self._recorded, self._file, self._at = recorded, file, at
        self._names = recorded.names()
        self._waiting: list[tuple[str, Facts]] = []

    def result(self, unit: Unit) -> Result | Streamed:
        """The result that is kept of the next unit, or else what it gives now."""
        name, kept = self._recorded.name(unit), None
        if name in self._names:
            kept = self._recorded.kept(unit, (self._file, self._at))
        if kept is None:
            self._names.discard(name)
        return self._recorded.task(unit) if kept is None else kept

    def noted(
        self, unit: Unit, sections: Iterable[StreamSection], report: Callable[[], Any]
    ) -> Iterator[StreamSection]:
        """Passes the sections of the next unit on into the file, and notes where they are.

        Args:
            unit: The unit.
            sections: Its sections.
            report: What its author wants to know, once all sections were read.
        """
        start, digest, sizes = self._at, xxhash.xxh3_128(), list[int]()

        def measured(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
            for piece in pieces:
                digest.update(piece)
                self._at += len(piece)
                yield piece

        for section in sections:
            before = self._at
            yield measured([section] if isinstance(section, bytes) else section)
            sizes.append(self._at - before)
        name = self._recorded.name(unit)
        if name not in self._names:
            place = [self._file, start, digest.hexdigest()]
            self._waiting.append((name, {"sizes": sizes, "report": report(), PLACE: place}))
        if self._at > DATA_INLINE_THRESHOLD:  # there is a file, with all that was passed on
            for waiting, facts in self._waiting:
                self._recorded.entries.keep(waiting, facts)
            self._waiting.clear()


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
    recorded = Recorded(task, record.entries, number, form, processes == 1)
    with closing(run_units(recorded, units, processes)) as results:
        for unit, result in results:
            yield unit, recorded.stored(unit) if result is None else result


@dataclass
class KnownStream:
    """A stream that is written.

    Args:
        handle: Its handle; None if it has no record.
        reports: What its units have reported.
        timers: The handle of its timers, if they stand beside it.
        files: The files of both.
        is_mended: Whether an earlier run has written it, and a file was damaged since.
    """

    handle: StoredKeyedHandle | None
    reports: list[Any] = field(default_factory=list)
    timers: KeyGroupsStateHandle | None = None
    files: KnownFiles = field(default_factory=dict)
    is_mended: bool = False


class RecordedStreams:
    """The streams of one operator that are whole, in the record of the output. Any process may
    write one of them.
    """

    def __init__(self, target: StateFiles, number: int) -> None:
        self._target = target
        self._number = number

    def has(self, place: int) -> bool:
        """Whether an earlier run has written the stream at a place; its files may be damaged."""
        return self._entry(place) is not None

    def written(
        self,
        place: int,
        write: Callable[[StateFiles, list[Any]], StoredKeyedHandle | None],
        units: Sequence[Unit] = (),
    ) -> KnownStream:
        """The stream at a place, unless an earlier run has written it and all its files are here.

        Args:
            place: The place.
            write: Writes it into the files of its part of the work, and gives its handle.
            units: Its units: nothing needs what they gave any more.
        """
        entry, target = self._entry(place), self._target.at(self._number + 1 + place)
        if entry is not None and target.holds(entry.facts["files"]):
            data = DataInput(entry.data)
            handle, timers = read_keyed_handle(data), read_keyed_handle(data)
            assert handle is None or isinstance(handle, StoredKeyedHandle)
            assert timers is None or isinstance(timers, KeyGroupsStateHandle)
            return KnownStream(handle, entry.facts["reports"], timers, entry.facts["files"])
        if target.record is not None:
            target.record.check_owner()  # the files of one that took over have the same names
        stream = KnownStream(None, is_mended=entry is not None)
        stream.handle = write(target, stream.reports)
        stream.timers = next(iter((target.heap_timers or {}).values()), None)
        stream.files = target.known(_files_of(stream))
        self._keep(place, stream, units)
        return stream

    def take(self, stream: KnownStream) -> StoredKeyedHandle | None:
        """Makes a stream that some process has written one of the output; gives its handle."""
        target, timers = self._target, stream.timers
        target.learn_known(stream.files)
        if timers is not None and target.heap_timers is not None:
            target.heap_timers[timers.key_group_range] = timers
        if stream.is_mended and target.record is not None:
            target.record.keeps_checks = False
        return stream.handle

    def _entry(self, place: int) -> Entry | None:
        record = self._target.record
        if record is None or not record.continues:
            return None
        return record.entries.get(self._name(place))

    def _keep(self, place: int, stream: KnownStream, units: Sequence[Unit]) -> None:
        record = self._target.record
        if record is None:
            return
        record.check_owner()
        out = DataOutput()
        for handle in (stream.handle, stream.timers):
            write_keyed_handle(out, handle)
        facts = {"files": stream.files, "reports": stream.reports}
        record.entries.keep(self._name(place), facts, [out.to_bytes()])
        record.entries.forget(unit_name(self._number, unit) for unit in units)

    def _name(self, place: int) -> str:
        return f"stream-{self._number}-{place}"


def _files_of(stream: KnownStream) -> Iterator[str]:
    for handle in (stream.handle, stream.timers):
        for part in [] if handle is None else keyed_state_streams(handle):
            if isinstance(part, RelativeFileStateHandle):
                yield part.relative_path
