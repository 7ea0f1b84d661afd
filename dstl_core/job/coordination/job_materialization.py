"""Writes the full state as a new base: at once, or while epochs go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TypeAlias

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.errors import StateFileNotFoundError
from dstl_core.job.coordination.key_counts import keys_kept
from dstl_core.job.coordination.tasks import JobTasks
from dstl_core.job.task.local_copies import CopyParts
from dstl_core.job.task.reports import SubtaskReport, encode_state
from dstl_core.job.task.subtask import MATERIALIZE
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorSubtaskState
from dstl_core.model.handle import ChangelogStateBackendHandle
from dstl_core.model.ids import OperatorID
from dstl_core.model.state_size import StateSize

Place: TypeAlias = tuple[OperatorID, int]
"""An operator and the index of a subtask."""


class BackgroundMaterialization:
    """Writes the full state of one checkpoint, on its own thread and with its own tasks.

    Args:
        parent: The checkpoint.
        run: Writes its state.
    """

    def __init__(self, parent: CheckpointMetadata, run: Callable[[], list[SubtaskReport]]) -> None:
        self.parent = parent
        executor = ThreadPoolExecutor(1, "dstl-materialization")
        self._future: Future[list[SubtaskReport]] = executor.submit(run)
        executor.shutdown(wait=False)

    def done(self) -> bool:
        """Whether the state is written, or writing it has failed."""
        return self._future.done()

    def wait(self) -> None:
        """Waits until the state is written, or writing it has failed."""
        wait([self._future])

    def result(self, timeout_s: float | None = None) -> list[SubtaskReport]:
        """Waits for the reports; raises the error of a failed run."""
        return self._future.result(timeout_s)


def materialize(tasks: JobTasks) -> CompletedCheckpoint:
    """Writes the full state as a new base and commits a checkpoint without a log."""
    latest = tasks.coordinator.require_latest()
    file = tasks.load(latest)
    facts = _facts(tasks, latest, file.metadata)
    return tasks.full_checkpoint(tasks.specs_of(latest, file), facts, after=latest.checkpoint_id)


def materialize_beside(tasks: JobTasks) -> BackgroundMaterialization:
    """Starts tasks that write the present full state while epochs go on."""
    # The claim comes before the first file. If another driver claims the pipeline, and gc deletes
    # the files, this claim is lost as well, so that the files are not adopted.
    tasks.coordinator.claim()
    latest = tasks.coordinator.require_latest()
    file = tasks.load(latest)
    specs = tasks.specs_of(latest, file)
    name = f"materialization of checkpoint {latest.checkpoint_id}"
    beside = tasks.runner.beside()

    def run() -> list[SubtaskReport]:
        return tasks.snapshot(specs, latest.checkpoint_id, MATERIALIZE, name, beside)

    return BackgroundMaterialization(file.metadata, run)


def adopt(
    tasks: JobTasks, materialization: BackgroundMaterialization
) -> CompletedCheckpoint | None:
    """Waits for a background materialization and commits it as the base of the latest state.

    Returns:
        The commit. None if the state has another base by now; then ``dstl gc`` finds the files.
    """
    try:
        reports = materialization.result()
    except StateFileNotFoundError:
        current = tasks.load(tasks.coordinator.require_latest()).metadata
        if goes_on(materialization.parent, current):
            raise
        return None  # the base that it read was deleted, so the state has another base by now
    latest = tasks.coordinator.require_latest()
    current = tasks.load(latest).metadata
    states = adopted(materialization.parent, reports, current)
    if states is None:
        return None

    def run(checkpoint_id: int) -> list[SubtaskReport]:
        return [_bound(each, checkpoint_id) for each in states]

    facts = replace(
        _facts(tasks, latest, current),
        of_checkpoint=materialization.parent.checkpoint_id,
        materialized_bytes=sum(each.subtask_state.state_size for each in reports),
    )
    return tasks.coordinator.checkpoint(
        tasks.job.job_id, tasks.plans(), run, lambda _: facts, after=latest.checkpoint_id
    )


def _facts(
    tasks: JobTasks, latest: CompletedCheckpoint, metadata: CheckpointMetadata
) -> EpochFacts:
    return EpochFacts(
        kind="materialization",
        log_bytes_before=StateSize.of(metadata).log,
        restored_from=latest.checkpoint_id,
        watermarks=latest.facts.watermarks,
        keys=keys_kept(latest, tasks.job.operators),
    )


def adopted(
    parent: CheckpointMetadata, reports: Sequence[SubtaskReport], current: CheckpointMetadata
) -> list[SubtaskReport] | None:
    """The current state on the new bases: each log keeps only the changes after the parent.

    Returns:
        None if a log does not continue the log of the parent.
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
            before = _base_of(old, place)
            if before is None or not isinstance(handle, ChangelogStateBackendHandle):
                return None
            log = CopyParts.of([handle]).since(CopyParts.of([before]))
            if log is None:
                return None
            state = replace(
                state,
                managed_keyed_state=replace(base, non_materialized=log, checkpointed_size=0),
            )
        states.append(SubtaskReport(report.uid, report.subtask, encode_state(state)))
    return states


def _bound(report: SubtaskReport, checkpoint_id: int) -> SubtaskReport:
    """The same state in another checkpoint.

    A handle has the id of the checkpoint that commits it, as in
    ``ChangelogKeyedStateBackend.snapshot`` of Flink.
    """
    state = report.subtask_state
    handle = state.managed_keyed_state
    if isinstance(handle, ChangelogStateBackendHandle):
        handle = replace(handle, checkpoint_id=checkpoint_id)
    bound = replace(state, managed_keyed_state=handle)
    return replace(report, state=encode_state(bound))


def goes_on(parent: CheckpointMetadata, current: CheckpointMetadata) -> bool:
    """Whether the current state has the bases of the parent, and logs that continue its logs."""
    old = _by_place(parent)
    for place, state in _by_place(current).items():
        handle = state.managed_keyed_state
        before = _base_of(old, place)
        if not isinstance(handle, ChangelogStateBackendHandle):
            continue
        if before is None or CopyParts.of([handle]).since(CopyParts.of([before])) is None:
            return False
    return True


def _base_of(
    states: Mapping[Place, OperatorSubtaskState], place: Place
) -> ChangelogStateBackendHandle | None:
    """The keyed state at a place; None if there is none, as of an operator that is new."""
    subtask = states.get(place)
    handle = None if subtask is None else subtask.managed_keyed_state
    return handle if isinstance(handle, ChangelogStateBackendHandle) else None


def _by_place(metadata: CheckpointMetadata) -> dict[Place, OperatorSubtaskState]:
    return {
        (state.operator_id, subtask.index): subtask
        for state in metadata.operators
        for subtask in state.subtasks
    }
