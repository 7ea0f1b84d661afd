"""Writes list, union and broadcast states of one migrated operator."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dstl_core.codec.columnar.types.type_layouts import bounded_layout, layout_of
from dstl_core.codec.operator_state import OperatorStateReader, write_operator_stream
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import ColumnValueError
from dstl_core.model.handle import (
    OperatorStateMetaInfo,
    OperatorStateMode,
    OperatorStreamStateHandle,
)
from dstl_core.savepoint.expressions.sql_cast import OPTIONS
from dstl_core.savepoint.migrate.migration_plan import CONVERT, OperatorMigration, StatePlan
from dstl_core.savepoint.read.operator_catalog import OPERATOR_KINDS
from dstl_core.savepoint.write.folder import StateFiles
from dstl_core.state.columns.element_columns import decode_elements, encode_elements

Held = dict[int, list[Any]]


def write_operator_states(
    plan: OperatorMigration, target: StateFiles, parallelism: int
) -> list[OperatorStreamStateHandle | None]:
    """The operator states of each subtask.

    Elements stay in the subtask that has them. Those of a subtask that is no longer there go to
    another one, as in a restore with a lower parallelism.
    """
    lists: list[tuple[StateMetaInfoSnapshot, Held]] = []
    broadcasts: list[tuple[StateMetaInfoSnapshot, Held]] = []
    for state in plan.states:
        if not state.is_operator_state or state.old is None:
            continue
        held = _held(state)
        if state.new.kind == OPERATOR_KINDS[OperatorStateMode.BROADCAST]:
            parts = [held[index] for index in sorted(held)]
            held = {index: parts[index % len(parts)] for index in range(parallelism)}
            broadcasts.append((state.new.meta, held))
        else:
            by_subtask: Held = {}
            for index, elements in held.items():
                by_subtask.setdefault(index % parallelism, []).extend(elements)
            lists.append((state.new.meta, by_subtask))
    handles: list[OperatorStreamStateHandle | None] = []
    for index in range(parallelism):
        stream = write_operator_stream(
            [(meta, held.get(index, [])) for meta, held in lists],
            [(meta, held.get(index, [])) for meta, held in broadcasts],
        )
        handles.append(target.add_operator_state(stream) if lists or broadcasts else None)
    return handles


def _held(state: StatePlan) -> Held:
    """The bytes of a state's elements or entries, by subtask."""
    elements: Held = {}
    assert state.operator is not None and state.old is not None
    for subtask, handle, reader in state.operator.operator_state_readers():
        for info in handle.states:
            if info.name == state.old.name and OPERATOR_KINDS[info.mode] == state.old.kind:
                elements[subtask] = _elements(state, reader, info)
    return elements


def _elements(
    state: StatePlan, reader: OperatorStateReader, info: OperatorStateMetaInfo
) -> list[Any]:
    if info.mode is OperatorStateMode.BROADCAST:
        pairs = list(reader.raw_pairs(info))
        return pairs if state.action != CONVERT else _converted_pairs(state, pairs)
    raw = [bytes(each) for each in reader.raw_elements(info)]
    return raw if state.action != CONVERT else _recoded(state, raw, state.value)


def _converted_pairs(state: StatePlan, pairs: list[Any]) -> list[Any]:
    keys = [bytes(each) for each, _ in pairs]
    values = [bytes(each) for _, each in pairs]
    new_keys = keys if state.map_key is None else _recoded(state, keys, state.map_key)
    return list(zip(new_keys, _recoded(state, values, state.value), strict=True))


def _recoded(state: StatePlan, raw: list[bytes], conversion: Any) -> list[Any]:
    if not raw or conversion is None:
        return raw
    column, failure = decode_elements(bounded_layout(conversion.old, OPTIONS), raw)
    if failure is not None:
        raise ColumnValueError(f"Operator state {state.new.name!r} has values that are no columns.")
    converted: pa.Array = conversion.apply(column, {})
    if state.misfits.refused:
        place, number = next(iter(state.misfits.refused.items()))
        raise ColumnValueError(
            f"Operator state {state.new.name!r} does not fit: {number} values of {place}; "
            f"use cast_or_null or another type."
        )
    return [bytes(each) for each in encode_elements(layout_of(conversion.new, OPTIONS), converted)]
