"""Builds keyed state from columns in the tasks of Spark, without a shuffle of rows.

In the first stage, each task encodes its rows into runs of records per state and key group, in one
file. In the second stage, a task per subtask merges the runs of its key groups and finds keys that
occur twice. Only an index passes between the stages, no rows. A task that runs twice leaves an
unreferenced file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import StorageError
from dstl_core.job.rows.joined_batches import together
from dstl_core.job.task.reports import REPORT_SCHEMA, SubtaskReport
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.key_group import compute_key_group_range_for_operator_index
from dstl_core.savepoint.bootstrap.bootstrap_rows import NewOperator
from dstl_core.savepoint.bootstrap.column_runs import ColumnRuns, checks_duplicates, stored_state
from dstl_core.savepoint.write.folder import KeyedForm, StateFiles
from dstl_core.spark.engine.parquet_rows import ParquetRows, ReadParquet
from dstl_core.spark.engine.schema import quoted, spark_schema_of
from dstl_core.spark.engine.session import described
from dstl_core.spark.engine.table_frames import frame_of_splits, map_in_arrow, split_numbers
from dstl_core.spark.engine.workers import Settled, report_of, uncounted_bytes
from dstl_core.state.columns.keyed_sections import KeyedSections, StateRuns
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

FLUSH_BYTES = 64 << 20
"""Encoded bytes that a task holds before it writes them to its file."""
RUNS_SUFFIX = ".runs"
_INDEX_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("state", pa.int32()),
        ("key_group", pa.int32()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
    ]
)


def write_columns(
    frame: DataFrame, parquet: ParquetRows | None, columns: ColumnRuns, new: NewOperator
) -> list[OperatorSubtaskState]:
    """Writes keyed state from the columns of a DataFrame.

    Args:
        frame: The rows.
        parquet: The same rows as files, if tasks read them without Spark.
        columns: The columns.
        new: The operator.
    """
    spark, files = frame.sparkSession, new.files
    encode = _EncodeRuns(columns, str(files.folder), new.max_parallelism)
    index: list[Any] = []
    try:
        rows = frame.select(*map(quoted, columns.used_columns))
        what = f"dstl: operator {new.identifier}: encode its rows (1 of 2)"
        with described(spark, what), uncounted_bytes(rows):
            index = _encoded(rows, parquet, encode).collect()
        with described(spark, f"dstl: operator {new.identifier}: write its state (2 of 2)"):
            merge = _MergeRuns(
                str(files.folder),
                columns.header,
                new.parallelism,
                new.max_parallelism,
                _index_of(index),
                files.form,
            )
            result = spark_schema_of(REPORT_SCHEMA)
            reports = frame_of_splits(spark, new.parallelism, merge, result).collect()
    finally:
        for name in {row.file for row in index}:
            with suppress(StorageError):  # gc finds files that stay
                files.file_io.delete(files.folder.child(name))
    reports_of_subtasks = [report_of(row) for row in reports]
    files.learn(file for report in reports_of_subtasks for file in report.written)
    return [each.subtask_state for each in reports_of_subtasks]


def _encoded(rows: DataFrame, parquet: ParquetRows | None, encode: _EncodeRuns) -> DataFrame:
    """Runs the first stage; returns the index of the files that its tasks write."""
    result = spark_schema_of(_INDEX_SCHEMA)
    if parquet is None:
        return map_in_arrow(rows, Settled(encode), result)
    spark, names = rows.sparkSession, rows.columns
    splits = parquet.splits(spark, names)
    schema = pa.schema([parquet.schema.field(name) for name in names])
    return frame_of_splits(spark, len(splits), ReadParquet(splits, schema, encode), result)


def _index_of(rows: Sequence[Any]) -> dict[str, Any]:
    """The index of all task files, column-wise, sorted by key group."""
    order = sorted(range(len(rows)), key=lambda at: rows[at].key_group)
    return {
        "file": [rows[at].file for at in order],
        **{
            name: np.array([rows[at][name] for at in order], np.int64)
            for name in ("state", "key_group", "offset", "length")
        },
    }


@dataclass(frozen=True)
class _EncodeRuns:
    """Runs in tasks: encodes rows into runs in a file of the task."""

    columns: ColumnRuns
    folder: str
    max_parallelism: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoder = self.columns.encoder(self.max_parallelism)
        held: list[StateRuns] = []
        size = 0
        for batch in together(batches):
            for runs in self.columns.of(encoder, batch):
                held.append(runs)
                size += runs.data.size
            if size >= FLUSH_BYTES:
                yield from self._flush(held)
                held, size = [], 0
        if held:
            yield from self._flush(held)

    def _flush(self, held: Sequence[StateRuns]) -> Iterator[pa.RecordBatch]:
        """Writes the runs by key group and state, so that a subtask reads them in one piece."""
        pieces = _in_order(held)
        if not pieces:
            return
        name = f"{uuid4()}{RUNS_SUFFIX}"
        folder = Location.parse(self.folder)
        # No fsync: a power loss also ends the job that would read the file.
        file_io = open_file_io(folder, fsync=False)
        file_io.write_new(folder.child(name), [part for _, _, part in pieces])
        # Adjacent runs are one piece: a key group may have several runs of a state.
        places = np.array([(group, state) for group, state, _ in pieces], np.int64)
        firsts = np.flatnonzero(np.any(np.diff(places, axis=0, prepend=-1) != 0, axis=1))
        lengths = np.add.reduceat([len(part) for _, _, part in pieces], firsts)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([name] * len(firsts), pa.string()),
                pa.array(places[firsts, 1], pa.int32()),
                pa.array(places[firsts, 0], pa.int32()),
                pa.array(np.cumsum(lengths) - lengths, pa.int64()),
                pa.array(lengths, pa.int64()),
            ],
            schema=_INDEX_SCHEMA,
        )


def _in_order(held: Sequence[StateRuns]) -> list[tuple[int, int, memoryview]]:
    """``(key group, state id, bytes)`` of all runs."""
    data = [memoryview(runs.data) for runs in held]
    places_of_runs = []
    for at, runs in enumerate(held):
        filled = np.flatnonzero(np.diff(runs.bounds))
        groups = filled + runs.key_groups.start_key_group
        places = (groups, filled * 0 + runs.state_id, filled * 0 + at)
        places_of_runs.append(np.stack([*places, runs.bounds[filled], runs.bounds[filled + 1]]))
    runs_at = np.concatenate(places_of_runs, axis=1)
    order = np.lexsort((runs_at[1], runs_at[0]))
    return [
        (group, state, data[at][start:end])
        for group, state, at, start, end in runs_at[:, order].T.tolist()
    ]


@dataclass(frozen=True)
class _MergeRuns:
    """Runs in tasks: merges the runs of a subtask's key groups into its keyed state."""

    folder: str
    header: KeyedBackendHeader
    parallelism: int
    max_parallelism: int
    index: Mapping[str, Any]
    form: KeyedForm

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = StateFiles(self.folder, form=self.form)
        for subtask in split_numbers(batches):
            key_groups = compute_key_group_range_for_operator_index(
                self.max_parallelism, self.parallelism, subtask
            )
            # If no row has any state, one handle still describes the states.
            is_only = subtask == 0 and not len(self.index["key_group"])
            checks = checks_duplicates(self.header, self.form)
            with KeyedSections(
                self.header, key_groups, self.max_parallelism, check_duplicates=checks
            ) as sections:
                first, last = key_groups.start_key_group, key_groups.end_key_group
                for piece in self._pieces(files, first, last):
                    sections.add_run(*piece)
                handle = stored_state(files, sections, key_groups, keep_header=is_only)
            yield SubtaskReport.of_keyed(subtask, handle, files.written.values()).to_batch()

    def _pieces(
        self, files: StateFiles, start: int, end: int
    ) -> Iterator[tuple[int, int, memoryview]]:
        """``(state id, key group, bytes)`` of a range of key groups: one read per file."""
        groups = self.index["key_group"]
        first, last = np.searchsorted(groups, [start, end + 1])
        by_file: dict[str, list[int]] = {}
        for at in range(int(first), int(last)):
            by_file.setdefault(self.index["file"][at], []).append(at)
        offsets, lengths, states = (self.index[name] for name in ("offset", "length", "state"))
        for name, places in by_file.items():
            low = min(int(offsets[at]) for at in places)
            high = max(int(offsets[at] + lengths[at]) for at in places)
            data = memoryview(files.file_io.read_bytes(files.folder.child(name), low, high))
            for at in places:
                begin = int(offsets[at]) - low
                piece = data[begin : begin + int(lengths[at])]
                yield int(states[at]), int(groups[at]), piece
