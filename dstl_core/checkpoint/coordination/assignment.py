"""Assigns the state of a snapshot to the subtasks that restore it.

Source: ``StateAssignmentOperation`` and ``Checkpoints.loadAndValidateCheckpoint`` of Flink 2.2.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dstl_core.checkpoint.coordination.pending import OperatorPlan
from dstl_core.checkpoint.coordination.repartition import repartition_operator_state
from dstl_core.errors import MaxParallelismMismatchError, NonRestoredStateError, RestoreError
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import KeyedStateHandle, OperatorStreamStateHandle
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import (
    KeyGroupRange,
    compute_key_group_range_for_operator_index,
)
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StateAssignment:
    """The state of every subtask of a job.

    ``operators`` are the operators of the job, with the max parallelism after the restore.
    ``finished`` are the operators of which all subtasks had ended.
    """

    restored_checkpoint_id: int
    operators: tuple[OperatorPlan, ...]
    subtasks: Mapping[OperatorID, tuple[PrioritizedOperatorSubtaskState, ...]]
    finished: frozenset[OperatorID]


def assign_state(
    restored_checkpoint_id: int,
    operators: Sequence[OperatorPlan],
    states: Sequence[OperatorState],
    *,
    allow_non_restored_state: bool,
    source: str = "",
) -> StateAssignment:
    """Maps the state of a snapshot to the subtasks of a job, by operator id.

    An operator without state in the snapshot starts empty.

    Args:
        restored_checkpoint_id: The checkpoint id of the snapshot.
        operators: The operators of the job.
        states: The state of each operator in the snapshot.
        allow_non_restored_state: Whether state of other operators is skipped.
        source: The folder of the snapshot, for messages.

    Raises:
        NonRestoredStateError: The snapshot has state of an operator that the job does not have.
        MaxParallelismMismatchError: The max parallelism of an operator differs from its state's.
        RestoreError: The snapshot holds in-flight data of channels.
    """
    by_id = {state.operator_id: state for state in states}
    known = {plan.operator_id for plan in operators}
    for state in states:
        if state.operator_id not in known:
            _check_may_be_left_out(state, allow_non_restored_state, source)
    plans = tuple(_with_max_parallelism(plan, by_id.get(plan.operator_id)) for plan in operators)
    return StateAssignment(
        restored_checkpoint_id,
        plans,
        {
            plan.operator_id: _subtasks(restored_checkpoint_id, plan, by_id.get(plan.operator_id))
            for plan in plans
        },
        frozenset(state.operator_id for state in states if state.fully_finished) & known,
    )


def _check_may_be_left_out(state: OperatorState, allowed: bool, source: str) -> None:
    name = state.uid or state.operator_id.hex
    if allowed:
        _LOG.info("skipped the state of an operator that the job does not have: operator=%s", name)
    elif holds_state(state):
        raise NonRestoredStateError(
            f"Failed to rollback to checkpoint/savepoint {source}. Cannot map checkpoint/savepoint "
            f"state for operator {name} to the new program, because the operator is not available "
            f"in the new program; pass allow_non_restored_state=True to leave it out (Flink's "
            f"execution.state-recovery.ignore-unclaimed-state).",
            operator_id=state.operator_id.hex,
        )


def holds_state(state: OperatorState) -> bool:
    """Whether an operator of a snapshot has state, which a job has to take or leave out."""
    return state.coordinator_state is not None or any(map(_has_state, state.subtasks))


def _has_state(subtask: OperatorSubtaskState) -> bool:
    return any(
        (
            subtask.managed_operator_state,
            subtask.raw_operator_state,
            subtask.managed_keyed_state,
            subtask.raw_keyed_state,
            subtask.input_channel_state,
            subtask.result_subpartition_state,
        )
    )


def _with_max_parallelism(plan: OperatorPlan, state: OperatorState | None) -> OperatorPlan:
    if state is None:
        return plan
    name = plan.uid or plan.operator_id.hex
    if state.max_parallelism < plan.parallelism:
        raise MaxParallelismMismatchError(
            f"The state for operator {name} can not be restored. The maximum parallelism "
            f"({state.max_parallelism}) of the restored state is lower than the configured "
            f"parallelism ({plan.parallelism}); reduce the parallelism, or rewrite the snapshot "
            f"with a larger one."
        )
    if state.max_parallelism == plan.max_parallelism:
        return plan
    if plan.max_parallelism_configured:
        raise MaxParallelismMismatchError(
            f"Max parallelism mismatch between checkpoint/savepoint state and new program. Cannot "
            f"map operator {name} with max parallelism {state.max_parallelism} to new program with "
            f"max parallelism {plan.max_parallelism}; configure the max parallelism of the state, "
            f"or rewrite the snapshot."
        )
    _LOG.info(
        "Rescaling maximum parallelism for operator %s from %d to %d",
        name,
        plan.max_parallelism,
        state.max_parallelism,
    )
    return replace(plan, max_parallelism=state.max_parallelism)


def _subtasks(
    checkpoint_id: int, plan: OperatorPlan, state: OperatorState | None
) -> tuple[PrioritizedOperatorSubtaskState, ...]:
    if state is None or state.fully_finished:
        return (PrioritizedOperatorSubtaskState(checkpoint_id),) * plan.parallelism
    _check_no_channel_state(plan, state)
    by_index = {subtask.index: subtask for subtask in state.subtasks}
    old = [by_index.get(index) for index in range(state.parallelism)]
    managed = _operator_state(old, plan, lambda subtask: subtask.managed_operator_state)
    raw = _operator_state(old, plan, lambda subtask: subtask.raw_operator_state)
    return tuple(
        PrioritizedOperatorSubtaskState(
            checkpoint_id,
            _keyed_state(old, plan, index, lambda subtask: subtask.managed_keyed_state),
            _keyed_state(old, plan, index, lambda subtask: subtask.raw_keyed_state),
            managed[index],
            raw[index],
        )
        for index in range(plan.parallelism)
    )


def _check_no_channel_state(plan: OperatorPlan, state: OperatorState) -> None:
    if any(each.input_channel_state or each.result_subpartition_state for each in state.subtasks):
        raise RestoreError(
            f"The snapshot holds in-flight data of operator {plan.uid or plan.operator_id.hex} (an "
            f"unaligned checkpoint), which only the job that took it can restore; take a savepoint."
        )


def _operator_state(
    old: Sequence[OperatorSubtaskState | None],
    plan: OperatorPlan,
    part: Callable[[OperatorSubtaskState], OperatorStreamStateHandle | None],
) -> list[tuple[OperatorStreamStateHandle, ...]]:
    handles = [None if subtask is None else part(subtask) for subtask in old]
    previous = [() if handle is None else (handle,) for handle in handles]
    return repartition_operator_state(previous, plan.parallelism)


def _keyed_state(
    old: Sequence[OperatorSubtaskState | None],
    plan: OperatorPlan,
    index: int,
    part: Callable[[OperatorSubtaskState], KeyedStateHandle | None],
) -> tuple[KeyedStateHandle, ...]:
    """The handles that contain key groups of a subtask.

    Handles stay whole. A subtask reads only the key groups that it owns.
    """
    if len(old) == plan.parallelism:
        subtask_state = old[index]
        handle = None if subtask_state is None else part(subtask_state)
        return () if handle is None else (handle,)
    wanted = compute_key_group_range_for_operator_index(
        plan.max_parallelism, plan.parallelism, index
    )
    handles = (None if subtask is None else part(subtask) for subtask in old)
    return tuple(handle for handle in handles if handle is not None and _overlaps(handle, wanted))


def _overlaps(handle: KeyedStateHandle, wanted: KeyGroupRange) -> bool:
    return len(handle.key_group_range.get_intersection(wanted)) > 0
