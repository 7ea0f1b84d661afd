"""The epochs of a job: from an input to an epoch that is ready to run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.errors import ConfigError
from dstl_core.job.coordination.definitions import (
    check_definitions,
    check_nothing_lost,
    continued_definitions,
    definitions_of,
)
from dstl_core.job.coordination.engine import Engine
from dstl_core.job.coordination.epoch import EpochRun, InputEpoch
from dstl_core.job.coordination.job_checks import check_input_id, check_run
from dstl_core.job.coordination.key_counts import keys_before, no_keys
from dstl_core.job.coordination.same_input import committed_before
from dstl_core.job.coordination.tasks import JobTasks
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.job.spec.lineage import (
    check_nothing_undone,
    check_order_of_inputs,
    commit_before,
    find_input,
)
from dstl_core.job.spec.operators import output_columns_of
from dstl_core.job.spec.read_columns import ReadColumns
from dstl_core.job.task.reports import SubtaskReport, epoch_facts
from dstl_core.model.checkpoint import OperatorState
from dstl_core.storage.json_document import as_read_back


@dataclass
class JobEpochs:
    """Prepares the epochs of a job. The first one starts the job with an empty state.

    Args:
        engine: Runs the job.
        tasks: The tasks of the job.
        columns: As ``JobOnEngine`` says.
        ignore_columns: As ``JobOnEngine`` says.
    """

    engine: Engine
    tasks: JobTasks
    columns: Sequence[str] | None
    ignore_columns: Sequence[str]
    _implied_start: CompletedCheckpoint | None = None

    def start_empty(self, *, after: int | None, implied: bool = False) -> CompletedCheckpoint:
        """Commits an empty checkpoint, the first one or one after another job's."""
        facts = EpochFacts(kind="start", implied=implied, keys=no_keys(self.tasks.job.operators))
        return self.tasks.full_checkpoint(self.tasks.root_specs(), facts, after=after)

    def _start_for_input(self) -> None:
        """Commits an empty checkpoint if no input was committed yet, unless this job has done so.

        The empty checkpoint of another job has the types and the max parallelism of that job.
        """
        latest = self.tasks.coordinator.latest()
        if latest is None or (latest.facts.implied and latest != self._implied_start):
            after = None if latest is None else latest.checkpoint_id
            self._implied_start = self.start_empty(after=after, implied=True)

    def begin(
        self,
        rows: Any,
        input_id: str | int,
        order_by: Sequence[str] | None,
        watermark_ms: int | None,
        *,
        rewind: bool,
        notes: Mapping[str, Any] | None,
    ) -> InputEpoch | CompletedCheckpoint:
        """The epoch of an input, ready to run, or its commit."""
        started = time.monotonic()
        job, coordinator = self.tasks.job, self.tasks.coordinator
        check_input_id(input_id)
        check_run(job.name, order_by, watermark_ms)
        reads = ReadColumns.of(job.operators, order_by, self.columns, self.ignore_columns)
        rows = self.engine.batch_of(rows, "The batch", reads)
        if coordinator.latest() is None:
            self._epoch_run(self.tasks.root_specs(), {}, rows, order_by, watermark_ms).check()
        self._start_for_input()
        place = coordinator.find(lambda commits: find_input(lineage(commits), input_id))
        assert place is not None, "a started pipeline has a commit"
        self.check_running(place.latest)
        before = committed_before(place, rows, reads, input_id, self.engine, rewind=rewind)
        outputs = output_columns_of(job.operators)
        # A rewind runs an input again also for an output that its epoch did not store.
        if before is not None and not (rewind and before.facts.outputs not in (None, outputs)):
            return before
        parent = place.latest
        if rewind:
            parent = coordinator.find(lambda commits: commit_before(lineage(commits), input_id))
        else:
            check_order_of_inputs(place.last_input, input_id)
            coordinator.find(lambda commits: check_nothing_undone(lineage(commits), input_id))
        defined = definitions_of(job.operators)
        if defined:
            recorded = continued_definitions(self.tasks, parent)
            check_definitions(recorded, defined)
            check_nothing_lost(recorded, defined)
        read = self.engine.select(rows, reads.of_batch(job.name, self.engine.columns_of(rows)))
        epoch = self._prepare(parent, read, order_by, watermark_ms)
        epoch.check()
        return InputEpoch(
            epoch,
            input_id,
            parent.checkpoint_id,
            started,
            place.latest.checkpoint_id,
            keys_before(parent, job.operators),
            as_read_back(notes or {}, "The notes of an input"),
        )

    def check_running(self, latest: CompletedCheckpoint) -> None:
        """Raises ConfigError if the job was stopped with a savepoint."""
        if latest.facts.is_stopped:
            raise ConfigError(
                f"The pipeline {self.tasks.job.name!r} was stopped with savepoint "
                f"{latest.facts.savepoint}; start a pipeline of another name from it, or call "
                f"resume()."
            )

    def _prepare(
        self,
        parent: CompletedCheckpoint,
        rows: Any,
        order_by: Sequence[str] | None,
        watermark_ms: int | None,
        *,
        drain: bool = False,
    ) -> EpochRun:
        file = self.tasks.load(parent)
        by_id = {each.operator_id: each for each in file.metadata.operators}
        parents = {each.uid: by_id.get(each.operator_id) for each in self.tasks.job.operators}
        specs = self.tasks.specs_of(parent, file)
        return self._epoch_run(specs, parents, rows, order_by, watermark_ms, drain=drain)

    def _epoch_run(
        self,
        specs: Sequence[TaskSpec],
        parents: Mapping[str, OperatorState | None],
        rows: Any,
        order_by: Sequence[str] | None,
        watermark_ms: int | None,
        *,
        drain: bool = False,
    ) -> EpochRun:
        return EpochRun(
            job=self.tasks.job,
            engine=self.engine,
            runner=self.tasks.runner,
            specs=specs,
            parents=parents,
            rows=rows,
            order_by=order_by,
            watermark=watermark_ms,
            drain=drain,
        )

    def drain(self, latest: CompletedCheckpoint) -> None:
        """Ends event time, so that every event-time timer fires, and commits that."""
        epoch = self._prepare(latest, None, None, None, drain=True)

        def facts(reports: Sequence[SubtaskReport]) -> EpochFacts:
            return epoch_facts(
                "drain",
                reports,
                watermarks=latest.facts.watermarks,
                restored_from=latest.checkpoint_id,
                keys_before=keys_before(latest, self.tasks.job.operators),
                outputs=output_columns_of(self.tasks.job.operators),
            )

        self.tasks.coordinator.checkpoint(
            self.tasks.job.job_id,
            self.tasks.plans(),
            lambda run: epoch.run(run, "drain"),
            facts,
            after=latest.checkpoint_id,
        )
