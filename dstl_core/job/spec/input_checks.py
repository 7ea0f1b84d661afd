"""Checks the columns of a batch before anything runs. Every error names the wrong column."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as kinds

from dstl_core.aggregates.column_checks import kind_of
from dstl_core.codec.columnar.types.spark_names import spark_name
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError, NotInColumnsError
from dstl_core.functions import KEY_INDEX, WindowFunction
from dstl_core.job.spec.fingerprint import RESERVED
from dstl_core.job.spec.operators import (
    AggregateOperator,
    Operator,
    is_columnar,
    late_schema_of,
)


def check_names(names: Sequence[str], what: str) -> None:
    """Raises ConfigError if two columns have one name, or one has a name of the job's own."""
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{what} has two columns {name!r}; rename one of them.")
        if name.lower().startswith(RESERVED):
            raise ConfigError(
                f"{what} has a column {name!r}; names that begin with {RESERVED!r} are reserved "
                f"for the job: rename it."
            )


def check_input(schema: pa.Schema, operator: Operator, order_by: Sequence[str] | None) -> None:
    """Raises ConfigError if rows of a schema cannot be applied by an operator."""
    if order_by is None and not operator.function.order_insensitive:
        raise ConfigError(
            f"The order of rows is not given, and {type(operator.function).__name__} depends on "
            f"it; give order_by, or declare order_insensitive = True on the function."
        )
    function = operator.function
    if (
        isinstance(function, WindowFunction)
        and function.assigner.is_event_time
        and operator.event_time is None
    ):
        raise ConfigError(
            f"The windows of {operator.uid!r} are in event time; give event_time, the column with "
            f"the time of a row."
        )
    for column in named_columns(operator, order_by or ()):
        if column not in schema.names:
            raise ConfigError(
                f"There is no column {column!r} in the input of {operator.uid!r}; it has: "
                f"{', '.join(schema.names)}."
            )
    check_order(schema, order_by or ())
    if operator.key_by is not None:
        _check_key(schema.field(operator.key_by), operator.key_type, operator.uid)
        _check_scale(schema.field(operator.key_by), operator.key_scale, operator.uid)
    if operator.event_time is not None:
        _check_time(schema.field(operator.event_time))
    if isinstance(operator, AggregateOperator):
        _check_aggregates(schema, operator)
        _check_late(schema, operator)
        return
    if is_columnar(operator) and KEY_INDEX in schema.names:
        raise ConfigError(
            f"The input of {operator.uid!r} has a column {KEY_INDEX!r}, a name that is reserved in "
            f"the input of functions on columns; rename it."
        )


def check_order(schema: pa.Schema, order_by: Sequence[str]) -> None:
    """Raises ConfigError if the values of a column have no order."""
    for column in order_by:
        kind = schema.field(column).type
        if not is_ordered(kind):
            raise ConfigError(
                f"The column {column!r} of order_by has the type {spark_name(kind)}, which has "
                f"no order; order by another column."
            )


def needed_columns(operator: Operator, order_by: Sequence[str]) -> set[str] | None:
    """The columns of a batch that tasks need; None: all columns."""
    if isinstance(operator, AggregateOperator):
        late = late_schema_of(operator)
        return {*operator.columns, *(() if late is None else late.names)}
    if operator.function.columns is None:
        return None
    return set(named_columns(operator, order_by))


def is_ordered(kind: pa.DataType) -> bool:
    fields = (kind.field(at).type for at in range(kind.num_fields))
    return not kinds.is_map(kind) and all(map(is_ordered, fields))


def named_columns(operator: Operator, order_by: Sequence[str]) -> list[str]:
    """The columns that an operator, its function and its order refer to."""
    named = [operator.key_by, operator.event_time, *order_by, *(operator.function.columns or ())]
    return [each for each in named if each is not None]


def _check_key(field: pa.Field, key_type: AnySerializer, uid: str) -> None:
    try:
        wanted = kind_of(layout_of(key_type).arrow_type)
    except NotInColumnsError:
        return
    kind = kind_of(field.type)
    if wanted is not None and kind is not None and wanted != kind and not _casts(kind, wanted):
        raise ConfigError(
            f"The key column {field.name!r} is {spark_name(field.type)}, and the key type of "
            f"{uid!r} is {key_type.type_name}; cast the column, or declare its type."
        )


def _check_scale(field: pa.Field, scale: int | None, uid: str) -> None:
    """Raises ConfigError if keys have another scale than declared: they are other keys in Java."""
    if scale is not None and kinds.is_decimal(field.type) and field.type.scale != scale:
        raise ConfigError(
            f"The key column {field.name!r} is {spark_name(field.type)}, and the key type of "
            f"{uid!r} has {scale} digits after the point; state has 1.0 and 1.00 as two keys, so "
            f"cast the column, or declare its type."
        )


def _casts(kind: str, wanted: str) -> bool:
    """Whether keys of one kind are cast to the other one: a date is its first moment."""
    return kind == "date" and wanted == "time"


def _check_time(field: pa.Field) -> None:
    if not (kinds.is_timestamp(field.type) or kinds.is_integer(field.type)):
        raise ConfigError(
            f"The event_time column {field.name!r} is {spark_name(field.type)}; it has to be a "
            f"timestamp, or milliseconds as a whole number."
        )


# ------------------------------------------------------------------------------ aggregates


def _check_aggregates(schema: pa.Schema, operator: AggregateOperator) -> None:
    """Raises ConfigError if a column is missing, or if an aggregate cannot keep its values."""
    for name, aggregate in operator.items:
        for column in aggregate.columns:
            if column not in schema.names:
                raise ConfigError(
                    f"There is no column {column!r} in the input of {operator.uid!r}, which the "
                    f"aggregate {name!r} needs; it has: {', '.join(schema.names)}."
                )
    for (_, aggregate), merge in zip(operator.items, operator.function.merges, strict=True):
        merge.check([schema.field(column) for column in aggregate.columns])


def _check_late(schema: pa.Schema, operator: AggregateOperator) -> None:
    """Raises ConfigError: a column of the late rows is missing, or has another type."""
    for field in late_schema_of(operator) or ():
        if field.name not in schema.names:
            raise ConfigError(
                f"There is no column {field.name!r} in the input of {operator.uid!r}, which "
                f"side_output_late_data names; it has: {', '.join(schema.names)}."
            )
        kind = schema.field(field.name).type
        if not may_become(kind, field.type):
            raise ConfigError(
                f"The column {field.name!r} is {spark_name(kind)}, and side_output_late_data of "
                f"{operator.uid!r} declares it as {spark_name(field.type)}; cast the column, or "
                f"change the declaration."
            )


def may_become(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type may be values of another one, which means the same."""
    if kinds.is_floating(wanted):
        return bool(kinds.is_integer(kind) or kinds.is_floating(kind))
    if kinds.is_integer(wanted):
        return bool(kinds.is_integer(kind))
    if kinds.is_timestamp(wanted) and kinds.is_timestamp(kind):
        return (kind.tz is None) == (wanted.tz is None)
    if kind.id != wanted.id or kind.num_fields != wanted.num_fields:
        return False
    parts = range(wanted.num_fields)
    return all(may_become(kind.field(at).type, wanted.field(at).type) for at in parts)
