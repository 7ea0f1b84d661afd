"""Selects the handles that a restored subtask may reference in its own checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dstl_core.model.checkpoint import keyed_state_streams
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandle,
    KeyedStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange


@dataclass(frozen=True, slots=True)
class CarriedState:
    """Handles for the next checkpoints: a base, and the logs of earlier runs after it."""

    base: tuple[KeyedStateHandle, ...]
    log: tuple[ChangelogStateHandle, ...]
    materialization_id: int


def carry_over(
    handles: Iterable[KeyedStateHandle], key_groups: KeyGroupRange
) -> CarriedState | None:
    """Sorts the handles of a checkpoint for a subtask that restored its part of them.

    A base handle may be reduced to fewer key groups; a log handle may not. When Flink restores a
    subtask, it replays the whole log for the key groups of that subtask and ignores those of the
    handle (``ChangelogBackendLogApplier`` of Flink 2.2.1). If two subtasks referenced parts of one
    log, a later restore of both into one subtask would replay the log twice, the second time after
    newer changes.

    Args:
        handles: The handles of the checkpoint, unchanged.
        key_groups: The key groups of the subtask.

    Returns:
        None if the state has to be materialized before the next checkpoint: a log has key groups
        outside ``key_groups``, or the path of a base is relative to its present metadata.
    """
    base: list[KeyedStateHandle] = []
    log: list[ChangelogStateHandle] = []
    materialization_id = 0
    for handle in handles:
        cut = handle.get_intersection(key_groups)
        if cut is None:
            continue
        if not isinstance(cut, ChangelogStateBackendHandle):
            base.append(cut)
            continue
        if cut.non_materialized and cut.key_group_range != handle.key_group_range:
            return None
        base += cut.materialized
        log += cut.non_materialized
        materialization_id = max(materialization_id, cut.materialization_id)
    streams = [stream for each in base for stream in keyed_state_streams(each)]
    if any(isinstance(stream, RelativeFileStateHandle) for stream in streams):
        return None
    return CarriedState(tuple(base), tuple(log), materialization_id)
