"""Columns of Java's decimals in the type that the job declared.

``BigDecimal`` has a scale for each value, so a stored state does not say its type. The sidecar of
what a job of declared aggregates writes says it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from dstl_core.codec.columnar.types.java_decimals import BIG_DECIMAL, element_of, with_scale
from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.errors import ColumnValueError
from dstl_core.savepoint.columns.state_columns import LIST_VALUE_COLUMN, VALUE_COLUMN


def declared_types(
    decimals: Mapping[str, tuple[int, int]],
    state: str,
    columns: Mapping[str, pa.DataType],
    types: ColumnOptions,
) -> dict[str, pa.DataType]:
    """The types of columns whose decimals were declared, by column.

    Args:
        decimals: Declared digits and scale, by state.
        state: What is read: the name of a state, or a form with a column for each state.
        columns: The columns as they are stored.
        types: Representation of types as columns.
    """
    if types.decimals == "exact":
        return {}
    found = {}
    for name, stored in columns.items():
        is_value = name in (VALUE_COLUMN, LIST_VALUE_COLUMN)
        declared = decimals.get(state if is_value else name)
        if declared is not None:
            decimal = pa.decimal128(*declared)
            if stored == BIG_DECIMAL:
                found[name] = decimal
            elif element_of(stored) == BIG_DECIMAL:
                found[name] = pa.list_(decimal)
    return found


def as_declared(column: pa.Array, declared: pa.DataType, name: str) -> pa.Array:
    """Stored decimals in their declared type.

    Raises:
        ColumnValueError: A number has more digits than the type, before or after the point.
    """
    decimal = element_of(declared) or declared
    try:
        return with_scale(column, decimal.scale).cast(declared)
    except pa.ArrowInvalid as error:
        raise ColumnValueError(
            f"A number in column {name!r} does not fit {decimal}, the type that the job declared; "
            f"read it with decimals=exact, or declare a type with more digits.",
            column=name,
        ) from error
