"""Java's decimals in the type that was declared.

``BigDecimal`` has a scale for each value, so a stored state does not say its type. The sidecar of
what dstl writes says it: of declared aggregates, and of state made from columns of decimals.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.types.java_decimals import BIG_DECIMAL, with_scale
from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.errors import ColumnValueError
from dstl_core.model.checkpoint import KEY_DECIMALS, DeclaredDecimals
from dstl_core.state.columns.state_columns import (
    KEY_COLUMN,
    LIST_VALUE_COLUMN,
    MAP_KEY_COLUMN,
    MAP_VALUE_COLUMN,
    VALUE_COLUMN,
)

_PARTS_OF_MAPS = {MAP_KEY_COLUMN: "key", MAP_VALUE_COLUMN: "value"}


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
    changed = {}
    for name, stored in columns.items():
        declared = _declared(stored, _of_column(name, decimals, decimals.get(state)))
        if declared != stored:
            changed[name] = declared
    return changed


def _of_column(
    name: str, decimals: Mapping[str, DeclaredDecimals], of_state: DeclaredDecimals | None
) -> DeclaredDecimals | None:
    if name == KEY_COLUMN:
        return decimals.get(KEY_DECIMALS)
    if name in (VALUE_COLUMN, LIST_VALUE_COLUMN):
        return of_state
    if name in _PARTS_OF_MAPS and isinstance(of_state, Mapping):
        return of_state.get(_PARTS_OF_MAPS[name])
    return decimals.get(name)


def _declared(stored: pa.DataType, decimals: DeclaredDecimals | None) -> pa.DataType:
    """The type of a column with its declared decimals; other parts as they are stored."""
    if decimals is None:
        return stored
    if pa.types.is_list(stored):
        return pa.list_(stored.value_field.with_type(_declared(stored.value_type, decimals)))
    if not isinstance(decimals, Mapping):
        return pa.decimal128(*decimals) if stored == BIG_DECIMAL else stored
    if pa.types.is_map(stored):
        parts = [
            column.with_type(_declared(column.type, decimals.get(part)))
            for part, column in (("key", stored.key_field), ("value", stored.item_field))
        ]
        return pa.map_(*parts)
    if pa.types.is_struct(stored) and stored != BIG_DECIMAL:
        return pa.struct(
            [each.with_type(_declared(each.type, decimals.get(each.name))) for each in stored]
        )
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
            as_declared(part, field.type, f"{name}.{field.name}")
            for part, field in zip(_fields(column), declared, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(declared), mask=column.is_null())
    if pa.types.is_list(declared):
        return with_inside(column, declared, as_declared(column.values, declared.value_type, name))
    if pa.types.is_map(declared):
        kinds = (declared.key_field, declared.item_field)
        parts = [
            as_declared(part, kind.type, f"{name}.{kind.name}")
            for part, kind in zip((column.keys, column.items), kinds, strict=True)
        ]
        return with_inside(column, declared, pa.StructArray.from_arrays(parts, fields=kinds))
    try:
        return with_scale(column, declared.scale).cast(declared)
    except pa.ArrowInvalid as error:
        raise ColumnValueError(
            f"A number in column {name!r} does not fit {declared}, its declared type; "
            f"read it with decimals=exact, or declare a type with more digits.",
            column=name,
        ) from error


def with_inside(column: pa.Array, declared: pa.DataType, inside: pa.Array) -> pa.Array:
    """A column of lists or maps with other elements in the same places."""
    return pa.Array.from_buffers(
        declared, len(column), column.buffers()[:2], offset=column.offset, children=[inside]
    )


def _fields(column: pa.Array) -> list[pa.Array]:
    return [pc.struct_field(column, at) for at in range(column.type.num_fields)]
