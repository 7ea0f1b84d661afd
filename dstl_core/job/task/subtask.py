"""Runs subtasks in a Spark task, one at a time.

A task gets plain values (paths, ids, the user's function), reads the parent snapshot, and reports
handles. Files have random names, so a repeated attempt leaves only unreferenced files.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Protocol

import pyarrow as pa

from dstl_core.job.spec.fingerprint import OWN_COLUMNS, Fingerprint
from dstl_core.job.spec.job_spec import EpochSpec, TaskSpec
from dstl_core.job.spec.operators import is_columnar, late_name, late_schema_of
from dstl_core.job.task.column_subtask import ColumnSubtask
from dstl_core.job.task.event_time import later, latest_time_in
from dstl_core.job.task.output_files import OutputFiles
from dstl_core.job.task.reports import SubtaskMetrics, SubtaskReport, encode_state
from dstl_core.job.task.restore import Assigned
from dstl_core.job.task.row_subtask import AggregatedWindowSubtask, RowSubtask
from dstl_core.job.task.rows_in_columns import may_be_in_columns, open_rows
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.snapshot_type import (
    CheckpointMetaData,
    CheckpointOptions,
    CheckpointType,
)
from dstl_core.operators.aggregated_windows import AggregatedWindows
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.written_files import WrittenFile


class Subtask(Protocol):
    """One running subtask with restored state; its function processes rows or columns. One thread.

    In an epoch: ``begin``, ``apply_broadcast``, ``apply`` for each batch, ``finish``, ``snapshot``,
    ``close``. For a snapshot alone: ``snapshot``, ``close``. After an error: ``abandon``.
    """

    @property
    def warmth(self) -> str:
        """How it got its state: ``warm``, ``caught up`` or ``cold``."""
        ...

    @property
    def written(self) -> list[WrittenFile]:
        """The state files that it has written."""
        ...

    @property
    def metrics(self) -> SubtaskMetrics:
        """Its present counts."""
        ...

    def begin(self, output: OutputFiles) -> None:
        """Fires processing-time timers that became due since the last epoch, before the rows."""
        ...

    def apply_broadcast(self, raw: bytes) -> None:
        """Applies the broadcast rows, an Arrow stream.

        Raises:
            ConfigError: The function has no broadcast input.
        """
        ...

    def apply(self, batch: pa.RecordBatch, output: OutputFiles) -> None:
        """Applies rows in order, now or later, at the latest in ``finish``."""
        ...

    def take_late(self) -> list[Any]:
        """Returns the late rows since the last call, if windows have them as a side output: a list
        of rows, or of record batches.
        """
        ...

    def finish(self, watermark: int, output: OutputFiles) -> None:
        """Called after all rows: applies those that wait, advances event time and fires timers."""
        ...

    def snapshot(
        self, checkpoint: CheckpointMetaData, options: CheckpointOptions
    ) -> OperatorSubtaskState:
        """Makes the subtask's part of a snapshot durable."""
        ...

    def close(self, state: OperatorSubtaskState | None) -> None:
        """Ends the subtask; keeps a local copy of its state if ``state`` will be committed."""
        ...

    def abandon(self) -> None:
        """Ends a failed attempt: deletes its own files at once, because they are not committed."""
        ...


def open_subtask(task: TaskSpec, subtask: int) -> Subtask:
    """Opens a subtask and restores its state."""
    assigned = Assigned.of(task, subtask)
    if is_columnar(task.operator):
        return ColumnSubtask(task, subtask, assigned)
    if isinstance(task.operator.function, AggregatedWindows):
        return AggregatedWindowSubtask(task, subtask, assigned)
    if may_be_in_columns(task, assigned):
        return open_rows(task, subtask, assigned)
    return RowSubtask(task, subtask, assigned)


def run_epoch_subtask(
    task: TaskSpec, epoch: EpochSpec, subtask: int, batches: Iterable[pa.RecordBatch]
) -> SubtaskReport:
    """Runs one epoch of a subtask: restores, applies rows in order, fires timers, persists."""
    file_io = open_file_io(task.job.layout.root)
    folder = task.job.layout.output(epoch.checkpoint_id)
    uid, time_column = task.operator.uid, task.operator.event_time
    output = OutputFiles(file_io, folder, task.operator.output_schema, subtask, uid)
    late = OutputFiles(file_io, folder, late_schema_of(task.operator), subtask, late_name(uid))
    started = time.monotonic()
    running = open_subtask(task, subtask)
    restored = time.monotonic()
    try:
        running.begin(output)
        if epoch.broadcast is not None:
            running.apply_broadcast(epoch.broadcast)
        fingerprint, latest_time = _apply(running, batches, output, late, time_column)
        running.finish(epoch.watermark, output)
        _give_late(running, late)
        output.flush()
        late.flush()
        applied = time.monotonic()
        state = running.snapshot(
            CheckpointMetaData(epoch.checkpoint_id, task.now_ms),
            CheckpointOptions.for_checkpoint_with_default_location(),
        )
        persisted = time.monotonic()
        metrics = running.metrics
    except BaseException:
        running.abandon()
        raise
    running.close(state)
    return SubtaskReport(
        task.operator.uid,
        subtask,
        encode_state(state),
        rows=fingerprint.rows,
        hash_sum=str(fingerprint.hash_sum),
        output_rows=output.rows,
        output_files=tuple(output.names),
        warmth=running.warmth,
        restore_ms=int(1000 * (restored - started)),
        apply_ms=int(1000 * (applied - restored)),
        persist_ms=int(1000 * (persisted - applied)),
        late_files=tuple(late.names),
        latest_time=latest_time,
        written=running.written,
        **asdict(metrics),
    )


def _apply(
    running: Subtask,
    batches: Iterable[pa.RecordBatch],
    output: OutputFiles,
    late: OutputFiles,
    time_column: str | None,
) -> tuple[Fingerprint, int | None]:
    """Applies rows; returns their fingerprint and their latest event time."""
    fingerprint, latest_time = Fingerprint(0, 0), None
    for batch in batches:
        fingerprint += Fingerprint.of_batch(batch)
        latest_time = later(latest_time, latest_time_in(batch, time_column))
        bookkeeping = [each for each in OWN_COLUMNS if each in batch.schema.names]
        running.apply(batch.drop_columns(bookkeeping), output)
        _give_late(running, late)
    return fingerprint, latest_time


def _give_late(running: Subtask, late: OutputFiles) -> None:
    """Adds the late rows since the last call to their output."""
    parts = running.take_late()
    if any(isinstance(each, pa.RecordBatch) for each in parts):
        for part in parts:
            late.add_columns(part)
    else:
        late.add_parts(parts)


def snapshot_subtask(
    task: TaskSpec, checkpoint_id: int, options: CheckpointOptions, subtask: int
) -> SubtaskReport:
    """Writes the full state of a subtask, as a new base of the pipeline or for a savepoint."""
    running = open_subtask(task, subtask)
    try:
        state = running.snapshot(CheckpointMetaData(checkpoint_id, task.now_ms), options)
    except BaseException:
        running.abandon()
        raise
    running.close(None if options.checkpoint_type.is_savepoint else state)
    return SubtaskReport(
        task.operator.uid,
        subtask,
        encode_state(state),
        warmth=running.warmth,
        written=running.written,
    )


MATERIALIZE = CheckpointOptions(CheckpointType.FULL_CHECKPOINT)
