"""Keyed and operator state: descriptors, backends, changelog, timers, restore."""

from dstl_core.state.backend import (
    HashMapKeyedStateBackend,
    KeyedStateBackend,
    RocksDBKeyedStateBackend,
)
from dstl_core.state.changelog_backend import ChangelogKeyedStateBackend, ValueLogging
from dstl_core.state.descriptor import (
    AggregateFunction,
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.keyed_access import AggregatingState, FoldingState, ReducingState, ValueState
from dstl_core.state.keyed_collections import ListState, MapState
from dstl_core.state.keyed_state import KeyedState, restore_keyed_state
from dstl_core.state.ttl import StateTtlConfig, StateVisibility, UpdateType

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "ChangelogKeyedStateBackend",
    "FoldingState",
    "FoldingStateDescriptor",
    "HashMapKeyedStateBackend",
    "KeyedState",
    "KeyedStateBackend",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "ReducingState",
    "ReducingStateDescriptor",
    "RocksDBKeyedStateBackend",
    "StateDescriptor",
    "StateTtlConfig",
    "StateVisibility",
    "UpdateType",
    "ValueLogging",
    "ValueState",
    "ValueStateDescriptor",
    "restore_keyed_state",
]
