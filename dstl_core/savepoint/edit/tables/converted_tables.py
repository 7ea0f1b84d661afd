"""Writes an operator in files of RocksDB of which some states change their types: only table files
of these states are read and written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.model.checkpoint import OperatorState
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle
from dstl_core.savepoint.edit.converted_state import (
    Conversions,
    Counted,
    converted_keyed_state,
    converted_operator_state,
    place_of,
)
from dstl_core.savepoint.edit.kept_state import KeptState
from dstl_core.savepoint.edit.rewriting import Output
from dstl_core.savepoint.edit.tables.joined_tables import with_states
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.write.folder import StoredKeyedHandle
from dstl_core.savepoint.write.table_parts import Kept, TablePart, joined_handle, part_of
from dstl_core.state.restore.rocksdb import read_meta_header

Fresh = Mapping[int, StoredKeyedHandle | None]
"""Native handles by subtask."""


def converted_states(operator: OperatorSnapshot, conversions: Conversions) -> OperatorSnapshot:
    """The operator with those keyed states alone that are converted."""
    names = frozenset(
        info.name for info in operator.states if conversions.get(place_of(info.meta)) is not None
    )
    return with_states(operator, names)


def convert_tables(
    operator: OperatorSnapshot,
    conversions: Conversions,
    output: Output,
    kept: KeptState,
    count: Counted,
    changes_elements: bool,
) -> OperatorState:
    """The operator's entry for the new snapshot.

    Args:
        operator: All its keyed state is in files of RocksDB.
        conversions: The states that change; None leaves one out.
        output: Where the bytes go.
        kept: Keeps the other files.
        count: Told of the entries that were converted.
        changes_elements: Whether its lists, union and broadcast states are written anew.
    """
    target = output.target
    fresh: Fresh = {}
    part = converted_states(operator, conversions)
    if part.states:
        of_tables = replace(output, target=target.of_tables(), kept=None)
        fresh = converted_keyed_state(part, conversions, of_tables, count)
    target.names.begin()
    by_index = {subtask.index: subtask for subtask in operator.state.subtasks}
    others = (
        replace(
            subtask,
            managed_keyed_state=None,
            managed_operator_state=None if changes_elements else subtask.managed_operator_state,
        )
        for subtask in by_index.values()
    )
    state = kept.of(operator, replace(operator.state, uid=operator.uid, subtasks=tuple(others)))
    subtasks = []
    for subtask in state.subtasks:
        old = by_index[subtask.index]
        listed = subtask.managed_operator_state
        if changes_elements:
            listed = converted_operator_state(operator, old, conversions, target, count)
        handle = old.managed_keyed_state
        if isinstance(handle, IncrementalRemoteKeyedStateHandle):
            written = fresh.get(subtask.index)
            handle = _joined(
                operator, handle, written, conversions, output, kept.of_stream(operator)
            )
        subtasks.append(replace(subtask, managed_operator_state=listed, managed_keyed_state=handle))
    return replace(state, subtasks=tuple(subtasks))


def _joined(
    operator: OperatorSnapshot,
    handle: IncrementalRemoteKeyedStateHandle,
    fresh: StoredKeyedHandle | None,
    conversions: Conversions,
    output: Output,
    kept: Kept,
) -> IncrementalRemoteKeyedStateHandle | None:
    """The handle with converted states in place of those of before."""
    snapshot = operator.snapshot
    header = read_meta_header(handle, snapshot.resolver, snapshot.registry)
    gone: dict[str, None] = {}
    states = []
    for meta in header.states:
        place = place_of(meta)
        if place in conversions:
            gone[meta.name] = None
            conversion = conversions[place]
            if conversion is None:
                continue
            meta = conversion.meta(meta)
        states.append(meta)
    if not states:
        return None
    if not gone:
        return replace(
            handle,
            meta_stream=kept(handle.meta_stream),
            shared=tuple((name, kept(stream)) for name, stream in handle.shared),
            private=tuple((name, kept(stream)) for name, stream in handle.private),
        )
    parts = [TablePart(part_of(handle, gone, snapshot.resolver, snapshot.registry, "rest"), kept)]
    if isinstance(fresh, IncrementalRemoteKeyedStateHandle):
        parts.append(TablePart(fresh, lambda stream: stream))
    new = KeyedBackendHeader(header.key_serializer, tuple(states), header.compressed)
    return joined_handle(parts, new, snapshot.resolver, output.target.add_stream)
