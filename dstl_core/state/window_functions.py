"""What a window operator runs, by the names of Flink's Python DataStream API.

WindowFunction(TumblingEventTimeWindows.of(60_000), Types.LONG, reduce=lambda a, b: a + b,
    element="amount", process=Report())
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dstl_core.codec.declared_type import SchemaLike, TypeLike, declared_type
from dstl_core.codec.python_values import function_type, seen_records
from dstl_core.errors import ConfigError
from dstl_core.state.context import KeyedStateStore
from dstl_core.state.descriptor import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from dstl_core.state.evictors import Evictor
from dstl_core.state.functions import RichFunction, Row
from dstl_core.state.triggers import Trigger
from dstl_core.state.windowing import WindowAssigner

WINDOW_TIMERS = "window-timers"
WINDOW_CONTENTS = "window-contents"
MERGING_WINDOW_SET = "merging-window-set"


class ProcessWindowContext(Protocol):
    """What a ``ProcessWindowFunction`` may ask about the window that it is called for."""

    def window(self) -> Any: ...

    def current_processing_time(self) -> int: ...

    def current_watermark(self) -> int: ...

    def window_state(self) -> KeyedStateStore:
        """State per key and window, which ``clear`` has to clear; not for windows that merge."""
        ...

    def global_state(self) -> KeyedStateStore:
        """State per key."""
        ...


class ProcessWindowFunction(RichFunction, ABC):
    """Makes output of the contents of a window that fires."""

    @abstractmethod
    def process(
        self, key: Any, context: ProcessWindowContext, elements: Sequence[Any]
    ) -> Iterable[Any] | None:
        """Gives or yields output rows; a reduced or aggregated window has one element: its
        result.
        """

    def clear(self, context: ProcessWindowContext) -> None:
        """The window goes: its ``window_state`` has to go too."""


@dataclass(frozen=True)
class WindowFunction(RichFunction):
    """Windows over the rows of each key: ``keyed_stream.window(..).reduce(..)`` as a value.

    What is kept is one reduced element, an accumulator, or, without ``reduce`` and ``aggregate``
    or with an evictor, every element. A window that fires gives what ``process`` makes of it, or
    its contents as they are, which then have to be rows.

    Args:
        assigner: Which windows an element belongs to.
        type: Type of an element, or of the accumulator; of an element with an evictor.
        reduce: How two elements become one.
        aggregate: How elements become an accumulator.
        process: What the output is.
        element: What of a row is an element: a column or a function; the whole row by default.
        trigger: When windows fire; that of the assigner by default.
        evictor: What goes before or after the function.
        allowed_lateness: Milliseconds that a window lives on after its end.
        side_output_late_data: Columns of late rows: they come after all their windows have
            expired. With it they are a second output; without it they are dropped. They are counted
            in both cases.
        order_insensitive: Whether the result does not depend on the order of the rows of a key.
    """

    assigner: WindowAssigner
    type: TypeLike
    reduce: Callable[[Any, Any], Any] | None = None
    aggregate: AggregateFunction | None = None
    process: ProcessWindowFunction | None = None
    element: str | Callable[[Row], Any] | None = None
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    allowed_lateness: int = 0
    side_output_late_data: SchemaLike | None = None
    order_insensitive: bool = False

    def __post_init__(self) -> None:
        declared = declared_type(self.type, "The element of a window")
        object.__setattr__(self, "type", function_type(declared))
        if self.side_output_late_data is not None:
            # Arrow is loaded only where late rows are an output.
            from dstl_core.codec.columnar.declared_schema import schema_of

            late = schema_of(self.side_output_late_data, "side_output_late_data")
            object.__setattr__(self, "side_output_late_data", late)
        if self.reduce is not None and self.aggregate is not None:
            raise ConfigError("A window reduces or aggregates; give one function.")
        if self.allowed_lateness < 0:
            raise ConfigError(
                f"The allowed lateness of windows is not negative, got {self.allowed_lateness} ms."
            )

    def contents(self) -> StateDescriptor:
        """The descriptor of what windows keep."""
        if self.evictor is not None:
            return ListStateDescriptor(WINDOW_CONTENTS, seen_records(self.type))
        if self.reduce is not None:
            return ReducingStateDescriptor(WINDOW_CONTENTS, self.reduce, self.type)
        if self.aggregate is not None:
            return AggregatingStateDescriptor(WINDOW_CONTENTS, self.aggregate, self.type)
        return ListStateDescriptor(WINDOW_CONTENTS, self.type)

    def element_of(self, row: Row) -> Any:
        """What of a row goes into its windows."""
        if self.element is None:
            return row
        return row[self.element] if isinstance(self.element, str) else self.element(row)

    def result_of(self, elements: Sequence[Any]) -> Sequence[Any]:
        """What a function gets of the elements that an evictor has left."""
        if self.reduce is not None and elements:
            result = elements[0]
            for each in elements[1:]:
                result = self.reduce(result, each)
            return [result]
        if self.aggregate is not None:
            accumulator = self.aggregate.create_accumulator()
            for each in elements:
                accumulator = self.aggregate.add(each, accumulator)
            return [self.aggregate.get_result(accumulator)]
        return elements
