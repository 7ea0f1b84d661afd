"""The operator of process functions and map functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dstl_core.codec.python_values import AsPython, seen_by_functions
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError
from dstl_core.functions import (
    Context,
    KeyedProcessFunction,
    OnTimerContext,
    RichFunction,
    RichMapFunction,
    RuntimeContext,
)
from dstl_core.operators.user_code import user_code
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.timers import InternalTimerService, TimeDomain, TimerService

if TYPE_CHECKING:
    from dstl_core.state.held.key_batch import KeyBatch

KeySelector = Callable[[Any], Any]
NumberedRow = tuple[int, Any, int | None]
"""The number of a row's key in the batch, the row, and its timestamp."""


class CurrentRow(Protocol):
    """What has the number of the current key."""

    slot: int


class _Outside:
    """Replaces the backend if no batch is open."""

    slot = -1


class RowCalls:
    """Calls a function for elements. One thread.

    Args:
        function: A ``KeyedProcessFunction`` or ``RichMapFunction``.
        timers: The timers of the current key; None if the function has no key.
    """

    def __init__(self, function: RichFunction, timers: TimerService | None) -> None:
        self._function = function
        self._context = Context(None, None, timers)

    def apply(
        self, current: CurrentRow, keys: Sequence[Any], rows: Iterable[NumberedRow]
    ) -> list[Any]:
        """Calls the function for each element, in order; returns the output.

        Args:
            current: Gets the number of the key of each element.
            keys: The keys, by number.
            rows: The elements.
        """
        function = self._function
        output: list[Any] = []
        if isinstance(function, RichMapFunction):
            with user_code(function, "map"):
                for number, row, _ in rows:
                    current.slot = number
                    output.append(function.map(row))
            return output
        if not isinstance(function, KeyedProcessFunction):
            raise ConfigError(
                f"A keyed operator needs a KeyedProcessFunction or a RichMapFunction, got "
                f"{type(function).__name__}."
            )
        context, process = self._context, function.process_element
        with user_code(function, "process_element"):
            for number, row, timestamp in rows:
                current.slot = number
                context.current_key = keys[number]
                context.element_timestamp = timestamp
                result = process(row, context)
                if result:
                    output.extend(result)
        return output


class KeyedProcessOperator:
    """Calls a function for elements and timers, with state in a backend. One thread.

    Args:
        function: A ``KeyedProcessFunction`` or ``RichMapFunction``.
        backend: Its keyed state; None if the operator has no key.
        key_by: Column with the key, or a function that returns the key of an element.
        subtask_index: Index of the subtask, from 0.
        parallelism: Number of subtasks.
        timers: The timer service; None if time does not advance.
        key_type: Type of the key for the function, if it differs from the stored type.
        is_open: Whether the function was opened before.
    """

    def __init__(
        self,
        function: RichFunction,
        backend: KeyedStateBackend | None,
        key_by: str | KeySelector,
        *,
        subtask_index: int,
        parallelism: int,
        timers: InternalTimerService | None = None,
        key_type: AnySerializer | None = None,
        is_open: bool = False,
    ) -> None:
        self._function = function
        self._backend = backend
        self._key_of: KeySelector = key_by if callable(key_by) else lambda row: row[key_by]
        self._key_type = key_type
        self._internal_timers = timers
        own_timers = None if timers is None else TimerService(timers)
        self._calls = RowCalls(function, own_timers)
        self._on_timer = OnTimerContext(None, None, own_timers)
        if not is_open:
            with user_code(function, "open"):
                function.open(RuntimeContext(backend, subtask_index, parallelism))

    def process(self, row: Any, timestamp: int | None = None) -> list[Any]:
        """Applies one element; returns the output."""
        key = None
        if self._backend is not None:
            key = self._key_of(row)
            self._backend.set_current_key(key)
        return self._calls.apply(
            _Outside(), [seen_by_functions(key, self._key_type)], [(0, row, timestamp)]
        )

    def keys_of(self, batch: KeyBatch) -> list[Any]:
        """The keys of a batch in the form of the function, by number."""
        kind = self._key_type
        if isinstance(kind, AsPython):
            return list(map(kind.form.to_python, batch.keys))
        return batch.keys

    def process_rows(self, keys: Sequence[Any], rows: Iterable[NumberedRow]) -> list[Any]:
        """Applies elements in order; returns their output.

        Args:
            keys: The keys of the open batch; a single None if there is no keyed state.
            rows: The elements.
        """
        backend = self._backend
        return self._calls.apply(_Outside() if backend is None else backend, keys, rows)

    def advance_watermark(self, watermark_ms: int) -> list[Any]:
        """Advances event time to at least this; returns the output of the timers that fire."""
        return self._fire(TimeDomain.EVENT_TIME, watermark_ms)

    def advance_processing_time(self) -> list[Any]:
        """Fires the processing-time timers that are due by the clock; returns their output."""
        return self._fire(TimeDomain.PROCESSING_TIME, None)

    def _fire(self, domain: TimeDomain, watermark_ms: int | None) -> list[Any]:
        service, function = self._internal_timers, self._function
        if service is None:
            return []
        due = (
            service.advance_processing_time()
            if watermark_ms is None
            else service.advance_watermark(watermark_ms)
        )
        output: list[Any] = []
        context = self._on_timer
        context.domain = domain
        for timer in due:
            context.current_key = seen_by_functions(timer.key, self._key_type)
            context.element_timestamp = timer.timestamp
            if isinstance(function, KeyedProcessFunction):
                with user_code(function, "on_timer"):
                    output += function.on_timer(timer.timestamp, context) or ()
        return output

    def close(self) -> None:
        with user_code(self._function, "close"):
            self._function.close()
