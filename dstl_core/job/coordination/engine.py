"""What a job asks of an engine: to look at rows, to send them to tasks, and to run the tasks.

Rows are of the engine's own type: a DataFrame of Spark, a table or a stream of Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from dstl_core.job.spec.fingerprint import FINGERPRINT_VERSION, Fingerprint
from dstl_core.job.spec.job_spec import EpochSpec, TaskSpec
from dstl_core.job.spec.operators import Operator
from dstl_core.job.spec.read_columns import ALL_COLUMNS, ReadColumns
from dstl_core.job.task.reports import SubtaskReport

RunTask = Callable[[TaskSpec, int], SubtaskReport]
"""Runs one subtask of a task."""


class TaskRunner(Protocol):
    """Runs the tasks of one pipeline; ``cancel`` may be called from any thread."""

    def beside(self) -> TaskRunner:
        """A copy whose tasks continue when this object is cancelled."""
        ...

    def cancel(self) -> None:
        """Cancels the running tasks; their callers get an error."""
        ...

    def per_subtask(
        self, run: RunTask, task: TaskSpec, subtasks: Sequence[int], description: str
    ) -> list[SubtaskReport]:
        """Runs a function for some subtasks of a task, each with its own copy of the task."""
        ...

    def apply(
        self,
        rows: Any,
        operator: Operator,
        order_by: Sequence[str],
        task: TaskSpec,
        epoch: EpochSpec,
        description: str,
    ) -> list[SubtaskReport]:
        """Sends rows to the subtasks that own their keys, and runs an epoch of those subtasks.

        Args:
            rows: The rows, which ``check_input`` has accepted.
            operator: The operator that reads them.
            order_by: The columns that order the rows of a key.
            task: The operator as its tasks get it.
            epoch: The epoch.
            description: A text for people.

        Returns:
            A report for each subtask that has rows.
        """
        ...


class Engine(Protocol):
    """Runs jobs. An engine is a value; its runners do the work."""

    def runner(self, name: str) -> TaskRunner:
        """Runs the tasks of the pipeline of this name."""
        ...

    def batch_of(self, rows: Any, what: str, reads: ReadColumns = ALL_COLUMNS) -> Any:
        """Rows that a user gives, as rows of this engine.

        Args:
            rows: The rows.
            what: Their name, for errors.
            reads: The columns that are read. Others are left out if tasks cannot process them.

        Raises:
            ConfigError: Tasks cannot process them.
        """
        ...

    def columns_of(self, rows: Any) -> dict[str, str]:
        """The columns of rows, with the names of their types in Spark."""
        ...

    def select(self, rows: Any, names: Sequence[str]) -> Any:
        """Some columns of rows."""
        ...

    def in_types(self, rows: Any, types: Mapping[str, str]) -> Any | None:
        """Rows with other types of some columns; None if a value does not fit. It reads them all.

        Args:
            rows: The rows.
            types: Columns to types of the same family.
        """
        ...

    def check_input(self, rows: Any, operator: Operator, order_by: Sequence[str] | None) -> None:
        """Raises ConfigError if the rows cannot be applied by an operator."""
        ...

    def fingerprint(self, rows: Any, version: int = FINGERPRINT_VERSION) -> Fingerprint:
        """The fingerprint of rows, by the rule of a version. It reads them all."""
        ...

    def latest_time(self, rows: Any, column: str) -> int | None:
        """The latest time of a column in milliseconds, rounded down; None if no row has one."""
        ...

    def stream_of(self, rows: Any) -> str | None:
        """The id of the stream that gives rows as a micro-batch; None if the engine knows none."""
        ...

    def to_arrow(self, rows: Any) -> pa.Table:
        """All rows in the memory of this process."""
        ...

    def read(self, files: Sequence[str], schema: pa.Schema) -> Any:
        """The rows of stored Parquet files, as rows of this engine."""
        ...
