"""The log of one subtask's keyed state and the base below it, whatever form the state has.

Source of the behaviour: ``ChangelogKeyedStateBackend`` and ``ChangelogTruncateHelper`` of Flink
2.2.1. Native savepoints take no materialization id here, so an aborted one cannot hold up
materialization.
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


class CapturedState(Protocol):
    """Keyed state at one moment, which can be written while processing continues."""

    def write_canonical_to(self, sink: Callable[[bytes], object]) -> KeyGroupRangeOffsets:
        """Writes all state in canonical form; nothing if there is none."""
        ...


class ChangelogTruncateHelper:
    """Up to where the log may go: what is materialized and in no checkpoint that may be restored.

    A checkpoint may be restored until it is aborted or subsumed. That needs no notice that it
    completed: such a notice may get lost.
    """

    def __init__(self, truncate: Callable[[SequenceNumber], None]) -> None:
        self._truncate_log = truncate
        self._live: dict[int, SequenceNumber] = {}
        self._materialized = SequenceNumber(0)
        self._done = SequenceNumber(0)

    def checkpoint(self, checkpoint_id: int, from_: SequenceNumber) -> None:
        """A checkpoint names the log from a number on."""
        self._live[checkpoint_id] = from_

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._live.pop(checkpoint_id, None)
        self._truncate()

    def checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """No checkpoint up to this one is restored any more."""
        for each in [each for each in self._live if each <= checkpoint_id]:
            del self._live[each]
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
    """A full snapshot in the making: the state as it was at sequence number ``up_to``."""

    materialization_id: int
    up_to: SequenceNumber
    state: CapturedState
    log_bytes: int
    """Bytes of log that it makes superfluous."""


@dataclass
class _Base:
    """What the next checkpoint stands on."""

    materialized: tuple[KeyedStateHandle, ...]
    restored_log: tuple[ChangelogStateHandle, ...]
    materialization_id: int
    up_to: SequenceNumber
    by_checkpoint: dict[int, int] = field(default_factory=dict)


class StateChangelog:
    """A base, the logs of earlier runs on top of it, and the log of this run.

    A subclass logs the changes of one form of state: row by row, or column by column.

    Invariants:
        1. base, restored log and the writer's log from ``materialized_to`` on give the state.
        2. At most one materialization is not yet part of a completed checkpoint.
        3. The log is truncated only below what is materialized and subsumed.

    Args:
        writer: The log of this run.
        key_groups: The key groups of the subtask.
        capture: Gives the state as it is now.
        base: Handles of the materialized part that the state was restored from.
        restored_log: Handles of earlier runs' logs on top of it.
        materialization_id: Of the restored base.
        metrics: The operator's group, under which the changelog's metrics stand.
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
        """Where the log of the last checkpoint ends."""
        self.must_materialize = False
        """A restored log cannot be taken over, or a type has changed: the next checkpoint needs a
        new base first."""
        self.log_bytes = sum(handle.state_size for handle in restored_log)
        """Bytes of log on top of the base, restored ones included."""
        self.changes = 0
        """Data changes written to the log so far."""

    # ------------------------------------------------------------------------------ logging

    def flush(self) -> None:
        """Logs the changes that a subclass holds back."""

    def describe(self, state_id: int, meta: StateMetaInfoSnapshot) -> None:
        """Describes a state before its first change, and again after a materialization, so that
        the log above it stands alone. The id counts in this log only.
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
        """Logs of earlier runs that the next checkpoint still needs."""
        return self._base.restored_log

    def replace_restored_log(self, log: tuple[ChangelogStateHandle, ...]) -> None:
        """The same changes in other files, from the next checkpoint on."""
        self._base.restored_log = log

    def start_snapshot(self, checkpoint_id: int) -> Callable[[], ChangelogStateBackendHandle]:
        """Persists the log; what is returned waits and gives the handle.

        Raises:
            BackpressureTimeoutError: There was no room for the upload; nothing is lost.
        """
        if self.must_materialize:
            raise InvariantViolation("the state has to be materialized before this checkpoint")
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
        """Persists the log and waits; the handle is what the subtask acknowledges.

        Raises:
            UploadFailedError: The log could not be made durable; nothing is lost.
        """
        return self.start_snapshot(checkpoint_id)()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint owns the files of its log now."""
        persisted = self._persisted.pop(checkpoint_id, None)
        if persisted is not None:
            self._writer.confirm(*persisted, checkpoint_id)
        confirmed = self._base.by_checkpoint.get(checkpoint_id)
        if confirmed is not None:
            self._confirmed = max(self._confirmed, confirmed)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The changes stay in the log and are part of the next checkpoint."""
        persisted = self._persisted.pop(checkpoint_id, None)
        if persisted is not None:
            self._writer.reset(*persisted, checkpoint_id)
            self._truncate_helper.checkpoint_aborted(checkpoint_id)
        self._base.by_checkpoint.pop(checkpoint_id, None)

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """No checkpoint up to this one is restored any more."""
        self._forget(checkpoint_id)
        self._truncate_helper.checkpoint_subsumed(checkpoint_id)

    def _forget(self, up_to: int) -> None:
        """Notices of checkpoints up to this one do not come any more, or say nothing new."""
        for known in (self._base.by_checkpoint, self._persisted):
            for each in [each for each in known if each <= up_to]:
                del known[each]

    # ----------------------------------------------------------------------- materialization

    def start_materialization(self, *, forced: bool = False) -> Materialization | None:
        """Captures a point-in-time view that can be written while processing continues.

        Returns:
            None if nothing changed since the last one, or if that is in no completed checkpoint
            yet. ``forced`` takes one in any case.
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
        """The moment is written: checkpoints from now on stand on it."""
        left = self.log_bytes - materialization.log_bytes
        self.materialized(base, materialization.materialization_id, materialization.up_to)
        self.log_bytes = left
        self._truncate_helper.materialized(materialization.up_to)

    def fail_materialization(self, materialization: Materialization) -> None:
        """It was not written; the log goes on and another one may start."""
        self._failed = max(self._failed, materialization.materialization_id)
        self._materializations.failed()

    def materialized(
        self, base: KeyedStateHandle, materialization_id: int, up_to: SequenceNumber
    ) -> None:
        """The state up to ``up_to`` is in ``base``: later checkpoints log only what follows."""
        if materialization_id < self._base.materialization_id:
            raise InvariantViolation("an older materialization replaces a newer one")
        self._base = _Base((base,), (), materialization_id, up_to, self._base.by_checkpoint)
        self._next_materialization = max(self._next_materialization, materialization_id + 1)
        self.must_materialize = False
        self.log_bytes = 0
        self._materializations.completed()

    def init_materialization(self) -> SequenceNumber:
        """Starts a materialization: the number up to which the state, as it is now, reaches."""
        self.flush()
        self._materializations.started()
        up_to: SequenceNumber = self._writer.next_sequence_number()
        self._described.clear()
        return up_to

    def truncate(self, up_to: SequenceNumber) -> None:
        """Releases the log below ``up_to``: materialized, and in no retained checkpoint."""
        self._writer.truncate(up_to)

    # --------------------------------------------------------------------------------- close

    def close(self) -> None:
        """Ends the log; files that a checkpoint has named stay."""
        self._writer.close()

    def abandon(self) -> None:
        """Ends the log; files that no checkpoint has named go."""
        self._writer.truncate_and_close(self._highest)


def _delta_of(result: SnapshotResult[Any]) -> tuple[ChangelogStateHandle | None, int]:
    """The handle of a persist, None if it holds nothing, and its new bytes."""
    delta = result.job_manager_owned_snapshot
    match delta:
        case ChangelogStateHandleStream():
            return (delta if delta.handles_and_offsets else None), delta.incremental_size
        case InMemoryChangelogStateHandle():
            return (delta if delta.changes else None), delta.state_size
        case _:
            return None, 0
