"""The checkpoint protocol as a step function: events in, actions out, no threads and no I/O.

Source of the behaviour: ``CheckpointCoordinator`` of Flink 2.2.1. There are three differences. A
repeated acknowledgement of a completed checkpoint deletes nothing. Missed periodic triggers are not
replayed. A checkpoint stays pending as long as the outcome of its commit is unknown.
"""

from __future__ import annotations

from collections.abc import Callable

from dstl_core.checkpoint.coordination.events import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinatorState,
    Acknowledged,
    AcknowledgeMasterState,
    Action,
    BacklogChanged,
    CheckpointCleaned,
    CheckpointCommitted,
    CheckpointInitialized,
    ClaimLost,
    CommitCheckpoint,
    CommitFailed,
    CompleteRequest,
    DeclineCheckpoint,
    DiscardState,
    DiscardSubsumed,
    Event,
    FailJob,
    FailRequest,
    InitializationFailed,
    InitializeCheckpoint,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    NotifyCheckpointSubsumed,
    RecordAbort,
    Shutdown,
    StartCheckpointScheduler,
    StopCheckpointScheduler,
    TaskFailed,
    TasksChanged,
    TriggerCheckpoint,
    TriggerMasterHooks,
    TriggerOperatorCoordinators,
    TriggerTasks,
)
from dstl_core.checkpoint.coordination.failure import (
    CheckpointFailureManager,
    CheckpointFailureReason,
)
from dstl_core.checkpoint.coordination.pending import (
    CheckpointPlan,
    EndedCheckpoints,
    PendingCheckpoint,
    TaskAcknowledgeResult,
)
from dstl_core.checkpoint.coordination.periodic import PeriodicSchedule
from dstl_core.checkpoint.coordination.requests import (
    CheckpointRequestDecider,
    CheckpointTriggerRequest,
    Situation,
)
from dstl_core.checkpoint.store.properties import CheckpointProperties, CheckpointRetentionPolicy
from dstl_core.config import CheckpointConfig
from dstl_core.errors import CheckpointError, InvariantViolation
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions, CheckpointType


class CheckpointCoordinator:
    """Takes the checkpoints of one job. Owned by one thread; time is an argument of ``step``.

    Invariants:
        1. A checkpoint is committed only after every task, coordinator and hook of its plan has
           acknowledged it, and one commit is under way at a time.
        2. State reported for a checkpoint that is neither pending nor completed is discarded.
        3. Each request and each task gets the outcome of a checkpoint once.
        4. Only the outcome of its commit can abort a checkpoint that is being committed.

    Args:
        plan: The parts of the job that take part; None until all tasks run.
        config: Intervals and limits.
    """

    def __init__(self, plan: CheckpointPlan | None, config: CheckpointConfig) -> None:
        self._plan = plan
        self._config = config
        self._decider = CheckpointRequestDecider(
            max_concurrent=config.max_concurrent_checkpoints, min_pause_ms=config.min_pause_ms
        )
        self._failures = CheckpointFailureManager(config.tolerable_failed_checkpoints)
        policy = CheckpointRetentionPolicy.of_option(config.externalized_checkpoint_retention)
        self.checkpoint_properties = CheckpointProperties.for_checkpoint(policy)
        self._pending: dict[int, PendingCheckpoint] = {}
        self._committing: int | None = None
        self._triggering: CheckpointTriggerRequest | int | None = None
        self._cleaning = 0
        self._orders = 0
        self._last_completion_ms: int | None = None
        self._latest_completed: int | None = None
        self._ended = EndedCheckpoints()
        self._periodic = PeriodicSchedule(config)
        self._shutdown = False
        self._force_full_snapshot = False
        self._now_ms = 0
        self._actions: list[Action] = []

    # --------------------------------------------------------------------------------- views

    @property
    def pending_checkpoints(self) -> dict[int, PendingCheckpoint]:
        return dict(self._pending)

    @property
    def num_queued_requests(self) -> int:
        return len(self._decider)

    @property
    def is_triggering(self) -> bool:
        return self._triggering is not None

    @property
    def is_periodic_checkpointing_started(self) -> bool:
        return self._periodic.started

    @property
    def is_shutdown(self) -> bool:
        return self._shutdown

    def was_associated(self, checkpoint_id: int) -> bool:
        """Whether a checkpoint is pending, or ended recently."""
        return checkpoint_id in self._pending or checkpoint_id in self._ended

    def next_deadline_ms(self) -> int | None:
        """When to call ``step(None, ..)`` next, in monotonic milliseconds; None: not needed."""
        deadlines = [each.deadline_ms for each in self._pending.values() if self._can_expire(each)]
        if self._periodic.next_ms is not None:
            deadlines.append(self._periodic.next_ms)
        return min(deadlines, default=None)

    def restored(self, latest_completed: int | None, *, force_full_snapshot: bool) -> None:
        """Sets the checkpoint that the job starts from. With ``force_full_snapshot`` the next
        checkpoint shares no files with it.
        """
        self._latest_completed = latest_completed
        self._force_full_snapshot = force_full_snapshot

    # ---------------------------------------------------------------------------------- step

    def step(self, event: Event | None, now_ms: int) -> list[Action]:
        """Handles one event and returns the actions to run, in order.

        Args:
            event: The event; None if only time has passed.
            now_ms: Monotonic time in milliseconds.

        Raises:
            CheckpointError: The event starts the scheduler after a shutdown.
            ConfigError: The event starts the scheduler, and no interval is configured.
        """
        self._now_ms = now_ms
        self._actions = []
        self._pass_time()
        if event is not None:
            self._handle(event)
        self._commit_next()
        self._choose_request()
        actions, self._actions = self._actions, []
        return actions

    def _handle(self, event: Event) -> None:
        match event:
            case TriggerCheckpoint():
                self._add_request(event)
            case CheckpointInitialized():
                self._initialized(event)
            case InitializationFailed():
                self._initialization_failed(event)
            case AcknowledgeCoordinatorState() | AcknowledgeMasterState():
                self._acknowledge_part(event)
            case AcknowledgeCheckpoint():
                self._acknowledge(event)
            case DeclineCheckpoint():
                self._decline(event)
            case TaskFailed():
                self._task_failed(event)
            case CheckpointCommitted():
                self._committed(event)
            case CommitFailed():
                self._commit_failed(event)
            case CheckpointCleaned():
                if self._cleaning == 0:
                    raise InvariantViolation("more checkpoints were cleaned than were requested")
                self._cleaning -= 1
            case TasksChanged(plan):
                # New tasks start from a completed checkpoint, so reports of old tasks are void.
                self._abort_pending(CheckpointFailureReason.JOB_FAILOVER_REGION)
                self._plan = plan
            case BacklogChanged(operator_id, is_processing):
                self._periodic.backlog_changed(operator_id, is_processing, self._now_ms)
            case StartCheckpointScheduler():
                self._start_scheduler(event)
            case StopCheckpointScheduler():
                self._stop_scheduler()
            case Shutdown():
                self._shut_down()
            case ClaimLost(message):
                self._shut_down()
                self._actions.append(FailJob(message))

    def _pass_time(self) -> None:
        for pending in list(self._pending.values()):
            if self._can_expire(pending) and self._now_ms >= pending.deadline_ms:
                self._abort(pending, CheckpointFailureReason.CHECKPOINT_EXPIRED)
        if self._periodic.take_beat(self._now_ms):
            self._add_request(TriggerCheckpoint(self.checkpoint_properties, is_periodic=True))

    def _can_expire(self, pending: PendingCheckpoint) -> bool:
        return not (pending.is_fully_acknowledged and pending.tasks_triggered)

    # ----------------------------------------------------------------------------- scheduler

    def _start_scheduler(self, event: StartCheckpointScheduler) -> None:
        if self._shutdown:
            raise CheckpointError("The checkpoint coordinator is shut down.")
        self._stop_scheduler()
        self._periodic.start(self._now_ms + event.initial_delay_ms)

    def _stop_scheduler(self) -> None:
        self._periodic.stop()
        self._abort_all(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND)

    def _shut_down(self) -> None:
        self._shutdown = True
        self._periodic.stop()
        self._abort_all(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN)

    def _abort_all(self, reason: CheckpointFailureReason) -> None:
        for request in self._decider.abort_all():
            self._actions.append(FailRequest(request.token, reason))
        self._abort_pending(reason)

    # ------------------------------------------------------------------------------- trigger

    def _add_request(self, event: TriggerCheckpoint) -> None:
        self._orders += 1
        request = CheckpointTriggerRequest(
            event.properties, event.token, event.target_location, event.is_periodic, self._orders
        )
        for refused, reason in self._decider.add(request):
            self._refuse(refused, reason)

    def _choose_request(self) -> None:
        while True:
            decision = self._decider.choose(
                Situation(
                    self.is_triggering,
                    len(self._pending),
                    self._cleaning,
                    self._last_completion_ms,
                    self._now_ms,
                )
            )
            for refused, reason in decision.refused:
                self._actions.append(FailRequest(refused.token, reason))
            if decision.retry_after_ms is not None:
                self._periodic.postpone(self._now_ms + decision.retry_after_ms)
            request = decision.chosen
            if request is None:
                return
            problem = self._problem_of(request)
            if problem is None:
                self._triggering = request
                self._actions.append(
                    InitializeCheckpoint(request.properties, request.target_location)
                )
                return
            self._refuse(request, problem)

    def _problem_of(self, request: CheckpointTriggerRequest) -> CheckpointFailureReason | None:
        if self._shutdown:
            return CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
        if request.is_periodic and not self._periodic.started:
            return CheckpointFailureReason.PERIODIC_SCHEDULER_SHUTDOWN
        if self._plan is None:
            return CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING
        return None

    def _refuse(
        self,
        request: CheckpointTriggerRequest,
        reason: CheckpointFailureReason,
        message: str = "",
    ) -> None:
        self._actions.append(FailRequest(request.token, reason, message))
        self._count_failure(None, request.properties, reason, None)

    def _initialized(self, event: CheckpointInitialized) -> None:
        request = self._request_in_trigger()
        problem = self._problem_of(request)
        if problem is not None or self._plan is None:
            self._triggering = None
            self._actions.append(RecordAbort(event.checkpoint_id))
            self._refuse(request, problem or CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE)
            return
        pending = PendingCheckpoint(
            event.checkpoint_id,
            event.timestamp,
            self._plan,
            request.properties,
            event.target_location,
            deadline_ms=self._now_ms + self._config.timeout_ms,
            token=request.token,
        )
        self._pending[event.checkpoint_id] = pending
        self._triggering = event.checkpoint_id
        if self._plan.operator_coordinators:
            self._actions.append(
                TriggerOperatorCoordinators(event.checkpoint_id, self._plan.operator_coordinators)
            )
        self._trigger_on(pending)

    def _initialization_failed(self, event: InitializationFailed) -> None:
        request = self._request_in_trigger()
        self._triggering = None
        self._refuse(request, event.reason, event.message)

    def _request_in_trigger(self) -> CheckpointTriggerRequest:
        if not isinstance(self._triggering, CheckpointTriggerRequest):
            raise InvariantViolation("a checkpoint was initialized without a request")
        return self._triggering

    def _trigger_on(self, pending: PendingCheckpoint, *, hooks_asked: bool = False) -> None:
        """Starts the next stage of a trigger: coordinators first, then hooks, then tasks."""
        if pending.tasks_triggered or not pending.coordinators_fully_acknowledged:
            return
        identity = CheckpointMetaData(pending.checkpoint_id, pending.timestamp)
        if not pending.master_states_fully_acknowledged:
            if not hooks_asked:
                self._actions.append(TriggerMasterHooks(identity, pending.plan.master_hooks))
            return
        kind = pending.properties.checkpoint_type
        if self._force_full_snapshot and not pending.properties.is_savepoint:
            kind = CheckpointType.FULL_CHECKPOINT
        options = CheckpointOptions(kind, pending.target_location)
        self._actions.append(TriggerTasks(identity, options, pending.plan.tasks_to_trigger))
        pending.tasks_triggered = True
        if self._triggering == pending.checkpoint_id:
            self._triggering = None

    # --------------------------------------------------------------------------- acknowledge

    def _acknowledge_part(
        self, event: AcknowledgeCoordinatorState | AcknowledgeMasterState
    ) -> None:
        pending = self._pending.get(event.checkpoint_id)
        if pending is None:
            return
        if isinstance(event, AcknowledgeMasterState):
            result = pending.acknowledge_master_state(event.hook, event.state)
        else:
            result = pending.acknowledge_coordinator_state(event.operator_id, event.state)
        if result is TaskAcknowledgeResult.SUCCESS:
            self._trigger_on(pending, hooks_asked=isinstance(event, AcknowledgeMasterState))

    def _acknowledge(self, event: AcknowledgeCheckpoint) -> None:
        pending = self._pending.get(event.checkpoint_id)
        if pending is not None:
            result = pending.acknowledge_task(event.attempt_id, event.state)
        else:
            result = self._ended.result_of_late_acknowledgement(event.checkpoint_id)
        self._actions.append(Acknowledged(event.checkpoint_id, event.attempt_id, result))
        lingers = result in (TaskAcknowledgeResult.UNKNOWN, TaskAcknowledgeResult.DISCARDED)
        if lingers and event.state:
            late = pending or self._ended.aborted.get(event.checkpoint_id)
            self._discard(event.checkpoint_id, tuple(event.state.values()), late, counts=False)

    def _discard(
        self,
        checkpoint_id: int,
        states: tuple[OperatorSubtaskState, ...],
        checkpoint: PendingCheckpoint | None,
        *,
        counts: bool,
    ) -> None:
        location = None if checkpoint is None else checkpoint.target_location
        # While the checkpoint is pending, only the state of this report is deleted.
        gone = checkpoint is not None and checkpoint.discarded
        self._actions.append(DiscardState(checkpoint_id, states, location, gone, counts))

    # -------------------------------------------------------------------------------- commit

    def _commit_next(self) -> None:
        if self._committing is not None:
            return
        ready = [
            checkpoint_id
            for checkpoint_id, pending in self._pending.items()
            if pending.tasks_triggered and pending.is_fully_acknowledged
        ]
        if not ready:
            return
        pending = self._pending[min(ready)]
        self._committing = pending.checkpoint_id
        self._actions.append(
            CommitCheckpoint(
                pending.metadata(), pending.properties, pending.target_location, pending.token
            )
        )

    def _committed(self, event: CheckpointCommitted) -> None:
        pending = self._take_committing(event.checkpoint_id)
        properties, tasks = pending.properties, pending.plan.tasks_to_commit_to
        del self._pending[pending.checkpoint_id]
        self._ended.completed.append(pending.checkpoint_id)
        self._failures.handle_success(pending.checkpoint_id)
        self._last_completion_ms = self._now_ms
        self._actions.append(CompleteRequest(pending.token, pending.checkpoint_id))
        if not properties.is_savepoint:
            self._latest_completed = pending.checkpoint_id
            self._force_full_snapshot = False
        if not properties.is_savepoint or properties.is_synchronous:
            # An intermediate savepoint commits no side effects: they wait for a checkpoint.
            self._abort_pending(
                CheckpointFailureReason.CHECKPOINT_SUBSUMED,
                lambda commit: (
                    commit.checkpoint_id < pending.checkpoint_id and commit.can_be_subsumed
                ),
            )
            self._actions.append(
                NotifyCheckpointComplete(pending.checkpoint_id, pending.timestamp, tasks)
            )
        if event.subsumed:
            self._cleaning += len(event.subsumed)
            self._actions.append(NotifyCheckpointSubsumed(max(event.subsumed), tasks))
            self._actions.append(DiscardSubsumed(event.subsumed))

    def _commit_failed(self, event: CommitFailed) -> None:
        pending = self._take_committing(event.checkpoint_id)
        reason = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE
        self._abort(pending, reason, event.message)

    def _take_committing(self, checkpoint_id: int) -> PendingCheckpoint:
        if checkpoint_id != self._committing:
            raise InvariantViolation(
                f"checkpoint {checkpoint_id} was not committing, but {self._committing}"
            )
        self._committing = None
        return self._pending[checkpoint_id]

    # --------------------------------------------------------------------------------- abort

    def _decline(self, event: DeclineCheckpoint) -> None:
        pending = self._pending.get(event.checkpoint_id)
        if pending is not None and event.checkpoint_id != self._committing:
            self._abort(pending, event.reason, event.message, event.attempt_id)

    def _task_failed(self, event: TaskFailed) -> None:
        self._abort_pending(
            CheckpointFailureReason.TASK_FAILURE,
            lambda pending: not pending.is_acknowledged_by(event.attempt_id),
            event.message,
        )

    def _abort_pending(
        self,
        reason: CheckpointFailureReason,
        which: Callable[[PendingCheckpoint], bool] = lambda pending: True,
        message: str = "",
    ) -> None:
        for pending in list(self._pending.values()):
            if pending.checkpoint_id != self._committing and which(pending):
                self._abort(pending, reason, message)

    def _abort(
        self,
        pending: PendingCheckpoint,
        reason: CheckpointFailureReason,
        message: str = "",
        attempt_id: str | None = None,
    ) -> None:
        checkpoint_id = pending.checkpoint_id
        del self._pending[checkpoint_id]
        self._ended.add_aborted(pending)
        if self._triggering == checkpoint_id:
            self._triggering = None
        states, tasks = pending.discard(), pending.plan.tasks_to_commit_to
        self._cleaning += 1
        self._actions += [
            FailRequest(pending.token, reason, message, checkpoint_id),
            NotifyCheckpointAborted(checkpoint_id, self._latest_completed, reason, message, tasks),
            RecordAbort(checkpoint_id),
        ]
        self._discard(checkpoint_id, states, pending, counts=True)
        self._count_failure(checkpoint_id, pending.properties, reason, attempt_id)

    def _count_failure(
        self,
        checkpoint_id: int | None,
        properties: CheckpointProperties,
        reason: CheckpointFailureReason,
        attempt_id: str | None,
    ) -> None:
        message = self._failures.handle_failure(
            checkpoint_id, properties, reason, by_task=attempt_id is not None
        )
        if message is not None:
            self._actions.append(FailJob(message, attempt_id))
