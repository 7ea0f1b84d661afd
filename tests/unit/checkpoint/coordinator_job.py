"""A coordinator, a clock and a shell that never fails, for tests of the step function."""

from __future__ import annotations

from dstl_core.checkpoint.coordination.coordinator import CheckpointCoordinator
from dstl_core.checkpoint.coordination.events import (
    AcknowledgeCheckpoint,
    Acknowledged,
    Action,
    CheckpointCommitted,
    CheckpointInitialized,
    DiscardState,
    Event,
    FailRequest,
    InitializeCheckpoint,
    NotifyCheckpointAborted,
    RecordAbort,
    TriggerCheckpoint,
    TriggerTasks,
)
from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.coordination.pending import (
    CheckpointPlan,
    OperatorPlan,
    TaskAcknowledgeResult,
)
from dstl_core.checkpoint.store.properties import CheckpointProperties
from dstl_core.config import CheckpointConfig
from dstl_core.model.checkpoint import (
    CheckpointMetadata,
    OperatorState,
    OperatorSubtaskState,
)
from dstl_core.model.handle import (
    FileStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange

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
