"""The rows of a window in Parquet files, for engines without Spark: as Spark reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.errors import ConfigError
from dstl_core.local.rows import ArrowRows
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

if TYPE_CHECKING:
    from dstl_core.local.local_engine import LocalEngine

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_BATCH = "The events"


def rows_of_window(engine: LocalEngine, path: str, column: str, key: str) -> ArrowRows:
    """The rows of a window, with the column that says to which window they belong.

    Args:
        engine: The engine that reads them.
        path: A file or a folder with this column; or a folder with a partition folder for each
            window, ``<column>=<key>``.
        column: The column.
        key: Its value.

    Raises:
        ConfigError: There is no file, or no such column.
    """
    folders = _partition_folders(Location.parse(path), column)
    if not folders:
        return RowsWithValue(engine.batch_of(path, _BATCH), column, key)
    value = _value_in_name(key)
    for name, folder in folders:
        if name == key:
            return RowsOfFolder(engine.batch_of(str(folder), _BATCH), column, value)
    # The window has no rows; a folder of another one has the columns.
    others = RowsOfFolder(engine.batch_of(str(folders[0][1]), _BATCH), column, value)
    empty: ArrowRows = engine.batch_of(others.schema.empty_table(), _BATCH)
    return empty


class RowsOfFolder(ArrowRows):
    """Rows of a partition folder, with the column of its name.

    Args:
        rows: The rows of its files.
        column: The column.
        value: The value of the column.
    """

    def __init__(self, rows: ArrowRows, column: str, value: Any) -> None:
        self._names = [name for name in rows.schema.names if name != column]
        fields = [*(rows.schema.field(name) for name in self._names), pa.field(column, value.type)]
        super().__init__(pa.schema(fields))
        self._rows = rows
        self._value = value

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows.batches():
            columns = [batch.column(name) for name in self._names]
            values = pa.repeat(self._value, batch.num_rows)
            yield pa.RecordBatch.from_arrays([*columns, values], schema=self.schema)


class RowsWithValue(ArrowRows):
    """The rows that have a value in a column.

    Args:
        rows: The rows.
        column: The column.
        value: The value as text.

    Raises:
        ConfigError: There is no such column.
    """

    def __init__(self, rows: ArrowRows, column: str, value: str) -> None:
        super().__init__(rows.schema)
        if column not in rows.schema.names:
            raise ConfigError(
                f"There is no partition_column {column!r} in the events: expected a column of the "
                f"files or folders {column}=.., got the columns {', '.join(rows.schema.names)}."
            )
        self._rows = rows
        self._column = column
        self._value = value

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows.batches():
            texts = batch.column(self._column).cast(pa.string())
            yield batch.filter(pc.equal(texts, self._value))


def _partition_folders(root: Location, column: str) -> list[tuple[str, Location]]:
    """The value and the place of each partition folder that has files."""
    file_io = open_file_io(root)
    if file_io.size(root) is not None:
        return []
    folders = (entry.location for entry in file_io.list_folder(root) if entry.is_folder)
    # Writers escape what a name of a file cannot have, for example the colon of a time.
    values = ((unquote(folder.name).partition("="), folder) for folder in folders)
    return [
        (value, folder)
        for (name, sign, value), folder in values
        if name == column and sign and _has_files(folder)
    ]


def _has_files(folder: Location) -> bool:
    entries = open_file_io(folder).list_folder(folder)
    return any(not entry.location.name.startswith(("_", ".")) for entry in entries)


def _value_in_name(text: str) -> Any:
    """The value in the name of a folder: Spark takes a day for a date, and a time of day for text
    (``PartitioningUtils.inferPartitionColumnValue``).
    """
    if _DATE.fullmatch(text):
        return pa.scalar(date.fromisoformat(text), pa.date32())
    return pa.scalar(text, pa.string())
