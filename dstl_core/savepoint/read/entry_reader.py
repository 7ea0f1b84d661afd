"""Reads an operator of a snapshot entry by entry, in ranges of key groups that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dstl_core.codec.raw_timers import read_raw_timers
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    OpaqueValue,
    TimerSerializer,
)
from dstl_core.codec.serializers.runtime import Timer
from dstl_core.codec.serializers.strings import string_java_hash
from dstl_core.codec.state_meta import KEY_SERIALIZER, StateMetaInfoSnapshot
from dstl_core.errors import FormatError, UnreadableValueError, error_context
from dstl_core.model.checkpoint import KEY_DECIMALS
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    KeyedStateHandle,
    KeyGroupsStateHandle,
    OperatorStateMetaInfo,
    OperatorStateMode,
    OperatorStreamStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, divided
from dstl_core.savepoint.read.entries import (
    EVENT_TIMER,
    OP_BROADCAST,
    OP_LIST,
    OP_UNION,
    PROC_TIMER,
    Entry,
    KeyedEntry,
    OperatorStateEntry,
    TimerEntry,
    Unreadable,
)
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.state.backends.timers import EVENT_TIMERS, PROCESSING_TIMERS
from dstl_core.state.restore.canonical import read_key_groups
from dstl_core.state.tables.keyed_state import KeyedState, LostEntries
from dstl_core.state.tables.state_table import StateTable

BYTES_AT_ONCE = 16 << 20
"""Bytes of stored state to read at once."""


class EntryReader:
    """The entries of one operator, or of one of its states.

    Iterating yields the readable entries; ``unreadable`` collects the others.
    """

    def __init__(
        self, operator: OperatorCatalog, state: str | None, key_groups: KeyGroupRange | None = None
    ) -> None:
        self._operator = operator
        self._only = state
        self._key_groups = key_groups
        self.unreadable: list[Unreadable] = []
        self.on_progress: Callable[[int], None] = lambda _: None
        """Called with the bytes of state that were read."""

    def __iter__(self) -> Iterator[Entry]:
        yield from self._readable(self._keyed())
        yield from self.readable_rest()

    def readable_range(
        self, handle: KeyedStateHandle, key_groups: KeyGroupRange
    ) -> Iterator[KeyedEntry | TimerEntry]:
        """The readable entries and timers of one of ``keyed_ranges``."""
        return self._readable(self._of_range(handle, key_groups))

    def readable_state(self, state: KeyedState) -> Iterator[KeyedEntry | TimerEntry]:
        """The readable entries and timers of restored state."""
        return self._readable(self._of_state(state))

    def readable_rest(self) -> Iterator[Entry]:
        """The readable entries outside ``keyed_ranges``: raw timers and operator state."""
        yield from self.raw_timers()
        for listed in self.operator_state_entries():
            if listed.is_readable:
                yield listed
            else:
                self._report(listed)

    def _readable(
        self, entries: Iterator[KeyedEntry | TimerEntry]
    ) -> Iterator[KeyedEntry | TimerEntry]:
        for entry in entries:
            if isinstance(entry, TimerEntry) or entry.is_readable:
                yield entry
            else:
                self._report(entry)

    def keyed_and_timers(self) -> Iterator[KeyedEntry | TimerEntry]:
        """The entries of keyed state, including opaque values, and the timers."""
        yield from self._keyed()
        yield from self.raw_timers()

    def keyed_entries(self) -> Iterator[KeyedEntry]:
        """The entries of key-value states, including opaque values."""
        return (entry for entry in self._keyed() if isinstance(entry, KeyedEntry))

    def timer_entries(self) -> Iterator[TimerEntry]:
        for entry in self._keyed():
            if isinstance(entry, TimerEntry):
                yield entry
        yield from self.raw_timers()

    def _report(self, entry: KeyedEntry | OperatorStateEntry) -> None:
        group = entry.key_group if isinstance(entry, KeyedEntry) else None
        reason = entry.reason or (
            f"values of type {entry.value_type.type_name} need Java classes of the job"
        )
        self.unreadable.append(
            Unreadable(entry.operator, entry.kind, entry.state, group, reason, entry)
        )

    # --------------------------------------------------------------------------------- keyed

    def _keyed(self) -> Iterator[KeyedEntry | TimerEntry]:
        for handle, key_groups in self.keyed_ranges():
            yield from self._of_range(handle, key_groups)

    def keyed_ranges(self) -> Iterator[tuple[KeyedStateHandle, KeyGroupRange]]:
        """Ranges to read one at a time. Progress is reported when the next range is requested."""
        for handle in self._operator.keyed_handles:
            ranges = self._ranges(handle)
            for key_groups in ranges:
                yield handle, key_groups
                self.on_progress(handle.state_size // len(ranges))

    def _of_range(
        self, handle: KeyedStateHandle, key_groups: KeyGroupRange
    ) -> Iterator[KeyedEntry | TimerEntry]:
        within = handle.key_group_range.get_intersection(self._key_groups or handle.key_group_range)
        state = self._operator.restore([handle], key_groups, keep_going=True, within=within)
        return self._of_state(state)

    def _of_state(self, state: KeyedState) -> Iterator[KeyedEntry | TimerEntry]:
        for key_group in state.key_groups:
            for table in state.tables.values():
                if self._only in (None, table.meta.name):
                    yield from self._of_table(table, key_group)
        self._report_lost(state)

    def _ranges(self, handle: KeyedStateHandle) -> list[KeyGroupRange]:
        ranges = key_group_ranges(handle)
        if self._key_groups is None:
            return ranges
        cut = [each.get_intersection(self._key_groups) for each in ranges]
        return [each for each in cut if len(each)]

    def _of_table(
        self, table: StateTable[Any], key_group: int
    ) -> Iterator[KeyedEntry | TimerEntry]:
        meta = table.meta
        with error_context(operator=self._operator.label, state=meta.name):
            for key, namespace, value in table.entries(key_group):
                if meta.is_queue:
                    yield self._timer(meta, key_group, value)
                else:
                    yield self._entry(table, key_group, key, namespace, value)

    def _entry(
        self, table: StateTable[Any], key_group: int, key: Any, namespace: Any, value: Any
    ) -> KeyedEntry:
        meta = table.meta
        return KeyedEntry(
            self._operator.label,
            meta.keyed_state_type.value.lower(),
            meta.name,
            key,
            key_group,
            namespace,
            value,
            table.codec.key_serializer,
            table.codec.namespace_serializer,
            meta.value_serializer,
            self._operator.decimals.get(meta.name),
            self._operator.decimals.get(KEY_DECIMALS),
            self._operator.forms,
        )

    def _timer(self, meta: StateMetaInfoSnapshot, key_group: int, timer: Timer) -> TimerEntry:
        serializer = meta.value_serializer
        if not isinstance(serializer, TimerSerializer):
            raise FormatError(
                f"Queue {meta.name!r} holds no timers", expected="Timer", got=serializer.type_name
            )
        event = meta.name.startswith(EVENT_TIMERS)
        prefix = EVENT_TIMERS if event else PROCESSING_TIMERS
        kind, service = EVENT_TIMER if event else PROC_TIMER, meta.name.removeprefix(prefix)
        types = serializer.key, serializer.namespace
        return self._timer_entry(kind, service, timer, key_group, types)

    def _timer_entry(
        self,
        kind: str,
        service: str,
        timer: Timer,
        key_group: int,
        types: tuple[AnySerializer, AnySerializer],
    ) -> TimerEntry:
        return TimerEntry(
            self._operator.label,
            kind,
            service,
            timer.key,
            key_group,
            timer.namespace,
            timer.timestamp,
            *types,
            self._operator.decimals.get(KEY_DECIMALS),
            self._operator.forms,
        )

    def _report_lost(self, state: KeyedState) -> None:
        for lost in state.lost:
            if self._only in (None, lost.meta.name):
                self.unreadable.append(self._unreadable(state, lost))

    def _unreadable(self, state: KeyedState, lost: LostEntries) -> Unreadable:
        meta = lost.meta
        kind = "timer" if meta.is_queue else meta.keyed_state_type.value.lower()
        entry = None
        if lost.scope and not meta.is_queue:
            table = state.tables[meta.name, False]
            key, namespace = table.codec.decode_scope(lost.scope)
            value = OpaqueValue(meta.value_serializer.opaque_class, b"")
            entry = self._entry(table, lost.key_group, key, namespace, value)
        return Unreadable(self._operator.label, kind, meta.name, lost.key_group, lost.reason, entry)

    # ---------------------------------------------------------------------------- raw timers

    def raw_timers(self) -> Iterator[TimerEntry]:
        """Timers in raw keyed state that are not yet queues; other raw keyed state is reported."""
        if self._only is not None or self._operator.timer_queues:
            return
        for subtask in self._operator.state.subtasks:
            handle = subtask.raw_keyed_state
            if handle is None:
                continue
            if not isinstance(handle, KeyGroupsStateHandle):
                self._report_raw("raw keyed state of an unknown kind")
                continue
            try:
                yield from self._timers_of_raw(handle)
            except (FormatError, UnreadableValueError) as error:
                self._report_raw(error.message)

    def _timers_of_raw(self, handle: KeyGroupsStateHandle) -> Iterator[TimerEntry]:
        snapshot = self._operator.snapshot
        with error_context(location=snapshot.resolver.describe(handle.stream)):
            groups = read_key_groups(
                handle.offsets,
                handle.stream,
                handle.key_group_range.get_intersection(self._key_groups or handle.key_group_range),
                snapshot.resolver,
                zero_is_empty=False,
            )
            for key_group, data in groups:
                for service in read_raw_timers(data, snapshot.registry):
                    for kind, timers in (
                        (EVENT_TIMER, service.event_time),
                        (PROC_TIMER, service.processing_time),
                    ):
                        types = service.key, service.namespace
                        for timer in timers:
                            yield self._timer_entry(kind, service.service, timer, key_group, types)

    def _report_raw(self, reason: str) -> None:
        self.unreadable.append(
            Unreadable(self._operator.label, "raw-keyed", "(raw keyed state)", None, reason)
        )

    # ------------------------------------------------------------------------ operator state

    def operator_state_entries(self) -> Iterator[OperatorStateEntry]:
        """List state by subtask; union and broadcast state once.

        Raises:
            FormatError: The state is damaged, or has different types in different subtasks.
        """
        lists: dict[str, dict[int, Any]] = {}
        unions: dict[str, list[tuple[OperatorStreamStateHandle, list[Any]]]] = {}
        broadcasts: dict[str, Any] = {}
        types: dict[tuple[str, str], AnySerializer] = {}
        for subtask, handle, reader in self._operator.operator_state_readers():
            for info in handle.states:
                if self._only not in (None, info.name):
                    continue
                value_type = _value_type(reader.header.state(info), info)
                if value_type != types.setdefault((_kind(info), info.name), value_type):
                    raise FormatError(
                        f"Operator state {info.name!r} has another type in another subtask",
                        expected=types[_kind(info), info.name].type_name,
                        got=value_type.type_name,
                    )
                match info.mode:
                    case OperatorStateMode.SPLIT_DISTRIBUTE:
                        lists.setdefault(info.name, {})[subtask] = reader.elements(info)
                    case OperatorStateMode.UNION:
                        part = handle, reader.elements(info)
                        unions.setdefault(info.name, []).append(part)
                    case OperatorStateMode.BROADCAST if info.name not in broadcasts:
                        broadcasts[info.name] = reader.pairs(info)
        for name, by_subtask in lists.items():
            for subtask in range(self._operator.parallelism):
                yield self._listed(OP_LIST, name, subtask, by_subtask.get(subtask, []), types)
        for name, parts in unions.items():
            elements = [element for _, part in _as_restored(parts) for element in part]
            yield self._listed(OP_UNION, name, None, elements, types)
        for name, pairs in broadcasts.items():
            yield self._listed(OP_BROADCAST, name, None, pairs, types)

    def _listed(
        self,
        kind: str,
        name: str,
        subtask: int | None,
        value: Any,
        types: dict[tuple[str, str], AnySerializer],
    ) -> OperatorStateEntry:
        label = self._operator.label
        return OperatorStateEntry(label, kind, name, subtask, value, types[kind, name])


def _as_restored(
    parts: list[tuple[OperatorStreamStateHandle, list[Any]]],
) -> list[tuple[OperatorStreamStateHandle, list[Any]]]:
    """The parts of a union state in the order in which Flink restores them.

    That is the order of a ``HashMap`` with the handles as keys
    (``RoundRobinOperatorStateRepartitioner`` of Flink 2.2.1). The hash of a file's handle depends
    on the path of the file, so such parts keep the order of the subtasks.
    """
    streams = [handle.stream for handle, _ in parts]
    names = [each.handle_name for each in streams if isinstance(each, ByteStreamStateHandle)]
    if len(names) < len(parts):
        return parts
    capacity = 16
    while len(parts) > capacity * 3 // 4:
        capacity *= 2
    hashes = [31 * string_java_hash(name) & 0xFFFFFFFF for name in names]
    buckets = [(each ^ each >> 16) & (capacity - 1) for each in hashes]
    return [parts[at] for at in sorted(range(len(parts)), key=buckets.__getitem__)]


def _kind(info: OperatorStateMetaInfo) -> str:
    return {
        OperatorStateMode.SPLIT_DISTRIBUTE: OP_LIST,
        OperatorStateMode.UNION: OP_UNION,
        OperatorStateMode.BROADCAST: OP_BROADCAST,
    }[info.mode]


def _value_type(meta: StateMetaInfoSnapshot, info: OperatorStateMetaInfo) -> AnySerializer:
    """The type of all elements of a state together."""
    if info.mode is OperatorStateMode.BROADCAST:
        return MapSerializer(meta.serializer(KEY_SERIALIZER), meta.value_serializer)
    return ListSerializer(meta.value_serializer)


def key_group_ranges(handle: KeyedStateHandle, times: int = 1) -> list[KeyGroupRange]:
    """Divides a handle's key groups into ranges of about ``times * BYTES_AT_ONCE``."""
    key_groups = handle.key_group_range
    total = len(key_groups)
    count = max(1, min(total, -(-handle.state_size // (times * BYTES_AT_ONCE))))
    return divided(key_groups, count)
