"""The engine that runs jobs in one process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from copy import deepcopy
from dataclasses import dataclass, field
from threading import Event
from typing import Any, TypeVar

import pyarrow as pa

from dstl_core.codec.columnar.types.spark_names import number_type, spark_name
from dstl_core.errors import CheckpointError, ConfigError
from dstl_core.flink_text import parse_memory_size
from dstl_core.job.coordination.engine import RunTask
from dstl_core.job.spec.fingerprint import FINGERPRINT_VERSION, Fingerprint
from dstl_core.job.spec.input_checks import check_input, check_names
from dstl_core.job.spec.job_spec import EpochSpec, TaskSpec
from dstl_core.job.spec.operators import Operator
from dstl_core.job.spec.output_types import stored_arrow_schema
from dstl_core.job.spec.read_columns import ALL_COLUMNS, ReadColumns
from dstl_core.job.spec.row_hashes import RowHash
from dstl_core.job.task.event_time import later, latest_time_in
from dstl_core.job.task.reports import SubtaskReport
from dstl_core.job.task.subtask import run_epoch_subtask
from dstl_core.local.placing import check_sorts, in_order, placed_rows
from dstl_core.local.rows import ArrowRows, FileRows, rows_of
from dstl_core.local.subtask_memory import ROWS_PART, Room, room_of, with_bounded_copies

_ROWS_BYTES = 1 << 30
"""Bytes of a batch that wait in memory, if the memory has no limit."""
_LOG = logging.getLogger(__name__)
Task = TypeVar("Task")


@dataclass(frozen=True)
class LocalEngine:
    """Runs jobs in threads of this process, without Spark and without Java.

    Rows are anything with the Arrow stream interface (pyarrow, pandas, polars, DuckDB), record
    batches, or paths of Parquet files. Output has that interface, too. State and commit log are
    those of any engine: a pipeline may change its engine at any epoch.

    Args:
        threads: Subtasks that run at a time; by default one for each core.
        memory: What rows and states may take in memory, as Flink writes a size; libraries take
            some hundred megabytes more. Rows beyond an eighth of it wait in temporary files. Only
            as many subtasks run at a time as fit, and one that does not fit is an error. None:
            rows take up to 1 gb, and states what they need.
        temp_folder: The folder of temporary files; None: the system's.

    Raises:
        ConfigError: An argument is wrong.
    """

    threads: int | None = None
    memory: str | None = None
    temp_folder: str | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and (type(self.threads) is not int or self.threads < 1):
            raise ConfigError(
                f"The threads of a local engine are wrong: expected a whole number of at least 1, "
                f"got {self.threads!r}."
            )
        if self.temp_folder is not None and not os.path.isdir(self.temp_folder):
            raise ConfigError(
                f"The temp_folder of a local engine is wrong: expected a folder that exists, got "
                f"{self.temp_folder!r}."
            )
        if self.memory is not None:
            parse_memory_size(self.memory)

    @property
    def memory_bytes(self) -> int | None:
        """Bytes that rows and states may take in memory; None: as many as they need."""
        return None if self.memory is None else parse_memory_size(self.memory)

    @property
    def thread_count(self) -> int:
        """Subtasks that run at a time."""
        return self.threads or os.cpu_count() or 1

    @property
    def rows_bytes(self) -> int:
        """Bytes of a batch that wait in memory."""
        size = self.memory_bytes
        return _ROWS_BYTES if size is None else size // ROWS_PART

    def runner(self, name: str) -> LocalRunner:
        """Runs the tasks of the pipeline of this name."""
        return LocalRunner(self, name)

    def batch_of(self, rows: Any, what: str, reads: ReadColumns = ALL_COLUMNS) -> ArrowRows:
        batch = rows_of(rows, what, reads, self.rows_bytes, self.temp_folder)
        check_names(batch.schema.names, what)
        return batch

    def columns_of(self, rows: ArrowRows) -> dict[str, str]:
        return {field.name: spark_name(field.type) for field in rows.schema}

    def select(self, rows: ArrowRows, names: Sequence[str]) -> ArrowRows:
        return rows.select(names)

    def in_types(self, rows: ArrowRows, types: Mapping[str, str]) -> ArrowRows | None:
        return rows.in_types({name: number_type(text) for name, text in types.items()})

    def check_input(
        self, rows: ArrowRows, operator: Operator, order_by: Sequence[str] | None
    ) -> None:
        check_input(rows.schema, operator, order_by)
        check_sorts(rows.schema, order_by or ())

    def fingerprint(self, rows: ArrowRows, version: int = FINGERPRINT_VERSION) -> Fingerprint:
        if version != FINGERPRINT_VERSION:
            raise ConfigError(
                f"An older release of dstl committed this input: only Spark computes its "
                f"fingerprint, of version {version}; run the input on Spark."
            )
        row_hash = RowHash.of_schema(rows.schema)
        hashes = (Fingerprint.of_column(row_hash.of(batch)) for batch in rows.batches())
        return sum(hashes, Fingerprint(0, 0))

    def latest_time(self, rows: ArrowRows, column: str) -> int | None:
        latest: int | None = None
        for batch in rows.batches():
            latest = later(latest, latest_time_in(batch, column))
        return latest

    def stream_of(self, rows: Any) -> str | None:
        """None: no stream of Arrow has micro-batches with ids."""
        return None

    def to_arrow(self, rows: ArrowRows) -> pa.Table:
        return rows.to_arrow()

    def read(self, files: Sequence[str], schema: pa.Schema) -> ArrowRows:
        return FileRows(files, stored_arrow_schema(schema))


@dataclass
class LocalRunner:
    """Runs the tasks of one pipeline in threads; ``cancel`` may be called from any thread.

    Args:
        engine: The engine.
        name: Name of the pipeline.
    """

    engine: LocalEngine
    name: str
    _running: set[Event] = field(default_factory=set)
    """An event for each call that runs; it is set to end the call."""

    def beside(self) -> LocalRunner:
        """A copy whose tasks continue when this object is cancelled."""
        return LocalRunner(self.engine, self.name)

    def cancel(self) -> None:
        """Ends the running tasks before their next batch of rows; their callers get an error.

        What has been written by then is in no commit.
        """
        for stopped in tuple(self._running):
            stopped.set()

    def per_subtask(
        self, run: RunTask, task: TaskSpec, subtasks: Sequence[int], description: str
    ) -> list[SubtaskReport]:
        task, room = self._bounded(task, dict.fromkeys(subtasks, 0))

        def call(subtask: int, stopped: Event) -> SubtaskReport:
            return run(copy_of(task), subtask)

        return self._all(call, room, description)

    def apply(
        self,
        rows: ArrowRows,
        operator: Operator,
        order_by: Sequence[str],
        task: TaskSpec,
        epoch: EpochSpec,
        description: str,
    ) -> list[SubtaskReport]:
        engine = self.engine
        placed = placed_rows(
            rows, operator, order_by, task.job, engine.rows_bytes, engine.temp_folder
        )
        task, room = self._bounded(
            task, {subtask: placed[subtask].bytes for subtask in sorted(placed)}
        )

        def call(subtask: int, stopped: Event) -> SubtaskReport:
            batches = in_order(placed.pop(subtask), operator, order_by)
            return run_epoch_subtask(copy_of(task), epoch, subtask, _until(stopped, batches))

        return self._all(call, room, description)

    def _bounded(self, task: TaskSpec, rows: Mapping[int, int]) -> tuple[TaskSpec, Room]:
        """A task within the memory of the engine, and the memory that its subtasks share.

        Args:
            task: The task.
            rows: Subtasks, with the bytes of their rows.

        Raises:
            ConfigError: A subtask does not fit.
        """
        size = self.engine.memory_bytes
        if size is None:
            return task, Room(0, dict.fromkeys(rows, 0))
        return with_bounded_copies(task, size), room_of(task, rows, size)

    def _all(
        self,
        call: Callable[[int, Event], SubtaskReport],
        room: Room,
        description: str,
    ) -> list[SubtaskReport]:
        """The reports of subtasks in threads. If one fails, the others end; its error is raised.

        Args:
            call: Runs a subtask.
            room: The subtasks, and the memory that they share.
            description: A text for people.
        """
        subtasks = [*room.subtasks]
        if not subtasks:
            return []
        _LOG.info("job %s: %s", self.name, description)
        stopped = Event()

        def run(subtask: int) -> SubtaskReport:
            with room.taken_by(subtask):
                _check(stopped)
                report = call(subtask, stopped)
            _check(stopped)
            return report

        threads = min(self.engine.thread_count, len(subtasks))
        self._running.add(stopped)
        try:
            with ThreadPoolExecutor(threads, "dstl-task") as pool:
                futures = [pool.submit(run, subtask) for subtask in subtasks]
                try:
                    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                finally:  # all are done, or one failed, or the caller was interrupted
                    stopped.set()
            for future in done:
                future.result()
            return [future.result() for future in futures]
        finally:
            self._running.discard(stopped)


def copy_of(task: Task) -> Task:
    """A task of its own for a subtask, as a worker of a cluster gets it: functions have state."""
    try:
        return deepcopy(task)
    except TypeError as error:
        raise ConfigError(
            f"A function cannot be copied for its tasks ({error}); let its open() make objects "
            f"that belong to a process: connections, locks, sessions."
        ) from error


def _until(stopped: Event, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields batches while the tasks may run."""
    for batch in batches:
        _check(stopped)
        yield batch
    _check(stopped)


def _check(stopped: Event) -> None:
    """Raises CheckpointError: the tasks were cancelled."""
    if stopped.is_set():
        raise CheckpointError("The tasks of the job were cancelled; nothing is committed.")
