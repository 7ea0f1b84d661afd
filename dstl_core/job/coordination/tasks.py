"""The tasks of a job: their specifications, and the checkpoints that they take together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dstl_core.checkpoint.coordination.pending import OperatorPlan
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.checkpoint.store.metadata_file import MetadataFile
from dstl_core.clock import Clock
from dstl_core.errors import RestoreError
from dstl_core.job.coordination.engine import TaskRunner
from dstl_core.job.coordination.job_coordinator import JobCoordinator
from dstl_core.job.coordination.key_counts import keys_kept
from dstl_core.job.spec.job_spec import JobSpec, TaskSpec
from dstl_core.job.spec.operators import declared_decimals
from dstl_core.job.task.assigned_state import encode_assigned
from dstl_core.job.task.reports import SubtaskReport, encode_state
from dstl_core.job.task.restore import assign, carried
from dstl_core.job.task.subtask import MATERIALIZE, snapshot_subtask
from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.ids import OperatorID
from dstl_core.model.snapshot_type import CheckpointOptions
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.state.backends.timers import MIN_WATERMARK


@dataclass(frozen=True)
class JobTasks:
    """The tasks of one job.

    Args:
        job: The job.
        clock: Gives the processing time of tasks.
        coordinator: Takes the checkpoints.
        runner: Runs the tasks.
    """

    job: JobSpec
    clock: Clock
    coordinator: JobCoordinator
    runner: TaskRunner

    def plans(self, metadata: CheckpointMetadata | None = None) -> list[OperatorPlan]:
        """The plans of the operators; with the parallelism of ``metadata``, if given."""
        parallelism = (
            {}
            if metadata is None
            else {each.operator_id: each.parallelism for each in metadata.operators}
        )
        return [
            OperatorPlan(
                operator.operator_id,
                operator.uid,
                parallelism.get(operator.operator_id, self.job.parallelism),
                self.job.max_parallelism,
                decimals=declared_decimals(operator),
            )
            for operator in self.job.operators
        ]

    def root_specs(self) -> list[TaskSpec]:
        """One ``TaskSpec`` per operator, without state to restore."""
        nothing = (PrioritizedOperatorSubtaskState(),) * self.job.parallelism
        return self.specs(
            str(self.job.layout.root), {plan.operator_id: nothing for plan in self.plans()}
        )

    def specs_of(self, parent: CompletedCheckpoint, file: MetadataFile) -> list[TaskSpec]:
        """One ``TaskSpec`` per operator, which restores a checkpoint."""
        states = assign(
            file, self.plans(), allow_non_restored_state=self.job.allow_non_restored_state
        )
        return self.specs(str(file.folder), states, parent.facts.watermarks)

    def specs(
        self,
        parent: str,
        states: Mapping[OperatorID, tuple[PrioritizedOperatorSubtaskState, ...]],
        watermarks: Mapping[str, int] | None = None,
    ) -> list[TaskSpec]:
        """One ``TaskSpec`` per operator.

        Args:
            parent: The folder of the snapshot to restore.
            states: The state that each subtask restores, by operator id.
            watermarks: Event time that operators have reached, in milliseconds, by uid.
        """
        now_ms = self.clock.now_ms()
        return [
            TaskSpec(
                job=self.job.shipped_for(operator),
                parent=parent,
                assigned=tuple(map(encode_assigned, states[operator.operator_id])),
                now_ms=now_ms,
                watermark=(watermarks or {}).get(operator.uid, MIN_WATERMARK),
                begins_with_base=True,
            )
            for operator in self.job.operators
        ]

    def catalog(self, checkpoint: CompletedCheckpoint) -> Snapshot:
        """The state of a commit, to read."""
        return Snapshot.load(str(self.load(checkpoint).folder), serializers=self.job.registry)

    def load(self, checkpoint: CompletedCheckpoint) -> MetadataFile:
        """The metadata of a commit.

        Raises:
            RestoreError: The checkpoint was retired, or its files were deleted.
        """
        try:
            return self.coordinator.file_of(checkpoint)
        except FileNotFoundError as error:
            if checkpoint == self.coordinator.latest():
                raise RestoreError(
                    f"The files of the latest checkpoint, {checkpoint.checkpoint_id}, are missing, "
                    f"and dstl did not delete them; put them back, or start a pipeline of "
                    f"another name from a savepoint.",
                    location=str(self.job.layout.root),
                ) from error
            raise RestoreError(
                f"Checkpoint {checkpoint.checkpoint_id} was retired and cannot be restored; "
                f"raise num_retained (now {self.coordinator.num_retained}) or retain, or start a "
                f"pipeline of another name from an earlier savepoint."
            ) from error

    def full_checkpoint(
        self, specs: Sequence[TaskSpec], facts: EpochFacts, *, after: int | None
    ) -> CompletedCheckpoint:
        """Commits a checkpoint of full state, without a log, after checkpoint ``after``."""

        def run(checkpoint_id: int) -> list[SubtaskReport]:
            return self.snapshot(specs, checkpoint_id, MATERIALIZE, facts.kind or "")

        def with_size(reports: Sequence[SubtaskReport]) -> EpochFacts:
            states = [report.subtask_state for report in reports]
            ids = [getattr(each.managed_keyed_state, "materialization_id", 0) for each in states]
            return replace(
                facts,
                materialization_id=max(ids),
                materialized_bytes=sum(each.state_size for each in states),
            )

        return self.coordinator.checkpoint(
            self.job.job_id, self.plans(), run, with_size, after=after
        )

    def snapshot(
        self,
        specs: Sequence[TaskSpec],
        checkpoint_id: int,
        options: CheckpointOptions,
        description: str,
        runner: TaskRunner | None = None,
    ) -> list[SubtaskReport]:
        """Writes all state for a checkpoint or a savepoint."""

        def run(task: TaskSpec, subtask: int) -> SubtaskReport:
            return snapshot_subtask(task, checkpoint_id, options, subtask)

        reports = []
        for spec in specs:
            name = f"{description}, {spec.operator.uid}"
            subtasks = range(self.job.parallelism)
            reports += (runner or self.runner).per_subtask(run, spec, subtasks, name)
        return reports

    def carry(self, facts: EpochFacts) -> None:
        """Commits the latest state again, with other facts."""
        latest = self.coordinator.require_latest()
        file = self.load(latest)

        def run(checkpoint_id: int) -> list[SubtaskReport]:
            return [
                SubtaskReport(
                    operator.uid,
                    subtask.index,
                    encode_state(carried(state, subtask.index, checkpoint_id)),
                )
                for state in file.metadata.operators
                for operator in self.job.operators
                if operator.operator_id == state.operator_id
                for subtask in state.subtasks
            ]

        kept = replace(
            facts,
            restored_from=latest.checkpoint_id,
            watermarks=latest.facts.watermarks,
            keys=keys_kept(latest, self.job.operators),
        )
        plans = self.plans(file.metadata)
        after = latest.checkpoint_id
        self.coordinator.checkpoint(self.job.job_id, plans, run, lambda _: kept, after=after)
