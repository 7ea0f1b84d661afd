"""Why checkpoints fail, and when that fails the job: Flink's tables."""

from __future__ import annotations

import pytest

from dstl_core.checkpoint.coordination.failure import (
    CheckpointFailureManager,
    CheckpointFailureReason,
    checkpoint_error,
)
from dstl_core.checkpoint.store.properties import CheckpointProperties, CheckpointRetentionPolicy
from dstl_core.errors import CheckpointError, ConfigError

CHECKPOINT = CheckpointProperties.for_checkpoint(CheckpointRetentionPolicy.RETAIN_ON_CANCELLATION)
SAVEPOINT = CheckpointProperties.for_savepoint()
STOP = CheckpointProperties.for_sync_savepoint(terminate=False)

# As Flink 2.2.1 prints them: pre-flight, the counter after failures of 7, 7 and 8, message.
TABLE = """
PERIODIC_SCHEDULER_SHUTDOWN|true|0|Periodic checkpoint scheduler is shut down.
TOO_MANY_CHECKPOINT_REQUESTS|true|0|The maximum number of queued checkpoint requests exceeded
MINIMUM_TIME_BETWEEN_CHECKPOINTS|true|0|The minimum time between checkpoints is still pending. \
Checkpoint will be triggered after the minimum time.
NOT_ALL_REQUIRED_TASKS_RUNNING|true|0|Not all required tasks are currently running.
IO_EXCEPTION|true|2|An Exception occurred while triggering the checkpoint. IO-problem detected.
BLOCKING_OUTPUT_EXIST|true|0|Blocking output edge exists in running tasks.
CHECKPOINT_ASYNC_EXCEPTION|false|2|Asynchronous task checkpoint failed.
CHANNEL_STATE_SHARED_STREAM_EXCEPTION|false|0|The checkpoint was aborted due to exception of other \
subtasks sharing the ChannelState file.
CHECKPOINT_EXPIRED|false|2|Checkpoint expired before completing.
CHECKPOINT_SUBSUMED|false|0|Checkpoint has been subsumed.
CHECKPOINT_DECLINED|false|2|Checkpoint was declined.
CHECKPOINT_DECLINED_TASK_NOT_READY|false|0|Checkpoint was declined (tasks not ready)
CHECKPOINT_DECLINED_TASK_CLOSING|false|0|Checkpoint was declined (task is closing)
CHECKPOINT_DECLINED_SUBSUMED|false|0|Checkpoint was canceled because a barrier from newer \
checkpoint was received.
CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER|false|0|Task received cancellation from one of its \
inputs
CHECKPOINT_DECLINED_INPUT_END_OF_STREAM|false|0|Checkpoint was declined because one input stream \
is finished
CHECKPOINT_COORDINATOR_SHUTDOWN|false|0|CheckpointCoordinator shutdown.
CHECKPOINT_COORDINATOR_SUSPEND|false|0|Checkpoint Coordinator is suspending.
JOB_FAILOVER_REGION|false|0|FailoverRegion is restarting.
TASK_FAILURE|false|0|Task has failed.
TASK_CHECKPOINT_FAILURE|false|0|Task local checkpoint failure.
UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE|false|0|Unknown task for the checkpoint to notify.
FINALIZE_CHECKPOINT_FAILURE|false|2|Failure to finalize checkpoint.
TRIGGER_CHECKPOINT_FAILURE|false|0|Trigger checkpoint failure.
"""
ROWS = [line.split("|") for line in TABLE.strip().splitlines()]


def test_the_table_is_complete() -> None:
    assert [reason.name for reason in CheckpointFailureReason] == [row[0] for row in ROWS]


@pytest.mark.parametrize(("name", "pre_flight", "count", "message"), ROWS, ids=lambda text: text)
def test_a_reason(name: str, pre_flight: str, count: str, message: str) -> None:
    reason = CheckpointFailureReason[name]
    assert reason.is_pre_flight is (pre_flight == "true")
    assert reason.message == message
    manager = CheckpointFailureManager(1000)
    for checkpoint_id in (7, 7, 8):
        assert manager.handle_failure(checkpoint_id, CHECKPOINT, reason, by_task=False) is None
    assert manager.continuous_failures == int(count)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TASK_FAILURE_DURING_CHECKPOINT", "TASK_FAILURE"),
        ("CHECKPOINT_DECLINED_TIME_OUT", "CHECKPOINT_EXPIRED"),
        ("CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED", "CHECKPOINT_DECLINED"),
    ],
)
def test_names_of_older_releases_warn(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is a name of older .* use {new}"):
        reason = getattr(CheckpointFailureReason, old)
    assert reason is CheckpointFailureReason[new]


def test_a_name_that_never_was() -> None:
    with pytest.raises(AttributeError, match="has no member NOBODY"):
        _ = CheckpointFailureReason.NOBODY


def test_an_error_names_its_reason() -> None:
    error = checkpoint_error(CheckpointFailureReason.CHECKPOINT_EXPIRED, "2 tasks", checkpoint_id=4)
    assert isinstance(error, CheckpointError)
    assert str(error) == "Checkpoint expired before completing: 2 tasks"
    assert error.context == {
        "reason": CheckpointFailureReason.CHECKPOINT_EXPIRED,
        "checkpoint_id": 4,
    }


# ---------------------------------------------------------------------------------- manager

DECLINED = CheckpointFailureReason.CHECKPOINT_DECLINED
EXCEEDED = (
    "Exceeded checkpoint tolerable failure threshold. The latest checkpoint failed due to "
    "Checkpoint was declined."
)


def test_without_tolerance_the_first_failure_fails_the_job() -> None:
    assert CheckpointFailureManager(0).handle_failure(1, CHECKPOINT, DECLINED, by_task=False) == (
        EXCEEDED
    )


def test_the_job_fails_after_the_tolerated_number_and_counts_anew() -> None:
    manager = CheckpointFailureManager(2)
    told = [
        manager.handle_failure(number, CHECKPOINT, DECLINED, by_task=True) for number in range(6)
    ]
    assert told == [None, None, EXCEEDED, None, None, EXCEEDED]


def test_a_success_forgives_and_older_failures_count_nothing() -> None:
    manager = CheckpointFailureManager(1)
    manager.handle_failure(4, CHECKPOINT, DECLINED, by_task=False)
    manager.handle_success(5)
    assert manager.continuous_failures == 0
    manager.handle_failure(5, CHECKPOINT, DECLINED, by_task=False)
    manager.handle_failure(3, CHECKPOINT, DECLINED, by_task=False)
    assert manager.continuous_failures == 0
    manager.handle_failure(6, CHECKPOINT, DECLINED, by_task=False)
    manager.handle_success(4)
    assert manager.continuous_failures == 1


def test_failures_without_an_id_count_each() -> None:
    manager = CheckpointFailureManager(1)
    io = CheckpointFailureReason.IO_EXCEPTION
    manager.handle_success(9)
    assert manager.handle_failure(None, CHECKPOINT, io, by_task=False) is None
    assert manager.handle_failure(None, CHECKPOINT, io, by_task=False) is not None


def test_unlimited_tolerance_counts_nothing() -> None:
    manager = CheckpointFailureManager(None)
    for number in range(100):
        assert manager.handle_failure(number, CHECKPOINT, DECLINED, by_task=False) is None


def test_savepoints() -> None:
    # What the coordinator does to a savepoint is nobody's failure; what a task does counts.
    manager = CheckpointFailureManager(0)
    expired = CheckpointFailureReason.CHECKPOINT_EXPIRED
    assert manager.handle_failure(1, SAVEPOINT, expired, by_task=False) is None
    assert manager.handle_failure(2, SAVEPOINT, DECLINED, by_task=True) == EXCEEDED
    assert manager.handle_failure(3, STOP, expired, by_task=False) is None
    # A task that cannot take the last savepoint would never end.
    assert manager.handle_failure(4, STOP, DECLINED, by_task=True) == DECLINED.message


def test_a_tolerance_below_nothing() -> None:
    with pytest.raises(ConfigError, match="must be 0 or more, got -1"):
        CheckpointFailureManager(-1)
