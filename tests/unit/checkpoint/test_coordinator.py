"""The protocol as a step function: every event in every state."""

from __future__ import annotations

import pytest

from dstl_core.checkpoint.coordinator import CheckpointCoordinator, OperatorPlan
from dstl_core.checkpoint.events import (
    AcknowledgeCheckpoint,
    Action,
    CheckpointCommitted,
    CommitCheckpoint,
    DeclineCheckpoint,
    DiscardState,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    RejectTrigger,
    TriggerCheckpoint,
    TriggerTasks,
)
from dstl_core.checkpoint.failure import CheckpointFailureReason
from dstl_core.errors import ConfigError, InvariantViolation
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    FileStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange

FIRST, SECOND = OperatorID.for_uid("first"), OperatorID.for_uid("second")
PLANS = [OperatorPlan(FIRST, "first", 2, 128), OperatorPlan(SECOND, "second", 1, 64)]
TIMEOUT = 1000
TASK_FAILURE = CheckpointFailureReason.TASK_FAILURE
FINALIZE = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE


def coordinator(next_id: int = 7) -> CheckpointCoordinator:
    return CheckpointCoordinator(PLANS, next_checkpoint_id=next_id, timeout_ms=TIMEOUT)


def state(index: int, name: str = "file") -> OperatorSubtaskState:
    offsets = KeyGroupRangeOffsets(KeyGroupRange(0, 0), (5,))
    handle = KeyGroupsSavepointStateHandle(offsets, FileStateHandle(f"file:/{name}-{index}", 9))
    return OperatorSubtaskState(index, managed_keyed_state=handle)


def ack(
    checkpoint_id: int, operator_id: OperatorID, index: int, name: str = "file"
) -> AcknowledgeCheckpoint:
    return AcknowledgeCheckpoint(checkpoint_id, operator_id, state(index, name))


def triggered() -> CheckpointCoordinator:
    found = coordinator()
    assert found.step(TriggerCheckpoint(), 0) == [TriggerTasks(7)]
    return found


def acknowledged() -> tuple[CheckpointCoordinator, list[Action]]:
    found = triggered()
    assert found.step(ack(7, FIRST, 1), 1) == []
    assert found.step(ack(7, SECOND, 0), 2) == []
    return found, found.step(ack(7, FIRST, 0), 3)


METADATA = CheckpointMetadata(
    3,
    7,
    (
        OperatorState(FIRST, 2, 128, (state(0), state(1)), uid="first"),
        OperatorState(SECOND, 1, 64, (state(0),), uid="second"),
    ),
)


def test_a_checkpoint_commits_when_the_last_subtask_acknowledged() -> None:
    found, actions = acknowledged()
    assert actions == [CommitCheckpoint(METADATA)]
    assert found.step(CheckpointCommitted(7), 4) == [NotifyCheckpointComplete(7)]
    assert found.step(TriggerCheckpoint(), 5) == [TriggerTasks(8)]


def test_one_at_a_time() -> None:
    found = triggered()
    reason = CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS
    assert found.step(TriggerCheckpoint(), 1) == [RejectTrigger(reason)]
    assert reason.is_pre_flight


def test_a_duplicate_acknowledgement_counts_once_and_keeps_its_state() -> None:
    found = triggered()
    found.step(ack(7, FIRST, 0), 1)
    assert found.step(ack(7, FIRST, 0), 2) == []
    assert found.step(ack(7, FIRST, 0, "other attempt"), 2) == []
    assert found.step(ack(7, FIRST, 1), 3) == []
    assert found.step(ack(7, SECOND, 0), 4) == [CommitCheckpoint(METADATA)]
    # Again while it commits: nothing is committed twice, and nothing that is named goes.
    assert found.step(ack(7, SECOND, 0), 5) == []


@pytest.mark.parametrize(
    "event",
    [
        ack(7, OperatorID.for_uid("nobody"), 0),
        ack(7, FIRST, 2),
        ack(7, SECOND, 1),
        ack(7, FIRST, -1),
        ack(6, FIRST, 0),
        ack(8, FIRST, 0),
    ],
)
def test_an_unknown_acknowledgement_is_discarded(event: AcknowledgeCheckpoint) -> None:
    found = triggered()
    assert found.step(event, 1) == [DiscardState(event.checkpoint_id, (event.subtask_state,))]
    found.step(ack(7, FIRST, 0), 2)
    found.step(ack(7, FIRST, 1), 2)
    assert found.step(ack(7, SECOND, 0), 3) == [CommitCheckpoint(METADATA)]


def test_a_late_acknowledgement_is_discarded() -> None:
    found = triggered()
    found.step(DeclineCheckpoint(7, TASK_FAILURE), 1)
    assert found.step(ack(7, FIRST, 0), 2) == [DiscardState(7, (state(0),))]
    fresh = coordinator()
    assert fresh.step(ack(7, FIRST, 0), 0) == [DiscardState(7, (state(0),))]


def test_a_decline_aborts_and_discards_what_was_acknowledged() -> None:
    found = triggered()
    found.step(ack(7, FIRST, 1), 1)
    assert found.step(DeclineCheckpoint(7, TASK_FAILURE, "no disk"), 2) == [
        NotifyCheckpointAborted(7, TASK_FAILURE, "no disk"),
        DiscardState(7, (state(1),)),
    ]
    assert found.step(DeclineCheckpoint(7, TASK_FAILURE), 3) == []
    # The id is used up.
    assert found.step(TriggerCheckpoint(), 4) == [TriggerTasks(8)]


@pytest.mark.parametrize("checkpoint_id", [6, 8])
def test_a_decline_of_another_checkpoint_changes_nothing(checkpoint_id: int) -> None:
    found = triggered()
    assert found.step(DeclineCheckpoint(checkpoint_id, TASK_FAILURE), 1) == []
    assert found.step(TriggerCheckpoint(), 2)[0] != TriggerTasks(8)


def test_a_checkpoint_expires() -> None:
    found = triggered()
    found.step(ack(7, FIRST, 0), 1)
    assert found.step(None, TIMEOUT - 1) == []
    assert found.step(None, TIMEOUT) == [
        NotifyCheckpointAborted(7, CheckpointFailureReason.CHECKPOINT_EXPIRED, ""),
        DiscardState(7, (state(0),)),
    ]
    assert found.step(None, 10 * TIMEOUT) == []


def test_the_acknowledgement_that_finds_it_expired_is_late() -> None:
    found = triggered()
    found.step(ack(7, FIRST, 0), 1)
    found.step(ack(7, FIRST, 1), 1)
    assert found.step(ack(7, SECOND, 0), TIMEOUT) == [
        NotifyCheckpointAborted(7, CheckpointFailureReason.CHECKPOINT_EXPIRED, ""),
        DiscardState(7, (state(0), state(1))),
        DiscardState(7, (state(0),)),
    ]


def test_a_trigger_that_finds_it_expired_starts_the_next() -> None:
    found = triggered()
    actions = found.step(TriggerCheckpoint(), TIMEOUT)
    assert actions[-1] == TriggerTasks(8)
    assert isinstance(actions[0], NotifyCheckpointAborted)


# -------------------------------------------------------------------- while it is committing


def test_a_commit_under_way_does_not_expire() -> None:
    found, _ = acknowledged()
    assert found.step(None, 100 * TIMEOUT) == []
    assert found.step(CheckpointCommitted(7), 100 * TIMEOUT) == [NotifyCheckpointComplete(7)]


def test_a_task_that_fails_after_its_acknowledgement_does_not_undo_the_commit() -> None:
    # Its state is durable; aborting would discard files that the metadata names.
    found, _ = acknowledged()
    assert found.step(DeclineCheckpoint(7, TASK_FAILURE), 4) == []
    assert found.step(CheckpointCommitted(7), 5) == [NotifyCheckpointComplete(7)]


def test_a_commit_that_fails_aborts() -> None:
    found, _ = acknowledged()
    actions = found.step(DeclineCheckpoint(7, FINALIZE, "no disk"), 4)
    assert actions[0] == NotifyCheckpointAborted(7, FINALIZE, "no disk")
    assert actions[1:] == [DiscardState(7, (state(1), state(0), state(0)))]
    assert found.step(CheckpointCommitted(7), 5) == []


def test_an_outcome_is_told_once() -> None:
    found, _ = acknowledged()
    found.step(CheckpointCommitted(7), 4)
    assert found.step(CheckpointCommitted(7), 5) == []
    assert found.step(DeclineCheckpoint(7, FINALIZE), 6) == []


def test_a_commit_before_all_acknowledged_is_a_bug() -> None:
    found = triggered()
    with pytest.raises(InvariantViolation, match="before all subtasks acknowledged"):
        found.step(CheckpointCommitted(7), 1)


# ------------------------------------------------------------------------------------ plans


@pytest.mark.parametrize(
    ("plans", "problem"),
    [
        ([], "at least one operator"),
        ([PLANS[0], OperatorPlan(FIRST, "again", 1, 128)], "the same id"),
        ([OperatorPlan(FIRST, "first", 0, 128)], "not within bounds: 0"),
        ([OperatorPlan(FIRST, "first", 129, 128)], "smaller than parallelism"),
    ],
)
def test_plans_that_could_never_complete(plans: list[OperatorPlan], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        CheckpointCoordinator(plans, next_checkpoint_id=1, timeout_ms=TIMEOUT)


def test_every_reason_has_a_sentence() -> None:
    for reason in CheckpointFailureReason:
        assert reason.message
        assert reason.is_pre_flight in (True, False)
