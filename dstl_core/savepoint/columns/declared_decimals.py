"""Java's decimals in the type that was declared.

``BigDecimal`` has a scale for each value, so a stored state does not say its type. The sidecar of
what dstl writes says it: of declared aggregates, and of state made from columns of decimals.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.types.java_decimals import BIG_DECIMAL, element_of, with_scale
from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.errors import ColumnValueError
from dstl_core.model.checkpoint import DeclaredDecimals
from dstl_core.state.columns.state_columns import LIST_VALUE_COLUMN, VALUE_COLUMN


def declared_types(
    decimals: Mapping[str, DeclaredDecimals],
    state: str,
    columns: Mapping[str, pa.DataType],
    types: ColumnOptions,
) -> dict[str, pa.DataType]:
    """The types of columns whose decimals were declared, by column.

    Args:
        decimals: What was declared, by state.
        state: What is read: the name of a state, or a form with a column for each state.
        columns: The columns as they are stored.
        types: Representation of types as columns.
    """
    if types.decimals == "exact":
        return {}
    found = {}
    for name, stored in columns.items():
        is_value = name in (VALUE_COLUMN, LIST_VALUE_COLUMN)
        declared = _declared(stored, decimals.get(state if is_value else name))
        if declared != stored:
            found[name] = declared
    return found


def _declared(stored: pa.DataType, decimals: DeclaredDecimals | None) -> pa.DataType:
    """The type of a column with its declared decimals; other parts as they are stored."""
    if isinstance(decimals, Mapping):
        if not pa.types.is_struct(stored) or stored == BIG_DECIMAL:
            return stored
        return pa.struct(
            [each.with_type(_declared(each.type, decimals.get(each.name))) for each in stored]
        )
    if decimals is not None and stored == BIG_DECIMAL:
        return pa.decimal128(*decimals)
    if decimals is not None and element_of(stored) == BIG_DECIMAL:
        return pa.list_(pa.decimal128(*decimals))
    return stored


def as_declared(column: pa.Array, declared: pa.DataType, name: str) -> pa.Array:
    """A stored column with its decimals in their declared type.

    Raises:
        ColumnValueError: A number has more digits than the type, before or after the point.
    """
    if column.type == declared:
        return column
    if pa.types.is_struct(declared):
        parts = [
            as_declared(part, each.type, f"{name}.{each.name}")
            for part, each in zip(_fields(column), declared, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(declared), mask=column.is_null())
    decimal = element_of(declared) or declared
    try:
        return with_scale(column, decimal.scale).cast(declared)
    except pa.ArrowInvalid as error:
        raise ColumnValueError(
            f"A number in column {name!r} does not fit {decimal}, its declared type; "
            f"read it with decimals=exact, or declare a type with more digits.",
            column=name,
        ) from error


def _fields(column: pa.Array) -> list[pa.Array]:
    return [pc.struct_field(column, at) for at in range(column.type.num_fields)]
