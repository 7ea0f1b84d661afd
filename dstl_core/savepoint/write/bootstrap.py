"""Builds the state of one subtask from rows, with bootstrap functions and windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from dstl_core.codec.operator_state import OperatorStream
from dstl_core.errors import ConfigError, DstlError
from dstl_core.functions import (
    BootstrapContext,
    BroadcastBootstrapContext,
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    Row,
    RuntimeContext,
    StateBootstrapFunction,
    WindowFunction,
)
from dstl_core.operators.user_code import user_code, user_error
from dstl_core.operators.window_operator import WindowOperator
from dstl_core.state.backends.context import FunctionInitializationContext, KeyedStateStore
from dstl_core.state.backends.function_state import StateAccess
from dstl_core.state.backends.operator_backend import DefaultOperatorStateBackend
from dstl_core.state.backends.timers import InternalTimerService, TimerService


class KeyedBootstrapOperator:
    """Passes rows to a keyed bootstrap function. For one thread."""

    def __init__(self, function: KeyedStateBootstrapFunction, access: StateAccess) -> None:
        self._function = function
        self._access = access
        timers = None
        if function.uses_timers:
            timers = TimerService(InternalTimerService(access, access.clock))
        self._context = BootstrapContext(access, timers)
        call_user(function, "open", RuntimeContext(access))
        access.close_registration()

    def process(self, key: Any, row: Row) -> None:
        self._access.set_current_key(key)
        call_user(self._function, "process_element", row, self._context)

    def close(self) -> None:
        call_user(self._function, "close")


def call_user(function: object, method: str, *arguments: Any) -> Any:
    """Calls a user's method; errors name the method."""
    try:
        return getattr(function, method)(*arguments)
    except DstlError:
        raise
    except Exception as error:
        raise user_error(function, method, error) from error


# --------------------------------------------------------------------------------- windows


@dataclass(frozen=True)
class WindowOperation:
    """Windows to fill. The function must be the one that the job runs.

    Args:
        function: The window function. Its output is dropped.
        timestamp: Returns the time of a row in milliseconds.
    """

    function: WindowFunction
    timestamp: Callable[[Row], int]


class WindowBootstrapOperator:
    """Adds rows to windows like a window operator before any watermark: no timer fires."""

    def __init__(self, operation: WindowOperation, access: StateAccess) -> None:
        self._operation = operation
        self._operator = WindowOperator(operation.function, access, access.clock, "")
        access.close_registration()

    def process(self, key: Any, row: Row) -> None:
        with user_code(self._operation, "timestamp"):
            timestamp: Any = self._operation.timestamp(row)
        if timestamp is not None and not isinstance(timestamp, Integral):
            raise ConfigError(
                f"The timestamp of a row is wrong: expected milliseconds as a whole number, got "
                f"{timestamp!r}."
            )
        # Windows that need a timestamp refuse a null.
        self._operator.add(key, row, None if timestamp is None else int(timestamp))

    def close(self) -> None:
        """Does nothing: the operator holds no resources."""


# -------------------------------------------------------------------------- operator state


def run_state_bootstrap(
    function: StateBootstrapFunction, rows: Iterable[Row]
) -> OperatorStream | None:
    """Builds list and union state of one subtask; None without such state."""
    backend = DefaultOperatorStateBackend()
    context = FunctionInitializationContext(KeyedStateStore(None), backend, None)
    call_user(function, "initialize_state", context)
    for row in rows:
        call_user(function, "process_element", row)
    call_user(function, "snapshot_state")
    return backend.snapshot()


def run_broadcast_bootstrap(
    function: BroadcastStateBootstrapFunction, rows: Iterable[Row]
) -> OperatorStream | None:
    """Builds broadcast state; None without such state."""
    backend = DefaultOperatorStateBackend()
    context = BroadcastBootstrapContext(backend)
    for row in rows:
        call_user(function, "process_element", row, context)
    return backend.snapshot()


def rows_of(batch: Any) -> list[Mapping[str, Any]]:
    """The rows of a record batch in the form that functions receive."""
    rows: list[Mapping[str, Any]] = batch.to_pylist()
    return rows
