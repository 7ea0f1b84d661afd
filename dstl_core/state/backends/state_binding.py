"""Creates the state object for a descriptor."""

from __future__ import annotations

from typing import Any

from dstl_core.errors import InvariantViolation
from dstl_core.state.backends.current_key import CurrentKey
from dstl_core.state.backends.keyed_access import (
    AggregatingState,
    FoldingState,
    ReducingState,
    State,
    ValueState,
)
from dstl_core.state.backends.keyed_collections import ListState, MapState
from dstl_core.state.tables.descriptor import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.tables.state_table import ListTable, MapTable, StateTable, ValueTable
from dstl_core.state.tables.ttl import TtlPolicy


def bind_state(
    backend: CurrentKey,
    descriptor: StateDescriptor,
    table: StateTable[Any],
    ttl: TtlPolicy | None,
) -> State[Any]:
    """Creates the state object of a descriptor on its table, which has the same kind."""
    match descriptor, table:
        case ValueStateDescriptor(), ValueTable():
            value = ValueState(backend, table, ttl, descriptor.default_value)
            return value.declare(descriptor.type)
        case ReducingStateDescriptor(), ValueTable():
            return ReducingState(backend, table, ttl, descriptor).declare(descriptor.type)
        case AggregatingStateDescriptor(), ValueTable():
            aggregating = AggregatingState(backend, table, ttl, descriptor)
            return aggregating.declare(descriptor.accumulator_type)
        case FoldingStateDescriptor(), ValueTable():
            return FoldingState(backend, table, ttl, descriptor).declare(descriptor.type)
        case ListStateDescriptor(), ListTable():
            return ListState(backend, table, ttl).declare(descriptor.element_type)
        case MapStateDescriptor(), MapTable():
            map_state = MapState(backend, table, ttl)
            return map_state.declare(descriptor.key_type, descriptor.value_type)
        case _:
            raise InvariantViolation(f"{descriptor} has a table of another kind")
