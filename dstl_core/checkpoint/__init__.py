"""The checkpoint protocol: coordinator, completed checkpoints, metadata files, retention.

A name loads its module on first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_core.checkpoint.coordination.coordinator import CheckpointCoordinator
    from dstl_core.checkpoint.coordination.events import AcknowledgeCheckpoint, DeclineCheckpoint
    from dstl_core.checkpoint.coordination.failure import (
        CheckpointFailureManager,
        CheckpointFailureReason,
    )
    from dstl_core.checkpoint.coordination.gateway import (
        CheckpointCoordinatorGateway,
        RestoredState,
        TimerScheduler,
    )
    from dstl_core.checkpoint.coordination.participants import (
        CheckpointTasks,
        MasterTriggerRestoreHook,
        OperatorCoordinator,
    )
    from dstl_core.checkpoint.coordination.pending import (
        CheckpointPlan,
        CheckpointTask,
        OperatorPlan,
        PendingCheckpoint,
        TaskAcknowledgeResult,
    )
    from dstl_core.checkpoint.store.checkpoint_storage import (
        CheckpointStorage,
        FileSystemCheckpointStorage,
    )
    from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
    from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
    from dstl_core.checkpoint.store.epoch_facts import EpochFacts
    from dstl_core.checkpoint.store.id_counter import CheckpointIDCounter
    from dstl_core.checkpoint.store.properties import (
        CheckpointProperties,
        CheckpointRetentionPolicy,
        JobStatus,
    )
    from dstl_core.clock import Clock, SystemClock
    from dstl_core.config import CheckpointConfig
    from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
    from dstl_core.model.handle import (
        ByteStreamStateHandle,
        ChangelogStateBackendHandle,
        FileStateHandle,
        KeyGroupRangeOffsets,
        KeyGroupsSavepointStateHandle,
        KeyGroupsStateHandle,
        OperatorStreamStateHandle,
    )
    from dstl_core.model.ids import JobID, OperatorID
    from dstl_core.model.snapshot_type import (
        CheckpointMetaData,
        CheckpointOptions,
        SavepointFormatType,
    )
    from dstl_core.scheduling import ThreadScheduler
    from dstl_core.storage.location import JobLayout

__all__ = [
    "AcknowledgeCheckpoint",
    "ByteStreamStateHandle",
    "ChangelogStateBackendHandle",
    "CheckpointConfig",
    "CheckpointCoordinator",
    "CheckpointCoordinatorGateway",
    "CheckpointFailureManager",
    "CheckpointFailureReason",
    "CheckpointIDCounter",
    "CheckpointMetaData",
    "CheckpointMetadata",
    "CheckpointOptions",
    "CheckpointPlan",
    "CheckpointProperties",
    "CheckpointRetentionPolicy",
    "CheckpointStorage",
    "CheckpointTask",
    "CheckpointTasks",
    "Clock",
    "CompletedCheckpoint",
    "CompletedCheckpointStore",
    "DeclineCheckpoint",
    "EpochFacts",
    "FileStateHandle",
    "FileSystemCheckpointStorage",
    "JobID",
    "JobLayout",
    "JobStatus",
    "KeyGroupRangeOffsets",
    "KeyGroupsSavepointStateHandle",
    "KeyGroupsStateHandle",
    "MasterTriggerRestoreHook",
    "OperatorCoordinator",
    "OperatorID",
    "OperatorPlan",
    "OperatorState",
    "OperatorStreamStateHandle",
    "OperatorSubtaskState",
    "PendingCheckpoint",
    "RestoredState",
    "SavepointFormatType",
    "SystemClock",
    "TaskAcknowledgeResult",
    "ThreadScheduler",
    "TimerScheduler",
]

__getattr__, __dir__ = lazy_names(__name__)
