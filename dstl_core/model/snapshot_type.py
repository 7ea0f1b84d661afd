"""What kind of snapshot a checkpoint is, and what its tasks are told.

Source: ``SnapshotType``, ``CheckpointType``, ``SavepointType``, ``CheckpointOptions`` and
``CheckpointMetaData`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


class SharingFilesStrategy(Enum):
    """Which files a snapshot may share with other snapshots."""

    FORWARD_BACKWARD = "FORWARD_BACKWARD"
    """With earlier and later ones."""
    FORWARD = "FORWARD"
    """With later ones only: it stands alone when it is taken."""
    NO_SHARING = "NO_SHARING"
    """With none."""


class SavepointFormatType(Enum):
    """CANONICAL is the same for every backend; NATIVE is the backend's own form."""

    CANONICAL = "CANONICAL"
    NATIVE = "NATIVE"


class PostCheckpointAction(Enum):
    """What the job does after a savepoint."""

    NONE = "NONE"
    SUSPEND = "SUSPEND"
    TERMINATE = "TERMINATE"


@dataclass(frozen=True, slots=True)
class CheckpointType:
    """A checkpoint. ``FULL_CHECKPOINT`` names no file of an earlier snapshot."""

    name: str
    sharing_files_strategy: SharingFilesStrategy

    CHECKPOINT: ClassVar[CheckpointType]
    FULL_CHECKPOINT: ClassVar[CheckpointType]

    @property
    def is_savepoint(self) -> bool:
        return False

    @property
    def is_synchronous(self) -> bool:
        return False

    @property
    def should_drain(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.name


CheckpointType.CHECKPOINT = CheckpointType("Checkpoint", SharingFilesStrategy.FORWARD_BACKWARD)
CheckpointType.FULL_CHECKPOINT = CheckpointType("Full Checkpoint", SharingFilesStrategy.FORWARD)


@dataclass(frozen=True, slots=True)
class SavepointType:
    """A savepoint: owned by the user, self-contained."""

    name: str
    post_checkpoint_action: PostCheckpointAction
    format_type: SavepointFormatType

    @classmethod
    def savepoint(cls, format_type: SavepointFormatType) -> SavepointType:
        return cls("Savepoint", PostCheckpointAction.NONE, format_type)

    @classmethod
    def suspend(cls, format_type: SavepointFormatType) -> SavepointType:
        return cls("Suspend Savepoint", PostCheckpointAction.SUSPEND, format_type)

    @classmethod
    def terminate(cls, format_type: SavepointFormatType) -> SavepointType:
        return cls("Terminate Savepoint", PostCheckpointAction.TERMINATE, format_type)

    @property
    def sharing_files_strategy(self) -> SharingFilesStrategy:
        return SharingFilesStrategy.NO_SHARING

    @property
    def is_savepoint(self) -> bool:
        return True

    @property
    def is_synchronous(self) -> bool:
        """Whether the job stops with it."""
        return self.post_checkpoint_action is not PostCheckpointAction.NONE

    @property
    def should_drain(self) -> bool:
        """Whether event time ends before it, so that all timers fire."""
        return self.post_checkpoint_action is PostCheckpointAction.TERMINATE

    def __str__(self) -> str:
        return self.name


SnapshotType = CheckpointType | SavepointType


@dataclass(frozen=True, slots=True)
class CheckpointMetaData:
    """The identity of a checkpoint while it is taken; ``timestamp`` in milliseconds of the epoch.

    Not to be taken for ``CheckpointMetadata``, which is the content of a ``_metadata`` file.
    """

    checkpoint_id: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """How a task takes its part of a checkpoint. ``target_location`` is the folder of exclusive
    files; None is the default one of the checkpoint id.
    """

    checkpoint_type: SnapshotType
    target_location: str | None = None

    @classmethod
    def for_checkpoint_with_default_location(cls) -> CheckpointOptions:
        return cls(CheckpointType.CHECKPOINT)

    @classmethod
    def for_savepoint(
        cls, location: str, format_type: SavepointFormatType = SavepointFormatType.CANONICAL
    ) -> CheckpointOptions:
        return cls(SavepointType.savepoint(format_type), location)
