"""The protocol as a step function: savepoints, limits, the scheduler, failures, plans."""

from __future__ import annotations

import pytest

from dstl_core.checkpoint.coordination.events import (
    AcknowledgeCheckpoint,
    Acknowledged,
    BacklogChanged,
    CheckpointCleaned,
    CheckpointCommitted,
    CheckpointInitialized,
    ClaimLost,
    CompleteRequest,
    DeclineCheckpoint,
    DiscardState,
    FailJob,
    FailRequest,
    InitializationFailed,
    InitializeCheckpoint,
    NotifyCheckpointComplete,
    RecordAbort,
    Shutdown,
    StartCheckpointScheduler,
    StopCheckpointScheduler,
    TasksChanged,
    TriggerCheckpoint,
    TriggerTasks,
)
from dstl_core.checkpoint.coordination.pending import (
    CheckpointPlan,
    OperatorPlan,
    TaskAcknowledgeResult,
)
from dstl_core.errors import CheckpointError, ConfigError, InvariantViolation
from dstl_core.model.snapshot_type import CheckpointType
from tests.unit.checkpoint.coordinator_job import (
    A0,
    B0,
    FIRST,
    OPERATORS,
    PLAN,
    SAVEPOINT,
    SECOND,
    STOP,
    TASKS,
    TIMEOUT,
    Job,
    Reason,
    aborted,
    ack,
    location,
    state,
    triggered,
)

# ---------------------------------------------------------------------------------- savepoints


def test_a_savepoint_passes_the_limit_and_is_not_subsumed() -> None:
    job = triggered()
    assert job.trigger("checkpoint") == []
    [trigger] = job.trigger("savepoint", SAVEPOINT)
    assert isinstance(trigger, TriggerTasks)
    assert trigger.checkpoint.checkpoint_id == 8
    assert trigger.options.checkpoint_type.is_savepoint
    assert job.coordinator.num_queued_requests == 1
    # It is in the way of others like any pending checkpoint.
    job.complete(7)
    assert job.coordinator.num_queued_requests == 1
    job.acknowledge(8)
    assert job.step(CheckpointCommitted(8))[-1] == InitializeCheckpoint(job.properties, None)


def test_a_savepoint_is_not_subsumed() -> None:
    job = Job(max_concurrent_checkpoints=2)
    job.trigger("savepoint", SAVEPOINT)
    job.trigger("checkpoint")
    job.complete(8)
    assert list(job.coordinator.pending_checkpoints) == [7]


def test_an_intermediate_savepoint_decides_nothing() -> None:
    job = triggered()
    job.trigger("savepoint", SAVEPOINT)
    job.acknowledge(8)
    # No notification: side effects wait for a checkpoint. Nothing older is given up.
    assert job.step(CheckpointCommitted(8)) == [CompleteRequest("savepoint", 8)]
    assert list(job.coordinator.pending_checkpoints) == [7]
    decline = DeclineCheckpoint(7, Reason.CHECKPOINT_DECLINED)
    assert job.step(decline) == aborted(7, Reason.CHECKPOINT_DECLINED)


def test_the_savepoint_that_stops_the_job() -> None:
    job = triggered()
    [trigger] = job.trigger("stop", STOP)
    assert isinstance(trigger, TriggerTasks)
    assert trigger.options.checkpoint_type.should_drain
    job.acknowledge(8)
    assert job.step(CheckpointCommitted(8)) == [
        CompleteRequest("stop", 8),
        *aborted(7, Reason.CHECKPOINT_SUBSUMED),
        NotifyCheckpointComplete(8, 5000, TASKS),
    ]


def test_the_folder_of_a_savepoint_that_failed_goes() -> None:
    job = Job()
    job.trigger("savepoint", SAVEPOINT)
    decline = DeclineCheckpoint(7, Reason.CHECKPOINT_DECLINED)
    assert job.step(decline) == aborted(7, Reason.CHECKPOINT_DECLINED, token="savepoint")
    [_, discard] = job.step(ack(7, A0))
    assert discard == DiscardState(7, (state(0),), location(7), counts=False)


def test_a_stranger_does_not_cost_a_savepoint_its_folder() -> None:
    job = Job()
    job.trigger("savepoint", SAVEPOINT)
    stranger = AcknowledgeCheckpoint(7, "nobody", {FIRST: state(0)})
    [_, discard] = job.step(stranger)
    assert discard == DiscardState(7, (state(0),), location(7), folder_goes=False, counts=False)


def test_the_first_checkpoint_after_a_snapshot_of_others_is_full() -> None:
    job = Job()
    job.coordinator.restored(6, force_full_snapshot=True)
    [trigger] = job.trigger("savepoint", SAVEPOINT)
    assert isinstance(trigger, TriggerTasks)
    assert trigger.options.checkpoint_type.is_savepoint
    job.complete(7)
    for expected in (CheckpointType.FULL_CHECKPOINT, CheckpointType.FULL_CHECKPOINT):
        [trigger] = job.trigger()
        assert isinstance(trigger, TriggerTasks)
        assert trigger.options.checkpoint_type is expected
        failed = trigger.checkpoint.checkpoint_id
        job.step(DeclineCheckpoint(failed, Reason.CHECKPOINT_DECLINED))
        job.step(CheckpointCleaned())
    job.trigger()
    job.complete(10)
    [trigger] = job.trigger()
    assert isinstance(trigger, TriggerTasks)
    assert trigger.options.checkpoint_type is CheckpointType.CHECKPOINT


# ---------------------------------------------------------------------------- limits and queue


def test_a_request_waits_for_the_limit() -> None:
    job = triggered(max_concurrent_checkpoints=2)
    assert job.trigger("second") != []
    assert job.trigger("third") == []
    assert job.coordinator.num_queued_requests == 1
    actions = job.complete(7)
    assert actions[-1] == InitializeCheckpoint(job.properties, None)
    [trigger] = job.initialize(actions[-1:])
    assert isinstance(trigger, TriggerTasks)


def test_one_trigger_at_a_time() -> None:
    job = Job(max_concurrent_checkpoints=5)
    assert len(job.step(TriggerCheckpoint(job.properties, "a"))) == 1
    assert job.step(TriggerCheckpoint(job.properties, "b")) == []
    # Even what is forced waits.
    assert job.step(TriggerCheckpoint(SAVEPOINT, "c")) == []
    actions = job.step(CheckpointInitialized(7, 5000, location(7)))
    assert actions[-1] == InitializeCheckpoint(SAVEPOINT, None)


def test_deletions_hold_up_new_checkpoints() -> None:
    job = triggered()
    job.complete(7, 3, 4)
    assert job.step(TriggerCheckpoint(job.properties, "me")) == []
    assert job.step(CheckpointCleaned()) == [InitializeCheckpoint(job.properties, None)]
    assert job.step(CheckpointCleaned()) == []
    with pytest.raises(InvariantViolation, match="more checkpoints were cleaned"):
        job.step(CheckpointCleaned())


def test_not_all_tasks_run() -> None:
    job = Job(plan=None)
    assert job.trigger() == [FailRequest("me", Reason.NOT_ALL_REQUIRED_TASKS_RUNNING)]
    job.step(TasksChanged(PLAN))
    assert len(job.trigger()) == 1


def test_new_tasks_do_not_complete_what_old_ones_began() -> None:
    # The new tasks start from the latest checkpoint: one that old tasks complete after that would
    # hold changes which its successor does not have.
    job = Job()
    job.trigger()
    actions = job.step(TasksChanged(PLAN))
    assert job.coordinator.pending_checkpoints == {}
    assert FailRequest("me", Reason.JOB_FAILOVER_REGION, "", 7) in actions
    late = job.step(ack(7, A0))
    assert Acknowledged(7, A0, TaskAcknowledgeResult.DISCARDED) in late


def test_tasks_that_end_while_the_trigger_runs() -> None:
    job = Job()
    job.step(TriggerCheckpoint(job.properties, "me"))
    job.step(TasksChanged(None))
    assert job.step(CheckpointInitialized(7, 5000, location(7))) == [
        RecordAbort(7),
        FailRequest("me", Reason.NOT_ALL_REQUIRED_TASKS_RUNNING),
    ]
    assert not job.coordinator.is_triggering


def test_no_place_for_the_files() -> None:
    job = Job(tolerable_failed_checkpoints=0)
    job.step(TriggerCheckpoint(job.properties, "me"))
    job.step(TriggerCheckpoint(job.properties, "next"))
    actions = job.step(InitializationFailed(Reason.IO_EXCEPTION, "no disk"))
    assert actions[0] == FailRequest("me", Reason.IO_EXCEPTION, "no disk")
    assert isinstance(actions[1], FailJob)
    assert actions[2] == InitializeCheckpoint(job.properties, None)


def test_an_answer_that_nobody_asked_for() -> None:
    for event in (CheckpointInitialized(7, 0, ""), InitializationFailed(Reason.IO_EXCEPTION)):
        with pytest.raises(InvariantViolation, match="without a request"):
            Job().step(event)


# ----------------------------------------------------------------------------------- scheduler


def periodic(**options: object) -> Job:
    job = Job(interval_ms=100, **options)
    assert job.step(StartCheckpointScheduler(30)) == []
    return job


def test_periodic_checkpoints() -> None:
    job = periodic()
    assert job.coordinator.next_deadline_ms() == 30
    assert job.step(None, 29) == []
    [trigger] = job.initialize(job.step(None, 30))
    assert isinstance(trigger, TriggerTasks)
    assert job.coordinator.next_deadline_ms() == 130
    job.complete(7)
    assert len(job.initialize(job.step(None, 130))) == 1


def test_missed_beats_are_not_made_up() -> None:
    job = periodic()
    assert len(job.initialize(job.step(None, 330))) == 1
    assert job.coordinator.num_queued_requests == 0
    assert job.coordinator.next_deadline_ms() == 430


def test_the_pause_holds_for_periodic_checkpoints_only() -> None:
    job = periodic(min_pause_ms=60)
    job.initialize(job.step(None, 30))
    job.now = 100
    job.complete(7)
    # Counted from the completion at 100; a request of a user does not wait.
    assert job.step(None, 130) == [FailRequest(None, Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS)]
    assert job.coordinator.next_deadline_ms() == 160
    assert len(job.trigger()) == 1
    job.complete(8)
    assert job.step(None, 160) == [FailRequest(None, Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS)]
    assert job.coordinator.next_deadline_ms() == 190
    assert len(job.initialize(job.step(None, 190))) == 1


def test_a_period_is_never_shorter_than_the_pause() -> None:
    job = Job(interval_ms=10, min_pause_ms=200)
    job.step(StartCheckpointScheduler(200))
    job.initialize(job.step(None, 200))
    assert job.coordinator.next_deadline_ms() == 400


def test_a_backlog_changes_the_period() -> None:
    job = periodic(interval_during_backlog_ms=1000)
    job.step(BacklogChanged(FIRST, True), 10)
    assert job.coordinator.next_deadline_ms() == 30
    job.initialize(job.step(None, 30))
    job.complete(7)
    assert job.coordinator.next_deadline_ms() == 1030
    job.step(BacklogChanged(SECOND, True), 40)
    job.step(BacklogChanged(FIRST, False), 50)
    assert job.coordinator.next_deadline_ms() == 1030
    job.step(BacklogChanged(SECOND, False), 60)
    assert job.coordinator.next_deadline_ms() == 160


def test_no_checkpoints_during_a_backlog() -> None:
    job = periodic(interval_during_backlog_ms=0)
    job.step(BacklogChanged(FIRST, True), 10)
    assert job.step(None, 30) == []
    assert job.coordinator.next_deadline_ms() is None
    job.step(BacklogChanged(FIRST, False), 500)
    assert job.coordinator.next_deadline_ms() == 600


def test_stopping_the_scheduler_aborts_what_is_pending_or_queued() -> None:
    job = periodic()
    job.initialize(job.step(None, 30))
    job.acknowledge(7, A0)
    job.trigger("queued")
    suspend = Reason.CHECKPOINT_COORDINATOR_SUSPEND
    assert job.step(StopCheckpointScheduler()) == [
        FailRequest("queued", suspend),
        *aborted(7, suspend, state(0), token=None),
    ]
    assert job.coordinator.next_deadline_ms() is None
    assert not job.coordinator.is_periodic_checkpointing_started
    # Who asks still gets one.
    assert len(job.trigger()) == 1


def test_a_periodic_request_of_a_scheduler_that_stopped() -> None:
    job = periodic()
    request = TriggerCheckpoint(job.properties, "me", is_periodic=True)
    job.step(StopCheckpointScheduler())
    assert job.step(request) == [FailRequest("me", Reason.PERIODIC_SCHEDULER_SHUTDOWN)]


def test_a_scheduler_that_stops_while_its_trigger_runs() -> None:
    job = periodic()
    assert len(job.step(None, 30)) == 1
    job.step(StopCheckpointScheduler())
    assert job.step(CheckpointInitialized(7, 5000, location(7))) == [
        RecordAbort(7),
        FailRequest(None, Reason.PERIODIC_SCHEDULER_SHUTDOWN),
    ]


def test_starting_again_starts_anew() -> None:
    job = periodic()
    job.initialize(job.step(None, 30))
    actions = job.step(StartCheckpointScheduler(50), 40)
    assert actions == aborted(7, Reason.CHECKPOINT_COORDINATOR_SUSPEND, token=None)
    assert job.coordinator.next_deadline_ms() == 90


def test_a_scheduler_without_a_period() -> None:
    with pytest.raises(ConfigError, match=r"set execution\.checkpointing\.interval"):
        Job().step(StartCheckpointScheduler(0))


def test_after_a_shutdown_nothing_starts() -> None:
    job = periodic()
    job.trigger()
    down = Reason.CHECKPOINT_COORDINATOR_SHUTDOWN
    assert job.step(Shutdown()) == aborted(7, down)
    assert job.trigger() == [FailRequest("me", down)]
    assert job.step(None, 1000) == []
    with pytest.raises(CheckpointError, match="shut down"):
        job.step(StartCheckpointScheduler(0))


def test_a_lost_claim_ends_everything() -> None:
    job = triggered()
    job.trigger("queued")
    down = Reason.CHECKPOINT_COORDINATOR_SHUTDOWN
    assert job.step(ClaimLost("another one")) == [
        FailRequest("queued", down),
        *aborted(7, down),
        FailJob("another one"),
    ]


# ------------------------------------------------------------------------------------ failures


def test_too_many_failures_fail_the_job() -> None:
    job = triggered(tolerable_failed_checkpoints=1)
    job.step(DeclineCheckpoint(7, Reason.CHECKPOINT_DECLINED, "", A0))
    job.step(CheckpointCleaned())
    job.trigger()
    actions = job.step(None, TIMEOUT)
    assert actions[:-1] == aborted(8, Reason.CHECKPOINT_EXPIRED)
    assert isinstance(actions[-1], FailJob)
    assert actions[-1].attempt_id is None
    assert "Checkpoint expired before completing." in actions[-1].message


def test_the_task_that_is_to_blame_is_named() -> None:
    job = triggered(tolerable_failed_checkpoints=0)
    actions = job.step(DeclineCheckpoint(7, Reason.CHECKPOINT_DECLINED, "", B0))
    assert isinstance(actions[-1], FailJob)
    assert actions[-1].attempt_id == B0


def test_a_task_that_cannot_take_the_last_savepoint_fails_the_job() -> None:
    job = Job()
    job.trigger("stop", STOP)
    actions = job.step(DeclineCheckpoint(7, Reason.CHECKPOINT_DECLINED, "", B0))
    assert actions[-1] == FailJob(Reason.CHECKPOINT_DECLINED.message, B0)


# --------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize(
    ("plans", "problem"),
    [
        ([], "at least one operator"),
        ([OPERATORS[0], OperatorPlan(FIRST, "again", 1, 128)], "the same id"),
        ([OperatorPlan(FIRST, "first", 0, 128)], "not within bounds: 0"),
        ([OperatorPlan(FIRST, "first", 129, 128)], "smaller than parallelism"),
    ],
)
def test_plans_that_could_never_complete(plans: list[OperatorPlan], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        CheckpointPlan.of_operators(*plans)
