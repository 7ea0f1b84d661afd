"""Makes state from rows, one subtask at a time: by functions, and the windows of a window operator.

Source of what windows leave behind: ``WindowOperator``, ``MergingWindowSet`` and the triggers of
Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dstl_core.codec.operator_state import (
    OperatorStream,
    broadcast_state_meta,
    list_state_meta,
    write_operator_stream,
)
from dstl_core.codec.serializers import (
    AnySerializer,
    TupleSerializer,
    Types,
    serialize_to_bytes,
)
from dstl_core.codec.serializers.runtime import StreamElementSerializer, StreamRecord
from dstl_core.codec.serializers.windows import TimeWindow
from dstl_core.errors import ConfigError, DstlError, UserFunctionError
from dstl_core.model.handle import OperatorStateMode
from dstl_core.savepoint.functions import (
    BootstrapContext,
    BroadcastBootstrapContext,
    BroadcastStateBootstrapFunction,
    FunctionInitializationContext,
    KeyedStateBootstrapFunction,
    OperatorStateStore,
    Row,
    RuntimeContext,
    StateBootstrapFunction,
)
from dstl_core.savepoint.windowing import GLOBAL, MAX_TIMESTAMP, Trigger, WindowAssigner
from dstl_core.state.descriptor import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
)
from dstl_core.state.function_state import StateAccess

WINDOW_TIMERS = "window-timers"
WINDOW_CONTENTS = "window-contents"
MERGING_WINDOW_SET = "merging-window-set"


class KeyedBootstrapOperator:
    """Feeds rows to a keyed bootstrap function. One thread."""

    def __init__(self, function: KeyedStateBootstrapFunction, access: StateAccess) -> None:
        self._function = function
        self._access = access
        timers = access.timers() if function.uses_timers else None
        self._context = BootstrapContext(access, timers)
        call_user(function, "open", RuntimeContext(access))
        access.close_registration()

    def process(self, key: Any, row: Row) -> None:
        self._access.set_key(key)
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
        self._contents = access.state_of(operation.contents(), self._windows)
        self._timers = access.timers(WINDOW_TIMERS, self._windows)
        self._counts = None
        if operation.trigger.kind == "count":
            counter = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG)
            self._counts = access.get_reducing_state(counter, self._windows)
        self._sessions: Any = None
        if operation.assigner.is_merging:
            pair = TupleSerializer((self._windows, self._windows))
            self._sessions = access.get_list_state(ListStateDescriptor(MERGING_WINDOW_SET, pair))
        access.close_registration()

    def process(self, key: Any, row: Row) -> None:
        operation = self._operation
        self._access.set_key(key)
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

    def _enter(self, window: Any) -> None:
        self._access.current_namespace = serialize_to_bytes(self._windows, window)

    def _add(self, window: Any, kept_under: Any, element: Any) -> None:
        self._enter(kept_under)
        self._contents.add(element)
        self._enter(window)
        fired = self._on_element(window)
        if fired and self._operation.trigger.purges:
            self._enter(kept_under)
            self._contents.clear()
        self._register(window)

    def _on_element(self, window: Any) -> bool:
        """Asks the trigger; whether the window fires."""
        trigger = self._operation.trigger
        if self._counts is None:
            return False
        self._counts.add(1)
        if self._counts.get() < trigger.count:
            return False
        self._counts.clear()
        return True

    def _register(self, window: Any, *, delete: bool = False) -> None:
        """The timers of trigger and cleanup at the end of a window."""
        if window == GLOBAL:
            return  # it never ends
        self._enter(window)
        operation = self._operation
        end = window.max_timestamp
        cleanup = end
        if operation.assigner.is_event_time:
            cleanup = min(end + operation.allowed_lateness, MAX_TIMESTAMP)
        times = {end, cleanup} if operation.trigger.kind != "count" else {cleanup}
        verb = "delete" if delete else "register"
        domain = "event" if operation.assigner.is_event_time else "processing"
        for time in times:
            getattr(self._timers, f"{verb}_{domain}_time_timer")(time)

    def _add_to_session(self, window: Any, element: Any) -> None:
        """Merges the windows that touch the new one. The contents stay under one of them."""
        self._access.current_namespace = b"\0"
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
                self._merge_contents(under, kept)
        self._access.current_namespace = b"\0"
        rest = [pair for pair in pairs if pair not in touching]
        self._sessions.update([*rest, (actual, kept)])
        if self._counts is not None and count:
            self._enter(actual)
            self._counts.update(count)
        self._add(actual, kept, element)

    def _take_count(self, window: TimeWindow) -> int:
        if self._counts is None:
            return 0
        self._enter(window)
        count = self._counts.get() or 0
        self._counts.clear()
        return int(count)

    def _merge_contents(self, source: TimeWindow, target: TimeWindow) -> None:
        operation = self._operation
        is_list = operation.evicting or (operation.reduce is None and operation.aggregate is None)
        self._enter(source)
        value = self._contents.get() if is_list else self._contents.value()
        self._contents.clear()
        self._enter(target)
        if is_list:
            self._contents.add_all(value)
        elif operation.aggregate is not None:
            old = self._contents.value()
            self._contents.update(operation.aggregate.merge(old, value) if old else value)
        else:
            self._contents.add(value)

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


def run_state_bootstrap(function: StateBootstrapFunction, rows: Iterable[Row]) -> OperatorStream:
    """List and union state of one subtask."""
    store = OperatorStateStore()
    call_user(function, "initialize_state", FunctionInitializationContext(store))
    for row in rows:
        call_user(function, "process_element", row)
    call_user(function, "snapshot_state")
    lists = []
    for name, (descriptor, union, state) in store.lists.items():
        serializer = _element(descriptor)
        raw = [serialize_to_bytes(serializer, each) for each in state.elements]
        mode = OperatorStateMode.UNION if union else OperatorStateMode.SPLIT_DISTRIBUTE
        lists.append((list_state_meta(name, mode, serializer), raw))
    return write_operator_stream(lists, [])


def _element(descriptor: ListStateDescriptor) -> AnySerializer:
    if descriptor.ttl is not None:
        raise ConfigError(f"Operator state {descriptor.name!r} has no time to live.")
    return descriptor.element_type


def run_broadcast_bootstrap(
    function: BroadcastStateBootstrapFunction, rows: Iterable[Row]
) -> OperatorStream:
    """Broadcast state, whole."""
    context = BroadcastBootstrapContext()
    for row in rows:
        call_user(function, "process_element", row, context)
    broadcasts = []
    for name, (descriptor, pairs) in context.states.items():
        key_type, value_type = descriptor.key_type, descriptor.value_type
        raw = [
            (serialize_to_bytes(key_type, key), serialize_to_bytes(value_type, value))
            for key, value in pairs.items()
        ]
        broadcasts.append((broadcast_state_meta(name, key_type, value_type), raw))
    return write_operator_stream([], broadcasts)


def rows_of(batch: Any) -> list[Mapping[str, Any]]:
    """The rows of a record batch, as functions take them."""
    found: list[Mapping[str, Any]] = batch.to_pylist()
    return found
