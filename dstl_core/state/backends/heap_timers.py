"""Timers beside RocksDB's files in native state, as a job with timers on the heap writes them.

They are raw keyed state, which Flink restores wherever the new job keeps its timers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from uuid import uuid4

from dstl_core.codec.columnar.keyed.timer_rows import stored_timers
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.raw_timers import StoredRun, StoredTimers, write_raw_timers
from dstl_core.codec.serializers import TimerSerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.model.handle import (
    NO_OFFSET,
    KeyGroupRangeOffsets,
    KeyGroupsStateHandle,
    StreamStateHandle,
)
from dstl_core.state.backends.timers import EVENT_TIMERS, PROCESSING_TIMERS
from dstl_core.state.tables.raw_sections import RawSections

_DOMAINS = (EVENT_TIMERS, PROCESSING_TIMERS)


class HeapTimers:
    """Collects the timers of one subtask. They fit into memory, as they do in Flink.

    Args:
        state: The state with the queues of timers.
    """

    def __init__(self, state: RawSections) -> None:
        self._key_groups = state.key_groups
        self._prefix_bytes = state.prefix_bytes
        self._queues = {
            state_id: meta
            for state_id, meta in enumerate(state.header.states)
            if _is_queue_of_timers(meta)
        }
        self._runs: dict[tuple[int, str], list[StoredRun]] = defaultdict(list)
        """Timers by key group and queue."""

    def has(self, state_id: int) -> bool:
        return state_id in self._queues

    def add(self, state_id: int, spans: Int64s) -> None:
        """Adds timers of a queue: records with whole keys. Those of a large key group come in
        several parts, in the order of the keys.
        """
        name = self._queues[state_id].name
        for key_group, run in stored_timers(spans, self._prefix_bytes):
            self._runs[key_group, name].append(run)

    def handle(
        self, add_stream: Callable[[bytes], StreamStateHandle]
    ) -> KeyGroupsStateHandle | None:
        """Stores the timers; None without timers."""
        if not self._runs:
            return None
        with_timers = {key_group for key_group, _ in self._runs}
        parts, offsets, position = [], [], 0
        for key_group in self._key_groups:
            is_empty = key_group not in with_timers
            services = b"" if is_empty else write_raw_timers([*self._services(key_group)])
            offsets.append(NO_OFFSET if is_empty else position)
            position += len(services)
            parts.append(services)
        stream = add_stream(b"".join(parts))
        ranges = KeyGroupRangeOffsets(self._key_groups, tuple(offsets))
        return KeyGroupsStateHandle(ranges, stream, str(uuid4()))

    def _services(self, key_group: int) -> Iterator[StoredTimers]:
        """All services: each key group with timers names them."""
        types: dict[str, TimerSerializer] = {}
        for meta in self._queues.values():
            domain = next(domain for domain in _DOMAINS if meta.name.startswith(domain))
            element = meta.value_serializer
            assert isinstance(element, TimerSerializer)  # ``_is_queue_of_timers``
            types[meta.name.removeprefix(domain)] = element
        for service, element in types.items():
            runs = (self._runs.get((key_group, domain + service), ()) for domain in _DOMAINS)
            yield StoredTimers(service, element, *runs)


def _is_queue_of_timers(meta: StateMetaInfoSnapshot) -> bool:
    return (
        meta.is_queue
        and meta.name.startswith(_DOMAINS)
        and isinstance(meta.value_serializer, TimerSerializer)
    )
