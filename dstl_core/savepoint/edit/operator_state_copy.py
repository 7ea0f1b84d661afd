"""Combines list, union and broadcast states of several operators into one operator, as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dstl_core.codec.operator_state import OperatorStream, write_operator_stream
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import SavepointError, UnreadableValueError, error_context
from dstl_core.model.handle import OperatorStateMode
from dstl_core.savepoint.read.state_parts import StatesOf


@dataclass
class _SpreadState:
    """A state, and its elements or map entries in each subtask."""

    meta: StateMetaInfoSnapshot
    mode: OperatorStateMode
    parts: dict[int, list[Any]] = field(default_factory=dict)


def spread_operator_state(
    sources: Sequence[StatesOf], parallelism: int
) -> list[OperatorStream | None]:
    """Distributes the states of all sources over ``parallelism`` subtasks.

    With an unchanged parallelism, elements stay in their subtasks. Otherwise they are divided into
    contiguous, even parts. Every subtask gets a copy of broadcast state.

    Raises:
        SavepointError: Two sources have a state with the same name, or only Java can separate the
            entries of a broadcast state.
    """
    states: dict[tuple[str, bool], _SpreadState] = {}
    widths: dict[tuple[str, bool], int] = {}
    for source in sources:
        of_source = _states(source)
        for name, state in of_source.items():
            if name in states:
                raise SavepointError(
                    f"Two operators that become one both have an operator state {name[0]!r}; leave "
                    f"one of them out."
                )
            states[name], widths[name] = state, source.operator.parallelism
    if not states:
        return [None] * parallelism
    spread = {name: _spread(state, widths[name], parallelism) for name, state in states.items()}
    streams: list[OperatorStream | None] = []
    for index in range(parallelism):
        lists = [
            (state.meta, spread[name][index])
            for name, state in states.items()
            if state.mode is not OperatorStateMode.BROADCAST
        ]
        broadcasts = [
            (state.meta, spread[name][index])
            for name, state in states.items()
            if state.mode is OperatorStateMode.BROADCAST
        ]
        streams.append(write_operator_stream(lists, broadcasts))
    return streams


def _states(source: StatesOf) -> dict[tuple[str, bool], _SpreadState]:
    operator = source.operator
    states: dict[tuple[str, bool], _SpreadState] = {}
    with error_context(location=str(operator.snapshot.folder), operator=operator.label):
        for subtask, handle, reader in operator.operator_state_readers():
            for info in handle.states:
                if not source.has(info.name):
                    continue
                is_map = info.mode is OperatorStateMode.BROADCAST
                state = states.setdefault(
                    (info.name, is_map), _SpreadState(reader.header.state(info), info.mode)
                )
                try:
                    held: list[Any] = (
                        list(reader.raw_pairs(info)) if is_map else reader.raw_elements(info)
                    )
                except UnreadableValueError as error:
                    raise SavepointError(
                        f"Broadcast state {info.name!r} cannot be moved: only Java classes of the "
                        f"job can separate its entries."
                    ) from error
                state.parts[subtask] = held
    return states


def _spread(state: _SpreadState, before: int, parallelism: int) -> list[list[Any]]:
    if state.mode is OperatorStateMode.BROADCAST:
        copies = [state.parts[index] for index in sorted(state.parts)]
        return [copies[index % len(copies)] for index in range(parallelism)]
    if before == parallelism:
        return [state.parts.get(index, []) for index in range(parallelism)]
    every = [each for index in sorted(state.parts) for each in state.parts[index]]
    size, more = divmod(len(every), parallelism)
    parts, at = [], 0
    for index in range(parallelism):
        end = at + size + (index < more)
        parts.append(every[at:end])
        at = end
    return parts
