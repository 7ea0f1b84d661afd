"""Assigns state to the subtasks of a job, and carries over the state of idle subtasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from dstl_core.checkpoint.coordination.assignment import assign_state
from dstl_core.checkpoint.coordination.pending import OperatorPlan
from dstl_core.checkpoint.store.metadata_file import MetadataFile
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.job.task.assigned_state import decode_assigned
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import ChangelogStateBackendHandle
from dstl_core.model.ids import OperatorID
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location


@dataclass(frozen=True)
class Assigned:
    """The handles that one subtask restores, and the resolver that reads them."""

    state: PrioritizedOperatorSubtaskState
    resolver: HandleResolver

    @classmethod
    def of(cls, task: TaskSpec, subtask: int) -> Assigned:
        folder = Location.parse(task.parent)
        resolver = HandleResolver(open_file_io(folder), folder, allow_roots=[task.job.layout.root])
        return cls(decode_assigned(task.assigned[subtask]), resolver)


def assign(
    parent: MetadataFile,
    plans: Sequence[OperatorPlan],
    *,
    allow_non_restored_state: bool,
    old_ids: Mapping[OperatorID, OperatorID] | None = None,
) -> dict[OperatorID, tuple[PrioritizedOperatorSubtaskState, ...]]:
    """The state that every subtask restores, by operator id.

    Args:
        parent: The snapshot.
        plans: The operators of the job.
        allow_non_restored_state: Whether state of other operators is left out.
        old_ids: Ids of operators in the job to their ids in the snapshot, where they differ.

    Raises:
        RestoreError: The snapshot does not fit the job.
    """
    old_ids = old_ids or {}
    named = [
        replace(plan, operator_id=old_ids.get(plan.operator_id, plan.operator_id)) for plan in plans
    ]
    assignment = assign_state(
        parent.metadata.checkpoint_id,
        named,
        parent.metadata.operators,
        allow_non_restored_state=allow_non_restored_state,
        source=str(parent.folder),
    )
    return {
        plan.operator_id: assignment.subtasks[old.operator_id]
        for plan, old in zip(plans, named, strict=True)
    }


def carried(parent: OperatorState | None, subtask: int, checkpoint_id: int) -> OperatorSubtaskState:
    """The state of a subtask that did not run, unchanged from the parent."""
    for subtask_state in parent.subtasks if parent is not None else ():
        if subtask_state.index != subtask:
            continue
        keyed = subtask_state.managed_keyed_state
        if isinstance(keyed, ChangelogStateBackendHandle):
            keyed = replace(
                keyed,
                checkpoint_id=checkpoint_id,
                checkpointed_size=0,
                state_handle_id=str(uuid4()),
            )
        return replace(subtask_state, managed_keyed_state=keyed)
    return OperatorSubtaskState(subtask)
