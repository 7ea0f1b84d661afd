"""What the subtasks of a job get, and the checkpoints that they take together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dstl_core.checkpoint.coordination.pending import OperatorPlan
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.metadata_file import MetadataFile
from dstl_core.clock import Clock
from dstl_core.config import ChangelogOptions
from dstl_core.errors import RestoreError
from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.restore import PrioritizedOperatorSubtaskState
from dstl_core.model.snapshot_type import CheckpointOptions
from dstl_core.spark.job.driver import CheckpointDriver
from dstl_core.spark.task.lineage import RESTORED_FROM
from dstl_core.spark.task.operators import LocalCopies, Operator, TaskSpec, as_shipped
from dstl_core.spark.task.reports import SubtaskReport, encode_state
from dstl_core.spark.task.restore import assign, carried
from dstl_core.spark.task.session import SparkTasks
from dstl_core.spark.task.subtask import MATERIALIZE, snapshot_subtask
from dstl_core.state.backends.changelog_backend import ValueLogging
from dstl_core.state.backends.state_backend import StateBackend
from dstl_core.state.backends.timers import MIN_WATERMARK
from dstl_core.storage.location import JobLayout


@dataclass(frozen=True)
class JobTasks:
    """The tasks of one job. The fields are those of ``StatefulJob``, checked."""

    job_id: JobID
    layout: JobLayout
    base_path: str
    operators: tuple[Operator, ...]
    parallelism: int
    max_parallelism: int
    changelog_options: Mapping[str, Any]
    changelog: bool
    state_backend: StateBackend
    local_copies: LocalCopies
    value_logging: ValueLogging
    allow_non_restored_state: bool
    clock: Clock
    driver: CheckpointDriver
    spark_tasks: SparkTasks

    def plans(self, metadata: CheckpointMetadata | None = None) -> list[OperatorPlan]:
        """The operators as checkpoints see them; with the parallelism of a snapshot, if given."""
        there = (
            {}
            if metadata is None
            else {each.operator_id: each.parallelism for each in metadata.operators}
        )
        return [
            OperatorPlan(
                each.operator_id,
                each.uid,
                there.get(each.operator_id, self.parallelism),
                self.max_parallelism,
            )
            for each in self.operators
        ]

    def root_specs(self) -> list[TaskSpec]:
        """The tasks of a job without state."""
        nothing = (PrioritizedOperatorSubtaskState(),) * self.parallelism
        return self.specs(
            str(self.layout.root), {plan.operator_id: nothing for plan in self.plans()}
        )

    def specs_of(self, parent: CompletedCheckpoint, file: MetadataFile) -> list[TaskSpec]:
        """The tasks, which restore a checkpoint."""
        states = assign(file, self.plans(), allow_non_restored_state=self.allow_non_restored_state)
        return self.specs(str(file.folder), states, parent.facts.get("watermarks", {}))

    def specs(
        self,
        parent: str,
        states: Mapping[OperatorID, tuple[PrioritizedOperatorSubtaskState, ...]],
        watermarks: Mapping[str, int] | None = None,
    ) -> list[TaskSpec]:
        """The tasks of each operator.

        Args:
            parent: The folder of what they restore.
            states: What each subtask restores of it.
            watermarks: Event time that operators have reached, by uid.
        """
        options = ChangelogOptions.of(
            **{
                "base_path": self.base_path,
                # A task lives for one epoch: what is due by time is up to who runs the job.
                "periodic_materialize_enabled": False,
                **self.changelog_options,
            }
        )
        now_ms = self.clock.now_ms()
        return [
            TaskSpec(
                self.job_id,
                self.base_path,
                as_shipped(operator),
                self.parallelism,
                self.max_parallelism,
                parent,
                states[operator.operator_id],
                options,
                self.changelog,
                self.state_backend,
                now_ms,
                (watermarks or {}).get(operator.uid, MIN_WATERMARK),
                self.local_copies,
                self.value_logging,
            )
            for operator in self.operators
        ]

    def load(self, checkpoint: CompletedCheckpoint) -> MetadataFile:
        """The metadata of a commit.

        Raises:
            RestoreError: It was retired, or somebody has deleted it.
        """
        try:
            return self.driver.file_of(checkpoint)
        except FileNotFoundError as error:
            if checkpoint == self.driver.latest():
                raise RestoreError(
                    f"The files of the latest checkpoint, {checkpoint.checkpoint_id}, are gone, "
                    f"and no driver has deleted them; put them back, or start a pipeline of "
                    f"another name from a savepoint.",
                    location=str(self.layout.root),
                ) from error
            raise RestoreError(
                f"Checkpoint {checkpoint.checkpoint_id} was retired and cannot be restored; "
                f"raise num_retained (now {self.driver.num_retained}), or start a pipeline of "
                f"another name from an earlier savepoint."
            ) from error

    def full_checkpoint(
        self, specs: Sequence[TaskSpec], facts: Mapping[str, Any], *, after: int | None
    ) -> CompletedCheckpoint:
        """Commits a checkpoint of full state, without a log, on top of checkpoint ``after``."""

        def run(checkpoint_id: int) -> list[SubtaskReport]:
            return self.snapshot(specs, checkpoint_id, MATERIALIZE, facts["kind"])

        def with_size(reports: Sequence[SubtaskReport]) -> dict[str, Any]:
            states = [report.subtask_state for report in reports]
            ids = [getattr(each.managed_keyed_state, "materialization_id", 0) for each in states]
            return {
                **facts,
                "materialization_id": max(ids),
                "materialized_bytes": sum(each.state_size for each in states),
            }

        return self.driver.checkpoint(self.job_id, self.plans(), run, with_size, after=after)

    def snapshot(
        self,
        specs: Sequence[TaskSpec],
        checkpoint_id: int,
        options: CheckpointOptions,
        description: str,
        spark_tasks: SparkTasks | None = None,
    ) -> list[SubtaskReport]:
        """Writes all state, for a checkpoint or a savepoint."""
        reports = []
        for spec in specs:

            def run(subtask: int, spec: TaskSpec = spec) -> SubtaskReport:
                return snapshot_subtask(spec, checkpoint_id, options, subtask)

            subtasks = list(range(spec.parallelism))
            name = f"{description}, {spec.operator.uid}"
            reports += (spark_tasks or self.spark_tasks).per_subtask(run, subtasks, name)
        return reports

    def carry(self, facts: Mapping[str, Any]) -> None:
        """Commits the latest state once more, with other facts."""
        latest = self.driver.require_latest()
        file = self.load(latest)

        def run(checkpoint_id: int) -> list[SubtaskReport]:
            return [
                SubtaskReport(
                    operator.uid,
                    each.index,
                    encode_state(carried(state, each.index, checkpoint_id)),
                )
                for state in file.metadata.operators
                for operator in self.operators
                if operator.operator_id == state.operator_id
                for each in state.subtasks
            ]

        kept = {
            RESTORED_FROM: latest.checkpoint_id,
            "watermarks": latest.facts.get("watermarks", {}),
            **facts,
        }
        plans = self.plans(file.metadata)
        after = latest.checkpoint_id
        self.driver.checkpoint(self.job_id, plans, run, lambda _: kept, after=after)
