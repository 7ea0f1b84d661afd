"""The changelog of one subtask's keyed state and its materialized base, for any form of state.

Source of the behaviour: ``ChangelogKeyedStateBackend`` and ``ChangelogTruncateHelper`` of Flink
2.2.1. In contrast to Flink, native savepoints take no materialization id, so an aborted savepoint
cannot delay materialization.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

from dstl_core.changelog.interfaces import StateChangelogWriter
from dstl_core.changelog.persist import SnapshotResult
from dstl_core.clock import Clock
from dstl_core.codec.change_payload import metadata_change
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import InvariantViolation
from dstl_core.metrics import MetricGroup
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandle,
    ChangelogStateHandleStream,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber
from dstl_core.state.backends.backend_metrics import (
    ChangelogMaterializationMetricGroup,
    ChangelogStateBackendMetricGroup,
)
from dstl_core.state.tables.raw_sections import RawSections


class CapturedState(Protocol):
    """A point-in-time view of keyed state, which can be written while processing continues."""

    def write_canonical_to(self, sink: Callable[[bytes], object]) -> KeyGroupRangeOffsets:
        """Writes all state in canonical form; writes nothing if there is no state."""
        ...

    def raw_sections(self) -> RawSections | None:
        """All state; None if there is no state."""
        ...


class ChangelogTruncateHelper:
    """Truncates the log up to where it is materialized and no restorable checkpoint needs it.

    A checkpoint is restorable until it is aborted or subsumed. The helper does not use
    notifications of completed checkpoints, because they may get lost.
    """

    def __init__(self, truncate: Callable[[SequenceNumber], None]) -> None:
        self._truncate_log = truncate
        self._live: dict[int, SequenceNumber] = {}
        self._materialized = SequenceNumber(0)
        self._done = SequenceNumber(0)

    def checkpoint(self, checkpoint_id: int, from_: SequenceNumber) -> None:
        """Notes that a checkpoint references the log from a sequence number on."""
        self._live[checkpoint_id] = from_

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._live.pop(checkpoint_id, None)
        self._truncate()

    def checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """Notes that checkpoints up to this one are no longer restorable."""
        for checkpoint in [each for each in self._live if each <= checkpoint_id]:
            del self._live[checkpoint]
        self._truncate()

    def materialized(self, up_to: SequenceNumber) -> None:
        self._materialized = up_to
        self._truncate()

    def _truncate(self) -> None:
        up_to = min([self._materialized, *self._live.values()])
        if up_to > self._done:
            self._truncate_log(up_to)
            self._done = up_to


@dataclass(frozen=True)
class Materialization:
    """A full snapshot that is being written: the state at sequence number ``up_to``."""

    materialization_id: int
    up_to: SequenceNumber
    state: CapturedState
    log_bytes: int
    """Bytes of log that it replaces."""


@dataclass
class _Base:
    """The base and the restored log that the next checkpoint references."""

    materialized: tuple[KeyedStateHandle, ...]
    restored_log: tuple[ChangelogStateHandle, ...]
    materialization_id: int
    up_to: SequenceNumber
    by_checkpoint: dict[int, int] = field(default_factory=dict)


class StateChangelog:
    """A base, the logs of earlier runs after it, and the log of this run.

    A subclass logs the changes of one form of state: row by row, or column by column.

    Invariants:
        1. The base, the restored log, and the writer's log from ``materialized_to`` on are together
           the state.
        2. At most one materialization is not yet part of a completed checkpoint.
        3. The log is truncated only up to where it is materialized and subsumed.

    Args:
        writer: Writes the log of this run.
        key_groups: The key groups of the subtask.
        capture: Captures a point-in-time view of the state.
        base: Handles of the restored materialized part.
        restored_log: Handles of earlier runs' logs after the base.
        materialization_id: The id of the restored base.
        metrics: The operator's group, the parent of the changelog's metrics.
        clock: Measures materializations.
    """

    def __init__(
        self,
        writer: StateChangelogWriter,
        key_groups: KeyGroupRange,
        capture: Callable[[], CapturedState],
        *,
        base: tuple[KeyedStateHandle, ...] = (),
        restored_log: tuple[ChangelogStateHandle, ...] = (),
        materialization_id: int = 0,
        metrics: MetricGroup | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._materializations = ChangelogMaterializationMetricGroup(metrics, clock)
        self._sizes = ChangelogStateBackendMetricGroup(metrics)
        self._writer = writer
        self._key_groups = key_groups
        self._capture = capture
        self._base = _Base(base, restored_log, materialization_id, writer.initial_sequence_number())
        self._described: set[int] = set()
        self._persisted: dict[int, tuple[SequenceNumber, SequenceNumber]] = {}
        self._truncate_helper = ChangelogTruncateHelper(writer.truncate)
        self._next_materialization = materialization_id + 1
        self._confirmed = materialization_id
        self._failed = -1
        self._highest = writer.initial_sequence_number()
        """The end of the log in the last checkpoint."""
        self.must_materialize = False
        """Whether the next checkpoint needs a new base: the restored log cannot be referenced
        again, or a type has changed."""
        self.log_bytes = sum(handle.state_size for handle in restored_log)
        """Bytes of log after the base, including the restored log."""
        self.changes = 0
        """Number of data changes written to the log so far."""

    # ------------------------------------------------------------------------------ logging

    def flush(self) -> None:
        """Logs the changes that a subclass has deferred."""

    def describe(self, state_id: int, meta: StateMetaInfoSnapshot) -> None:
        """Describes a state before its first change, and again after a materialization.

        So the log after a base is complete by itself. The id is valid in this log only.
        """
        if state_id not in self._described:
            self._writer.append_meta(metadata_change(state_id, meta))
            self._described.add(state_id)

    # -------------------------------------------------------------------------- checkpoints

    @property
    def base_bytes(self) -> int:
        """Bytes of the materialized part."""
        return sum(handle.state_size for handle in self._base.materialized)

    @property
    def restored_log(self) -> tuple[ChangelogStateHandle, ...]:
        """Logs of earlier runs that the next checkpoint references."""
        return self._base.restored_log

    def replace_restored_log(self, log: tuple[ChangelogStateHandle, ...]) -> None:
        """References the same changes in other files, from the next checkpoint on."""
        self._base.restored_log = log

    def start_snapshot(self, checkpoint_id: int) -> Callable[[], ChangelogStateBackendHandle]:
        """Starts to persist the log; returns a function that waits and returns the handle.

        Raises:
            BackpressureTimeoutError: The upload found no space in time; nothing is lost.
        """
        if self.must_materialize:
            raise InvariantViolation("the state must be materialized before this checkpoint")
        self.flush()
        upper = self._writer.next_sequence_number()
        base = self._base
        materialized, log = base.materialized, base.restored_log
        materialization_id, from_ = base.materialization_id, base.up_to
        future = self._writer.persist(from_, checkpoint_id)
        self._persisted[checkpoint_id] = from_, upper
        self._highest = upper
        self._truncate_helper.checkpoint(checkpoint_id, from_)
        base.by_checkpoint[checkpoint_id] = materialization_id

        def finish() -> ChangelogStateBackendHandle:
            delta, incremental = _delta_of(future.result())
            handle = ChangelogStateBackendHandle(
                materialized,
                log + ((delta,) if delta is not None else ()),
                self._key_groups,
                materialization_id,
                checkpoint_id,
                incremental,
                str(uuid4()),
            )
            self._sizes.snapshot_completed(handle)
            return handle

        return finish

    def snapshot(self, checkpoint_id: int) -> ChangelogStateBackendHandle:
        """Persists the log and waits; returns the handle that the subtask acknowledges.

        Raises:
            UploadFailedError: The log could not be made durable; nothing is lost.
        """
        return self.start_snapshot(checkpoint_id)()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notes that the checkpoint completed: it owns the files of its log now."""
        persisted = self._persisted.pop(checkpoint_id, None)
        if persisted is not None:
            self._writer.confirm(*persisted, checkpoint_id)
        confirmed = self._base.by_checkpoint.get(checkpoint_id)
        if confirmed is not None:
            self._confirmed = max(self._confirmed, confirmed)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notes that the checkpoint was aborted: its changes go into the next checkpoint."""
        persisted = self._persisted.pop(checkpoint_id, None)
        if persisted is not None:
            self._writer.reset(*persisted, checkpoint_id)
            self._truncate_helper.checkpoint_aborted(checkpoint_id)
        self._base.by_checkpoint.pop(checkpoint_id, None)

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """Notes that checkpoints up to this one are no longer restorable."""
        self._forget(checkpoint_id)
        self._truncate_helper.checkpoint_subsumed(checkpoint_id)

    def _forget(self, up_to: int) -> None:
        """Drops the data of checkpoints up to this one: further notifications change nothing."""
        for known in (self._base.by_checkpoint, self._persisted):
            for number in [each for each in known if each <= up_to]:
                del known[number]

    # ----------------------------------------------------------------------- materialization

    def start_materialization(self, *, forced: bool = False) -> Materialization | None:
        """Captures a point-in-time view that can be written while processing continues.

        Returns:
            The view. None if nothing changed since the last materialization, or if no completed
            checkpoint has that one yet. With ``forced`` it is never None.
        """
        previous = self._next_materialization - 1
        if not forced:
            if self._confirmed < previous and self._failed < previous:
                return None
            self.flush()
            unchanged = self._writer.next_sequence_number() <= self._base.up_to
            if unchanged and not self._base.restored_log:
                return None
        up_to = self.init_materialization()
        materialization_id = self._next_materialization
        self._next_materialization += 1
        return Materialization(materialization_id, up_to, self._capture(), self.log_bytes)

    def finish_materialization(
        self, materialization: Materialization, base: KeyedStateHandle
    ) -> None:
        """Uses a written materialization as the base of the next checkpoints."""
        left = self.log_bytes - materialization.log_bytes
        self.materialized(base, materialization.materialization_id, materialization.up_to)
        self.log_bytes = left
        self._truncate_helper.materialized(materialization.up_to)

    def fail_materialization(self, materialization: Materialization) -> None:
        """Drops a failed materialization; the log is unchanged, and another one may start."""
        self._failed = max(self._failed, materialization.materialization_id)
        self._materializations.failed()

    def materialized(
        self, base: KeyedStateHandle, materialization_id: int, up_to: SequenceNumber
    ) -> None:
        """Sets the base, which has the state up to ``up_to``. The log keeps later changes."""
        if materialization_id < self._base.materialization_id:
            raise InvariantViolation("an older materialization replaces a newer one")
        self._base = _Base((base,), (), materialization_id, up_to, self._base.by_checkpoint)
        self._next_materialization = max(self._next_materialization, materialization_id + 1)
        self.must_materialize = False
        self.log_bytes = 0
        self._materializations.completed()

    def init_materialization(self) -> SequenceNumber:
        """Starts a materialization; returns the sequence number of the present state."""
        self.flush()
        self._materializations.started()
        up_to: SequenceNumber = self._writer.next_sequence_number()
        self._described.clear()
        return up_to

    def truncate(self, up_to: SequenceNumber) -> None:
        """Releases the log below ``up_to``, which no retained checkpoint needs."""
        self._writer.truncate(up_to)

    # --------------------------------------------------------------------------------- close

    def close(self) -> None:
        """Closes the log; files that a checkpoint references stay."""
        self._writer.close()

    def abandon(self) -> None:
        """Closes the log and deletes its files that no checkpoint references."""
        self._writer.truncate_and_close(self._highest)


def _delta_of(result: SnapshotResult[Any]) -> tuple[ChangelogStateHandle | None, int]:
    """The handle of a persist, None if it has no changes, and its number of new bytes."""
    delta = result.job_manager_owned_snapshot
    match delta:
        case ChangelogStateHandleStream():
            return (delta if delta.handles_and_offsets else None), delta.incremental_size
        case InMemoryChangelogStateHandle():
            return (delta if delta.changes else None), delta.state_size
        case _:
            return None, 0
