"""Keyed state that logs its changes: descriptors, tables, backends, restore."""

from dstl_core.state.backend import (
    ChangelogKeyedStateBackend,
    HashMapKeyedStateBackend,
    ListState,
    ValueLogging,
    ValueState,
)
from dstl_core.state.descriptor import (
    ListStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.keyed_state import KeyedState, restore_keyed_state

__all__ = [
    "ChangelogKeyedStateBackend",
    "HashMapKeyedStateBackend",
    "KeyedState",
    "ListState",
    "ListStateDescriptor",
    "StateDescriptor",
    "ValueLogging",
    "ValueState",
    "ValueStateDescriptor",
    "restore_keyed_state",
]
