"""The thread-safe gateway to the coordinator: it runs the actions of its step function.

Source of the methods: ``CheckpointCoordinator`` and ``CheckpointCoordinatorGateway`` of Flink
2.2.1.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol

from dstl_core.checkpoint.coordination.action_runner import ActionRunner
from dstl_core.checkpoint.coordination.assignment import StateAssignment, assign_state
from dstl_core.checkpoint.coordination.coordinator import CheckpointCoordinator
from dstl_core.checkpoint.coordination.events import (
    AcknowledgeCheckpoint,
    Action,
    BacklogChanged,
    CommitCheckpoint,
    CompleteRequest,
    DeclineCheckpoint,
    Event,
    FailRequest,
    Shutdown,
    StartCheckpointScheduler,
    StopCheckpointScheduler,
    TaskFailed,
    TasksChanged,
    TriggerCheckpoint,
)
from dstl_core.checkpoint.coordination.failure import checkpoint_error
from dstl_core.checkpoint.coordination.participants import (
    CheckpointTasks,
    MasterTriggerRestoreHook,
    OperatorCoordinator,
)
from dstl_core.checkpoint.coordination.pending import CheckpointPlan
from dstl_core.checkpoint.store.checkpoint_storage import CheckpointStorage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.epoch_facts import NO_FACTS, EpochFacts
from dstl_core.checkpoint.store.id_counter import CheckpointIDCounter
from dstl_core.checkpoint.store.properties import CheckpointProperties, JobStatus
from dstl_core.clock import Clock
from dstl_core.config import CheckpointConfig
from dstl_core.errors import (
    CheckpointError,
    CommitUncertainError,
    ConfigError,
    FencedError,
    RestoreError,
)
from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.snapshot_type import SavepointFormatType
from dstl_core.scheduling import Cancellable
from dstl_core.storage.location import Location

COMMIT_RETRY_MS = 1_000
MAX_SAVEPOINTS_IN_FLIGHT = 8
"""Savepoints that may be pending in addition to the concurrent checkpoints."""

FactsOf = Callable[[], EpochFacts]


class TimerScheduler(Protocol):
    """Runs actions later, on its own thread."""

    def schedule(self, action: Callable[[], None], delay_ms: int) -> Cancellable: ...


@dataclass(frozen=True)
class RestoredState:
    """The checkpoint that a job starts from, and the state of each subtask."""

    checkpoint: CompletedCheckpoint
    metadata: CheckpointMetadata
    folder: Location
    assignment: StateAssignment


@dataclass
class _Request:
    """A caller that waits for a checkpoint."""

    future: Future[CompletedCheckpoint]
    facts: FactsOf


class CheckpointCoordinatorGateway:
    """Takes the checkpoints of one job. The job's owner holds the claim on the pipeline.

    Any thread may call it. One thread at a time runs events and actions; further events wait in a
    queue until that thread takes them.

    Args:
        job_id: The job; messages for other jobs are refused.
        plan: The parts of the job that take part; None until all tasks run.
        config: Intervals and limits.
        store: The completed checkpoints; ``claim`` was called.
        storage: Makes the folders of snapshots.
        tasks: The tasks of the job.
        clock: Gives times.
        scheduler: Calls ``poll`` when something is due. Without one, the caller calls ``poll``.
        random: Draws the delay of the first periodic checkpoint.
        tasks_live_on: Whether tasks continue after a checkpoint and keep the files of their logs.
    """

    def __init__(
        self,
        job_id: JobID,
        plan: CheckpointPlan | None,
        config: CheckpointConfig,
        store: CompletedCheckpointStore,
        storage: CheckpointStorage,
        tasks: CheckpointTasks,
        clock: Clock,
        *,
        scheduler: TimerScheduler | None = None,
        random: Random | None = None,
        tasks_live_on: bool = True,
    ) -> None:
        self._job_id = job_id
        self._config = config
        self._store = store
        self._storage = storage
        self._clock = clock
        self._scheduler = scheduler
        self._random = random if random is not None else Random()
        self._plan = plan
        self._coordinator = CheckpointCoordinator(plan, config)
        self._ids = CheckpointIDCounter(store)
        self._runner = ActionRunner(
            store, storage, self._ids, tasks, clock, tasks_live_on=tasks_live_on
        )
        self._requests: dict[int, _Request] = {}
        self._next_token = 0
        self._lock = threading.Lock()
        self._inbox: deque[Event | None] = deque()
        self._draining = False
        self._timer: Cancellable | None = None

    # --------------------------------------------------------------------------- participants

    def add_master_hook(self, hook: MasterTriggerRestoreHook) -> bool:
        """Adds a hook that the plan names; returns False if this name already has a hook."""
        return self._runner.hooks.setdefault(hook.identifier, hook) is hook

    def add_operator_coordinator(
        self, operator_id: OperatorID, coordinator: OperatorCoordinator
    ) -> None:
        self._runner.coordinators[operator_id] = coordinator

    def tasks_changed(self, plan: CheckpointPlan | None) -> None:
        """Aborts pending checkpoints and sets the plan of new tasks; None: not all of them run."""
        self._plan = plan
        self._post(TasksChanged(plan))

    def set_is_processing_backlog(self, operator_id: OperatorID, is_processing: bool) -> None:
        self._post(BacklogChanged(operator_id, is_processing))

    # -------------------------------------------------------------------------------- trigger

    @property
    def checkpoint_properties(self) -> CheckpointProperties:
        """The properties of the job's own checkpoints."""
        return self._coordinator.checkpoint_properties

    def start_checkpoint_scheduler(self) -> None:
        """Starts periodic checkpoints, the first after a random part of the interval.

        Raises:
            CheckpointError: The coordinator is shut down.
            ConfigError: No interval is configured.
        """
        if self._coordinator.is_shutdown:
            raise CheckpointError("The checkpoint coordinator is shut down.")
        if self._config.interval_ms is None:
            raise ConfigError(
                "No interval of periodic checkpoints is configured; set "
                "execution.checkpointing.interval."
            )
        pause = self._config.min_pause_ms
        longest = max(pause, self._config.interval_ms)
        self._post(StartCheckpointScheduler(self._random.randint(pause, longest)))

    def stop_checkpoint_scheduler(self) -> None:
        """Stops periodic checkpoints; aborts pending and queued checkpoints."""
        self._post(StopCheckpointScheduler())

    def trigger_checkpoint(
        self,
        properties: CheckpointProperties | None = None,
        external_savepoint_location: str | None = None,
        is_periodic: bool = False,
        *,
        facts: FactsOf = EpochFacts,
    ) -> Future[CompletedCheckpoint]:
        """Requests a checkpoint or savepoint.

        Args:
            properties: Its kind; None: a checkpoint of the job's own.
            external_savepoint_location: Folder in which a savepoint gets its folder; by default
                that of the storage, or ``execution.checkpointing.savepoint-dir``.
            is_periodic: Whether the minimum pause between checkpoints applies.
            facts: Called at the commit; returns the ``EpochFacts`` of the record.

        Returns:
            A future; it fails with a ``CheckpointError`` that names the reason.
        """
        request = _Request(Future(), facts)
        with self._lock:
            self._next_token += 1
            token = self._next_token
            self._requests[token] = request
        kind = properties if properties is not None else self.checkpoint_properties
        folder = external_savepoint_location
        if folder is None and not self._storage.has_default_savepoint_location():
            folder = self._config.savepoint_dir
        self._post(TriggerCheckpoint(kind, token, folder, is_periodic))
        return request.future

    def trigger_savepoint(
        self,
        target_location: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> Future[CompletedCheckpoint]:
        """Takes a savepoint while the job continues."""
        return self.trigger_checkpoint(
            CheckpointProperties.for_savepoint(format_type), target_location
        )

    def stop_with_savepoint(
        self,
        target_location: str | None = None,
        *,
        terminate: bool,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> Future[CompletedCheckpoint]:
        """Takes the last savepoint: the tasks end when it completes.

        Periodic checkpoints stop before it. If it fails, the job and its periodic checkpoints
        continue. ``terminate`` ends event time before it, so that every timer fires.
        """
        was_started = self._coordinator.is_periodic_checkpointing_started
        self.stop_checkpoint_scheduler()
        properties = CheckpointProperties.for_sync_savepoint(
            terminate=terminate, format_type=format_type
        )
        future = self.trigger_checkpoint(properties, target_location)

        def go_on(done: Future[CompletedCheckpoint]) -> None:
            failed = done.cancelled() or done.exception() is not None
            if failed and was_started and not self._coordinator.is_shutdown:
                self.start_checkpoint_scheduler()

        future.add_done_callback(go_on)
        return future

    # -------------------------------------------------------------------------------- messages

    def receive_acknowledge_message(self, message: AcknowledgeCheckpoint) -> bool:
        """Handles a task's report.

        Returns:
            Whether the checkpoint is pending, or ended recently.

        Raises:
            CheckpointError: The message is for another job.
        """
        self._check_job(message.job_id)
        known = self._coordinator.was_associated(message.checkpoint_id)
        self._post(message)
        return known

    def receive_decline_message(self, message: DeclineCheckpoint) -> None:
        """Handles a task's refusal. Raises as ``receive_acknowledge_message`` does."""
        self._check_job(message.job_id)
        self._post(message)

    def task_failed(self, attempt_id: str, message: str = "") -> None:
        """Aborts the checkpoints that a task has not acknowledged: it ended with an error."""
        self._post(TaskFailed(attempt_id, message))

    def poll(self) -> None:
        """Runs what is due: time-outs, periodic checkpoints, a commit whose outcome is unknown."""
        self._post(None)

    @property
    def uncertain_commit(self) -> CommitUncertainError | None:
        """Set while the outcome of a commit is unknown; ``poll`` tries the commit again."""
        return self._runner.uncertainty

    def _check_job(self, job_id: JobID | None) -> None:
        if job_id is not None and job_id != self._job_id:
            raise CheckpointError(
                f"A message is for another job: expected {self._job_id}, got {job_id}."
            )

    # --------------------------------------------------------------------------------- restore

    def restore_latest_checkpointed_state(
        self, *, error_if_no_checkpoint: bool, all_or_nothing_state: bool
    ) -> RestoredState | None:
        """The latest checkpoint and the state that each task starts from; None if there is none.

        Args:
            error_if_no_checkpoint: Whether a missing checkpoint is an error.
            all_or_nothing_state: Whether state without an operator in the job is an error.

        Raises:
            RestoreError: There is no checkpoint, or it does not fit the job.
            CommitUncertainError: Whether the last checkpoint was recorded is still unknown; try
                again later.
        """
        if self.uncertain_commit is not None:
            self.poll()
        if self.uncertain_commit is not None:
            # The commit may still succeed, so the job must not restart from an earlier one.
            raise self.uncertain_commit
        self._store.refresh()
        latest = self._store.latest
        if latest is None:
            if error_if_no_checkpoint:
                raise RestoreError("No completed checkpoint available.")
            for hook in self._runner.hooks.values():
                hook.reset()
            for coordinator in self._runner.coordinators.values():
                coordinator.reset_to_checkpoint(None, None)
            return None
        file = self._store.load(latest)
        assignment = assign_state(
            latest.checkpoint_id,
            () if self._plan is None else self._plan.operators,
            file.metadata.operators,
            allow_non_restored_state=not all_or_nothing_state,
            source=str(file.folder),
        )
        self._restore_participants(latest.checkpoint_id, file.metadata, all_or_nothing_state)
        self._coordinator.restored(
            latest.checkpoint_id, force_full_snapshot=latest.properties.unclaimed
        )
        return RestoredState(latest, file.metadata, file.folder, assignment)

    def restore_savepoint(
        self,
        path: str | None = None,
        *,
        claim_mode: Literal["CLAIM", "NO_CLAIM"] | None = None,
        allow_non_restored_state: bool | None = None,
    ) -> RestoredState:
        """Starts a pipeline from a savepoint or checkpoint that dstl or Flink wrote.

        What is None is as ``execution.state-recovery.path``, ``claim-mode`` and
        ``ignore-unclaimed-state`` of the configuration say.

        In NO_CLAIM mode the first checkpoint is full. After it, the pipeline does not need the
        snapshot, which stays the user's. In CLAIM mode the pipeline owns the snapshot and deletes
        it when it is subsumed.

        Raises:
            ConfigError: No snapshot is given or configured.
            RestoreError: The snapshot does not fit the job; nothing was recorded.
        """
        config = self._config
        path = path if path is not None else config.recovery_path
        if path is None:
            raise ConfigError(
                "No snapshot is given to restore; give its folder, or set "
                "execution.state-recovery.path."
            )
        mode = claim_mode if claim_mode is not None else config.claim_mode
        if allow_non_restored_state is None:
            allow_non_restored_state = config.ignore_unclaimed_state
        file = self._storage.resolve_checkpoint(path)
        assign_state(
            file.metadata.checkpoint_id,
            () if self._plan is None else self._plan.operators,
            file.metadata.operators,
            allow_non_restored_state=allow_non_restored_state,
            source=str(file.folder),
        )
        checkpoint_id = file.metadata.checkpoint_id
        self._store.record_restore(checkpoint_id, file.folder, file.sha256, claim=mode == "CLAIM")
        self._ids.set_count(checkpoint_id + 1)
        restored = self.restore_latest_checkpointed_state(
            error_if_no_checkpoint=True, all_or_nothing_state=not allow_non_restored_state
        )
        if restored is None:
            raise RestoreError("No completed checkpoint available.")
        return restored

    def _restore_participants(
        self, checkpoint_id: int, metadata: CheckpointMetadata, all_or_nothing: bool
    ) -> None:
        states = {state.name: state for state in metadata.master_states}
        strangers = sorted(set(states) - set(self._runner.hooks))
        if strangers and all_or_nothing:
            raise RestoreError(
                f"The snapshot holds state of master hooks that the job does not have: "
                f"{', '.join(strangers)}."
            )
        for name, hook in self._runner.hooks.items():
            state = states.get(name)
            version = hook.version if state is None else state.version
            hook.restore_checkpoint(checkpoint_id, version, None if state is None else state.data)
        coordinated = {each.operator_id: each.coordinator_state for each in metadata.operators}
        for operator_id, coordinator in self._runner.coordinators.items():
            handle = coordinated.get(operator_id)
            coordinator.reset_to_checkpoint(checkpoint_id, None if handle is None else handle.data)

    def shutdown(self, status: JobStatus) -> None:
        """Ends the job: stops all checkpoints, and deletes those that this end discards.

        Raises:
            FencedError: Another owner has claimed the pipeline; its checkpoints stay.
        """
        self._post(Shutdown())
        self._store.shutdown(status)

    # ------------------------------------------------------------------------------- the loop

    def _post(self, event: Event | None) -> None:
        with self._lock:
            self._inbox.append(event)
            if self._draining:
                return
            self._draining = True
        try:
            while self._work_off_next():
                pass
        except BaseException:
            with self._lock:
                self._draining = False
            raise
        self._arm_timer()

    def _work_off_next(self) -> bool:
        with self._lock:
            if not self._inbox:
                self._draining = False
                return False
            event = self._inbox.popleft()
        if event is None:
            self._inbox.extend(self._runner.retry_commit())
        for action in self._coordinator.step(event, self._clock.monotonic_ms()):
            self._inbox.extend(self._do(action))
        return True

    def _do(self, action: Action) -> Sequence[Event]:
        match action:
            case CommitCheckpoint():
                request = self._request(action.token)
                return self._runner.commit(action, NO_FACTS if request is None else request.facts())
            case CompleteRequest(token, checkpoint_id):
                completed = self._runner.take_completed(checkpoint_id)
                request = self._take_request(token)
                if request is not None:
                    request.future.set_result(completed)
            case FailRequest():
                self._fail_request(action)
            case _:
                return self._runner.run(action)
        return ()

    def _request(self, token: Hashable) -> _Request | None:
        return self._requests.get(token) if isinstance(token, int) else None

    def _take_request(self, token: Hashable) -> _Request | None:
        return self._requests.pop(token, None) if isinstance(token, int) else None

    def _fail_request(self, action: FailRequest) -> None:
        cause = self._runner.take_cause(action.checkpoint_id)
        request = self._take_request(action.token)
        if request is None:
            return
        if isinstance(cause, FencedError):
            cause.context["reason"] = action.reason
            request.future.set_exception(cause)
            return
        error = checkpoint_error(action.reason, action.message, checkpoint_id=action.checkpoint_id)
        error.__cause__ = cause
        request.future.set_exception(error)

    def _arm_timer(self) -> None:
        if self._scheduler is None:
            return
        due = self._coordinator.next_deadline_ms()
        delay = None if due is None else max(0, due - self._clock.monotonic_ms())
        if self.uncertain_commit is not None:
            delay = COMMIT_RETRY_MS if delay is None else min(delay, COMMIT_RETRY_MS)
        timer = None if delay is None else self._scheduler.schedule(self.poll, delay)
        with self._lock:
            timer, self._timer = self._timer, timer
        if timer is not None:
            timer.cancel()
