"""What users write to read and bootstrap state row by row, by the names of Flink's API.

As in Flink's Python API, functions give or yield their rows instead of collecting them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dstl_core.codec.serializers import AnySerializer, VoidNamespaceSerializer
from dstl_core.errors import SavepointError
from dstl_core.state.context import FunctionInitializationContext, KeyedStateStore
from dstl_core.state.descriptor import MapStateDescriptor, StateDescriptor
from dstl_core.state.function_state import StateAccess
from dstl_core.state.operator_backend import BroadcastState, DefaultOperatorStateBackend
from dstl_core.state.timers import TimerService

Row = Mapping[str, Any]
Rows = Iterable[Any] | None


class RuntimeContext(KeyedStateStore):
    """Where functions register their state: in ``open``, all of it."""


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
    """One window of a key: its timers (not those of other windows), and its state.

    Args:
        window: The window.
        kept_under: The window that its contents are kept under, another one after a merge.
        access: The state.
        timers: Those of the window.
        window_type: The type of windows.
    """

    def __init__(
        self,
        window: Any,
        kept_under: Any,
        access: StateAccess,
        timers: ReadContext,
        window_type: AnySerializer,
    ) -> None:
        self._window = window
        self._kept_under = kept_under
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
        return self.window_state(descriptor)

    def window_state(self, descriptor: StateDescriptor) -> Any:
        """State that the function keeps per window."""
        return self._access.get_partitioned_state(self._kept_under, self._window_type, descriptor)

    def global_state(self, descriptor: StateDescriptor) -> Any:
        """State that the function keeps per key."""
        return self._access.get_or_create_keyed_state(VoidNamespaceSerializer(), descriptor)


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

    def __init__(self, access: StateAccess, timers: TimerService | None) -> None:
        self._access = access
        self._timers = timers

    def timer_service(self) -> TimerService:
        """Registers timers; they fire after the restore, never here."""
        if self._timers is None:
            raise SavepointError(
                "The bootstrap function has no timers; set uses_timers = True on its class."
            )
        return self._timers

    def get_current_key(self) -> Any:
        return self._access.get_current_key()

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


class BroadcastBootstrapContext:
    """Where a broadcast bootstrap function gets the states that it fills."""

    def __init__(self, backend: DefaultOperatorStateBackend) -> None:
        self._backend = backend

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState:
        """The broadcast state of a descriptor, to be filled."""
        return self._backend.get_broadcast_state(descriptor)


class BroadcastStateBootstrapFunction(ABC):
    """Makes broadcast state from rows. Runs once; the whole state is in memory."""

    @abstractmethod
    def process_element(self, value: Row, ctx: BroadcastBootstrapContext) -> None:
        """Takes one row (column name to value)."""
