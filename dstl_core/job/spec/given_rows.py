"""The forms in which a user gives rows to an engine: paths of Parquet files, or Arrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike, fspath
from typing import Any

import pyarrow as pa

from dstl_core.errors import ConfigError
from dstl_core.job.spec.output_types import (
    Rows,
    as_stored,
    stored_arrow_schema,
    stored_arrow_type,
)


def paths_of(rows: Any) -> list[str] | None:
    """The paths, if rows are given as a path or as a list of paths."""
    if isinstance(rows, str | PathLike):
        return [fspath(rows)]
    if isinstance(rows, Sequence) and rows and all(isinstance(p, str | PathLike) for p in rows):
        return [fspath(path) for path in rows]
    return None


def has_stream(rows: object) -> bool:
    """Whether rows are an object with the Arrow stream interface; a class has its methods, too."""
    return hasattr(rows, "__arrow_c_stream__") and not isinstance(rows, type)


def arrow_of(rows: Any) -> pa.Table | pa.RecordBatchReader | None:
    """A table, or a stream that can be read once, of any object of Arrow; None for others.

    Raises:
        ConfigError: As ``stream_of``, or batches have different columns.
    """
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return rows
    if has_stream(rows):
        return stream_of(rows)
    if isinstance(rows, Sequence) and rows and all(isinstance(b, pa.RecordBatch) for b in rows):
        for at, batch in enumerate(rows):
            if not batch.schema.equals(rows[0].schema):
                raise ConfigError(
                    f"The batches of the rows have different columns: expected "
                    f"{_shown(rows[0].schema)}, got {_shown(batch.schema)} in batch {at}; give "
                    f"all of them the same columns."
                )
        return pa.RecordBatchReader.from_batches(rows[0].schema, iter(rows))
    return None


def stream_of(rows: Any) -> pa.RecordBatchReader:
    """The stream of an object that gives one.

    Raises:
        ConfigError: It is not one of rows, or Arrow has no type for a column.
    """
    try:
        return pa.RecordBatchReader.from_stream(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = ": ".join(map(str, reversed(error.args)))
        raise ConfigError(
            f"A {type(rows).__name__} cannot be read as rows of Arrow ({reason}); give a table "
            f"whose columns have different names, and values of one type each."
        ) from error


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def stored_schema(
    schema: pa.Schema, what: str, reads: Callable[[str], bool] = lambda name: True
) -> pa.Schema:
    """The columns of rows with the types of stored rows.

    Args:
        schema: The columns.
        what: The name of the rows, for errors.
        reads: Whether a column is read. Others are left out if Spark has no type for them.

    Raises:
        ConfigError: Spark has no type for a column that is read.
    """
    try:
        return stored_arrow_schema(pa.schema([f for f in schema if reads(f.name) or _is_stored(f)]))
    except ConfigError as error:
        raise ConfigError(f"{what} has a column of an unknown type: {error}") from None


def _is_stored(field: pa.Field) -> bool:
    try:
        stored_arrow_type(field.type)
    except ConfigError:
        return False
    return True


def in_stored_types(rows: Rows, schema: pa.Schema, what: str) -> Rows:
    """Casts the columns of ``schema`` to the types of stored rows.

    Raises:
        ConfigError: A value does not fit, for example a time between two microseconds.
    """
    try:
        return as_stored(_columns_in(rows, schema), schema)
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"{what} has a value that Spark's types cannot hold ({error}); round or cast the "
            f"column."
        ) from error


def _columns_in(rows: Rows, schema: pa.Schema) -> Rows:
    return rows if rows.schema.names == schema.names else rows.select(schema.names)
