"""Reads rows of Parquet files: Spark reads local files, and tasks read files of other stores.

Tasks read through dstl's own file IO, so a store needs only its fsspec package and no Hadoop file
system. Spark's reader is faster and prunes columns, but here it reads local files only:
``docs/decisions/0014-reading-back.md``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dstl_core.errors import ConfigError
from dstl_core.job.rows.parquet_files import (
    batches_of,
    check_calendar,
    check_same_columns,
    files_in,
    open_parquet,
)
from dstl_core.spark.engine.parquet_schema import spark_schema_of_parquet
from dstl_core.spark.engine.schema import arrow_schema_from_spark, spark_schema_of
from dstl_core.spark.engine.table_frames import frame_of_splits, parallelism_of, split_numbers
from dstl_core.storage.location import Location

SPLIT_BYTES = 128 << 20
"""Bytes of column chunks per task, as for files that Spark reads."""

SUMMARY_FILES = {"_metadata", "_common_metadata"}
"""Summary files, in which some writers repeat the footers of other files. Spark reads no rows from
them (``ParquetUtils.isSummaryFile``).
"""

Part = tuple[str, tuple[int, ...] | None]
"""A file and the numbers of the row groups to read from it; None: all row groups."""
_PATTERN = re.compile(r"[\[\]{}*?\\]")


@dataclass(frozen=True)
class ParquetRows:
    """The rows of Parquet files.

    Args:
        files: URLs of the files.
        schema: The columns in Spark's types.
    """

    files: tuple[str, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, rows: DataFrame) -> ParquetRows:
        """The files of ``spark.read.parquet(..)``."""
        files = sorted(unquote(each) for each in rows.inputFiles())
        data = (each for each in files if posixpath.basename(each) not in SUMMARY_FILES)
        return cls(tuple(data), arrow_schema_from_spark(rows.schema))

    @classmethod
    def at(cls, locations: Sequence[Location]) -> ParquetRows:
        """Files and folders of any store, with the types of the first file.

        Raises:
            ConfigError: There is no file, or a folder has partition folders.
            FormatError: A file is not a Parquet file.
        """
        files = tuple(str(each) for location in locations for each in files_in(location))
        with open_parquet(files[0]) as first:
            return cls(files, arrow_schema_from_spark(spark_schema_of_parquet(first)))

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows as a lazy DataFrame. Every column is nullable, as in any DataFrame of files."""
        schema = spark_schema_of(self.schema).toNullable()
        if not self.files:
            return spark.createDataFrame([], schema)
        is_pattern = any(map(_PATTERN.search, self.files))  # Spark looks for files that match it
        if are_local(map(Location.parse, self.files)) and not is_pattern:
            local: Any = spark.read.schema(schema)
            frame: DataFrame = local.parquet(*self.files)
            return frame
        # Each task reads whole files: splitting by row groups would need their footers here.
        count = min(len(self.files), parallelism_of(spark, SPLIT_BYTES))
        splits = [[(file, None) for file in self.files[at::count]] for at in range(count)]
        return frame_of_splits(spark, count, ReadParquet(splits, self.schema, _as_they_are), schema)

    def splits(self, spark: SparkSession, columns: Sequence[str]) -> list[list[Part]]:
        """Divides the row groups into tasks of about equal size. It reads the footers.

        Raises:
            ConfigError: A column is not in the files, or may have times of the Julian calendar.
        """
        stored_groups: list[tuple[int, tuple[str, int]]] = []
        for name in self.files:
            with open_parquet(name) as file:
                self._check_others(name, file.schema_arrow.names)
                _check_columns(name, file.schema_arrow.names, columns)
                check_calendar(name, file, columns)
                sizes = [
                    file.metadata.row_group(at).total_byte_size
                    for at in range(file.metadata.num_row_groups)
                ]
            stored_groups += [(size, (name, at)) for at, size in enumerate(sizes)]
        total = sum(size for size, _ in stored_groups)
        cores = parallelism_of(spark, total)
        count = max(1, min(len(stored_groups), cores * -(-total // (SPLIT_BYTES * cores))))
        tasks: list[tuple[int, list[tuple[str, int]]]] = [(0, []) for _ in range(count)]
        for size, group in sorted(stored_groups, reverse=True):
            at = min(range(count), key=lambda task: tasks[task][0])
            tasks[at] = (tasks[at][0] + size, [*tasks[at][1], group])
        return [_by_file(sorted(groups)) for _, groups in tasks]

    def check_same_columns(self) -> None:
        """Looks at the footers of all files.

        Raises:
            ConfigError: A file has columns that the rows lack: Spark would drop them in silence.
        """
        for name in self.files:
            with open_parquet(name) as file:
                self._check_others(name, file.schema_arrow.names)

    def _check_others(self, name: str, stored: Sequence[str]) -> None:
        check_same_columns(self.files[0], self.schema.names, name, stored)


def read_parquet(spark: SparkSession, paths: Sequence[str]) -> tuple[DataFrame, ParquetRows]:
    """The rows of files and folders, as a DataFrame and as ``ParquetRows``.

    A local path is an argument of ``spark.read.parquet(..)``. In another store it is a file or a
    folder of files.
    """
    locations = [Location.parse(path) for path in paths]
    if are_local(locations):
        rows = spark.read.parquet(*paths)
        return rows, ParquetRows.of(rows)
    parquet_rows = ParquetRows.at(locations)
    return parquet_rows.frame(spark), parquet_rows


def are_local(locations: Iterable[Location]) -> bool:
    """Whether all files are local, so that Spark reads them."""
    return all(each.is_local for each in locations)


def _by_file(groups: Sequence[tuple[str, int]]) -> list[Part]:
    row_groups: dict[str, tuple[int, ...]] = {}
    for name, number in groups:
        row_groups[name] = (*row_groups.get(name, ()), number)
    return list(row_groups.items())


def _as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _check_columns(file: str, columns: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise ConfigError(
            f"Column {missing[0]!r} is not in the Parquet file {file}, which has: "
            f"{', '.join(columns)}; columns of partition folders come with "
            f"bootstrap_with(spark.read.parquet(..))."
        )


@dataclass(frozen=True)
class ReadParquet:
    """Runs in tasks: reads the splits with the given numbers and passes their rows to ``then``."""

    splits: Sequence[Sequence[Part]]
    schema: pa.Schema
    then: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in split_numbers(batches):
            yield from self.then(self._rows(self.splits[number]))

    def _rows(self, parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
        for name, numbers in parts:
            with open_parquet(name) as file:
                every = range(file.metadata.num_row_groups)
                # One row group at a time: prefetched ones stay in memory until the reader ends.
                for number in every if numbers is None else numbers:
                    read = batches_of(name, file, self.schema.names, [number], use_threads=False)
                    for batch in read:
                        yield batch.select(self.schema.names).cast(self.schema)
