"""Takes the checkpoints of a job: one epoch is one checkpoint.

It claims the pipeline, turns a run's reports into acknowledgements, and removes what a failed epoch
has written. The tasks of an epoch are gone when they have reported.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import uuid4

from dstl_core.checkpoint.coordination.events import AcknowledgeCheckpoint, DeclineCheckpoint
from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.coordination.gateway import CheckpointCoordinatorGateway
from dstl_core.checkpoint.coordination.pending import CheckpointPlan, CheckpointTask, OperatorPlan
from dstl_core.checkpoint.store.checkpoint_storage import FileSystemCheckpointStorage
from dstl_core.checkpoint.store.completed_checkpoint import KEPT, CompletedCheckpoint
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.checkpoint.store.metadata_file import MetadataFile
from dstl_core.clock import Clock
from dstl_core.config import CheckpointConfig
from dstl_core.errors import CheckpointError, FormatError, RestoreError
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.key_group import compute_key_group_range_for_operator_index
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions
from dstl_core.spark.task.reports import SubtaskReport
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.json_document import CONVERSION_ERRORS
from dstl_core.storage.location import JobLayout, checkpoint_id_of

Run = Callable[[int], Sequence[SubtaskReport]]
"""Runs the Spark job of a checkpoint id."""
FactsOf = Callable[[Sequence[SubtaskReport]], EpochFacts]
"""What the commit record keeps, given what the subtasks reported."""
Found = TypeVar("Found")


@dataclass
class _Started:
    """A checkpoint that was triggered."""

    gateway: CheckpointCoordinatorGateway
    epoch: _Epoch
    future: Future[CompletedCheckpoint] = field(default_factory=Future)
    reports: Sequence[SubtaskReport] = ()

    @property
    def checkpoint_id(self) -> int:
        assert self.epoch.checkpoint_id is not None
        return self.epoch.checkpoint_id


class _Epoch:
    """The tasks of one epoch: started by the Spark job, not by the trigger."""

    def __init__(self, delete_output: Callable[[int], None]) -> None:
        self._delete_output = delete_output
        self.checkpoint_id: int | None = None
        self.tasks: Sequence[CheckpointTask] = ()

    def trigger_checkpoint(
        self,
        tasks: Sequence[CheckpointTask],
        checkpoint: CheckpointMetaData,
        options: CheckpointOptions,
    ) -> None:
        self.tasks, self.checkpoint_id = tasks, checkpoint.checkpoint_id

    def notify_checkpoint_complete(
        self, tasks: Sequence[CheckpointTask], checkpoint_id: int, timestamp: int
    ) -> None:
        """The tasks are gone."""

    def notify_checkpoint_subsumed(
        self, tasks: Sequence[CheckpointTask], checkpoint_id: int
    ) -> None:
        """The tasks are gone."""

    def notify_checkpoint_aborted(
        self,
        tasks: Sequence[CheckpointTask],
        checkpoint_id: int,
        latest_completed: int | None,
        reason: CheckpointFailureReason,
    ) -> None:
        self._delete_output(checkpoint_id)

    def fail_job(self, message: str, attempt_id: str | None) -> None:
        """The epoch fails with its checkpoint."""


@dataclass(frozen=True)
class PersistedCheckpoint:
    """A checkpoint whose files are written and that is not confirmed: nobody can see it yet.

    It may travel to another process as JSON. ``is_committed`` tells of an input that was committed
    before: then nothing was written.
    """

    checkpoint_id: int
    owner: str
    reports: Sequence[SubtaskReport]
    facts: EpochFacts
    is_committed: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "checkpoint_id": self.checkpoint_id,
            "owner": self.owner,
            "reports": [report.to_json() for report in self.reports],
            "facts": self.facts.to_json(),
            "is_committed": self.is_committed,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> PersistedCheckpoint:
        """Raises: FormatError: It is not what ``to_json`` gave."""
        try:
            return cls(
                int(body["checkpoint_id"]),
                str(body["owner"]),
                [SubtaskReport.from_json(each) for each in body["reports"]],
                EpochFacts.from_json(body["facts"], "it"),
                bool(body["is_committed"]),
            )
        except CONVERSION_ERRORS as error:
            raise FormatError(
                f"Not a persisted checkpoint ({error}); give what persist() returned."
            ) from error


class JobCoordinator:
    """Takes checkpoints of one pipeline. Claims it before the first one.

    One thread at a time takes checkpoints. Any thread may look at the commits meanwhile.

    Invariants: (1) what fails before the commit leaves nothing that a reader could see; (2) after
    an unclear commit nothing is deleted: the next look at the log tells what holds; (3) a
    checkpoint is committed only on top of the one that its state was made from.
    """

    def __init__(self, layout: JobLayout, *, num_retained: int, timeout_ms: int, clock: Clock):
        self._layout = layout
        self._file_io = open_file_io(layout.root)
        self._clock = clock
        self.num_retained = num_retained
        self._timeout_ms = timeout_ms
        self._owner: str | None = None
        self._lock = threading.RLock()
        """Held while the store is used, and not while a Spark job runs."""
        self.commit_seconds = 0.0
        """What the last commit took, from the reports to the record in the log."""
        self._store = CompletedCheckpointStore(
            self._file_io, layout, clock, num_retained=num_retained
        )

    def latest(self) -> CompletedCheckpoint | None:
        """The last committed checkpoint, whoever committed it."""
        with self._lock:
            self._store.refresh()
            return self._store.latest

    def history(self) -> list[CompletedCheckpoint]:
        """All commits, oldest first."""
        with self._lock:
            self._store.refresh()
            return self._store.completed

    def find(self, search: Callable[[Iterator[CompletedCheckpoint]], Found]) -> Found:
        """What a search finds among the commits.

        Args:
            search: Gets the commits, newest first; old ones are read as it asks for them.
        """
        with self._lock:
            self._store.refresh()
            return search(self._store.commits())

    def commit_of(self, checkpoint_id: int) -> CompletedCheckpoint | None:
        """The commit of a checkpoint id."""
        with self._lock:
            self._store.refresh()
            return self._store.commit_of(checkpoint_id)

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

    def file_of(self, checkpoint: CompletedCheckpoint) -> MetadataFile:
        """The metadata of a commit.

        Raises:
            FileNotFoundError: It was retired.
        """
        return self._store.load(checkpoint)

    def checkpoint(
        self,
        job_id: JobID,
        plans: Sequence[OperatorPlan],
        run: Run,
        facts: FactsOf,
        *,
        after: int | None,
    ) -> CompletedCheckpoint:
        """One checkpoint: trigger, run, acknowledge, commit, retire old ones.

        Args:
            job_id: Of the pipeline.
            plans: The operators.
            run: Runs a checkpoint id; has to report every subtask of every operator.
            facts: What to keep in the commit record.
            after: Id of the latest checkpoint when its state was read; None if there was none.

        Raises:
            FencedError: Another driver has claimed the pipeline.
            CheckpointError: It took too long, or another checkpoint was committed since ``after``.
        """
        started = self._trigger(job_id, plans, _identified(facts), after)
        return self._acknowledge(started, self._run(started, run))

    def persist(
        self,
        job_id: JobID,
        plans: Sequence[OperatorPlan],
        run: Run,
        facts: FactsOf,
        *,
        after: int | None,
    ) -> PersistedCheckpoint:
        """The first half of ``checkpoint``: all is written, nothing is committed.

        Raises:
            FencedError: Another driver has claimed the pipeline.
            CheckpointError: It took too long, or another checkpoint was committed since ``after``.
        """
        identified = _identified(facts)
        started = self._trigger(job_id, plans, identified, after)
        reports = self._run(started, run)
        # What may wait for its confirmation is what was written in time.
        with self._lock:
            started.gateway.poll()
            if started.future.done():
                self._completed(started)
        owner = self._owner or ""
        return PersistedCheckpoint(started.checkpoint_id, owner, reports, identified(reports))

    def confirm(
        self, job_id: JobID, plans: Sequence[OperatorPlan], persisted: PersistedCheckpoint
    ) -> CompletedCheckpoint:
        """The second half, in this or another process.

        Raises:
            FencedError: Another driver has claimed the pipeline since ``persist``.
            CheckpointError: Another checkpoint was committed since ``persist``, or the job has
                other operators, or other subtasks of them, than the one that persisted.
        """
        with self._lock:
            self._store.resume_claim(persisted.owner)
            self._owner = persisted.owner
            self.claim()
            _check_subtasks(plans, persisted)
            # Before anything is triggered: giving the id up would be the end of whoever
            # persisted it.
            self._check_next(self._store.next_checkpoint_id(), persisted)
            latest = self._store.latest
            after = None if latest is None else latest.checkpoint_id
            started = self._trigger(job_id, plans, lambda _: persisted.facts, after)
            if started.checkpoint_id != persisted.checkpoint_id:
                self._decline(started, "another checkpoint was committed")
                self._check_next(started.checkpoint_id, persisted)
            return self._acknowledge(started, persisted.reports)

    def _check_next(self, checkpoint_id: int, persisted: PersistedCheckpoint) -> None:
        if checkpoint_id != persisted.checkpoint_id:
            raise CheckpointError(
                f"Checkpoint {persisted.checkpoint_id} cannot be confirmed: the next one to commit "
                f"is {checkpoint_id}; run its input again.",
                location=str(self._layout.root),
            )

    def _trigger(
        self, job_id: JobID, plans: Sequence[OperatorPlan], facts: FactsOf, after: int | None
    ) -> _Started:
        with self._lock:
            self.claim()
            self._check_after(after)
            epoch = _Epoch(self._delete_output)
            gateway = CheckpointCoordinatorGateway(
                job_id,
                CheckpointPlan.of_operators(*plans),
                CheckpointConfig.of(timeout_ms=self._timeout_ms),
                self._store,
                FileSystemCheckpointStorage(self._layout, file_io=self._file_io),
                epoch,
                self._clock,
                tasks_live_on=False,
            )
            started = _Started(gateway, epoch)
            started.future = gateway.trigger_checkpoint(KEPT, facts=lambda: facts(started.reports))
            if epoch.checkpoint_id is None:
                started.future.result(timeout=0)  # raises why it was not triggered
            return started

    def _check_after(self, after: int | None) -> None:
        """Raises CheckpointError if the state of an epoch is not the latest one any more."""
        latest = self._store.latest
        found = None if latest is None else latest.checkpoint_id
        if found != after:
            before = "the first checkpoint" if after is None else f"what follows checkpoint {after}"
            raise CheckpointError(
                f"Nothing was committed: another driver committed checkpoint {found} while this "
                f"one prepared {before}; run it again.",
                location=str(self._layout.root),
            )

    def _run(self, started: _Started, run: Run) -> Sequence[SubtaskReport]:
        try:
            return run(started.checkpoint_id)
        except BaseException as error:
            self._decline(started, type(error).__name__)
            raise

    def _decline(self, started: _Started, why: str) -> None:
        reason = CheckpointFailureReason.TASK_FAILURE
        with self._lock:
            started.gateway.receive_decline_message(
                DeclineCheckpoint(started.checkpoint_id, reason, why)
            )

    def _acknowledge(
        self, started: _Started, reports: Sequence[SubtaskReport]
    ) -> CompletedCheckpoint:
        started.reports = reports
        gateway, checkpoint_id = started.gateway, started.checkpoint_id
        begun = time.monotonic()
        states = {
            (OperatorID.for_uid(report.uid), report.subtask): report.subtask_state
            for report in reports
        }
        with self._lock:
            self._store.learn(file for report in reports for file in report.written)
            for each in started.epoch.tasks:
                [operator_id] = each.operator_ids
                state = states[operator_id, each.subtask_index]
                gateway.receive_acknowledge_message(
                    AcknowledgeCheckpoint(checkpoint_id, each.attempt_id, {operator_id: state})
                )
            if gateway.uncertain_commit is not None:
                raise gateway.uncertain_commit
        self.commit_seconds = time.monotonic() - begun
        return self._completed(started)

    def _completed(self, started: _Started) -> CompletedCheckpoint:
        try:
            return started.future.result(timeout=0)
        except CheckpointError as error:
            if error.context.get("reason") is CheckpointFailureReason.CHECKPOINT_EXPIRED:
                raise CheckpointError(
                    f"Checkpoint {started.checkpoint_id} was given up: {error.message} Raise "
                    f"checkpoint_timeout_s.",
                    reason=CheckpointFailureReason.CHECKPOINT_EXPIRED,
                ) from error
            raise

    def claim(self) -> None:
        """Makes this coordinator the owner, and settles what an owner before left unclear.

        Raises:
            FencedError: Another driver program has claimed the pipeline since.
            CheckpointError: The commit log was deleted.
        """
        with self._lock:
            if self._owner is None:
                self._check_log()
                owner = str(uuid4())
                self._store.claim(owner)
                self._owner = owner
            else:
                self._store.check_claim()
                self._store.check_log_is_there()
                self._store.settle()

    def _check_log(self) -> None:
        """Raises CheckpointError if there are checkpoints that nobody has recorded."""
        self._store.refresh()
        if not self._store.is_empty:
            return
        names = (each.location.name for each in self._file_io.list_folder(self._layout.root))
        there = [each for each in map(checkpoint_id_of, names) if each is not None]
        if there:
            raise CheckpointError(
                f"There are checkpoints, the latest is chk-{max(there)}, and no commit log: it was "
                f"deleted, or they are somebody else's; put it back, or start a pipeline of "
                f"another name from that checkpoint.",
                location=str(self._layout.root),
            )

    def retire_output(self, checkpoint_id: int) -> None:
        """Deletes the output of a commit that is not the latest."""
        with self._lock:
            self._store.retire_output(checkpoint_id)

    def _delete_output(self, checkpoint_id: int) -> None:
        with self._lock:
            self._store.delete_output(checkpoint_id)


def _identified(facts: FactsOf) -> FactsOf:
    """The facts of one attempt of an epoch."""
    attempt = uuid4().hex
    return lambda reports: replace(facts(reports), attempt=attempt)


def _check_subtasks(plans: Sequence[OperatorPlan], persisted: PersistedCheckpoint) -> None:
    """Raises CheckpointError if state was persisted by other subtasks: some would be lost."""
    expected = {
        (plan.operator_id, subtask): compute_key_group_range_for_operator_index(
            plan.max_parallelism, plan.parallelism, subtask
        )
        for plan in plans
        for subtask in range(plan.parallelism)
    }
    reports = {(OperatorID.for_uid(each.uid), each.subtask): each for each in persisted.reports}
    keyed = {place: each.subtask_state.managed_keyed_state for place, each in reports.items()}
    if set(keyed) == set(expected) and all(
        handle is None or handle.key_group_range == expected[place]
        for place, handle in keyed.items()
    ):
        return
    raise CheckpointError(
        f"Checkpoint {persisted.checkpoint_id} cannot be confirmed: it was persisted by a job with "
        f"other operators, parallelism or max parallelism; confirm it with the same job, or run "
        f"its input again."
    )
