"""Verifies a snapshot: every file exists, every record decodes, every key is in its key group.

Bytes that only Java classes of the job can read cannot be checked; they cause a note, not a
finding.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dstl_core.checkpoint.store.metadata_file import read_sidecar
from dstl_core.codec.metadata.checkpoint_kind import checkpoint_kind
from dstl_core.codec.serializers import AnySerializer, OpaqueValue
from dstl_core.codec.serializers.runtime import Timer
from dstl_core.errors import (
    UNREADABLE,
    ConfigError,
    DstlError,
    PathNotAllowedError,
    StateFileNotFoundError,
    UnreadableValueError,
)
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
    KeyGroupRange,
    assign_to_key_group,
    compute_key_group_range_for_operator_index,
)
from dstl_core.savepoint.check.summary import streams_of
from dstl_core.savepoint.read.entries import summarize, unread_part
from dstl_core.savepoint.read.entry_reader import EntryReader, key_group_ranges
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.state.restore.kernel_sizes import are_read_by_kernels
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.state_table import MapTable, StateTable
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import METADATA_FILE_NAME, SIDECAR_FILE_NAME, Location

_PART_BYTES = 8 << 20
MAX_FINDINGS_OF_A_KIND = 5
"""Number of findings to show per operator and state; further ones are only counted."""


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
    snapshot: Snapshot, on_progress: Callable[[int], None] = lambda _: None
) -> Report:
    """Checks a whole snapshot. ``on_progress`` is called with the bytes of state that were read."""
    report = Report(str(snapshot.folder))
    with _reported(report, Finding("")):
        checkpoint_kind(snapshot.metadata.properties)
    with _reported(report, Finding("")):
        _check_metadata(snapshot, report)
    for operator in snapshot.operators:
        _OperatorCheck(operator, report, on_progress).run()
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


def sha256_of(file_io: FileIO, location: Location) -> str:
    """The sha256 of a file, which is read in parts."""
    digest, size = hashlib.sha256(), file_io.size(location) or 0
    for start in range(0, size, _PART_BYTES):
        digest.update(file_io.read_bytes(location, start, min(start + _PART_BYTES, size)))
    return digest.hexdigest()


_NO_FILE = (PathNotAllowedError, StateFileNotFoundError)
_FINDINGS = (*UNREADABLE, *_NO_FILE)
"""Faults of the snapshot. Any other error of the store ends the check: it is no finding."""


class _reported:
    """Converts a fault of the snapshot to a finding."""

    def __init__(self, report: Report, where: Finding) -> None:
        self._report = report
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, _FINDINGS):
            return False
        where = self._where
        self._report.findings.append(
            Finding(str(error), where.operator, where.subtask, where.state)
        )
        return True


class _OperatorCheck:
    """Checks one operator."""

    def __init__(
        self, operator: OperatorSnapshot, report: Report, on_progress: Callable[[int], None]
    ) -> None:
        self._operator = operator
        self._report = report
        self._on_progress = on_progress
        self._counts: dict[tuple[str | None, str], int] = {}
        self._digested: set[Location] = set()
        self._unreadable: set[str | None] = set()
        self._unread: set[str] = set()

    def run(self) -> None:
        self._layout()
        self._files()
        for subtask in self._operator.state.subtasks:
            self._channels(subtask)
            if subtask.managed_keyed_state is not None:
                self._keyed(subtask.index, subtask.managed_keyed_state)
        self._raw_timers()
        self._operator_state()
        for (state, kind), count in self._counts.items():
            if count > MAX_FINDINGS_OF_A_KIND:
                self._report.findings.append(
                    Finding(f"{kind}: {count} in all", self._operator.label, None, state)
                )

    def _found(
        self, kind: str, problem: str, subtask: int | None = None, state: str | None = None
    ) -> None:
        count = self._counts[state, kind] = self._counts.get((state, kind), 0) + 1
        if count <= MAX_FINDINGS_OF_A_KIND:
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
        for stream in dict.fromkeys(streams_of(self._operator)):
            with _reported(self._report, Finding("", self._operator.label)):
                place = self._operator.snapshot.resolver.resolve(stream)
                if place.location is not None:
                    self._report.file_names.add(str(place.location))
                    end = None if stream in logs else place.end
                    if self._file(place.location, end, exact=stream in whole):
                        self._digest(stream, place.location)

    def _file(self, location: Location, end: int | None, *, exact: bool) -> bool:
        size = self._operator.snapshot.file_io.size(location)
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

    def _digest(self, stream: StreamStateHandle, location: Location) -> None:
        """Compares a file with the size and sha256 that its writer recorded, if any."""
        sidecar = self._operator.snapshot.file.sidecar
        match stream:
            case FileStateHandle(path) | RelativeFileStateHandle(path):
                known = None if sidecar is None else sidecar.files.get(path)
            case _:
                known = None
        if known is None or location in self._digested:
            return
        self._digested.add(location)
        found = sha256_of(self._operator.snapshot.file_io, location)
        self._report.digests_checked += 1
        if found != known.sha256:
            self._found(
                "digest",
                f"the bytes of a file differ from what was written: expected sha256 "
                f"{known.sha256}, got {found}: {location}",
            )

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

    def _keyed(self, subtask: int, handle: KeyedStateHandle) -> None:
        for key_groups in key_group_ranges(handle):
            checked = None
            if are_read_by_kernels(self._operator.keyed_size):
                # Loads Arrow and the compiler, which takes longer than checking small state.
                from dstl_core.savepoint.read.stored_columns import check_range

                checked = check_range(self._operator, handle, key_groups)
            if checked is not None:
                self._report.entries += checked.entries
                self._report.keys_checked += checked.entries
                for state, records in checked.records.items():
                    self._report.records[self._operator.label, state] += records
                self._on_progress(
                    handle.state_size * len(key_groups) // len(handle.key_group_range)
                )
                continue
            try:
                self._entries(subtask, self._restore(handle, key_groups), key_groups)
            except _NO_FILE as error:
                # All key groups of a handle are in its files.
                self._found("unreadable key groups", str(error), subtask)
                return
            except _FINDINGS:
                # The range has a problem; checking one key group after the other locates it.
                for key_group in key_groups:
                    self._one_key_group(subtask, handle, KeyGroupRange(key_group, key_group))
            self._on_progress(handle.state_size * len(key_groups) // len(handle.key_group_range))

    def _restore(self, handle: KeyedStateHandle, key_groups: KeyGroupRange) -> KeyedState:
        return self._operator.restore([handle], key_groups, keep_going=True)

    def _one_key_group(
        self, subtask: int, handle: KeyedStateHandle, key_group: KeyGroupRange
    ) -> None:
        try:
            state = self._restore(handle, key_group)
        except UnreadableValueError as error:
            self._note_unreadable(None, error)
            return
        except _FINDINGS as error:
            self._found("unreadable key group", str(error), subtask)
            return
        self._entries(subtask, state, key_group)

    def _entries(self, subtask: int, state: KeyedState, key_groups: KeyGroupRange) -> None:
        for table in state.tables.values():
            for key_group in key_groups:
                for scope, stored in table.groups.get(key_group, {}).items():
                    self._one_entry(subtask, table, key_group, scope, stored)
        if state.lost:
            first = state.lost[0]
            for each in state.lost:
                self._report.incomplete.add((self._operator.label, each.meta.name))
            self._note(
                f"operator {self._operator.label!r}, state {first.meta.name!r}: not checked as a "
                f"whole ({first.reason})"
            )

    def _one_entry(
        self, subtask: int, table: StateTable[Any], key_group: int, scope: bytes, stored: Any
    ) -> None:
        try:
            key, _, value = table.decode(scope, stored)
        except UnreadableValueError as error:
            self._note_unreadable(table.meta.name, error)
            return
        except UNREADABLE as error:
            self._found("damaged entry", str(error), subtask, table.meta.name)
            return
        self._report.entries += 1
        unread = unread_part(value)
        if unread is not None:
            self._note_unread_values(f"state {table.meta.name!r}", unread)
        records = len(stored) if isinstance(table, MapTable) else 1
        self._report.records[self._operator.label, table.meta.name] += records
        if isinstance(value, Timer):
            key = value.key
        self._key(subtask, table.meta.name, table.codec.key_serializer, key, key_group)

    def _raw_timers(self) -> None:
        """Checks timers of RocksDB that were kept on the heap, and timers of old jobs."""
        reader = EntryReader(self._operator, None)
        for timer in reader.raw_timers():
            self._report.entries += 1
            self._key(None, timer.service, timer.key_type, timer.key, timer.key_group)
        for each in reader.unreadable:
            self._note(
                f"operator {self._operator.label!r}: {each.state} is not checked ({each.reason})"
            )

    def _key(
        self,
        subtask: int | None,
        state: str,
        serializer: AnySerializer,
        key: Any,
        key_group: int,
    ) -> None:
        try:
            key_hash = serializer.java_hash(key)
        except ConfigError:
            self._note(
                f"operator {self._operator.label!r}: key groups are not checked, since the hash of "
                f"{serializer.type_name} is not known"
            )
            return
        expected = assign_to_key_group(key_hash, self._operator.max_parallelism)
        self._report.keys_checked += 1
        if expected != key_group:
            self._found(
                "wrong key group",
                f"a key is in key group {key_group} but belongs to {expected}; Flink would "
                f"never find it",
                subtask,
                state,
            )

    def _note_unreadable(self, state: str | None, error: DstlError) -> None:
        """Notes once per state that a key or namespace needs a Java class, which is not damage."""
        if state not in self._unreadable:
            self._unreadable.add(state)
            self._report.incomplete.add((self._operator.label, state))
            place = "keyed state" if state is None else f"state {state!r}"
            self._note(
                f"operator {self._operator.label!r}, {place}: not checked as a whole "
                f"({error.message})"
            )

    def _note_unread_values(self, place: str, unread: OpaqueValue) -> None:
        """Notes once per state that values of it were counted, and not read."""
        if place in self._unread:
            return
        self._unread.add(place)
        needs = f"values of {unread.java_class} need Java classes of the job"
        self._note(
            f"operator {self._operator.label!r}, {place}: values are not checked "
            f"({unread.reason or needs})"
        )

    def _note(self, text: str) -> None:
        if text not in self._report.notes:
            self._report.notes.append(text)

    # -------------------------------------------------------------------------- operator state

    def _operator_state(self) -> None:
        reader = self._operator.entries()
        with _reported(self._report, Finding("", self._operator.label)):
            for entry in reader.operator_state_entries():
                self._report.entries += 1
                unread = unread_part(entry.value)
                if unread is not None:
                    self._note_unread_values(f"state {entry.state!r}", unread)
        for sentence in summarize(reader.unreadable):
            self._note(sentence)
