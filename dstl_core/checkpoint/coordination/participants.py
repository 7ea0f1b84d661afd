"""The parts of a job that take part in checkpoints, as the gateway calls them.

Source: ``Execution``, ``MasterTriggerRestoreHook`` and ``OperatorCoordinator`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.coordination.pending import CheckpointTask
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions


class CheckpointTasks(Protocol):
    """The tasks of a job. Methods return without waiting; they may call the gateway."""

    def trigger_checkpoint(
        self,
        tasks: Sequence[CheckpointTask],
        checkpoint: CheckpointMetaData,
        options: CheckpointOptions,
    ) -> None: ...

    def notify_checkpoint_complete(
        self, tasks: Sequence[CheckpointTask], checkpoint_id: int, timestamp: int
    ) -> None: ...

    def notify_checkpoint_subsumed(
        self, tasks: Sequence[CheckpointTask], checkpoint_id: int
    ) -> None: ...

    def notify_checkpoint_aborted(
        self,
        tasks: Sequence[CheckpointTask],
        checkpoint_id: int,
        latest_completed: int | None,
        reason: CheckpointFailureReason,
    ) -> None: ...

    def fail_job(self, message: str, attempt_id: str | None) -> None:
        """Fails the job; ``attempt_id`` names the task that caused it, if there is one."""
        ...


class MasterTriggerRestoreHook(Protocol):
    """State outside the tasks. It is taken before the state of the tasks."""

    @property
    def identifier(self) -> str: ...

    @property
    def version(self) -> int:
        """Version of the format of the bytes."""
        ...

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: int) -> bytes | None: ...

    def restore_checkpoint(self, checkpoint_id: int, version: int, data: bytes | None) -> None: ...

    def reset(self) -> None:
        """Called when the job starts without a checkpoint."""
        ...


class OperatorCoordinator(Protocol):
    """The one part of an operator that does not run in parallel."""

    def checkpoint_coordinator(self, checkpoint_id: int) -> bytes | None: ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None: ...

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None: ...

    def reset_to_checkpoint(self, checkpoint_id: int | None, data: bytes | None) -> None:
        """Returns to the state of a checkpoint; None: to the initial state."""
        ...
