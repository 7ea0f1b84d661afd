"""The reasons why checkpoints fail, and the count of failures that fails the job.

Source: ``CheckpointFailureReason`` and ``CheckpointFailureManager`` of Flink 2.2.1; names and
messages are Flink's.
"""

from __future__ import annotations

import warnings
from enum import Enum, EnumMeta

from dstl_core.checkpoint.store.properties import CheckpointProperties
from dstl_core.errors import CheckpointError, ConfigError

_OLD_NAMES = {
    "ALREADY_QUEUED": "TOO_MANY_CHECKPOINT_REQUESTS",
    "CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED": "CHECKPOINT_DECLINED",
    "CHECKPOINT_DECLINED_TASK_NOT_CHECKPOINTING": "CHECKPOINT_DECLINED_TASK_NOT_READY",
    "CHECKPOINT_DECLINED_TIME_OUT": "CHECKPOINT_EXPIRED",
    "EXCEPTION": "TRIGGER_CHECKPOINT_FAILURE",
    "JOB_FAILURE": "CHECKPOINT_COORDINATOR_SHUTDOWN",
    "TASK_FAILURE_DURING_CHECKPOINT": "TASK_FAILURE",
    "TOO_MANY_CONCURRENT_CHECKPOINTS": "TOO_MANY_CHECKPOINT_REQUESTS",
}


class _WithOldNames(EnumMeta):
    """Maps member names of older Flink releases to present members, with a warning."""

    def __getattr__(cls, name: str) -> object:
        new_name = _OLD_NAMES.get(name)
        if new_name is None:
            raise AttributeError(f"{cls.__name__} has no member {name}")
        warnings.warn(
            f"{cls.__name__}.{name} is a name of older Flink releases; use {new_name}.",
            DeprecationWarning,
            stacklevel=2,
        )
        return cls[new_name]


class CheckpointFailureReason(Enum, metaclass=_WithOldNames):
    """A member's value is ``(rejected before an id was taken, counts as a failure, message)``."""

    PERIODIC_SCHEDULER_SHUTDOWN = (True, False, "Periodic checkpoint scheduler is shut down.")
    TOO_MANY_CHECKPOINT_REQUESTS = (
        True,
        False,
        "The maximum number of queued checkpoint requests exceeded",
    )
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = (
        True,
        False,
        "The minimum time between checkpoints is still pending. Checkpoint will be triggered "
        "after the minimum time.",
    )
    NOT_ALL_REQUIRED_TASKS_RUNNING = (
        True,
        False,
        "Not all required tasks are currently running.",
    )
    IO_EXCEPTION = (
        True,
        True,
        "An Exception occurred while triggering the checkpoint. IO-problem detected.",
    )
    BLOCKING_OUTPUT_EXIST = (True, False, "Blocking output edge exists in running tasks.")
    CHECKPOINT_ASYNC_EXCEPTION = (False, True, "Asynchronous task checkpoint failed.")
    CHANNEL_STATE_SHARED_STREAM_EXCEPTION = (
        False,
        False,
        "The checkpoint was aborted due to exception of other subtasks sharing the ChannelState "
        "file.",
    )
    CHECKPOINT_EXPIRED = (False, True, "Checkpoint expired before completing.")
    CHECKPOINT_SUBSUMED = (False, False, "Checkpoint has been subsumed.")
    CHECKPOINT_DECLINED = (False, True, "Checkpoint was declined.")
    CHECKPOINT_DECLINED_TASK_NOT_READY = (
        False,
        False,
        "Checkpoint was declined (tasks not ready)",
    )
    CHECKPOINT_DECLINED_TASK_CLOSING = (False, False, "Checkpoint was declined (task is closing)")
    CHECKPOINT_DECLINED_SUBSUMED = (
        False,
        False,
        "Checkpoint was canceled because a barrier from newer checkpoint was received.",
    )
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = (
        False,
        False,
        "Task received cancellation from one of its inputs",
    )
    CHECKPOINT_DECLINED_INPUT_END_OF_STREAM = (
        False,
        False,
        "Checkpoint was declined because one input stream is finished",
    )
    CHECKPOINT_COORDINATOR_SHUTDOWN = (False, False, "CheckpointCoordinator shutdown.")
    CHECKPOINT_COORDINATOR_SUSPEND = (False, False, "Checkpoint Coordinator is suspending.")
    JOB_FAILOVER_REGION = (False, False, "FailoverRegion is restarting.")
    TASK_FAILURE = (False, False, "Task has failed.")
    TASK_CHECKPOINT_FAILURE = (False, False, "Task local checkpoint failure.")
    UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE = (
        False,
        False,
        "Unknown task for the checkpoint to notify.",
    )
    FINALIZE_CHECKPOINT_FAILURE = (False, True, "Failure to finalize checkpoint.")
    TRIGGER_CHECKPOINT_FAILURE = (False, False, "Trigger checkpoint failure.")

    @property
    def is_pre_flight(self) -> bool:
        """Whether the request is refused before a checkpoint gets an id."""
        return self.value[0]

    @property
    def counts(self) -> bool:
        """Whether the failure counts towards the tolerable number of failures."""
        return self.value[1]

    @property
    def message(self) -> str:
        return self.value[2]


def checkpoint_error(
    reason: CheckpointFailureReason, message: str = "", **context: object
) -> CheckpointError:
    """The error of a failed checkpoint, with its reason in the context."""
    text = f"{reason.message.rstrip('.')}: {message}" if message else reason.message
    return CheckpointError(text, reason=reason, **context)


class CheckpointFailureManager:
    """Counts checkpoints that failed since the last success.

    Invariants: (1) a checkpoint counts once; (2) the failure of a checkpoint that is older than the
    last success does not count.

    Args:
        tolerable_failures: Number of failures that do not fail the job; None: any number.
    """

    EXCEEDED = "Exceeded checkpoint tolerable failure threshold."

    def __init__(self, tolerable_failures: int | None) -> None:
        if tolerable_failures is not None and tolerable_failures < 0:
            raise ConfigError(
                f"The number of tolerable checkpoint failures must be 0 or more, got "
                f"{tolerable_failures}."
            )
        self._tolerable = tolerable_failures
        self._count = 0
        self._counted_ids: set[int] = set()
        self._last_success = -1

    @property
    def continuous_failures(self) -> int:
        return self._count

    def handle_failure(
        self,
        checkpoint_id: int | None,
        properties: CheckpointProperties,
        reason: CheckpointFailureReason,
        *,
        by_task: bool,
    ) -> str | None:
        """Counts a failure.

        Args:
            checkpoint_id: The checkpoint; None if it failed before it got an id.
            properties: The properties of the checkpoint.
            reason: Why it failed.
            by_task: Whether a task reported the failure.

        Returns:
            The message with which the job fails; None if the job continues.
        """
        if by_task and not reason.is_pre_flight:
            if properties.is_synchronous:
                # The job waits for this savepoint to stop and would wait for ever.
                return reason.message
        elif properties.is_savepoint:
            return None
        if checkpoint_id is not None and checkpoint_id <= self._last_success:
            return None
        self._take_count(checkpoint_id, reason)
        if self._tolerable is None or self._count <= self._tolerable:
            return None
        self._clear()
        return f"{self.EXCEEDED} The latest checkpoint failed due to {reason.message}"

    def _take_count(self, checkpoint_id: int | None, reason: CheckpointFailureReason) -> None:
        if self._tolerable is None or not reason.counts:
            return
        if checkpoint_id is None:
            self._count += 1
        elif checkpoint_id not in self._counted_ids:
            self._counted_ids.add(checkpoint_id)
            self._count += 1

    def handle_success(self, checkpoint_id: int) -> None:
        if checkpoint_id > self._last_success:
            self._last_success = checkpoint_id
            self._clear()

    def _clear(self) -> None:
        self._count = 0
        self._counted_ids.clear()
