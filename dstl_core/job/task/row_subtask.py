"""A subtask whose function processes single rows."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from dstl_core.errors import ConfigError
from dstl_core.functions import BroadcastFunction, Row
from dstl_core.job.rows.keys import fitted_keys
from dstl_core.job.rows.row_buffer import RowBuffer
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.job.task.event_time import millis_of
from dstl_core.job.task.output_files import OutputFiles
from dstl_core.job.task.python_rows import rows_of
from dstl_core.job.task.reports import SubtaskMetrics
from dstl_core.job.task.restore import Assigned
from dstl_core.job.task.subtask_files import SubtaskFiles
from dstl_core.job.task.warm_backend import WarmStateBackend
from dstl_core.job.task.windowed_rows import WindowedRows
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions
from dstl_core.operators.aggregated_windows import AggregatedWindows
from dstl_core.operators.subtask import OperatorSubtask
from dstl_core.operators.user_code import user_code
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.held.key_batch import places_of_keys
from dstl_core.storage.written_files import WrittenFile

ROWS_IN_PYTHON = 10_000
"""Number of rows that are converted to Python objects at a time."""


class RowSubtask:
    """A subtask whose function processes single rows.

    Args:
        task: The operator, and the folders of its files.
        subtask: Index of this subtask, from 0.
        assigned: The state that it restores.
        is_open: Whether the function was opened before, or is being opened.
    """

    def __init__(
        self, task: TaskSpec, subtask: int, assigned: Assigned, *, is_open: bool = False
    ) -> None:
        operator = task.operator
        self._operator = operator
        self._function: Any = operator.function
        self._files = SubtaskFiles(task)
        self._backend = WarmStateBackend(task, subtask)
        self._waiting = RowBuffer()
        self._watermark = task.watermark
        try:
            self._subtask = OperatorSubtask(
                self._files.setup(operator.key_by or ""),
                self._files.environment(self._backend, assigned.resolver),
                subtask,
                operator.function,
                assigned.state,
                is_open=is_open,
            )
            self._subtask.advance_watermark(task.watermark)
        except BaseException:
            self._backend.abandon()
            raise

    @property
    def keyed(self) -> KeyedStateBackend | None:
        return self._subtask.keyed

    @property
    def warmth(self) -> str:
        return self._backend.warmth

    @property
    def written(self) -> list[WrittenFile]:
        return self._files.written

    @property
    def metrics(self) -> SubtaskMetrics:
        changelog = self._subtask.changelog
        return SubtaskMetrics(
            changes=0 if changelog is None else changelog.changes,
            changed_keys=0 if changelog is None else len(changelog.changed_scopes),
            keys_gained=0,
            late_rows=self._subtask.late_rows,
            back_pressure_ms=self._files.back_pressure_ms,
            failed_uploads=self._files.failed_uploads,
        )

    def take_late(self) -> list[Any]:
        return self._subtask.take_late()

    def begin(self, output: OutputFiles) -> None:
        """Fires processing-time timers that became due since the last epoch, before the rows."""
        self._emit(self._subtask.advance_processing_time(), output)

    def apply_broadcast(self, raw: bytes) -> None:
        function = self._function
        if not isinstance(function, BroadcastFunction):
            raise ConfigError(
                f"The operator {self._operator.uid!r} has a broadcast input; its function has to "
                f"be a BroadcastFunction, got {type(function).__name__}."
            )
        batches = pa.ipc.open_stream(io.BytesIO(raw)).read_all().to_batches()
        rows = [row for batch in batches for row in rows_of(batch)]
        with user_code(function, "process_broadcast_element"):
            for row in rows:
                function.process_broadcast_element(row)

    def apply(self, batch: pa.RecordBatch, output: OutputFiles) -> None:
        if self._waiting.add(batch):
            self._process(output)

    def _process(self, output: OutputFiles) -> None:
        rows = self._waiting.take()
        if rows is not None:
            self._process_rows(rows, self._keys(rows), output)

    def _keys(self, rows: pa.RecordBatch) -> pa.Array | None:
        """The keys in the form of their state; None for an operator without a key."""
        column, key_type = self._operator.key_by, self._operator.key_type
        if column is None or key_type is None:
            return None
        return fitted_keys(rows.column(column), column, key_type)

    def _process_rows(
        self, rows: pa.RecordBatch, keys: pa.Array | None, output: OutputFiles
    ) -> None:
        parts = parts_of(rows, self._operator.event_time)
        for result in self._subtask.process_batch(keys, parts):
            output.add(result)

    def finish(self, watermark: int, output: OutputFiles) -> None:
        """Applies the waiting rows, advances event time and fires timers."""
        self._process(output)
        self._emit(self._subtask.advance_watermark(max(watermark, self._watermark)), output)
        self._emit(self._subtask.advance_processing_time(), output)

    def _emit(self, results: list[Any], output: OutputFiles) -> None:
        output.add(results)

    def snapshot(
        self, checkpoint: CheckpointMetaData, options: CheckpointOptions
    ) -> OperatorSubtaskState:
        written = self._subtask.start_snapshot(checkpoint, options)
        self._files.send()
        return written()

    def close(self, state: OperatorSubtaskState | None) -> None:
        if state is not None and self._subtask.keyed is not None:
            self._backend.keep(self._subtask.keyed, state)
        self._subtask.close()
        self._files.close()

    def abandon(self) -> None:
        self._subtask.abandon()
        self._files.close()
        self._backend.abandon()


class AggregatedWindowSubtask(RowSubtask):
    """A subtask of windows of declared aggregates. Its state is that of rows. The rows of an epoch
    become a row per key and window, and these are merged by columns.
    """

    def __init__(self, task: TaskSpec, subtask: int, assigned: Assigned) -> None:
        super().__init__(task, subtask, assigned)
        operator, job = task.operator, task.job
        assert isinstance(operator, AggregateOperator)
        key_groups = job.key_groups(subtask)
        places = places_of_keys(operator.function_key_type, key_groups, job.max_parallelism)
        self._rows = WindowedRows(operator, places, task.watermark)

    def _process_rows(
        self, rows: pa.RecordBatch, keys: pa.Array | None, output: OutputFiles
    ) -> None:
        self._rows.add(keys, rows)

    def finish(self, watermark: int, output: OutputFiles) -> None:
        self._process(output)
        rows = self._rows.take()
        if rows is not None:
            until = max(watermark, self._watermark)
            keys = rows.column(self._operator.key_by)
            fired = self._subtask.process_columns(keys, rows, until)
            self._emit([] if fired is None else [fired], output)
        super().finish(watermark, output)

    def _emit(self, batches: list[Any], output: OutputFiles) -> None:
        function = self._operator.function
        assert isinstance(function, AggregatedWindows)
        for batch in batches:
            # Without lateness a window fires once, so that its row is always a new one.
            inserted = None if function.allowed_lateness else batch.num_rows
            output.add_columns(batch, inserted=inserted)


def parts_of(
    rows: pa.RecordBatch, event_time: str | None
) -> Iterator[tuple[Sequence[Row], Iterable[int | None]]]:
    """Rows as Python objects with their times, ``ROWS_IN_PYTHON`` at a time."""
    for start in range(0, rows.num_rows, ROWS_IN_PYTHON):
        part = rows.slice(start, ROWS_IN_PYTHON)
        yield rows_of(part), times_of(part, event_time)


def times_of(batch: pa.RecordBatch, column: str | None) -> Iterable[int | None]:
    """The time of each row in milliseconds; without a column an endless row of None."""
    if column is None:
        return repeat(None)
    times: list[int | None] = millis_of(batch.column(column)).to_pylist()
    return times
