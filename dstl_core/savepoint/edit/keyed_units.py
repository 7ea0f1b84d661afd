"""Writes keyed state in canonical form, unit by unit: some key groups of one new stream.

A unit is a pure function from its key groups to their sections, in any process. The sections of a
stream are put together in order, by one process of those that do units, so the bytes are the same
with any number of them. It does the units, too, unless there are fewer streams than processes: then
all share the units of a stream first. Where keys get other key groups, the units read, and the
sections are put together here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from dstl_core.codec.columnar.keyed.record_digests import RecordDigests
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.keyed_canonical import END_OF_SECTION
from dstl_core.codec.snappy_frames import PIECE_BYTES, compressed_pieces
from dstl_core.codec.state_meta import KeyedBackendHeader, write_keyed_header
from dstl_core.model.handle import (
    KeyedStateHandle,
)
from dstl_core.model.key_group import (
    KeyGroupRange,
    compute_key_group_range_for_operator_index,
    divided,
    key_group_prefix_bytes,
)
from dstl_core.savepoint.access.unit_pool import run_units
from dstl_core.savepoint.access.units import Jobs, Unit, UnitRunner, jobs_for, workers_of
from dstl_core.savepoint.edit.recorded_units import (
    Facts,
    KnownStream,
    PlacedUnits,
    Recorded,
    RecordedStreams,
    RunsForm,
    Streamed,
    packed_runs,
    run_recorded,
    unpacked_runs,
)
from dstl_core.savepoint.edit.rewriting import Output
from dstl_core.savepoint.read.entry_reader import BYTES_AT_ONCE
from dstl_core.savepoint.read.keyed_copy import (
    RunList,
    add_states,
    are_in_order,
    moved_runs,
    ordered_runs,
)
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.read.state_parts import StatesOf
from dstl_core.savepoint.read.stored_records import is_large
from dstl_core.savepoint.write.folder import StateFiles, StoredKeyedHandle
from dstl_core.savepoint.write.work_record import Entry, NumberedPiece, WorkRecord
from dstl_core.state.columns.keyed_sections import (
    WRITE_MEMORY,
    KeyedSections,
    KeyedStream,
    StateRuns,
    StreamSection,
)
from dstl_core.state.columns.progress import Portion

Handles = list[StoredKeyedHandle | None]
_UNEVEN = 1.1
"""How much more than its share of the work a process may get in whole streams."""


@dataclass(frozen=True)
class Sections:
    """What a unit gives.

    Args:
        parts: A section for each of its key groups, in order, whole or in pieces; empty without
            records.
        report: What else the author of the unit wants to know, as JSON values: a record keeps it.
    """

    parts: Sequence[bytes | Sequence[bytes]]
    report: Any = None


SectionsTask = Callable[[Unit], Sections | Streamed]


class SectionsForm:
    """How the sections of a unit are kept."""

    def pack(self, result: Sections) -> tuple[Facts, Iterable[bytes | memoryview]]:
        parts = [[part] if isinstance(part, bytes) else part for part in result.parts]
        sizes = [sum(map(len, part)) for part in parts]
        return {"sizes": sizes, "report": result.report}, chain.from_iterable(parts)

    def unpack(self, entry: Entry) -> Sections:
        parts: list[bytes] = []
        at = 0
        for size in entry.facts["sizes"]:
            parts.append(entry.data[at : at + size])
            at += size
        return Sections(parts, entry.facts["report"])


@dataclass(frozen=True)
class NewStream:
    """The keyed state of one subtask of the result.

    Args:
        header: Its states.
        key_groups: Its key groups.
        max_parallelism: Number of key groups of the operator.
        size: About the bytes that its units read.
        source: The only handle that they read; None for all of the operator.
        keep_header: Whether it is written, too, if it has no record.
        needs_order: Whether the records of a state must come in the order of their keys, as files
            of RocksDB have them, for a large key group to be written in pieces.
    """

    header: KeyedBackendHeader
    key_groups: KeyGroupRange
    max_parallelism: int
    size: int
    source: KeyedStateHandle | None = None
    keep_header: bool = False
    needs_order: bool = False

    def keyed(self, sections: Iterable[StreamSection]) -> KeyedStream:
        prefix_bytes = key_group_prefix_bytes(self.max_parallelism)
        what = self.header, self.key_groups, prefix_bytes
        return KeyedStream(*what, sections, has_order=self.needs_order)

    def empty(self) -> KeyedStream:
        return self.keyed([b""] * len(self.key_groups))


def units_of_range(place: int, key_groups: KeyGroupRange, size: int) -> list[Unit]:
    """Divides key groups that have some size into units, by the bytes that are read at once."""
    total = len(key_groups)
    count = max(1, min(total, -(-size // BYTES_AT_ONCE)))
    return [Unit(place, part, size * len(part) // total) for part in divided(key_groups, count)]


def _ignore(report: Any) -> None:
    """Nothing is to be known of the units."""


def write_streams(
    streams: Sequence[NewStream | None],
    task: SectionsTask,
    output: Output,
    take: Callable[[Any], None] = _ignore,
) -> Handles:
    """Writes the keyed state of the subtasks of an operator.

    Args:
        streams: The stream of each subtask; None for none.
        task: Gives the sections of a unit, whose ``handle`` is the place of its stream.
        output: Where they go.
        take: Gets the report of each unit, in order.

    Returns:
        The handle of each subtask. If no stream has a record, the first one has the header.
    """
    every = _known_streams(streams, task, output)
    for report in chain.from_iterable(each.reports for each in every):
        take(report)
    return [each.handle for each in every]


def _known_streams(
    streams: Sequence[NewStream | None], task: SectionsTask, output: Output
) -> list[KnownStream]:
    target = output.target
    if output.trial is not None:
        _try(streams, task, output)
        return [KnownStream(None) for _ in streams]
    number = target.names.begin()
    for _ in streams:
        target.names.begin()
    processes, whole = _processes(streams, output.jobs), _whole_units(streams)
    is_here = processes == 1
    files = target if is_here else target.elsewhere()
    known = RecordedStreams(target, number)
    done = {unit.handle for unit in whole if known.has(unit.handle)}
    shared = dict.fromkeys(range(len(streams)), 0)
    if files.record is not None:
        missing = [unit for unit in whole if unit.handle not in done]
        units = _shared_units(streams, missing, workers_of(processes))
        recorded = Recorded(task, files.record.entries, number, SectionsForm(), returns=False)
        with closing(run_units(recorded, units, processes)) as runs:
            for unit, _ in runs:
                target.advance(unit.size // 2)
                shared[unit.handle] += unit.size // 2
    if not is_here:
        whole.sort(key=lambda unit: shared[unit.handle] - unit.size)  # what takes longest is first
    written = [KnownStream(None) for _ in streams]
    write = _StreamTask(streams, task, files, number)
    with closing(run_units(write, whole, processes)) as results:
        for unit, stream in results:
            known.take(stream)
            if not is_here or (unit.handle in done and not stream.is_mended):
                target.advance(unit.size - shared[unit.handle])
            written[unit.handle] = stream
    if callable(processes):  # it may try a task twice
        parts = range(number + 1, number + 1 + len(streams))
        target.drop_other_tries(parts, {name for each in written for name in each.files})
    _keep_header(streams, written, target)
    return written


def _processes(streams: Sequence[NewStream | None], jobs: Jobs) -> int | UnitRunner:
    return jobs_for(sum(stream.size for stream in streams if stream is not None), jobs)


def _whole_units(streams: Sequence[NewStream | None]) -> list[Unit]:
    return [
        Unit(place, stream.key_groups, stream.size)
        for place, stream in enumerate(streams)
        if stream is not None
    ]


def _shared_units(
    streams: Sequence[NewStream | None], whole: Sequence[Unit], workers: int
) -> list[Unit]:
    """The units of streams that several processes share. Each one would keep a process busy when
    the others have nothing left to do.
    """
    loads, shared = [0] * workers, set[int]()
    most = _UNEVEN * sum(unit.size for unit in whole) / workers
    for unit in sorted(whole, key=lambda unit: -unit.size):
        least = loads.index(min(loads))
        if loads[least] + unit.size <= most:
            loads[least] += unit.size
        else:
            shared.add(unit.handle)
    return [
        unit
        for place, stream in enumerate(streams)
        if stream is not None and place in shared
        for unit in units_of_range(place, stream.key_groups, stream.size)
    ]


@dataclass(frozen=True)
class _StreamTask:
    """Writes a stream, in whatever process it runs. The unit is all of it.

    Args:
        streams: The streams.
        task: Gives the sections of a smaller unit, if they are not kept.
        files: Where it goes.
        number: The number of this part of the work.
    """

    streams: Sequence[NewStream | None]
    task: SectionsTask
    files: StateFiles
    number: int

    def __call__(self, unit: Unit) -> KnownStream:
        stream = self.streams[unit.handle]
        assert stream is not None  # it has a unit
        units = units_of_range(unit.handle, stream.key_groups, stream.size)

        def write(files: StateFiles, reports: list[Any]) -> StoredKeyedHandle | None:
            placed = self._placed(files, stream)
            keyed = stream.keyed(self._sections(units, reports, placed))
            return files.add_keyed_stream(keyed, keep_header=stream.keep_header)

        return RecordedStreams(self.files, self.number).written(unit.handle, write, units)

    def _recorded(self, record: WorkRecord) -> Recorded[Sections]:
        return Recorded(self.task, record.entries, self.number, SectionsForm(), returns=True)

    def _placed(self, files: StateFiles, stream: NewStream) -> PlacedUnits[Sections] | None:
        if files.record is None or not files.goes_on_in_streams:
            return None
        start = _header_size(stream.header)
        return PlacedUnits(self._recorded(files.record), files.names.following, start)

    def _sections(
        self, units: Sequence[Unit], reports: list[Any], placed: PlacedUnits[Sections] | None
    ) -> Iterator[StreamSection]:
        for unit, result in self._results(units, placed):
            sections, report = _taken(unit, result)
            yield from sections if placed is None else placed.noted(unit, sections, report)
            reports.append(report())
            self.files.advance(unit.size)

    def _results(
        self, units: Sequence[Unit], placed: PlacedUnits[Sections] | None
    ) -> Iterable[tuple[Unit, Sections | Streamed]]:
        if placed is not None:
            return ((unit, placed.result(unit)) for unit in units)
        record = self.files.record
        if record is None:
            return ((unit, self.task(unit)) for unit in units)
        return self._recorded(record).results(units)


def _taken(
    unit: Unit, result: Sections | Streamed
) -> tuple[Iterable[StreamSection], Callable[[], Any]]:
    """The sections of a unit, and its report once they are read."""
    if isinstance(result, Streamed):
        return result.sections(unit.key_groups), result.report
    return result.parts, lambda: result.report


def _try(streams: Sequence[NewStream | None], task: SectionsTask, output: Output) -> None:
    trial = output.trial
    assert trial is not None  # it is one
    units = [
        unit
        for place, stream in enumerate(streams)
        if stream is not None
        for unit in units_of_range(place, stream.key_groups, stream.size)
    ]
    parts: dict[int, dict[int, StreamSection]] = {}
    in_pieces: set[Unit] = set()
    shared = {unit.handle for unit in _shared_of(streams, output.jobs)}

    def in_place(unit: Unit) -> bool:
        return trial.files.goes_on_in_streams and unit.handle not in shared

    def tried(unit: Unit) -> Sections:
        stream, result = streams[unit.handle], task(unit)
        if not isinstance(result, Streamed):
            return result
        assert stream is not None  # it has units
        in_pieces.add(unit)
        sections = result.sections(unit.key_groups)
        return Sections([*map(_whole if stream.needs_order else _measured, sections)])

    for unit, result in trial.results(tried, units):
        parts.setdefault(unit.handle, {}).update(zip(unit.key_groups, result.parts, strict=True))
        if unit in in_pieces and not in_place(unit):
            trial.keeps_pieces(sum(map(_size_of, result.parts)))

    if trial.files.form == "native":
        for place, sections in parts.items():
            stream = streams[place]
            assert stream is not None  # it has units
            trial.builds(stream.size, sum(map(_size_of, sections.values())))

    headers = [0 if stream is None else _header_size(stream.header) for stream in streams]

    def write(files: StateFiles) -> int:
        for place, tried_ones in parts.items():
            stream = streams[place]
            assert stream is not None  # it has units
            sections = (tried_ones.get(key_group, b"") for key_group in stream.key_groups)
            files.add_keyed_stream(stream.keyed(sections), keep_header=True)
        return sum(headers[place] for place in parts)

    trial.write(write, sum(headers))
    trial.beside = max(trial.beside, _kept_at_once(streams, output))


def _shared_of(streams: Sequence[NewStream | None], jobs: Jobs) -> list[Unit]:
    workers = workers_of(_processes(streams, jobs))
    return _shared_units(streams, _whole_units(streams), workers)


def _kept_at_once(streams: Sequence[NewStream | None], output: Output) -> int:
    """Bytes that units have kept at most, beside the files, while streams are written."""
    shared = _shared_of(streams, output.jobs)
    kept = sum(unit.size for unit in shared)
    if output.target.goes_on_in_streams:
        return kept
    others = {unit.handle for unit in shared}
    sizes = sorted(unit.size for unit in _whole_units(streams) if unit.handle not in others)
    return kept + sum(sizes[-workers_of(_processes(streams, output.jobs)) :])


def _whole(section: StreamSection) -> bytes | list[bytes]:
    return section if isinstance(section, bytes) else [bytes(piece) for piece in section]


def _measured(section: StreamSection) -> list[bytes]:
    """Bytes of the size of a section, which is not held."""
    size = _size_of(section)
    zeros = bytes(PIECE_BYTES)
    return [zeros[: min(PIECE_BYTES, size - at)] for at in range(0, size, PIECE_BYTES)]


def _size_of(section: StreamSection) -> int:
    return sum(map(len, [section] if isinstance(section, bytes) else section))


def _header_size(header: KeyedBackendHeader) -> int:
    out = DataOutput()
    write_keyed_header(out, header)
    return len(out.to_bytes())


def _keep_header(
    streams: Sequence[NewStream | None], written: Sequence[KnownStream], target: StateFiles
) -> None:
    """If no stream has a record, the first one gets the header."""
    first = next((stream for stream in streams if stream is not None), None)
    if first is not None and not any(each.handle for each in written):
        target.names.begin()
        whole = written[streams.index(first)]
        whole.handle = target.add_keyed_stream(first.empty(), keep_header=True)


def copy_streams(
    sources: Sequence[StatesOf], streams: Sequence[NewStream | None], output: Output
) -> Handles:
    """Writes streams whose records are copies, byte for byte, in the key groups that they have.

    Args:
        sources: Where the records come from.
        streams: The stream of each subtask; None for none.
        output: Where they go. It learns which records each handle has to have.
    """
    take, target = counted(sources), output.target
    every = _known_streams(streams, partial(copied_sections, sources, streams), output)
    for whole in every:
        digests = RecordDigests()
        for left_out, states in whole.reports:
            take(left_out)
            digests.update(states)
        if whole.handle is not None and len(sources) == 1:  # those of two may be joined
            target.copied_records[whole.handle] = digests.states
    return [each.handle for each in every]


def range_sections(
    sources: Sequence[StatesOf],
    header: KeyedBackendHeader,
    max_parallelism: int,
    key_groups: KeyGroupRange,
    only: KeyedStateHandle | None = None,
    digests: RecordDigests | None = None,
) -> KeyedSections:
    """The records of some key groups, which stay where they are. The caller closes it."""
    # One operator has every key once; two operators may have equal timers.
    sections = KeyedSections(header, key_groups, max_parallelism, check_duplicates=len(sources) > 1)
    for source in sources:
        add_states(sections, source, max_parallelism, key_groups, only, digests)
    return sections


def copied_sections(
    sources: Sequence[StatesOf],
    streams: Sequence[NewStream | None],
    unit: Unit,
) -> Sections | Streamed:
    """The task that copies records as bytes."""
    stream = streams[unit.handle]
    assert stream is not None  # it has units
    first, key_groups, digests = sources[0], unit.key_groups, RecordDigests()
    is_streamed = len(sources) == 1 and is_large(first.operator, key_groups, stream.source)
    if is_streamed and stream.needs_order:
        is_streamed = are_in_order(first, key_groups, stream.source)
    if is_streamed:
        pieces = _copied_pieces(first, stream, key_groups, digests)
        return Streamed(pieces, lambda: [_left_out(sources), digests.states])
    with range_sections(
        sources, stream.header, stream.max_parallelism, key_groups, stream.source, digests
    ) as sections:
        parts = [sections.section_pieces(key_group) for key_group in key_groups]
    return Sections(parts, [_left_out(sources), digests.states])


def _copied_pieces(
    source: StatesOf, stream: NewStream, key_groups: KeyGroupRange, digests: RecordDigests
) -> Iterator[NumberedPiece]:
    """The sections of some key groups, by key group, in pieces of bounded size."""
    header, total = stream.header, stream.max_parallelism
    for key_group in key_groups:
        runs = ordered_runs(source, header, total, key_group, stream.source, digests)
        for first in runs:
            parts: Iterable[bytes | memoryview] = chain([first], runs, [END_OF_SECTION])
            for piece in compressed_pieces(parts) if header.compressed else parts:
                yield key_group, piece


def _left_out(sources: Sequence[StatesOf]) -> list[Counter[str] | None]:
    return [None if source.select is None else source.select.take() for source in sources]


def counted(sources: Sequence[StatesOf]) -> Callable[[list[Counter[str] | None]], None]:
    """Takes the reports of ``copied_sections`` and ``shuffle_of``."""

    def take(reports: list[Counter[str] | None]) -> None:
        for source, report in zip(sources, reports, strict=True):
            if source.select is not None and report is not None:
                source.select.give(report)

    return take


# ------------------------------------------------------------------------------ other key groups


@dataclass(frozen=True)
class Shuffle:
    """Records that get other key groups: units read them, and this process puts them together.

    Args:
        operators: The operators that have them.
        read: Gives the runs of a unit, whose ``handle`` is the place of its operator, and a report.
        take: Gets the report of each unit, in order.
    """

    operators: Sequence[OperatorCatalog]
    read: Callable[[Unit], tuple[list[StateRuns], Any] | Streamed]
    take: Callable[[Any], None] = _ignore

    @property
    def size(self) -> int:
        return sum(operator.keyed_size for operator in self.operators)

    def into(self, sections: KeyedSections, output: Output) -> Portion:
        """Reads all records. Half of their bytes count as done, the rest when they are written.

        Raises:
            StorageError: The records have no room in memory and the temporary folder.
        """
        size = sum(operator.keyed_size for operator in self.operators)
        portion = Portion(output.target.advance, size)
        sections.check_room(size)
        units = [
            unit
            for place, operator in enumerate(self.operators)
            for unit in units_of_range(
                place, KeyGroupRange(0, operator.max_parallelism - 1), operator.keyed_size
            )
        ]
        if output.trial is not None:
            tried = output.trial.results(self.read, units)
            held = 0
            for _, result in tried:
                for part in _runs_of(result):
                    sections.add(part)
                    held += len(part.data)
            limits = sections.memory, sections.packed_bytes, sections.packed_memory
            output.trial.holds(held, *limits)
            return portion
        number = output.target.names.begin()
        runs_of_units = run_recorded(
            self.read, units, size, output.jobs, output.target, RunsForm(), number
        )
        with closing(runs_of_units) as results:
            for unit, result in results:
                for part in _runs_of(result):
                    sections.add(part)
                self.take(result.report() if isinstance(result, Streamed) else result[1])
                portion.add(unit.size // 2)
        return portion


def _runs_of(result: tuple[list[StateRuns], Any] | Streamed) -> Iterable[StateRuns]:
    if not isinstance(result, Streamed):
        return result[0]
    return (unpacked_runs(memoryview(piece))[0] for _, piece in result.pieces)


def streamed_runs(runs: Iterable[StateRuns], report: Callable[[], Any]) -> Streamed:
    """What a unit of a shuffle gives that is too large for memory."""
    return Streamed(((0, b"".join(packed_runs(run))) for run in runs), report)


def write_sections(
    sections: KeyedSections, ranges: Sequence[KeyGroupRange], output: Output, portion: Portion
) -> Handles:
    """Writes a stream for each range of key groups."""
    if output.trial is not None:
        headers = len(ranges) * _header_size(sections.header)

        def write(files: StateFiles) -> int:
            for key_groups in ranges:
                files.add_keyed_stream(sections.stream(key_groups), keep_header=True)
            return headers

        output.trial.write(write, headers)
        return [None] * len(ranges)
    handles, names = Handles(), output.target.names
    known = RecordedStreams(output.target, names.begin())
    for place, key_groups in enumerate(ranges):
        names.begin()
        stream = known.written(place, partial(_write_sections, sections, key_groups))
        handles.append(known.take(stream))
        portion.reach((1 + (place + 1) / len(ranges)) / 2)
    names.begin()
    if handles and not any(handles):
        empty = [b""] * len(ranges[0])
        first = KeyedStream(sections.header, ranges[0], sections.prefix_bytes, empty)
        handles[0] = output.target.add_keyed_stream(first, keep_header=True)
    return handles


def _write_sections(
    sections: KeyedSections, key_groups: KeyGroupRange, files: StateFiles, _: list[Any]
) -> StoredKeyedHandle | None:
    return files.add_keyed_stream(sections.stream(key_groups))


def shuffle_of(
    sources: Sequence[StatesOf], header: KeyedBackendHeader, max_parallelism: int
) -> Shuffle:
    """Records that are copied as bytes into other key groups.

    Raises:
        NotInColumnsError: While it is read: the key group of a key cannot be computed in columns.
    """

    def read(unit: Unit) -> tuple[list[StateRuns], list[Counter[str] | None]] | Streamed:
        source = sources[unit.handle]
        listed = RunList(header, KeyGroupRange(0, max_parallelism - 1))
        if is_large(source.operator, unit.key_groups):
            runs = moved_runs(listed, source, max_parallelism, unit.key_groups)
            return streamed_runs(runs, lambda: _left_out(sources))
        add_states(listed, source, max_parallelism, unit.key_groups)
        return listed.runs, _left_out(sources)

    return Shuffle([source.operator for source in sources], read, counted(sources))


def sections_for(
    sources: Sequence[StatesOf],
    header: KeyedBackendHeader,
    max_parallelism: int,
    memory: int = WRITE_MEMORY,
) -> KeyedSections:
    """Sections for all records of some states. Beyond ``memory``, they go to a temporary file."""
    return KeyedSections(
        header,
        KeyGroupRange(0, max_parallelism - 1),
        max_parallelism,
        memory=memory,
        check_duplicates=len(sources) > 1,
    )


def key_group_ranges_of(max_parallelism: int, parallelism: int) -> list[KeyGroupRange]:
    return [
        compute_key_group_range_for_operator_index(max_parallelism, parallelism, index)
        for index in range(parallelism)
    ]
