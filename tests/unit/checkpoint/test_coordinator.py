"""The protocol as a step function: every event in every state."""

from __future__ import annotations

import pytest

from dstl_core.checkpoint.coordinator import CheckpointCoordinator
from dstl_core.checkpoint.events import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinatorState,
    Acknowledged,
    AcknowledgeMasterState,
    Action,
    BacklogChanged,
    CheckpointCleaned,
    CheckpointCommitted,
    CheckpointInitialized,
    ClaimLost,
    CommitCheckpoint,
    CommitFailed,
    CompleteRequest,
    DeclineCheckpoint,
    DiscardState,
    DiscardSubsumed,
    Event,
    FailJob,
    FailRequest,
    InitializationFailed,
    InitializeCheckpoint,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    NotifyCheckpointSubsumed,
    RecordAbort,
    Shutdown,
    StartCheckpointScheduler,
    StopCheckpointScheduler,
    TaskFailed,
    TasksChanged,
    TriggerCheckpoint,
    TriggerMasterHooks,
    TriggerOperatorCoordinators,
    TriggerTasks,
)
from dstl_core.checkpoint.failure import CheckpointFailureReason
from dstl_core.checkpoint.pending import (
    CheckpointPlan,
    CheckpointTask,
    OperatorPlan,
    TaskAcknowledgeResult,
)
from dstl_core.checkpoint.properties import CheckpointProperties
from dstl_core.config import CheckpointConfig
from dstl_core.errors import CheckpointError, ConfigError, InvariantViolation
from dstl_core.model.checkpoint import (
    CheckpointMetadata,
    MasterState,
    OperatorState,
    OperatorSubtaskState,
)
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions, CheckpointType

FIRST, SECOND = OperatorID.for_uid("first"), OperatorID.for_uid("second")
OPERATORS = (OperatorPlan(FIRST, "first", 2, 128), OperatorPlan(SECOND, "second", 1, 64))
PLAN = CheckpointPlan.of_operators(*OPERATORS)
TASKS = PLAN.tasks_to_wait_for
A0, A1, B0 = (task.attempt_id for task in TASKS)
PLACES = {A0: (FIRST, 0), A1: (FIRST, 1), B0: (SECOND, 0)}
TIMEOUT = 1000
Reason = CheckpointFailureReason
Result = TaskAcknowledgeResult
SAVEPOINT = CheckpointProperties.for_savepoint()
STOP = CheckpointProperties.for_sync_savepoint(terminate=True)


def state(index: int, name: str = "file") -> OperatorSubtaskState:
    offsets = KeyGroupRangeOffsets(KeyGroupRange(0, 0), (5,))
    handle = KeyGroupsSavepointStateHandle(offsets, FileStateHandle(f"file:/{name}-{index}", 9))
    return OperatorSubtaskState(index, managed_keyed_state=handle)


def ack(checkpoint_id: int, attempt: str) -> AcknowledgeCheckpoint:
    operator_id, index = PLACES[attempt]
    return AcknowledgeCheckpoint(checkpoint_id, attempt, {operator_id: state(index)})


def location(checkpoint_id: int) -> str:
    return f"file:/job/chk-{checkpoint_id}"


class Job:
    """A coordinator, a clock, and what a shell does that never fails."""

    def __init__(self, plan: CheckpointPlan | None = PLAN, first_id: int = 7, **options: object):
        options.setdefault("timeout_ms", TIMEOUT)
        options.setdefault("tolerable_failed_checkpoints", None)
        self.coordinator = CheckpointCoordinator(plan, CheckpointConfig.of(**options))
        self.now = 0
        self.next_id = first_id

    @property
    def properties(self) -> CheckpointProperties:
        return self.coordinator.checkpoint_properties

    def step(self, event: Event | None, now: int | None = None) -> list[Action]:
        if now is not None:
            self.now = now
        return self.coordinator.step(event, self.now)

    def trigger(
        self, token: str = "me", properties: CheckpointProperties | None = None
    ) -> list[Action]:
        """A request and, if it may run, its place and id."""
        kind = properties or self.properties
        return self.initialize(self.step(TriggerCheckpoint(kind, token, is_periodic=False)))

    def initialize(self, actions: list[Action]) -> list[Action]:
        """Answers the last action, if it asks for a place."""
        if not actions or not isinstance(actions[-1], InitializeCheckpoint):
            return actions
        checkpoint_id, self.next_id = self.next_id, self.next_id + 1
        event = CheckpointInitialized(checkpoint_id, 5000 + self.now, location(checkpoint_id))
        return [*actions[:-1], *self.initialize(self.step(event))]

    def acknowledge(self, checkpoint_id: int, *attempts: str) -> list[Action]:
        """The actions of the last of these reports, without the receipt."""
        actions: list[Action] = []
        for attempt in attempts or PLACES:
            receipt, *actions = self.step(ack(checkpoint_id, attempt))
            assert receipt == Acknowledged(checkpoint_id, attempt, Result.SUCCESS)
        return actions

    def complete(self, checkpoint_id: int, *subsumed: int) -> list[Action]:
        self.acknowledge(checkpoint_id)
        return self.step(CheckpointCommitted(checkpoint_id, subsumed))


def triggered(**options: object) -> Job:
    job = Job(**options)
    [action] = job.trigger()
    assert isinstance(action, TriggerTasks)
    return job


def aborted(
    checkpoint_id: int,
    reason: CheckpointFailureReason,
    *states: OperatorSubtaskState,
    message: str = "",
    latest: int | None = None,
    token: str | None = "me",
) -> list[Action]:
    where = location(checkpoint_id)
    return [
        FailRequest(token, reason, message, checkpoint_id),
        NotifyCheckpointAborted(checkpoint_id, latest, reason, message, TASKS),
        RecordAbort(checkpoint_id),
        DiscardState(checkpoint_id, states, where),
    ]


METADATA = CheckpointMetadata(
    3,
    7,
    (
        OperatorState(FIRST, 2, 128, (state(0), state(1)), uid="first"),
        OperatorState(SECOND, 1, 64, (state(0),), uid="second"),
    ),
)


# -------------------------------------------------------------------------------- happy path


def test_a_checkpoint_from_request_to_completion() -> None:
    job = Job()
    request = TriggerCheckpoint(job.properties, "me")
    assert job.step(request, 3) == [InitializeCheckpoint(job.properties, None)]
    assert job.coordinator.is_triggering
    assert job.step(CheckpointInitialized(7, 5000, location(7)), 4) == [
        TriggerTasks(
            CheckpointMetaData(7, 5000),
            CheckpointOptions(CheckpointType.CHECKPOINT, location(7)),
            TASKS,
        )
    ]
    assert not job.coordinator.is_triggering
    assert job.acknowledge(7, A1) == []
    assert job.acknowledge(7, B0) == []
    assert job.acknowledge(7, A0) == [CommitCheckpoint(METADATA, job.properties, location(7), "me")]
    assert job.step(CheckpointCommitted(7, (5, 6)), 9) == [
        CompleteRequest("me", 7),
        NotifyCheckpointComplete(7, 5000, TASKS),
        NotifyCheckpointSubsumed(6, TASKS),
        DiscardSubsumed((5, 6)),
    ]
    assert job.coordinator.pending_checkpoints == {}


def test_a_task_without_state() -> None:
    job = triggered()
    job.acknowledge(7, A1, B0)
    [_, commit] = job.step(AcknowledgeCheckpoint(7, A0, None))
    assert isinstance(commit, CommitCheckpoint)
    assert commit.metadata.operators[0].subtasks == (state(1),)


def test_operators_in_one_task() -> None:
    chain = CheckpointTask("chain", 0, (FIRST, SECOND))
    plan = CheckpointPlan(
        (OperatorPlan(FIRST, "first", 1, 128), OperatorPlan(SECOND, "second", 1, 64)),
        (chain,),
        (chain,),
    )
    job = triggered(plan=plan)
    reported = {FIRST: state(0, "a"), SECOND: state(0, "b")}
    [_, commit] = job.step(AcknowledgeCheckpoint(7, "chain", reported))
    assert isinstance(commit, CommitCheckpoint)
    assert [each.subtasks for each in commit.metadata.operators] == [
        (state(0, "a"),),
        (state(0, "b"),),
    ]


def test_finished_tasks() -> None:
    ended = CheckpointTask("gone", 1, (FIRST,))
    rest = tuple(task for task in TASKS if task.attempt_id == A0)
    gone = CheckpointTask("gone too", 0, (SECOND,))
    job = triggered(plan=CheckpointPlan(OPERATORS, rest, rest, (ended, gone)))
    [_, commit] = job.step(ack(7, A0))
    assert isinstance(commit, CommitCheckpoint)
    first, second = commit.metadata.operators
    assert first.subtasks == (state(0), OperatorSubtaskState(1, finished=True))
    assert not first.fully_finished
    assert second.subtasks == ()
    assert second.fully_finished


# --------------------------------------------------------------- coordinators, hooks, then tasks


def staged() -> CheckpointPlan:
    return CheckpointPlan(
        OPERATORS, TASKS, TASKS, operator_coordinators=(FIRST,), master_hooks=("x", "y")
    )


def test_operator_coordinators_then_hooks_then_tasks() -> None:
    job = Job(plan=staged())
    assert job.trigger() == [TriggerOperatorCoordinators(7, (FIRST,))]
    handle = ByteStreamStateHandle("c", b"1")
    assert job.step(AcknowledgeCoordinatorState(7, FIRST, handle)) == [
        TriggerMasterHooks(CheckpointMetaData(7, 5000), ("x", "y"))
    ]
    assert job.step(AcknowledgeMasterState(7, "y", None)) == []
    # Said twice, or by somebody else, it changes nothing.
    assert job.step(AcknowledgeMasterState(7, "y", None)) == []
    assert job.step(AcknowledgeMasterState(7, "z", None)) == []
    assert job.step(AcknowledgeCoordinatorState(7, FIRST, handle)) == []
    assert job.step(AcknowledgeCoordinatorState(7, SECOND, handle)) == []
    assert job.coordinator.is_triggering
    [trigger] = job.step(AcknowledgeMasterState(7, "x", MasterState("x", 1, b"2")))
    assert isinstance(trigger, TriggerTasks)
    assert not job.coordinator.is_triggering
    [commit] = job.acknowledge(7)
    assert isinstance(commit, CommitCheckpoint)
    assert commit.metadata.master_states == (MasterState("x", 1, b"2"),)
    assert commit.metadata.operators[0].coordinator_state == handle


def test_answers_to_a_checkpoint_that_is_gone() -> None:
    job = Job(plan=staged())
    job.trigger()
    job.step(DeclineCheckpoint(7, Reason.TRIGGER_CHECKPOINT_FAILURE))
    assert not job.coordinator.is_triggering
    assert job.step(AcknowledgeCoordinatorState(7, FIRST, None)) == []
    assert job.step(AcknowledgeMasterState(7, "x", None)) == []


# ----------------------------------------------------------------------------- acknowledgements


def test_a_duplicate_acknowledgement_counts_once_and_keeps_its_state() -> None:
    job = triggered()
    job.acknowledge(7, A0)
    duplicate = [Acknowledged(7, A0, Result.DUPLICATE)]
    assert job.step(ack(7, A0)) == duplicate
    other = AcknowledgeCheckpoint(7, A0, {FIRST: state(0, "other attempt")})
    assert job.step(other) == duplicate
    assert job.acknowledge(7, A1) == []
    [commit] = job.acknowledge(7, B0)
    assert isinstance(commit, CommitCheckpoint)
    assert commit.metadata == METADATA
    # Again while it commits, and again after: nothing is committed twice, nothing named goes.
    assert job.step(ack(7, A0)) == duplicate
    job.step(CheckpointCommitted(7))
    assert job.step(ack(7, A0)) == duplicate


@pytest.mark.parametrize(
    "event",
    [
        AcknowledgeCheckpoint(7, "nobody", {FIRST: state(0)}),
        AcknowledgeCheckpoint(7, A0, {SECOND: state(0)}),
        AcknowledgeCheckpoint(7, A0, {FIRST: state(1)}),
        AcknowledgeCheckpoint(7, A0, {FIRST: state(0), SECOND: state(0)}),
    ],
)
def test_an_acknowledgement_of_a_stranger_is_discarded(event: AcknowledgeCheckpoint) -> None:
    job = triggered()
    assert event.state is not None
    assert job.step(event) == [
        Acknowledged(7, event.attempt_id, Result.UNKNOWN),
        DiscardState(7, tuple(event.state.values()), location(7), folder_goes=False, counts=False),
    ]
    [commit] = job.acknowledge(7)
    assert isinstance(commit, CommitCheckpoint)
    assert commit.metadata == METADATA


@pytest.mark.parametrize("checkpoint_id", [6, 8])
def test_an_acknowledgement_of_an_unknown_checkpoint_is_discarded(checkpoint_id: int) -> None:
    job = triggered()
    assert job.step(ack(checkpoint_id, A0)) == [
        Acknowledged(checkpoint_id, A0, Result.UNKNOWN),
        DiscardState(checkpoint_id, (state(0),), None, folder_goes=False, counts=False),
    ]
    assert not job.coordinator.was_associated(checkpoint_id)


def test_a_late_acknowledgement_is_discarded() -> None:
    job = triggered()
    job.step(DeclineCheckpoint(7, Reason.CHECKPOINT_DECLINED))
    assert job.coordinator.was_associated(7)
    assert job.step(ack(7, A0)) == [
        Acknowledged(7, A0, Result.DISCARDED),
        DiscardState(7, (state(0),), location(7), counts=False),
    ]
    assert job.step(AcknowledgeCheckpoint(7, A0, None)) == [Acknowledged(7, A0, Result.DISCARDED)]


def test_sixteen_failed_checkpoints_are_remembered() -> None:
    job = Job(first_id=1)
    for checkpoint_id in range(1, 18):
        job.trigger()
        job.step(DeclineCheckpoint(checkpoint_id, Reason.CHECKPOINT_DECLINED))
        job.step(CheckpointCleaned())
    assert [job.coordinator.was_associated(each) for each in (1, 2, 17)] == [False, True, True]
    [receipt, *_] = job.step(ack(1, A0))
    assert receipt == Acknowledged(1, A0, Result.UNKNOWN)
    [receipt, *_] = job.step(ack(2, A0))
    assert receipt == Acknowledged(2, A0, Result.DISCARDED)


# ------------------------------------------------------------------------------------- aborts


def test_a_decline_aborts_and_discards_what_was_acknowledged() -> None:
    job = triggered()
    job.acknowledge(7, A1)
    decline = DeclineCheckpoint(7, Reason.CHECKPOINT_DECLINED, "no disk", A0)
    assert job.step(decline) == aborted(7, Reason.CHECKPOINT_DECLINED, state(1), message="no disk")
    assert job.step(decline) == []


@pytest.mark.parametrize("checkpoint_id", [6, 8])
def test_a_decline_of_another_checkpoint_changes_nothing(checkpoint_id: int) -> None:
    job = triggered()
    assert job.step(DeclineCheckpoint(checkpoint_id, Reason.CHECKPOINT_DECLINED)) == []
    assert list(job.coordinator.pending_checkpoints) == [7]


def test_a_checkpoint_expires() -> None:
    job = triggered()
    job.acknowledge(7, A0)
    assert job.coordinator.next_deadline_ms() == TIMEOUT
    assert job.step(None, TIMEOUT - 1) == []
    assert job.step(None, TIMEOUT) == aborted(7, Reason.CHECKPOINT_EXPIRED, state(0))
    assert job.step(None, 10 * TIMEOUT) == []
    assert job.coordinator.next_deadline_ms() is None


def test_the_acknowledgement_that_finds_it_expired_is_late() -> None:
    job = triggered()
    job.acknowledge(7, A0, A1)
    assert job.step(ack(7, B0), TIMEOUT) == [
        *aborted(7, Reason.CHECKPOINT_EXPIRED, state(0), state(1)),
        Acknowledged(7, B0, Result.DISCARDED),
        DiscardState(7, (state(0),), location(7), counts=False),
    ]


def test_a_trigger_that_finds_it_expired_starts_the_next() -> None:
    job = triggered()
    job.now = TIMEOUT
    actions = job.trigger("next")
    assert actions[:-1] == aborted(7, Reason.CHECKPOINT_EXPIRED)
    assert isinstance(actions[-1], TriggerTasks)
    assert list(job.coordinator.pending_checkpoints) == [8]


def test_a_failed_task_aborts_what_it_has_not_acknowledged() -> None:
    job = triggered(max_concurrent_checkpoints=2)
    job.trigger("second")
    job.acknowledge(7, A0)
    assert job.step(TaskFailed(A0, "gone")) == aborted(
        8, Reason.TASK_FAILURE, message="gone", token="second"
    )
    assert list(job.coordinator.pending_checkpoints) == [7]


def test_the_last_completed_checkpoint_is_told_with_an_abort() -> None:
    job = triggered()
    job.complete(7)
    job.trigger()
    decline = DeclineCheckpoint(8, Reason.CHECKPOINT_DECLINED)
    assert job.step(decline) == aborted(8, Reason.CHECKPOINT_DECLINED, latest=7)


# --------------------------------------------------------------------- while it is committing


def committing() -> Job:
    job = triggered()
    [commit] = job.acknowledge(7)
    assert isinstance(commit, CommitCheckpoint)
    return job


def test_a_commit_under_way_does_not_expire() -> None:
    job = committing()
    assert job.coordinator.next_deadline_ms() is None
    assert job.step(None, 100 * TIMEOUT) == []
    assert job.step(CheckpointCommitted(7))[0] == CompleteRequest("me", 7)


@pytest.mark.parametrize(
    "event",
    [
        DeclineCheckpoint(7, Reason.CHECKPOINT_DECLINED),
        TaskFailed(A0),
        StopCheckpointScheduler(),
        Shutdown(),
    ],
)
def test_nothing_undoes_a_commit_under_way(event: Event) -> None:
    # Its state is durable; aborting would discard files that the metadata names.
    job = committing()
    assert job.step(event) == []
    assert job.step(CheckpointCommitted(7)) == [
        CompleteRequest("me", 7),
        NotifyCheckpointComplete(7, 5000, TASKS),
    ]


def test_a_commit_that_fails_aborts() -> None:
    job = committing()
    assert job.step(CommitFailed(7, "no disk")) == aborted(
        7,
        Reason.FINALIZE_CHECKPOINT_FAILURE,
        state(0),
        state(1),
        state(0),
        message="no disk",
    )


@pytest.mark.parametrize("event", [CheckpointCommitted(7), CommitFailed(7)])
def test_an_outcome_comes_once_and_for_what_is_committing(event: Event) -> None:
    with pytest.raises(InvariantViolation, match="was not committing"):
        triggered().step(event)
    job = committing()
    job.step(CheckpointCommitted(7))
    with pytest.raises(InvariantViolation, match="was not committing"):
        job.step(event)


def test_one_commit_at_a_time_the_oldest_first() -> None:
    job = triggered(max_concurrent_checkpoints=3)
    job.trigger("eight")
    job.trigger("nine")
    [commit] = job.acknowledge(8)
    assert isinstance(commit, CommitCheckpoint)
    assert commit.metadata.checkpoint_id == 8
    assert job.acknowledge(9) == []
    assert job.acknowledge(7) == []
    # What waits is older, so it is given up; what is younger commits next.
    assert job.step(CheckpointCommitted(8)) == [
        CompleteRequest("eight", 8),
        *aborted(7, Reason.CHECKPOINT_SUBSUMED, state(0), state(1), state(0), latest=8),
        NotifyCheckpointComplete(8, 5000, TASKS),
        job_commit(job, 9, "nine"),
    ]


def job_commit(job: Job, checkpoint_id: int, token: str) -> CommitCheckpoint:
    metadata = CheckpointMetadata(3, checkpoint_id, METADATA.operators)
    return CommitCheckpoint(metadata, job.properties, location(checkpoint_id), token)


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
        with pytest.raises(InvariantViolation, match="nobody asked for"):
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
