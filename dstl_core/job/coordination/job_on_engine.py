"""Stateful jobs: one epoch applies one batch of input and is one checkpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import NO_FACTS, EpochFacts
from dstl_core.checkpoint.store.kept_outputs import KeptOutputs, current_outputs
from dstl_core.clock import Clock, SystemClock
from dstl_core.closing import Closing
from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry
from dstl_core.config import ChangelogOptions, plain
from dstl_core.errors import StateFileNotFoundError
from dstl_core.flink_text import parse_duration_ms
from dstl_core.job.coordination.engine import Engine
from dstl_core.job.coordination.exclusive_use import ExclusiveUse
from dstl_core.job.coordination.job_backfill import Batches, Recomputation
from dstl_core.job.coordination.job_checks import check_input_id, check_job
from dstl_core.job.coordination.job_coordinator import JobCoordinator, PersistedCheckpoint
from dstl_core.job.coordination.job_epochs import JobEpochs
from dstl_core.job.coordination.job_materialization import (
    BackgroundMaterialization,
    adopt,
    materialize,
    materialize_beside,
)
from dstl_core.job.coordination.job_migration import migrate_job, plan_of_changes
from dstl_core.job.coordination.micro_batches import micro_batch
from dstl_core.job.coordination.result import EpochResult, JobHistory
from dstl_core.job.coordination.savepoint import (
    check_no_snapshot,
    start_from_savepoint,
    write_savepoint,
)
from dstl_core.job.coordination.stored_output import StoredOutput
from dstl_core.job.coordination.tasks import JobTasks
from dstl_core.job.spec.job_spec import JobSpec, task_changelog_options
from dstl_core.job.spec.lineage import (
    commit_before,
)
from dstl_core.job.spec.operators import LocalCopies, Operator
from dstl_core.job.spec.state_changes import ChangePlan, StateChanges
from dstl_core.model.state_size import StateSize
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.report.snapshot_report import SnapshotReport, report_snapshot
from dstl_core.savepoint.write.folder import KeyedForm
from dstl_core.state.backends.changelog_backend import ValueLogging
from dstl_core.state.backends.state_backend import HashMapStateBackend, StateBackend
from dstl_core.storage.location import Location

_LOG = logging.getLogger(__name__)


@dataclass
class JobOnEngine(Closing):
    """A pipeline with state between its runs.

    State is stored in ``<base_path>/<job id>``, in Flink's formats. Each commit is a retained
    checkpoint that Flink restores. A pipeline has one owner at a time; a driver that lost its claim
    cannot commit.

    A job commits one thing at a time. While ``run``, ``persist``, ``confirm``, ``start``,
    ``adopt``, ``materialize``, ``migrate``, ``erase``, ``stop_with_savepoint`` or ``resume`` runs,
    each of them raises ``JobBusyError`` in every thread. Other methods may be called at any time.

    Args:
        engine: Runs the job.
        name: Name of the pipeline; its job id is derived from it.
        base_path: Folder or URL that driver and workers can reach.
        operator: The operator of the job, or the first of several.
        parallelism: Number of subtasks of every operator.
        max_parallelism: Number of key groups; fixed for the life of the state.
        num_retained: Committed checkpoints of the latest state that are kept at least. Those that a
            rewind undid do not count.
        retain: A duration as Flink writes it, e.g. ``"14 days"``. Checkpoints that were committed
            less than this time before the latest one are kept as well.
        num_retained_outputs: Epochs of the latest state whose stored output is kept; by default
            all. Epochs without output, or that a rewind undid, do not count.
        compress_log: Whether changelog segments are compressed, as Flink compresses them.
        changelog_options: Further options of the changelog, by name or Flink's key, or as
            ``ChangelogOptions``. An upload has a time-out of 30 seconds unless they say otherwise.
        checkpoint_timeout_s: Seconds after which a pending checkpoint is aborted.
        clock: The clock; the system's by default.
        downstream: Further operators, in the order in which they run.
        changelog: Whether a checkpoint is a base and a log. Otherwise each holds all state.
        state_backend: Holds the state of a task while it runs.
        local_copies: Copies of state that workers keep between epochs.
        value_logging: The updates of value state that are logged.
        allow_non_restored_state: Whether to leave out state of operators that the job lacks.
            Otherwise such state is an error.
        columns: Columns of a batch that functions get which declare none; by default all. What the
            operators do not read does not identify a batch: it may come, go and change.
        ignore_columns: Patterns of columns that such functions do not get, e.g. ``"_dlt_*"``.
        serializers: The registry of types. Register the readers of your own serializers there: a
            copy of ``BUILT_IN`` with a reader for each of your snapshot classes.
    """

    engine: Engine
    name: str
    base_path: str
    operator: Operator
    parallelism: int = 2
    max_parallelism: int = 128
    num_retained: int = 1
    compress_log: bool = True
    changelog_options: Mapping[str, Any] | ChangelogOptions = field(default_factory=dict)
    checkpoint_timeout_s: float = 600.0
    clock: Clock = field(default_factory=SystemClock)
    downstream: Sequence[Operator] = ()
    changelog: bool = True
    state_backend: StateBackend = field(default_factory=HashMapStateBackend)
    local_copies: LocalCopies = field(default_factory=LocalCopies)
    value_logging: ValueLogging = ValueLogging.LAST_PER_CHECKPOINT
    allow_non_restored_state: bool = False
    num_retained_outputs: int | None = None
    retain: str | None = None
    serializers: SerializerRegistry = BUILT_IN
    columns: Sequence[str] | None = None
    ignore_columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_job(self)
        self._spec = JobSpec(
            name=self.name,
            base_path=self.base_path,
            operators=(self.operator, *self.downstream),
            parallelism=self.parallelism,
            max_parallelism=self.max_parallelism,
            changelog=self.changelog,
            changelog_options=task_changelog_options(
                str(Location.parse(self.base_path)),
                plain(self.changelog_options),
                compress=self.compress_log,
            ),
            state_backend=self.state_backend,
            local_copies=self.local_copies,
            value_logging=self.value_logging,
            allow_non_restored_state=self.allow_non_restored_state,
            readers=self.serializers.beyond(BUILT_IN),
        )
        self.base_path, self.job_id = self._spec.base_path, self._spec.job_id
        self._exclusive_use = ExclusiveUse(f"The job {self.name!r}")
        self._output = StoredOutput(self.engine, self._spec)
        self._coordinator = JobCoordinator(
            self._spec.layout,
            num_retained=self.num_retained,
            retain_ms=0 if self.retain is None else parse_duration_ms(self.retain),
            num_retained_outputs=self.num_retained_outputs,
            timeout_ms=int(self.checkpoint_timeout_s * 1000),
            clock=self.clock,
        )
        self._runner = self.engine.runner(self.name)
        self._tasks = JobTasks(
            job=self._spec,
            clock=self.clock,
            coordinator=self._coordinator,
            runner=self._runner,
        )
        self._epochs = JobEpochs(self.engine, self._tasks, self.columns, self.ignore_columns)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.name!r}: {len(self.operators)} operators, parallelism "
            f"{self.parallelism} of {self.max_parallelism}, in {self.path}>"
        )

    # ------------------------------------------------------------------------------- state

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All operators, in the order in which they run."""
        return self._spec.operators

    @property
    def path(self) -> str:
        """The folder of the pipeline."""
        return str(self._spec.layout.root)

    def latest(self) -> CompletedCheckpoint | None:
        """The last committed checkpoint."""
        return self._coordinator.latest()

    def last_input(self) -> str | int | None:
        """The id of the last input in the latest state; None if it has none.

        The last commit may have no input: a materialization, a migration.
        """
        return self._coordinator.find(
            lambda commits: next(
                (commit.facts.input.id for commit in lineage(commits) if commit.facts.input), None
            )
        )

    def history(self) -> JobHistory:
        """All commits, oldest first. It reads them all, so the time grows with their number.

        A notebook shows the list as a chart and a table.
        """
        return JobHistory(self._coordinator.history())

    def latest_path(self) -> str:
        """The folder of the last committed checkpoint, which Flink can restore from."""
        return str(self._spec.layout.checkpoint(self._coordinator.require_latest().checkpoint_id))

    def snapshot(self) -> Snapshot:
        """The last committed checkpoint as a catalog."""
        return self._tasks.catalog(self._coordinator.require_latest())

    def report(self, **options: Any) -> SnapshotReport:
        """Reports on the last committed checkpoint: sizes, skew, hot keys, expiry, timers.

        Args:
            options: Those of ``report_snapshot``.
        """
        return report_snapshot(self.snapshot(), **options)

    def state_size(self) -> StateSize:
        """Bytes of the log and of the base of the latest checkpoint."""
        return StateSize.of(self._coordinator.latest_file().metadata)

    # ------------------------------------------------------------------------------- start

    def start(
        self,
        savepoint: str | None = None,
        *,
        uid: str | None = None,
        uids: Mapping[str, str] | None = None,
        allow_non_restored_state: bool | None = None,
    ) -> CompletedCheckpoint:
        """Commits the first checkpoint: empty, or with a full copy of a savepoint's state.

        It does nothing if the pipeline was started before. An operator that the savepoint lacks
        starts empty.

        Args:
            savepoint: A savepoint or checkpoint, of dstl or of Flink.
            uid: The uid of the first operator in the savepoint, if it differs.
            uids: The same for any operator: uid in the job to uid in the savepoint.
            allow_non_restored_state: Whether to leave out state that no operator of the job takes;
                the log names it. By default as the job says.

        Raises:
            NonRestoredStateError: No operator of the job takes some state of the savepoint.
            RestoreError: The max parallelism or a type of the savepoint differs.
        """
        with self._exclusive_use("start"):
            if (existing := self.latest()) is not None:
                return existing
            if savepoint is None:
                return self._epochs.start_empty(after=None)
            names = {**({} if uid is None else {self.operator.uid: uid}), **(uids or {})}
            allowed = allow_non_restored_state
            if allowed is None:
                allowed = self.allow_non_restored_state
            return start_from_savepoint(
                self._tasks, savepoint, names, allow_non_restored_state=allowed
            )

    # ------------------------------------------------------------------------------- epoch

    def run(
        self,
        rows: Any,
        input_id: str | int,
        order_by: Sequence[str] | None = None,
        *,
        watermark_ms: int | None = None,
        rewind: bool = False,
        notes: Mapping[str, Any] | None = None,
    ) -> EpochResult:
        """Applies one batch of input and commits it, exactly once.

        Args:
            rows: The batch.
            input_id: Identifies the batch. Ids must ascend: texts as text, numbers as numbers.
            order_by: Order in which the rows of a key apply. All other columns break ties.
            watermark_ms: Event time after the batch. Timers up to it fire at the end. By default it
                follows from the operators' ``event_time`` columns.
            rewind: Whether to go back to the state before this input, if it or later ones were
                committed.
            notes: JSON values by name, which the commit record keeps for the caller.

        Returns:
            The result of this run, or the stored result if the id was committed before.

        Raises:
            InputChangedError: The id was committed with other rows, in the columns that it read.
            FencedError: Another driver took over.
            CheckpointError: Another driver committed before this one took over; run it again.
            ConfigError: A function depends on the order of rows and none is given, or the id is
                below the last committed one.
        """
        started = time.monotonic()
        with self._exclusive_use("run"):
            epoch = self._epochs.begin(
                rows, input_id, order_by, watermark_ms, rewind=rewind, notes=notes
            )
            if isinstance(epoch, CompletedCheckpoint):
                return self._result(epoch, started, committed_before=True)
            checkpoint = self._coordinator.checkpoint(
                self.job_id, self._tasks.plans(), epoch.run, epoch.facts, after=epoch.after
            )
            result = self._result(checkpoint, started)
        _LOG.info("%s", result)
        return result

    def persist(
        self,
        rows: Any,
        input_id: str | int,
        order_by: Sequence[str] | None = None,
        *,
        watermark_ms: int | None = None,
        rewind: bool = False,
        notes: Mapping[str, Any] | None = None,
    ) -> PersistedCheckpoint:
        """Does the first half of ``run``: applies a batch and writes all files, without its commit.

        As in ``run``, the first epoch of a pipeline begins with the commit of an empty checkpoint.
        If it is never confirmed, the next run starts from the last commit, and ``dstl gc`` finds
        the files. Arguments and errors are those of ``run``.
        """
        with self._exclusive_use("persist"):
            epoch = self._epochs.begin(
                rows, input_id, order_by, watermark_ms, rewind=rewind, notes=notes
            )
            if isinstance(epoch, CompletedCheckpoint):
                return PersistedCheckpoint(epoch.checkpoint_id, "", (), NO_FACTS, is_committed=True)
            return self._coordinator.persist(
                self.job_id, self._tasks.plans(), epoch.run, epoch.facts, after=epoch.after
            )

    def confirm(self, persisted: PersistedCheckpoint | Mapping[str, Any]) -> EpochResult:
        """Does the second half of ``run``, in this or another process: commits.

        Args:
            persisted: The result of ``persist``, or of its ``to_json``.

        Raises:
            FormatError: ``persisted`` is neither.
            FencedError: Another driver has taken the pipeline over.
            CheckpointError: Another checkpoint was committed in between.
        """
        started = time.monotonic()
        if not isinstance(persisted, PersistedCheckpoint):
            persisted = PersistedCheckpoint.from_json(persisted)
        with self._exclusive_use("confirm"):
            committed = self._committed_as(persisted)
            if committed is not None:
                return self._result(committed, started, committed_before=True)
            checkpoint = self._coordinator.confirm(self.job_id, self._tasks.plans(), persisted)
            return self._result(checkpoint, started)

    def _committed_as(self, persisted: PersistedCheckpoint) -> CompletedCheckpoint | None:
        """The commit of a persisted checkpoint, if it was confirmed before."""
        commit = self._coordinator.commit_of(persisted.checkpoint_id)
        if commit is None or persisted.is_committed:
            return commit
        return commit if replace(commit.facts, metadata_bytes=None) == persisted.facts else None

    def foreach_batch(self, order_by: Sequence[str] | None = None) -> Callable[[Any, int], None]:
        """Returns a callback for ``foreachBatch``, which applies a batch once.

        A batch is known by its stream and its number. The ids of inputs are the numbers; those of a
        stream that lost its progress, or of another one, go on from the last id.
        """

        def apply(rows: Any, batch_id: int) -> None:
            stream = self.engine.stream_of(rows)
            batch = self._coordinator.find(
                lambda commits: micro_batch(lineage(commits), stream, batch_id)
            )
            if batch.before is not None:
                _LOG.warning(
                    "job %s: another stream, or one without its progress, goes on: %s after %s",
                    self.name,
                    stream,
                    batch.before,
                )
            self.run(rows, batch.input_id, order_by, notes=batch.notes)

        return apply

    def cancel(self) -> None:
        """Cancels the tasks of this object, from any thread. Their epoch fails."""
        self._runner.cancel()

    close = cancel

    def output_of(self, checkpoint: CompletedCheckpoint) -> dict[str, Any]:
        """The stored output of a commit, by uid of the operator.

        Raises:
            ConfigError: The epoch stored no output: the job had none then.
            StateFileNotFoundError: The output is no longer kept.
        """
        self._output.check([checkpoint])
        if not self._keeps_output(checkpoint):
            raise StateFileNotFoundError(
                f"The output of checkpoint {checkpoint.checkpoint_id} is no longer kept: only the "
                f"last epochs keep their output; raise num_retained_outputs, or read the output "
                f"earlier.",
                location=str(self._spec.layout.output(checkpoint.checkpoint_id)),
            )
        return self._output.joined([checkpoint])

    def _keeps_output(self, checkpoint: CompletedCheckpoint) -> bool:
        """Whether the log keeps the stored output of a commit, if it had any."""
        number = checkpoint.checkpoint_id
        return not checkpoint.facts.output_files or self._coordinator.find(
            lambda commits: KeptOutputs.of(commits, number).keeps(number)
        )

    def current_output(self) -> dict[str, Any]:
        """The stored output of all epochs that led to the latest state, by uid of the operator.

        Output of epochs that a rewind undid, and output that is no longer kept
        (``num_retained_outputs``), is not in it.

        Raises:
            ConfigError: An epoch stored no output, or other columns: the job was another one then.
        """
        commits = self._coordinator.find(list)
        self._output.check([each for each in lineage(commits) if each.facts.input is not None])
        return self._output.joined(current_outputs(commits))

    def _result(
        self, checkpoint: CompletedCheckpoint, started: float, *, committed_before: bool = False
    ) -> EpochResult:
        retired = committed_before and not self._keeps_output(checkpoint)
        if self.num_retained_outputs is not None and not committed_before:
            self._coordinator.retire_outputs()
        outputs = {} if retired else self._output.joined([checkpoint])
        last = next((outputs[e.uid] for e in self.operators[::-1] if e.uid in outputs), None)
        seconds = time.monotonic() - started
        commit = 0.0 if committed_before else self._coordinator.commit_seconds
        return EpochResult(
            checkpoint, committed_before, last, seconds, outputs, commit, output_retired=retired
        )

    # --------------------------------------------------------------- materialize, savepoint

    def migrate(
        self,
        *,
        rename: Mapping[str, str] | None = None,
        drop: Sequence[str] = (),
        start_empty: Sequence[str] = (),
        backfill: Sequence[str] = (),
        rekey: Mapping[str, str] | None = None,
        batches: Batches | None = None,
        before_input: str | int | None = None,
    ) -> CompletedCheckpoint | None:
        """Converts the state of an earlier definition of the job to this one, as one commit.

        Wider types are converted (int to bigint, float to double), and new aggregates start empty.
        It returns the latest commit if the state has the definition of this job, so it may be
        called before every epoch. One process reads and writes the state.

        Args:
            rename: Old names of aggregates, or of states of a function, to new ones.
            drop: Names whose state goes.
            start_empty: Names that begin anew, with another definition or another type.
            backfill: Aggregates that are new, that begin anew, or that were added without it. They
                get the values that they would have had from the first input on: each input is
                applied again to them alone.
            rekey: New keys by uid of the operator, whose key column is another one: expressions of
                ``dstl migrate`` over ``key``, the old key. The counts, sums, averages, minima and
                maxima of keys that become one are merged; other aggregates are refused then.
            batches: Gives the rows of an input that was committed, by its id, for ``backfill``.
                Other rows than those of the commit are refused.
            before_input: An input to go back to before, which ``run(rewind=True)`` then applies to
                state of this definition. Migrations since then are made again, as one. Without it,
                only a job of the definition of that time can rewind an input before them.

        Returns:
            The commit, or the one whose state has this definition; None for a pipeline that has not
            started.

        Raises:
            ConfigError: State would be lost or mean something else, and no argument names it.
            InputChangedError: The rows of an input are not those that were committed.
            SavepointError: Values do not fit their new type; nothing is committed.
        """
        changes = StateChanges(rename or {}, drop, start_empty, backfill, rekey or {})
        with self._exclusive_use("migrate"):
            parent = self._migrated(before_input)
            if parent is None:
                return None
            recomputation = Recomputation(self.engine, self._beside, batches)
            return migrate_job(self._tasks, parent, changes, recomputation)

    def plan_migration(
        self,
        *,
        rename: Mapping[str, str] | None = None,
        drop: Sequence[str] = (),
        start_empty: Sequence[str] = (),
        backfill: Sequence[str] = (),
        rekey: Mapping[str, str] | None = None,
        before_input: str | int | None = None,
    ) -> ChangePlan:
        """What ``migrate`` with these arguments would do. It commits nothing.

        Raises:
            ConfigError: As ``migrate``.
        """
        changes = StateChanges(rename or {}, drop, start_empty, backfill, rekey or {})
        parent = self._migrated(before_input)
        return ChangePlan() if parent is None else plan_of_changes(self._tasks, parent, changes)

    def _migrated(self, before_input: str | int | None) -> CompletedCheckpoint | None:
        """The commit whose state is migrated; None for a pipeline that has not started."""
        if before_input is not None:
            check_input_id(before_input)
        latest = self.latest()
        if latest is None:
            return None
        self._epochs.check_running(latest)
        if before_input is None:
            return latest
        return self._coordinator.find(lambda commits: commit_before(lineage(commits), before_input))

    def _beside(self, base_path: str, operators: Sequence[Operator], savepoint: str) -> JobOnEngine:
        """A job of these operators in a folder of its own, started from their part of a state."""
        first, *others = operators
        job = replace(
            self,
            base_path=base_path,
            operator=first,
            downstream=others,
            changelog_options={},
            columns=None,
            ignore_columns=(),
            num_retained=1,
            num_retained_outputs=None,
            retain=None,
        )
        tasks = job._tasks  # noqa: SLF001  # it is a job of this class
        start_from_savepoint(tasks, savepoint, {}, allow_non_restored_state=None)
        return job

    def materialize(self) -> CompletedCheckpoint:
        """Writes the full state as a new base and commits a checkpoint without a log.

        The old log is deleted once no retained checkpoint references it.
        """
        with self._exclusive_use("materialize"):
            return materialize(self._tasks)

    def materialize_beside(self) -> BackgroundMaterialization:
        """Starts tasks that write the present full state while epochs go on.

        ``adopt`` then makes it the base. The log of later epochs is applied on top.
        """
        return materialize_beside(self._tasks)

    def adopt(self, materialization: BackgroundMaterialization) -> CompletedCheckpoint | None:
        """Waits for a background materialization and commits it as the base of the latest state.

        Returns:
            The commit. None if the state has another base by now; then ``dstl gc`` finds the files.
        """
        materialization.wait()  # epochs may run meanwhile
        with self._exclusive_use("adopt"):
            return adopt(self._tasks, materialization)

    def savepoint(self, path: str, *, format: KeyedForm = "canonical") -> str:
        """Writes the latest checkpoint as a self-contained savepoint.

        A second call for the same checkpoint, path and format does nothing.

        Args:
            path: Folder of the savepoint.
            format: The form of keyed state: ``canonical``, for every state backend of Flink, or
                ``native``, files of RocksDB that Flink restores as they are.

        Returns:
            The path of the savepoint.
        """
        return write_savepoint(self._tasks, path, format)

    def stop_with_savepoint(self, path: str, *, drain: bool = False) -> str:
        """Stops the pipeline with a savepoint. ``run`` is an error until ``resume``.

        Args:
            path: Folder of the savepoint.
            drain: Whether to end event time first, so that every event-time timer fires. Its
                output is ``output_of`` the commit before the last.

        Returns:
            The path of the savepoint.
        """
        with self._exclusive_use("stop_with_savepoint"):
            latest = self._coordinator.require_latest()
            if latest.facts.is_stopped:
                return str(latest.facts.savepoint)
            if drain and latest.facts.kind != "drain":
                check_no_snapshot(path)  # before event time ends, which nothing takes back
                self._epochs.drain(latest)
            written = self.savepoint(path)
            self._tasks.carry(EpochFacts(kind="stop", savepoint=written))
            return written

    def resume(self) -> None:
        """Lets the pipeline run again after ``stop_with_savepoint``."""
        with self._exclusive_use("resume"):
            if self._coordinator.require_latest().facts.is_stopped:
                self._tasks.carry(EpochFacts(kind="resume"))
