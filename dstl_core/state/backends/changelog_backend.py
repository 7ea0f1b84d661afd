"""A backend that writes every change to a changelog.

Source of the behaviour: ``ChangelogKeyedStateBackend`` and ``StateChangeLogger`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import compress, repeat

from dstl_core.changelog.interfaces import StateChangelogWriter
from dstl_core.clock import Clock
from dstl_core.codec.change_payload import StateChangeOperation, data_change
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.metrics import MetricGroup
from dstl_core.model.handle import ChangelogStateHandle, KeyedStateHandle
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.state_changelog import StateChangelog
from dstl_core.state.tables.state_table import ValueTable

MAX_DIRTY = 200_000
"""Limit of changed values that wait for the checkpoint; beyond it, values are logged at once."""


_BY_COLUMNS_FROM = 10_000
"""Values that are logged at a time. For fewer, loading the kernels takes longer than it saves."""


class ValueLogging(Enum):
    """The updates of a value state that are logged."""

    LAST_PER_CHECKPOINT = "last"
    """The last update of each key: all that a restore needs."""
    EVERY = "every"
    """All updates, for readers of the log."""


class ChangelogKeyedStateBackend(StateChangelog):
    """Logs every change of a backend.

    Args:
        delegate: The backend with the state.
        writer: Writes the log of this run.
        value_logging: The updates of a value that are logged.

    The other arguments are those of ``StateChangelog``.
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
        super().__init__(
            writer,
            delegate.state.key_groups,
            delegate.capture,
            base=base,
            restored_log=restored_log,
            materialization_id=materialization_id,
            metrics=metrics,
            clock=clock,
        )
        self.delegate = delegate
        self._value_logging = value_logging
        self._state_ids: dict[int, int] = {}
        self._metas: list[StateMetaInfoSnapshot] = []
        self._dirty: dict[tuple[int, int, bytes], ValueTable] = {}
        self.changed_scopes: set[bytes] = set()
        """The keys, with namespace, whose state has changed."""
        delegate.logger = self

    # ------------------------------------------------------------------------------ logging

    @property
    def takes_every_update(self) -> bool:
        return self._value_logging is ValueLogging.EVERY

    def value_updated(self, table: ValueTable, key_group: int, scope: bytes) -> None:
        if self._value_logging is ValueLogging.EVERY:
            self._log_value(table, key_group, scope)
            return
        self._dirty[id(table), key_group, scope] = table
        if len(self._dirty) > MAX_DIRTY:
            self.flush()

    def values_updated(
        self, table: ValueTable, key_groups: Sequence[int], scopes: Sequence[bytes]
    ) -> None:
        if self._value_logging is ValueLogging.EVERY:
            # A key that a batch has twice has one value after it.
            places = dict.fromkeys(zip(key_groups, scopes, strict=True))
            self._log_values(table, list(places))
            return
        self._dirty.update(
            dict.fromkeys(zip(repeat(id(table)), key_groups, scopes, strict=False), table)
        )
        if len(self._dirty) > MAX_DIRTY:
            self.flush()

    def values_written(
        self,
        table: ValueTable,
        key_groups: Sequence[int],
        scopes: Sequence[bytes],
        values: Sequence[bytes | None],
    ) -> None:
        if len(scopes) < _BY_COLUMNS_FROM:
            self.values_updated(table, key_groups, scopes)
            return
        for start in range(0, len(scopes), MAX_DIRTY):
            part = slice(start, start + MAX_DIRTY)
            self._log_batch(table, key_groups[part], scopes[part], values[part])

    def logged_batch(
        self,
        meta: StateMetaInfoSnapshot,
        operation: StateChangeOperation,
        key_groups: Sequence[int],
        scopes: Sequence[bytes],
        operands: Sequence[bytes],
    ) -> None:
        import pyarrow as pa  # takes longer than looking into a snapshot does
        import pyarrow.compute as pc

        kind = pa.large_binary()
        head = pa.scalar(data_change(operation, self._described_id(meta), b""), kind)
        parts = head, pa.array(scopes, kind), pa.array(operands, kind)
        changes = pc.binary_join_element_wise(*parts, pa.scalar(b"", kind))
        self._writer.append_batch(key_groups, changes)
        self.changes += len(changes)
        self.log_bytes += pc.sum(pc.binary_length(changes)).as_py() or 0
        self.changed_scopes.update(filter(None, scopes))

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
        """The id of a state; describes the state before its first change."""
        state_id = self._state_ids.get(id(meta))
        if state_id is None:
            state_id = self._state_ids[id(meta)] = len(self._state_ids)
            self._metas.append(meta)  # an id() is valid only while its object lives
        self.describe(state_id, meta)
        return state_id

    def migrated(self, meta: StateMetaInfoSnapshot) -> None:
        # The log has values of the old type, and one log has one type for a state.
        self.must_materialize = True

    def _log_value(self, table: ValueTable, key_group: int, scope: bytes) -> None:
        value = table.group(key_group).get(scope)
        if value is None:
            self.logged(table.meta, key_group, StateChangeOperation.CLEAR, scope, b"")
            return
        self.logged(table.meta, key_group, _set_operation(table), scope, value)

    def _log_values(self, table: ValueTable, places: Sequence[tuple[int, bytes]]) -> None:
        """As ``_log_value`` for many places, by columns."""
        key_groups, scopes = [each[0] for each in places], [each[1] for each in places]
        self._log_batch(table, key_groups, scopes, table.get_many(key_groups, scopes))

    def _log_batch(
        self,
        table: ValueTable,
        key_groups: Sequence[int],
        scopes: Sequence[bytes],
        values: Sequence[bytes | None],
    ) -> None:
        is_set = [value is not None for value in values]
        gone = [value is None for value in values]
        for operation, chosen, operands in (
            (_set_operation(table), is_set, [each for each in values if each is not None]),
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

    def flush(self) -> None:
        """Logs the changed values that wait for the checkpoint."""
        # A value is removed only after it is logged: the log may fail half-way, and a later
        # checkpoint must have the rest.
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


def _set_operation(table: ValueTable) -> StateChangeOperation:
    is_plain = table.meta.keyed_state_type is KeyedStateType.VALUE
    return StateChangeOperation.SET if is_plain else StateChangeOperation.SET_INTERNAL
