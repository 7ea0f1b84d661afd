"""The checkpoint protocol: coordinator, completed checkpoints, metadata files, retention.

A name loads its module on first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_core.checkpoint.coordination.coordinator import (
        CheckpointCoordinator as CheckpointCoordinator,
    )
    from dstl_core.checkpoint.coordination.events import (
        AcknowledgeCheckpoint as AcknowledgeCheckpoint,
        AcknowledgeCoordinatorState as AcknowledgeCoordinatorState,
        AcknowledgeMasterState as AcknowledgeMasterState,
        Acknowledged as Acknowledged,
        Action as Action,
        BacklogChanged as BacklogChanged,
        CheckpointCleaned as CheckpointCleaned,
        CheckpointCommitted as CheckpointCommitted,
        CheckpointInitialized as CheckpointInitialized,
        ClaimLost as ClaimLost,
        CommitCheckpoint as CommitCheckpoint,
        CommitFailed as CommitFailed,
        CompleteRequest as CompleteRequest,
        DeclineCheckpoint as DeclineCheckpoint,
        DiscardState as DiscardState,
        DiscardSubsumed as DiscardSubsumed,
        Event as Event,
        FailJob as FailJob,
        FailRequest as FailRequest,
        InitializationFailed as InitializationFailed,
        InitializeCheckpoint as InitializeCheckpoint,
        NotifyCheckpointAborted as NotifyCheckpointAborted,
        NotifyCheckpointComplete as NotifyCheckpointComplete,
        NotifyCheckpointSubsumed as NotifyCheckpointSubsumed,
        RecordAbort as RecordAbort,
        Shutdown as Shutdown,
        StartCheckpointScheduler as StartCheckpointScheduler,
        StopCheckpointScheduler as StopCheckpointScheduler,
        TaskFailed as TaskFailed,
        TasksChanged as TasksChanged,
        TriggerCheckpoint as TriggerCheckpoint,
        TriggerMasterHooks as TriggerMasterHooks,
        TriggerOperatorCoordinators as TriggerOperatorCoordinators,
        TriggerTasks as TriggerTasks,
    )
    from dstl_core.checkpoint.coordination.failure import (
        CheckpointFailureManager as CheckpointFailureManager,
        CheckpointFailureReason as CheckpointFailureReason,
    )
    from dstl_core.checkpoint.coordination.gateway import (
        CheckpointCoordinatorGateway as CheckpointCoordinatorGateway,
        RestoredState as RestoredState,
        TimerScheduler as TimerScheduler,
    )
    from dstl_core.checkpoint.coordination.participants import (
        CheckpointTasks as CheckpointTasks,
        MasterTriggerRestoreHook as MasterTriggerRestoreHook,
        OperatorCoordinator as OperatorCoordinator,
    )
    from dstl_core.checkpoint.coordination.pending import (
        CheckpointPlan as CheckpointPlan,
        CheckpointTask as CheckpointTask,
        OperatorPlan as OperatorPlan,
        PendingCheckpoint as PendingCheckpoint,
        TaskAcknowledgeResult as TaskAcknowledgeResult,
    )
    from dstl_core.checkpoint.store.checkpoint_storage import (
        CheckpointStorage as CheckpointStorage,
        FileSystemCheckpointStorage as FileSystemCheckpointStorage,
    )
    from dstl_core.checkpoint.store.completed_checkpoint import (
        CompletedCheckpoint as CompletedCheckpoint,
    )
    from dstl_core.checkpoint.store.completed_store import (
        CompletedCheckpointStore as CompletedCheckpointStore,
    )
    from dstl_core.checkpoint.store.epoch_facts import EpochFacts as EpochFacts
    from dstl_core.checkpoint.store.id_counter import CheckpointIDCounter as CheckpointIDCounter
    from dstl_core.checkpoint.store.properties import (
        CheckpointProperties as CheckpointProperties,
        CheckpointRetentionPolicy as CheckpointRetentionPolicy,
        JobStatus as JobStatus,
    )
    from dstl_core.clock import Clock as Clock, SystemClock as SystemClock
    from dstl_core.config import CheckpointConfig as CheckpointConfig
    from dstl_core.model.checkpoint import (
        CheckpointMetadata as CheckpointMetadata,
        OperatorState as OperatorState,
        OperatorSubtaskState as OperatorSubtaskState,
    )
    from dstl_core.model.handle import (
        ByteStreamStateHandle as ByteStreamStateHandle,
        ChangelogStateBackendHandle as ChangelogStateBackendHandle,
        FileStateHandle as FileStateHandle,
        KeyGroupRangeOffsets as KeyGroupRangeOffsets,
        KeyGroupsSavepointStateHandle as KeyGroupsSavepointStateHandle,
        KeyGroupsStateHandle as KeyGroupsStateHandle,
        OperatorStreamStateHandle as OperatorStreamStateHandle,
    )
    from dstl_core.model.ids import JobID as JobID, OperatorID as OperatorID
    from dstl_core.model.snapshot_type import (
        CheckpointMetaData as CheckpointMetaData,
        CheckpointOptions as CheckpointOptions,
        SavepointFormatType as SavepointFormatType,
    )
    from dstl_core.scheduling import ThreadScheduler as ThreadScheduler
    from dstl_core.storage.location import JobLayout as JobLayout


__getattr__, __dir__ = lazy_names(__name__)
