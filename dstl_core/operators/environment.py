"""What a subtask is given: its operator, and where it lives."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from uuid import uuid4

from dstl_core.changelog.interfaces import StateChangelogStorage
from dstl_core.clock import Clock
from dstl_core.codec.serializers import BUILT_IN, AnySerializer, SerializerRegistry
from dstl_core.config import ChangelogOptions
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange, compute_key_group_range_for_operator_index
from dstl_core.model.snapshot_type import CheckpointOptions
from dstl_core.operators.process_operator import KeySelector
from dstl_core.state.backends.changelog_backend import ValueLogging
from dstl_core.state.backends.state_backend import StateBackend
from dstl_core.state.backends.streams import CheckpointStreamFactory, FsCheckpointStreamFactory
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import JobLayout, Location

StreamsOf = Callable[[int, CheckpointOptions], CheckpointStreamFactory]
"""Gives the streams of a checkpoint id."""


@dataclass(frozen=True)
class OperatorSetup:
    """What an operator is; the same for all its subtasks.

    Args:
        uid: Stable name; its hash is the operator's id.
        key_type: Type of the key as functions see it; None for an operator without keyed state.
        key_by: Column that holds the key, or what gives the key of an element.
        parallelism: Number of subtasks.
        max_parallelism: Number of key groups.
    """

    uid: str
    key_type: AnySerializer | None
    key_by: str | KeySelector
    parallelism: int
    max_parallelism: int

    @property
    def operator_id(self) -> OperatorID:
        return OperatorID.for_uid(self.uid)

    def key_groups(self, subtask: int) -> KeyGroupRange:
        """What a subtask owns."""
        return compute_key_group_range_for_operator_index(
            self.max_parallelism, self.parallelism, subtask
        )


@dataclass(frozen=True)
class TaskEnvironment:
    """Where subtasks live.

    Args:
        state_backend: Keeps their state.
        changelog: Where their backends log; None: checkpoints hold all state.
        resolver: Reads what they restore from.
        streams: Opens streams of their checkpoints.
        clock: Processing time.
        options: Of the changelog.
        executor: Writes materializations beside the work; None: in between.
    """

    state_backend: StateBackend
    changelog: StateChangelogStorage | None
    resolver: HandleResolver
    streams: StreamsOf
    clock: Clock
    options: ChangelogOptions = field(default_factory=ChangelogOptions)
    executor: Executor | None = None
    registry: SerializerRegistry = BUILT_IN
    value_logging: ValueLogging = ValueLogging.LAST_PER_CHECKPOINT


def file_system_streams(
    layout: JobLayout,
    file_io: FileIO,
    *,
    inline_threshold: int = 20 * 1024,
    new_name: Callable[[], str] = lambda: str(uuid4()),
) -> StreamsOf:
    """Streams in the folders of a pipeline, and of savepoints wherever they go."""

    def streams(checkpoint_id: int, options: CheckpointOptions) -> CheckpointStreamFactory:
        folder = layout.checkpoint(checkpoint_id)
        if options.target_location is not None:
            folder = Location.parse(options.target_location)
        same = folder.scheme == layout.root.scheme
        return FsCheckpointStreamFactory(
            file_io if same else open_file_io(folder),
            folder,
            layout.task_owned,
            inline_threshold=inline_threshold,
            relative=options.checkpoint_type.is_savepoint,
            new_name=new_name,
        )

    return streams
