"""``OperatorTransformation``: builds the state of an operator from rows, by functions or columns.

OperatorTransformation.bootstrap_with(df).key_by("id").transform(AccountBootstrapper())
OperatorTransformation.bootstrap_with(df).key_by("id").transform_columns()
OperatorTransformation.bootstrap_with(df).key_by("id").window(TumblingEventTimeWindows.of(300_000),
    timestamp="ts").reduce(lambda a, b: .., type=Types.DOUBLE, element="amount")
OperatorTransformation.bootstrap_with(df).transform(SimpleBootstrapFunction())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dstl_core.clock import SystemClock
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions
from dstl_core.codec.declared_type import TypeLike
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TimerSerializer,
    VoidNamespaceSerializer,
)
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import ConfigError
from dstl_core.flink_text import DurationLike
from dstl_core.functions import (
    WINDOW_CONTENTS,
    WINDOW_TIMERS,
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    Row,
    StateBootstrapFunction,
    WindowFunction,
)
from dstl_core.model.handle import OperatorStateMode
from dstl_core.model.key_group import check_parallelism_bounds
from dstl_core.savepoint.bootstrap.bootstrap_arguments import (
    broadcast_columns,
    check_calls,
    check_column_name,
    check_is,
    check_operator_states,
    check_options_of_columns,
    check_selector,
    columns_of,
    descriptors_of,
    mapping_of,
)
from dstl_core.savepoint.bootstrap.bootstrap_rows import BootstrapRows, check_column
from dstl_core.savepoint.bootstrap.column_runs import ColumnRuns, KeyGroupColumn, StateColumns
from dstl_core.savepoint.bootstrap.keyed_functions import KeyedFunction
from dstl_core.savepoint.bootstrap.operator_bootstrap import FromColumns, RunBroadcast, RunFunction
from dstl_core.savepoint.bootstrap.state_bootstrap import (
    ColumnBootstrap,
    KeyedFunctionBootstrap,
    OperatorStateBootstrap,
)
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.write.bootstrap import WindowOperation
from dstl_core.state.backends.timers import EVENT_TIMERS, PROCESSING_TIMERS, USER_TIMERS
from dstl_core.state.columns.state_columns import KEY_COLUMN, KEY_GROUP_COLUMN
from dstl_core.state.tables.descriptor import AggregateFunction, StateDescriptor
from dstl_core.state.windows.evictors import Evictor
from dstl_core.state.windows.triggers import Trigger
from dstl_core.state.windows.windowing import WindowAssigner

Selector = str | Callable[[Row], Any]
_WINDOW_KINDS = ("reducing", "aggregating", "list")
_TIMERS = ("event_time_timers", "processing_time_timers")


@dataclass(frozen=True)
class OneInputStateTransformation:
    """The rows from which state is built."""

    rows: BootstrapRows
    parallelism: int | None = None

    def set_parallelism(self, parallelism: int) -> OneInputStateTransformation:
        """Sets the number of subtasks of the operator; by default one per core."""
        return replace(self, parallelism=check_parallelism_bounds(parallelism))

    def transform(
        self, function: StateBootstrapFunction | BroadcastStateBootstrapFunction
    ) -> OperatorStateBootstrap:
        """Builds operator state by a function. One task builds broadcast state, in memory."""
        kinds = (StateBootstrapFunction, BroadcastStateBootstrapFunction)
        expected = (
            "an object of a class of StateBootstrapFunction or BroadcastStateBootstrapFunction"
        )
        check_is("The function of transform", function, kinds, expected)
        if isinstance(function, BroadcastStateBootstrapFunction):
            return OperatorStateBootstrap(self.rows, 1, RunBroadcast(function))
        return OperatorStateBootstrap(self.rows, self.parallelism, RunFunction(function))

    def transform_columns(
        self,
        *,
        list_state: Mapping[str, TypeLike | None] | None = None,
        union_state: Mapping[str, TypeLike | None] | None = None,
        broadcast_state: Mapping[str, tuple[str, str]] | None = None,
        types: Mapping[str, TypeLike] | None = None,
    ) -> OperatorStateBootstrap:
        """Builds operator state from columns.

        Args:
            list_state: Columns that become list states of the same names, with types in any form
                (None: from the column). Nulls are left out.
            union_state: The same for union states.
            broadcast_state: Names of broadcast states to the columns of keys and values.
            types: Flink types of the columns of broadcast states.
        """
        listed = mapping_of("list_state", list_state, "{'item': 'string'}")
        united = mapping_of("union_state", union_state, "{'item': 'string'}")
        pairs = broadcast_columns(broadcast_state)
        declared = mapping_of("types", types, "{'item': 'string'}")
        check_operator_states(listed, united, pairs, declared)
        modes = {OperatorStateMode.SPLIT_DISTRIBUTE: listed, OperatorStateMode.UNION: united}
        lists = [
            (name, self.rows.flink_type(name, kind), mode)
            for mode, columns in modes.items()
            for name, kind in columns.items()
        ]
        broadcasts = [
            (
                name,
                *(
                    (column, self.rows.flink_type(column, declared.get(column)))
                    for column in columns
                ),
            )
            for name, columns in pairs.items()
        ]
        if not lists and not broadcasts:
            raise ConfigError("Name at least one list_state, union_state or broadcast_state.")
        used: list[str] = [name for name, _, _ in lists]
        used += [column for columns in pairs.values() for column in columns]
        make = FromColumns(tuple(lists), tuple(broadcasts))
        parallelism = 1 if broadcasts else self.parallelism
        return OperatorStateBootstrap(self.rows, parallelism, make, tuple(dict.fromkeys(used)))

    def key_by(self, column: str, key_type: TypeLike | None = None) -> KeyedStateTransformation:
        """Keys the rows by a column. Its Flink type follows from its own type by default. A tuple
        key needs a struct column.
        """
        serializer = self.rows.flink_type(column, key_type)
        return KeyedStateTransformation(self.rows, column, serializer, self.parallelism)


@dataclass(frozen=True)
class KeyedStateTransformation:
    """Rows with a key."""

    rows: BootstrapRows
    key_column: str
    key_type: AnySerializer
    parallelism: int | None

    def transform(
        self, function: KeyedStateBootstrapFunction, *, order_by: Sequence[str] = ()
    ) -> KeyedFunctionBootstrap:
        """Builds keyed state by a function.

        Args:
            function: Called for every row.
            order_by: The order of the rows of a key. All other columns break ties.
        """
        expected = "an object of a class of KeyedStateBootstrapFunction"
        check_is("The function of transform", function, KeyedStateBootstrapFunction, expected)
        order = columns_of("order_by", order_by)
        keyed = KeyedFunction(self.key_column, self.key_type, function)
        return KeyedFunctionBootstrap(self.rows, self.parallelism, keyed, order)

    def transform_columns(
        self,
        types: Mapping[str, TypeLike] | None = None,
        *,
        states: Mapping[str, StateDescriptor] | None = None,
        event_time_timers: str | None = None,
        processing_time_timers: str | None = None,
        template: OperatorSnapshot | None = None,
        options: ColumnOptions = DEFAULT_OPTIONS,
        key_groups: str | None = None,
        on_duplicate: str = "error",
        order_by: Sequence[str] = (),
        show_keys: bool = False,
    ) -> ColumnBootstrap:
        """Builds a state of the same name from every column but the key.

        An array column becomes list state, a map column map state, any other column value state.
        Each key has one row. A null, or an empty array or map, means that the key has no state.

        Args:
            types: Types of columns, in any form, that replace those of the rows, e.g.
                ``{"count": "int"}``. For list and map state it is the type of the whole state.
            states: Descriptors of columns: their kind, type, name and time to live.
            event_time_timers: An array column of timers in milliseconds. It is not a state.
            processing_time_timers: The same for processing time.
            template: An operator of another snapshot. States and key get exactly its types.
            options: Conversion of types to columns, the same as of the ``SavepointReader``.
            key_groups: A column of the key group of each key, which ``read_keyed_state`` gives as
                ``key_group``. It is needed for keys whose Java hash is not known, e.g. of a class.
                It is not a state. Needs ``template``.
            on_duplicate: ``error``, or ``last`` for the last row of a key in ``order_by`` order.
                All other sortable columns break ties.
            order_by: Sort order for ``on_duplicate="last"``. These columns do not become state.
            show_keys: Whether an error may show keys.

        Raises:
            ConfigError: A name is not a column, or there is no column but the key.
        """
        declared = mapping_of("types", types, "{'count': 'int'}")
        described = descriptors_of(states)
        order_by = columns_of("order_by", order_by)
        check_options_of_columns(template, options, show_keys)
        groups = None
        if key_groups is not None:
            if template is None:
                raise ConfigError(
                    "key_groups needs template: the operator that has the key groups."
                )
            groups = KeyGroupColumn(key_groups, template.max_parallelism)
        timers = {
            EVENT_TIMERS: event_time_timers,
            PROCESSING_TIMERS: processing_time_timers,
        }
        for argument, column in (
            *zip(_TIMERS, timers.values(), strict=True),
            ("key_groups", key_groups),
        ):
            check_column_name(argument, column)
        no_state = {self.key_column, *(order_by if on_duplicate == "last" else ())}
        no_state |= {each for each in (*timers.values(), key_groups) if each is not None}
        for column in sorted(no_state - set(self.rows.columns)):
            check_column(self.rows, column)
        rows = self._without_duplicates(on_duplicate, order_by)
        names = [name for name in rows.columns if name not in no_state]
        unknown = sorted((set(declared) | set(described)) - set(names))
        if unknown:
            raise ConfigError(
                f"There is no state column {unknown[0]!r}; {rows.what} has: {', '.join(names)}."
            )
        has_timers = any(timers.values())
        if not names and not has_timers:
            raise ConfigError(
                f"There is no column beside the key {self.key_column!r}, so there is no state; "
                f"add a column for each state, or timers."
            )
        key_type = self.key_type
        if template is not None and template.key_type is not None:
            key_type = template.key_type.serializer
        descriptions = []
        now = SystemClock().now_ms()
        for name in names:
            descriptor = described.get(name)
            if descriptor is not None:
                meta = descriptor.meta_info()
            elif template is not None and template.has_state(name):
                meta = template.state_info(name).meta.as_key_value()
            else:
                meta = _state_of(name, rows.flink_type(name, declared.get(name)))
            if meta.name in (KEY_COLUMN, KEY_GROUP_COLUMN):
                raise ConfigError(
                    f"A state cannot be called {meta.name!r} here, because the column of keys or "
                    f"key groups has this name; use a bootstrap function for it."
                )
            ttl = now if "Ttl<" in meta.value_serializer.type_name else None
            descriptions.append(StateColumns(meta, {meta.name: name}, joined=True, ttl_now_ms=ttl))
        if has_timers:
            descriptions += _timer_states(timers, key_type)
        runs = ColumnRuns(self.key_column, key_type, tuple(descriptions), options, groups)
        return ColumnBootstrap(rows, self.parallelism, runs, show_keys)

    def _without_duplicates(self, on_duplicate: str, order_by: Sequence[str]) -> BootstrapRows:
        if on_duplicate == "error" and order_by:
            raise ConfigError("order_by needs on_duplicate='last': it says which row is the last.")
        if on_duplicate == "error":
            return self.rows
        if on_duplicate != "last" or not order_by:
            raise ConfigError(
                f"on_duplicate is wrong: expected error, or last with order_by, got "
                f"{on_duplicate!r}{'' if order_by else ' without order_by'}."
            )
        return self.rows.last_of_keys(self.key_column, self.key_type, order_by)

    def window(
        self, assigner: WindowAssigner, *, timestamp: Selector | None = None
    ) -> WindowedStateTransformation:
        """Assigns the rows to windows, as the job's window operator does.

        Args:
            assigner: The assigner of the job.
            timestamp: The event time of a row in milliseconds: a column or a function. Processing
                time and global windows need none.
        """
        expected = "an assigner of the job, e.g. TumblingEventTimeWindows.of(60_000)"
        check_is("The assigner of window", assigner, WindowAssigner, expected)
        if timestamp is None and assigner.is_event_time:
            raise ConfigError("Event-time windows need a timestamp; name the column that has it.")
        return WindowedStateTransformation(self, assigner, timestamp)


def _state_of(name: str, value_type: AnySerializer) -> StateMetaInfoSnapshot:
    kind = KeyedStateType.VALUE
    if isinstance(value_type, ListSerializer):
        kind = KeyedStateType.LIST
    elif isinstance(value_type, MapSerializer):
        kind = KeyedStateType.MAP
    return StateMetaInfoSnapshot.key_value(name, kind, value_type)


def _timer_states(timers: Mapping[str, str | None], key_type: AnySerializer) -> list[StateColumns]:
    """Both queues of a timer service. Flink always has both."""
    element = TimerSerializer(key_type, VoidNamespaceSerializer())
    states = []
    for prefix, column in timers.items():
        meta = StateMetaInfoSnapshot.priority_queue(prefix + USER_TIMERS, element)
        columns = {} if column is None else {meta.name: column}
        states.append(StateColumns(meta, columns, joined=True))
    return states


@dataclass(frozen=True)
class WindowedStateTransformation:
    """Rows in windows. All settings must be those of the job."""

    keyed: KeyedStateTransformation
    assigner: WindowAssigner
    timestamp: Selector | None
    _trigger: Trigger | None = None
    _evicting: bool = False
    _lateness: DurationLike = 0

    def trigger(self, trigger: Trigger) -> WindowedStateTransformation:
        """Sets a trigger other than the assigner's."""
        return replace(self, _trigger=trigger)

    def evictor(self, evictor: object = None) -> WindowedStateTransformation:
        """Makes windows keep all elements with their timestamps. The state is the same for every
        evictor.
        """
        return replace(self, _evicting=True)

    def allowed_lateness(self, lateness: DurationLike) -> WindowedStateTransformation:
        """Sets the time for which windows are kept after their end: milliseconds, text such as
        ``"1 h"``, or a ``timedelta``.
        """
        return replace(self, _lateness=lateness)

    def reduce(
        self,
        function: Callable[[Any, Any], Any],
        type: TypeLike | None = None,
        *,
        element: Selector | None = None,
        order_by: Sequence[str] = (),
    ) -> KeyedFunctionBootstrap:
        """Builds windows that keep one reduced element.

        Args:
            function: Reduces two elements to one.
            type: The Flink type of an element; by default the type of the column.
            element: The part of a row that is the element: a column or a function.
            order_by: The order of the rows of a key.
        """
        check_calls("The function of reduce", function, "__call__", "a function of two elements")
        return self._end(type, element, order_by, reduce=function)

    def aggregate(
        self,
        function: AggregateFunction,
        accumulator_type: TypeLike,
        *,
        element: Selector | None = None,
        element_type: TypeLike | None = None,
        order_by: Sequence[str] = (),
    ) -> KeyedFunctionBootstrap:
        """Builds windows that keep an accumulator, or elements of ``element_type`` (evictor)."""
        expected = "an object with the methods of AggregateFunction"
        check_calls("The function of aggregate", function, "create_accumulator", expected)
        kept = element_type if self._evicting else accumulator_type
        return self._end(kept, element, order_by, aggregate=function)

    def process(
        self,
        type: TypeLike | None = None,
        *,
        element: Selector | None = None,
        order_by: Sequence[str] = (),
    ) -> KeyedFunctionBootstrap:
        """Builds windows that keep every element, for ``apply`` and ``process`` in the job."""
        return self._end(type, element, order_by)

    def apply(
        self,
        type: TypeLike | None = None,
        *,
        element: Selector | None = None,
        order_by: Sequence[str] = (),
    ) -> KeyedFunctionBootstrap:
        """Does the same as ``process``."""
        return self.process(type, element=element, order_by=order_by)

    def _end(
        self,
        kept: TypeLike | None,
        element: Selector | None,
        order_by: Sequence[str],
        reduce: Callable[[Any, Any], Any] | None = None,
        aggregate: AggregateFunction | None = None,
    ) -> KeyedFunctionBootstrap:
        keyed, order = self.keyed, columns_of("order_by", order_by)
        check_selector(keyed.rows, "timestamp", self.timestamp)
        check_selector(keyed.rows, "element", element)
        if kept is None:
            if not isinstance(element, str):
                raise ConfigError("Give the type of the elements, or the column that has them.")
            kept = keyed.rows.flink_type(element)
        function = WindowFunction(
            self.assigner,
            kept,
            reduce,
            aggregate,
            element=element,
            trigger=self._trigger,
            evictor=Evictor() if self._evicting else None,
            allowed_lateness=self._lateness,
        )
        operation = WindowOperation(function, _timestamp(self.timestamp))
        by_window = KeyedFunction(keyed.key_column, keyed.key_type, operation)
        return KeyedFunctionBootstrap(keyed.rows, keyed.parallelism, by_window, order)

    def transform_columns(
        self,
        window: str,
        contents: str,
        *,
        kind: str = "reducing",
        type: TypeLike | None = None,
        show_keys: bool = False,
    ) -> ColumnBootstrap:
        """Builds windows from columns: one row per key and window.

        Args:
            window: A struct column of start and end, in milliseconds.
            contents: The column of contents: an element or accumulator; an array for ``list``.
            kind: ``reducing``, ``aggregating`` or ``list``.
            type: The Flink type of ``contents``.
            show_keys: Whether an error may show keys.
        """
        if self.assigner.is_merging or self._evicting or self.assigner.window_serializer.length < 2:
            raise ConfigError(
                "Windows from columns are time windows without merging or evictor; use a function."
            )
        keyed = self.keyed
        if not isinstance(kind, str) or kind.lower() not in _WINDOW_KINDS:
            raise ConfigError(
                f"The kind of windows is wrong: expected {', '.join(_WINDOW_KINDS)}, got {kind!r}."
            )
        check_column(keyed.rows, window)
        state_type = KeyedStateType(kind.upper())
        value = keyed.rows.flink_type(contents, type)
        namespace = self.assigner.window_serializer
        meta = StateMetaInfoSnapshot.key_value(WINDOW_CONTENTS, state_type, value, namespace)
        element = TimerSerializer(keyed.key_type, namespace)
        queues = [
            StateMetaInfoSnapshot.priority_queue(prefix + WINDOW_TIMERS, element)
            for prefix in (EVENT_TIMERS, PROCESSING_TIMERS)
        ]
        queue_of_windows = queues[0 if self.assigner.is_event_time else 1]
        columns = {"state_window": window, "state_value": contents}
        timers = {"state_window": window, "timestamp": window}
        states = [StateColumns(meta, columns, joined=False)]
        for queue in queues:
            used = timers if queue is queue_of_windows else {}
            states.append(StateColumns(queue, used, joined=False, window_ends=window))
        runs = ColumnRuns(keyed.key_column, keyed.key_type, tuple(states))
        return ColumnBootstrap(keyed.rows, keyed.parallelism, runs, show_keys)


@dataclass(frozen=True)
class _ColumnKey:
    name: str

    def __call__(self, row: Row) -> Any:
        return row[self.name]


def _no_time(row: Row) -> int:
    return 0


def _timestamp(selector: Selector | None) -> Callable[[Row], int]:
    if selector is None:
        return _no_time
    return _ColumnKey(selector) if isinstance(selector, str) else selector
