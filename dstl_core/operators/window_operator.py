"""The windows of a keyed operator: elements, timers, contents and clean-up.

Source: ``WindowOperator`` and ``EvictingWindowOperator`` of Flink 2.2.1. The state is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dstl_core.clock import Clock
from dstl_core.codec.python_values import seen_by_functions
from dstl_core.codec.serializers import AnySerializer, TupleSerializer
from dstl_core.codec.serializers.runtime import StreamRecord, Timer
from dstl_core.codec.serializers.window_types import TimeWindow
from dstl_core.errors import ConfigError, RestoreError
from dstl_core.functions import (
    MERGING_WINDOW_SET,
    WINDOW_CONTENTS,
    WINDOW_TIMERS,
    RuntimeContext,
    WindowFunction,
)
from dstl_core.operators.process_operator import KeySelector, NumberedRow
from dstl_core.operators.user_code import user_code
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.context import KeyedStateStore
from dstl_core.state.backends.keyed_collections import ListState
from dstl_core.state.backends.timers import InternalTimerService
from dstl_core.state.tables.descriptor import ListStateDescriptor, StateDescriptor
from dstl_core.state.windows.triggers import Trigger, TriggerResult
from dstl_core.state.windows.windowing import MAX_TIMESTAMP, WindowAssigner, max_timestamp

if TYPE_CHECKING:
    from dstl_core.state.held.key_batch import KeyBatch

Merged = Callable[[TimeWindow, list[TimeWindow], TimeWindow, list[TimeWindow]], None]
"""Called after a merge with the merged window, the windows that it replaces, the window that stores
its contents, and the windows that stored theirs.
"""


def refuse_other_windows(uid: str, backend: KeyedStateBackend, assigner: WindowAssigner) -> None:
    """Refuses restored windows that would never fire.

    Raises:
        RestoreError: They are sessions and these are not, or the other way round.
    """
    stored = {
        name: table is not None and any(table.groups.values())
        for name in (WINDOW_CONTENTS, MERGING_WINDOW_SET)
        for table in [backend.state.tables.get((name, False))]
    }
    if stored[WINDOW_CONTENTS] and stored[MERGING_WINDOW_SET] != assigner.is_merging:
        windows = (
            "session windows" if stored[MERGING_WINDOW_SET] else "windows that are no sessions"
        )
        raise RestoreError(
            f"The state of operator {uid!r} has open {windows}, which {type(assigner).__name__} "
            f"would never fire, so they would be lost; keep the windows until all have fired, or "
            f"give the operator another uid."
        )


class WindowOperator:
    """Adds elements to windows and fires windows. One thread.

    Args:
        function: The windows and their function.
        backend: The keyed state of the operator.
        clock: Gives processing time.
        key_by: Column with the key, or a function that returns the key of an element.
        subtask_index: Index of the subtask, from 0.
        parallelism: Number of subtasks.
        key_type: Type of the key for the function, if it differs from the stored type.
    """

    def __init__(
        self,
        function: WindowFunction,
        backend: KeyedStateBackend,
        clock: Clock,
        key_by: str | KeySelector,
        *,
        subtask_index: int = 0,
        parallelism: int = 1,
        key_type: AnySerializer | None = None,
    ) -> None:
        self._function = function
        self._assigner = function.assigner
        self._lateness = function.lateness_ms
        self._trigger = function.trigger or function.assigner.default_trigger()
        self._backend = backend
        self._key_type = key_type
        self._key_of: KeySelector = key_by if callable(key_by) else lambda row: row[key_by]
        windows = function.assigner.window_serializer
        self._contents: Any = backend.get_or_create_keyed_state(windows, function.contents())
        self.timers = InternalTimerService(backend, clock, WINDOW_TIMERS, windows)
        self._context = _TriggerContext(backend, self.timers, windows, self._trigger)
        self._process_context = _ProcessContext(backend, self.timers, windows, function.assigner)
        self._sessions: ListState | None = None
        if function.assigner.is_merging:
            pair = TupleSerializer((windows, windows))
            self._sessions = backend.get_list_state(ListStateDescriptor(MERGING_WINDOW_SET, pair))
        self.late_rows = 0
        """Number of rows that came after all of their windows had expired."""
        self.late: list[Any] = []
        """These rows, if they are a side output; the caller that takes them clears the list."""
        if function.process is not None:
            with user_code(function.process, "open"):
                function.process.open(RuntimeContext(backend, subtask_index, parallelism))

    # ------------------------------------------------------------------------------ elements

    def process(self, row: Any, timestamp: int | None = None) -> list[Any]:
        """Adds one element; returns the output of the windows that fire."""
        return self.add(self._key_of(row), row, timestamp)

    def keys_of(self, batch: KeyBatch) -> list[Any]:
        """The keys of a batch as ``add`` takes them, by number."""
        return batch.keys

    def process_rows(self, keys: Sequence[Any], rows: Iterable[NumberedRow]) -> list[Any]:
        output: list[Any] = []
        for number, row, timestamp in rows:
            self._backend.slot = number
            output += self._add_current(keys[number], row, timestamp)
        return output

    def add(self, key: Any, row: Any, timestamp: int | None) -> list[Any]:
        """As ``process``, for an element whose key is known.

        Raises:
            ConfigError: The windows are in event time, and the element has no timestamp.
        """
        self._backend.set_current_key(key)
        return self._add_current(key, row, timestamp)

    def _add_current(self, key: Any, row: Any, timestamp: int | None) -> list[Any]:
        """Adds an element of the current key.

        Raises:
            ConfigError: Windows in event time, and no timestamp or one whose windows have bounds
                of more than 64 bits.
        """
        if timestamp is None and self._assigner.is_event_time:
            raise ConfigError(
                "A row has no timestamp, which windows in event time need; give event_time, the "
                "column with the timestamp, and allow no null in it."
            )
        if timestamp is not None and not (
            self._assigner.first_time <= timestamp <= self._assigner.last_time
        ):
            raise self._assigner.time_error()
        output: list[Any] = []
        with user_code(self._function, "element"):
            element = self._function.element_of(row)
        if self._function.evictor is not None:
            element = StreamRecord(element, timestamp)
        windows: Sequence[Any] = self._assigner.assign_windows(
            timestamp or 0, self.timers.current_processing_time()
        )
        if self._sessions is None:
            added = [self._add(key, window, window, element, output) for window in windows]
        else:
            sessions = MergingWindowSet(self._sessions)
            added = [self._add_merging(key, each, sessions, element, output) for each in windows]
            sessions.persist()
        if not any(added) and self._is_late(timestamp or 0):
            self.late_rows += 1
            if self._function.side_output_late_data is not None:
                self.late.append(row)
        return output

    def _is_late(self, timestamp: int) -> bool:
        return self._assigner.is_event_time and timestamp + self._lateness <= self._watermark

    def _is_window_late(self, window: Any) -> bool:
        return self._assigner.is_event_time and self._cleanup_time(window) <= self._watermark

    @property
    def _watermark(self) -> int:
        return self.timers.current_watermark

    def _cleanup_time(self, window: Any) -> int:
        return self._assigner.cleanup_time(window, self._lateness)

    def _add(self, key: Any, window: Any, kept: Any, element: Any, output: list[Any]) -> bool:
        """Adds an element to a window; returns False if the window has expired."""
        if self._is_window_late(window):
            return False
        self._contents.set_current_namespace(kept)
        with user_code(self._function, "reduce or aggregate"):
            self._contents.add(element)
        self._context.enter(window)
        self._react(key, window, self._trigger.on_element(self._context), output)
        self._register_cleanup(window)
        return True

    def _add_merging(
        self, key: Any, window: Any, sessions: MergingWindowSet, element: Any, output: list[Any]
    ) -> bool:
        actual = sessions.add_window(window, self._merged)
        is_added = self._add(key, actual, sessions.state_window(actual), element, output)
        if not is_added:
            sessions.retire_window(actual)
        return is_added

    def _merged(self, result: Any, merged: list[Any], kept: Any, others: list[Any]) -> None:
        """Called after windows merged: merges trigger state and timers, then the contents."""
        self._context.enter(result, merged)
        self._trigger.on_merge(self._context)
        for window in merged:
            self._context.enter(window)
            self._trigger.clear(self._context)
            self._delete_cleanup(window)
        with user_code(self._function, "merge"):
            self._contents.merge_namespaces(kept, others)

    def _react(self, key: Any, window: Any, result: TriggerResult, output: list[Any]) -> None:
        """Fires and purges the window whose contents are current."""
        if result.is_fire:
            contents = self._contents.get()
            if contents is not None and contents != []:
                output += self._emit(key, window, contents)
        if result.is_purge:
            self._contents.clear()

    def _emit(self, key: Any, window: Any, contents: Any) -> list[Any]:
        function, evictor = self._function, self._function.evictor
        if evictor is None:
            elements = contents if isinstance(self._contents, ListState) else [contents]
            return self._call(key, window, elements)
        with user_code(evictor, "evict_before"):
            records = evictor.evict_before(contents)
        with user_code(function, "reduce or aggregate"):
            elements = function.result_of([record.value for record in records])
        output = self._call(key, window, elements)
        with user_code(evictor, "evict_after"):
            left = evictor.evict_after(records)
        if left != contents:
            self._contents.update(left)
        return output

    def _call(self, key: Any, window: Any, elements: Sequence[Any]) -> list[Any]:
        process = self._function.process
        if process is None:
            return list(elements)
        self._process_context.enter(window)
        with user_code(process, "process"):
            seen = seen_by_functions(key, self._key_type)
            return list(process.process(seen, self._process_context, elements) or ())

    # -------------------------------------------------------------------------------- timers

    def _register_cleanup(self, window: Any) -> None:
        time = self._cleanup_time(window)
        if time == MAX_TIMESTAMP:
            return  # the window never ends
        if self._assigner.is_event_time:
            self.timers.register_event_time_timer(window, time)
        else:
            self.timers.register_processing_time_timer(window, time)

    def _delete_cleanup(self, window: Any) -> None:
        time = self._cleanup_time(window)
        if time == MAX_TIMESTAMP:
            return
        if self._assigner.is_event_time:
            self.timers.delete_event_time_timer(window, time)
        else:
            self.timers.delete_processing_time_timer(window, time)

    def advance_watermark(self, watermark_ms: int) -> list[Any]:
        """Advances event time to at least this; returns the output of the windows that fire."""
        output: list[Any] = []
        for timer in self.timers.advance_watermark(watermark_ms):
            self._on_timer(timer, output, is_event_time=True)
        return output

    def advance_processing_time(self) -> list[Any]:
        """Fires the processing-time timers that are due by the clock; returns the output."""
        output: list[Any] = []
        for timer in self.timers.advance_processing_time():
            self._on_timer(timer, output, is_event_time=False)
        return output

    def _on_timer(self, timer: Timer, output: list[Any], *, is_event_time: bool) -> None:
        window = kept = timer.namespace
        sessions = None
        if self._sessions is not None:
            sessions = MergingWindowSet(self._sessions)
            kept = sessions.state_window(window)
            if kept is None:
                return  # the timer of a removed window
        self._contents.set_current_namespace(kept)
        self._context.enter(window)
        trigger, time = self._trigger, timer.timestamp
        on_timer = trigger.on_event_time if is_event_time else trigger.on_processing_time
        self._react(timer.key, window, on_timer(time, self._context), output)
        ends = self._assigner.is_event_time == is_event_time
        if ends and time == self._cleanup_time(window):
            self._clear(window)
            if sessions is not None:
                sessions.retire_window(window)
        if sessions is not None:
            sessions.persist()

    def _clear(self, window: Any) -> None:
        """Removes a window with its contents, trigger state and timers."""
        self._contents.clear()
        self._context.enter(window)
        self._trigger.clear(self._context)
        process = self._function.process
        if process is not None:
            self._process_context.enter(window)
            with user_code(process, "clear"):
                process.clear(self._process_context)

    def close(self) -> None:
        if self._function.process is not None:
            with user_code(self._function.process, "close"):
                self._function.process.close()


class _TriggerContext:
    """The context of a trigger, for one window of the current key."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        timers: InternalTimerService,
        windows: AnySerializer,
        trigger: Trigger,
    ) -> None:
        self._timers = timers
        self._window: Any = None
        self._merged: Sequence[Any] = ()
        self._states: dict[str, Any] = {
            state.name: backend.get_or_create_keyed_state(windows, state)
            for state in trigger.states
        }

    def enter(self, window: Any, merged: Sequence[Any] = ()) -> None:
        """Sets the window of the next calls; ``merged`` are the windows that it replaces."""
        self._window, self._merged = window, merged

    @property
    def max_timestamp(self) -> int:
        return max_timestamp(self._window)

    def get_current_watermark(self) -> int:
        return self._timers.current_watermark

    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def register_event_time_timer(self, time_ms: int) -> None:
        self._timers.register_event_time_timer(self._window, time_ms)

    def register_processing_time_timer(self, time_ms: int) -> None:
        self._timers.register_processing_time_timer(self._window, time_ms)

    def delete_event_time_timer(self, time_ms: int) -> None:
        self._timers.delete_event_time_timer(self._window, time_ms)

    def delete_processing_time_timer(self, time_ms: int) -> None:
        self._timers.delete_processing_time_timer(self._window, time_ms)

    def get_partitioned_state(self, descriptor: StateDescriptor) -> Any:
        state = self._states[descriptor.name]
        state.set_current_namespace(self._window)
        return state

    def merge_partitioned_state(self, descriptor: StateDescriptor) -> None:
        self._states[descriptor.name].merge_namespaces(self._window, self._merged)


class _ProcessContext:
    """The context of a process function, for one window of the current key."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        timers: InternalTimerService,
        windows: AnySerializer,
        assigner: WindowAssigner,
    ) -> None:
        self._timers = timers
        self._window: Any = None
        self._is_merging = assigner.is_merging
        self._global_state = KeyedStateStore(backend)
        self._window_state = _WindowStateStore(backend, windows)

    def enter(self, window: Any) -> None:
        self._window = self._window_state.window = window

    def window(self) -> Any:
        return self._window

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def current_watermark(self) -> int:
        return self._timers.current_watermark

    def window_state(self) -> KeyedStateStore:
        """Raises: ConfigError: The windows are merging windows."""
        if self._is_merging:
            raise ConfigError("Merging windows have no state per window; use global_state.")
        return self._window_state

    def global_state(self) -> KeyedStateStore:
        return self._global_state


class _WindowStateStore(KeyedStateStore):
    """Registers state per window."""

    def __init__(self, backend: KeyedStateBackend, windows: AnySerializer) -> None:
        super().__init__(backend)
        self._keyed = backend
        self._windows = windows
        self.window: Any = None

    def _state(self, descriptor: StateDescriptor) -> Any:
        return self._keyed.get_partitioned_state(self.window, self._windows, descriptor)


class MergingWindowSet:
    """The windows of the current key.

    Contents stay under the first window that stored them, while the window grows. Source:
    ``MergingWindowSet`` and ``TimeWindow.mergeWindows`` of Flink 2.2.1.
    """

    def __init__(self, state: ListState) -> None:
        self._state = state
        self._stored = {TimeWindow(*window): TimeWindow(*kept) for window, kept in state.get()}
        self._mapping = dict(self._stored)

    def state_window(self, window: TimeWindow) -> TimeWindow | None:
        """The window that stores the contents of ``window``; None if the set does not have it."""
        return self._mapping.get(window)

    def retire_window(self, window: TimeWindow) -> None:
        """Removes a window."""
        self._mapping.pop(window, None)

    def add_window(self, new: TimeWindow, merged: Merged) -> TimeWindow:
        """Adds a window; returns the result of its merge with all windows that it touches."""
        # Windows of the set never touch each other, so only windows that touch the new one merge.
        touching = [
            window
            for window in self._mapping
            if window.start <= new.end and window.end >= new.start
        ]
        if not touching:
            self._mapping[new] = new
            return new
        result = TimeWindow(
            min(new.start, *(window.start for window in touching)),
            max(new.end, *(window.end for window in touching)),
        )
        kept, *others = [self._mapping.pop(window) for window in touching]
        self._mapping[result] = kept
        if touching != [result]:
            merged(result, touching, kept, others)
        return result

    def persist(self) -> None:
        """Writes the set to the state, if it has changed."""
        if self._mapping != self._stored:
            self._state.update(list(self._mapping.items()))
            self._stored = dict(self._mapping)
