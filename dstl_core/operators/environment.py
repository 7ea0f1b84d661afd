"""The setup of an operator and the environment of its subtasks."""

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
"""Returns the stream factory of a checkpoint, by its id and options."""


@dataclass(frozen=True)
class OperatorSetup:
    """The setup of an operator. All its subtasks have the same.

    Args:
        uid: Stable name; its hash is the operator's id.
        key_type: Type of the key as functions see it; None for an operator without keyed state.
        key_by: Column with the key, or a function that returns the key of an element.
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
        return compute_key_group_range_for_operator_index(
            self.max_parallelism, self.parallelism, subtask
        )


@dataclass(frozen=True)
class TaskEnvironment:
    """The environment of subtasks.

    Args:
        state_backend: Makes the backends that store their state.
        changelog: The storage of their changelogs; None: checkpoints have all state.
        resolver: Reads the files that they restore.
        streams: Opens the streams of their checkpoints.
        clock: Gives processing time.
        options: Options of the changelog.
        executor: Writes materializations on another thread; None: on the subtask's thread.
        begins_with_base: Whether the first checkpoint of a subtask without state has a base: a log
            alone does not say the type of the key.
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
    begins_with_base: bool = False


def file_system_streams(
    layout: JobLayout,
    file_io: FileIO,
    *,
    inline_threshold: int = 20 * 1024,
    new_name: Callable[[], str] = lambda: str(uuid4()),
) -> StreamsOf:
    """Streams in the folders of a pipeline; streams of savepoints in their target folders."""

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
