"""Runs the coordinator's actions and returns the events that answer them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from dstl_core.checkpoint.coordination.events import (
    AcknowledgeCoordinatorState,
    Acknowledged,
    AcknowledgeMasterState,
    Action,
    CheckpointCleaned,
    CheckpointCommitted,
    CheckpointInitialized,
    ClaimLost,
    CommitCheckpoint,
    CommitFailed,
    DeclineCheckpoint,
    DiscardState,
    DiscardSubsumed,
    Event,
    FailJob,
    InitializationFailed,
    InitializeCheckpoint,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    NotifyCheckpointSubsumed,
    RecordAbort,
    TriggerMasterHooks,
    TriggerOperatorCoordinators,
    TriggerTasks,
)
from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.coordination.participants import (
    CheckpointTasks,
    MasterTriggerRestoreHook,
    OperatorCoordinator,
)
from dstl_core.checkpoint.coordination.pending import TaskAcknowledgeResult
from dstl_core.checkpoint.store.checkpoint_storage import CheckpointStorage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.checkpoint.store.id_counter import CheckpointIDCounter
from dstl_core.clock import Clock
from dstl_core.errors import CommitUncertainError, ConfigError, DstlError, FencedError
from dstl_core.model.checkpoint import MasterState
from dstl_core.model.handle import ByteStreamStateHandle
from dstl_core.model.ids import OperatorID
from dstl_core.storage.location import Location

_LOG = logging.getLogger(__name__)

Name = TypeVar("Name")
Part = TypeVar("Part")

_TRIGGER_FAILED = CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE


class ActionRunner:
    """Runs actions one at a time, on the caller's thread.

    Invariant: while the outcome of a commit is unknown, no file that it references is deleted.

    Args:
        store: The completed checkpoints; the pipeline is claimed.
        storage: Makes the folders of snapshots.
        ids: Hands out the checkpoint ids of ``store``.
        tasks: The tasks of the job.
        clock: Gives the time stamps of checkpoints.
        tasks_live_on: Whether tasks continue after a checkpoint and keep the files of their logs.
    """

    def __init__(
        self,
        store: CompletedCheckpointStore,
        storage: CheckpointStorage,
        ids: CheckpointIDCounter,
        tasks: CheckpointTasks,
        clock: Clock,
        *,
        tasks_live_on: bool,
    ) -> None:
        self._store = store
        self._storage = storage
        self._ids = ids
        self._tasks = tasks
        self._clock = clock
        self._tasks_live_on = tasks_live_on
        self._in_doubt: tuple[CommitCheckpoint, EpochFacts] | None = None
        self._completed: dict[int, CompletedCheckpoint] = {}
        self._causes: dict[int, DstlError] = {}
        self._still_readable: set[int] = set()
        self.hooks: dict[str, MasterTriggerRestoreHook] = {}
        self.coordinators: dict[OperatorID, OperatorCoordinator] = {}
        self.uncertainty: CommitUncertainError | None = None
        """Set while the outcome of a commit is unknown."""

    def run(self, action: Action) -> Sequence[Event]:
        """Runs an action; returns the events that answer it."""
        match action:
            case InitializeCheckpoint():
                return self._initialize(action)
            case TriggerOperatorCoordinators():
                return self._trigger_coordinators(action)
            case TriggerMasterHooks():
                return self._trigger_hooks(action)
            case TriggerTasks(checkpoint, options, tasks):
                _LOG.info("triggering checkpoint %d: %s", checkpoint.checkpoint_id, options)
                try:
                    self._tasks.trigger_checkpoint(tasks, checkpoint, options)
                except DstlError as error:
                    return [
                        DeclineCheckpoint(checkpoint.checkpoint_id, _TRIGGER_FAILED, str(error))
                    ]
            case Acknowledged():
                _log_acknowledged(action)
            case NotifyCheckpointComplete() | NotifyCheckpointSubsumed():
                self._notify(action)
            case NotifyCheckpointAborted():
                self._notify_aborted(action)
            case RecordAbort(checkpoint_id):
                self._record_abort(checkpoint_id)
            case DiscardState():
                self._discard(action)
                return [CheckpointCleaned()] if action.counts else []
            case DiscardSubsumed(checkpoint_ids):
                self._store.subsume()
                return [CheckpointCleaned() for _ in checkpoint_ids]
            case FailJob(message, attempt_id):
                self._tasks.fail_job(message, attempt_id)
        return []

    # -------------------------------------------------------------------------------- trigger

    def _initialize(self, action: InitializeCheckpoint) -> list[Event]:
        reason = CheckpointFailureReason.IO_EXCEPTION
        try:
            checkpoint_id = self._ids.get_and_increment()
        except FencedError as error:
            return [InitializationFailed(reason, str(error)), ClaimLost(str(error))]
        except DstlError as error:
            return [InitializationFailed(reason, str(error))]
        try:
            if action.properties.is_savepoint:
                location = self._storage.initialize_location_for_savepoint(
                    checkpoint_id, action.target_location
                )
            else:
                location = self._storage.initialize_location_for_checkpoint(checkpoint_id)
        except DstlError as error:
            self._record_abort(checkpoint_id)
            return [InitializationFailed(reason, str(error))]
        return [CheckpointInitialized(checkpoint_id, self._clock.now_ms(), str(location))]

    def _trigger_coordinators(self, action: TriggerOperatorCoordinators) -> list[Event]:
        events: list[Event] = []
        for operator_id in action.operator_ids:
            try:
                coordinator = _named(
                    self.coordinators, operator_id, "operator coordinator", "operator_coordinator"
                )
                data = coordinator.checkpoint_coordinator(action.checkpoint_id)
            except DstlError as error:
                return [DeclineCheckpoint(action.checkpoint_id, _TRIGGER_FAILED, str(error))]
            handle = None if data is None else ByteStreamStateHandle(operator_id.hex, data)
            events.append(AcknowledgeCoordinatorState(action.checkpoint_id, operator_id, handle))
        return events

    def _trigger_hooks(self, action: TriggerMasterHooks) -> list[Event]:
        checkpoint_id, timestamp = action.checkpoint.checkpoint_id, action.checkpoint.timestamp
        events: list[Event] = []
        for name in action.hooks:
            try:
                hook = _named(self.hooks, name, "master hook", "master_hook")
                data = hook.trigger_checkpoint(checkpoint_id, timestamp)
            except DstlError as error:
                return [DeclineCheckpoint(checkpoint_id, _TRIGGER_FAILED, str(error))]
            state = None if data is None else MasterState(name, hook.version, data)
            events.append(AcknowledgeMasterState(checkpoint_id, name, state))
        return events

    # --------------------------------------------------------------------------------- commit

    def commit(self, action: CommitCheckpoint, facts: EpochFacts) -> list[Event]:
        """Publishes and records a checkpoint; returns no event if the outcome is unknown."""
        checkpoint_id = action.metadata.checkpoint_id
        folder = Location.parse(action.target_location)
        before = {each.checkpoint_id for each in self._store.retained}
        self._in_doubt, self.uncertainty = None, None
        try:
            if action.properties.is_savepoint:
                completed = self._store.commit_savepoint(action.metadata, folder, facts)
            else:
                completed = self._store.commit(action.metadata, facts, action.properties)
        except CommitUncertainError as error:
            _LOG.warning("%s", error)
            self._in_doubt, self.uncertainty = (action, facts), error
            return []
        except DstlError as error:
            if self._store.is_in_doubt(checkpoint_id):
                # The log could not be read, so the outcome is still unknown.
                doubt = CommitUncertainError(
                    f"Whether checkpoint {checkpoint_id} was committed is unknown: {error}"
                )
                self._in_doubt, self.uncertainty = (action, facts), doubt
                return []
            self._causes[checkpoint_id] = error
            if not self._store.withdraw_metadata(action.metadata, folder):
                self._still_readable.add(checkpoint_id)
            events: list[Event] = [CommitFailed(checkpoint_id, str(error))]
            if isinstance(error, FencedError):
                events.append(ClaimLost(str(error)))
            return events
        self._completed[checkpoint_id] = completed
        _LOG.info("completed checkpoint %d: folder=%s", checkpoint_id, folder)
        subsumed = before.difference(each.checkpoint_id for each in self._store.retained)
        return [CheckpointCommitted(checkpoint_id, tuple(sorted(subsumed)))]

    def retry_commit(self) -> list[Event]:
        """Tries a commit again whose outcome is unknown."""
        return [] if self._in_doubt is None else self.commit(*self._in_doubt)

    def take_completed(self, checkpoint_id: int) -> CompletedCheckpoint:
        return self._completed.pop(checkpoint_id)

    def take_cause(self, checkpoint_id: int | None) -> DstlError | None:
        """The error that made a commit fail."""
        return None if checkpoint_id is None else self._causes.pop(checkpoint_id, None)

    # ------------------------------------------------------------------------- notifications

    def _notify(self, action: NotifyCheckpointComplete | NotifyCheckpointSubsumed) -> None:
        if isinstance(action, NotifyCheckpointSubsumed):
            _best_effort(self._tasks.notify_checkpoint_subsumed, action.tasks, action.checkpoint_id)
            return
        _best_effort(
            self._tasks.notify_checkpoint_complete,
            action.tasks,
            action.checkpoint_id,
            action.timestamp,
        )
        for coordinator in self.coordinators.values():
            _best_effort(coordinator.notify_checkpoint_complete, action.checkpoint_id)

    def _notify_aborted(self, action: NotifyCheckpointAborted) -> None:
        _LOG.warning(
            "checkpoint %d was aborted: reason=%s message=%s",
            action.checkpoint_id,
            action.reason.name,
            action.message,
        )
        _best_effort(
            self._tasks.notify_checkpoint_aborted,
            action.tasks,
            action.checkpoint_id,
            action.latest_completed,
            action.reason,
        )
        for coordinator in self.coordinators.values():
            _best_effort(coordinator.notify_checkpoint_aborted, action.checkpoint_id)

    # --------------------------------------------------------------------------------- clean

    def _record_abort(self, checkpoint_id: int) -> None:
        try:
            self._store.abort(checkpoint_id)
        except DstlError as error:
            # The id stays in flight until it can be recorded; the next trigger tries again.
            _LOG.warning("an abort could not be recorded yet: %s", error)

    def _discard(self, action: DiscardState) -> None:
        if action.checkpoint_id in self._still_readable:
            _LOG.warning(
                "the state of checkpoint %d is left for gc: its metadata may still be read",
                action.checkpoint_id,
            )
            return
        folder = None if action.target_location is None else Location.parse(action.target_location)
        self._store.discard(
            action.states,
            folder=folder,
            folder_goes=action.folder_goes,
            tasks_live_on=self._tasks_live_on,
        )


def _named(parts: Mapping[Name, Part], name: Name, kind: str, method: str) -> Part:
    """The hook or coordinator that a plan names.

    Raises:
        ConfigError: It was not added.
    """
    part = parts.get(name)
    if part is None:
        raise ConfigError(
            f"The plan names the {kind} {name}, which the gateway does not have; call "
            f"add_{method} before the first checkpoint."
        )
    return part


def _best_effort(notify: Callable[..., None], *arguments: object) -> None:
    try:
        notify(*arguments)
    except Exception:
        # The reported event has happened; an error of the receiver does not change that.
        _LOG.exception("a notification failed")


def _log_acknowledged(action: Acknowledged) -> None:
    level = logging.DEBUG
    if action.result in (TaskAcknowledgeResult.UNKNOWN, TaskAcknowledgeResult.DISCARDED):
        level = logging.WARNING
    _LOG.log(
        level,
        "acknowledgement: checkpoint=%d task=%s result=%s",
        action.checkpoint_id,
        action.attempt_id,
        action.result.value,
    )
