"""What runs inside a Spark task: one Flink subtask at a time.

A task gets plain values (paths, ids, the user's function), reads the parent snapshot itself, and
reports handles. Files carry random names, so an attempt that was repeated leaves only unreferenced
files.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from dstl_core.changelog.storage import FsStateChangelogStorage
from dstl_core.errors import ConfigError
from dstl_core.functions import BroadcastFunction
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.snapshot_type import (
    CheckpointMetaData,
    CheckpointOptions,
    CheckpointType,
)
from dstl_core.operators.environment import OperatorSetup, TaskEnvironment, file_system_streams
from dstl_core.operators.subtask import OperatorSubtask
from dstl_core.operators.user_code import user_code
from dstl_core.savepoint.write.column_fit import values_of_column
from dstl_core.spark.task.column_subtask import ColumnSubtask
from dstl_core.spark.task.inputs import OWN_COLUMNS, Fingerprint
from dstl_core.spark.task.job_spec import EpochSpec, TaskSpec
from dstl_core.spark.task.operators import is_columnar, late_schema_of
from dstl_core.spark.task.output_files import OutputFiles
from dstl_core.spark.task.reports import SubtaskReport, encode_state
from dstl_core.spark.task.restore import Assigned
from dstl_core.spark.task.warm_backend import WarmStateBackend
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.written_files import DigestingFileIO, WrittenFile

INLINE_BYTES = 1024
"""Streams of at most so many bytes stand in ``_metadata``."""


class FixedClock:
    """Processing time stands still in an epoch: all tasks and attempts see the same."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class RowSubtask:
    """A subtask whose function takes row by row."""

    def __init__(self, task: TaskSpec, subtask: int, given: Assigned) -> None:
        operator, job = task.operator, task.job
        self._file_io = file_io = DigestingFileIO(job.layout.root.scheme)
        self._operator = operator
        self._function: Any = operator.function
        self._storage = (
            FsStateChangelogStorage(job.job_id, job.changelog_options, file_io)
            if job.changelog
            else None
        )
        self._backend = WarmStateBackend(task, subtask)
        self._keys: Iterator[Any] = iter(())
        """Those of the rows to come."""
        setup = OperatorSetup(
            operator.uid,
            operator.function_key_type,
            lambda _: next(self._keys),
            job.parallelism,
            job.max_parallelism,
        )
        environment = TaskEnvironment(
            self._backend,
            self._storage,
            given.resolver,
            file_system_streams(job.layout, file_io, inline_threshold=INLINE_BYTES),
            FixedClock(task.now_ms),
            job.changelog_options,
            value_logging=job.value_logging,
        )
        self._subtask = OperatorSubtask(setup, environment, subtask, operator.function, given.state)
        self._watermark = task.watermark
        self._subtask.advance_watermark(task.watermark)

    @property
    def warmth(self) -> str:
        return self._backend.warmth

    @property
    def written(self) -> list[WrittenFile]:
        """The state files that were written."""
        return list(self._file_io.written.values())

    @property
    def changes(self) -> int:
        changelog = self._subtask.changelog
        return 0 if changelog is None else changelog.changes

    @property
    def changed_keys(self) -> int:
        changelog = self._subtask.changelog
        return 0 if changelog is None else len(changelog.changed_scopes)

    @property
    def late_rows(self) -> int:
        return self._subtask.late_rows

    @property
    def upload_metrics(self) -> tuple[int, int]:
        """How long uploads had to wait, in milliseconds, and how many attempts failed."""
        if self._storage is None:
            return 0, 0
        metrics = self._storage.metrics
        return metrics.back_pressure_ms.count, metrics.upload_failures.count

    def take_late(self) -> list[Any]:
        return self._subtask.take_late()

    def begin(self, output: OutputFiles) -> None:
        """The clock has moved since the last epoch: its timers fire before the rows."""
        output.add(self._subtask.advance_processing_time())

    def apply_broadcast(self, raw: bytes) -> None:
        function = self._function
        if not isinstance(function, BroadcastFunction):
            raise ConfigError(
                f"The operator {self._operator.uid!r} has a broadcast input; its function has to "
                f"be a BroadcastFunction, got {type(function).__name__}."
            )
        with user_code(function, "process_broadcast_element"):
            for row in pa.ipc.open_stream(io.BytesIO(raw)).read_all().to_pylist():
                function.process_broadcast_element(row)

    def apply(self, batch: pa.RecordBatch, output: OutputFiles) -> None:
        process = self._subtask.process
        if self._operator.key_type is not None:
            # As state has them: for dates, decimals and structs that is not what rows have.
            column = batch.column(self._operator.key_by)
            if column.null_count:
                raise ConfigError("A key is null; keyed state needs a key.")
            self._keys = iter(values_of_column(self._operator.key_type, column, "The key"))
        times = _times(batch, self._operator.event_time)
        rows = batch.to_pylist()
        if times is None:
            for row in rows:
                output.add(process(row))
            return
        for row, timestamp in zip(rows, times, strict=True):
            output.add(process(row, timestamp))

    def finish(self, watermark: int, output: OutputFiles) -> None:
        """Time passes: timers fire."""
        output.add(self._subtask.advance_watermark(max(watermark, self._watermark)))
        output.add(self._subtask.advance_processing_time())

    def snapshot(
        self, checkpoint: CheckpointMetaData, options: CheckpointOptions
    ) -> OperatorSubtaskState:
        return self._subtask.snapshot(checkpoint, options)

    def close(self, state: OperatorSubtaskState | None) -> None:
        """Ends the subtask after its state was kept, which a local copy may be named after."""
        if state is not None and self._subtask.keyed is not None:
            self._backend.keep(self._subtask.keyed, state)
        self._subtask.close()
        self._close_storage()

    def abandon(self) -> None:
        """Nothing of this attempt will be committed: its own files go at once."""
        if self._subtask.changelog is not None:
            self._subtask.changelog.abandon()
        if self._subtask.keyed is not None:
            self._subtask.keyed.close()
        self._close_storage()

    def _close_storage(self) -> None:
        if self._storage is not None:
            self._storage.close()


def open_subtask(task: TaskSpec, subtask: int) -> RowSubtask | ColumnSubtask:
    """The subtask, restored."""
    given = Assigned.of(task, subtask)
    if is_columnar(task.operator):
        return ColumnSubtask(task, subtask, given)
    return RowSubtask(task, subtask, given)


def _times(batch: pa.RecordBatch, column: str | None) -> list[int | None] | None:
    """The time of each row in milliseconds."""
    if column is None:
        return None
    values = batch.column(column)
    if pa.types.is_timestamp(values.type):
        # Rounding goes by local time, which in a session's zone may come twice.
        zone = None if values.type.tz is None else "UTC"
        exact = values.cast(pa.timestamp(values.type.unit, zone))
        values = pc.floor_temporal(exact, unit="millisecond").cast(pa.timestamp("ms", zone))
    times: list[int | None] = values.cast(pa.int64()).to_pylist()
    return times


def run_epoch_subtask(
    task: TaskSpec, epoch: EpochSpec, subtask: int, batches: Iterable[pa.RecordBatch]
) -> SubtaskReport:
    """Restores, applies the rows in order, fires timers, logs, persists."""
    file_io = open_file_io(task.job.layout.root)
    folder = task.job.layout.output(epoch.checkpoint_id)
    output = OutputFiles(file_io, folder, task.operator.output_schema, subtask)
    late = OutputFiles(file_io, folder, late_schema_of(task.operator), subtask)
    started = time.monotonic()
    running = open_subtask(task, subtask)
    restored = time.monotonic()
    try:
        running.begin(output)
        if epoch.broadcast is not None:
            running.apply_broadcast(epoch.broadcast)
        fingerprint = _apply(running, batches, output, late)
        running.finish(epoch.watermark, output)
        output.flush()
        late.flush()
        applied = time.monotonic()
        state = running.snapshot(
            CheckpointMetaData(epoch.checkpoint_id, task.now_ms),
            CheckpointOptions.for_checkpoint_with_default_location(),
        )
        persisted = time.monotonic()
        changes, changed_keys, late_rows = running.changes, running.changed_keys, running.late_rows
        back_pressure_ms, failed_uploads = running.upload_metrics
    except BaseException:
        running.abandon()
        raise
    running.close(state)
    context = TaskContext.get()
    return SubtaskReport(
        task.operator.uid,
        subtask,
        encode_state(state),
        rows=fingerprint.rows,
        hash_sum=str(fingerprint.hash_sum),
        changes=changes,
        changed_keys=changed_keys,
        output_rows=output.rows,
        output_files=output.names,
        warmth=running.warmth,
        restore_ms=int(1000 * (restored - started)),
        apply_ms=int(1000 * (applied - restored)),
        persist_ms=int(1000 * (persisted - applied)),
        attempt=0 if context is None else context.attemptNumber(),
        late_rows=late_rows,
        back_pressure_ms=back_pressure_ms,
        failed_uploads=failed_uploads,
        late_files=late.names,
        written=running.written,
    )


def _apply(
    running: RowSubtask | ColumnSubtask,
    batches: Iterable[pa.RecordBatch],
    output: OutputFiles,
    late: OutputFiles,
) -> Fingerprint:
    fingerprint = Fingerprint(0, 0)
    for batch in batches:
        fingerprint += Fingerprint.of_batch(batch)
        own = [each for each in OWN_COLUMNS if each in batch.schema.names]
        running.apply(batch.drop_columns(own), output)
        late.add_parts(running.take_late())
    return fingerprint


def snapshot_subtask(
    task: TaskSpec, checkpoint_id: int, options: CheckpointOptions, subtask: int
) -> SubtaskReport:
    """Writes the full state of a subtask: a new base, owned by the pipeline, or a savepoint."""
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
