"""Checks a batch before anything runs. Every error names the wrong column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError, NotInColumnsError
from dstl_core.functions import KEY_INDEX, WindowFunction
from dstl_core.job.coordination.engine import RESERVED
from dstl_core.job.spec.operators import (
    AggregateOperator,
    Operator,
    is_columnar,
    late_schema_of,
)
from dstl_core.job.spec.output_types import twins_of
from dstl_core.spark.engine.schema import arrow_type_from_spark, holds, is_ordered, spark_type_of
from dstl_core.spark.job.reduction import check_columns

_CASE_SENSITIVE = "spark.sql.caseSensitive"
_NOT_HASHED = (T.VariantType, T.CalendarIntervalType, T.YearMonthIntervalType)


def check_batch(rows: Any, what: str) -> None:
    """Raises ConfigError if tasks cannot process the batch."""
    if not isinstance(rows, DataFrame):
        raise ConfigError(f"{what} has to be a Spark DataFrame, got a {type(rows).__name__}.")
    if rows.isStreaming:
        raise ConfigError(
            f"{what} is a stream; give each of its micro-batches to the job: "
            f"writeStream.foreachBatch(job.foreach_batch(..))."
        )
    _check_distinct(rows, what)
    for name in rows.columns:
        if name.lower().startswith(RESERVED):
            raise ConfigError(
                f"{what} has a column {name!r}; names that begin with {RESERVED!r} are reserved "
                f"for the job: rename it."
            )
    for each in rows.schema.fields:
        if holds(each.dataType, _NOT_HASHED):
            raise ConfigError(
                f"{what} has a column {each.name!r} of type {each.dataType.simpleString()}, which "
                f"Spark cannot hash or pass to Python; cast it, for example to a string."
            )


def _check_distinct(rows: DataFrame, what: str) -> None:
    """Raises ConfigError if Spark cannot tell two columns apart."""
    names = rows.columns
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{what} has two columns {name!r}; rename one of them.")
    twins = twins_of(names)
    if twins is not None and rows.sparkSession.conf.get(_CASE_SENSITIVE, "false") != "true":
        raise ConfigError(
            f"{what} has the columns {twins[0]!r} and {twins[1]!r}, which Spark cannot tell apart; "
            f"rename one of them, or set {_CASE_SENSITIVE} to true."
        )


def check_input(rows: DataFrame, operator: Operator, order_by: Sequence[str] | None) -> None:
    """Raises ConfigError if the rows cannot be applied by an operator."""
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
    for column in _named_columns(operator, order_by or ()):
        if column not in rows.columns:
            raise ConfigError(
                f"There is no column {column!r} in the input of {operator.uid!r}; it has: "
                f"{', '.join(rows.columns)}."
            )
    for column in order_by or ():
        kind = rows.schema[column].dataType
        if not is_ordered(kind):
            raise ConfigError(
                f"The column {column!r} of order_by has the type {kind.simpleString()}, which has "
                f"no order; order by another column."
            )
    if operator.key_by is not None:
        _check_key(rows, operator.key_by, operator.key_type, operator.uid)
        _check_scale(rows, operator.key_by, operator.key_scale, operator.uid)
    if operator.event_time is not None:
        _check_time(rows, operator.event_time)
    if isinstance(operator, AggregateOperator):
        _check_collations(rows, operator)
        check_columns(rows, operator)
        _check_late(rows, operator)
        return
    if is_columnar(operator) and KEY_INDEX in rows.columns:
        raise ConfigError(
            f"The input of {operator.uid!r} has a column {KEY_INDEX!r}, a name that is reserved in "
            f"the input of functions on columns; rename it."
        )


def _check_collations(rows: DataFrame, operator: AggregateOperator) -> None:
    """Raises ConfigError if Spark compares texts of an aggregate in another way than state does."""
    for column in operator.columns:
        if column in rows.columns and _has_collation(rows.schema[column].dataType):
            raise ConfigError(
                f"The column {column!r} of operator {operator.uid!r} has the type "
                f"{rows.schema[column].dataType.simpleString()}, and state compares texts by their "
                f"bytes; cast it to string, for example after lower(..)."
            )


def _has_collation(kind: T.DataType) -> bool:
    """Whether a type is, or contains, a text that is not compared by its bytes."""
    if isinstance(kind, T.StringType):
        return not kind.isUTF8BinaryCollation()
    if isinstance(kind, T.StructType):
        return any(_has_collation(each.dataType) for each in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _has_collation(kind.elementType)
    return False


def needed_columns(operator: Operator, order_by: Sequence[str]) -> set[str] | None:
    """The columns of a batch that tasks need; None: all columns."""
    if isinstance(operator, AggregateOperator):
        late = late_schema_of(operator)
        return {*operator.columns, *(() if late is None else late.names)}
    if operator.function.columns is None:
        return None
    return set(_named_columns(operator, order_by))


def _named_columns(operator: Operator, order_by: Sequence[str]) -> list[str]:
    """The columns that an operator, its function and its order refer to."""
    named = [operator.key_by, operator.event_time, *order_by, *(operator.function.columns or ())]
    return [each for each in named if each is not None]


def _check_key(rows: DataFrame, column: str, key_type: AnySerializer, uid: str) -> None:
    try:
        wanted = _kind_of_arrow(layout_of(key_type).arrow_type)
    except NotInColumnsError:
        return
    kind = rows.schema[column].dataType
    found = _kind_of_spark(kind)
    if wanted is not None and found is not None and wanted != found and not _casts(found, wanted):
        raise ConfigError(
            f"The key column {column!r} is {kind.simpleString()}, and the key type of {uid!r} is "
            f"{key_type.type_name}; cast the column, or declare its type."
        )


def _check_scale(rows: DataFrame, column: str, scale: int | None, uid: str) -> None:
    """Raises ConfigError if keys have another scale than declared: they are other keys in Java."""
    kind = rows.schema[column].dataType
    if scale is not None and isinstance(kind, T.DecimalType) and kind.scale != scale:
        raise ConfigError(
            f"The key column {column!r} is {kind.simpleString()}, and the key type of {uid!r} has "
            f"{scale} digits after the point; state has 1.0 and 1.00 as two keys, so cast the "
            f"column, or declare its type."
        )


def _casts(found: str, wanted: str) -> bool:
    """Whether keys of one kind are cast to the other one: a date is its first moment."""
    return found == "date" and wanted == "time"


def _check_time(rows: DataFrame, column: str) -> None:
    kind = rows.schema[column].dataType
    if not isinstance(kind, T.TimestampType | T.TimestampNTZType | T.IntegralType):
        raise ConfigError(
            f"The event_time column {column!r} is {kind.simpleString()}; it has to be a timestamp, "
            f"or milliseconds as a whole number."
        )


def _check_late(rows: DataFrame, operator: AggregateOperator) -> None:
    """Raises ConfigError: a column of the late rows is missing, or has another type."""
    for each in late_schema_of(operator) or ():
        if each.name not in rows.columns:
            raise ConfigError(
                f"There is no column {each.name!r} in the input of {operator.uid!r}, which "
                f"side_output_late_data names; it has: {', '.join(rows.columns)}."
            )
        kind = rows.schema[each.name].dataType
        if not _may_become(arrow_type_from_spark(kind), each.type):
            raise ConfigError(
                f"The column {each.name!r} is {kind.simpleString()}, and side_output_late_data of "
                f"{operator.uid!r} declares it as {spark_type_of(each.type).simpleString()}; cast "
                f"the column, or change the declaration."
            )


def _may_become(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type may be values of another one, which means the same."""
    if pa.types.is_floating(wanted):
        return bool(pa.types.is_integer(found) or pa.types.is_floating(found))
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(found))
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(found):
        return (found.tz is None) == (wanted.tz is None)
    if found.id != wanted.id or found.num_fields != wanted.num_fields:
        return False
    parts = range(wanted.num_fields)
    return all(_may_become(found.field(at).type, wanted.field(at).type) for at in parts)


def _kind_of_arrow(kind: pa.DataType) -> str | None:
    """The kind of a type; types of one kind are cast to each other. None: it is not checked."""
    tests = {
        "integer": pa.types.is_integer,
        "float": pa.types.is_floating,
        "text": lambda each: pa.types.is_string(each) or pa.types.is_large_string(each),
        "boolean": pa.types.is_boolean,
        "bytes": pa.types.is_binary,
        "date": pa.types.is_date,
        "time": pa.types.is_timestamp,
    }
    return next((name for name, test in tests.items() if test(kind)), None)


def _kind_of_spark(kind: T.DataType) -> str | None:
    kinds: dict[str, type[T.DataType] | tuple[type[T.DataType], ...]] = {
        "integer": T.IntegralType,
        "float": (T.FloatType, T.DoubleType),
        "text": T.StringType,
        "boolean": T.BooleanType,
        "bytes": T.BinaryType,
        "date": T.DateType,
        "time": (T.TimestampType, T.TimestampNTZType),
        "decimal": T.DecimalType,
    }
    return next((name for name, each in kinds.items() if isinstance(kind, each)), None)
