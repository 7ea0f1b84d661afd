"""Writes keyed state in canonical form, unit by unit: some key groups of one new stream.

A unit is a pure function from its key groups to their sections, in this process or in one of a
pool. The sections come back in order, and this process writes them, so the bytes are the same with
any number of processes. Where keys get other key groups, the units read, and the sections are put
together here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from dstl_core.codec.data_io import DataOutput
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
from dstl_core.savepoint.access.units import Unit
from dstl_core.savepoint.edit.recorded_units import (
    Facts,
    KnownStream,
    RecordedStreams,
    RunsForm,
    run_recorded,
)
from dstl_core.savepoint.edit.rewriting import Output
from dstl_core.savepoint.edit.trial import Trial
from dstl_core.savepoint.read.entry_reader import BYTES_AT_ONCE
from dstl_core.savepoint.read.keyed_copy import RunList, add_states
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.read.state_parts import StatesOf
from dstl_core.savepoint.write.folder import StateFiles, StoredKeyedHandle
from dstl_core.savepoint.write.work_record import Entry
from dstl_core.state.columns.keyed_sections import (
    WRITE_MEMORY,
    KeyedSections,
    KeyedStream,
    StateRuns,
)
from dstl_core.state.columns.progress import Portion

Handles = list[StoredKeyedHandle | None]


@dataclass(frozen=True)
class Sections:
    """What a unit gives.

    Args:
        parts: A section for each of its key groups, in order; empty without records.
        report: What else the author of the unit wants to know, as JSON values: a record keeps it.
    """

    parts: list[bytes]
    report: Any = None


class SectionsForm:
    """How the sections of a unit are kept."""

    def pack(self, result: Sections) -> tuple[Facts, Iterable[bytes | memoryview]]:
        return {"sizes": [*map(len, result.parts)], "report": result.report}, result.parts

    def unpack(self, entry: Entry) -> Sections:
        parts, at = [], 0
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
    """

    header: KeyedBackendHeader
    key_groups: KeyGroupRange
    max_parallelism: int
    size: int
    source: KeyedStateHandle | None = None
    keep_header: bool = False

    def keyed(self, sections: Iterable[bytes]) -> KeyedStream:
        prefix_bytes = key_group_prefix_bytes(self.max_parallelism)
        return KeyedStream(self.header, self.key_groups, prefix_bytes, sections)

    def empty(self) -> KeyedStream:
        return self.keyed([b""] * len(self.key_groups))


def units_of_range(place: int, key_groups: KeyGroupRange, size: int) -> list[Unit]:
    """Divides key groups that have some size into units, by the bytes that are read at once."""
    total = len(key_groups)
    count = max(1, min(total, -(-size // BYTES_AT_ONCE)))
    return [Unit(place, own, size * len(own) // total) for own in divided(key_groups, count)]


def _ignore(report: Any) -> None:
    """Nothing is to be known of the units."""


def write_streams(
    streams: Sequence[NewStream | None],
    task: Callable[[Unit], Sections],
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
    target = output.target
    if output.trial is not None:
        return _tried(streams, task, output.trial)
    known = RecordedStreams(target)
    done = {place: known.get(place) for place, stream in enumerate(streams) if stream is not None}
    units = {
        place: units_of_range(place, stream.key_groups, stream.size)
        for place, stream in enumerate(streams)
        if stream is not None and done[place] is None
    }
    size = sum(stream.size for place, stream in enumerate(streams) if stream and place in units)
    every = [unit for own in units.values() for unit in own]
    results = run_recorded(task, every, size, output.jobs, target, SectionsForm(), known.number)

    def sections(count: int, reports: list[Any]) -> Iterator[bytes]:
        for _ in range(count):
            unit, result = next(results)
            reports.append(result.report)
            yield from result.parts
            target.advance(unit.size)

    handles = Handles()
    with closing(results):
        for place, stream in enumerate(streams):
            target.names.begin()
            if stream is None:
                handles.append(None)
                continue
            whole = done[place]
            if whole is None:
                whole = KnownStream(None)
                keyed = stream.keyed(sections(len(units[place]), whole.reports))
                whole.handle = target.add_keyed_stream(keyed, keep_header=stream.keep_header)
                known.keep(place, whole, units[place])
            else:
                target.advance(stream.size)
            handles.append(whole.handle)
            for report in whole.reports:
                take(report)
    return _with_header(streams, handles, target)


def _tried(
    streams: Sequence[NewStream | None], task: Callable[[Unit], Sections], trial: Trial
) -> Handles:
    units = [
        unit
        for place, stream in enumerate(streams)
        if stream is not None
        for unit in units_of_range(place, stream.key_groups, stream.size)
    ]
    parts: dict[int, dict[int, bytes]] = {}
    for unit, result in trial.results(task, units):
        parts.setdefault(unit.handle, {}).update(zip(unit.key_groups, result.parts, strict=True))

    headers = [0 if stream is None else _header_size(stream.header) for stream in streams]

    def write(files: StateFiles) -> int:
        for place, own in parts.items():
            stream = streams[place]
            assert stream is not None  # it has units
            sections = (own.get(key_group, b"") for key_group in stream.key_groups)
            files.add_keyed_stream(stream.keyed(sections), keep_header=True)
        return sum(headers[place] for place in parts)

    trial.write(write, sum(headers))
    trial.beside = max([trial.beside, *(stream.size for stream in streams if stream is not None)])
    return [None] * len(streams)


def _header_size(header: KeyedBackendHeader) -> int:
    out = DataOutput()
    write_keyed_header(out, header)
    return len(out.to_bytes())


def _with_header(
    streams: Sequence[NewStream | None], handles: Handles, target: StateFiles
) -> Handles:
    """The handles; if no stream has a record, the first one has the header."""
    first = next((stream for stream in streams if stream is not None), None)
    if first is not None and not any(handles):
        target.names.begin()
        handles[streams.index(first)] = target.add_keyed_stream(first.empty(), keep_header=True)
    return handles


def range_sections(
    sources: Sequence[StatesOf],
    header: KeyedBackendHeader,
    max_parallelism: int,
    own: KeyGroupRange,
    only: KeyedStateHandle | None = None,
) -> KeyedSections:
    """The records of some key groups, which stay where they are. The caller closes it."""
    # One operator has every key once; two operators may have equal timers.
    sections = KeyedSections(header, own, max_parallelism, check_duplicates=len(sources) > 1)
    for source in sources:
        add_states(sections, source, max_parallelism, own, only)
    return sections


def copied_sections(
    sources: Sequence[StatesOf],
    streams: Sequence[NewStream | None],
    unit: Unit,
) -> Sections:
    """The task that copies records as bytes."""
    stream = streams[unit.handle]
    assert stream is not None  # it has units
    with range_sections(
        sources, stream.header, stream.max_parallelism, unit.key_groups, stream.source
    ) as sections:
        parts = [sections.section(key_group) for key_group in unit.key_groups]
    return Sections(parts, _left_out(sources))


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
    read: Callable[[Unit], tuple[list[StateRuns], Any]]
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
            for _, (runs, _) in tried:
                for part in runs:
                    sections.add(part)
                    held += len(part.data)
            output.trial.holds(held, sections.memory)
            return portion
        number = output.target.names.begin()
        runs_of_units = run_recorded(
            self.read, units, size, output.jobs, output.target, RunsForm(), number
        )
        with closing(runs_of_units) as results:
            for unit, (runs, report) in results:
                for part in runs:
                    sections.add(part)
                self.take(report)
                portion.add(unit.size // 2)
        return portion


def write_sections(
    sections: KeyedSections, ranges: Sequence[KeyGroupRange], output: Output, portion: Portion
) -> Handles:
    """Writes a stream for each range of key groups."""
    if output.trial is not None:
        headers = len(ranges) * _header_size(sections.header)

        def write(files: StateFiles) -> int:
            for own in ranges:
                files.add_keyed_stream(sections.stream(own), keep_header=True)
            return headers

        output.trial.write(write, headers)
        return [None] * len(ranges)
    handles, known = Handles(), RecordedStreams(output.target)
    for place, own in enumerate(ranges):
        output.target.names.begin()
        whole = known.get(place)
        if whole is None:
            whole = KnownStream(output.target.add_keyed_stream(sections.stream(own)))
            known.keep(place, whole)
        handles.append(whole.handle)
        portion.reach((1 + (place + 1) / len(ranges)) / 2)
    output.target.names.begin()
    if handles and not any(handles):
        empty = [b""] * len(ranges[0])
        first = KeyedStream(sections.header, ranges[0], sections.prefix_bytes, empty)
        handles[0] = output.target.add_keyed_stream(first, keep_header=True)
    return handles


def shuffle_of(
    sources: Sequence[StatesOf], header: KeyedBackendHeader, max_parallelism: int
) -> Shuffle:
    """Records that are copied as bytes into other key groups.

    Raises:
        NotInColumnsError: While it is read: the key group of a key cannot be computed in columns.
    """

    def read(unit: Unit) -> tuple[list[StateRuns], list[Counter[str] | None]]:
        listed = RunList(header, KeyGroupRange(0, max_parallelism - 1))
        add_states(listed, sources[unit.handle], max_parallelism, unit.key_groups)
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
