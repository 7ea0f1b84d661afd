"""Keyed state for functions that read or bootstrap it, and the timers of a key.

It logs no changes, because such state is only read, or written as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from dstl_core.clock import Clock, SystemClock
from dstl_core.codec.serializers import AnySerializer, TimerSerializer, deserialize_exactly
from dstl_core.errors import NoSuchStateError, SavepointError
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.keyed_access import State
from dstl_core.state.backends.timers import EVENT_TIMERS, PROCESSING_TIMERS, USER_TIMERS
from dstl_core.state.tables.descriptor import StateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.state_table import StateTable
from dstl_core.state.tables.ttl import StateTtlConfig

_NEVER_EXPIRES = StateTtlConfig((1 << 63) - 1, cleanup_incrementally=0)


class StateAccess(KeyedStateBackend):
    """The state of one range of key groups. All states are registered before the first key.

    Args:
        state: The tables.
        key_serializer: The type of the keys.
        clock: Gives the time for values with a time to live.
        only_existing: For reading: a missing state is an error, and nothing expires.
    """

    def __init__(
        self,
        state: KeyedState,
        key_serializer: AnySerializer,
        clock: Clock | None = None,
        *,
        only_existing: bool = False,
    ) -> None:
        self.clock = clock or SystemClock()
        super().__init__(state, key_serializer, clock=self.clock)
        self._registered: dict[str, None] = {}
        self._only_existing = only_existing
        self._closed = False

    def close_registration(self) -> None:
        self._closed = True

    def place(self, key_group: int, key_bytes: bytes) -> None:
        """As ``set_current_key``, for a key whose bytes and key group are known."""
        self._place(key_group, key_bytes)

    def registered_tables(self) -> list[StateTable[Any]]:
        return [self.state.tables[name, False] for name in self._registered]

    def get_or_create_keyed_state(
        self, namespace_serializer: AnySerializer, descriptor: StateDescriptor
    ) -> State[Any]:
        """Registers and returns the state of a descriptor.

        Raises:
            NoSuchStateError: The state to read does not exist; the message lists the states.
            SavepointError: The registration has ended.
            RestoreError: The stored state has another type; the message shows both.
        """
        if self._closed:
            declared = ", ".join(map(repr, self._registered)) or "none"
            raise SavepointError(
                f"State {descriptor.name!r} was not registered in open; registered are: {declared}."
            )
        if self._only_existing:
            self._check_exists(descriptor.name)
            if descriptor.ttl is not None:
                descriptor = descriptor.enable_time_to_live(_NEVER_EXPIRES)
        state = super().get_or_create_keyed_state(namespace_serializer, descriptor)
        self._registered[descriptor.name] = None
        return state

    def _check_exists(self, name: str) -> None:
        known = sorted({name for name, is_queue in self.state.tables if not is_queue})
        if name not in known:
            names = ", ".join(map(repr, known)) or "none"
            raise NoSuchStateError(f"There is no state {name!r}; there are: {names}.")


class TimerIndex:
    """The timers of a range of key groups, by the bytes of key and namespace."""

    def __init__(self, state: KeyedState, service: str = USER_TIMERS) -> None:
        self.event = _by_scope(state, EVENT_TIMERS + service)
        self.processing = _by_scope(state, PROCESSING_TIMERS + service)

    def scopes(self, key_group: int) -> Iterator[bytes]:
        """Yields the scopes of a key group that have timers."""
        for by_group in (self.event, self.processing):
            yield from by_group.get(key_group, {})

    def of(self, key_group: int, scope: bytes) -> tuple[set[int], set[int]]:
        """The event-time and the processing-time timers of a scope."""
        return (
            set(self.event.get(key_group, {}).get(scope, ())),
            set(self.processing.get(key_group, {}).get(scope, ())),
        )


def _by_scope(state: KeyedState, name: str) -> dict[int, dict[bytes, list[int]]]:
    table = state.tables.get((name, True))
    by_scope: dict[int, dict[bytes, list[int]]] = {}
    if table is None:
        return by_scope
    element = cast(TimerSerializer, table.meta.value_serializer)
    for key_group, group in table.groups.items():
        of_group = by_scope.setdefault(key_group, {})
        for raw in group:
            timer = deserialize_exactly(element, raw)
            of_group.setdefault(raw[8:], []).append(timer.timestamp)
    return by_scope
