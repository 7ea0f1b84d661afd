"""What users write to read and bootstrap state row by row, by the names of Flink's API.

As in Flink's Python API, functions give or yield their rows instead of collecting them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import SavepointError
from dstl_core.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.function_state import (
    AccessedAggregatingState,
    AccessedListState,
    AccessedMapState,
    AccessedReducingState,
    AccessedTimers,
    AccessedValueState,
    StateAccess,
)

Row = Mapping[str, Any]
Rows = Iterable[Any] | None


class RuntimeContext:
    """Where functions register their state: in ``open``, all of it."""

    def __init__(self, access: StateAccess) -> None:
        self._access = access

    def get_state(self, descriptor: ValueStateDescriptor) -> AccessedValueState:
        """The value state of a descriptor."""
        return self._access.get_state(descriptor)

    def get_list_state(self, descriptor: ListStateDescriptor) -> AccessedListState:
        """The list state of a descriptor."""
        return self._access.get_list_state(descriptor)

    def get_map_state(self, descriptor: MapStateDescriptor) -> AccessedMapState:
        """The map state of a descriptor."""
        return self._access.get_map_state(descriptor)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> AccessedReducingState:
        """The reducing state of a descriptor."""
        return self._access.get_reducing_state(descriptor)

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor
    ) -> AccessedAggregatingState:
        """The aggregating state of a descriptor."""
        return self._access.get_aggregating_state(descriptor)


# --------------------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class ReadContext:
    """The timers of the current key, in milliseconds."""

    event_time_timers: set[int]
    processing_time_timers: set[int]

    def registered_event_time_timers(self) -> set[int]:
        return self.event_time_timers

    def registered_processing_time_timers(self) -> set[int]:
        return self.processing_time_timers


class KeyedStateReaderFunction(ABC):
    """Reads the state of each key. Called once per key that has state of a registered descriptor
    or a timer.
    """

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027  # need not be defined
        """Registers the states to read. All of them have to be registered here."""

    @abstractmethod
    def read_key(self, key: Any, ctx: ReadContext) -> Rows:
        """Gives or yields rows (dicts or tuples) for one key."""

    def close(self) -> None:  # noqa: B027  # need not be defined
        """Runs after the last key of a task."""


class WindowReadContext:
    """One window of a key: its timers (not those of other windows), and its state."""

    def __init__(
        self, window: Any, access: StateAccess, timers: ReadContext, window_type: AnySerializer
    ) -> None:
        self._window = window
        self._access = access
        self._timers = timers
        self._window_type = window_type

    def window(self) -> Any:
        return self._window

    def registered_event_time_timers(self) -> set[int]:
        return self._timers.event_time_timers

    def registered_processing_time_timers(self) -> set[int]:
        return self._timers.processing_time_timers

    def trigger_state(self, descriptor: StateDescriptor) -> Any:
        """State of the trigger for this window."""
        return self._access.state_of(descriptor, self._window_type)

    def window_state(self, descriptor: StateDescriptor) -> Any:
        """State that the function keeps per window."""
        return self._access.state_of(descriptor, self._window_type)

    def global_state(self, descriptor: StateDescriptor) -> Any:
        """State that the function keeps per key."""
        return _GlobalState(self._access, self._access.state_of(descriptor))


class _GlobalState:
    """State under the void namespace, looked at while the current namespace is a window."""

    def __init__(self, access: StateAccess, state: Any) -> None:
        self._access, self._state = access, state

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._state, name)

        def call(*arguments: Any) -> Any:
            kept, self._access.current_namespace = self._access.current_namespace, b"\0"
            try:
                return method(*arguments)
            finally:
                self._access.current_namespace = kept

        return call


class WindowReaderFunction(ABC):
    """Reads the contents of each window."""

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027  # need not be defined
        """Runs once per task."""

    @abstractmethod
    def read_window(self, key: Any, ctx: WindowReadContext, elements: list[Any]) -> Rows:
        """Gives or yields rows for one window of a key; reduced and aggregated windows have one
        element.
        """

    def close(self) -> None:  # noqa: B027  # need not be defined
        """Runs after the last window of a task."""


# -------------------------------------------------------------------------------- writing


class BootstrapContext:
    """What a keyed bootstrap function may ask while it processes a row."""

    def __init__(self, access: StateAccess, timers: AccessedTimers | None) -> None:
        self._access = access
        self._timers = timers

    def timer_service(self) -> AccessedTimers:
        """Registers timers; they fire after the restore, never here."""
        if self._timers is None:
            raise SavepointError(
                "The bootstrap function has no timers; set uses_timers = True on its class."
            )
        return self._timers

    def get_current_key(self) -> Any:
        return self._access.current_key

    def current_processing_time(self) -> int:
        return self._access.clock.now_ms()


class KeyedStateBootstrapFunction(ABC):
    """Makes the state of each key from its rows, which come in ``order_by`` order.

    ``uses_timers``: whether it asks for the timer service. State with timers can be restored by
    process functions only.
    """

    uses_timers: bool = False

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027  # need not be defined
        """Registers state. All of it has to be registered here."""

    @abstractmethod
    def process_element(self, value: Row, ctx: BootstrapContext) -> None:
        """Takes one row (column name to value)."""

    def close(self) -> None:  # noqa: B027  # need not be defined
        """Runs after the last row of a task."""


@dataclass
class BootstrapListState:
    """A list or union state in the making."""

    elements: list[Any] = field(default_factory=list)

    def get(self) -> list[Any]:
        return list(self.elements)

    def add(self, element: Any) -> None:
        self.elements.append(element)

    def add_all(self, elements: Iterable[Any]) -> None:
        self.elements.extend(elements)

    def update(self, elements: Iterable[Any]) -> None:
        self.elements = list(elements)

    def clear(self) -> None:
        self.elements = []


@dataclass
class OperatorStateStore:
    """The operator state of one subtask in the making, by name."""

    lists: dict[str, tuple[ListStateDescriptor, bool, BootstrapListState]] = field(
        default_factory=dict
    )

    def get_list_state(self, descriptor: ListStateDescriptor) -> BootstrapListState:
        """State that is spread over the subtasks on restore."""
        return self._state(descriptor, union=False)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> BootstrapListState:
        """State that every subtask gets whole on restore."""
        return self._state(descriptor, union=True)

    def _state(self, descriptor: ListStateDescriptor, *, union: bool) -> BootstrapListState:
        found = self.lists.setdefault(descriptor.name, (descriptor, union, BootstrapListState()))
        return found[2]


@dataclass
class FunctionInitializationContext:
    """Where a state bootstrap function gets its state."""

    store: OperatorStateStore

    def get_operator_state_store(self) -> OperatorStateStore:
        return self.store


class StateBootstrapFunction(ABC):
    """Makes list and union state from rows. One instance runs per subtask."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Asks for the state that ``process_element`` fills."""

    @abstractmethod
    def process_element(self, value: Row) -> None:
        """Takes one row (column name to value)."""

    def snapshot_state(self) -> None:  # noqa: B027  # need not be defined
        """Runs after the last row, before the state is written."""


@dataclass
class BroadcastBootstrapContext:
    """The broadcast states in the making, by name."""

    states: dict[str, tuple[MapStateDescriptor, dict[Any, Any]]] = field(default_factory=dict)

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> dict[Any, Any]:
        """The map of a broadcast state, to be filled."""
        return self.states.setdefault(descriptor.name, (descriptor, {}))[1]


class BroadcastStateBootstrapFunction(ABC):
    """Makes broadcast state from rows. Runs once; the whole state is in memory."""

    @abstractmethod
    def process_element(self, value: Row, ctx: BroadcastBootstrapContext) -> None:
        """Takes one row (column name to value)."""
