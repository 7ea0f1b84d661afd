"""The protocol as a step function: every event in every state of one checkpoint."""

from __future__ import annotations

import pytest

from dstl_core.checkpoint.coordination.events import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinatorState,
    Acknowledged,
    AcknowledgeMasterState,
    CheckpointCleaned,
    CheckpointCommitted,
    CheckpointInitialized,
    CommitCheckpoint,
    CommitFailed,
    CompleteRequest,
    DeclineCheckpoint,
    DiscardState,
    DiscardSubsumed,
    Event,
    InitializeCheckpoint,
    NotifyCheckpointComplete,
    NotifyCheckpointSubsumed,
    Shutdown,
    StopCheckpointScheduler,
    TaskFailed,
    TriggerCheckpoint,
    TriggerMasterHooks,
    TriggerOperatorCoordinators,
    TriggerTasks,
)
from dstl_core.checkpoint.coordination.pending import (
    CheckpointPlan,
    CheckpointTask,
    OperatorPlan,
)
from dstl_core.errors import InvariantViolation
from dstl_core.model.checkpoint import (
    CheckpointMetadata,
    MasterState,
    OperatorSubtaskState,
)
from dstl_core.model.handle import (
    ByteStreamStateHandle,
)
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions, CheckpointType
from tests.unit.checkpoint.coordinator_job import (
    A0,
    A1,
    B0,
    FIRST,
    METADATA,
    OPERATORS,
    SECOND,
    TASKS,
    TIMEOUT,
    Job,
    Reason,
    Result,
    aborted,
    ack,
    location,
    state,
    triggered,
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
