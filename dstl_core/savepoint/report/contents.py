"""Counts the records of the state of an operator, in bounded memory.

Keyed state is read in columns, a few megabytes at a time. Memory holds a batch, and the keys of one
key group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from dstl_core.codec.columnar.keyed.decoder import StateDecoder
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import DAMAGED, UNREADABLE, NotInColumnsError
from dstl_core.model.handle import KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange, compute_key_group_range_for_operator_index
from dstl_core.savepoint.access.unit_pool import run_units
from dstl_core.savepoint.access.units import Jobs, Unit, jobs_for, units_to_count
from dstl_core.savepoint.read.entries import OP_BROADCAST, OP_UNION
from dstl_core.savepoint.read.operator_catalog import OPERATOR_KINDS, OperatorCatalog
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.stored_records import handle_parts, open_part_records
from dstl_core.savepoint.read.timer_queues import timers_in_parts
from dstl_core.savepoint.report.count_options import CountOptions
from dstl_core.savepoint.report.spread import Spread
from dstl_core.savepoint.report.state_counts import COUNT_OPTIONS, StateCounts
from dstl_core.state.backends.timers import MIN_WATERMARK
from dstl_core.state.columns.progress import Advance, Portion, no_progress
from dstl_core.state.restore.stored_key_groups import StoredKeyGroups, StoredRecords, joined

WATERMARK = "watermark"
"""The list state in which Flink's SQL operators record their watermark, one for each subtask."""

_SMALL_BYTES = 1 << 16
_JOINED_BYTES = 1 << 20
_JOINED_FILES = 4096
"""Files of up to ``_SMALL_BYTES`` are counted together, up to so many bytes or files at once."""
_DIGEST_BYTES = 16
_MAX_DISTINCT = 1_000_000
"""Digests in memory. Of more different elements, their number is not known."""


def operator_contents(
    operator: OperatorSnapshot,
    options: CountOptions,
    on_progress: Advance = no_progress,
    *,
    jobs: Jobs = 1,
) -> dict[str, Any]:
    """The figures of every state of an operator, as values for JSON.

    Args:
        operator: The operator to read.
        options: What to count.
        on_progress: Called with the bytes of state that were read.
        jobs: Number of processes that read keyed state; None: all cores if it is large.

    Raises:
        FormatError: The state is damaged.
        StateFileNotFoundError: A file is missing.
    """
    portion = Portion(on_progress, operator.state.state_size)
    keyed = _keyed_counts(operator, options, jobs, portion)
    states = [_with_spreads(operator, each) for each in keyed]
    portion.reach(1)
    return {
        "states": sorted(states, key=lambda state: -(state["key_bytes"] + state["value_bytes"])),
        "operator_states": list(_operator_states(operator)),
    }


class _RangeCounts:
    """Counts ranges of one operator. While files have one header, as those of an operator mostly
    do, it keeps how their records are decoded, and counts in one place.

    Args:
        operator: The operator.
        watermark_ms: Its watermark, if its state records it.
        options: What to count.
        key_groups: The key groups that are counted.
    """

    def __init__(
        self,
        operator: OperatorCatalog,
        watermark_ms: int | None,
        options: CountOptions,
        key_groups: KeyGroupRange,
    ) -> None:
        self._operator = operator
        self._watermark = watermark_ms
        self._options = options
        self._key_groups = key_groups
        self._known: tuple[KeyedBackendHeader, int] | None = None
        self._formats: list[RecordFormat] = []
        self._decoders: list[StateDecoder | None] = []
        self._counts: list[StateCounts] = []

    def open(self, handle: KeyedStateHandle, key_groups: KeyGroupRange) -> StoredRecords | None:
        """The records of some key groups of a handle; None if there are none."""
        return open_part_records(self._operator, handle, key_groups, handle.key_group_range)

    def add(self, stored: StoredRecords) -> Iterator[StateCounts]:
        """Counts records. It yields finished counts when another header begins."""
        if self._known != (stored.header, stored.prefix_bytes):
            yield from self.take()
            self._decode(stored.header, stored.prefix_bytes)
        if not self._counts:
            self._counts = [self._counts_of(each) for each in self._formats]
        with stored.context():
            for batch in stored.records([True] * len(self._counts)):
                for state, records in batch.by_state():
                    self._counts[state].add(records, self._decoders[state])

    def take(self) -> list[StateCounts]:
        """The counts of each state, finished; the next ones begin with nothing."""
        counts, self._counts = self._counts, []
        return [each.finish() for each in counts]

    def _decode(self, header: KeyedBackendHeader, prefix_bytes: int) -> None:
        """Sets how the records of a file are decoded."""
        self._formats = [
            RecordFormat(meta.as_key_value(), header.key_serializer) for meta in header.states
        ]
        self._decoders = [_decoder(each, prefix_bytes) for each in self._formats]
        self._known = header, prefix_bytes

    def _counts_of(self, record_format: RecordFormat) -> StateCounts:
        operator = self._operator
        return StateCounts(
            record_format,
            self._key_groups,
            self._watermark,
            self._options,
            self._options.ttl_of(operator.operator_id, record_format.meta.name),
        )


@dataclass(frozen=True)
class _CountUnit:
    """Counts one unit, for a pool of processes."""

    operator: OperatorCatalog
    watermark_ms: int | None
    options: CountOptions

    @property
    def reads_all_of(self) -> OperatorCatalog:
        """See ``run_units``."""
        return self.operator

    def __call__(self, unit: Unit) -> list[StateCounts]:
        count = _RangeCounts(self.operator, self.watermark_ms, self.options, unit.key_groups)
        stored = count.open(self.operator.keyed_handles[unit.handle], unit.key_groups)
        return [] if stored is None else [*count.add(stored), *count.take()]


class _CountHere:
    """Counts the units of an operator in this process. Small files are read together: counting one
    costs much more than its bytes do.
    """

    def __init__(self, count: _RangeCounts, again: Callable[[], _RangeCounts]) -> None:
        self._count = count
        self._again = again
        self._waiting: list[StoredKeyGroups] = []
        self._bytes = 0

    def add(self, stored: StoredRecords) -> Iterator[StateCounts]:
        """Counts records, now or with those that follow."""
        size = _JOINED_BYTES
        if isinstance(stored, StoredKeyGroups):
            places = stored.sections
            size = places[-1][2] - places[0][1] if places else 0
        if size > _SMALL_BYTES:
            yield from self._flush()
            yield from self._count.add(stored)
            return
        assert isinstance(stored, StoredKeyGroups)
        if self._waiting and self._waiting[0].header != stored.header:
            yield from self._flush()
        self._waiting.append(stored)
        self._bytes += size
        if self._bytes >= _JOINED_BYTES or len(self._waiting) == _JOINED_FILES:
            yield from self._flush()

    def finish(self) -> Iterator[StateCounts]:
        yield from self._flush()
        yield from self._count.take()

    def _flush(self) -> Iterator[StateCounts]:
        parts, self._waiting, self._bytes = self._waiting, [], 0
        if not parts:
            return
        try:
            yield from self._count.add(parts[0] if len(parts) == 1 else joined(parts))
        except DAMAGED:
            for part in parts:  # the error of one file names it
                [*self._again().add(part)]
            raise


def _keyed_counts(
    operator: OperatorSnapshot, options: CountOptions, jobs: Jobs, portion: Portion
) -> Iterable[StateCounts]:
    """The counts of every keyed state of an operator, and of its timers."""
    watermark = _watermark(operator)
    every = KeyGroupRange(0, operator.max_parallelism - 1)
    states: dict[tuple[str, str], StateCounts] = {}

    def add(counts: Iterable[StateCounts]) -> None:
        for count in counts:
            known = states.get((count.name, count.kind))
            if known is None:
                states[count.name, count.kind] = count.over(every)
            else:
                known.merge(count)

    def counter(catalog: OperatorCatalog) -> _RangeCounts:
        return _RangeCounts(catalog, watermark, options, every)

    processes = jobs_for(operator.keyed_size, jobs)
    if processes == 1:
        count = counter(operator)
        here = _CountHere(count, lambda: counter(operator))
        for unit in units_to_count(operator):
            stored = count.open(operator.keyed_handles[unit.handle], unit.key_groups)
            if stored is not None:
                add(here.add(stored))
            portion.add(unit.size)
        add(here.finish())
    else:
        task = _CountUnit(operator, watermark, options)
        for unit, counts in run_units(task, units_to_count(operator), processes):
            add(counts)
            portion.add(unit.size)
    for ready, key_groups in timers_in_parts(operator):
        count = counter(ready)
        for handle, of_handle in handle_parts(ready, key_groups):
            stored = count.open(handle, of_handle) if handle in ready.timer_queues else None
            if stored is not None:
                add(count.add(stored))
        add(count.take())
    return states.values()


def _decoder(record_format: RecordFormat, prefix_bytes: int) -> StateDecoder | None:
    try:
        return StateDecoder(record_format, prefix_bytes, COUNT_OPTIONS)
    except NotInColumnsError:
        return None


def _watermark(operator: OperatorSnapshot) -> int | None:
    """The watermark that a pipeline of dstl records, or the smallest one of the subtasks of a SQL
    operator; None if neither does.
    """
    sidecar = operator.snapshot.file.sidecar
    recorded = {} if sidecar is None else sidecar.notes.get("watermarks")
    watermark = recorded.get(operator.uid) if isinstance(recorded, dict) else None
    if isinstance(watermark, int) and watermark > MIN_WATERMARK:
        return watermark
    kinds = {info.kind for info in operator.operator_states if info.name == WATERMARK}
    if kinds.isdisjoint(("op-list", "op-union")):
        return None
    read = operator.union if "op-union" in kinds else operator.list
    values = [each for each in read(WATERMARK) if isinstance(each, int)]
    return min(values, default=None)


def _with_spreads(operator: OperatorSnapshot, counts: StateCounts) -> dict[str, Any]:
    entries = counts.entries
    subtasks = []
    for index in range(operator.parallelism):
        of_subtask = compute_key_group_range_for_operator_index(
            operator.max_parallelism, operator.parallelism, index
        )
        subtasks.append(
            int(entries[of_subtask.start_key_group : of_subtask.end_key_group + 1].sum())
        )
    return counts.to_json() | {
        "key_groups": Spread.of(entries.tolist()).to_json("entries"),
        "subtasks": Spread.of(subtasks).to_json("entries"),
    }


def _operator_states(operator: OperatorSnapshot) -> Iterator[dict[str, Any]]:
    """The elements of list and union state, and the pairs of broadcast state."""
    counts: Counter[tuple[str, str]] = Counter()
    unions: dict[str, UnionCounts] = {}
    for _, handle, reader in operator.operator_state_readers():
        for info in handle.states:
            kind = OPERATOR_KINDS[info.mode]
            counts[info.name, kind] += len(info.offsets)
            if kind == OP_UNION:
                known = unions.setdefault(info.name, UnionCounts(operator.parallelism))
                known.add_subtask(reader.raw_elements(info))
    for state in operator.operator_states:
        elements: int | None = counts[state.name, state.kind]
        if state.kind == OP_BROADCAST:  # every subtask has all pairs, behind one offset
            try:
                elements = len(operator.broadcast(state.name))
            except UNREADABLE:
                elements = None
        union = unions.get(state.name) if state.kind == OP_UNION else None
        yield {
            "name": state.name,
            "kind": state.kind,
            "entries": elements,
            "distinct": None if union is None else union.distinct,
            "copies": None if union is None else union.copies,
        }


class UnionCounts:
    """The equal elements of one union state, which are those with the same bytes.

    Args:
        parallelism: Subtasks of the operator.
    """

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self._subtasks = 0
        self._known: set[bytes] | None = set()
        self._in_every: dict[bytes, int] = {}
        """Copies that every subtask so far has of an element, if it has any."""

    def add_subtask(self, elements: Sequence[bytes]) -> None:
        """Counts the elements that one subtask stored."""
        stored = Counter(blake2b(raw, digest_size=_DIGEST_BYTES).digest() for raw in elements)
        if self._known is not None:
            self._known |= stored.keys()
            if len(self._known) > _MAX_DISTINCT:
                self._known = None
        before = self._in_every if self._subtasks else stored
        self._in_every = {raw: min(before[raw], stored[raw]) for raw in before.keys() & stored}
        self._subtasks += 1

    @property
    def distinct(self) -> int | None:
        """Number of different elements; None if there are too many to count."""
        return None if self._known is None else len(self._known)

    @property
    def copies(self) -> int:
        """How often every subtask has the element that it has most often; 0 if there is none that
        all subtasks have.

        A subtask that stores what it has got in a restore has all elements of the state before.
        With two copies or more in every subtask, the state has multiplied.
        """
        if self._subtasks < self._parallelism:
            return 0
        return max(self._in_every.values(), default=0)


def state_sizes(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Counts every record of a snapshot, in bounded memory.

    Returns:
        A dictionary per state with ``operator`` (its uid or hash), ``state``, ``kind``,
        ``entries`` and ``bytes``. A value, a list, an entry of a map and a timer is an entry; of
        operator state it is an element. Bytes are those of stored keys and values, before
        compression; None for operator state.

    Raises:
        FormatError: The state is damaged.
        StateFileNotFoundError: A file is missing.
    """
    rows = []
    for operator in snapshot.operators:
        contents = operator_contents(operator, CountOptions(at_ms=0))
        for state in (*contents["states"], *contents["operator_states"]):
            is_keyed = "key_bytes" in state
            rows.append(
                {
                    "operator": operator.label,
                    "state": state["name"],
                    "kind": state["kind"],
                    "entries": state["entries"],
                    "bytes": state["key_bytes"] + state["value_bytes"] if is_keyed else None,
                }
            )
    return sorted(rows, key=lambda row: (row["operator"], row["state"], row["kind"]))
