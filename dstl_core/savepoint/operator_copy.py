"""Copies one operator into a new savepoint: as it is, in canonical form, or rescaled."""

from __future__ import annotations

from dataclasses import replace

from dstl_core.errors import SavepointError
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    EmptySegmentFileStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from dstl_core.model.key_group import (
    KeyGroupRange,
    check_parallelism,
    compute_key_group_range_for_operator_index,
)
from dstl_core.savepoint.folder import StateFiles
from dstl_core.savepoint.snapshot import OperatorSnapshot
from dstl_core.state.rescale import cut, with_max_parallelism


def _is_rescaled(operator: OperatorSnapshot, max_parallelism: int | None) -> bool:
    return max_parallelism not in (None, operator.max_parallelism) and bool(operator.keyed_handles)


def check_writable(operator: OperatorSnapshot, max_parallelism: int | None) -> None:
    """Refuses what cannot be copied, before the first byte is written.

    Raises:
        SavepointError: There is in-flight data or raw keyed state.
        ConfigError: The parallelism is above the new maximum.
    """
    if max_parallelism is not None and _is_rescaled(operator, max_parallelism):
        check_parallelism(operator.parallelism, max_parallelism)
    for subtask in operator.state.subtasks:
        _refuse_unaligned(operator, subtask)


def rewrite_operator(
    operator: OperatorSnapshot,
    state: OperatorState,
    target: StateFiles,
    max_parallelism: int | None,
) -> OperatorState:
    """``state`` with its bytes in ``target``.

    Args:
        operator: Where the bytes come from.
        state: The operator as it shall be: its own, maybe under another id.
        target: Where the bytes go.
        max_parallelism: Its new number of key groups, if that changes.
    """
    if max_parallelism is not None and _is_rescaled(operator, max_parallelism):
        return _rescale(operator, state, target, max_parallelism)
    subtasks = tuple(_copy_subtask(operator, each, target) for each in state.subtasks)
    return replace(state, subtasks=subtasks)


def _copy_subtask(
    operator: OperatorSnapshot, subtask: OperatorSubtaskState, target: StateFiles
) -> OperatorSubtaskState:
    keyed = subtask.managed_keyed_state
    return replace(
        subtask,
        managed_operator_state=_copy_operator_state(
            operator, subtask.managed_operator_state, target
        ),
        raw_operator_state=_copy_operator_state(operator, subtask.raw_operator_state, target),
        managed_keyed_state=None if keyed is None else _canonical(operator, keyed, target),
    )


def _refuse_unaligned(operator: OperatorSnapshot, subtask: OperatorSubtaskState) -> None:
    if subtask.input_channel_state or subtask.result_subpartition_state:
        raise SavepointError(
            f"Operator {operator.label!r} has in-flight data of an unaligned checkpoint, which a "
            f"savepoint cannot hold; take an aligned checkpoint or a savepoint of the job."
        )
    if subtask.raw_keyed_state is not None:
        raise SavepointError(
            f"Operator {operator.label!r} has raw keyed state, which cannot be rewritten; "
            f"remove the operator or take a canonical savepoint of the job."
        )


def _copy_operator_state(
    operator: OperatorSnapshot,
    handle: OperatorStreamStateHandle | None,
    target: StateFiles,
) -> OperatorStreamStateHandle | None:
    if handle is None or isinstance(handle.stream, EmptySegmentFileStateHandle):
        return None
    return replace(handle, stream=_copy_stream(operator, handle.stream, target), file_merging=None)


def _copy_stream(
    operator: OperatorSnapshot, stream: StreamStateHandle, target: StateFiles
) -> StreamStateHandle:
    """The stream in the target; one that is in it already is kept, since no file ever changes."""
    snapshot = operator.snapshot
    if isinstance(stream, RelativeFileStateHandle) and snapshot.folder == target.folder:
        return stream
    return target.add_stream(snapshot.resolver.read(stream))


def _canonical(
    operator: OperatorSnapshot, handle: KeyedStateHandle, target: StateFiles
) -> KeyGroupsSavepointStateHandle | None:
    if isinstance(handle, KeyGroupsSavepointStateHandle):
        return replace(handle, stream=_copy_stream(operator, handle.stream, target))
    return target.add_keyed_state(operator.restore([handle], handle.key_group_range))


def _rescale(
    operator: OperatorSnapshot,
    state: OperatorState,
    target: StateFiles,
    max_parallelism: int,
) -> OperatorState:
    everything = KeyGroupRange(0, operator.max_parallelism - 1)
    moved = with_max_parallelism(
        operator.restore(operator.keyed_handles, everything), max_parallelism
    )
    subtasks = []
    by_index = {subtask.index: subtask for subtask in state.subtasks}
    for index in range(state.parallelism):
        old = by_index.get(index, OperatorSubtaskState(index))
        own = compute_key_group_range_for_operator_index(max_parallelism, state.parallelism, index)
        subtasks.append(
            OperatorSubtaskState(
                index,
                _copy_operator_state(operator, old.managed_operator_state, target),
                _copy_operator_state(operator, old.raw_operator_state, target),
                target.add_keyed_state(cut(moved, own)),
            )
        )
    return replace(state, max_parallelism=max_parallelism, subtasks=tuple(subtasks))
