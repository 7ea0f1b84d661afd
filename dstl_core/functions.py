"""Base classes of user functions, under the names of Flink's Python API, and their contexts.

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
from dstl_core.flink_text import DurationLike, duration_ms
from dstl_core.state.backends.context import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStates,
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
        subtask_index: Index of this subtask, from 0. It is always 0 for reader and bootstrap
            functions: they run once per range of key groups, and a range has no index.
        parallelism: Number of subtasks.
    """

    def __init__(
        self, backend: KeyedStates | None, subtask_index: int = 0, parallelism: int = 1
    ) -> None:
        super().__init__(backend)
        self.subtask_index = subtask_index
        self.parallelism = parallelism


@dataclass(slots=True)
class Context:
    """Time and timers of the element that a function processes."""

    current_key: Any
    element_timestamp: int | None = None
    timers: TimerService | None = None

    def get_current_key(self) -> Any:
        return self.current_key

    def timestamp(self) -> int | None:
        """Time of the element, or of the timer that fires; None if it has no time."""
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
    """The ``Context`` of a timer that fires."""

    domain: TimeDomain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        return self.domain


class RichFunction:
    """A function that is opened before the first element and closed after the last one."""

    order_insensitive: bool = False
    """Whether the result does not depend on the order of the elements of a key."""
    columns: ClassVar[Sequence[str] | None] = None
    """Columns that the function reads. A job passes these and the columns of the key, the time and
    the order. None passes all columns.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Registers state."""

    def close(self) -> None:
        """Runs after the last element."""


class KeyedProcessFunction(RichFunction, ABC):
    """Processes the rows of each key, with state and timers per key.

    ``open`` runs once per subtask and run. ``process_element`` then runs once per row, in the order
    of the run's ``order_by``. If the result does not depend on that order, set
    ``order_insensitive``: the rows of a key then come next to each other where that is faster.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Registers state. A function registers all of its state here."""

    @abstractmethod
    def process_element(self, value: Row, ctx: Context) -> Iterable[Any] | None:
        """Processes one row (column name to value); returns or yields output rows."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Runs when the timer of this time fires; returns or yields output rows."""


class RichMapFunction(RichFunction, ABC):
    """Returns one output for each element."""

    @abstractmethod
    def map(self, value: Any) -> Any: ...


class ProcessFunction(KeyedProcessFunction, ABC):
    """Processes rows without a key. It has operator state only, and no timers."""


class BroadcastFunction(ABC):
    """A function with a second, broadcast input: every subtask gets all of its rows."""

    @abstractmethod
    def process_broadcast_element(self, value: Row) -> None:
        """Processes one row of the broadcast input. All of them come before the subtask's own rows.

        Broadcast state must depend on these rows alone, so that it is the same on every subtask.
        """


class CheckpointedFunction(ABC):
    """A function that takes part in snapshots."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Registers state and reads what was restored into it. Runs before ``open``."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Copies what the function keeps in its own fields into the state."""


class RawStateOperator(ABC):
    """A function that keeps raw state, as Flink's operators can."""

    @abstractmethod
    def initialize_raw_state(self, context: StateInitializationContext) -> None:
        """Reads the raw streams of the restored snapshot."""

    @abstractmethod
    def snapshot_raw_state(self, context: StateSnapshotContext) -> None:
        """Writes the raw streams of the new snapshot."""


class ColumnResult(NamedTuple):
    """Result of ``process_batch``.

    ``state`` has a column for each state that may have changed and a row for each key; null clears
    the state of a key. ``output`` has the output rows.
    """

    state: pa.RecordBatch | pa.Table
    output: pa.RecordBatch | pa.Table | None = None


class KeyedColumnFunction(RichFunction, ABC):
    """Processes the rows of many keys at once, as Arrow columns. Its state is value state.

    A subtask passes its rows in one call, or in several calls if there are many. Rows come in the
    order of the run's ``order_by``.
    """

    states: ClassVar[Sequence[ValueStateDescriptor]]
    """The states. They have neither default values nor a time to live."""

    @abstractmethod
    def process_batch(
        self, keys: pa.Array, state: pa.RecordBatch, rows: pa.RecordBatch
    ) -> ColumnResult:
        """Computes the new state of the keys, and output rows.

        Args:
            keys: ``[n]`` distinct keys.
            state: ``[n]`` rows, a column for each state; null where a key has none.
            rows: ``[m]`` rows of the batch, with ``key_index``, the place of the key in ``keys``.
        """

    def output_of_changes(
        self, keys: pa.Array, state: pa.RecordBatch
    ) -> pa.RecordBatch | pa.Table | None:
        """More output rows, once it is known which keys changed. By default there are none.

        Args:
            keys: ``[n]`` keys of the last ``process_batch`` whose state is now another one.
            state: ``[n]`` rows, a column for each state, with the new state of these keys.
        """
        return None


class ProcessWindowContext(Protocol):
    """The window that a ``ProcessWindowFunction`` is called for, and its state."""

    def window(self) -> Any: ...

    def current_processing_time(self) -> int: ...

    def current_watermark(self) -> int: ...

    def window_state(self) -> KeyedStateStore:
        """State per key and window. ``clear`` must clear it. Merging windows have none."""
        ...

    def global_state(self) -> KeyedStateStore:
        """State per key."""
        ...


class ProcessWindowFunction(RichFunction, ABC):
    """Computes output from the contents of a window that fires."""

    @abstractmethod
    def process(
        self, key: Any, context: ProcessWindowContext, elements: Sequence[Any]
    ) -> Iterable[Any] | None:
        """Returns or yields output rows. A reduced or aggregated window has one element, its
        result.
        """

    def clear(self, context: ProcessWindowContext) -> None:
        """Clears ``window_state`` when the window is removed."""


@dataclass(frozen=True)
class WindowFunction(RichFunction):
    """Windows over the rows of each key: ``keyed_stream.window(..).reduce(..)`` as a value.

    A window keeps one reduced element or an accumulator. Without ``reduce`` and ``aggregate``, or
    with an evictor, it keeps every element. A window that fires outputs the rows of ``process``;
    without ``process`` it outputs its contents, which must be rows.

    Args:
        assigner: Which windows an element belongs to.
        type: Type of an element, or of the accumulator; of an element with an evictor.
        reduce: How two elements become one.
        aggregate: How elements become an accumulator.
        process: Computes the output rows of a window that fires.
        element: The part of a row that is the element: a column or a function; by default the row.
        trigger: Decides when windows fire; by default the assigner's trigger.
        evictor: Removes elements before or after the function.
        allowed_lateness: How long a window is kept after its end: milliseconds, text such as
            ``"1 h"``, or a ``timedelta``.
        side_output_late_data: Columns of late rows, which come after all their windows have
            expired. With it they are a second output; without it they are dropped. Both are
            counted.
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
    allowed_lateness: DurationLike = 0
    side_output_late_data: SchemaLike | None = None
    order_insensitive: bool = False

    def __post_init__(self) -> None:
        self._check()
        declared = declared_type(self.type, "The element of a window")
        object.__setattr__(self, "type", function_type(declared))
        if self.side_output_late_data is not None:
            # Arrow is loaded only where late rows are an output.
            from dstl_core.codec.columnar.types.declared_schema import schema_of

            late = schema_of(self.side_output_late_data, "side_output_late_data")
            object.__setattr__(self, "side_output_late_data", late)
        if self.reduce is not None and self.aggregate is not None:
            raise ConfigError("A window reduces or aggregates; give one function.")
        object.__setattr__(self, "allowed_lateness", self.lateness_ms)

    @property
    def lateness_ms(self) -> int:
        """Milliseconds for which a window is kept after its end."""
        return duration_ms(self.allowed_lateness, "The allowed lateness of windows", least=0)

    def _check(self) -> None:
        """Raises ConfigError if an argument is of another kind than it should be."""
        for name, kind in (
            ("assigner", WindowAssigner),
            ("process", ProcessWindowFunction),
            ("trigger", Trigger),
            ("evictor", Evictor),
        ):
            attribute = getattr(self, name)
            if not isinstance(attribute, kind) and (attribute is not None or name == "assigner"):
                raise _wrong_window(name, f"an object of the class {kind.__name__}", attribute)
        if self.reduce is not None and not callable(self.reduce):
            raise _wrong_window("reduce", "a function of two elements", self.reduce)
        if self.aggregate is not None and not hasattr(self.aggregate, "create_accumulator"):
            raise _wrong_window("aggregate", "an AggregateFunction", self.aggregate)
        element = self.element
        if element is not None and not isinstance(element, str) and not callable(element):
            raise _wrong_window("element", "the name of a column, or a function", element)

    def contents(self) -> StateDescriptor:
        """Descriptor of the state that holds the contents of windows."""
        if self.evictor is not None:
            return ListStateDescriptor(WINDOW_CONTENTS, seen_records(self.type))
        if self.reduce is not None:
            return ReducingStateDescriptor(WINDOW_CONTENTS, self.reduce, self.type)
        if self.aggregate is not None:
            return AggregatingStateDescriptor(WINDOW_CONTENTS, self.aggregate, self.type)
        return ListStateDescriptor(WINDOW_CONTENTS, self.type)

    def element_of(self, row: Row) -> Any:
        if self.element is None:
            return row
        return row[self.element] if isinstance(self.element, str) else self.element(row)

    def result_of(self, elements: Sequence[Any]) -> Sequence[Any]:
        """The elements that the function gets, of those that the evictor left."""
        if self.reduce is not None and elements:
            result = elements[0]
            for element in elements[1:]:
                result = self.reduce(result, element)
            return [result]
        if self.aggregate is not None:
            accumulator = self.aggregate.create_accumulator()
            for element in elements:
                accumulator = self.aggregate.add(element, accumulator)
            return [self.aggregate.get_result(accumulator)]
        return elements


def _wrong_window(argument: str, expected: str, got: Any) -> ConfigError:
    return ConfigError(f"The {argument} of a window is wrong: expected {expected}, got {got!r}.")


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
        """Registers the states to read. A function registers all of them here."""

    @abstractmethod
    def read_key(self, key: Any, ctx: ReadContext) -> Rows:
        """Returns or yields rows (dicts or tuples) for one key."""

    def close(self) -> None:  # noqa: B027  # need not be defined
        """Runs after the last key of a task."""


class WindowReadContext:
    """One window of a key: its timers (not those of other windows), and its state.

    Args:
        window: The window.
        kept_under: The window under which its contents are stored; another window after a merge.
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
        """Returns or yields rows for one window of a key. Reduced and aggregated windows have one
        element.
        """

    def close(self) -> None:  # noqa: B027  # need not be defined
        """Runs after the last window of a task."""


class BootstrapContext:
    """Time and timers for a keyed bootstrap function."""

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
    """Builds the state of each key from its rows, which come in the order of ``order_by``.

    Set ``uses_timers`` if the function registers timers. Only process functions can restore state
    with timers.
    """

    uses_timers: bool = False

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027  # need not be defined
        """Registers state. A function registers all of its state here."""

    @abstractmethod
    def process_element(self, value: Row, ctx: BootstrapContext) -> None:
        """Processes one row (column name to value)."""

    def close(self) -> None:  # noqa: B027  # need not be defined
        """Runs after the last row of a task."""


class StateBootstrapFunction(ABC):
    """Builds list and union state from rows. One instance runs per subtask."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Registers the state that ``process_element`` fills."""

    @abstractmethod
    def process_element(self, value: Row) -> None:
        """Processes one row (column name to value)."""

    def snapshot_state(self) -> None:  # noqa: B027  # need not be defined
        """Runs after the last row, before the state is written."""


class BroadcastBootstrapContext:
    """Gives a broadcast bootstrap function the states that it fills."""

    def __init__(self, backend: DefaultOperatorStateBackend) -> None:
        self._backend = backend

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState:
        """The empty broadcast state of a descriptor."""
        return self._backend.get_broadcast_state(descriptor)


class BroadcastStateBootstrapFunction(ABC):
    """Builds broadcast state from rows. It runs once, with the whole state in memory."""

    @abstractmethod
    def process_element(self, value: Row, ctx: BroadcastBootstrapContext) -> None:
        """Processes one row (column name to value)."""
