"""Rows of a record batch as Python objects."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dstl_core.errors import ConfigError

_BY_NUMPY = frozenset(
    [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_()]
)
_TEXTS = frozenset([pa.string(), pa.large_string()])
_AS_OBJECTS = _TEXTS | {pa.binary(), pa.large_binary()}


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """A dictionary per row, as ``to_pylist`` returns, in a third of the time.

    Raises:
        ConfigError: Python has no such value: a date after the year 9999, or text that is not
            UTF-8.
    """
    names = batch.schema.names
    if not names:
        return [{} for _ in range(batch.num_rows)]
    first, *others = names
    rows = [{first: value} for value in _values_of(first, batch.column(0))]
    # Column by column takes half as long as ``dict(zip(..))`` row by row.
    for at, name in enumerate(others, 1):
        for row, value in zip(rows, _values_of(name, batch.column(at)), strict=True):
            row[name] = value
    return rows


def _values_of(name: str, column: pa.Array) -> list[Any]:
    try:
        return values_of(column)
    except (OverflowError, ValueError, pa.ArrowException) as error:
        if isinstance(error, UnicodeDecodeError) or column.type in _TEXTS:
            raise ConfigError(
                f"The column {name!r} has text that is not UTF-8, which Python does not have: "
                f"replace such bytes (in Spark, make_valid_utf8), or cast the column to binary."
            ) from None
        raise ConfigError(
            f"The column {name!r} has a value of type {column.type} that Python does not have "
            f"({error}): expected years 1 to 9999 and whole microseconds; replace such values, or "
            f"cast the column, for example to a string."
        ) from None


def values_of(column: pa.Array) -> list[Any]:
    """The values of a column as in ``to_pylist``. NumPy converts plain values much faster."""
    values: list[Any]
    if column.type not in _BY_NUMPY | _AS_OBJECTS:
        values = column.to_pylist()
        return values
    if not column.null_count or column.type in _AS_OBJECTS:
        values = column.to_numpy(zero_copy_only=False).tolist()
        return values
    zero = pa.scalar(0).cast(column.type)
    values = column.fill_null(zero).to_numpy(zero_copy_only=False).tolist()
    for at in column.is_null().to_numpy(zero_copy_only=False).nonzero()[0].tolist():
        values[at] = None
    return values
