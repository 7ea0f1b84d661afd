"""The timers of a keyed operator, in event time and in processing time.

Source: ``InternalTimerServiceImpl``, ``TimerHeapInternalTimer`` and ``TimerService`` of Flink
2.2.1. A timer that is registered twice is one timer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import compress
from typing import Any

from dstl_core.clock import Clock
from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.serializers import (
    AnySerializer,
    TimerSerializer,
    VoidNamespaceSerializer,
    deserialize_exactly,
    serialize_to_bytes,
)
from dstl_core.codec.serializers.runtime import Timer
from dstl_core.errors import FormatError
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.tables.queue_table import QueueTable

EVENT_TIMERS = "_timer_state/event_"
PROCESSING_TIMERS = "_timer_state/processing_"
USER_TIMERS = "user-timers"
"""The service of ``KeyedProcessFunction``."""
MIN_WATERMARK = -(1 << 63)
MAX_WATERMARK = (1 << 63) - 1

_SORTED_TIME = struct.Struct(">Q")
_FLIPPED_TIME = struct.Struct(">q")
_SIGN_BIT = 1 << 63
_ONE = struct.pack(">i", 1)
TIME_BYTES = _SORTED_TIME.size
"""A timer begins with so many bytes of its time; the bytes of its key and namespace follow."""


def timer_bytes(times_ms: Sequence[int], scopes: Sequence[bytes]) -> list[bytes]:
    """The bytes of timers, from their times and the bytes of their keys and namespaces."""
    pack = _FLIPPED_TIME.pack
    pairs = zip(times_ms, scopes, strict=True)
    return [pack(time ^ -_SIGN_BIT) + scope for time, scope in pairs]


class TimeDomain(Enum):
    """The kind of time of a timer."""

    EVENT_TIME = "event"
    PROCESSING_TIME = "processing"


class TimerQueue:
    """The timers of one service and one time domain."""

    def __init__(
        self, backend: KeyedStateBackend, name: str, namespace_serializer: AnySerializer
    ) -> None:
        self._backend = backend
        self._table: QueueTable = backend.create_queue(name, namespace_serializer)
        self._serializer = TimerSerializer(backend.key_serializer, namespace_serializer)
        self._namespaces = namespace_serializer

    def register(self, namespace: Any, time_ms: int) -> None:
        """Adds a timer of the current key."""
        key_group, element = self._element(namespace, time_ms)
        if self._table.add(key_group, element):
            self._changed(StateChangeOperation.ADD_ELEMENT, key_group, _ONE + element)

    def delete(self, namespace: Any, time_ms: int) -> None:
        """Removes a timer of the current key, if there is one."""
        self._remove(*self._element(namespace, time_ms))

    def _element(self, namespace: Any, time_ms: int) -> tuple[int, bytes]:
        # Bytes that ``TimerSerializer`` writes; those of the key are there already.
        backend = self._backend
        try:
            time = _FLIPPED_TIME.pack(time_ms ^ -_SIGN_BIT)
        except (struct.error, TypeError) as error:
            raise FormatError(
                "A timer has no time", expected="64-bit milliseconds", got=type(time_ms).__name__
            ) from error
        named = backend.current_key + serialize_to_bytes(self._namespaces, namespace)
        return backend.current_key_group, time + named

    def _remove(self, key_group: int, element: bytes) -> None:
        if self._table.remove(key_group, element):
            self._changed(StateChangeOperation.REMOVE_ELEMENT, key_group, element)

    def _changed(self, operation: StateChangeOperation, key_group: int, operands: bytes) -> None:
        self._backend.queue_changed(self._table, operation, key_group, operands)

    def take_due(self, up_to_ms: int) -> Iterator[Timer]:
        """Removes and yields the due timers in order of time, also timers registered meanwhile.

        The key of a yielded timer is the current key.
        """
        limit = _SORTED_TIME.pack((up_to_ms ^ -_SIGN_BIT) & (2 * _SIGN_BIT - 1))
        while True:
            first = self._table.first()
            if first is None or first[1][:8] > limit:
                return
            timer = deserialize_exactly(self._serializer, first[1])
            self._backend.set_current_key(timer.key)
            self._remove(*first)
            yield timer

    def register_new(self, key_groups: Sequence[int], elements: Sequence[bytes]) -> None:
        """Adds timers that do not exist yet, as bytes (see ``timer_bytes``)."""
        self._table.add_new(key_groups, elements)
        if self._backend.logger is not None:
            counted = [_ONE + each for each in elements]
            self._log(StateChangeOperation.ADD_ELEMENT, key_groups, counted)

    def delete_many(self, key_groups: Sequence[int], elements: Sequence[bytes]) -> None:
        """Removes the timers of some keys, as bytes, where there are such timers."""
        remove = self._table.remove
        gone = [remove(group, each) for group, each in zip(key_groups, elements, strict=True)]
        self._removed(list(compress(key_groups, gone)), list(compress(elements, gone)))

    def _removed(self, key_groups: Sequence[int], elements: Sequence[bytes]) -> None:
        self._log(StateChangeOperation.REMOVE_ELEMENT, key_groups, elements)

    def _log(
        self, operation: StateChangeOperation, key_groups: Sequence[int], operands: Sequence[bytes]
    ) -> None:
        logger = self._backend.logger
        if logger is not None and operands:
            scopes = [b""] * len(operands)
            logger.logged_batch(self._table.meta, operation, key_groups, scopes, operands)

    def take_due_bytes(self, up_to_ms: int, most: int) -> tuple[list[int], list[bytes]]:
        """Removes due timers, about ``most`` at most. Those of a key are in order of time.

        Returns:
            Their key groups and their bytes.
        """
        is_last = up_to_ms == MAX_WATERMARK
        bound = None if is_last else _FLIPPED_TIME.pack((up_to_ms + 1) ^ -_SIGN_BIT)
        groups, elements = self._table.take_before(bound, most)
        self._removed(groups, elements)
        return groups, elements

    def __len__(self) -> int:
        return sum(len(group) for group in self._table.groups.values())


class InternalTimerService:
    """The timers of one service, with namespaces.

    Args:
        backend: The backend that stores the timers.
        clock: Gives processing time.
        name: Name of the service; a part of the names of its queues.
        namespace_serializer: The type of the namespaces, e.g. of a window.
    """

    def __init__(
        self,
        backend: KeyedStateBackend,
        clock: Clock,
        name: str = USER_TIMERS,
        namespace_serializer: AnySerializer | None = None,
    ) -> None:
        namespaces = namespace_serializer or VoidNamespaceSerializer()
        self._clock = clock
        self.event_time = TimerQueue(backend, EVENT_TIMERS + name, namespaces)
        self.processing_time = TimerQueue(backend, PROCESSING_TIMERS + name, namespaces)
        self.current_watermark = MIN_WATERMARK

    def current_processing_time(self) -> int:
        return self._clock.now_ms()

    def register_event_time_timer(self, namespace: Any, time_ms: int) -> None:
        self.event_time.register(namespace, time_ms)

    def register_processing_time_timer(self, namespace: Any, time_ms: int) -> None:
        self.processing_time.register(namespace, time_ms)

    def delete_event_time_timer(self, namespace: Any, time_ms: int) -> None:
        self.event_time.delete(namespace, time_ms)

    def delete_processing_time_timer(self, namespace: Any, time_ms: int) -> None:
        self.processing_time.delete(namespace, time_ms)

    def advance_watermark(self, watermark_ms: int) -> Iterator[Timer]:
        """Advances event time to at least this; yields the timers that fire. It never goes back."""
        self.current_watermark = max(self.current_watermark, watermark_ms)
        return self.event_time.take_due(self.current_watermark)

    def advance_processing_time(self) -> Iterator[Timer]:
        """Yields the processing-time timers that are due by the clock."""
        return self.processing_time.take_due(self._clock.now_ms())


class TimerService:
    """The timers of the current key, without namespaces, as functions use them."""

    def __init__(self, internal: InternalTimerService) -> None:
        self._internal = internal

    def current_watermark(self) -> int:
        return self._internal.current_watermark

    def current_processing_time(self) -> int:
        return self._internal.current_processing_time()

    def register_event_time_timer(self, time_ms: int) -> None:
        self._internal.register_event_time_timer(None, time_ms)

    def register_processing_time_timer(self, time_ms: int) -> None:
        self._internal.register_processing_time_timer(None, time_ms)

    def delete_event_time_timer(self, time_ms: int) -> None:
        self._internal.delete_event_time_timer(None, time_ms)

    def delete_processing_time_timer(self, time_ms: int) -> None:
        self._internal.delete_processing_time_timer(None, time_ms)
