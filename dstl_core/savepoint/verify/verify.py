"""Verifies a snapshot: every file exists, every record decodes, every key is in its key group.

Bytes that only Java classes of the job can read cannot be checked; they cause a note, not a
finding.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dstl_core.checkpoint.store.metadata_file import read_sidecar
from dstl_core.codec.columnar.keyed.record_digests import RecordDigests
from dstl_core.codec.metadata.checkpoint_kind import checkpoint_kind
from dstl_core.model.checkpoint import OperatorSubtaskState, keyed_state_streams
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChannelStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from dstl_core.model.key_group import (
    compute_key_group_range_for_operator_index,
)
from dstl_core.savepoint.access.summary import streams_of
from dstl_core.savepoint.access.unit_pool import run_units
from dstl_core.savepoint.access.units import Jobs, Unit, jobs_for, units_to_count
from dstl_core.savepoint.read.entries import summarize, unread_part
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.verify.range_check import (
    FAULTS,
    MAX_FINDINGS_OF_A_KIND,
    UNREAD,
    UNREADABLE_GROUPS,
    RangeCheck,
    RangeReport,
    ReportForm,
    digest_problem,
    unread_values,
)
from dstl_core.savepoint.write.recorded_runner import RecordedRunner, record_in
from dstl_core.storage.handle_resolver import ResolvedStream
from dstl_core.storage.location import METADATA_FILE_NAME, SIDECAR_FILE_NAME, Location
from dstl_core.storage.read_ahead import begun
from dstl_core.storage.written_files import sha256_of


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and its place."""

    problem: str
    operator: str | None = None
    subtask: int | None = None
    state: str | None = None

    def __str__(self) -> str:
        where = [
            f"{name} {value!r}"
            for name, value in (
                ("operator", self.operator),
                ("subtask", self.subtask),
                ("state", self.state),
            )
            if value is not None
        ]
        return f"{', '.join(where)}: {self.problem}" if where else self.problem

    def to_json(self) -> dict[str, Any]:
        return {
            "problem": self.problem,
            "operator": self.operator,
            "subtask": self.subtask,
            "state": self.state,
        }


@dataclass
class Report:
    """The result of a check.

    ``keys_checked`` counts keys with a known hash. ``digests_checked`` counts files whose bytes
    were compared with the sha256 that their writer recorded. ``records`` counts the records of
    keyed state that were read, by operator and state: each entry of a map is one. ``incomplete``
    names the states, or None for all of an operator, that have records which only Java can read.
    ``digests`` has those of copied records, by operator, where kernels read them. ``unread`` has a
    sentence about values that were not read, by operator and state.
    """

    path: str
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    file_names: set[str] = field(default_factory=set)
    operators: int = 0
    entries: int = 0
    keys_checked: int = 0
    digests_checked: int = 0
    records: Counter[tuple[str, str]] = field(default_factory=Counter)
    incomplete: set[tuple[str, str | None]] = field(default_factory=set)
    digests: dict[str, RecordDigests] = field(default_factory=dict)
    unread: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def files(self) -> int:
        return len(self.file_names)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "ok": not self.findings,
            "findings": [finding.to_json() for finding in self.findings],
            "notes": self.notes,
            "operators": self.operators,
            "files": self.files,
            "entries": self.entries,
            "keys_checked": self.keys_checked,
            "digests_checked": self.digests_checked,
        }


def verify_snapshot(
    snapshot: Snapshot,
    on_progress: Callable[[int], None] = lambda _: None,
    *,
    jobs: Jobs = 1,
    work: str | os.PathLike[str] | None = None,
    self_checking: Set[StreamStateHandle] = frozenset(),
    copies: Set[KeyedStateHandle] = frozenset(),
    is_sampled: bool = False,
) -> Report:
    """Checks a whole snapshot.

    Args:
        snapshot: The snapshot.
        on_progress: Called with the bytes of state that were read.
        jobs: Number of processes that read keyed state; None: all cores if the state is large.
        work: A folder for a record of what is done: after a kill, the same call goes on.
        self_checking: Streams all of whose bytes have checksums that reading them checks. They are
            not read once more for the sha256 of their files.
        copies: Keyed state whose records are not decoded, if it is large: the report has their
            digests.
        is_sampled: Whether it is enough to decode some of the values without a columnar form, whose
            bytes have checksums.

    Raises:
        SavepointError: The folder ``work`` has a record of other work, or another run is at it.
        StorageError: A store gave no answer. It says nothing about the snapshot.
        DstlError: A process ended before its work did.
    """
    report = Report(str(snapshot.folder))
    with _reported(report, Finding("")):
        checkpoint_kind(snapshot.metadata.properties)
    with _reported(report, Finding("")):
        _check_metadata(snapshot, report)
    plan = ["verify", snapshot.loaded_with]
    with record_in(work, [snapshot], plan) as record:
        if record is not None:
            jobs = RecordedRunner(record, jobs, ReportForm())
        for operator in snapshot.operators:
            check = _OperatorCheck(operator, report, on_progress, jobs, self_checking, copies)
            check.is_sampled = is_sampled
            check.run()
            report.operators += 1
    return report


def _check_metadata(snapshot: Snapshot, report: Report) -> None:
    """Compares ``_metadata`` with the sha256 that its writer recorded."""
    if snapshot.file.sidecar is not None:
        return
    other = read_sidecar(snapshot.file_io, snapshot.folder)
    if other is not None:
        report.findings.append(
            Finding(
                f"{METADATA_FILE_NAME} differs from what was written: expected sha256 "
                f"{other.metadata_sha256}, got {snapshot.file.sha256}; if another tool has changed "
                f"it on purpose, delete {SIDECAR_FILE_NAME} beside it"
            )
        )


def _log_streams(handle: KeyedStateHandle) -> Iterator[StreamStateHandle]:
    if isinstance(handle, ChangelogStateBackendHandle):
        for log in handle.non_materialized:
            yield from keyed_state_streams(log)


class _reported:
    """Converts a fault of the snapshot to a finding."""

    def __init__(self, report: Report, where: Finding) -> None:
        self._report = report
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, FAULTS):
            return False
        where = self._where
        self._report.findings.append(
            Finding(str(error), where.operator, where.subtask, where.state)
        )
        return True


class _OperatorCheck:
    """Checks one operator."""

    def __init__(
        self,
        operator: OperatorSnapshot,
        report: Report,
        on_progress: Callable[[int], None],
        jobs: Jobs,
        self_checking: Set[StreamStateHandle],
        copies: Set[KeyedStateHandle],
    ) -> None:
        self._operator = operator
        self._copies = copies
        self._digests = RecordDigests()
        self._self_checking = self_checking
        self.is_sampled = False
        self._report = report
        self._on_progress = on_progress
        self._jobs = jobs
        self._counts: Counter[tuple[str | None, str]] = Counter()
        self._sha256: dict[Location, str] = {}
        """Of files whose bytes are compared with it."""
        self._noted: set[tuple[str, ...]] = set()

    def run(self) -> None:
        self._layout()
        self._files()
        for subtask in self._operator.state.subtasks:
            self._channels(subtask)
        self._keyed()
        self._operator_state()
        for (state, kind), count in self._counts.items():
            if count > MAX_FINDINGS_OF_A_KIND:
                self._report.findings.append(
                    Finding(f"{kind}: {count} in all", self._operator.label, None, state)
                )

    def _found(
        self, kind: str, problem: str, subtask: int | None = None, state: str | None = None
    ) -> None:
        self._counts[state, kind] += 1
        if self._counts[state, kind] <= MAX_FINDINGS_OF_A_KIND:
            self._report.findings.append(Finding(problem, self._operator.label, subtask, state))

    # -------------------------------------------------------------------------------- layout

    def _layout(self) -> None:
        operator = self._operator
        seen: set[int] = set()
        for subtask in operator.state.subtasks:
            if not 0 <= subtask.index < operator.parallelism:
                self._found(
                    "subtask",
                    f"the index of a subtask is outside 0..{operator.parallelism - 1}",
                    subtask.index,
                )
                continue
            if subtask.index in seen:
                self._found("subtask", "a subtask occurs twice", subtask.index)
            seen.add(subtask.index)
            handle = subtask.managed_keyed_state
            own = compute_key_group_range_for_operator_index(
                operator.max_parallelism, operator.parallelism, subtask.index
            )
            if handle is not None and handle.key_group_range != own:
                self._found(
                    "key groups",
                    f"keyed state has the wrong key groups: expected {own}, got "
                    f"{handle.key_group_range}",
                    subtask.index,
                )

    # --------------------------------------------------------------------------------- files

    def _files(self) -> None:
        # A changelog's handles count uncompressed bytes; subtasks may share other files.
        logs = {
            stream for handle in self._operator.keyed_handles for stream in _log_streams(handle)
        }
        whole = set(self._whole_streams())
        snapshot = self._operator.snapshot
        sizes: list[tuple[StreamStateHandle, ResolvedStream, Callable[[], int | None]]] = []
        for stream in dict.fromkeys(streams_of(self._operator)):
            with _reported(self._report, Finding("", self._operator.label)):
                place = snapshot.resolver.resolve(stream)
                if place.location is not None:
                    size_of = begun(snapshot.file_io.size, place.location)
                    sizes.append((stream, place, size_of))
        for stream, place, size_of in sizes:
            assert place.location is not None  # it has a file
            with _reported(self._report, Finding("", self._operator.label)):
                self._report.file_names.add(str(place.location))
                end, size = None if stream in logs else place.end, size_of()
                if size is not None:
                    snapshot.resolver.note_size(place.location, size)
                if self._file(place.location, size, end, exact=stream in whole):
                    self._note_digest(stream, place.location)
        self._report.digests_checked += len(self._sha256)

    def _file(self, location: Location, size: int | None, end: int | None, *, exact: bool) -> bool:
        if size is None:
            self._found("file", f"a file is missing: {location}")
        elif end is not None and (size < end or (exact and size > end)):
            self._found(
                "file",
                f"the size of a file differs from its handle: expected {end} bytes, got {size}: "
                f"{location}",
            )
        else:
            return True
        return False

    def _note_digest(self, stream: StreamStateHandle, location: Location) -> None:
        """Keeps the sha256 that the writer of a file recorded, if any."""
        sidecar = self._operator.snapshot.file.sidecar
        match stream:
            case FileStateHandle(path) | RelativeFileStateHandle(path):
                known = None if sidecar is None else sidecar.files.get(path)
            case _:
                known = None
        if known is not None and stream not in self._self_checking:
            self._sha256[location] = known.sha256

    def _digests_of_handles(self) -> dict[int, dict[Location, str]]:
        """The files that are compared while their records are read, by the place of the last handle
        that has them.
        """
        resolver = self._operator.snapshot.resolver
        places: dict[Location, int] = {}
        for place, handle in enumerate(self._operator.keyed_handles):
            for stream in keyed_state_streams(handle):
                with suppress(*FAULTS):  # which are findings already
                    location = resolver.resolve(stream).location
                    if location in self._sha256:
                        places[location] = place
        files: dict[int, dict[Location, str]] = {}
        for location, place in places.items():
            files.setdefault(place, {})[location] = self._sha256[location]
        return files

    def _compare_digests(self, of_keyed: Set[Location]) -> None:
        """Compares the other files with what was written."""
        for location, sha256 in self._sha256.items():
            if location not in of_keyed:
                with _reported(self._report, Finding("", self._operator.label)):
                    read = sha256_of(self._operator.snapshot.file_io, location)
                    problem = digest_problem(location, sha256, read)
                    if problem is not None:
                        self._found("digest", problem)

    def _whole_streams(self) -> Iterator[StreamStateHandle]:
        """Yields streams whose handle covers a whole file, i.e. no segments of merged files."""
        for stream in self._state_streams():
            if not isinstance(stream, SegmentFileStateHandle):
                yield stream

    def _state_streams(self) -> Iterator[StreamStateHandle]:
        for subtask in self._operator.state.subtasks:
            if subtask.managed_operator_state is not None:
                yield subtask.managed_operator_state.stream
            match subtask.managed_keyed_state:
                case KeyGroupsSavepointStateHandle() | KeyGroupsStateHandle() as handle:
                    yield handle.stream
                case IncrementalRemoteKeyedStateHandle() as handle:
                    yield handle.meta_stream
                    yield from (stream for _, stream in handle.shared + handle.private)

    def _channels(self, subtask: OperatorSubtaskState) -> None:
        resolver = self._operator.snapshot.resolver
        for channel in subtask.input_channel_state + subtask.result_subpartition_state:
            if not isinstance(channel, ChannelStateHandle):
                continue
            with _reported(self._report, Finding("", self._operator.label, subtask.index)):
                for offset in channel.offsets:
                    size = int.from_bytes(
                        resolver.read(channel.stream, offset, offset + 4), "big", signed=True
                    )
                    if size < 0 or offset + 4 + size > channel.stream.state_size:
                        self._found(
                            "in-flight data",
                            f"a buffer of in-flight data does not fit: {size} bytes at {offset}",
                            subtask.index,
                        )

    # ----------------------------------------------------------------------------- keyed state

    def _keyed(self) -> None:
        operator = self._operator
        files = self._digests_of_handles()
        self._compare_digests({location for of_handle in files.values() for location in of_handle})
        check = RangeCheck(operator, self._copies, is_sampled=self.is_sampled, files=files)
        subtasks = [
            subtask.index
            for subtask in operator.state.subtasks
            if subtask.managed_keyed_state is not None
        ]
        lacking: set[int] = set()
        jobs = jobs_for(operator.keyed_size, self._jobs)
        units, at = units_to_count(operator), 0
        waiting: dict[Unit, RangeReport] = {}
        for done, result in run_units(check, units, jobs):
            self._on_progress(done.size)
            waiting[done] = result
            while at < len(units) and units[at] in waiting:  # findings have an order
                unit, at = units[at], at + 1
                part = waiting.pop(unit)
                if part.lacks_files:
                    # All key groups of a handle are in its files.
                    if unit.handle in lacking:
                        part.forget(UNREADABLE_GROUPS)
                    lacking.add(unit.handle)
                self._add(part, subtasks[unit.handle])
        with _reported(self._report, Finding("", operator.label)):
            self._add(check.raw_timers(), None)
        if check.takes_digests:
            self._report.digests[operator.label] = self._digests

    def _add(self, part: RangeReport, subtask: int | None) -> None:
        report, label = self._report, self._operator.label
        report.entries += part.entries
        report.keys_checked += part.keys_checked
        for name, records in part.records.items():
            report.records[label, name] += records
        report.incomplete.update((label, name) for name in part.incomplete)
        self._digests.update(part.digests)
        for cause, text in part.notes.items():
            self._note(cause, text)
        for state, kind, problem in part.findings:
            self._found(kind, problem, subtask, state)
        for (state, kind), count in part.counts.items():
            shown = min(count, MAX_FINDINGS_OF_A_KIND)
            self._counts[state, kind] += count - shown

    def _note(self, cause: tuple[str, ...], text: str) -> None:
        if cause[0] == UNREAD:
            self._report.unread.setdefault((self._operator.label, cause[1]), text)
        if cause not in self._noted and text not in self._report.notes:
            self._report.notes.append(text)
        self._noted.add(cause)

    # -------------------------------------------------------------------------- operator state

    def _operator_state(self) -> None:
        reader = self._operator.entries()
        with _reported(self._report, Finding("", self._operator.label)):
            for entry in reader.operator_state_entries():
                self._report.entries += 1
                unread = unread_part(entry.value)
                if unread is not None:
                    place = f"state {entry.state!r}"
                    self._note(*unread_values(self._operator, place, unread))
        for sentence in summarize(reader.unreadable):
            self._note((sentence,), sentence)
