"""The rows of a window in Parquet files, for engines without Spark: as Spark reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.types.spark_names import spark_name
from dstl_core.errors import ConfigError
from dstl_core.local.rows import ArrowRows
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

if TYPE_CHECKING:
    from dstl_core.local.local_engine import LocalEngine

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_BATCH = "The batch of events"


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
    # Two writers may escape one value in two ways.
    of_window = [str(folder) for name, folder in folders if name == key and _has_files(folder)]
    other = None if of_window else next((each for _, each in folders if _has_files(each)), None)
    if not of_window and other is None:
        rows = engine.batch_of(path, _BATCH)
        if column in rows.schema.names:
            kind = rows.schema.field(column).type
            is_text = pa.types.is_string(kind) or pa.types.is_date(kind)
            check_partition_column(column, spark_name(kind), is_text=is_text)
        return RowsWithValue(rows, column, key)
    value = _value_in_names(column, folders, key)
    if of_window:
        return RowsOfFolder(engine.batch_of(of_window, _BATCH), column, value)
    # The window has no rows; a folder of another one has the columns.
    others = RowsOfFolder(engine.batch_of(str(other), _BATCH), column, value)
    empty: ArrowRows = engine.batch_of(others.schema.empty_table(), _BATCH)
    return empty


def check_partition_column(column: str, kind: str, *, is_text: bool) -> None:
    """Raises ConfigError if no value of a column can be the partition key of a window.

    Args:
        column: The column.
        kind: Its type, as Spark names it.
        is_text: Whether that is a string or a date.
    """
    if not is_text:
        raise ConfigError(
            f"The partition_column {column!r} is {kind}, and no window would have a row: expected "
            f"partition keys such as '2026-01-02', as a string or a date; cast the column where "
            f"the events are written, or name another one."
        )


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
    """The value and the place of each partition folder. One request lists them.

    Raises:
        ConfigError: Beside them are rows of no partition. Spark 4 leaves out those of files, and
            refuses folders of another column.
    """
    file_io = open_file_io(root)
    if file_io.size(root) is not None:
        return []
    folders, others = [], []
    for entry in file_io.list_folder(root):
        # Writers escape what a name of a file cannot have, for example the colon of a time.
        name, sign, value = unquote(entry.location.name).partition("=")
        if entry.is_folder and sign and name == column:
            folders.append((value, entry.location))
        elif not name.startswith(("_", ".")) and (sign or not entry.is_folder):
            others.append(entry.location.name)
    if others and any(_has_files(folder) for _, folder in folders):
        raise ConfigError(
            f"The folder {root} has partition folders {column}=.. and beside them {others[0]!r}, "
            f"which belongs to no partition: expected partition folders of one column alone; move "
            f"it away."
        )
    return folders


def _has_files(folder: Location) -> bool:
    entries = open_file_io(folder).list_folder(folder)
    return any(not entry.location.name.startswith(("_", ".")) for entry in entries)


def _value_in_names(column: str, folders: Sequence[tuple[str, Location]], key: str) -> Any:
    """The key as the value of the column. Spark takes the names of all folders with files for dates
    or numbers if each is one, else for text (``PartitioningUtils.inferPartitionColumnValue``).

    Raises:
        ConfigError: They are numbers, and none is a key.
    """
    names = [name for name, _ in folders if name != _NO_VALUE]
    if not all(map(_DATE.fullmatch, names)):
        # An empty folder has no say. Days rarely have one, and a look costs a request for each.
        names = [name for name, folder in folders if name != _NO_VALUE and _has_files(folder)]
    if names and all(map(_NUMBER.fullmatch, names)):
        check_partition_column(column, f"a number ({names[0]})", is_text=False)
    if all(map(_DATE.fullmatch, [*names, key])):
        return pa.scalar(date.fromisoformat(key), pa.date32())
    return pa.scalar(key, pa.string())
