"""A backend whose every mutation goes to a changelog; a checkpoint persists only the log.

Source of the behaviour: ``ChangelogKeyedStateBackend``, ``StateChangeLogger`` and
``ChangelogTruncateHelper`` of Flink 2.2.1. Native savepoints take no materialization id here, so an
aborted one cannot hold up materialization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import compress, repeat
from typing import Any
from uuid import uuid4

from dstl_core.changelog.interfaces import StateChangelogWriter
from dstl_core.changelog.persist import SnapshotResult
from dstl_core.clock import Clock
from dstl_core.codec.change_payload import StateChangeOperation, data_change, metadata_change
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import InvariantViolation
from dstl_core.metrics import MetricGroup
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandle,
    ChangelogStateHandleStream,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
)
from dstl_core.model.sequence import SequenceNumber
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.backend_metrics import (
    ChangelogMaterializationMetricGroup,
    ChangelogStateBackendMetricGroup,
)
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.state_table import ValueTable

MAX_DIRTY = 200_000
"""Changed values that wait for the checkpoint at most; more are logged at once."""


_BY_COLUMNS_FROM = 10_000
"""Below it the kernels cost more to load than they save; also how many are logged at once."""


class ValueLogging(Enum):
    """Which updates of a value state reach the changelog."""

    LAST_PER_CHECKPOINT = "last"
    """The last one of each key: what a restore needs."""
    EVERY = "every"
    """All of them, for readers of the log."""


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
    state: KeyedState
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


class ChangelogKeyedStateBackend:
    """Logs every mutation of a backend.

    Invariants:
        1. base, restored log and the writer's log from ``materialized_to`` on give the state.
        2. At most one materialization is not yet part of a completed checkpoint.
        3. The log is truncated only below what is materialized and subsumed.

    Args:
        delegate: Holds the state itself.
        writer: The log of this run.
        base: Handles of the materialized part that the state was restored from.
        restored_log: Handles of earlier runs' logs on top of it.
        materialization_id: Of the restored base.
        value_logging: Which updates of a value reach the log.
        metrics: The operator's group, under which the changelog's metrics stand.
        clock: Measures materializations.
    """

    def __init__(
        self,
        delegate: KeyedStateBackend,
        writer: StateChangelogWriter,
        *,
        base: tuple[KeyedStateHandle, ...] = (),
        restored_log: tuple[ChangelogStateHandle, ...] = (),
        materialization_id: int = 0,
        value_logging: ValueLogging = ValueLogging.LAST_PER_CHECKPOINT,
        metrics: MetricGroup | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._materializations = ChangelogMaterializationMetricGroup(metrics, clock)
        self._sizes = ChangelogStateBackendMetricGroup(metrics)
        self.delegate = delegate
        self._writer = writer
        self._base = _Base(base, restored_log, materialization_id, writer.initial_sequence_number())
        self._value_logging = value_logging
        self._state_ids: dict[int, int] = {}
        self._metas: list[StateMetaInfoSnapshot] = []
        self._described: set[int] = set()
        self._dirty: dict[tuple[int, int, bytes], ValueTable] = {}
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
        self.changed_scopes: set[bytes] = set()
        """The keys (with namespace) whose state changed so far."""
        delegate.logger = self

    # ------------------------------------------------------------------------------ logging

    def value_updated(self, table: ValueTable, key_group: int, scope: bytes) -> None:
        if self._value_logging is ValueLogging.EVERY:
            self._log_value(table, key_group, scope)
            return
        self._dirty[id(table), key_group, scope] = table
        if len(self._dirty) > MAX_DIRTY:
            self._flush_dirty()

    def values_updated(
        self, table: ValueTable, key_groups: Sequence[int], scopes: Sequence[bytes]
    ) -> None:
        if self._value_logging is ValueLogging.EVERY:
            # A key that comes twice in a batch has one value after it.
            places = dict.fromkeys(zip(key_groups, scopes, strict=True))
            self._log_values(table, list(places))
            return
        self._dirty.update(
            dict.fromkeys(zip(repeat(id(table)), key_groups, scopes, strict=False), table)
        )
        if len(self._dirty) > MAX_DIRTY:
            self._flush_dirty()

    def logged_batch(
        self,
        meta: StateMetaInfoSnapshot,
        operation: StateChangeOperation,
        key_groups: Sequence[int],
        scopes: Sequence[bytes],
        operands: Sequence[bytes],
    ) -> None:
        head = data_change(operation, self._described_id(meta), b"")
        changes = [head + scope + operand for scope, operand in zip(scopes, operands, strict=True)]
        self._writer.append_batch(key_groups, changes)
        self.changes += len(changes)
        self.log_bytes += sum(map(len, changes))
        self.changed_scopes.update(scopes)

    def logged(
        self,
        meta: StateMetaInfoSnapshot,
        key_group: int,
        operation: StateChangeOperation,
        scope: bytes,
        operands: bytes,
    ) -> None:
        change = data_change(operation, self._described_id(meta), scope, operands)
        self._writer.append(key_group, change)
        self.changes += 1
        self.log_bytes += len(change)
        if scope:
            self.changed_scopes.add(scope)

    def _described_id(self, meta: StateMetaInfoSnapshot) -> int:
        """The id of a state, which counts in this log only. It is described before its first
        change, and again after a materialization, so that the log above it stands alone.
        """
        state_id = self._state_ids.get(id(meta))
        if state_id is None:
            state_id = self._state_ids[id(meta)] = len(self._state_ids)
            self._metas.append(meta)  # an id() holds only while its object lives
        if state_id not in self._described:
            self._writer.append_meta(metadata_change(state_id, meta))
            self._described.add(state_id)
        return state_id

    def migrated(self, meta: StateMetaInfoSnapshot) -> None:
        # The log so far holds values of the old type; one log has one type for a state.
        self.must_materialize = True

    def _log_value(self, table: ValueTable, key_group: int, scope: bytes) -> None:
        value = table.group(key_group).get(scope)
        if value is None:
            self.logged(table.meta, key_group, StateChangeOperation.CLEAR, scope, b"")
            return
        self.logged(table.meta, key_group, _set_operation(table), scope, value)

    def _log_values(self, table: ValueTable, places: Sequence[tuple[int, bytes]]) -> None:
        """As ``_log_value`` for each place, by columns."""
        key_groups, scopes = [each[0] for each in places], [each[1] for each in places]
        values = table.get_many(key_groups, scopes)
        there = [value is not None for value in values]
        gone = [value is None for value in values]
        for operation, chosen, operands in (
            (_set_operation(table), there, [each for each in values if each is not None]),
            (StateChangeOperation.CLEAR, gone, [b""] * sum(gone)),
        ):
            if operands:
                self.logged_batch(
                    table.meta,
                    operation,
                    list(compress(key_groups, chosen)),
                    list(compress(scopes, chosen)),
                    operands,
                )

    def _flush_dirty(self) -> None:
        # Each is forgotten only when it is logged: the log may refuse half-way, and a checkpoint
        # later must have the rest.
        dirty = list(self._dirty.items())
        if len(dirty) < _BY_COLUMNS_FROM:
            for place, table in dirty:
                _, key_group, scope = place
                self._log_value(table, key_group, scope)
                del self._dirty[place]
            return
        tables = {id(table): table for _, table in dirty}
        for table in tables.values():
            places = [place for place, _ in dirty if place[0] == id(table)]
            for start in range(0, len(places), _BY_COLUMNS_FROM):
                part = places[start : start + _BY_COLUMNS_FROM]
                self._log_values(table, [place[1:] for place in part])
                for place in part:
                    del self._dirty[place]

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
        self._flush_dirty()
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
                self.delegate.state.key_groups,
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
            self._flush_dirty()
            unchanged = self._writer.next_sequence_number() <= self._base.up_to
            if unchanged and not self._base.restored_log:
                return None
        up_to = self.init_materialization()
        materialization_id = self._next_materialization
        self._next_materialization += 1
        state = self.delegate.state.capture(self.delegate.expired_filter())
        return Materialization(materialization_id, up_to, state, self.log_bytes)

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
        self._flush_dirty()
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


def _set_operation(table: ValueTable) -> StateChangeOperation:
    is_plain = table.meta.keyed_state_type is KeyedStateType.VALUE
    return StateChangeOperation.SET if is_plain else StateChangeOperation.SET_INTERNAL


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
