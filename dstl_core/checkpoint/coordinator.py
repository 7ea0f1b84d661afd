"""The checkpoint protocol as a step function: events in, actions out, no threads and no I/O.

Source of the behaviour: ``CheckpointCoordinator`` and ``PendingCheckpoint`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dstl_core.checkpoint.events import (
    AcknowledgeCheckpoint,
    Action,
    CheckpointCommitted,
    CommitCheckpoint,
    DeclineCheckpoint,
    DiscardState,
    Event,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    RejectTrigger,
    TriggerCheckpoint,
    TriggerTasks,
)
from dstl_core.checkpoint.failure import CheckpointFailureReason
from dstl_core.errors import ConfigError, InvariantViolation
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import check_parallelism

METADATA_VERSION = 3
_COMMIT_FAILED = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """An operator whose subtasks have to acknowledge."""

    operator_id: OperatorID
    uid: str
    parallelism: int
    max_parallelism: int


@dataclass(slots=True)
class _PendingCheckpoint:
    """A checkpoint that waits. ``acknowledged`` is by operator and subtask."""

    checkpoint_id: int
    started_ms: int
    acknowledged: dict[tuple[OperatorID, int], OperatorSubtaskState] = field(default_factory=dict)
    committing: bool = False


class CheckpointCoordinator:
    """Takes checkpoints of a set of operators, one at a time.

    Invariants: (1) an id is used once; (2) a checkpoint is committed only after every subtask of
    every operator acknowledged it; (3) state that is acknowledged for a checkpoint which is not
    pending is discarded, never kept; (4) an outcome is told once.
    """

    def __init__(
        self, operators: list[OperatorPlan], *, next_checkpoint_id: int, timeout_ms: int
    ) -> None:
        if not operators:
            raise ConfigError("A checkpoint needs at least one operator.")
        if len({plan.operator_id for plan in operators}) < len(operators):
            raise ConfigError("Two operators of a checkpoint have the same id; give each its uid.")
        for plan in operators:
            check_parallelism(plan.parallelism, plan.max_parallelism)
        self._operators = operators
        self._next_id = next_checkpoint_id
        self._timeout_ms = timeout_ms
        self._pending: _PendingCheckpoint | None = None

    def step(self, event: Event | None, now_ms: int) -> list[Action]:
        """Takes one event (None: only time has passed) and says what to do, in order."""
        actions = self._expire(now_ms)
        match event:
            case TriggerCheckpoint():
                actions += self._trigger(now_ms)
            case AcknowledgeCheckpoint():
                actions += self._acknowledge(event)
            case DeclineCheckpoint():
                actions += self._decline(event)
            case CheckpointCommitted():
                actions += self._committed(event)
        return actions

    def _trigger(self, now_ms: int) -> list[Action]:
        if self._pending is not None:
            return [RejectTrigger(CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS)]
        self._pending = _PendingCheckpoint(self._next_id, now_ms)
        self._next_id += 1
        return [TriggerTasks(self._pending.checkpoint_id)]

    def _acknowledge(self, event: AcknowledgeCheckpoint) -> list[Action]:
        pending = self._pending_with(event.checkpoint_id)
        place = (event.operator_id, event.subtask_state.index)
        if pending is None or not self._expects(place):
            # Late, or of nobody we know: the state would linger without an owner.
            return [DiscardState(event.checkpoint_id, (event.subtask_state,))]
        if place in pending.acknowledged:
            return []
        pending.acknowledged[place] = event.subtask_state
        if len(pending.acknowledged) < sum(each.parallelism for each in self._operators):
            return []
        pending.committing = True
        return [CommitCheckpoint(self._metadata(pending))]

    def _decline(self, event: DeclineCheckpoint) -> list[Action]:
        pending = self._pending_with(event.checkpoint_id)
        if pending is None:
            return []
        # All state is durable and the commit is under way: only that commit itself can fail now.
        if pending.committing and event.reason is not _COMMIT_FAILED:
            return []
        return self._abort(event.reason, event.message)

    def _committed(self, event: CheckpointCommitted) -> list[Action]:
        pending = self._pending_with(event.checkpoint_id)
        if pending is None:
            return []
        if not pending.committing:
            raise InvariantViolation(
                f"checkpoint {event.checkpoint_id} is committed before all subtasks acknowledged"
            )
        self._pending = None
        return [NotifyCheckpointComplete(event.checkpoint_id)]

    def _metadata(self, pending: _PendingCheckpoint) -> CheckpointMetadata:
        operators = tuple(
            OperatorState(
                plan.operator_id,
                plan.parallelism,
                plan.max_parallelism,
                tuple(
                    pending.acknowledged[plan.operator_id, index]
                    for index in range(plan.parallelism)
                ),
                uid=plan.uid,
            )
            for plan in self._operators
        )
        return CheckpointMetadata(METADATA_VERSION, pending.checkpoint_id, operators)

    def _expire(self, now_ms: int) -> list[Action]:
        pending = self._pending
        if pending is None or pending.committing:
            return []
        if now_ms - pending.started_ms < self._timeout_ms:
            return []
        return self._abort(CheckpointFailureReason.CHECKPOINT_EXPIRED, "")

    def _abort(self, reason: CheckpointFailureReason, message: str) -> list[Action]:
        pending, self._pending = self._pending, None
        if pending is None:
            return []
        return [
            NotifyCheckpointAborted(pending.checkpoint_id, reason, message),
            DiscardState(pending.checkpoint_id, tuple(pending.acknowledged.values())),
        ]

    def _pending_with(self, checkpoint_id: int) -> _PendingCheckpoint | None:
        pending = self._pending
        return pending if pending and pending.checkpoint_id == checkpoint_id else None

    def _expects(self, place: tuple[OperatorID, int]) -> bool:
        operator_id, index = place
        return any(
            plan.operator_id == operator_id and 0 <= index < plan.parallelism
            for plan in self._operators
        )
