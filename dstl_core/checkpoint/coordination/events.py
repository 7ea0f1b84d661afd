"""Events that the coordinator takes and actions that it returns. Times are in milliseconds."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.coordination.pending import (
    CheckpointPlan,
    CheckpointTask,
    TaskAcknowledgeResult,
    TaskStateSnapshot,
)
from dstl_core.checkpoint.store.properties import CheckpointProperties
from dstl_core.model.checkpoint import CheckpointMetadata, MasterState, OperatorSubtaskState
from dstl_core.model.handle import ByteStreamStateHandle
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions

# ---------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class StartCheckpointScheduler:
    """Starts periodic checkpoints, the first after a delay."""

    initial_delay_ms: int


@dataclass(frozen=True, slots=True)
class StopCheckpointScheduler:
    """Stops periodic checkpoints; aborts pending and queued checkpoints."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stops all checkpoints for good."""


@dataclass(frozen=True, slots=True)
class TasksChanged:
    """Tasks were restarted. A plan of None: not all of them run."""

    plan: CheckpointPlan | None


@dataclass(frozen=True, slots=True)
class BacklogChanged:
    """A source starts or ends processing a backlog."""

    operator_id: OperatorID
    is_processing_backlog: bool


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Requests a checkpoint. The actions that answer it carry its ``token``."""

    properties: CheckpointProperties
    token: Hashable = None
    target_location: str | None = None
    is_periodic: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointInitialized:
    """``InitializeCheckpoint`` succeeded."""

    checkpoint_id: int
    timestamp: int
    target_location: str


@dataclass(frozen=True, slots=True)
class InitializationFailed:
    """``InitializeCheckpoint`` failed: there is no id, or no folder for the files."""

    reason: CheckpointFailureReason
    message: str = ""


@dataclass(frozen=True, slots=True)
class AcknowledgeCoordinatorState:
    """An operator's coordinator reports its state."""

    checkpoint_id: int
    operator_id: OperatorID
    state: ByteStreamStateHandle | None


@dataclass(frozen=True, slots=True)
class AcknowledgeMasterState:
    """A master hook reports its state."""

    checkpoint_id: int
    hook: str
    state: MasterState | None


@dataclass(frozen=True, slots=True)
class AcknowledgeCheckpoint:
    """A task made its state durable. A state of None: the task has no state."""

    checkpoint_id: int
    attempt_id: str
    state: TaskStateSnapshot | None
    job_id: JobID | None = None


@dataclass(frozen=True, slots=True)
class DeclineCheckpoint:
    """A checkpoint cannot complete. ``attempt_id`` names the task that declined it, if one did."""

    checkpoint_id: int
    reason: CheckpointFailureReason
    message: str = ""
    attempt_id: str | None = None
    job_id: JobID | None = None


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task ended with an error. Checkpoints that it has not acknowledged cannot complete."""

    attempt_id: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointCommitted:
    """The metadata is published and the commit is recorded.

    ``subsumed`` are the ids of the checkpoints that leave the store.
    """

    checkpoint_id: int
    subsumed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """The commit did not happen, and this is certain."""

    checkpoint_id: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointCleaned:
    """A ``DiscardState``, or one checkpoint of a ``DiscardSubsumed``, ended, also by an error."""


@dataclass(frozen=True, slots=True)
class ClaimLost:
    """Another owner has claimed the pipeline."""

    message: str


Event = (
    StartCheckpointScheduler
    | StopCheckpointScheduler
    | Shutdown
    | TasksChanged
    | BacklogChanged
    | TriggerCheckpoint
    | CheckpointInitialized
    | InitializationFailed
    | AcknowledgeCoordinatorState
    | AcknowledgeMasterState
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | TaskFailed
    | CheckpointCommitted
    | CommitFailed
    | CheckpointCleaned
    | ClaimLost
)
"""What a coordinator is told."""

# --------------------------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class InitializeCheckpoint:
    """Take an id and make a folder for the files."""

    properties: CheckpointProperties
    target_location: str | None


@dataclass(frozen=True, slots=True)
class TriggerOperatorCoordinators:
    """Ask the coordinators of operators for their state."""

    checkpoint_id: int
    operator_ids: tuple[OperatorID, ...]


@dataclass(frozen=True, slots=True)
class TriggerMasterHooks:
    """Ask the master hooks for their state."""

    checkpoint: CheckpointMetaData
    hooks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TriggerTasks:
    """Ask these tasks for their state."""

    checkpoint: CheckpointMetaData
    options: CheckpointOptions
    tasks: tuple[CheckpointTask, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Log the result of an acknowledgement."""

    checkpoint_id: int
    attempt_id: str
    result: TaskAcknowledgeResult


@dataclass(frozen=True, slots=True)
class CommitCheckpoint:
    """Publish the metadata and commit: all parts have acknowledged."""

    metadata: CheckpointMetadata
    properties: CheckpointProperties
    target_location: str
    token: Hashable = None


@dataclass(frozen=True, slots=True)
class CompleteRequest:
    """Give the checkpoint to the caller that requested it."""

    token: Hashable
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class FailRequest:
    """Give an error to the caller that requested the checkpoint."""

    token: Hashable
    reason: CheckpointFailureReason
    message: str = ""
    checkpoint_id: int | None = None


@dataclass(frozen=True, slots=True)
class NotifyCheckpointComplete:
    """Notify the tasks: the checkpoint completed, and it owns the files of their logs."""

    checkpoint_id: int
    timestamp: int
    tasks: tuple[CheckpointTask, ...]


@dataclass(frozen=True, slots=True)
class NotifyCheckpointSubsumed:
    """Notify the tasks: this checkpoint and all earlier ones will not be restored."""

    checkpoint_id: int
    tasks: tuple[CheckpointTask, ...]


@dataclass(frozen=True, slots=True)
class NotifyCheckpointAborted:
    """Notify the tasks: the checkpoint was aborted.

    ``latest_completed`` is the id of the last completed checkpoint, if there is one.
    """

    checkpoint_id: int
    latest_completed: int | None
    reason: CheckpointFailureReason
    message: str
    tasks: tuple[CheckpointTask, ...]


@dataclass(frozen=True, slots=True)
class RecordAbort:
    """Record that the id of an aborted checkpoint is used."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class DiscardState:
    """Delete state that was reported for a checkpoint that will not complete.

    ``target_location`` is the folder of its exclusive files, None if it is no longer known.
    ``folder_goes`` is true if the checkpoint was aborted, so that the folder is deleted too.
    ``counts`` is true if a ``CheckpointCleaned`` answers the action.
    """

    checkpoint_id: int
    states: tuple[OperatorSubtaskState, ...]
    target_location: str | None = None
    folder_goes: bool = True
    counts: bool = True


@dataclass(frozen=True, slots=True)
class DiscardSubsumed:
    """Delete checkpoints that leave the store. A ``CheckpointCleaned`` answers each of them."""

    checkpoint_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FailJob:
    """Fail the job: too many checkpoints failed, or a task cannot continue.

    ``attempt_id`` names the task that caused it, if there is one.
    """

    message: str
    attempt_id: str | None = None


Action = (
    InitializeCheckpoint
    | TriggerOperatorCoordinators
    | TriggerMasterHooks
    | TriggerTasks
    | Acknowledged
    | CommitCheckpoint
    | CompleteRequest
    | FailRequest
    | NotifyCheckpointComplete
    | NotifyCheckpointSubsumed
    | NotifyCheckpointAborted
    | RecordAbort
    | DiscardState
    | DiscardSubsumed
    | FailJob
)
"""What a coordinator asks for."""
