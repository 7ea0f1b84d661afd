"""Replays a changelog into tables: a large one in batches, a small one change by change."""

from __future__ import annotations

from typing import Any

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_payload import MetadataChange, read_change
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.errors import FormatError
from dstl_core.model.handle import ChangelogStateBackendHandle, ChangelogStateHandle
from dstl_core.state.restore.kernel_sizes import are_read_by_kernels
from dstl_core.state.tables.key_type import key_type_of_changes
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.state_table import StateTable
from dstl_core.storage.handle_resolver import HandleResolver


def replay_changelog(
    state: KeyedState,
    handle: ChangelogStateBackendHandle,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> None:
    """Replays the logs of a handle in order. State ids are valid within the handle."""
    reader = StateChangelogHandleReader(resolver.read_segment)
    if state.key_serializer is None:
        changes = (change for log in handle.non_materialized for change in reader.get_changes(log))
        key_type = key_type_of_changes(changes, registry, state.max_parallelism)
        if key_type is not None:
            state.key_serializer = key_type.serializer
    tables: dict[int, StateTable[Any]] = {}
    for log in handle.non_materialized:
        part = log.get_intersection(state.key_groups)
        if part is not None:
            apply_changelog(state, part, reader, registry, tables)


def apply_changelog(
    state: KeyedState,
    handle: ChangelogStateHandle,
    reader: StateChangelogHandleReader,
    registry: SerializerRegistry,
    tables: dict[int, StateTable[Any]],
) -> None:
    """Replays a log into the state.

    ``tables`` has the tables that earlier logs of the same handle described, by state id.
    """
    if are_read_by_kernels(handle.state_size):
        _apply_in_batches(state, handle, reader, registry, tables)
        return
    for change in reader.get_changes(handle):
        parsed = read_change(change.change, registry)
        if isinstance(parsed, MetadataChange):
            _describe(state, parsed, tables)
            continue
        table = _described(parsed.state_id, tables)
        table.apply(parsed.operation, change.key_group, parsed.body)


def _apply_in_batches(
    state: KeyedState,
    handle: ChangelogStateHandle,
    reader: StateChangelogHandleReader,
    registry: SerializerRegistry,
    tables: dict[int, StateTable[Any]],
) -> None:
    from dstl_core.state.restore.changelog_tables import (  # it compiles kernels
        TableReplay,
        changes_of,
    )

    replays: dict[int, TableReplay] = {}
    for batch in reader.read_batches(handle):
        for state_id, changes in changes_of(batch, registry):
            if isinstance(changes, MetadataChange):
                _describe(state, changes, tables)
                replays.pop(state_id, None)
                continue
            table = _described(state_id, tables)
            if state_id not in replays:
                replays[state_id] = TableReplay(table, registry)
            replays[state_id].apply(changes)


def _describe(
    state: KeyedState, change: MetadataChange, tables: dict[int, StateTable[Any]]
) -> None:
    if state.key_serializer is not None:  # else no change of a key follows
        tables[change.state_id] = state.table(change.state, state.key_serializer)


def _described(state_id: int, tables: dict[int, StateTable[Any]]) -> StateTable[Any]:
    table = tables.get(state_id)
    if table is None:
        raise FormatError(
            "A change is for a state that its log has not described",
            field="state id",
            expected=f"one of {sorted(tables)}",
            got=state_id,
        )
    return table
