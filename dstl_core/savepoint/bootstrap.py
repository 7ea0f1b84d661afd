"""Makes state from rows, one subtask at a time: by functions, and the windows of a window operator.

Source of what windows leave behind: ``WindowOperator``, ``MergingWindowSet`` and the triggers of
Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dstl_core.codec.operator_state import OperatorStream
from dstl_core.codec.serializers import (
    AnySerializer,
    TupleSerializer,
    Types,
)
from dstl_core.codec.serializers.runtime import StreamElementSerializer, StreamRecord
from dstl_core.codec.serializers.windows import TimeWindow
from dstl_core.errors import DstlError, UserFunctionError
from dstl_core.savepoint.functions import (
    BootstrapContext,
    BroadcastBootstrapContext,
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    Row,
    RuntimeContext,
    StateBootstrapFunction,
)
from dstl_core.savepoint.windowing import GLOBAL, MAX_TIMESTAMP, Trigger, WindowAssigner
from dstl_core.state.context import FunctionInitializationContext, KeyedStateStore
from dstl_core.state.descriptor import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
)
from dstl_core.state.function_state import StateAccess
from dstl_core.state.operator_backend import DefaultOperatorStateBackend
from dstl_core.state.timers import InternalTimerService, TimerService

WINDOW_TIMERS = "window-timers"
WINDOW_CONTENTS = "window-contents"
MERGING_WINDOW_SET = "merging-window-set"


class KeyedBootstrapOperator:
    """Feeds rows to a keyed bootstrap function. One thread."""

    def __init__(self, function: KeyedStateBootstrapFunction, access: StateAccess) -> None:
        self._function = function
        self._access = access
        timers = None
        if function.uses_timers:
            timers = TimerService(InternalTimerService(access, access.clock))
        self._context = BootstrapContext(access, timers)
        call_user(function, "open", RuntimeContext(access))
        access.close_registration()

    def process(self, key: Any, row: Row) -> None:
        self._access.set_current_key(key)
        call_user(self._function, "process_element", row, self._context)

    def close(self) -> None:
        call_user(self._function, "close")


def call_user(function: object, method: str, *arguments: Any) -> Any:
    """Calls a user's method; its errors name it."""
    try:
        return getattr(function, method)(*arguments)
    except DstlError:
        raise
    except Exception as error:
        name = f"{type(function).__name__}.{method}"
        raise UserFunctionError(
            f"The function {name} raised {type(error).__name__}: {error}"
        ) from error


# --------------------------------------------------------------------------------- windows


@dataclass(frozen=True)
class WindowOperation:
    """What a window operator keeps: ``reduce``, ``aggregate`` or every element.

    Args:
        assigner: Which windows an element belongs to.
        trigger: When they fire.
        type: Of an element, or of the accumulator.
        element: What of a row is added; the whole row by default.
        reduce: How two elements become one.
        aggregate: How elements become an accumulator.
        evicting: Whether elements are kept with their timestamps, for an evictor.
        allowed_lateness: Milliseconds that a window lives on after its end.
    """

    assigner: WindowAssigner
    trigger: Trigger
    type: AnySerializer
    element: Callable[[Row], Any]
    timestamp: Callable[[Row], int]
    reduce: Callable[[Any, Any], Any] | None = None
    aggregate: AggregateFunction | None = None
    evicting: bool = False
    allowed_lateness: int = 0

    def contents(self) -> Any:
        """The descriptor of the contents."""
        if self.evicting:
            return ListStateDescriptor(WINDOW_CONTENTS, StreamElementSerializer(self.type))
        if self.reduce is not None:
            return ReducingStateDescriptor(WINDOW_CONTENTS, self.reduce, self.type)
        if self.aggregate is not None:
            return AggregatingStateDescriptor(WINDOW_CONTENTS, self.aggregate, self.type)
        return ListStateDescriptor(WINDOW_CONTENTS, self.type)


class WindowBootstrapOperator:
    """Puts rows into windows as Flink's ``WindowOperator`` does before any watermark."""

    def __init__(self, operation: WindowOperation, access: StateAccess) -> None:
        self._operation = operation
        self._access = access
        self._windows = operation.assigner.window_serializer
        self._contents: Any = access.get_or_create_keyed_state(self._windows, operation.contents())
        self._timers = InternalTimerService(access, access.clock, WINDOW_TIMERS, self._windows)
        self._counts: Any = None
        if operation.trigger.kind == "count":
            counter = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG)
            self._counts = access.get_or_create_keyed_state(self._windows, counter)
        self._sessions: Any = None
        if operation.assigner.is_merging:
            pair = TupleSerializer((self._windows, self._windows))
            sessions = ListStateDescriptor(MERGING_WINDOW_SET, pair)
            self._sessions = access.get_list_state(sessions)
        access.close_registration()

    def process(self, key: Any, row: Row) -> None:
        operation = self._operation
        self._access.set_current_key(key)
        now = self._access.clock.now_ms()
        timestamp = call_user_value(operation.timestamp, row)
        element = call_user_value(operation.element, row)
        if operation.evicting:
            element = StreamRecord(element, timestamp)
        for window in operation.assigner.assign_windows(timestamp, now):
            if self._sessions is not None:
                self._add_to_session(window, element)
            else:
                self._add(window, window, element)

    def _add(self, window: Any, kept_under: Any, element: Any) -> None:
        self._contents.set_current_namespace(kept_under)
        self._contents.add(element)
        if self._on_element(window) and self._operation.trigger.purges:
            self._contents.clear()
        self._register(window)

    def _on_element(self, window: Any) -> bool:
        """Asks the trigger; whether the window fires."""
        trigger = self._operation.trigger
        if self._counts is None:
            return False
        self._counts.set_current_namespace(window)
        self._counts.add(1)
        if self._counts.get() < trigger.count:
            return False
        self._counts.clear()
        return True

    def _register(self, window: Any, *, delete: bool = False) -> None:
        """The timers of trigger and cleanup at the end of a window."""
        if window == GLOBAL:
            return  # it never ends
        operation = self._operation
        end = window.max_timestamp
        cleanup = end
        if operation.assigner.is_event_time:
            cleanup = min(end + operation.allowed_lateness, MAX_TIMESTAMP)
        times = {end, cleanup} if operation.trigger.kind != "count" else {cleanup}
        verb = "delete" if delete else "register"
        domain = "event" if operation.assigner.is_event_time else "processing"
        for time in times:
            getattr(self._timers, f"{verb}_{domain}_time_timer")(window, time)

    def _add_to_session(self, window: Any, element: Any) -> None:
        """Merges the windows that touch the new one. The contents stay under one of them."""
        pairs = [(TimeWindow(*actual), TimeWindow(*kept)) for actual, kept in self._sessions.get()]
        touching = [
            pair for pair in pairs if pair[0].start <= window.end and pair[0].end >= window.start
        ]
        actual, kept = window, touching[0][1] if touching else window
        for each, _ in touching:
            actual = TimeWindow(min(actual.start, each.start), max(actual.end, each.end))
        count = 0
        for each, under in touching:
            if each != actual:
                self._register(each, delete=True)
            count += self._take_count(each)
            if under != kept:
                self._contents.merge_namespaces(kept, [under])
        rest = [pair for pair in pairs if pair not in touching]
        self._sessions.update([*rest, (actual, kept)])
        if self._counts is not None and count:
            self._counts.set_current_namespace(actual)
            self._counts.update_internal(count)
        self._add(actual, kept, element)

    def _take_count(self, window: TimeWindow) -> int:
        if self._counts is None:
            return 0
        self._counts.set_current_namespace(window)
        count = self._counts.get() or 0
        self._counts.clear()
        return int(count)

    def close(self) -> None:
        """Nothing is open."""


def call_user_value(function: Callable[[Row], Any], row: Row) -> Any:
    """Calls a user's selector; its errors name it."""
    try:
        return function(row)
    except DstlError:
        raise
    except Exception as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise UserFunctionError(
            f"The function {name} raised {type(error).__name__}: {error}"
        ) from error


# -------------------------------------------------------------------------- operator state


def run_state_bootstrap(
    function: StateBootstrapFunction, rows: Iterable[Row]
) -> OperatorStream | None:
    """List and union state of one subtask; None without any."""
    backend = DefaultOperatorStateBackend()
    context = FunctionInitializationContext(KeyedStateStore(None), backend, None)
    call_user(function, "initialize_state", context)
    for row in rows:
        call_user(function, "process_element", row)
    call_user(function, "snapshot_state")
    return backend.snapshot()


def run_broadcast_bootstrap(
    function: BroadcastStateBootstrapFunction, rows: Iterable[Row]
) -> OperatorStream | None:
    """Broadcast state, whole; None without any."""
    backend = DefaultOperatorStateBackend()
    context = BroadcastBootstrapContext(backend)
    for row in rows:
        call_user(function, "process_element", row, context)
    return backend.snapshot()


def rows_of(batch: Any) -> list[Mapping[str, Any]]:
    """The rows of a record batch, as functions take them."""
    found: list[Mapping[str, Any]] = batch.to_pylist()
    return found
