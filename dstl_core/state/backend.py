"""Keyed state backends: in memory, and in memory with a changelog.

Source of the behaviour: ``HeapKeyedStateBackend``, ``ChangelogKeyedStateBackend`` and
``StateChangeLogger`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Protocol
from uuid import uuid4

from dstl_core.changelog.ledger import FsSnapshotResult
from dstl_core.changelog.writer import FsStateChangelogWriter
from dstl_core.codec.change_payload import StateChangeOperation, data_change, metadata_change
from dstl_core.codec.serializers import AnySerializer, deserialize_exactly, serialize_to_bytes
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import ConfigError, InvariantViolation, RestoreError
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandle,
    KeyedStateHandle,
)
from dstl_core.model.key_group import assign_to_key_group
from dstl_core.model.sequence import SequenceNumber
from dstl_core.state.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.state.keyed_state import KeyedState
from dstl_core.state.table import ListTable, ValueTable, counted_elements, join_elements

_VOID_NAMESPACE = b"\0"


class StateChangeLogger(Protocol):
    """Told of every mutation, after it happened."""

    def value_updated(self, table: ValueTable, key_group: int, scope: bytes) -> None: ...

    def logged(
        self,
        meta: StateMetaInfoSnapshot,
        key_group: int,
        operation: StateChangeOperation,
        scope: bytes,
        operands: bytes,
    ) -> None: ...


class HashMapKeyedStateBackend:
    """The state of one subtask in memory. One thread; a current key at a time."""

    def __init__(self, state: KeyedState, key_serializer: AnySerializer) -> None:
        if state.key_serializer is None:
            state.key_serializer = key_serializer
        elif state.key_serializer != key_serializer:
            raise RestoreError(
                f"The key has another type: expected {state.key_serializer.type_name} (from the "
                f"restored state), got {key_serializer.type_name}."
            )
        self.state = state
        self.logger: StateChangeLogger | None = None
        self.current_key_group = -1
        self.current_scope = b""
        self._key_serializer = key_serializer

    def set_current_key(self, key: Any) -> None:
        """The key that all state accesses speak of until the next call.

        Raises:
            ConfigError: A null key, or one of another subtask.
        """
        if key is None:
            raise ConfigError("A key is null; keyed state needs a key.")
        raw = serialize_to_bytes(self._key_serializer, key)
        key_group = assign_to_key_group(
            self._key_serializer.java_hash(key), self.state.max_parallelism
        )
        if not self.state.key_groups.contains(key_group):
            raise ConfigError(
                f"A key of key group {key_group} came to the subtask of key groups "
                f"{self.state.key_groups}."
            )
        self.current_key_group = key_group
        self.current_scope = raw + _VOID_NAMESPACE

    def get_value_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """The value state of a descriptor, made if it is new."""
        table = self.state.table(descriptor.meta_info(), self._key_serializer)
        if not isinstance(table, ValueTable):
            raise InvariantViolation(f"{descriptor} has a table of another kind")
        return ValueState(self, table)

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """The list state of a descriptor, made if it is new."""
        table = self.state.table(descriptor.meta_info(), self._key_serializer)
        if not isinstance(table, ListTable):
            raise InvariantViolation(f"{descriptor} has a table of another kind")
        return ListState(self, table)


class ValueState:
    """One value for the current key; None is "no value"."""

    def __init__(self, backend: HashMapKeyedStateBackend, table: ValueTable) -> None:
        self._backend = backend
        self._table = table
        self._serializer = table.meta.value_serializer

    def value(self) -> Any:
        backend = self._backend
        stored = self._table.group(backend.current_key_group).get(backend.current_scope)
        return None if stored is None else deserialize_exactly(self._serializer, stored)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        backend = self._backend
        raw = serialize_to_bytes(self._serializer, value)
        self._table.group(backend.current_key_group)[backend.current_scope] = raw
        self._log(backend)

    def clear(self) -> None:
        backend = self._backend
        self._table.group(backend.current_key_group).pop(backend.current_scope, None)
        self._log(backend)

    def _log(self, backend: HashMapKeyedStateBackend) -> None:
        if backend.logger is not None:
            backend.logger.value_updated(
                self._table, backend.current_key_group, backend.current_scope
            )


class ListState:
    """A list for the current key; an empty list is "no list"."""

    def __init__(self, backend: HashMapKeyedStateBackend, table: ListTable) -> None:
        self._backend = backend
        self._table = table
        self._element = table.element

    def get(self) -> list[Any]:
        backend = self._backend
        stored = self._table.group(backend.current_key_group).get(backend.current_scope)
        return [] if stored is None else self._table.read_elements(stored)

    def add(self, element: Any) -> None:
        backend = self._backend
        raw = serialize_to_bytes(self._element, element)
        self._table.add(backend.current_key_group, backend.current_scope, raw)
        self._log(StateChangeOperation.ADD_ELEMENT, raw)

    def add_all(self, elements: Iterable[Any]) -> None:
        raw = [serialize_to_bytes(self._element, element) for element in elements]
        if not raw:
            return
        backend = self._backend
        for each in raw:
            self._table.add(backend.current_key_group, backend.current_scope, each)
        self._log(StateChangeOperation.ADD, counted_elements(raw))

    def update(self, elements: Iterable[Any]) -> None:
        raw = [serialize_to_bytes(self._element, element) for element in elements]
        if not raw:
            self.clear()
            return
        backend = self._backend
        group = self._table.group(backend.current_key_group)
        group[backend.current_scope] = join_elements(raw)
        self._log(StateChangeOperation.SET, counted_elements(raw))

    def clear(self) -> None:
        backend = self._backend
        self._table.group(backend.current_key_group).pop(backend.current_scope, None)
        self._log(StateChangeOperation.CLEAR, b"")

    def _log(self, operation: StateChangeOperation, operands: bytes) -> None:
        backend = self._backend
        if backend.logger is not None:
            backend.logger.logged(
                self._table.meta,
                backend.current_key_group,
                operation,
                backend.current_scope,
                operands,
            )


class ValueLogging(Enum):
    """Which updates of a value state reach the changelog."""

    LAST_PER_CHECKPOINT = "last"
    """The last one of each key: what a restore needs."""
    EVERY = "every"
    """All of them, for readers of the log."""


class ChangelogKeyedStateBackend:
    """A backend whose every mutation goes to a changelog; a checkpoint persists only the log.

    Args:
        delegate: Holds the state itself.
        writer: The log of this run.
        base: Handles of the materialized part that the state was restored from.
        restored_log: Handles of earlier runs' logs on top of it.
    """

    def __init__(
        self,
        delegate: HashMapKeyedStateBackend,
        writer: FsStateChangelogWriter,
        *,
        base: tuple[KeyedStateHandle, ...] = (),
        restored_log: tuple[ChangelogStateHandle, ...] = (),
        materialization_id: int = 0,
        value_logging: ValueLogging = ValueLogging.LAST_PER_CHECKPOINT,
    ) -> None:
        self._delegate = delegate
        self._writer = writer
        self._base = base
        self._restored_log = restored_log
        self._materialization_id = materialization_id
        self._value_logging = value_logging
        self._materialized_to = writer.initial_sequence_number()
        self._state_ids: dict[int, int] = {}
        self._described: set[int] = set()
        self._dirty: dict[tuple[int, int, bytes], ValueTable] = {}
        self._last_persist: tuple[SequenceNumber, SequenceNumber] | None = None
        self.changes = 0
        """Data changes written to the log so far."""
        self.changed_scopes: set[bytes] = set()
        """The keys (with namespace) whose state changed so far."""
        delegate.logger = self

    # ------------------------------------------------------------------------------ logging

    def value_updated(self, table: ValueTable, key_group: int, scope: bytes) -> None:
        if self._value_logging is ValueLogging.EVERY:
            self._log_value(table, key_group, scope)
        else:
            self._dirty[id(table), key_group, scope] = table

    def logged(
        self,
        meta: StateMetaInfoSnapshot,
        key_group: int,
        operation: StateChangeOperation,
        scope: bytes,
        operands: bytes,
    ) -> None:
        # A state's id counts in this log only. It is described before its first change, and again
        # after a materialization, so that the log above it stands alone.
        state_id = self._state_ids.setdefault(id(meta), len(self._state_ids))
        if state_id not in self._described:
            self._writer.append_meta(metadata_change(state_id, meta))
            self._described.add(state_id)
        self._writer.append(key_group, data_change(operation, state_id, scope, operands))
        self.changes += 1
        self.changed_scopes.add(scope)

    def _log_value(self, table: ValueTable, key_group: int, scope: bytes) -> None:
        value = table.group(key_group).get(scope)
        if value is None:
            self.logged(table.meta, key_group, StateChangeOperation.CLEAR, scope, b"")
        else:
            self.logged(table.meta, key_group, StateChangeOperation.SET, scope, value)

    def _flush_dirty(self) -> None:
        # Each is forgotten only when it is logged: the log may refuse half-way, and a checkpoint
        # later must have the rest.
        for place, table in list(self._dirty.items()):
            _, key_group, scope = place
            self._log_value(table, key_group, scope)
            del self._dirty[place]

    # -------------------------------------------------------------------------- checkpoints

    def snapshot(self, checkpoint_id: int) -> ChangelogStateBackendHandle:
        """Persists the log and waits; the handle is what the subtask acknowledges.

        Raises:
            UploadFailedError: The log could not be made durable; nothing is lost.
        """
        self._flush_dirty()
        upper = self._writer.next_sequence_number()
        future = self._writer.persist(self._materialized_to, checkpoint_id)
        self._last_persist = (self._materialized_to, upper)
        return self._backend_handle(future.result(), checkpoint_id)

    def _backend_handle(
        self, result: FsSnapshotResult, checkpoint_id: int
    ) -> ChangelogStateBackendHandle:
        delta = result.job_manager_owned_snapshot
        log = self._restored_log + ((delta,) if delta.handles_and_offsets else ())
        return ChangelogStateBackendHandle(
            self._base,
            log,
            self._delegate.state.key_groups,
            self._materialization_id,
            checkpoint_id,
            delta.incremental_size,
            str(uuid4()),
        )

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint owns the files of its log now."""
        if self._last_persist is not None:
            self._writer.confirm(*self._last_persist, checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The changes stay in the log and are part of the next checkpoint."""
        if self._last_persist is not None:
            self._writer.reset(*self._last_persist, checkpoint_id)

    def materialized(
        self, base: KeyedStateHandle, materialization_id: int, up_to: SequenceNumber
    ) -> None:
        """The state up to ``up_to`` is in ``base``: later checkpoints log only what follows."""
        self._base = (base,)
        self._restored_log = ()
        self._materialization_id = materialization_id
        self._materialized_to = up_to

    def init_materialization(self) -> SequenceNumber:
        """Starts a materialization: the number up to which the state, as it is now, reaches."""
        self._flush_dirty()
        up_to = self._writer.next_sequence_number()
        self._described.clear()
        return up_to

    def truncate(self, up_to: SequenceNumber) -> None:
        """Releases the log below ``up_to``: materialized, and in no retained checkpoint."""
        self._writer.truncate(up_to)

    def close(self) -> None:
        self._writer.close()
