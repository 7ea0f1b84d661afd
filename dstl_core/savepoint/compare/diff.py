"""Compares two snapshots: entries that were added, removed or changed.

Keyed state is compared by the bytes of its records, in columns. Records that differ in bytes are
decoded and compared in text form. So another order of map entries, or another backend, is not a
difference. The time for this grows with the number of records that differ in bytes. States whose
types differ are compared in text form only.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import IO, Any

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.kernels.hashing import mark_different
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, Ranges
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.errors import SavepointError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access.unit_pool import run_units
from dstl_core.savepoint.access.units import Jobs, Unit, jobs_for
from dstl_core.savepoint.compare.sides import LargeMap, Line, Side, StateReader, held_together
from dstl_core.savepoint.compare.structure_diff import Change
from dstl_core.savepoint.read.entries import Entry
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.timer_queues import with_readable_timers
from dstl_core.state.columns.progress import Advance, Portion, no_progress
from dstl_core.temporary_files import in_temporary_files, let_go

BYTES_AT_ONCE = 32 << 20
"""Bytes of stored state of both snapshots that are compared at once."""

_HELD_BYTES = 8 << 20
"""Bytes of the differences of a state in memory; more wait for those of the states before in a
file.
"""

_ENTRIES_OF_PART = 1 << 14
"""Entries of a large map that a difference shows at most."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry that differs.

    ``before`` and ``after`` are lines of ``dstl dump``. One of them is None if only the other
    snapshot has the entry.

    A map that is too large to be held comes in several differences, numbered by ``part`` from 1 on.
    Each has some of its entries, of those that differ.
    """

    change: Change
    before: Line | None
    after: Line | None
    part: int | None = None

    @property
    def line(self) -> Line:
        """The line of the entry without its value."""
        shown = self.after or self.before or {}
        return {name: value for name, value in shown.items() if name != "value"}

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"change": self.change, **self.line}
        if self.part is not None:
            document["part"] = self.part
        for name, side in (("before", self.before), ("after", self.after)):
            if side is not None and "value" in side:
                document[name] = side["value"]
        return document


def diff_snapshots(
    a: Snapshot, b: Snapshot, on_progress: Advance = no_progress, jobs: Jobs = 1
) -> Iterator[Difference]:
    """Yields the differences, sorted by operator id and state.

    Args:
        a: The snapshot to compare with.
        b: The snapshot that may differ.
        on_progress: Called with the bytes of state of both snapshots that were compared.
        jobs: Number of processes that compare keyed state; None: all cores if it is large.

    Raises:
        SavepointError: The keys of an operator cannot be compared.
        FormatError: A snapshot is damaged.
    """
    ours = {each.operator_id: each for each in a.operators}
    theirs = {each.operator_id: each for each in b.operators}
    for operator_id in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(operator_id), theirs.get(operator_id)
        both = [each for each in (one, other) if each is not None]
        portion = Portion(on_progress, sum(each.state.state_size for each in both))
        yield from _OperatorDiff(one, other, portion).run(jobs)
        portion.reach(1)


@dataclass(slots=True)
class KeyChanges:
    """How many entries of a keyed state are new, gone, or changed in their bytes.

    An entry belongs to a key and a namespace: a value, a whole list, a whole map. A timer is an
    entry, too. ``changed`` is None if the types of the state differ.
    """

    state: str
    kind: str
    new: int = 0
    gone: int = 0
    changed: int | None = 0

    def add(self, more: KeyChanges) -> None:
        self.new += more.new
        self.gone += more.gone
        unknown = self.changed is None or more.changed is None
        self.changed = None if unknown else (self.changed or 0) + (more.changed or 0)


def count_changes(
    a: OperatorSnapshot | None,
    b: OperatorSnapshot | None,
    on_progress: Advance = no_progress,
    jobs: Jobs = 1,
) -> list[KeyChanges]:
    """Counts the changes of an operator's keyed states, without decoding them.

    Args:
        a: The operator in the older snapshot, if it is there.
        b: The operator in the newer snapshot, if it is there.
        on_progress: Called with the bytes of state of both snapshots that were compared.
        jobs: Number of processes that compare keyed state; None: all cores if it is large.

    Raises:
        SavepointError: The keys cannot be compared.
        FormatError: A snapshot is damaged.
    """
    both = [each for each in (a, b) if each is not None]
    portion = Portion(on_progress, sum(each.state.state_size for each in both))
    by_state: dict[tuple[str, str], KeyChanges] = {}
    counting = EntryComparison(_changes, _changes_of_map)
    for _, changes in _OperatorDiff(a, b, portion).results(counting, jobs):
        key = changes.state, changes.kind
        by_state.setdefault(key, KeyChanges(*key)).add(changes)
    portion.reach(1)
    return list(by_state.values())


def _changes(one: Side | None, two: Side | None) -> Iterator[KeyChanges]:
    side = two or one
    if side is not None:
        changes = KeyChanges(side.info.name, side.info.kind)
        _count(changes, one, two)
        yield changes


def _changes_of_map(info: StateInfo, large: LargeMap) -> Iterator[KeyChanges]:
    changes = KeyChanges(info.name, info.kind)
    if not large.has[0]:
        changes.new = 1
    elif not large.has[1]:
        changes.gone = 1
    elif any(len(_differing(*both)[0]) for both in large.entries):
        changes.changed = 1
    yield changes


def _count(changes: KeyChanges, a: Side | None, b: Side | None) -> None:
    if a is None or b is None:
        changes.new += 0 if b is None else len(ByteIndex(_scopes(b)))
        changes.gone += 0 if a is None else len(ByteIndex(_scopes(a)))
        return
    if a.types[0] != b.types[0]:
        raise SavepointError(
            f"Keys of state {a.info.name!r} cannot be compared: their type was "
            f"{a.key_type.type_name} and is {b.key_type.type_name}."
        )
    scopes = _numbers(_scopes(a), _scopes(b))
    before, after = np.unique(scopes[0]), np.unique(scopes[1])
    changes.new += len(np.setdiff1d(after, before, assume_unique=True))
    changes.gone += len(np.setdiff1d(before, after, assume_unique=True))
    if a.types[1] != b.types[1]:
        changes.changed = None
    elif changes.changed is not None:
        touched = _touched(a, b, scopes)
        changes.changed += int((np.isin(touched, before) & np.isin(touched, after)).sum())


def _difference(before: Line | None, after: Line | None) -> Difference | None:
    if before is None:
        return Difference("added", None, after)
    if after is None:
        return Difference("removed", before, None)
    same = before.get("value") == after.get("value")
    return None if same else Difference("changed", before, after)


@dataclass(frozen=True)
class EntryComparison:
    """What is said of records.

    Args:
        held: Gets the records of a state in both snapshots.
        large_map: Gets a map that is too large to be held.
        sends_much: Whether it may say as much as the records weigh.
    """

    held: Callable[[Side | None, Side | None], Iterator[Any]]
    large_map: Callable[[StateInfo, LargeMap], Iterator[Any]]
    sends_much: bool = False


class _OperatorDiff:
    """Compares one operator. One of the snapshots may lack it."""

    def __init__(
        self, a: OperatorSnapshot | None, b: OperatorSnapshot | None, portion: Portion
    ) -> None:
        # The same timers may be raw state in a checkpoint and queues in a savepoint.
        self._a = None if a is None else with_readable_timers(a)
        self._b = None if b is None else with_readable_timers(b)
        self._portion = portion

    def run(self, jobs: Jobs) -> Iterator[Difference]:
        """The differences, by state. Those of the first state come at once."""
        others: dict[int, IO[bytes]] = {}
        with ExitStack() as files:
            showing = EntryComparison(_compare, _differences_of_map, sends_much=True)
            for place, difference in self.results(showing, jobs):
                if place == 0:
                    yield difference
                    continue
                if place not in others:
                    file = tempfile.SpooledTemporaryFile(_HELD_BYTES, prefix="dstl-")  # noqa: SIM115
                    files.callback(let_go, file)
                    others[place] = file
                line = [getattr(difference, field.name) for field in fields(difference)]
                with in_temporary_files():
                    others[place].write(f"{json.dumps(line)}\n".encode())
            for place in sorted(others):
                others[place].seek(0)
                for kept in others[place]:
                    yield Difference(*json.loads(kept))
        yield from _by_line(_other_lines(self._a), _other_lines(self._b))

    def results(self, comparison: EntryComparison, jobs: Jobs) -> Iterator[tuple[int, Any]]:
        """What is said of the records of each keyed state, some key groups at a time, with the
        place of the state.

        Args:
            comparison: What to say.
            jobs: Number of processes that was asked for.
        """
        steps = list(self._key_groups())
        size = sum(operator.keyed_size for operator in (self._a, self._b) if operator is not None)
        processes = jobs_for(size, jobs)
        is_alone = processes == 1

        def task(unit: Unit) -> Iterable[tuple[int, Any]]:
            results = self._compared(comparison, *steps[unit.handle])
            return results if is_alone else list(results)

        units = [Unit(at, groups, size // len(steps)) for at, (groups, _) in enumerate(steps)]
        # Another process would have to hold what it sends.
        apart = [not is_alone and comparison.sends_much and self._is_large(*step) for step in steps]
        others = [unit for unit, is_apart in zip(units, apart, strict=True) if not is_apart]
        with closing(run_units(task, others, processes)) as results:
            for done, unit in enumerate(units, 1):
                if apart[unit.handle]:
                    yield from self._compared(comparison, *steps[unit.handle])
                else:
                    yield from next(results)[1]
                self._portion.reach(done / len(steps))

    def _readers(self) -> tuple[StateReader, StateReader]:
        ours, theirs = _states(self._a), _states(self._b)
        names = list(dict.fromkeys([*ours, *theirs]))
        one = StateReader(self._a, [ours.get(name) for name in names])
        return one, StateReader(self._b, [theirs.get(name) for name in names])

    def _is_large(self, first: KeyGroupRange, second: KeyGroupRange) -> bool:
        one, two = self._readers()
        return one.is_large(first) or two.is_large(second)

    def _compared(
        self, comparison: EntryComparison, first: KeyGroupRange, second: KeyGroupRange
    ) -> Iterator[tuple[int, Any]]:
        one, two = self._readers()
        for held in held_together(one, two, first, second):
            if isinstance(held, LargeMap):
                info = one.infos[held.place] or two.infos[held.place]
                assert info is not None  # one of the snapshots has the map
                with closing(held.entries):
                    for result in comparison.large_map(info, held):
                        yield held.place, result
                continue
            for place, (before, after) in enumerate(zip(*held, strict=True)):
                if before is not None and after is not None:
                    before.show_alike(after)
                for result in comparison.held(before, after):
                    yield place, result

    def _key_groups(self) -> Iterator[tuple[KeyGroupRange, KeyGroupRange]]:
        """Ranges with the same keys in both snapshots.

        They have a bounded size, unless the numbers of key groups differ: then there is one range.
        """
        both = [each for each in (self._a, self._b) if each is not None]
        totals = [each.max_parallelism for each in both]
        if len(set(totals)) > 1:
            yield KeyGroupRange(0, totals[0] - 1), KeyGroupRange(0, totals[-1] - 1)
            return
        size = sum(handle.state_size for each in both for handle in each.keyed_handles)
        count = max(1, min(totals[0], -(-size // BYTES_AT_ONCE)))
        bounds = [totals[0] * at // count for at in range(count + 1)]
        for start, end in pairwise(bounds):
            yield KeyGroupRange(start, end - 1), KeyGroupRange(start, end - 1)


def _states(operator: OperatorSnapshot | None) -> dict[tuple[str, bool], StateInfo]:
    if operator is None:
        return {}
    return {(info.name, info.meta.is_queue): info for info in operator.states}


# ------------------------------------------------------------------------------- keyed state


def _compare(a: Side | None, b: Side | None) -> Iterator[Difference]:
    if a is None or b is None:
        for side, other in ((a, b), (b, a)):
            if side is not None and other is None:
                yield from _all_of(side, is_new=side is b)
        return
    if a.types[0] != b.types[0] or a.types[1] != b.types[1]:
        yield from _by_line(_all_lines(a), _all_lines(b))
        return
    scopes = _numbers(_scopes(a), _scopes(b))
    touched = _touched(a, b, scopes)
    rows_a, rows_b = _rows_by_scope(scopes[0], touched), _rows_by_scope(scopes[1], touched)
    for scope in touched:
        before = a.line(rows_a.get(int(scope), ()))
        after = b.line(rows_b.get(int(scope), ()))
        difference = _difference(before, after)
        if difference is not None:
            yield difference


def _differences_of_map(info: StateInfo, large: LargeMap) -> Iterator[Difference]:
    number = 0
    for a, b in large.entries:
        if a is not None and b is not None:
            a.show_alike(b)
        ours, theirs = _differing(a, b)
        for start in range(0, len(ours), _ENTRIES_OF_PART):
            rows = slice(start, start + _ENTRIES_OF_PART)
            before, after = (
                None if side is None or not has else side.line(lines[rows][lines[rows] >= 0])
                for side, lines, has in zip((a, b), (ours, theirs), large.has, strict=True)
            )
            shown = before or after
            assert shown is not None  # a row is in one of them
            if all(large.has):
                before, after = before or {**shown, "value": []}, after or {**shown, "value": []}
            difference = _difference(before, after)
            if difference is not None:
                number += 1
                yield replace(difference, part=number)


def _touched(a: Side, b: Side, scopes: tuple[Int64s, Int64s]) -> Int64s:
    """The numbers of scopes (key and namespace) with a record that differs."""
    ours, theirs = _differing(a, b, None if a.is_map else scopes)
    differing = [scopes[0][ours[ours >= 0]], scopes[1][theirs[theirs >= 0]]]
    touched: Int64s = np.unique(np.concatenate(differing))
    return touched


def _differing(
    a: Side | None, b: Side | None, numbers: tuple[Int64s, Int64s] | None = None
) -> tuple[Int64s, Int64s]:
    """The rows of records that differ, in both snapshots; -1 for one that a snapshot lacks.

    Args:
        a: The records of a state in the first snapshot.
        b: Those in the other one.
        numbers: A number for each record, the same one for those to compare; by default for equal
            stored keys.
    """
    if a is None or b is None:
        side = a or b
        rows = np.arange(0 if side is None else len(side.records))
        none = np.full(len(rows), -1, np.int64)
        return (none, rows) if a is None else (rows, none)
    in_a, in_b = _rows_by_number(*(numbers or _numbers(_stored_keys(a), _stored_keys(b))))
    both = np.flatnonzero((in_a >= 0) & (in_b >= 0))
    marks = np.zeros(len(both), np.uint8)
    values_a = _values(a.records.spans[in_a[both]])
    values_b = _values(b.records.spans[in_b[both]])
    mark_different(address_of(values_a), address_of(values_b), 16, len(both), address_of(marks))
    differs = (in_a >= 0) != (in_b >= 0)
    differs[both[marks != 0]] = True
    return in_a[differs], in_b[differs]


def _rows_by_number(a: Int64s, b: Int64s) -> tuple[Int64s, Int64s]:
    """The row of each number on both sides; -1 for none."""
    count = 1 + max(a.max(initial=-1), b.max(initial=-1))
    in_a, in_b = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    in_a[a], in_b[b] = np.arange(len(a)), np.arange(len(b))
    return in_a, in_b


def _values(spans: Int64s) -> Int64s:
    return np.ascontiguousarray(spans[:, scan.VALUE_START : scan.VALUE_END + 1])


def _scopes(side: Side) -> Ranges:
    if side.info.meta.is_queue:
        return _stored_keys(side)
    return side.records.scopes


def _stored_keys(side: Side) -> Ranges:
    spans = side.records.spans
    return Ranges(spans[:, scan.KEY_START], spans[:, scan.KEY_END])


def _numbers(a: Ranges, b: Ranges) -> tuple[Int64s, Int64s]:
    """Numbers the byte strings of both; equal bytes get the same number."""
    index = ByteIndex(
        Ranges(np.concatenate([a.starts, b.starts]), np.concatenate([a.ends, b.ends]))
    )
    return index.numbers[: len(a)], index.numbers[len(a) :]


def _rows_by_scope(numbers: Int64s, wanted: Int64s) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for row in np.flatnonzero(np.isin(numbers, wanted)):
        rows.setdefault(int(numbers[row]), []).append(int(row))
    return rows


def _all_lines(side: Side) -> Iterator[Line]:
    index = ByteIndex(_scopes(side))
    rows = _rows_by_scope(index.numbers, np.arange(len(index)))
    for number in range(len(index)):
        line = side.line(rows[number])
        if line is not None:
            yield line


def _all_of(side: Side, *, is_new: bool) -> Iterator[Difference]:
    for line in _all_lines(side):
        yield Difference("added", None, line) if is_new else Difference("removed", line, None)


# ------------------------------------------------------------------- everything else, by text


def _other_lines(operator: OperatorSnapshot | None) -> Iterator[Line]:
    """Operator state, and timers of raw keyed state if some of them cannot be read."""
    if operator is None:
        return
    reader = operator.entries()
    entries: list[Iterator[Entry]] = [reader.operator_state_entries(), reader.raw_timers()]
    for entries_of_scope in entries:
        for entry in entries_of_scope:
            yield entry.to_line()


def _by_line(a: Iterable[Line], b: Iterable[Line]) -> Iterator[Difference]:
    ours, theirs = _lines_by_place(a), _lines_by_place(b)
    for place in dict.fromkeys([*ours, *theirs]):
        difference = _difference(ours.get(place), theirs.get(place))
        if difference is not None:
            yield difference


def _lines_by_place(lines: Iterable[Line]) -> dict[str, Line]:
    """Lines by all fields except value and key group, which may be counted differently."""
    return {
        repr({name: value for name, value in line.items() if name not in ("value", "kg")}): line
        for line in lines
    }
