"""What a job needs to run its tasks: an engine has one runner for each job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dstl_core.job.task.reports import SubtaskReport


class TaskRunner(Protocol):
    """Runs the tasks of one pipeline; ``cancel`` may be called from any thread."""

    def beside(self) -> TaskRunner:
        """A copy whose tasks continue when this object is cancelled."""
        ...

    def cancel(self) -> None:
        """Cancels the running tasks; their callers get an error."""
        ...

    def per_subtask(
        self, run: Callable[[int], SubtaskReport], subtasks: list[int], description: str
    ) -> list[SubtaskReport]:
        """Runs a function for some subtasks, one task per subtask."""
        ...
