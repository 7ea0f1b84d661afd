"""The state that a task restores.

Source: ``JobManagerTaskRestore`` and ``PrioritizedOperatorSubtaskState`` of Flink 2.2.1. There is
only one alternative for each handle, since dstl does not recover from local copies.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.model.handle import KeyedStateHandle, OperatorStreamStateHandle


@dataclass(frozen=True, slots=True)
class PrioritizedOperatorSubtaskState:
    """The handles of one operator in one subtask.

    ``restored_checkpoint_id`` is None if the job starts empty. After a restore it is set even if
    the operator has no state.
    """

    restored_checkpoint_id: int | None = None
    managed_keyed_state: tuple[KeyedStateHandle, ...] = ()
    raw_keyed_state: tuple[KeyedStateHandle, ...] = ()
    managed_operator_state: tuple[OperatorStreamStateHandle, ...] = ()
    raw_operator_state: tuple[OperatorStreamStateHandle, ...] = ()

    @property
    def is_restored(self) -> bool:
        return self.restored_checkpoint_id is not None
