"""The functions that users write, by the names of Flink's Python API, and what they are given.

Jobs run process, map, broadcast, window and column functions. Reader functions read the state of a
savepoint row by row; bootstrap functions write it. As in Flink's Python API, a function returns or
yields its output rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from dstl_core.codec.declared_type import SchemaLike, TypeLike, declared_type
from dstl_core.codec.python_values import function_type, seen_records
from dstl_core.codec.serializers import AnySerializer, VoidNamespaceSerializer
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.context import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStateStore,
    StateInitializationContext,
    StateSnapshotContext,
)
from dstl_core.state.backends.function_state import StateAccess
from dstl_core.state.backends.operator_backend import BroadcastState, DefaultOperatorStateBackend
from dstl_core.state.backends.timers import TimeDomain, TimerService
from dstl_core.state.tables.descriptor import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.windows.evictors import Evictor
from dstl_core.state.windows.triggers import Trigger
from dstl_core.state.windows.windowing import WindowAssigner

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]
Rows = Iterable[Any] | None

KEY_INDEX = "key_index"
WINDOW_TIMERS = "window-timers"
WINDOW_CONTENTS = "window-contents"
MERGING_WINDOW_SET = "merging-window-set"


class RuntimeContext(KeyedStateStore):
    """Where a function registers its keyed state, in ``open``.

    Args:
        backend: The keyed state; None if the operator has none.
        subtask_index: Index of this subtask, from 0. A reader function and a bootstrap function run
            once per range of key groups, which has no index: 0.
        parallelism: Number of subtasks.
    """

    def __init__(
        self, backend: KeyedStateBackend | None, subtask_index: int = 0, parallelism: int = 1
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
    columns: ClassVar[Sequence[str] | None] = None
    """The columns that the function reads; a job gives it no others but those of the key, the time
    and the order. None: all columns.
    """

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


class ProcessFunction(KeyedProcessFunction, ABC):
    """Processes rows without a key: as ``KeyedProcessFunction``, with operator state only."""


class BroadcastFunction(ABC):
    """A function that gets rows of a second input, the same on every subtask."""

    @abstractmethod
    def process_broadcast_element(self, value: Row) -> None:
        """Takes one row of the broadcast input, before the rows of the subtask.

        What it puts into broadcast state has to depend on nothing but these rows, so that the state
        is the same everywhere.
        """


class CheckpointedFunction(ABC):
    """A function that takes part in snapshots."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Registers state, and restores from it; before ``open``."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Puts what is kept elsewhere into the state."""


class RawStateOperator(ABC):
    """A function that keeps raw state, as operators of Flink can."""

    @abstractmethod
    def initialize_raw_state(self, context: StateInitializationContext) -> None:
        """Reads the raw streams of the restored snapshot."""

    @abstractmethod
    def snapshot_raw_state(self, context: StateSnapshotContext) -> None:
        """Writes them."""


class ColumnResult(NamedTuple):
    """What ``process_batch`` gives: a column for each state that may have changed, a row for each
    key (null clears it), and output rows.
    """

    state: pa.RecordBatch | pa.Table
    output: pa.RecordBatch | pa.Table | None = None


class KeyedColumnFunction(RichFunction, ABC):
    """Processes the rows of many keys at once, on Arrow columns. State is value state.

    A subtask calls it once for its rows, or several times if they are many; the rows come in the
    order that the run asks for.
    """

    states: ClassVar[Sequence[ValueStateDescriptor]]
    """The states, without defaults and times to live."""

    @abstractmethod
    def process_batch(
        self, keys: pa.Array, state: pa.RecordBatch, rows: pa.RecordBatch
    ) -> ColumnResult:
        """Gives the new state of the keys, and output.

        Args:
            keys: ``[n]`` distinct keys.
            state: ``[n]`` rows, a column for each state; null where a key has none.
            rows: ``[m]`` rows of the batch, with ``key_index``, the place of the key in ``keys``.
        """


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
            from dstl_core.codec.columnar.types.declared_schema import schema_of

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
