"""The type of a snapshot, and the options of a checkpoint that tasks receive.

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
    """With earlier and later snapshots."""
    FORWARD = "FORWARD"
    """With later snapshots only: the snapshot is self-contained when it is taken."""
    NO_SHARING = "NO_SHARING"
    """With no other snapshot."""


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
    """A checkpoint. ``FULL_CHECKPOINT`` refers to no file of an earlier snapshot."""

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
        """Whether the job stops after the savepoint."""
        return self.post_checkpoint_action is not PostCheckpointAction.NONE

    @property
    def should_drain(self) -> bool:
        """Whether the job ends event time before the savepoint, so that all timers fire."""
        return self.post_checkpoint_action is PostCheckpointAction.TERMINATE

    def __str__(self) -> str:
        return self.name


SnapshotType = CheckpointType | SavepointType


@dataclass(frozen=True, slots=True)
class CheckpointMetaData:
    """The identity of a checkpoint in progress; ``timestamp`` in milliseconds since 1970.

    ``CheckpointMetadata`` is a different class: the content of a ``_metadata`` file.
    """

    checkpoint_id: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """Options of a task's part of a checkpoint.

    ``target_location`` is the folder of exclusive files; None is the default folder of the
    checkpoint.
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
