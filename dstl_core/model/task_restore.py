"""What a task gets to restore from.

Source: ``JobManagerTaskRestore`` and ``PrioritizedOperatorSubtaskState`` of Flink 2.2.1. There is
one choice of handles, not several by priority: nothing is recovered from local copies here.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.model.handle import KeyedStateHandle, OperatorStreamStateHandle


@dataclass(frozen=True, slots=True)
class PrioritizedOperatorSubtaskState:
    """The handles of one operator at one subtask.

    ``restored_checkpoint_id`` is None if the job starts empty. A job that was restored has an id
    even where it has no state.
    """

    restored_checkpoint_id: int | None = None
    managed_keyed_state: tuple[KeyedStateHandle, ...] = ()
    raw_keyed_state: tuple[KeyedStateHandle, ...] = ()
    managed_operator_state: tuple[OperatorStreamStateHandle, ...] = ()
    raw_operator_state: tuple[OperatorStreamStateHandle, ...] = ()

    @property
    def is_restored(self) -> bool:
        return self.restored_checkpoint_id is not None
