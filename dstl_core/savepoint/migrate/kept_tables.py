"""Which files of RocksDB a migration keeps: those of states whose bytes stay."""

from __future__ import annotations

from dataclasses import replace

from dstl_core.codec.state_meta import BackendStateType
from dstl_core.savepoint.edit.kept_state import can_be_kept, is_rocksdb
from dstl_core.savepoint.edit.tables.joined_tables import has_ids, has_shape, with_states
from dstl_core.savepoint.migrate.migration_plan import CONVERT, EMPTY, OperatorMigration, StatePlan
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.write.table_parts import Names


def _keyed(plan: OperatorMigration) -> list[StatePlan]:
    return [state for state in plan.states if not state.is_operator_state]


def _stays(state: StatePlan) -> bool:
    """Whether the bytes of a state stay."""
    return state.old is not None and state.action not in (CONVERT, EMPTY)


def keeps_tables(plan: OperatorMigration) -> bool:
    """Whether files of RocksDB of states whose bytes stay can be kept: all keyed state of the old
    operators is in such files, and each key stays in its subtask.
    """
    sources = [source for source in plan.sources if source.keyed_handles]
    if not sources or plan.key is not None:
        return False
    first = sources[0]
    shape = first.max_parallelism, max(source.parallelism for source in plan.sources)
    names = [
        (state.operator.operator_id, state.old.name)
        for state in _keyed(plan)
        if _stays(state) and state.operator is not None and state.old is not None
    ]
    return len({*names}) == len(names) and all(
        can_be_kept(source)
        and is_rocksdb(source)
        and has_shape(source, *shape)
        and (source is first or has_ids(source))
        and all(
            info.meta.backend_state_type is not BackendStateType.KEY_VALUE_V2
            for info in source.states
        )
        for source in sources
    )


def kept_names(plan: OperatorMigration, operator: OperatorSnapshot) -> Names:
    """The new names of the states of an operator whose bytes stay; None of all others."""
    names: dict[str, str | None] = {info.name: None for info in operator.states}
    for state in _keyed(plan):
        of = state.operator
        if of is None or of.operator_id != operator.operator_id or state.old is None:
            continue
        if _stays(state):
            names[state.old.name] = state.new.name
    return names


def converted_apart(plan: OperatorMigration) -> OperatorMigration:
    """The operator with those keyed states alone that are written anew. Of the old operators it has
    only their files.
    """
    states = [state for state in _keyed(plan) if not _stays(state)]
    parts = {}
    for source in plan.sources:
        names = frozenset(
            state.old.name
            for state in states
            if state.old is not None
            and state.operator is not None
            and state.operator.operator_id == source.operator_id
        )
        parts[source.operator_id] = with_states(source, names)
    moved = [
        state
        if state.operator is None
        else replace(state, operator=parts[state.operator.operator_id])
        for state in states
    ]
    return replace(plan, states=moved, sources=[*parts.values()])
