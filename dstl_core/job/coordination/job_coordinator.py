"""Takes the checkpoints of a job: one epoch is one checkpoint.

The coordinator claims the pipeline, converts the reports of subtasks to acknowledgements, and
deletes the files of a failed epoch. The tasks of an epoch end with their reports.
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
from dstl_core.job.task.reports import SubtaskReport
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.key_group import compute_key_group_range_for_operator_index
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.json_document import CONVERSION_ERRORS
from dstl_core.storage.location import JobLayout, checkpoint_id_of

Run = Callable[[int], Sequence[SubtaskReport]]
"""Runs the Spark job of a checkpoint, by its id; returns a report of every subtask."""
FactsOf = Callable[[Sequence[SubtaskReport]], EpochFacts]
"""Makes the facts of the commit record from the reports of the subtasks."""
Found = TypeVar("Found")


@dataclass
class _Started:
    """A triggered checkpoint. ``facts`` makes the facts of its record from ``reports``."""

    gateway: CheckpointCoordinatorGateway
    epoch: _Epoch
    facts: FactsOf
    future: Future[CompletedCheckpoint] = field(default_factory=Future)
    reports: Sequence[SubtaskReport] = ()

    @property
    def checkpoint_id(self) -> int:
        assert self.epoch.checkpoint_id is not None
        return self.epoch.checkpoint_id


class _Epoch:
    """The tasks of one epoch. The Spark job starts them, not the trigger."""

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
        """Does nothing: the tasks have ended."""

    def notify_checkpoint_subsumed(
        self, tasks: Sequence[CheckpointTask], checkpoint_id: int
    ) -> None:
        """Does nothing: the tasks have ended."""

    def notify_checkpoint_aborted(
        self,
        tasks: Sequence[CheckpointTask],
        checkpoint_id: int,
        latest_completed: int | None,
        reason: CheckpointFailureReason,
    ) -> None:
        self._delete_output(checkpoint_id)

    def fail_job(self, message: str, attempt_id: str | None) -> None:
        """Does nothing: the epoch fails with its checkpoint."""


@dataclass(frozen=True)
class PersistedCheckpoint:
    """A checkpoint whose files are written, without a commit. It is not visible yet.

    As JSON it can be passed to another process. ``is_committed`` is true if the input was committed
    before; then nothing was written.
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
        """Raises: FormatError: ``body`` is not a result of ``to_json``."""
        if not isinstance(body, Mapping):
            raise FormatError(
                f"The value is not a persisted checkpoint: expected the object that its to_json "
                f"returns, got a {type(body).__name__}; read a JSON text with json.loads first."
            )
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
                f"The value is not a persisted checkpoint ({error}); give the result of persist()."
            ) from error


class JobCoordinator:
    """Takes checkpoints of one pipeline. It claims the pipeline before the first one.

    One thread at a time takes checkpoints. Meanwhile any thread may read the commits.

    Invariants: (1) an epoch that fails before its commit leaves nothing visible to readers; (2)
    after a commit with unknown outcome nothing is deleted, and the next read of the log finds the
    outcome; (3) a checkpoint is committed only directly after the one that its state starts from.
    """

    def __init__(
        self,
        layout: JobLayout,
        *,
        num_retained: int,
        retain_ms: int = 0,
        num_retained_outputs: int | None = None,
        timeout_ms: int,
        clock: Clock,
    ) -> None:
        self._layout = layout
        self._file_io = open_file_io(layout.root)
        self._clock = clock
        self.num_retained = num_retained
        self._timeout_ms = timeout_ms
        self._owner: str | None = None
        self._lock = threading.RLock()
        """Held while the store is used, but not while a Spark job runs."""
        self.commit_seconds = 0.0
        """Duration of the last commit in seconds, from the reports to the record in the log."""
        self._store = CompletedCheckpointStore(
            self._file_io,
            layout,
            clock,
            num_retained=num_retained,
            retain_ms=retain_ms,
            num_retained_outputs=num_retained_outputs,
        )

    def latest(self) -> CompletedCheckpoint | None:
        """The last committed checkpoint, also if another driver committed it."""
        with self._lock:
            self._store.refresh()
            return self._store.latest

    def history(self) -> list[CompletedCheckpoint]:
        """All commits, oldest first."""
        with self._lock:
            self._store.refresh()
            return self._store.completed

    def find(self, search: Callable[[Iterator[CompletedCheckpoint]], Found]) -> Found:
        """Returns the result of a search in the commits.

        Args:
            search: Called with the commits, newest first. Old ones are read when it needs them.
        """
        with self._lock:
            self._store.refresh()
            return search(self._store.commits())

    def commit_of(self, checkpoint_id: int) -> CompletedCheckpoint | None:
        with self._lock:
            self._store.refresh()
            return self._store.commit_of(checkpoint_id)

    def require_latest(self) -> CompletedCheckpoint:
        """The last committed checkpoint.

        Raises:
            RestoreError: There is no commit.
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
            FileNotFoundError: The checkpoint was retired.
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
        """Takes one checkpoint: trigger, run, acknowledge, commit, retire old ones.

        Args:
            job_id: The job id of the pipeline.
            plans: The operators.
            run: Runs the tasks; returns a report of every subtask of every operator.
            facts: Makes the facts of the commit record from these reports.
            after: Id of the latest checkpoint when the state was read; None if there was none.

        Raises:
            FencedError: Another driver has claimed the pipeline.
            CheckpointError: It took too long, or another checkpoint was committed since ``after``.
        """
        return self._acknowledge(self._written(job_id, plans, run, facts, after))

    def persist(
        self,
        job_id: JobID,
        plans: Sequence[OperatorPlan],
        run: Run,
        facts: FactsOf,
        *,
        after: int | None,
    ) -> PersistedCheckpoint:
        """Does the first half of ``checkpoint``: writes all files, without a commit.

        Arguments and errors are those of ``checkpoint``.
        """
        started = self._written(job_id, plans, run, facts, after)
        # Only a checkpoint that was written before its time-out may wait for the confirmation.
        with self._lock:
            started.gateway.poll()
            if started.future.done():
                self._completed(started)
        reports = started.reports
        return PersistedCheckpoint(
            started.checkpoint_id, self._owner or "", reports, started.facts(reports)
        )

    def confirm(
        self, job_id: JobID, plans: Sequence[OperatorPlan], persisted: PersistedCheckpoint
    ) -> CompletedCheckpoint:
        """Does the second half of ``checkpoint``, in this or another process: commits.

        Raises:
            FencedError: Another driver has claimed the pipeline since ``persist``.
            CheckpointError: Another checkpoint was committed since ``persist``, or the operators or
                subtasks differ from those of the job that persisted.
        """
        with self._lock:
            self._store.resume_claim(persisted.owner)
            self._owner = persisted.owner
            self.claim()
            _check_subtasks(plans, persisted)
            # Checked before the trigger: a triggered checkpoint uses an id, and then the persisted
            # one could never be confirmed.
            self._check_next(self._store.next_checkpoint_id(), persisted)
            latest = self._store.latest
            after = None if latest is None else latest.checkpoint_id
            started = self._trigger(job_id, plans, lambda _: persisted.facts, after)
            if started.checkpoint_id != persisted.checkpoint_id:
                self._decline(started, "another checkpoint was committed")
                self._check_next(started.checkpoint_id, persisted)
            started.reports = persisted.reports
            return self._acknowledge(started)

    def _check_next(self, checkpoint_id: int, persisted: PersistedCheckpoint) -> None:
        if checkpoint_id != persisted.checkpoint_id:
            raise CheckpointError(
                f"Checkpoint {persisted.checkpoint_id} cannot be confirmed: the next checkpoint id "
                f"is {checkpoint_id}; run its input again.",
                location=str(self._layout.root),
            )

    def _written(
        self,
        job_id: JobID,
        plans: Sequence[OperatorPlan],
        run: Run,
        facts: FactsOf,
        after: int | None,
    ) -> _Started:
        """Triggers a checkpoint and runs its tasks, which write all its files."""
        started = self._trigger(job_id, plans, _identified(facts), after)
        try:
            started.reports = run(started.checkpoint_id)
        except BaseException as error:
            self._decline(started, type(error).__name__)
            raise
        return started

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
            started = _Started(gateway, epoch, facts)
            started.future = gateway.trigger_checkpoint(KEPT, facts=lambda: facts(started.reports))
            if epoch.checkpoint_id is None:
                started.future.result(timeout=0)  # raises the reason
            return started

    def _check_after(self, after: int | None) -> None:
        """Raises CheckpointError if another checkpoint was committed since ``after``."""
        latest = self._store.latest
        actual = None if latest is None else latest.checkpoint_id
        if actual != after:
            before = "the first one" if after is None else f"the one after checkpoint {after}"
            raise CheckpointError(
                f"Nothing was committed: another driver committed checkpoint {actual} while this "
                f"one prepared {before}; run it again.",
                location=str(self._layout.root),
            )

    def _decline(self, started: _Started, why: str) -> None:
        reason = CheckpointFailureReason.TASK_FAILURE
        with self._lock:
            started.gateway.receive_decline_message(
                DeclineCheckpoint(started.checkpoint_id, reason, why)
            )

    def _acknowledge(self, started: _Started) -> CompletedCheckpoint:
        gateway, checkpoint_id, reports = started.gateway, started.checkpoint_id, started.reports
        begun = time.monotonic()
        states = {
            (OperatorID.for_uid(report.uid), report.subtask): report.subtask_state
            for report in reports
        }
        with self._lock:
            self._store.learn(file for report in reports for file in report.written)
            for task in started.epoch.tasks:
                [operator_id] = task.operator_ids
                state = states[operator_id, task.subtask_index]
                gateway.receive_acknowledge_message(
                    AcknowledgeCheckpoint(checkpoint_id, task.attempt_id, {operator_id: state})
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
                    f"Checkpoint {started.checkpoint_id} was aborted: {error.message} Raise "
                    f"checkpoint_timeout_s.",
                    reason=CheckpointFailureReason.CHECKPOINT_EXPIRED,
                ) from error
            raise

    def claim(self) -> None:
        """Makes this coordinator the owner, and settles commits whose outcome is unknown.

        Raises:
            FencedError: Another driver has claimed the pipeline since.
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
        """Raises CheckpointError if there are checkpoints, but no commit log."""
        self._store.refresh()
        if not self._store.is_empty:
            return
        names = (each.location.name for each in self._file_io.list_folder(self._layout.root))
        ids = [each for each in map(checkpoint_id_of, names) if each is not None]
        if ids:
            raise CheckpointError(
                f"The folder has checkpoints, the latest is chk-{max(ids)}, but no commit log: "
                f"the log was deleted, or the folder belongs to another job; put the log back, or "
                f"start a pipeline of another name from that checkpoint.",
                location=str(self._layout.root),
            )

    def discard_earlier(self) -> list[int]:
        """Deletes all checkpoints but the latest; returns the ids of those that are left in part.

        None of them can be restored from then on.

        Raises:
            FencedError: Another driver has claimed the pipeline.
        """
        with self._lock:
            self.claim()
            return self._store.discard_earlier()

    def retire_outputs(self) -> None:
        """Deletes the stored output that the log no longer keeps."""
        with self._lock:
            self._store.retire_outputs()

    def _delete_output(self, checkpoint_id: int) -> None:
        with self._lock:
            self._store.delete_output(checkpoint_id)


def _identified(facts: FactsOf) -> FactsOf:
    """Adds the identity of one attempt to the facts of an epoch."""
    attempt = uuid4().hex
    return lambda reports: replace(facts(reports), attempt=attempt)


def _check_subtasks(plans: Sequence[OperatorPlan], persisted: PersistedCheckpoint) -> None:
    """Raises CheckpointError if other subtasks persisted the state: some would be lost."""
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
        f"Checkpoint {persisted.checkpoint_id} cannot be confirmed: a job with other operators, "
        f"parallelism or max parallelism persisted it; confirm it with the same job, or run its "
        f"input again."
    )
