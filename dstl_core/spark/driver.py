"""The driver's side of the checkpoint protocol: the thin shell around the coordinator.

It claims the pipeline, turns a run's reports into acknowledgements, commits what the coordinator
says is complete, and resets what failed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from dstl_core.checkpoint.completed_store import CompletedCheckpoint, CompletedCheckpointStore
from dstl_core.checkpoint.coordinator import CheckpointCoordinator, OperatorPlan
from dstl_core.checkpoint.events import (
    AcknowledgeCheckpoint,
    CheckpointCommitted,
    CommitCheckpoint,
    DeclineCheckpoint,
    DiscardState,
    TriggerCheckpoint,
    TriggerTasks,
)
from dstl_core.checkpoint.failure import CheckpointFailureReason
from dstl_core.checkpoint.metadata_file import MetadataFile
from dstl_core.clock import Clock
from dstl_core.errors import CheckpointError, FencedError, InvariantViolation, RestoreError
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import ChangelogStateBackendHandle
from dstl_core.model.ids import OperatorID
from dstl_core.spark.operators import TaskSpec
from dstl_core.spark.reports import SubtaskReport
from dstl_core.spark.subtask import carried_state
from dstl_core.storage.commit_log import CommitLog
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import JobLayout

_LOG = logging.getLogger(__name__)

Run = Callable[[int], Sequence[SubtaskReport]]
"""Runs the Spark job of a checkpoint id."""


class CheckpointDriver:
    """Takes checkpoints of one pipeline. Claims it before the first one.

    Invariants: (1) what fails before the commit leaves nothing that a reader could see; (2) after
    an unclear commit nothing is deleted: the next look at the log tells what holds.
    """

    def __init__(self, layout: JobLayout, *, num_retained: int, timeout_ms: int, clock: Clock):
        self._layout = layout
        self._file_io = open_file_io(layout.root)
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._owner: str | None = None
        log = CommitLog(self._file_io, layout.commit_log, clock)
        self._store = CompletedCheckpointStore(
            self._file_io, layout, log, num_retained=num_retained
        )

    def latest(self) -> CompletedCheckpoint | None:
        """The last committed checkpoint, whoever committed it."""
        self._store.refresh()
        return self._store.latest

    def history(self) -> list[CompletedCheckpoint]:
        """All commits, oldest first."""
        self._store.refresh()
        return self._store.completed

    def require_latest(self) -> CompletedCheckpoint:
        """The last committed checkpoint.

        Raises:
            RestoreError: There is none.
        """
        latest = self.latest()
        if latest is None:
            raise RestoreError(
                f"There is no checkpoint yet in {self._layout.root}; call start() or run() first."
            )
        return latest

    def latest_file(self) -> MetadataFile:
        return self._store.load(self.require_latest())

    def checkpoint(
        self,
        task: TaskSpec,
        run: Run,
        facts: Callable[[Sequence[SubtaskReport]], Mapping[str, Any]],
        *,
        carry_over: bool,
    ) -> CompletedCheckpoint:
        """One checkpoint: trigger, run, acknowledge, commit, retire old ones.

        Args:
            task: The operator.
            run: Runs all subtasks of a checkpoint id.
            facts: What to keep in the commit record.
            carry_over: Whether a subtask without a report keeps its part of the parent. A subtask
                without rows may report nothing.

        Raises:
            FencedError: Another driver has claimed the pipeline.
            CheckpointError: It took too long.
        """
        self._claim()
        operator_id = task.operator.operator_id
        plan = OperatorPlan(operator_id, task.operator.uid, task.parallelism, task.max_parallelism)
        coordinator = CheckpointCoordinator(
            [plan],
            next_checkpoint_id=self._store.next_checkpoint_id(),
            timeout_ms=self._timeout_ms,
        )
        [trigger] = coordinator.step(TriggerCheckpoint(), self._clock.monotonic_ms())
        if not isinstance(trigger, TriggerTasks):
            raise InvariantViolation(f"a new coordinator did not trigger: {trigger}")
        checkpoint_id = trigger.checkpoint_id
        try:
            reports = run(checkpoint_id)
        except BaseException as error:
            self._abort(coordinator, checkpoint_id, error)
            raise
        states = {report.subtask: report.state for report in reports}
        if carry_over:
            for index in set(range(task.parallelism)) - set(states):
                states[index] = self._parent_part(task, index, checkpoint_id)
        commit = self._acknowledge(coordinator, checkpoint_id, operator_id, states)
        try:
            checkpoint = self._store.commit(commit.metadata, facts(reports))
        except FencedError:
            # The log says that this checkpoint never was, so what it wrote may go.
            self._store.withdraw(commit.metadata)
            self._delete_output(checkpoint_id)
            raise
        coordinator.step(CheckpointCommitted(checkpoint_id), self._clock.monotonic_ms())
        self._store.subsume()
        return checkpoint

    def _claim(self) -> None:
        if self._owner is None:
            self._owner = str(uuid4())
            self._store.claim(self._owner)
        else:
            self._store.check_claim()

    def _acknowledge(
        self,
        coordinator: CheckpointCoordinator,
        checkpoint_id: int,
        operator_id: OperatorID,
        states: Mapping[int, OperatorSubtaskState],
    ) -> CommitCheckpoint:
        for state in states.values():
            event = AcknowledgeCheckpoint(checkpoint_id, operator_id, state)
            for action in coordinator.step(event, self._clock.monotonic_ms()):
                if isinstance(action, CommitCheckpoint):
                    return action
                if isinstance(action, DiscardState):
                    self._store.discard(tuple(states.values()))
                    self._delete_output(checkpoint_id)
                    self._store.abort(checkpoint_id)
                    raise CheckpointError(
                        f"Checkpoint {checkpoint_id} was given up: "
                        f"{CheckpointFailureReason.CHECKPOINT_EXPIRED.message}; raise "
                        f"checkpoint_timeout_s.",
                        reason=CheckpointFailureReason.CHECKPOINT_EXPIRED,
                    )
        raise InvariantViolation("all subtasks acknowledged and nothing was committed")

    def _abort(
        self, coordinator: CheckpointCoordinator, checkpoint_id: int, error: BaseException
    ) -> None:
        """Resets: nothing of the checkpoint stays that a reader could see."""
        decline = DeclineCheckpoint(
            checkpoint_id, CheckpointFailureReason.TASK_FAILURE, type(error).__name__
        )
        for action in coordinator.step(decline, self._clock.monotonic_ms()):
            if isinstance(action, DiscardState):
                self._store.discard(action.subtask_states)
        self._delete_output(checkpoint_id)
        try:
            self._store.abort(checkpoint_id)
        except FencedError as fenced:
            _LOG.warning("%s", fenced)
        _LOG.warning(
            "checkpoint %d was aborted and reset: job=%s error=%s",
            checkpoint_id,
            self._layout.root,
            type(error).__name__,
        )

    def _delete_output(self, checkpoint_id: int) -> None:
        try:
            self._file_io.delete_folder(self._layout.output(checkpoint_id))
        except OSError as failure:
            _LOG.warning("output of an aborted epoch is left for gc: %s", failure)

    def _parent_part(
        self, task: TaskSpec, subtask: int, checkpoint_id: int
    ) -> OperatorSubtaskState:
        """A subtask's part of the parent checkpoint, unchanged."""
        carried = carried_state(task, subtask)
        handle = ChangelogStateBackendHandle(
            carried.base,
            carried.log,
            task.key_groups(subtask),
            carried.materialization_id,
            checkpoint_id,
            0,
            str(uuid4()),
        )
        return OperatorSubtaskState(subtask, managed_keyed_state=handle)
