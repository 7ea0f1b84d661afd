"""Distributes operator state to another number of subtasks.

Source: ``RoundRobinOperatorStateRepartitioner`` of Flink 2.2.1. Every element goes to the same
subtask as in Flink. Which subtask gets the remainder of a second state depends on the order of the
state names in a Java ``HashMap``, so this module computes that order.
"""

from __future__ import annotations

from collections.abc import Sequence

from dstl_core.codec.serializers.strings import StringSerializer
from dstl_core.errors import ConfigError, RestoreError
from dstl_core.model.handle import (
    OperatorStateMetaInfo,
    OperatorStateMode,
    OperatorStreamStateHandle,
    StreamStateHandle,
)

_Located = tuple[StreamStateHandle, OperatorStateMetaInfo]
_MergeMap = dict[StreamStateHandle, dict[str, OperatorStateMetaInfo]]

_STRING = StringSerializer()


def repartition_operator_state(
    previous: Sequence[Sequence[OperatorStreamStateHandle]], new_parallelism: int
) -> list[tuple[OperatorStreamStateHandle, ...]]:
    """The handles of each new subtask.

    SPLIT_DISTRIBUTE state stays in place if the parallelism is unchanged; otherwise its elements
    are split into contiguous, even parts. Every subtask gets all UNION state, and one copy of
    BROADCAST state. That copy is its own if the parallelism is unchanged and every subtask had one.

    Args:
        previous: The handles of each old subtask.
        new_parallelism: Number of new subtasks.

    Raises:
        ConfigError: ``new_parallelism`` is less than 1.
        RestoreError: Elements that go to different subtasks have the same offset.
    """
    if new_parallelism < 1:
        raise ConfigError(f"A parallelism must be 1 or more, got {new_parallelism}.")
    by_mode = _group(previous)
    in_place = len(previous) == new_parallelism
    if in_place:
        maps = [_in_place(handles) for handles in previous]
    else:
        maps = [{} for _ in range(new_parallelism)]
        _split(by_mode[OperatorStateMode.SPLIT_DISTRIBUTE], maps)
    for name, parts in by_mode[OperatorStateMode.UNION].items():
        for target in maps:
            for part in parts:
                _put(target, name, part)
    for name, copies in by_mode[OperatorStateMode.BROADCAST].items():
        if not in_place or len(copies) != new_parallelism:
            for index, target in enumerate(maps):
                _put(target, name, copies[index % len(copies)])
    return [
        tuple(
            OperatorStreamStateHandle(tuple(states.values()), stream)
            for stream, states in streams_of_part.items()
        )
        for streams_of_part in maps
    ]


def _group(
    previous: Sequence[Sequence[OperatorStreamStateHandle]],
) -> dict[OperatorStateMode, dict[str, list[_Located]]]:
    """The places of the parts of each state, by mode and name."""
    by_mode: dict[OperatorStateMode, dict[str, list[_Located]]] = {
        mode: {} for mode in OperatorStateMode
    }
    for handles in previous:
        for handle in handles:
            for state in handle.states:
                parts = by_mode[state.mode].setdefault(state.name, [])
                parts.append((handle.stream, state))
    return by_mode


def _in_place(handles: Sequence[OperatorStreamStateHandle]) -> _MergeMap:
    return {handle.stream: {state.name: state for state in handle.states} for handle in handles}


def _put(target: _MergeMap, name: str, part: _Located) -> None:
    stream, state = part
    target.setdefault(stream, {})[name] = state


def _split(states: dict[str, list[_Located]], maps: list[_MergeMap]) -> None:
    start = 0
    for name in java_hash_map_order(list(states)):
        start = _split_one(name, states[name], maps, start)


def _split_one(name: str, parts: list[_Located], maps: list[_MergeMap], start: int) -> int:
    """Distributes the elements of one state, beginning with subtask ``start``.

    A part without elements goes to the subtask of the element before it, because it carries the
    type of the state.

    Returns:
        The first subtask of the next state: the one after those that got an additional element.
    """
    share, remainder = divmod(sum(len(state.offsets) for _, state in parts), len(maps))
    waiting = [(stream, state.offsets) for stream, state in reversed(parts)]
    for turn in range(len(maps)):
        wanted = share + (turn < remainder)
        target = maps[(start + turn) % len(maps)]
        while wanted > 0:
            stream, offsets = waiting.pop()
            taken, rest = offsets[:wanted], offsets[wanted:]
            if rest:
                _check_places(name, taken, rest)
                waiting.append((stream, rest))
            wanted -= len(taken)
            meta = OperatorStateMetaInfo(name, OperatorStateMode.SPLIT_DISTRIBUTE, taken)
            _put(target, name, (stream, meta))
    return (start + remainder) % len(maps)


def _check_places(name: str, taken: Sequence[int], rest: Sequence[int]) -> None:
    """Refuses to separate elements with one offset: a handle cannot say which of them it means."""
    if taken and taken[-1] == rest[0]:
        raise RestoreError(
            f"Elements of operator state {name!r} cannot be spread over other subtasks: several "
            f"have the offset {rest[0]}, as in compressed state of Flink 1.18; rewrite the "
            f"snapshot first (dstl rewrite), which gives each its own."
        )


def java_hash_map_order(names: Sequence[str]) -> list[str]:
    """The names in the order in which a Java ``HashMap`` iterates over them."""
    capacity = 16
    while len(names) > capacity * 3 // 4:
        capacity *= 2

    def bucket(name: str) -> int:
        code = _STRING.java_hash(name) & 0xFFFFFFFF
        return (code ^ code >> 16) & (capacity - 1)

    return sorted(names, key=bucket)
