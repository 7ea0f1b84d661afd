"""Which state object goes with which descriptor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstl_core.errors import InvariantViolation
from dstl_core.state.descriptor import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.keyed_access import (
    AggregatingState,
    FoldingState,
    ReducingState,
    State,
    ValueState,
)
from dstl_core.state.keyed_collections import ListState, MapState
from dstl_core.state.table import ListTable, MapTable, StateTable, ValueTable
from dstl_core.state.ttl import TtlPolicy

if TYPE_CHECKING:
    from dstl_core.state.backend import KeyedStateBackend


def bind_state(
    backend: KeyedStateBackend,
    descriptor: StateDescriptor,
    table: StateTable[Any],
    ttl: TtlPolicy | None,
) -> State[Any]:
    """The state of a descriptor on its table, which has the same kind."""
    match descriptor, table:
        case ValueStateDescriptor(), ValueTable():
            return ValueState(backend, table, ttl, descriptor.default_value)
        case ReducingStateDescriptor(), ValueTable():
            return ReducingState(backend, table, ttl, descriptor)
        case AggregatingStateDescriptor(), ValueTable():
            return AggregatingState(backend, table, ttl, descriptor)
        case FoldingStateDescriptor(), ValueTable():
            return FoldingState(backend, table, ttl, descriptor)
        case ListStateDescriptor(), ListTable():
            return ListState(backend, table, ttl)
        case MapStateDescriptor(), MapTable():
            return MapState(backend, table, ttl)
        case _:
            raise InvariantViolation(f"{descriptor} has a table of another kind")
