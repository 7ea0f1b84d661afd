"""The Arrow types of rows that are read and stored: those of Spark, whatever the engine.

So every engine sees the same rows and writes the same files. An Arrow type that Spark lacks becomes
the nearest type that can store every value: an unsigned char becomes an int, a time of day becomes
its nanoseconds as a long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pyarrow as pa

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
    if pa.types.is_time(column.type):
        return column.cast(pa.time64("ns")).cast(pa.int64())
    return column.cast(wanted)


def twins_of(names: Sequence[str]) -> tuple[str, str] | None:
    """Two names that differ in case only, which Spark treats as equal; None if there are none."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            return other, name
    return None
