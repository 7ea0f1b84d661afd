"""Rows of an engine without Spark: tables, streams and Parquet files, read batch by batch.

All of them have the Arrow stream interface, so pyarrow, pandas, polars and DuckDB take them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import Dataset

from dstl_core.codec.columnar.types.spark_names import spark_name
from dstl_core.errors import ConfigError, StorageError, in_one_line
from dstl_core.job.rows.joined_batches import within_bytes
from dstl_core.job.rows.parquet_files import (
    ROWS_PER_BATCH,
    batches_of,
    check_calendar,
    check_same_columns,
    files_in,
    open_parquet,
)
from dstl_core.job.rows.spool import Spool
from dstl_core.job.spec.given_rows import (
    arrow_of,
    has_stream,
    in_stored_types,
    paths_of,
    stored_schema,
    stream_of,
)
from dstl_core.job.spec.input_checks import may_become
from dstl_core.job.spec.read_columns import ALL_COLUMNS, ReadColumns
from dstl_core.storage.location import Location

_READ_AHEAD = 2
"""Batches of a dataset that are read before they are asked for."""
_TABLES = ("pandas", "polars")
"""Libraries whose tables give a new stream each time."""


class ArrowRows(ABC):
    """Rows with the types of stored rows. They can be read several times, but for a stream that is
    not kept.

    Args:
        schema: The columns.
    """

    is_read_again = True

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows."""

    def select(self, names: Sequence[str]) -> ArrowRows:
        """Some columns, in their own types."""
        return self._in(pa.schema([self.schema.field(name) for name in names]))

    def _in(self, schema: pa.Schema) -> ArrowRows:
        return self if schema.equals(self.schema) else RowsInTypes(self, schema)

    def in_types(self, types: Mapping[str, pa.DataType]) -> ArrowRows | None:
        """Rows with other types of some columns; None if a value does not fit."""
        changed = self.select(list(types)).batches()
        if not all(_fits(batch.column(name), types[name]) for batch in changed for name in types):
            return None
        kinds = [pa.field(each.name, types.get(each.name, each.type)) for each in self.schema]
        return RowsInTypes(self, pa.schema(kinds))

    def to_arrow(self) -> pa.Table:
        """All rows in memory."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader: Any = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"<{type(self).__name__} {columns}>"


class RowsInTypes(ArrowRows):
    """Some columns of other rows, in other types that hold every value.

    Args:
        rows: The rows.
        schema: The columns.
    """

    def __init__(self, rows: ArrowRows, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._rows = rows
        self.is_read_again = rows.is_read_again

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows.batches():
            columns = [batch.column(each.name).cast(each.type, safe=False) for each in self.schema]
            if columns:
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
            else:
                yield batch.select([])  # it has a number of rows


def _stored(batch: pa.RecordBatch, schema: pa.Schema, what: str) -> Iterator[pa.RecordBatch]:
    """Rows in the types that are stored, at most ``ROWS_PER_BATCH`` at once. They may need more
    bytes than before.
    """
    for part in within_bytes(batch):
        for start in range(0, part.num_rows, ROWS_PER_BATCH):
            rows = part.slice(start, ROWS_PER_BATCH)
            yield from within_bytes(in_stored_types(rows, schema, what))


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
        for batch in self._table.to_batches():
            yield from _stored(batch, self.schema, self._what)


class FileRows(ArrowRows):
    """Rows of Parquet files.

    Args:
        files: URLs of the files.
        schema: The columns.
        names: The columns that a file may have; None: it may have more than the first one has,
            which are left out.
    """

    def __init__(
        self, files: Sequence[str], schema: pa.Schema, names: Sequence[str] | None = None
    ) -> None:
        super().__init__(schema)
        self._files = tuple(files)
        self._names = names

    def _in(self, schema: pa.Schema) -> ArrowRows:
        return FileRows(self._files, schema, self._names)

    def without_others(self) -> ArrowRows:
        """The same rows; a file with a column that the first one lacks is an error."""
        return FileRows(self._files, self.schema, self.schema.names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for name in self._files:
            with open_parquet(name) as file:
                self._check_columns(name, file.schema_arrow)
                check_calendar(name, file, self.schema.names)
                for batch in batches_of(name, file, self.schema.names):
                    yield from _stored(batch, self.schema, f"The file {name}")

    def _check_columns(self, name: str, schema: pa.Schema) -> None:
        """Raises ConfigError if a file has not the columns of the first one."""
        if self._names is not None:
            check_same_columns(self._files[0], self._names, name, schema.names)
        stored = stored_schema(schema, f"The file {name}")
        for field in self.schema:
            at = stored.get_field_index(field.name)
            kind = None if at < 0 else stored.field(at).type
            has_nulls_alone = at >= 0 and pa.types.is_null(schema.field(at).type)
            if kind is None or not (has_nulls_alone or may_become(kind, field.type)):
                actual = "no such column" if kind is None else spark_name(kind)
                raise ConfigError(
                    f"The files of one batch have different columns: expected {field.name!r} as "
                    f"{spark_name(field.type)}, as in {self._files[0]}, got {actual} in {name}; "
                    f"write the files anew with the same columns."
                )


class DatasetRows(ArrowRows):
    """Rows of a dataset of pyarrow.

    Args:
        dataset: The dataset.
        schema: The columns.
        what: The name of the rows, for errors.
    """

    def __init__(self, dataset: Any, schema: pa.Schema, what: str) -> None:
        super().__init__(schema)
        self._dataset = dataset
        self._what = what

    def _in(self, schema: pa.Schema) -> ArrowRows:
        return DatasetRows(self._dataset, schema, self._what)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._read():
            yield from _stored(batch, self.schema, self._what)

    def _read(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._dataset.to_batches(
                columns=self.schema.names,
                batch_size=ROWS_PER_BATCH,
                batch_readahead=_READ_AHEAD,
                fragment_readahead=1,
            )
        except pa.ArrowException as error:
            raise ConfigError(
                f"{self._what} is a dataset that cannot be read ({in_one_line(error)}); mend its "
                f"files, or give it the types that they have."
            ) from error
        except OSError as error:
            raise StorageError(
                f"{self._what} is a dataset that its file system did not read "
                f"({in_one_line(error)}); look at the store, then at the files."
            ) from error


class StreamRows(ArrowRows):
    """Rows of a stream that is not kept.

    Args:
        source: The stream, or an object that gives one.
        what: The name of the rows, for errors.
    """

    def __init__(self, source: Any, what: str) -> None:
        stream = source
        if not isinstance(source, pa.RecordBatchReader):
            stream = stream_of(source)
        super().__init__(stored_schema(_without_index(stream.schema), what))
        self.is_read_again = type(source).__module__.partition(".")[0] in _TABLES
        self._source = source
        self._stream: Any = stream
        self._what = what

    def batches(self) -> Iterator[pa.RecordBatch]:
        stream, self._stream = self._stream, None
        if stream is None and not self.is_read_again:
            raise ConfigError(
                f"{self._what} is a stream, which was read already; give a table or paths of "
                f"Parquet files, or a new stream each time."
            )
        for batch in stream or stream_of(self._source):
            yield from _stored(batch, self.schema, self._what)


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
        super().__init__(schema)
        self._spool = Spool(self.schema, memory, folder)
        for batch in batches:
            self._spool.add(in_stored_types(batch, self.schema, what))

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._spool.batches()


def rows_of(rows: Any, what: str, reads: ReadColumns, memory: int, folder: str | None) -> ArrowRows:
    """Rows of any form.

    Args:
        rows: An object with the Arrow stream interface, batches, a dataset of pyarrow, or paths of
            Parquet files and folders.
        what: The name of the rows, for errors.
        reads: The columns that are read. Others are left out if Spark has no type for them.
        memory: The bytes of a stream that stay in memory. A stream is read once, and kept.
        folder: The folder of temporary files; None: the system's.

    Raises:
        ConfigError: It is of another form, or Spark has no type for a column.
    """
    if isinstance(rows, ArrowRows):
        return rows
    paths = paths_of(rows)
    if paths is not None:
        return _of_files(paths, reads)
    arrow_rows = arrow_of(rows)
    if arrow_rows is not None:
        schema = stored_schema(arrow_rows.schema, what, reads.reads)
        if isinstance(arrow_rows, pa.Table):
            return TableRows(arrow_rows, schema, what)
        return KeptRows(arrow_rows, schema, what, memory, folder)
    if isinstance(rows, Dataset):
        return DatasetRows(rows, stored_schema(rows.schema, what, reads.reads), what)
    raise ConfigError(
        f"{what} has to be a table or a stream of Arrow (pyarrow, pandas, polars, DuckDB), or "
        f"paths of Parquet files, got a {type(rows).__name__}."
    )


def rows_read_once(rows: Any, what: str) -> ArrowRows:
    """As ``rows_of``, for rows that are likely to be read once: a stream is not kept.

    Raises:
        ConfigError: As ``rows_of``.
    """
    is_table = isinstance(rows, ArrowRows | pa.Table | pa.RecordBatch)
    if has_stream(rows) and not is_table:
        return StreamRows(rows, what)
    if isinstance(rows, Sequence) and rows and all(isinstance(b, pa.RecordBatch) for b in rows):
        rows = pa.Table.from_batches(arrow_of(rows) or ())  # they are in memory
    known = rows_of(rows, what, ALL_COLUMNS, 0, None)
    return known.without_others() if isinstance(known, FileRows) else known


def _without_index(schema: pa.Schema) -> pa.Schema:
    """The columns without an index of pandas that has no name: rows that are left of others."""
    known = (schema.pandas_metadata or {}).get("index_columns", ())
    unnamed = {name for name in known if str(name).startswith("__index_level_")}
    return pa.schema([field for field in schema if field.name not in unnamed])


def _of_files(paths: Sequence[str], reads: ReadColumns) -> FileRows:
    files = [str(file) for path in paths for file in files_in(Location.parse(path))]
    with open_parquet(files[0]) as first:
        schema = stored_schema(first.schema_arrow, f"The file {files[0]}", reads.reads)
        return FileRows(files, schema)


def _fits(column: pa.Array, kind: pa.DataType) -> bool:
    """Whether each value of a column is a value of another type, too."""
    try:
        back = column.cast(kind).cast(column.type)
    except pa.ArrowInvalid:
        return False
    same = pc.equal(back, column)
    if pa.types.is_floating(column.type):
        same = pc.or_(same, pc.is_nan(column))
    return pc.all(same).as_py() is not False
