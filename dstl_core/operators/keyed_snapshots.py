"""The keyed part of a subtask's checkpoints, for any form of state.

Source: ``ChangelogStateBackend`` and ``SnapshotStrategy`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from dstl_core.changelog.interfaces import StateChangelogStorage, StateChangelogWriter
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    CheckpointedStateScope,
    KeyedStateHandle,
)
from dstl_core.model.snapshot_type import (
    CheckpointOptions,
    CheckpointType,
    SavepointFormatType,
    SavepointType,
)
from dstl_core.operators.environment import OperatorSetup, TaskEnvironment
from dstl_core.state.backends.materialization import (
    PeriodicMaterializationManager,
    write_native_state,
    write_state,
)
from dstl_core.state.backends.state_changelog import CapturedState, StateChangelog
from dstl_core.state.backends.streams import CheckpointStreamFactory
from dstl_core.state.restore.carry_over import CarriedState, carry_over
from dstl_core.state.restore.compaction import compact_log, count_segments, small_segments

Log = TypeVar("Log", bound=StateChangelog)
OpenLog: TypeAlias = Callable[[StateChangelogWriter, CarriedState], Log]
"""Opens the changelog of one form of state, with a writer and the restored base and logs."""


class KeyedSnapshots(Generic[Log]):
    """Takes the keyed part of one subtask's snapshots: a base and a log, or all state. One thread.

    Args:
        setup: The setup of the operator.
        environment: The environment. Without a changelog, snapshots have all state.
        index: Index of the subtask, from 0.
        handles: The handles that the subtask restored.
        capture: Captures a point-in-time view of the state.
        open_log: Opens the changelog.
    """

    def __init__(
        self,
        setup: OperatorSetup,
        environment: TaskEnvironment,
        index: int,
        handles: tuple[KeyedStateHandle, ...],
        capture: Callable[[], CapturedState],
        open_log: OpenLog[Log],
    ) -> None:
        self._setup = setup
        self._environment = environment
        self._key_groups = setup.key_groups(index)
        self._capture = capture
        self.changelog: Log | None = None
        self.materialization: PeriodicMaterializationManager | None = None
        storage = environment.changelog
        if storage is None:
            return
        self.changelog = self._open(storage, handles, open_log)
        self.materialization = PeriodicMaterializationManager(
            self.changelog,
            environment.streams(0, CheckpointOptions(CheckpointType.CHECKPOINT)),
            environment.options,
            environment.clock,
            operator_identifier=f"{setup.uid}-{index}",
            executor=environment.executor,
        )

    def _open(
        self,
        storage: StateChangelogStorage,
        handles: tuple[KeyedStateHandle, ...],
        open_log: OpenLog[Log],
    ) -> Log:
        carried = carry_over(handles, self._key_groups)
        last_id = max(
            (
                handle.materialization_id
                for handle in handles
                if isinstance(handle, ChangelogStateBackendHandle)
            ),
            default=0,
        )
        above = (
            CarriedState((), (), last_id)
            if carried is None
            else CarriedState(carried.base, carried.log, last_id)
        )
        changelog = open_log(self._writer(storage), above)
        begins = self._environment.begins_with_base and not handles
        changelog.must_materialize = carried is None or begins
        return changelog

    def _writer(self, storage: StateChangelogStorage) -> StateChangelogWriter:
        return storage.create_writer(self._setup.uid, self._key_groups)

    def poll(self) -> None:
        """Materializes the state if a materialization is due.

        Raises:
            CheckpointError: Too many materializations failed in a row.
        """
        if self.materialization is not None:
            self.materialization.poll()

    def start(
        self, checkpoint_id: int, options: CheckpointOptions, streams: CheckpointStreamFactory
    ) -> Callable[[], KeyedStateHandle]:
        """Captures the present state; returns a function that makes it durable.

        Raises:
            StorageError, UploadFailedError: A new base, or a compacted log, could not be written.
        """
        if self.changelog is None or options.checkpoint_type.is_savepoint:
            captured = self._capture()
            if options.checkpoint_type == SavepointType.savepoint(SavepointFormatType.NATIVE):
                return lambda: write_native_state(captured, streams)
            return lambda: write_state(captured, streams, CheckpointedStateScope.EXCLUSIVE)
        is_full = options.checkpoint_type == CheckpointType.FULL_CHECKPOINT
        if self.materialization is not None and (is_full or self.changelog.must_materialize):
            # In contrast to Flink, such a checkpoint may be full: its base is written now.
            self.materialization.materialize_now()
        self._compact(self.changelog, checkpoint_id)
        return self.changelog.start_snapshot(checkpoint_id)

    def _compact(self, changelog: StateChangelog, checkpoint_id: int) -> None:
        environment = self._environment
        least = environment.options.compaction_min_segments
        log = changelog.restored_log
        start, end = small_segments(log)
        small = log[start:end]
        if environment.changelog is None or not least or count_segments(small) < least:
            return
        writer = self._writer(environment.changelog)
        reader = StateChangelogHandleReader(environment.resolver.read_segment)
        compacted = compact_log(small, reader, writer, checkpoint_id)
        changelog.replace_restored_log((*log[:start], *compacted, *log[end:]))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notes that the checkpoint completed: a failed job restores it."""
        if self.changelog is not None:
            self.changelog.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        if self.changelog is not None:
            self.changelog.notify_checkpoint_aborted(checkpoint_id)

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """Notes that checkpoints up to this one are no longer restorable."""
        if self.changelog is not None:
            self.changelog.notify_checkpoint_subsumed(checkpoint_id)

    def close(self) -> None:
        """Closes the log; files that a checkpoint references stay."""
        if self.materialization is not None:
            self.materialization.close()
        if self.changelog is not None:
            self.changelog.close()

    def abandon(self) -> None:
        """Closes the log and deletes its files that no checkpoint references."""
        if self.materialization is not None:
            self.materialization.close()
        if self.changelog is not None:
            self.changelog.abandon()
