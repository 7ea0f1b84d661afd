"""The operator of process and map functions: feeds them elements and time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dstl_core.codec.python_values import seen_by_functions
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

KeySelector = Callable[[Any], Any]


class KeyedProcessOperator:
    """Feeds elements and time to a function on a backend. One thread.

    Args:
        function: A ``KeyedProcessFunction`` or ``RichMapFunction``.
        backend: Its keyed state; None if it has none, and so no key.
        key_by: Column that holds the key, or what gives the key of an element.
        subtask_index: From 0.
        parallelism: Number of subtasks.
        timers: What fires timers; None where time does not advance.
        key_type: Type of the key as the function sees it, where that is not as it is stored.
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
    ) -> None:
        self._function = function
        self._backend = backend
        self._key_of: KeySelector = key_by if callable(key_by) else lambda row: row[key_by]
        self._key_type = key_type
        self._internal_timers = timers
        self._timers = None if timers is None else TimerService(timers)
        self._context = Context(None, None, self._timers)
        self._on_timer = OnTimerContext(None, None, self._timers)
        with user_code(function, "open"):
            function.open(RuntimeContext(backend, subtask_index, parallelism))

    def process(self, row: Any, timestamp: int | None = None) -> list[Any]:
        """Applies one element; gives the output."""
        key = None
        if self._backend is not None:
            key = self._key_of(row)
            self._backend.set_current_key(key)
        function = self._function
        if isinstance(function, RichMapFunction):
            with user_code(function, "map"):
                return [function.map(row)]
        if not isinstance(function, KeyedProcessFunction):
            raise ConfigError(
                f"A keyed operator runs a KeyedProcessFunction or a RichMapFunction, got a "
                f"{type(function).__name__}."
            )
        context = self._context
        context.current_key = seen_by_functions(key, self._key_type)
        context.element_timestamp = timestamp
        with user_code(function, "process_element"):
            return list(function.process_element(row, context) or ())

    def advance_watermark(self, watermark_ms: int) -> list[Any]:
        """Event time is at least this; gives the output of the timers that fire."""
        return self._fire(TimeDomain.EVENT_TIME, watermark_ms)

    def advance_processing_time(self) -> list[Any]:
        """Fires the processing-time timers that are due by the clock; gives their output."""
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
