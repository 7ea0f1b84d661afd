"""Which columns an aggregate takes: the rules, and the errors that name the wrong column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as kinds

from dstl_core.codec.columnar.types.spark_names import spark_name
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError

WHOLE = (Types.BYTE, Types.SHORT, Types.INT, Types.LONG)
FLOATING = (Types.FLOAT, Types.DOUBLE)


@dataclass(frozen=True)
class ColumnRule:
    """What types of column an aggregate can be computed of.

    Args:
        text: The values of such a column, for errors.
        fits: Whether a type is one of them.
    """

    text: str
    fits: Callable[[pa.DataType], bool]


def kind_of(kind: pa.DataType) -> str | None:
    """The kind of a simple type, None for others; types of one kind are cast to each other."""
    tests = {
        "integer": kinds.is_integer,
        "float": kinds.is_floating,
        "text": lambda arrow_type: kinds.is_string(arrow_type) or kinds.is_large_string(arrow_type),
        "boolean": kinds.is_boolean,
        "bytes": kinds.is_binary,
        "date": kinds.is_date,
        "time": kinds.is_timestamp,
        "decimal": kinds.is_decimal,
    }
    return next((name for name, test in tests.items() if test(kind)), None)


def is_number(kind: pa.DataType) -> bool:
    return kind_of(kind) in ("integer", "float", "decimal")


ANY = ColumnRule("values", lambda kind: True)
NUMBERS = ColumnRule("numbers", is_number)
BOOLEANS = ColumnRule("booleans", kinds.is_boolean)
SIMPLE = ColumnRule("values that are no lists, maps or structs", lambda k: not kinds.is_nested(k))


def adds_up(kind: pa.DataType, state: AnySerializer) -> bool:
    """Whether a sum of numbers of a type can be a state of its type."""
    return (
        kinds.is_integer(kind)
        or (state in FLOATING and (kinds.is_decimal(kind) or kinds.is_floating(kind)))
        or (state == Types.BIG_DEC and kinds.is_decimal(kind))
    )


def check_number(where: str, field: pa.Field, state: AnySerializer) -> None:
    """Raises ConfigError if the numbers of a column cannot be added up in a state.

    Args:
        where: What is wrong then, for the error: the aggregate and its operator.
        field: The column.
        state: The type of the state.
    """
    if not adds_up(field.type, state):
        raise _wrong_type(where, field, state)


def check_value(where: str, field: pa.Field, state: AnySerializer) -> None:
    """Raises ConfigError if values of a column cannot be kept as state. As ``check_number``."""
    is_whole = kinds.is_integer(field.type)
    fits = (
        field.type == layout_of(state).arrow_type
        or (state in WHOLE and is_whole)
        or (state in FLOATING and (is_whole or kinds.is_floating(field.type)))
        or (state == Types.BIG_DEC and kinds.is_decimal(field.type))
        or (state == Types.LOCAL_TIME and field.type == pa.int64())
    )
    if not fits:
        raise _wrong_type(where, field, state)


def check_order(where: str, field: pa.Field) -> None:
    """Raises ConfigError if rows cannot be put into an order by a column."""
    if not _is_flat(field.type):
        raise ConfigError(
            f"{where} is ordered by the column {field.name!r}, which is {spark_name(field.type)}; "
            f"order by a column without lists and maps."
        )


def check_simple(where: str, field: pa.Field) -> None:
    """Raises ConfigError if the values of a column are not simple."""
    if kind_of(field.type) is None:
        raise ConfigError(
            f"{where} counts values of simple types, and the column {field.name!r} is "
            f"{spark_name(field.type)}; cast the column, for example to a string."
        )


def _is_flat(kind: pa.DataType) -> bool:
    """Whether a type is simple, or a struct of such types."""
    if kinds.is_struct(kind):
        return all(_is_flat(field.type) for field in kind)
    return not kinds.is_nested(kind)


def _wrong_type(where: str, field: pa.Field, state: AnySerializer) -> ConfigError:
    return ConfigError(
        f"{where} has the type {state.type_name}, and the column {field.name!r} is "
        f"{spark_name(field.type)}; cast the column, or declare its type."
    )
