"""Runs reader functions over the keyed state of a range of key groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dstl_core.codec.serializers import (
    deserialize_exactly,
    serialize_to_bytes,
)
from dstl_core.codec.serializers.runtime import StreamRecord
from dstl_core.errors import DstlError, NoSuchStateError
from dstl_core.functions import (
    WINDOW_CONTENTS,
    WINDOW_TIMERS,
    KeyedStateReaderFunction,
    ReadContext,
    RuntimeContext,
    WindowReadContext,
    WindowReaderFunction,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.operators.user_code import user_error
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.read.timer_queues import with_timers_of
from dstl_core.savepoint.read.window_entries import MERGING_SETS
from dstl_core.state.backends.function_state import StateAccess, TimerIndex
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.state_table import StateTable


def read_keys(
    operator: OperatorCatalog,
    key_groups: KeyGroupRange,
    function: KeyedStateReaderFunction,
) -> Iterator[Any]:
    """Yields the rows of a function for every key with registered state or a timer.

    Raises:
        NoSuchStateError: The function registers a state that the operator does not have.
        RestoreError: A declared type differs from the stored one. The message has both.
        UserFunctionError: The function raised.
    """
    for state, access in _accesses(operator, key_groups):
        _call(function, "open", RuntimeContext(access))
        access.close_registration()
        timers = TimerIndex(state)
        for key_group in key_groups:
            scopes: dict[bytes, None] = {}
            for table in access.registered_tables():
                scopes |= dict.fromkeys(table.groups.get(key_group, {}))
            scopes |= dict.fromkeys(timers.scopes(key_group))
            for scope in scopes:
                key_bytes = scope[:-1]  # the void namespace is one byte
                key = deserialize_exactly(access.key_serializer, key_bytes)
                access.place(key_group, key_bytes)
                context = ReadContext(*timers.of(key_group, scope))
                yield from _call(function, "read_key", key, context)
        _call(function, "close")


def read_windows(
    operator: OperatorCatalog,
    key_groups: KeyGroupRange,
    function: WindowReaderFunction,
    result_of: Callable[[Any], Any] | None = None,
) -> Iterator[Any]:
    """Yields the rows of a function for every window with contents.

    Args:
        operator: A window operator.
        key_groups: The key groups to read.
        function: The user's function.
        result_of: Converts stored contents to an element, e.g. an accumulator to its result.

    Raises:
        NoSuchStateError: The operator has no windows.
    """
    for state, access in _accesses(operator, key_groups):
        contents = state.tables.get((WINDOW_CONTENTS, False))
        if contents is None:
            known = ", ".join(repr(name) for name, _ in state.tables) or "none"
            raise NoSuchStateError(
                f"Operator {operator.label!r} keeps no windows (no state {WINDOW_CONTENTS!r}); it "
                f"has: {known}."
            )
        _call(function, "open", RuntimeContext(access))
        timers = TimerIndex(state, WINDOW_TIMERS)
        namespace = contents.codec.namespace_serializer
        for key_group in key_groups:
            actual = _actual_windows(state, key_group)
            for scope, stored in contents.groups.get(key_group, {}).items():
                key, kept_under, value = contents.decode(scope, stored)
                window = actual.get((repr(key), kept_under), kept_under)
                access.place(key_group, serialize_to_bytes(access.key_serializer, key))
                window_scope = access.current_key + serialize_to_bytes(namespace, window)
                its_timers = ReadContext(*timers.of(key_group, window_scope))
                context = WindowReadContext(window, kept_under, access, its_timers, namespace)
                elements = [_plain(each) for each in (value if _is_list(contents) else [value])]
                if result_of is not None:
                    elements = [result_of(each) for each in elements]
                yield from _call(function, "read_window", key, context, elements)
        _call(function, "close")


def _accesses(
    operator: OperatorCatalog, key_groups: KeyGroupRange
) -> Iterator[tuple[KeyedState, StateAccess]]:
    """Yields the state of the key groups, with access by key; nothing without keyed state."""
    operator = with_timers_of(operator, key_groups)
    state = operator.restore(operator.keyed_handles, key_groups)
    if state.key_serializer is not None:
        yield state, StateAccess(state, state.key_serializer, only_existing=True)


def _actual_windows(state: KeyedState, key_group: int) -> dict[tuple[str, Any], Any]:
    """Maps the state window of merging windows to the actual window, by key."""
    windows = {}
    for name in MERGING_SETS:
        table = state.tables.get((name, False))
        if table is not None:
            for key, _, pairs in table.entries(key_group):
                for actual, kept_under in pairs:
                    windows[repr(key), kept_under] = actual
    return windows


def _is_list(table: StateTable[Any]) -> bool:
    return table.meta.keyed_state_type.value == "LIST"


def _plain(value: Any) -> Any:
    """The element of a window with an evictor, which stores elements with timestamps."""
    return value.value if isinstance(value, StreamRecord) else value


def _call(function: object, method: str, *arguments: Any) -> list[Any]:
    """Calls a user's method and returns its rows; errors name the method."""
    try:
        return list(getattr(function, method)(*arguments) or ())
    except DstlError:
        raise
    except Exception as error:
        raise user_error(function, method, error) from error
