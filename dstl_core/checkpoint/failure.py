"""Why a checkpoint failed.

Source: ``CheckpointFailureReason`` of Flink 2.2.1; the names are Flink's.
"""

from __future__ import annotations

from enum import Enum


class CheckpointFailureReason(Enum):
    """The value is ``(rejected before an id was taken, message)``."""

    TOO_MANY_CHECKPOINT_REQUESTS = (True, "The maximum number of checkpoints is in progress")
    IO_EXCEPTION = (True, "An IO problem occurred while triggering the checkpoint")
    CHECKPOINT_EXPIRED = (False, "The checkpoint expired before completing")
    CHECKPOINT_DECLINED = (False, "The checkpoint was declined by a task")
    TASK_FAILURE = (False, "A task failed")
    FINALIZE_CHECKPOINT_FAILURE = (False, "The checkpoint could not be finalized")

    @property
    def is_pre_flight(self) -> bool:
        return self.value[0]

    @property
    def message(self) -> str:
        return self.value[1]
