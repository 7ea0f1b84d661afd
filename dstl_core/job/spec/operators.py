"""The operators of a job, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa

from dstl_core.aggregates.aggregate import Aggregate, Kept
from dstl_core.aggregates.aggregate_merge import Merge
from dstl_core.checkpoint.store.epoch_facts import LATE_SUFFIX
from dstl_core.codec.columnar.types.declared_schema import schema_of
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.declared_type import SchemaLike, TypeLike, declared_type
from dstl_core.codec.python_values import AsPython, PythonForm, function_type, stored_type
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError
from dstl_core.flink_text import DurationLike, duration_ms
from dstl_core.functions import (
    WINDOW_CONTENTS,
    KeyedColumnFunction,
    RichFunction,
    WindowFunction,
)
from dstl_core.job.spec.operator_checks import (
    FOR_KEYS,
    FOR_ROWS,
    check_aggregates,
    check_arguments,
    check_function,
    check_key_column,
    check_key_type,
    check_output_names,
    check_uid,
)
from dstl_core.job.spec.output_types import stored_arrow_type
from dstl_core.model.checkpoint import KEY_DECIMALS, DeclaredDecimals
from dstl_core.model.ids import OperatorID
from dstl_core.operators.aggregate_function import AggregateMerge, output_schema_of
from dstl_core.operators.aggregated_windows import (
    AggregatedWindows,
    check_windows,
    windowed_output,
)
from dstl_core.state.columns.column_fit import fit
from dstl_core.state.windows.windowing import WindowAssigner

Frames: TypeAlias = Mapping[str, Any]
"""Rows of the engine, DataFrames on Spark, by name: the batch as ``input``, outputs of operators by
uid, late rows of windows by ``<uid>.late``."""

Source: TypeAlias = str | Callable[[Frames], Any]
"""A name of ``Frames``, or a function that makes rows from them."""

INPUT = "input"


class _Named:
    """An operator with a uid, and a watermark if its rows have a time."""

    uid: str
    out_of_orderness_ms: DurationLike

    @property
    def lag_ms(self) -> int:
        """How far the watermark stays behind the largest time of a batch, in milliseconds."""
        what = f"The out-of-orderness of operator {self.uid!r}"
        return duration_ms(self.out_of_orderness_ms, what, least=0)

    @property
    def operator_id(self) -> OperatorID:
        """The hash of the uid, as in every snapshot."""
        return OperatorID.for_uid(self.uid)


class _KeyedOperator(_Named):
    """An operator with a key."""

    key_by: str
    key_type: TypeLike
    event_time: str | None
    window: WindowAssigner | None
    key_form: PythonForm | None = None
    key_scale: int | None = None
    key_digits: int | None = None

    @property
    def selector(self) -> str:
        """How a row selects its state: the key column, and of windows the time and the assigner."""
        parts: dict[str, Any] = {"key_by": self.key_by}
        if self.window is not None:
            parts |= {"event_time": self.event_time, "window": self.window}
        return ", ".join(f"{name}={part!r}" for name, part in parts.items() if part is not None)

    @property
    def function_key_type(self) -> AnySerializer:
        """The type of the key in the form that functions get."""
        key_type: AnySerializer = self.key_type
        return key_type if self.key_form is None else AsPython(key_type, self.key_form)


@dataclass(frozen=True)
class KeyedOperator(_KeyedOperator):
    """An operator with state per key.

    Args:
        uid: Stable name; its hash is the operator's id in every snapshot.
        key_by: Column with the key.
        key_type: Type of the key, in any form: ``"string"``, ``str``, a Flink, Spark or Arrow type.
        function: The function to run: a ``KeyedProcessFunction``, ``RichMapFunction``,
            ``WindowFunction``, or a ``KeyedColumnFunction`` on whole columns.
        output_schema: Columns of the output rows, in any form: ``"o string"``, a Spark or Arrow
            schema, a dataclass. None means that there is no output.
        source: The rows of the operator: the batch, the output of an earlier operator by uid, or a
            function of both. The function runs on the driver and must be deterministic.
        order_by: Order in which the rows of a key apply. For operators on the batch, the
            ``order_by`` of the run replaces it.
        event_time: Column with the time of a row: a timestamp, or milliseconds.
        out_of_orderness_ms: How far the watermark stays behind the largest time of a batch:
            milliseconds, text such as ``"5 min"``, or a ``timedelta``.
        broadcast: Rows that every subtask gets before its own, for a ``BroadcastFunction``.
        key_form: The form in which functions get the key; ``key_type`` sets it.
        key_scale: Digits after the point of a key that is a decimal; ``key_type`` sets it.
        key_digits: All its digits.

    Raises:
        ConfigError: An argument, a type or a column is invalid, or Spark cannot read it back.
    """

    uid: str
    key_by: str
    key_type: TypeLike
    function: RichFunction
    output_schema: SchemaLike | None = None
    source: Source = INPUT
    order_by: Sequence[str] | None = None
    event_time: str | None = None
    out_of_orderness_ms: DurationLike = 0
    broadcast: Source | None = None
    key_form: PythonForm | None = field(default=None, kw_only=True, repr=False)
    key_scale: int | None = field(default=None, kw_only=True, repr=False)
    key_digits: int | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_uid(self.uid)
        check_key_column(self.uid, self.key_by)
        declared = declared_type(self.key_type, f"The key of operator {self.uid!r}")
        key_type = function_type(declared)
        if isinstance(key_type, AsPython):
            object.__setattr__(self, "key_form", key_type.form)
        if declared.precision is not None:
            object.__setattr__(self, "key_scale", declared.scale)
            object.__setattr__(self, "key_digits", declared.precision)
        object.__setattr__(self, "key_type", stored_type(key_type))
        check_key_type(self.uid, self.key_type)
        check_function(self.uid, self.function, FOR_KEYS)
        check_arguments(self)
        object.__setattr__(self, "out_of_orderness_ms", self.lag_ms)
        object.__setattr__(self, "output_schema", _output(self.uid, self.output_schema))

    @property
    def window(self) -> WindowAssigner | None:  # type: ignore[override]  # a field of aggregates
        """How its windows are assigned, if the function is one of windows."""
        return self.function.assigner if isinstance(self.function, WindowFunction) else None


def _output(uid: str, declared_schema: SchemaLike | None) -> pa.Schema | None:
    """The schema of an output. Checks that Spark can read it back."""
    if declared_schema is None:
        return None
    schema = schema_of(declared_schema, f"The output_schema of operator {uid!r}")
    check_output_names(uid, schema.names)
    for column in schema:
        try:
            stored_arrow_type(column.type)
        except ConfigError as error:
            raise ConfigError(
                f"The output of {uid!r} has a column {column.name!r} that cannot be read back: "
                f"{error.message}"
            ) from error
    return schema


@dataclass(frozen=True)
class ProcessOperator(_Named):
    """An operator without a key. The hash of a row selects its subtask.

    Args:
        function: A ``ProcessFunction`` or ``RichMapFunction``; it may have operator state.

    The other arguments are those of ``KeyedOperator``.
    """

    uid: str
    function: RichFunction
    output_schema: SchemaLike | None = None
    source: Source = INPUT
    order_by: Sequence[str] | None = None
    event_time: str | None = None
    out_of_orderness_ms: DurationLike = 0
    broadcast: Source | None = None

    key_by = None
    key_type = None
    key_scale = None
    function_key_type = None
    selector = None

    def __post_init__(self) -> None:
        check_uid(self.uid)
        check_function(self.uid, self.function, FOR_ROWS)
        check_arguments(self)
        object.__setattr__(self, "out_of_orderness_ms", self.lag_ms)
        object.__setattr__(self, "output_schema", _output(self.uid, self.output_schema))


@dataclass(frozen=True)
class AggregateOperator(_KeyedOperator):
    """Stores aggregates of the rows of each key.

    A batch is reduced to a row per key, and whole columns are merged into the state.

    Args:
        uid: Stable name; its hash is the operator's id in every snapshot.
        key_by: Column with the key.
        aggregates: Aggregates by the name of their state, from ``dstl_core.aggregates``.
        key_type: Type of the key, in any form; None: from ``schema``.
        schema: The columns of the rows, in any form: a Spark schema, ``"k string, v bigint"``. It
            gives the types that are not declared.
        source: The rows of the operator, as for ``KeyedOperator``.
        output: The aggregates in the output: True for all, names for some, False for no output;
            None: all of windows, else none. An epoch emits a row for each key whose state changed:
            the key, and the value of each aggregate after the epoch (an average, not its sum and
            count). With windows it emits a row for each window that fires: the key,
            ``window_start`` and ``window_end``, and the aggregates of the window.
        window: Aggregates the rows of each key and window: a ``TumblingEventTimeWindows``, a
            ``SlidingEventTimeWindows`` or an ``EventTimeSessionWindows``. The state is that of
            Flink's window operator: an accumulator for each key and window, which is a row with a
            field for each state.
        event_time: With windows, the column with the time of a row: a timestamp, or milliseconds.
        out_of_orderness_ms: How far the watermark stays behind the largest time of a batch, as for
            ``KeyedOperator``.
        allowed_lateness: How long a window is kept after its end: milliseconds, text such as
            ``"1 h"``, or a ``timedelta``. It fires again for each batch with rows for it. Later
            rows are counted, and dropped or given as an output.
        side_output_late_data: Columns of late rows, in any form; True: those of ``schema``. With it
            late rows are a second output, ``<uid>.late``.
        key_scale: Digits after the point of a key that is a decimal; ``key_type`` or ``schema``
            sets it.
        key_digits: All its digits.

    Raises:
        ConfigError: A type is unknown, or cannot store its aggregate; two states have the same
            name; ``output`` names an unknown aggregate; windows have no ``event_time``, or are of
            another kind.
    """

    uid: str
    key_by: str
    aggregates: Mapping[str, Aggregate]
    key_type: TypeLike = None
    schema: SchemaLike = None
    source: Source = INPUT
    output: bool | Sequence[str] | None = None
    window: WindowAssigner | None = field(default=None, kw_only=True)
    event_time: str | None = field(default=None, kw_only=True)
    out_of_orderness_ms: DurationLike = field(default=0, kw_only=True)
    allowed_lateness: DurationLike = field(default=0, kw_only=True)
    side_output_late_data: SchemaLike = field(default=None, kw_only=True)
    key_scale: int | None = field(default=None, kw_only=True, repr=False)
    key_digits: int | None = field(default=None, kw_only=True, repr=False)
    output_schema: pa.Schema | None = field(init=False, repr=False, compare=False)
    function: AggregateMerge | AggregatedWindows = field(init=False, repr=False, compare=False)

    order_by = None
    broadcast = None

    def __post_init__(self) -> None:
        check_uid(self.uid)
        check_key_column(self.uid, self.key_by)
        check_aggregates(self.uid, self.aggregates, self.output)
        where = f"The schema of operator {self.uid!r}"
        schema = pa.schema([]) if self.schema is None else schema_of(self.schema, where)
        types = DeclaredTypes(self.uid, schema)
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "out_of_orderness_ms", self.lag_ms)
        object.__setattr__(self, "allowed_lateness", self.lateness_ms)
        key_decimal = types.decimal_of_key(self.key_by, self.key_type)
        if key_decimal is not None:
            object.__setattr__(self, "key_scale", key_decimal[1])
            object.__setattr__(self, "key_digits", key_decimal[0])
        key_type = types.of(self.key_by, self.key_type, "The key", "key_type")
        object.__setattr__(self, "key_type", key_type)
        check_key_type(self.uid, key_type)
        check_arguments(self)
        merges = [
            item.merge(self.uid, name, types.of_states(name, item)) for name, item in self.items
        ]
        object.__setattr__(self, "side_output_late_data", self._late_of(schema))
        output = self._output_of(merges, types)
        merge = AggregateMerge(merges, output)
        windows = self._windows(merge, output, types)
        if windows is not None:
            output = windows.output
        object.__setattr__(self, "output_schema", _output(self.uid, output))
        object.__setattr__(self, "function", merge if windows is None else windows)
        names = [each.name for each in merge.states]
        twice = sorted({each for each in names if names.count(each) > 1})
        if twice:
            raise ConfigError(
                f"Two states of operator {self.uid!r} are called {twice[0]!r}; rename an aggregate."
            )

    def _windows(
        self, merge: AggregateMerge, output: pa.Schema | None, types: DeclaredTypes
    ) -> AggregatedWindows | None:
        if self.window is None:
            options = (self.event_time, self.side_output_late_data)
            if options != (None, None) or self.out_of_orderness_ms or self.allowed_lateness:
                raise ConfigError(
                    f"The operator {self.uid!r} has no windows, and event_time, "
                    f"out_of_orderness_ms, allowed_lateness and side_output_late_data are for "
                    f"windows; give window, or leave them out."
                )
            return None
        assigner = check_windows(self.uid, self.window)
        if self.event_time is None:
            raise ConfigError(
                f"The windows of {self.uid!r} are in event time; give event_time, the column with "
                f"the time of a row."
            )
        if output is not None:
            output = windowed_output(self.uid, output, types.of_time(self.event_time))
        late = self.side_output_late_data
        return AggregatedWindows(merge, assigner, self.lateness_ms, output, fit, late)

    def _late_of(self, schema: pa.Schema) -> pa.Schema | None:
        late_schema = self.side_output_late_data
        if late_schema is None or late_schema is False:
            return None
        where = f"The side_output_late_data of operator {self.uid!r}"
        late = schema if late_schema is True else schema_of(late_schema, where)
        if not late.names:
            raise ConfigError(
                f"{where} has no columns; declare them, or give True and the schema of the rows."
            )
        return late

    def _output_of(self, merges: Sequence[Merge], types: DeclaredTypes) -> pa.Schema | None:
        wanted_output = self.window is not None if self.output is None else self.output
        if wanted_output is False:
            return None
        named = dict(zip(self.aggregates, merges, strict=True))
        wanted = list(named) if wanted_output is True else list(wanted_output)
        for name in wanted:
            if name not in named or wanted.count(name) > 1:
                raise ConfigError(
                    f"The output of operator {self.uid!r} has each of its aggregates at most once: "
                    f"expected some of {', '.join(named)}, got {', '.join(map(repr, wanted))}."
                )
        key = pa.field(self.key_by, layout_of(self.function_key_type).arrow_type)
        scales = {each: types.scales_of(self.aggregates[each]) for each in wanted}
        return output_schema_of(self.uid, key, [named[each] for each in wanted], scales)

    @property
    def lateness_ms(self) -> int:
        """Milliseconds for which a window is kept after its end."""
        what = f"The allowed lateness of operator {self.uid!r}"
        return duration_ms(self.allowed_lateness, what, least=0)

    @property
    def items(self) -> list[tuple[str, Aggregate]]:
        return list(self.aggregates.items())

    @property
    def columns(self) -> list[str]:
        """The columns that the operator reads, once each, the key first."""
        read = (column for _, each in self.items for column in each.columns)
        time = [] if self.event_time is None else [self.event_time]
        return list(dict.fromkeys([self.key_by, *time, *read]))


@dataclass(frozen=True)
class DeclaredTypes:
    """Types of aggregates: declared types, or types from the schema of the rows."""

    uid: str
    schema: pa.Schema

    def of_states(self, name: str, aggregate: Aggregate) -> list[AnySerializer]:
        """The types of an aggregate's value and of its order, as far as they are not fixed."""
        what = f"The aggregate {name!r}"
        where = f"{what} of operator {self.uid!r}"
        kinds = [
            self.of(
                kept.column,
                kept.type,
                f"The order of the aggregate {name!r}" if kept.of_order else what,
                kept.option,
                widest=kept.widest,
            )
            for kept in aggregate.kept
        ]
        for column in aggregate.values:
            if column in self.schema.names:
                aggregate.check_declared(where, self.schema.field(column), kinds)
        return kinds

    def of_time(self, column: str) -> pa.DataType:
        """The type of times: that of a column of timestamps, else milliseconds."""
        kind = self.schema.field(column).type if column in self.schema.names else pa.int64()
        if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
            raise ConfigError(
                f"The event_time of operator {self.uid!r} is wrong: expected a timestamp, or "
                f"milliseconds as a whole number, and the schema has {kind} for the column "
                f"{column!r}."
            )
        return kind if pa.types.is_timestamp(kind) else pa.int64()

    def scales_of(self, aggregate: Aggregate) -> list[int | None]:
        """Digits after the point of the decimals that an aggregate keeps; None if unknown."""
        decimals = [self.decimal_of(kept) for kept in aggregate.kept]
        return [None if each is None else each[1] for each in decimals]

    def decimal_of_key(self, column: str, declared: TypeLike | None) -> tuple[int, int] | None:
        """Digits and scale of a key that is a decimal; None if unknown."""
        return self._decimal(declared, column, "key")

    def decimal_of(self, kept: Kept) -> tuple[int, int] | None:
        """Digits and scale of the decimals that an aggregate keeps; None if unknown.

        A sum has more digits than its column, so it has all of them unless its type is declared.
        """
        decimal = self._decimal(kept.type, kept.column, "aggregate")
        return None if decimal is None else (kept.digits(decimal[0]), decimal[1])

    def _decimal(
        self, declared: TypeLike | None, column: str | None, what: str
    ) -> tuple[int, int] | None:
        if declared is None and column in self.schema.names:
            declared = self.schema.field(column).type
        if declared is None:
            return None
        type_of = declared_type(declared, f"The {what} of operator {self.uid!r}")
        return None if type_of.precision is None else (type_of.precision, type_of.scale)

    def of(
        self,
        column: str,
        declaration: TypeLike | None,
        what: str,
        option: str,
        *,
        widest: bool = False,
    ) -> AnySerializer:
        """The type of the state of a column.

        Args:
            column: The name of the column.
            declaration: The declared type, if there is one.
            what: What has the type, for errors.
            option: The option that declares the type, for errors.
            widest: Whether whole numbers become long, and other numbers double.

        Raises:
            ConfigError: No type is declared, and the schema does not have the column.
        """
        where = f"{what} of operator {self.uid!r}"
        if declaration is not None:
            return stored_type(function_type(declared_type(declaration, where)))
        if column not in self.schema.names:
            raise ConfigError(
                f"{where} has no type; give {option}, or a schema with the column {column!r}."
            )
        kind = self.schema.field(column).type
        if widest and pa.types.is_integer(kind):
            return Types.LONG
        if widest and pa.types.is_floating(kind):
            return Types.DOUBLE
        return stored_type(function_type(declared_type(kind, where)))


Operator: TypeAlias = KeyedOperator | ProcessOperator | AggregateOperator


def late_schema_of(operator: Operator) -> pa.Schema | None:
    """The schema of an operator's late rows, where they are an output."""
    function = operator.function
    if isinstance(function, WindowFunction | AggregatedWindows):
        return function.side_output_late_data
    return None


def late_name(uid: str) -> str:
    """The name of an operator's late rows among the outputs."""
    return uid + LATE_SUFFIX


def output_names_of(operator: Operator) -> list[str]:
    """The names of an operator's outputs: its uid, and that of its late rows."""
    return list(output_columns_of([operator]))


def output_columns_of(operators: Iterable[Operator]) -> dict[str, tuple[str, ...]]:
    named = (
        (name, schema)
        for operator in operators
        for name, schema in (
            (operator.uid, operator.output_schema),
            (late_name(operator.uid), late_schema_of(operator)),
        )
    )
    return {name: tuple(schema.names) for name, schema in named if schema is not None}


def check_operators(operators: Sequence[Operator]) -> None:
    """Raises ConfigError if two operators or outputs have the same name.

    It also checks that Spark can read the columns of late rows.
    """
    names = [INPUT, *(each.uid for each in operators)]
    names += [late_name(each.uid) for each in operators if late_schema_of(each) is not None]
    twice = sorted({each for each in names if names.count(each) > 1})
    if twice:
        raise ConfigError(
            f"The name {twice[0]!r} is used twice; every operator needs its own uid, other than "
            f"{INPUT!r}, and {late_name('uid')!r} is for late rows."
        )

    for operator in operators:
        _output(late_name(operator.uid), late_schema_of(operator))


def as_shipped(operator: Operator) -> Operator:
    """A copy of an operator for its tasks, without its inputs, which may be DataFrames."""
    if isinstance(operator, AggregateOperator):
        return replace(operator, source=INPUT)
    return replace(operator, source=INPUT, broadcast=None)


def declared_decimals(operator: Operator) -> dict[str, DeclaredDecimals]:
    """Digits and scale of the decimals of declared aggregates, by state, and of the key."""
    of_key: dict[str, DeclaredDecimals] = {}
    if isinstance(operator, _KeyedOperator) and operator.key_type == Types.BIG_DEC:
        digits, scale = operator.key_digits, operator.key_scale
        of_key = {} if digits is None or scale is None else {KEY_DECIMALS: (digits, scale)}
    if not isinstance(operator, AggregateOperator):
        return of_key
    types = DeclaredTypes(operator.uid, operator.schema)
    decimals: dict[str, tuple[int, int] | None] = {}
    for (name, aggregate), merge in zip(operator.items, operator.function.merges, strict=True):
        for kept, kind in zip(aggregate.kept, types.of_states(name, aggregate), strict=True):
            if stored_type(kind) == Types.BIG_DEC:
                # That of an average is its sum.
                state = merge.states[0].name if kept.state is None else name + kept.state
                decimals[state] = types.decimal_of(kept)
    known: dict[str, DeclaredDecimals] = {
        name: decimal for name, decimal in decimals.items() if decimal is not None
    }
    if isinstance(operator.function, AggregatedWindows) and known:
        return {WINDOW_CONTENTS: operator.function.fields_of(known), **of_key}
    return known | of_key


def is_columnar(operator: Operator) -> bool:
    """Whether the function processes columns."""
    return isinstance(operator.function, KeyedColumnFunction)


@dataclass(frozen=True)
class LocalCopies:
    """Configures the copies of state that workers keep between epochs instead of restoring it.

    Args:
        folder: Folder for copies on disk; by default the user's folder in the temporary folder.
        max_bytes: Limit of all copies in the folder. The oldest are deleted first. 0 keeps none.
            A worker process may pass it by a 64th, because it does not count after every copy.
        max_entries: Limit of the entries of state that a worker process keeps in memory, over all
            its subtasks. A subtask with more entries is restored in every epoch.
    """

    folder: str | None = None
    max_bytes: int = 20 << 30
    max_entries: int = 5_000_000

    @property
    def enabled(self) -> bool:
        return self.max_bytes > 0
