"""Takes operators apart and joins them, with files of RocksDB that stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dstl_core.codec.sst.manifest import read_manifest
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle
from dstl_core.model.key_group import compute_key_group_range_for_operator_index
from dstl_core.savepoint.edit.changed_elements import with_operators
from dstl_core.savepoint.edit.kept_state import KeptState, is_rocksdb
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.state_parts import StatesOf, merged_header
from dstl_core.savepoint.write.folder import StateFiles
from dstl_core.savepoint.write.table_parts import Names, TablePart, joined_handle, part_of
from dstl_core.state.restore.rocksdb import current_manifest, read_meta_header

Handles = list[IncrementalRemoteKeyedStateHandle | None]


def with_states(operator: OperatorSnapshot, names: frozenset[str]) -> OperatorSnapshot:
    """The operator with some of its keyed states, which are in files of RocksDB, and no other
    state. It reads headers and MANIFESTs.
    """
    snapshot: Snapshot = operator.snapshot  # type: ignore[assignment]  # one has loaded it
    left_out: Names = {info.name: None for info in operator.states if info.name not in names}
    subtasks = []
    for subtask in operator.state.subtasks:
        handle = subtask.managed_keyed_state
        if isinstance(handle, IncrementalRemoteKeyedStateHandle):
            label = f"{operator.operator_id.hex}-{subtask.index}"
            handle = part_of(handle, left_out, snapshot.resolver, snapshot.registry, label)
        subtasks.append(OperatorSubtaskState(subtask.index, managed_keyed_state=handle))
    state = replace(operator.state, subtasks=tuple(subtasks))
    changed = with_operators(snapshot, {operator.operator_id: state})
    return next(e for e in changed.operators if e.operator_id == operator.operator_id)


def can_be_joined(parts: Sequence[StatesOf], state: OperatorState) -> bool:
    """Whether states of operators become those of one without writing a table file: each key stays
    in its subtask, and no two states have one name.

    Column families of all parts but the first get other numbers. A table file has the number of
    its family, too, so there it must be known by an id, which RocksDB 6 does not store.
    """
    names = [meta.name for part in parts for meta in part.metas]
    return len({*names}) == len(names) and all(
        part.select is None
        and is_rocksdb(part.operator)
        and has_shape(part.operator, state.max_parallelism, state.parallelism)
        and (part is parts[0] or has_ids(part.operator))
        for part in parts
    )


def has_shape(operator: OperatorCatalog, max_parallelism: int, parallelism: int) -> bool:
    """Whether each key is in the subtask that it has with these numbers."""
    return (operator.max_parallelism, operator.parallelism) == (max_parallelism, parallelism) and (
        all(
            subtask.managed_keyed_state is None
            or subtask.managed_keyed_state.key_group_range
            == compute_key_group_range_for_operator_index(
                max_parallelism, parallelism, subtask.index
            )
            for subtask in operator.state.subtasks
        )
    )


def has_ids(operator: OperatorCatalog) -> bool:
    resolver = operator.snapshot.resolver
    for handle in operator.keyed_handles:
        assert isinstance(handle, IncrementalRemoteKeyedStateHandle)  # ``is_rocksdb``
        stream = dict(handle.shared + handle.private)[current_manifest(handle, resolver)]
        families = read_manifest(resolver.read(stream)).families.values()
        if any(file.unique_id is None for own in families for file in own.files.values()):
            return False
    return True


def joined_tables(
    parts: Sequence[StatesOf], parallelism: int, kept: KeptState, target: StateFiles
) -> Handles:
    """The handle of each subtask, with the states of all parts."""
    merged_header(parts)  # says what does not fit together
    handles: list[list[tuple[KeyedBackendHeader, TablePart]]] = [[] for _ in range(parallelism)]
    for place, part in enumerate(parts):
        operator = part.operator
        snapshot = operator.snapshot
        for subtask in operator.state.subtasks:
            handle = subtask.managed_keyed_state
            if not isinstance(handle, IncrementalRemoteKeyedStateHandle):
                continue
            header = read_meta_header(handle, snapshot.resolver, snapshot.registry)
            gone: dict[str, None] = {
                meta.name: None for meta in header.states if not part.has(meta.name)
            }
            left = part_of(handle, gone, snapshot.resolver, snapshot.registry, f"part-{place}")
            header = read_meta_header(left, snapshot.resolver, snapshot.registry)
            if header.states:
                held = header, TablePart(left, kept.of_stream(operator))
                handles[subtask.index].append(held)
    resolver = parts[0].operator.snapshot.resolver
    joined = Handles()
    for held_here in handles:
        target.names.begin()
        if not held_here:
            joined.append(None)
            continue
        headers = [header for header, _ in held_here]
        states = tuple(meta for header in headers for meta in header.states)
        new = KeyedBackendHeader(headers[0].key_serializer, states, headers[0].compressed)
        tables = [part for _, part in held_here]
        joined.append(joined_handle(tables, new, resolver, target.add_stream))
    return joined
