"""Rescales state to another max parallelism: every key gets a new key group."""

from __future__ import annotations

from dstl_core.codec.serializers import TimerSerializer, deserialize_exactly
from dstl_core.errors import RestoreError
from dstl_core.model.key_group import KeyGroupRange, assign_to_key_group
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.queue_table import QueueTable
from dstl_core.state.tables.state_table import StateTable


def with_max_parallelism(state: KeyedState, max_parallelism: int) -> KeyedState:
    """Copies all key groups of an operator. The hash of each key gives its new key group.

    Raises:
        RestoreError: The elements of a queue are not timers, so their keys are unknown.
        ConfigError: The hash of the key type is unknown.
    """
    if state.key_serializer is None:
        return KeyedState(KeyGroupRange(0, max_parallelism - 1), max_parallelism)
    result = KeyedState(KeyGroupRange(0, max_parallelism - 1), max_parallelism)
    for table in state.tables.values():
        target = result.table(table.meta, state.key_serializer)
        for entries in table.groups.values():
            for scope, stored in entries.items():
                key_hash = state.key_serializer.java_hash(_key_of(table, scope))
                target.group(assign_to_key_group(key_hash, max_parallelism))[scope] = stored
    return result


def _key_of(table: StateTable[object], scope: bytes) -> object:
    if isinstance(table, QueueTable):
        if not isinstance(table.meta.value_serializer, TimerSerializer):
            raise RestoreError(
                f"Queue {table.meta.name!r} cannot be rescaled: expected timers, got "
                f"{table.meta.value_serializer.type_name}."
            )
        return deserialize_exactly(table.meta.value_serializer, scope).key
    return table.codec.decode_scope(scope)[0]


def cut(state: KeyedState, key_groups: KeyGroupRange) -> KeyedState:
    """The part of the state that a subtask owns; it shares the entries."""
    result = KeyedState(key_groups, state.max_parallelism)
    if state.key_serializer is None:
        return result
    for table in state.tables.values():
        target = result.table(table.meta, state.key_serializer)
        for key_group in key_groups:
            if key_group in table.groups:
                target.groups[key_group] = table.groups[key_group]
    return result
