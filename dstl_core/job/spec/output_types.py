"""The Arrow types of rows that are read and stored: those of Spark, whatever the engine.

So every engine sees the same rows and writes the same files. An Arrow type that Spark lacks becomes
the nearest type that can store every value: an unsigned char becomes an int, a time of day becomes
its nanoseconds as a long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.errors import ConfigError

INSERTED_ROWS = "dstl.inserted_rows"
"""Metadata of a file of output: how many rows, the first ones, are of keys without state before."""
SIMPLE_TYPES: tuple[pa.DataType, ...] = (
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
)
"""The types of output without a parameter and without fields."""

_NEAREST: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.date64(): pa.date32(),
    pa.null(): pa.string(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def stored_arrow_type(arrow_type: pa.DataType) -> pa.DataType:
    """The Arrow type with which a column of ``arrow_type`` is stored.

    Raises:
        ConfigError: Spark has no such type.
    """
    if pa.types.is_dictionary(arrow_type):
        return stored_arrow_type(arrow_type.value_type)
    if any(test(arrow_type) for test in _LISTS):
        return pa.list_(arrow_type.value_field.with_type(stored_arrow_type(arrow_type.value_type)))
    if pa.types.is_map(arrow_type):
        return pa.map_(
            stored_arrow_type(arrow_type.key_type), stored_arrow_type(arrow_type.item_type)
        )
    if pa.types.is_struct(arrow_type):
        return pa.struct([each.with_type(stored_arrow_type(each.type)) for each in arrow_type])
    stored = _nearest(arrow_type)
    if stored not in SIMPLE_TYPES and not pa.types.is_decimal128(stored):
        raise ConfigError(
            f"Spark has no type for Arrow's {stored}; use one of: decimal128, "
            f"{', '.join(sorted(map(str, SIMPLE_TYPES)))}, or a list, map or struct of these."
        )
    return stored


def _nearest(arrow_type: pa.DataType) -> pa.DataType:
    nearest = _NEAREST.get(arrow_type)
    if nearest is not None:
        return nearest
    if pa.types.is_time(arrow_type):
        return pa.int64()
    if pa.types.is_fixed_size_binary(arrow_type):
        return pa.binary()
    if pa.types.is_decimal32(arrow_type) or pa.types.is_decimal64(arrow_type):
        return pa.decimal128(arrow_type.precision, arrow_type.scale)
    if pa.types.is_timestamp(arrow_type):
        return pa.timestamp("us", None if arrow_type.tz is None else "UTC")
    return arrow_type


def stored_arrow_schema(schema: pa.Schema) -> pa.Schema:
    """As ``stored_arrow_type``, for every column."""
    return pa.schema([pa.field(each.name, stored_arrow_type(each.type)) for each in schema])


def as_stored(rows: Rows, schema: pa.Schema) -> Rows:
    """Casts rows to the types of ``stored_arrow_schema``."""
    if rows.schema.equals(schema):
        return rows
    columns = zip(rows.columns, schema, strict=True)
    return type(rows).from_arrays(
        [_cast(column, wanted.type) for column, wanted in columns], schema=schema
    )


def _cast(column: Any, wanted: pa.DataType) -> Any:
    if column.type.equals(wanted):
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_cast(chunk, wanted) for chunk in column.chunks], wanted)
    if pa.types.is_time(column.type):
        return column.cast(pa.time64("ns")).cast(pa.int64())
    if pa.types.is_nested(wanted) and _is_cast_in_parts(column.type):
        return _cast_in_parts(column, wanted)
    return column.cast(wanted)


def _is_cast_in_parts(kind: pa.DataType) -> bool:
    """Whether a type has parts that Arrow's cast gets wrong: a time within it would be a number of
    its own unit, and a list that is a view an array that reads beyond its memory.
    """
    is_wrong = pa.types.is_time(kind) or pa.types.is_list_view(kind)
    return (
        is_wrong
        or pa.types.is_large_list_view(kind)
        or any(_is_cast_in_parts(kind.field(at).type) for at in range(kind.num_fields))
    )


def _cast_in_parts(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    mask = column.is_null() if column.null_count else None
    if pa.types.is_struct(wanted):
        parts = zip(column.flatten(), wanted, strict=True)
        cast = [_cast(part, field.type) for part, field in parts]
        return pa.StructArray.from_arrays(cast, fields=list(wanted), mask=mask)
    if pa.types.is_map(wanted):
        column = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    values = column.flatten()
    if pa.types.is_map(wanted):
        keys, items = (
            _cast(values.field(0), wanted.key_type),
            _cast(values.field(1), wanted.item_type),
        )
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=mask)
    values = _cast(values, wanted.value_type)
    return pa.ListArray.from_arrays(offsets, values, type=wanted, mask=mask)


def twins_of(names: Sequence[str]) -> tuple[str, str] | None:
    """Two names that differ in case only, which Spark treats as equal; None if there are none."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            return other, name
    return None
