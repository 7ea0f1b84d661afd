"""What holds for a checkpoint: its type, whether it is forced, when it is discarded.

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
    """Which ends of a job leave its checkpoints."""

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
    """How a job ended. A suspended one goes on elsewhere."""

    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True, slots=True)
class CheckpointProperties:
    """One set of rules for a checkpoint.

    ``forced`` ones ignore the limits of concurrency and the pause. ``unclaimed`` marks a snapshot
    that was restored and belongs to another owner.
    """

    forced: bool
    checkpoint_type: SnapshotType
    discard_subsumed: bool
    discard_on: frozenset[JobStatus] = frozenset()
    unclaimed: bool = False

    @classmethod
    def for_checkpoint(cls, policy: CheckpointRetentionPolicy) -> CheckpointProperties:
        """A checkpoint of the job's own."""
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
        """A savepoint that the user asked for. It is never deleted."""
        return cls(forced, SavepointType.savepoint(format_type), False)

    @classmethod
    def for_sync_savepoint(
        cls,
        *,
        terminate: bool,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
        forced: bool = True,
    ) -> CheckpointProperties:
        """The savepoint with which a job stops; ``terminate`` ends event time before it."""
        kind = SavepointType.terminate if terminate else SavepointType.suspend
        return cls(forced, kind(format_type), False)

    @classmethod
    def for_unclaimed_snapshot(cls) -> CheckpointProperties:
        """A snapshot that was restored in the mode NO_CLAIM."""
        kind = SavepointType.savepoint(SavepointFormatType.CANONICAL)
        return cls(False, kind, False, unclaimed=True)

    @property
    def is_savepoint(self) -> bool:
        return self.checkpoint_type.is_savepoint

    @property
    def is_synchronous(self) -> bool:
        return self.checkpoint_type.is_synchronous

    def discard_on_job(self, status: JobStatus) -> bool:
        """Whether the end of the job deletes it."""
        return status in self.discard_on
