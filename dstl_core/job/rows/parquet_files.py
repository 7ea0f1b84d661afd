"""Opens Parquet files of any store, of dstl and of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dstl_core.errors import ConfigError, DstlError, FormatError, in_one_line
from dstl_core.job.rows.joined_batches import TASK_BYTES, within_bytes
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

ROWS_PER_BATCH = 100_000
"""Rows that are read at once, if they are not more than ``TASK_BYTES``."""
_VERSION = b"org.apache.spark.version"
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def files_in(location: Location) -> list[Location]:
    """A file, or the files of a folder sorted by name, without the files that Spark ignores."""
    file_io = open_file_io(location)
    if file_io.size(location) is not None:
        return [location]
    files = []
    for entry in file_io.list_folder(location):
        name = entry.location.name
        if entry.is_folder and "=" in name:
            raise ConfigError(
                f"The folder {location} has partition folders ({name}), whose columns are in no "
                f"file; give the folder of one partition."
            )
        if not entry.is_folder and not name.startswith(("_", ".")):
            files.append(entry.location)
    if not files:
        raise ConfigError(f"There is no Parquet file at {location}; give a file or its folder.")
    return files


def open_parquet(name: str) -> pq.ParquetFile:
    """Opens a file by its URL.

    Raises:
        FormatError: It is not a Parquet file.
    """
    location = Location.parse(name)
    # Spark writes timestamps as INT96 by default. Read as nanoseconds, they could not pass 2262.
    options: Any = {"coerce_int96_timestamp_unit": "us"}
    try:
        if location.is_local:
            return pq.ParquetFile(location.path, memory_map=True, **options)
        return pq.ParquetFile(
            open_file_io(location).open_input(location), pre_buffer=True, **options
        )
    except pa.ArrowInvalid as error:
        raise FormatError(
            f"The file is not a Parquet file ({in_one_line(error)}).", location=name
        ) from error


def batches_of(
    name: str,
    file: pq.ParquetFile,
    columns: Sequence[str],
    row_groups: Iterable[int] | None = None,
    *,
    use_threads: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Some rows of a file at a time.

    Args:
        name: The URL of the file.
        file: The file.
        columns: The columns to read.
        row_groups: The numbers of the row groups to read; None: all.
        use_threads: Whether columns are decoded in threads.

    Raises:
        FormatError: The file is damaged.
    """
    try:
        limits = partial(_rows_at_once, file, columns)
        every = range(file.num_row_groups) if row_groups is None else row_groups
        for rows, groups in groupby(every, limits):
            for batch in file.iter_batches(rows, [*groups], columns, use_threads=use_threads):
                yield from within_bytes(batch)
    except DstlError:
        raise
    except (pa.ArrowException, OSError) as error:  # Arrow says OSError of bytes that it cannot read
        raise FormatError(
            f"The Parquet file is damaged ({in_one_line(error)})", location=name
        ) from error


def _rows_at_once(file: pq.ParquetFile, columns: Sequence[str], row_group: int) -> int:
    """How many rows of a row group are read at once, by the sizes that the footer says. Below
    ``ROWS_PER_BATCH`` it is a power of two, so that row groups alike are read together.
    """
    group = file.metadata.row_group(row_group)
    chunks = (group.column(at) for at in range(group.num_columns))
    size = sum(
        chunk.total_uncompressed_size
        for chunk in chunks
        if chunk.path_in_schema.partition(".")[0] in columns
    )
    if size * ROWS_PER_BATCH <= TASK_BYTES * group.num_rows:
        return ROWS_PER_BATCH
    rows = max(1, TASK_BYTES * group.num_rows // size)
    return int(1 << rows.bit_length() - 1)


def check_same_columns(first: str, known: Sequence[str], name: str, stored: Sequence[str]) -> None:
    """Raises ConfigError if a file has columns that are not known.

    Args:
        first: The file from which columns are known.
        known: Their names.
        name: The file.
        stored: The names of its columns.
    """
    others = sorted({*stored} - {*known})
    if others:
        raise ConfigError(
            f"The files of one batch have different columns: expected those of {first}, got also "
            f"{others[0]!r} in {name}; write the files anew with the same columns."
        )


def check_calendar(name: str, file: pq.ParquetFile, wanted: Sequence[str]) -> None:
    """Raises ConfigError if a column may have times of the Julian calendar.

    If the footer has the mark of that calendar, only Spark converts days before 1582 and some times
    before 1900 (``DataSourceUtils``).
    """
    footer = file.metadata.metadata or {}
    is_old = footer.get(_VERSION, b"9").startswith((b"1.", b"2."))
    if not is_old and not any(key in footer for key in _OLD_CALENDAR):
        return
    for column in wanted:
        if _has_time(file.schema_arrow.field(column).type):
            raise ConfigError(
                f"Column {column!r} of the Parquet file {name} may have times of Spark 2's "
                f"calendar; give spark.read.parquet(..) instead, where Spark converts them."
            )


def _has_time(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_time(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
