"""Who takes part in checkpoints, as the coordinator's shell sees them.

Source: ``Execution``, ``MasterTriggerRestoreHook`` and ``OperatorCoordinator`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.coordination.pending import CheckpointTask
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions


class CheckpointTasks(Protocol):
    """The tasks of a job. Methods hand over and return; they may call the shell back."""

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
        """Checkpoints cannot go on; ``attempt_id`` names the task that is to blame."""
        ...


class MasterTriggerRestoreHook(Protocol):
    """State of something outside the tasks, taken before theirs."""

    @property
    def identifier(self) -> str: ...

    @property
    def version(self) -> int:
        """Of the bytes."""
        ...

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: int) -> bytes | None: ...

    def restore_checkpoint(self, checkpoint_id: int, version: int, data: bytes | None) -> None: ...

    def reset(self) -> None:
        """The job starts without a checkpoint."""
        ...


class OperatorCoordinator(Protocol):
    """The one part of an operator that does not run in parallel."""

    def checkpoint_coordinator(self, checkpoint_id: int) -> bytes | None: ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None: ...

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None: ...

    def reset_to_checkpoint(self, checkpoint_id: int | None, data: bytes | None) -> None:
        """Goes back to a checkpoint; None: to the start."""
        ...
