"""What goes into the coordinator, and what comes out. All values; times are milliseconds."""

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
    """Periodic checkpoints, the first after a delay."""

    initial_delay_ms: int


@dataclass(frozen=True, slots=True)
class StopCheckpointScheduler:
    """No periodic checkpoints; what is pending or queued is aborted."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """No checkpoints any more."""


@dataclass(frozen=True, slots=True)
class TasksChanged:
    """Tasks were started anew; None: not all of them run."""

    plan: CheckpointPlan | None


@dataclass(frozen=True, slots=True)
class BacklogChanged:
    """A source works off a backlog, or has done so."""

    operator_id: OperatorID
    is_processing_backlog: bool


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Somebody wants a checkpoint. ``token`` comes back in the actions that answer it."""

    properties: CheckpointProperties
    token: Hashable = None
    target_location: str | None = None
    is_periodic: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointInitialized:
    """The answer to ``InitializeCheckpoint``."""

    checkpoint_id: int
    timestamp: int
    target_location: str


@dataclass(frozen=True, slots=True)
class InitializationFailed:
    """The other answer: no id, or no place for the files."""

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
    """A task made its state durable; None: it has none."""

    checkpoint_id: int
    attempt_id: str
    state: TaskStateSnapshot | None
    job_id: JobID | None = None


@dataclass(frozen=True, slots=True)
class DeclineCheckpoint:
    """A checkpoint cannot be; ``attempt_id`` names the task that says so, if one does."""

    checkpoint_id: int
    reason: CheckpointFailureReason
    message: str = ""
    attempt_id: str | None = None
    job_id: JobID | None = None


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task ended with an error: checkpoints that it has not acknowledged cannot be."""

    attempt_id: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointCommitted:
    """The metadata is published and the record stands. ``subsumed`` leave the store for it."""

    checkpoint_id: int
    subsumed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """The commit certainly did not happen."""

    checkpoint_id: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointCleaned:
    """One ``DiscardState`` or one of ``DiscardSubsumed`` is done, well or not."""


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

# --------------------------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class InitializeCheckpoint:
    """Take an id and make a place for the files."""

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
    """What an acknowledgement did."""

    checkpoint_id: int
    attempt_id: str
    result: TaskAcknowledgeResult


@dataclass(frozen=True, slots=True)
class CommitCheckpoint:
    """All have acknowledged: publish the metadata and commit."""

    metadata: CheckpointMetadata
    properties: CheckpointProperties
    target_location: str
    token: Hashable = None


@dataclass(frozen=True, slots=True)
class CompleteRequest:
    """Who asked for the checkpoint gets it."""

    token: Hashable
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class FailRequest:
    """Who asked for the checkpoint gets an error."""

    token: Hashable
    reason: CheckpointFailureReason
    message: str = ""
    checkpoint_id: int | None = None


@dataclass(frozen=True, slots=True)
class NotifyCheckpointComplete:
    """Tell the tasks; files of their logs belong to the checkpoint."""

    checkpoint_id: int
    timestamp: int
    tasks: tuple[CheckpointTask, ...]


@dataclass(frozen=True, slots=True)
class NotifyCheckpointSubsumed:
    """Tell the tasks; nothing up to this checkpoint will be restored."""

    checkpoint_id: int
    tasks: tuple[CheckpointTask, ...]


@dataclass(frozen=True, slots=True)
class NotifyCheckpointAborted:
    """Tell the tasks; nothing of the checkpoint is visible. ``latest_completed`` is the id of the
    last checkpoint that was, if there was one.
    """

    checkpoint_id: int
    latest_completed: int | None
    reason: CheckpointFailureReason
    message: str
    tasks: tuple[CheckpointTask, ...]


@dataclass(frozen=True, slots=True)
class RecordAbort:
    """The id is used up, though nothing came of it."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class DiscardState:
    """State that was reported for a checkpoint which will never be.

    ``target_location`` is where its exclusive files lie, None if that is not known any more;
    ``folder_goes`` that the checkpoint is given up, so that nobody needs that folder. ``counts``
    says that the action is answered with ``CheckpointCleaned``.
    """

    checkpoint_id: int
    states: tuple[OperatorSubtaskState, ...]
    target_location: str | None = None
    folder_goes: bool = True
    counts: bool = True


@dataclass(frozen=True, slots=True)
class DiscardSubsumed:
    """Checkpoints that leave the store; each is answered with ``CheckpointCleaned``."""

    checkpoint_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FailJob:
    """Checkpoints failed too often, or a task cannot go on. ``attempt_id`` names the task, if one
    is to blame.
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
