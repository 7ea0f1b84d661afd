"""The properties of a checkpoint: its type, whether it is forced, when it is discarded.

Source: ``CheckpointProperties`` and ``CheckpointRetentionPolicy`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dstl_core.model.snapshot_type import (
    CheckpointType,
    SavepointFormatType,
    SavepointType,
    SnapshotType,
)


class CheckpointRetentionPolicy(Enum):
    """After which ends of a job its checkpoints are retained."""

    NEVER_RETAIN_AFTER_TERMINATION = "NEVER_RETAIN_AFTER_TERMINATION"
    RETAIN_ON_FAILURE = "RETAIN_ON_FAILURE"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"

    @classmethod
    def of_option(cls, retention: str) -> CheckpointRetentionPolicy:
        """The policy of ``execution.checkpointing.externalized-checkpoint-retention``."""
        return {
            "NO_EXTERNALIZED_CHECKPOINTS": cls.NEVER_RETAIN_AFTER_TERMINATION,
            "RETAIN_ON_CANCELLATION": cls.RETAIN_ON_CANCELLATION,
            "DELETE_ON_CANCELLATION": cls.RETAIN_ON_FAILURE,
        }[retention]


class JobStatus(Enum):
    """How a job ended. A suspended job continues elsewhere."""

    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True, slots=True)
class CheckpointProperties:
    """The properties of a checkpoint.

    A ``forced`` checkpoint ignores the limit of concurrent checkpoints and the minimum pause.
    ``unclaimed`` marks a restored snapshot that the pipeline does not own.
    """

    forced: bool
    checkpoint_type: SnapshotType
    discard_subsumed: bool
    discard_on: frozenset[JobStatus] = frozenset()
    unclaimed: bool = False

    @classmethod
    def for_checkpoint(cls, policy: CheckpointRetentionPolicy) -> CheckpointProperties:
        """The properties of a job's own checkpoints."""
        discard_on = {JobStatus.FINISHED}
        if policy is not CheckpointRetentionPolicy.RETAIN_ON_CANCELLATION:
            discard_on |= {JobStatus.CANCELED, JobStatus.SUSPENDED}
        if policy is CheckpointRetentionPolicy.NEVER_RETAIN_AFTER_TERMINATION:
            discard_on.add(JobStatus.FAILED)
        return cls(False, CheckpointType.CHECKPOINT, True, frozenset(discard_on))

    @classmethod
    def for_savepoint(
        cls,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
        *,
        forced: bool = True,
    ) -> CheckpointProperties:
        """The properties of a savepoint that a user requested. It is never deleted."""
        return cls(forced, SavepointType.savepoint(format_type), False)

    @classmethod
    def for_sync_savepoint(
        cls,
        *,
        terminate: bool,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
        forced: bool = True,
    ) -> CheckpointProperties:
        """The properties of a savepoint that stops a job; ``terminate`` ends event time before."""
        kind = SavepointType.terminate if terminate else SavepointType.suspend
        return cls(forced, kind(format_type), False)

    @classmethod
    def for_unclaimed_snapshot(cls) -> CheckpointProperties:
        """The properties of a snapshot that was restored in NO_CLAIM mode."""
        kind = SavepointType.savepoint(SavepointFormatType.CANONICAL)
        return cls(False, kind, False, unclaimed=True)

    @property
    def is_savepoint(self) -> bool:
        return self.checkpoint_type.is_savepoint

    @property
    def is_synchronous(self) -> bool:
        return self.checkpoint_type.is_synchronous

    def discard_on_job(self, status: JobStatus) -> bool:
        """Whether the checkpoint is deleted when the job ends like this."""
        return status in self.discard_on
