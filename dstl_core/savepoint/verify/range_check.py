"""Checks the keyed state of an operator, one range of key groups at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dstl_core.codec.serializers import AnySerializer, OpaqueValue
from dstl_core.codec.serializers.runtime import Timer
from dstl_core.errors import (
    UNREADABLE,
    ConfigError,
    DstlError,
    PathNotAllowedError,
    SavepointError,
    StateFileNotFoundError,
    UnreadableValueError,
)
from dstl_core.model.handle import KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange, assign_to_key_group
from dstl_core.savepoint.access.units import Unit
from dstl_core.savepoint.read.entries import EVENT_TIMER, unread_part
from dstl_core.savepoint.read.entry_reader import EntryReader
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.timer_queues import timers_in_parts
from dstl_core.state.backends.timers import EVENT_TIMERS, PROCESSING_TIMERS
from dstl_core.state.restore.kernel_sizes import SMALL_BYTES, are_read_by_kernels
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.state_table import MapTable, StateTable
from dstl_core.storage.location import Location
from dstl_core.storage.written_files import DigestOfReads

if TYPE_CHECKING:
    from dstl_core.savepoint.read.stored_columns import StateDecoders

NO_FILES: Mapping[int, Mapping[Location, str]] = {}
NO_FILE = (PathNotAllowedError, StateFileNotFoundError)
FAULTS = (*UNREADABLE, *NO_FILE)
"""Faults of the snapshot. Any other error of the store ends the check: it is no finding."""
UNREADABLE_GROUPS = "unreadable key groups"
MAX_FINDINGS_OF_A_KIND = 5
"""Number of findings to show per operator and state; further ones are only counted."""


@dataclass
class RangeReport:
    """What a check of some key groups found; reports of several ranges add up.

    ``findings`` has the state, the kind and the problem of the first findings, and ``counts`` the
    number of all by state and kind. ``notes`` has one sentence a cause. ``records`` counts records
    by state. ``incomplete`` names the states, or None for all, with records that only Java can
    read. ``digests`` has those of copied records, whose values are not decoded, by state. With
    ``lacks_files``, the files of the handle are missing.
    """

    entries: int = 0
    keys_checked: int = 0
    records: Counter[str] = field(default_factory=Counter)
    incomplete: set[str | None] = field(default_factory=set)
    findings: list[tuple[str | None, str, str]] = field(default_factory=list)
    counts: Counter[tuple[str | None, str]] = field(default_factory=Counter)
    notes: dict[tuple[str, ...], str] = field(default_factory=dict)
    digests: Mapping[str, Sequence[int]] = field(default_factory=dict)
    lacks_files: bool = False

    def found(self, kind: str, problem: str, state: str | None = None) -> None:
        self.counts[state, kind] += 1
        if self.counts[state, kind] <= MAX_FINDINGS_OF_A_KIND:
            self.findings.append((state, kind, problem))

    def forget(self, kind: str) -> None:
        """Leaves out what was found of a kind."""
        self.findings = [finding for finding in self.findings if finding[1] != kind]
        self.counts = Counter({key: count for key, count in self.counts.items() if key[1] != kind})

    def to_json(self) -> dict[str, Any]:
        """A report without findings as JSON values."""
        return {
            "entries": self.entries,
            "keys_checked": self.keys_checked,
            "records": dict(self.records),
            "incomplete": list(self.incomplete),
            "notes": [[list(cause), text] for cause, text in self.notes.items()],
            "digests": dict(self.digests),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> RangeReport:
        return cls(
            stored["entries"],
            stored["keys_checked"],
            Counter(stored["records"]),
            set(stored["incomplete"]),
            notes={tuple(cause): text for cause, text in stored["notes"]},
            digests=stored["digests"],
        )


def digest_problem(location: Location, sha256: str, read: str) -> str | None:
    """What is wrong with a file whose bytes have another sha256."""
    if read == sha256:
        return None
    return (
        f"the bytes of a file differ from what was written: expected sha256 {sha256}, got {read}: "
        f"{location}"
    )


UNREAD = "unread"
"""The cause of a note about values, beside the state."""


class ReportForm:
    """How a report is kept in a record: only one without a finding."""

    def facts(self, result: RangeReport) -> Mapping[str, Any] | None:
        return None if result.counts or result.lacks_files else result.to_json()

    def result(self, facts: Mapping[str, Any]) -> RangeReport:
        return RangeReport.from_json(facts)


class RangeCheck:
    """Checks ranges of one operator. It keeps nothing of one for the next, but the sha256 of a file
    as far as it was read: with the last key groups of a handle, the files of the handle are
    compared with what was written. What this process has not read of them is read then.
    Threads may share it.

    Args:
        operator: The operator.
        copies: Handles whose records are not decoded, if kernels read them: their digests are
            compared with those of the records of which they are copies.
        is_sampled: Whether it is enough to decode some of the values without a columnar form.
        files: The sha256 of files, by the place of a handle.
    """

    def __init__(
        self,
        operator: OperatorSnapshot,
        copies: Set[KeyedStateHandle] = frozenset(),
        *,
        is_sampled: bool = False,
        files: Mapping[int, Mapping[Location, str]] = NO_FILES,
    ) -> None:
        self._operator = operator
        self.reads_all_of = operator
        self.in_sequence = frozenset(files)
        self._files = files
        self._reads: dict[Location, DigestOfReads] = {}
        self._copies = copies
        self._is_sampled = is_sampled
        self._decoders: list[StateDecoders] | None = None
        """Those that no thread uses now."""
        if are_read_by_kernels(operator.keyed_size):
            # Loads Arrow and the compiler, which takes longer than checking small state.
            from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS
            from dstl_core.savepoint.read.stored_columns import StateDecoders

            self._decoders = [StateDecoders(EXACT_OPTIONS)]

    def __call__(self, unit: Unit) -> RangeReport:
        files = self._files.get(unit.handle)
        if files is None:
            return self._records(unit)
        resolver = self._operator.snapshot.resolver
        for location in files:
            self._reads.setdefault(location, DigestOfReads())
        resolver.on_read = self._take
        try:
            report = self._records(unit)
        finally:
            resolver.on_read = None
        handle = self._operator.keyed_handles[unit.handle]
        if unit.key_groups.end_key_group == handle.key_group_range.end_key_group:
            for location, sha256 in files.items():
                self._compare(report, location, sha256)
        return report

    def _take(self, location: Location, start: int, data: bytes) -> None:
        reads = self._reads.get(location)
        if reads is not None:
            reads.add(start, data)

    def _compare(self, report: RangeReport, location: Location, sha256: str) -> None:
        """Compares a file with the sha256 that its writer recorded."""
        reads = self._reads.pop(location)
        try:
            problem = digest_problem(
                location, sha256, reads.sha256(self._operator.snapshot.file_io, location)
            )
        except FAULTS as error:
            problem = str(error)
        if problem is not None:
            report.found("digest", problem)

    def _records(self, unit: Unit) -> RangeReport:
        handle, key_groups = self._operator.keyed_handles[unit.handle], unit.key_groups
        report = RangeReport()
        try:
            if self.takes_digests and handle in self._copies:
                return self._copied(handle, key_groups)
            if unit.size >= SMALL_BYTES:
                checked = self._by_columns(handle, key_groups)
                if checked is not None:
                    return checked
            self._entries(report, self._restore(handle, key_groups), key_groups)
        except NO_FILE as error:
            report.lacks_files = True
            report.found(UNREADABLE_GROUPS, str(error))
        except FAULTS:
            # The range has a problem; checking one key group after the other locates it.
            report = RangeReport()
            for key_group in key_groups:
                self._one_key_group(report, handle, KeyGroupRange(key_group, key_group))
        return report

    @property
    def takes_digests(self) -> bool:
        """Whether reports have the digests of copied records."""
        return self._decoders is not None

    def _copied(self, handle: KeyedStateHandle, key_groups: KeyGroupRange) -> RangeReport:
        from dstl_core.savepoint.read.stored_columns import digests_of_range

        digests = digests_of_range(self._operator, handle, key_groups)
        records = Counter({state: count for state, (count, _) in digests.items()})
        return RangeReport(records.total(), records=records, digests=digests)

    def _by_columns(
        self, handle: KeyedStateHandle, key_groups: KeyGroupRange
    ) -> RangeReport | None:
        """The report if all is well; None if the record-wise code has to look."""
        if self._decoders is None:
            return None
        from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS
        from dstl_core.savepoint.read.stored_columns import StateDecoders, check_range

        try:
            decoders = self._decoders.pop()
        except IndexError:  # other threads have them
            decoders = StateDecoders(EXACT_OPTIONS)
        checked = check_range(
            self._operator, handle, key_groups, decoders, is_sampled=self._is_sampled
        )
        self._decoders.append(decoders)
        if checked is None:
            return None
        return RangeReport(checked.entries, checked.entries, Counter(checked.records))

    def raw_timers(self) -> RangeReport:
        """Checks timers of RocksDB that were kept on the heap, and timers of old jobs."""
        checked = self._timers_by_columns()
        if checked is not None:
            return checked
        report = RangeReport()
        reader = EntryReader(self._operator, None)
        for timer in reader.raw_timers():
            domain = EVENT_TIMERS if timer.kind == EVENT_TIMER else PROCESSING_TIMERS
            report.entries += 1
            report.records[domain + timer.service] += 1
            self._key(report, timer.service, timer.key_type, timer.key, timer.key_group)
        for part in reader.unreadable:
            text = f"{self._place}: {part.state} is not checked ({part.reason})"
            report.notes[text,] = text
        return report

    def _timers_by_columns(self) -> RangeReport | None:
        """The report if all is well; None if the record-wise code has to look."""
        raw = (subtask.raw_keyed_state for subtask in self._operator.state.subtasks)
        if not are_read_by_kernels(sum(each.state_size for each in raw if each)):
            return None
        from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS
        from dstl_core.savepoint.read.stored_columns import StateDecoders, check_range

        report, decoders = RangeReport(), StateDecoders(EXACT_OPTIONS)
        try:
            for operator, _ in timers_in_parts(self._operator):
                for handle in operator.timer_queues:
                    checked = check_range(operator, handle, handle.key_group_range, decoders)
                    if checked is None:
                        return None
                    report.entries += checked.entries
                    report.records.update(checked.records)
        except SavepointError:
            return None
        report.keys_checked = report.entries
        return report

    @property
    def _place(self) -> str:
        return f"operator {self._operator.label!r}"

    def _restore(self, handle: KeyedStateHandle, key_groups: KeyGroupRange) -> KeyedState:
        return self._operator.restore(
            [handle], key_groups, keep_going=True, within=handle.key_group_range
        )

    def _one_key_group(
        self, report: RangeReport, handle: KeyedStateHandle, key_group: KeyGroupRange
    ) -> None:
        try:
            state = self._restore(handle, key_group)
        except UnreadableValueError as error:
            self._note_unreadable(report, None, error)
            return
        except FAULTS as error:
            report.found("unreadable key group", str(error))
            return
        self._entries(report, state, key_group)

    def _entries(self, report: RangeReport, state: KeyedState, key_groups: KeyGroupRange) -> None:
        for table in state.tables.values():
            for key_group in key_groups:
                for scope, stored in table.groups.get(key_group, {}).items():
                    self._one_entry(report, table, key_group, scope, stored)
        if state.lost:
            first = state.lost[0]
            report.incomplete.update(lost.meta.name for lost in state.lost)
            text = (
                f"{self._place}, state {first.meta.name!r}: not checked as a whole ({first.reason})"
            )
            report.notes.setdefault((text,), text)

    def _one_entry(
        self,
        report: RangeReport,
        table: StateTable[Any],
        key_group: int,
        scope: bytes,
        stored: Any,
    ) -> None:
        name = table.meta.name
        try:
            key, _, value = table.decode(scope, stored)
        except UnreadableValueError as error:
            self._note_unreadable(report, name, error)
            return
        except UNREADABLE as error:
            report.found("damaged entry", str(error), name)
            return
        report.entries += 1
        unread = unread_part(value)
        if unread is not None:
            report.notes.setdefault(*unread_values(self._operator, f"state {name!r}", unread))
        report.records[name] += len(stored) if isinstance(table, MapTable) else 1
        if isinstance(value, Timer):
            key = value.key
        self._key(report, name, table.codec.key_serializer, key, key_group)

    def _key(
        self, report: RangeReport, state: str, serializer: AnySerializer, key: Any, key_group: int
    ) -> None:
        try:
            key_hash = serializer.java_hash(key)
        except ConfigError:
            text = (
                f"{self._place}: key groups are not checked, since the hash of "
                f"{serializer.type_name} is not known"
            )
            report.notes.setdefault((text,), text)
            return
        expected = assign_to_key_group(key_hash, self._operator.max_parallelism)
        report.keys_checked += 1
        if expected != key_group:
            report.found(
                "wrong key group",
                f"a key is in key group {key_group} but belongs to {expected}; Flink would "
                f"never find it",
                state,
            )

    def _note_unreadable(self, report: RangeReport, state: str | None, error: DstlError) -> None:
        """Notes once per state that a key or namespace needs a Java class, which is not damage."""
        report.incomplete.add(state)
        place = "keyed state" if state is None else f"state {state!r}"
        text = f"{self._place}, {place}: not checked as a whole ({error.message})"
        report.notes.setdefault(("unreadable", place), text)


def unread_values(
    operator: OperatorSnapshot, place: str, unread: OpaqueValue
) -> tuple[tuple[str, ...], str]:
    """A note, and its cause, that values of a state were counted, and not read."""
    needs = f"values of {unread.java_class} need Java classes of the job"
    return (UNREAD, place), (
        f"operator {operator.label!r}, {place}: values are not checked ({unread.reason or needs})"
    )
