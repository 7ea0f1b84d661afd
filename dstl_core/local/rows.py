"""Rows of an engine without Spark: tables, streams and Parquet files, read batch by batch.

All of them have the Arrow stream interface, so pyarrow, pandas, polars and DuckDB take them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike, fspath
from typing import Any

import pyarrow as pa

from dstl_core.errors import ConfigError
from dstl_core.job.rows.parquet_files import (
    ROWS_PER_BATCH,
    check_calendar,
    files_in,
    open_parquet,
)
from dstl_core.job.rows.spool import Spool
from dstl_core.job.spec.output_types import as_stored, stored_arrow_schema
from dstl_core.storage.location import Location


class ArrowRows(ABC):
    """Rows with the types of stored rows. They can be read several times.

    Args:
        schema: The columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows."""

    def to_arrow(self) -> pa.Table:
        """All rows in memory."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader: Any = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"<{type(self).__name__} {columns}>"


class TableRows(ArrowRows):
    """Rows in memory.

    Args:
        table: The rows.
        schema: Their columns as they are stored.
        what: The name of the rows, for errors.
    """

    def __init__(self, table: pa.Table, schema: pa.Schema, what: str) -> None:
        super().__init__(schema)
        self._table = table
        self._what = what

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._table.to_batches(max_chunksize=ROWS_PER_BATCH):
            yield in_stored_types(batch, self.schema, self._what)


class FileRows(ArrowRows):
    """Rows of Parquet files.

    Args:
        files: URLs of the files.
        schema: The columns.
    """

    def __init__(self, files: Sequence[str], schema: pa.Schema) -> None:
        super().__init__(schema)
        self._files = tuple(files)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for name in self._files:
            with open_parquet(name) as file:
                check_calendar(name, file, self.schema.names)
                for batch in file.iter_batches(ROWS_PER_BATCH, columns=self.schema.names):
                    rows = batch.select(self.schema.names)
                    yield in_stored_types(rows, self.schema, f"The file {name}")


class KeptRows(ArrowRows):
    """Rows of a stream, which can be read only once.

    Args:
        batches: The stream.
        schema: Its columns.
        what: The name of the rows, for errors.
        memory: The bytes that stay in memory.
        folder: The folder of temporary files; None: the system's.
    """

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        what: str,
        memory: int,
        folder: str | None,
    ) -> None:
        super().__init__(_stored(schema, what))
        self._spool = Spool(self.schema, memory, folder)
        for batch in batches:
            self._spool.add(in_stored_types(batch, self.schema, what))

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._spool.batches()


def rows_of(rows: Any, what: str, memory: int, folder: str | None) -> ArrowRows:
    """Rows of any form.

    Args:
        rows: An object with the Arrow stream interface, batches, or paths of Parquet files and
            folders.
        what: The name of the rows, for errors.
        memory: The bytes of a stream that stay in memory. A stream is read once, and kept.
        folder: The folder of temporary files; None: the system's.

    Raises:
        ConfigError: It is of another form, or Spark has no type for a column.
    """
    if isinstance(rows, ArrowRows):
        return rows
    if isinstance(rows, str | PathLike):
        return _of_files([fspath(rows)])
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return TableRows(rows, _stored(rows.schema, what), what)
    if hasattr(rows, "__arrow_c_stream__"):
        stream = pa.RecordBatchReader.from_stream(rows)
        return KeptRows(stream, stream.schema, what, memory, folder)
    if isinstance(rows, Sequence) and rows:
        if all(isinstance(part, str | PathLike) for part in rows):
            return _of_files([fspath(part) for part in rows])
        if all(isinstance(part, pa.RecordBatch) for part in rows):
            return KeptRows(rows, rows[0].schema, what, memory, folder)
    raise ConfigError(
        f"{what} has to be a table or a stream of Arrow (pyarrow, pandas, polars, DuckDB), or "
        f"paths of Parquet files, got a {type(rows).__name__}."
    )


def in_stored_types(batch: pa.RecordBatch, schema: pa.Schema, what: str) -> pa.RecordBatch:
    """Casts rows to the types of stored rows.

    Raises:
        ConfigError: A value does not fit, for example a time between two microseconds.
    """
    try:
        return as_stored(batch, schema)
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"{what} has a value that Spark's types cannot hold ({error}); round or cast the "
            f"column."
        ) from error


def _stored(schema: pa.Schema, what: str) -> pa.Schema:
    try:
        return stored_arrow_schema(schema)
    except ConfigError as error:
        raise ConfigError(f"{what} has a column of an unknown type: {error}") from None


def _of_files(paths: Sequence[str]) -> FileRows:
    files = [str(file) for path in paths for file in files_in(Location.parse(path))]
    with open_parquet(files[0]) as first:
        return FileRows(files, _stored(first.schema_arrow, f"The file {files[0]}"))
