"""What goes into the coordinator, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.checkpoint.failure import CheckpointFailureReason
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorSubtaskState
from dstl_core.model.ids import OperatorID

# ---------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Somebody wants a checkpoint."""


@dataclass(frozen=True, slots=True)
class AcknowledgeCheckpoint:
    """A subtask made its state durable."""

    checkpoint_id: int
    operator_id: OperatorID
    subtask_state: OperatorSubtaskState


@dataclass(frozen=True, slots=True)
class DeclineCheckpoint:
    """A subtask, or the run around it, failed."""

    checkpoint_id: int
    reason: CheckpointFailureReason
    message: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointCommitted:
    """The metadata is published and the commit log has the record."""

    checkpoint_id: int


Event = TriggerCheckpoint | AcknowledgeCheckpoint | DeclineCheckpoint | CheckpointCommitted

# --------------------------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class TriggerTasks:
    """Ask every subtask for its state."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class CommitCheckpoint:
    """All subtasks acknowledged: publish the metadata and commit."""

    metadata: CheckpointMetadata


@dataclass(frozen=True, slots=True)
class NotifyCheckpointComplete:
    """Tell the subtasks; their log files belong to the checkpoint."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class NotifyCheckpointAborted:
    """Tell the subtasks; nothing of the checkpoint is visible."""

    checkpoint_id: int
    reason: CheckpointFailureReason
    message: str


@dataclass(frozen=True, slots=True)
class DiscardState:
    """State that was acknowledged for a checkpoint that will never be."""

    checkpoint_id: int
    subtask_states: tuple[OperatorSubtaskState, ...]


@dataclass(frozen=True, slots=True)
class RejectTrigger:
    """No checkpoint was started."""

    reason: CheckpointFailureReason


Action = (
    TriggerTasks
    | CommitCheckpoint
    | NotifyCheckpointComplete
    | NotifyCheckpointAborted
    | DiscardState
    | RejectTrigger
)
