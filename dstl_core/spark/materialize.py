"""A materialization that is written beside epochs, and how it becomes the base."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from dstl_core.model.checkpoint import CheckpointMetadata, OperatorSubtaskState
from dstl_core.model.handle import ChangelogStateBackendHandle
from dstl_core.model.ids import OperatorID
from dstl_core.spark.local_copies import Parts
from dstl_core.spark.reports import SubtaskReport, encode_state


class BackgroundMaterialization:
    """The full state of one checkpoint in the making, on a thread and in a Spark job of its own.

    Args:
        parent: The checkpoint.
        run: Writes it.
    """

    def __init__(self, parent: CheckpointMetadata, run: Callable[[], list[SubtaskReport]]) -> None:
        self.parent = parent
        executor = ThreadPoolExecutor(1, "dstl-materialization")
        self._future: Future[list[SubtaskReport]] = executor.submit(run)
        executor.shutdown(wait=False)

    def done(self) -> bool:
        """Whether it is written, or has failed."""
        return self._future.done()

    def result(self, timeout_s: float | None = None) -> list[SubtaskReport]:
        """Waits; raises what failed."""
        return self._future.result(timeout_s)


def adopted(
    parent: CheckpointMetadata, reports: Sequence[SubtaskReport], current: CheckpointMetadata
) -> list[SubtaskReport] | None:
    """The current state on the new bases: of each log, what came after the parent.

    Returns:
        None if a log does not go on from that of the parent.
    """
    old, now = _by_place(parent), _by_place(current)
    new = {(OperatorID.for_uid(each.uid), each.subtask): each for each in reports}
    if set(new) != set(now):
        return None
    states = []
    for place, report in new.items():
        base = report.subtask_state.managed_keyed_state
        state = now[place]
        handle = state.managed_keyed_state
        if isinstance(base, ChangelogStateBackendHandle):
            before = old.get(place)
            if before is None or not isinstance(handle, ChangelogStateBackendHandle):
                return None
            log = Parts.of([handle]).since(Parts.of([_keyed(before)]))
            if log is None:
                return None
            state = replace(
                state,
                managed_keyed_state=replace(base, non_materialized=log, checkpointed_size=0),
            )
        states.append(SubtaskReport(report.uid, report.subtask, encode_state(state)))
    return states


def _keyed(state: OperatorSubtaskState) -> ChangelogStateBackendHandle:
    handle = state.managed_keyed_state
    if not isinstance(handle, ChangelogStateBackendHandle):
        raise TypeError(f"expected a changelog handle, got {type(handle).__name__}")
    return handle


def _by_place(
    metadata: CheckpointMetadata,
) -> dict[tuple[OperatorID, int], OperatorSubtaskState]:
    return {
        (state.operator_id, each.index): each
        for state in metadata.operators
        for each in state.subtasks
    }
