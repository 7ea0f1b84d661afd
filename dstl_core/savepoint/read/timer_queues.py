"""Converts timers of raw keyed state to the queues of a canonical savepoint of the same job.

RocksDB with heap timers writes them to raw keyed state of checkpoints. In canonical savepoints it
writes them to a queue for each service and time domain; these restore with every timer store.
Source: ``RocksDBKeyedStateBackend.requiresLegacySynchronousTimerSnapshots`` and
``InternalTimeServiceManagerImpl`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TypeVar
from uuid import uuid4

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import (
    stream_of_sections,
    write_canonical_stream,
    write_section,
)
from dstl_core.codec.raw_timers import RawTimers, read_raw_timers
from dstl_core.codec.serializers import SerializerRegistry, TimerSerializer, serialize_to_bytes
from dstl_core.codec.serializers.runtime import Timer
from dstl_core.codec.state_meta import KeyedBackendHeader, StateMetaInfoSnapshot
from dstl_core.errors import (
    FormatError,
    NotInColumnsError,
    SavepointError,
    UnreadableValueError,
    error_context,
)
from dstl_core.model.handle import (
    NO_OFFSET,
    ByteStreamStateHandle,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.savepoint.read.entry_reader import BYTES_AT_ONCE
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.state.backends.timers import EVENT_TIMERS, PROCESSING_TIMERS
from dstl_core.state.restore.canonical import read_key_groups
from dstl_core.state.restore.kernel_sizes import are_read_by_kernels

Operator = TypeVar("Operator", bound=OperatorCatalog)
_OF_HANDLES = ("states", "keyed_handles", "keyed_size")
Choice = Callable[[KeyGroupRangeOffsets], KeyGroupRange]
"""Selects the key groups of a subtask to read."""


def _every(stored: KeyGroupRangeOffsets) -> KeyGroupRange:
    return stored.key_group_range


def _first(stored: KeyGroupRangeOffsets) -> KeyGroupRange:
    """The first key group with timers: every such key group names all services."""
    stored_groups = [key_group for key_group, offset in stored.items() if offset != NO_OFFSET]
    return (
        KeyGroupRange.of(stored_groups[0], stored_groups[0])
        if stored_groups
        else KeyGroupRange.of(0, -1)
    )


def with_timer_queues(operator: Operator, wanted: Choice = _every) -> Operator:
    """The operator with the timers of its raw keyed state in memory, as handles of keyed state.

    Args:
        operator: The operator. Timer queues that it already has are replaced.
        wanted: Selects the key groups to read.

    Raises:
        SavepointError: The raw keyed state does not hold timers, or timers that only Java can read.
    """
    raw = [each.raw_keyed_state for each in operator.state.subtasks if each.raw_keyed_state]
    if not raw:
        return operator
    derived = copy(operator)
    if derived.key_type is None:
        del derived.key_type  # derived again, from the timers
    try:
        queues = [_queues(operator, each, wanted) for each in raw]
    except (FormatError, UnreadableValueError) as error:
        raise SavepointError(
            f"Operator {operator.label!r} has raw keyed state that cannot be taken for timers "
            f"({error.message}); a rewrite has to leave the operator out.",
            location=str(operator.snapshot.folder),
        ) from error
    derived.timer_queues = tuple(each for each in queues if each is not None)
    for cached in _OF_HANDLES:  # derived again, with the timers
        vars(derived).pop(cached, None)
    return derived


def with_readable_timers(operator: Operator, wanted: Choice = _every) -> Operator:
    """Like ``with_timer_queues``, but returns the operator unchanged if the timers are
    unreadable.
    """
    try:
        return with_timer_queues(operator, wanted)
    except SavepointError:
        return operator


def with_timer_services(operator: OperatorCatalog) -> OperatorCatalog:
    """Like ``with_timer_queues``, for a few key groups: enough to know all queues."""
    return with_readable_timers(operator, _first)


def with_timer_queues_alone(operator: Operator) -> Operator:
    """Like ``with_timer_queues``, without the other keyed state.

    Raises:
        SavepointError: The raw keyed state does not hold timers, or timers that only Java can read.
    """
    derived = copy(with_timer_queues(operator))
    subtasks = (replace(each, managed_keyed_state=None) for each in operator.state.subtasks)
    derived.state = replace(operator.state, subtasks=tuple(subtasks))
    for cached in _OF_HANDLES:
        vars(derived).pop(cached, None)
    return derived


def timers_in_parts(operator: Operator) -> Iterator[tuple[Operator, KeyGroupRange]]:
    """The operator with the timers of its raw keyed state, for a few key groups at a time; nothing
    without such timers.

    Raises:
        SavepointError: A timer cannot be read.
    """
    if not with_timer_services(operator).timer_queues:
        return
    raw = [each.raw_keyed_state for each in operator.state.subtasks if each.raw_keyed_state]
    size = sum(each.state_size for each in raw)
    for key_groups in operator.key_group_splits(max(1, -(-size // BYTES_AT_ONCE))):
        yield with_timers_of(operator, key_groups), key_groups


def with_timers_of(operator: Operator, key_groups: KeyGroupRange) -> Operator:
    """Like ``with_timer_queues``, for some key groups.

    Raises:
        SavepointError: A timer cannot be read.
    """
    if not with_timer_services(operator).timer_queues:
        return operator
    return with_timer_queues(
        operator, lambda stored: stored.key_group_range.get_intersection(key_groups)
    )


def _queues(
    operator: OperatorCatalog, handle: KeyedStateHandle, wanted: Choice
) -> KeyGroupsSavepointStateHandle | None:
    """Timers of one subtask in canonical form; None if their key type is unknown."""
    if not isinstance(handle, KeyGroupsStateHandle):
        raise FormatError("Raw keyed state is of an unknown kind", got=type(handle).__name__)
    resolver, registry = operator.snapshot.resolver, operator.snapshot.registry
    key_groups = wanted(handle.offsets)
    prefix_bytes = key_group_prefix_bytes(operator.max_parallelism)
    with error_context(location=resolver.describe(handle.stream)):
        stored = [
            *read_key_groups(
                handle.offsets, handle.stream, key_groups, resolver, zero_is_empty=False
            )
        ]
        written = _by_columns(stored, key_groups, prefix_bytes, registry)
        if written is None:
            queues = _Queues(prefix_bytes)
            for key_group, data in stored:
                queues.add(key_group, read_raw_timers(data, registry))
            written = queues.written(key_groups)
    if written is None:
        return None
    stream, offsets = written
    return KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle(str(uuid4()), stream))


Stream = tuple[bytes, KeyGroupRangeOffsets]
"""A stream of canonical form, and its offsets."""


def _by_columns(
    stored: Sequence[tuple[int, DataInput]],
    key_groups: KeyGroupRange,
    prefix_bytes: int,
    registry: SerializerRegistry,
) -> Stream | None:
    """The timers of key groups of one stream; None if the record-wise code has to look."""
    if not are_read_by_kernels(sum(data.remaining for _, data in stored)):
        return None
    from dstl_core.codec.columnar.keyed.heap_rows import StoredKeyGroup  # loads the compiler
    from dstl_core.codec.columnar.keyed.runs import sections_of
    from dstl_core.codec.columnar.keyed.timer_rows import read_timer_rows, runs_of_timers

    raw, _, _ = stored[0][1].window()  # all are parts of it
    parts = [
        StoredKeyGroup(key_group, data.position, data.position + data.remaining)
        for key_group, data in stored
    ]
    try:
        services = read_timer_rows(raw, parts, prefix_bytes, registry)
    except (NotInColumnsError, FormatError):
        return None
    if not services:
        return None
    states: list[StateMetaInfoSnapshot] = []
    runs = []
    for service in services:
        for domain, timers in (
            (EVENT_TIMERS, service.event_time),
            (PROCESSING_TIMERS, service.processing_time),
        ):
            if len(timers.keys):
                runs.append(runs_of_timers(timers, len(states), key_groups, prefix_bytes))
            queue = domain + service.name
            states.append(StateMetaInfoSnapshot.priority_queue(queue, service.element))
    header = KeyedBackendHeader(services[0].element.key, tuple(states))
    sections, offsets = sections_of(runs, key_groups)
    return stream_of_sections(header, sections, offsets)


class _Queues:
    """Collects the timers of key groups."""

    def __init__(self, prefix_bytes: int) -> None:
        self._prefix_bytes = prefix_bytes
        self._states: dict[str, StateMetaInfoSnapshot] = {}
        self._header: KeyedBackendHeader | None = None
        self._sections: dict[int, bytes] = {}

    def add(self, key_group: int, services: Sequence[RawTimers]) -> None:
        runs: dict[int, list[tuple[bytes, bytes]]] = {}
        prefix = key_group.to_bytes(self._prefix_bytes, "big")
        for service in services:
            element = TimerSerializer(service.key, service.namespace)
            for queue, timers in (
                (EVENT_TIMERS + service.service, service.event_time),
                (PROCESSING_TIMERS + service.service, service.processing_time),
            ):
                meta = StateMetaInfoSnapshot.priority_queue(queue, element)
                known = self._states.setdefault(queue, meta)
                if known != meta:
                    raise FormatError(
                        f"Timers of {queue!r} have another type in another key group",
                        expected=known.value_serializer.type_name,
                        got=element.type_name,
                    )
                runs[list(self._states).index(queue)] = _records(prefix, element, timers)
        section = write_section(sorted(runs.items()))
        if section:
            self._sections[key_group] = section
        if services:
            self._header = KeyedBackendHeader(services[0].key, tuple(self._states.values()))

    def written(self, key_groups: KeyGroupRange) -> Stream | None:
        """All timers; None if no key group names a service."""
        if self._header is None:
            return None
        return write_canonical_stream(self._header, key_groups, self._sections)


def _records(
    prefix: bytes, element: TimerSerializer, timers: Sequence[Timer]
) -> list[tuple[bytes, bytes]]:
    """A record for every timer, sorted by bytes, which sorts them by time."""
    elements = {serialize_to_bytes(element, timer) for timer in timers}
    return [(prefix + each, b"") for each in sorted(elements)]
