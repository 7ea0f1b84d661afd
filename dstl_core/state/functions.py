"""Functions over keyed state, by the names of Flink's Python DataStream API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dstl_core.codec.python_values import seen_by_functions
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError, StorageError, UserFunctionError
from dstl_core.state.backend import KeyedStateBackend
from dstl_core.state.context import KeyedStateStore
from dstl_core.state.timers import (
    InternalTimerService,
    TimeDomain,
    TimerService,
)

Row = Mapping[str, Any]
KeySelector = Callable[[Any], Any]


class RuntimeContext(KeyedStateStore):
    """Where a function registers its keyed state, in ``open``."""

    def __init__(
        self, backend: KeyedStateBackend | None, subtask_index: int, parallelism: int
    ) -> None:
        super().__init__(backend)
        self.subtask_index = subtask_index
        self.parallelism = parallelism


@dataclass(slots=True)
class Context:
    """What a function may ask while it processes an element."""

    current_key: Any
    element_timestamp: int | None = None
    timers: TimerService | None = None

    def get_current_key(self) -> Any:
        return self.current_key

    def timestamp(self) -> int | None:
        """The time of the element, or of the timer that fires; None without one."""
        return self.element_timestamp

    def timer_service(self) -> TimerService:
        """The timers of the current key.

        Raises:
            ConfigError: The operator has no key.
        """
        if self.timers is None:
            raise ConfigError(
                "An operator without a key has no timers, because a timer belongs to a key; use a "
                "KeyedOperator."
            )
        return self.timers


@dataclass(slots=True)
class OnTimerContext(Context):
    """As ``Context``, while a timer fires."""

    domain: TimeDomain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        return self.domain


class RichFunction:
    """A function with a beginning and an end."""

    order_insensitive: bool = False
    """Whether the result does not depend on the order of the elements of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Registers state."""

    def close(self) -> None:
        """Runs after the last element."""


class KeyedProcessFunction(RichFunction, ABC):
    """Processes the rows of each key, with state and timers per key.

    ``open`` runs once per subtask and run, then ``process_element`` once per row, in the order the
    run asks for. A function whose result does not depend on that order says so.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Registers state. Every state has to be registered here."""

    @abstractmethod
    def process_element(self, value: Row, ctx: Context) -> Iterable[Any] | None:
        """Takes one row (column name to value); gives or yields output rows."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """A timer fires that was registered for this time; gives or yields output rows."""


class RichMapFunction(RichFunction, ABC):
    """Gives one output for each element."""

    @abstractmethod
    def map(self, value: Any) -> Any: ...


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


class user_code:
    """Names the function and the method in whatever a user's code raises."""

    __slots__ = ("_function", "_method")

    def __init__(self, function: object, method: str) -> None:
        self._function = function
        self._method = method

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # What storage refuses is nothing that the function did.
        if isinstance(error, Exception) and not isinstance(error, StorageError):
            name = f"{type(self._function).__name__}.{self._method}"
            raise UserFunctionError(
                f"The function {name} raised {type(error).__name__}: {error}"
            ) from error
