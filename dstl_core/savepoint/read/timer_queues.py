"""Converts timers of raw keyed state to the queues of a canonical savepoint of the same job.

RocksDB with heap timers writes them to raw keyed state of checkpoints. In canonical savepoints it
writes them to a queue for each service and time domain; these restore with every timer store.
Source: ``RocksDBKeyedStateBackend.requiresLegacySynchronousTimerSnapshots`` and
``InternalTimeServiceManagerImpl`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import TypeVar
from uuid import uuid4

from dstl_core.codec.keyed_canonical import write_canonical_stream, write_section
from dstl_core.codec.raw_timers import RawTimers, read_raw_timers
from dstl_core.codec.serializers import TimerSerializer, serialize_to_bytes
from dstl_core.codec.serializers.runtime import Timer
from dstl_core.codec.state_meta import KeyedBackendHeader, StateMetaInfoSnapshot
from dstl_core.errors import FormatError, SavepointError, UnreadableValueError, error_context
from dstl_core.model.handle import (
    NO_OFFSET,
    ByteStreamStateHandle,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.state.backends.timers import EVENT_TIMERS, PROCESSING_TIMERS
from dstl_core.state.restore.canonical import read_key_groups

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
    for cached in _OF_HANDLES:  # found again, with the timers
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


def with_timers_of(operator: OperatorCatalog, key_groups: KeyGroupRange) -> OperatorCatalog:
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
    queues = _Queues(key_group_prefix_bytes(operator.max_parallelism))
    with error_context(location=resolver.describe(handle.stream)):
        for key_group, data in read_key_groups(
            handle.offsets, handle.stream, key_groups, resolver, zero_is_empty=False
        ):
            queues.add(key_group, read_raw_timers(data, registry))
    if queues.header is None:
        return None
    stream, offsets = write_canonical_stream(queues.header, key_groups, queues.sections)
    return KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle(str(uuid4()), stream))


class _Queues:
    """Collects the timers of key groups."""

    def __init__(self, prefix_bytes: int) -> None:
        self._prefix_bytes = prefix_bytes
        self._states: dict[str, StateMetaInfoSnapshot] = {}
        self.header: KeyedBackendHeader | None = None
        self.sections: dict[int, bytes] = {}

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
            self.sections[key_group] = section
        if services:
            self.header = KeyedBackendHeader(services[0].key, tuple(self._states.values()))


def _records(
    prefix: bytes, element: TimerSerializer, timers: Sequence[Timer]
) -> list[tuple[bytes, bytes]]:
    """A record for every timer, sorted by bytes, which sorts them by time."""
    elements = {serialize_to_bytes(element, timer) for timer in timers}
    return [(prefix + each, b"") for each in sorted(elements)]
