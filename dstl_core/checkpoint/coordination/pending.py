"""A pending checkpoint, and the plan of the parts that take part in it.

Source: ``PendingCheckpoint`` and ``CheckpointPlan`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from dstl_core.checkpoint.store.properties import CheckpointProperties
from dstl_core.errors import ConfigError
from dstl_core.model.checkpoint import (
    CheckpointMetadata,
    DeclaredDecimals,
    MasterState,
    OperatorState,
    OperatorSubtaskState,
)
from dstl_core.model.handle import ByteStreamStateHandle
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import check_parallelism

METADATA_VERSION = 3
_Name = TypeVar("_Name")
_State = TypeVar("_State")

TaskStateSnapshot = Mapping[OperatorID, OperatorSubtaskState]
"""The report of one task: the state of each of its operators."""


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """An operator of the job.

    ``max_parallelism_configured`` is true if the user chose the max parallelism. Then a snapshot
    with another one is refused; otherwise the operator takes the max parallelism of the snapshot.
    """

    operator_id: OperatorID
    uid: str
    parallelism: int
    max_parallelism: int
    max_parallelism_configured: bool = True
    decimals: Mapping[str, DeclaredDecimals] = field(default_factory=dict, compare=False)
    """What was declared of decimals, by state."""


@dataclass(frozen=True, slots=True)
class CheckpointTask:
    """One attempt of one parallel task: a chain of operators at one index."""

    attempt_id: str
    subtask_index: int
    operator_ids: tuple[OperatorID, ...]


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """The parts of a job that take part in checkpoints.

    Every running task acknowledges a checkpoint and is notified of its outcome. ``finished_tasks``
    have ended and have no state. Operator coordinators and master hooks acknowledge before tasks.
    """

    operators: tuple[OperatorPlan, ...]
    tasks_to_trigger: tuple[CheckpointTask, ...]
    tasks_to_wait_for: tuple[CheckpointTask, ...]
    finished_tasks: tuple[CheckpointTask, ...] = ()
    operator_coordinators: tuple[OperatorID, ...] = ()
    master_hooks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.operators:
            raise ConfigError("A checkpoint needs at least one operator.")
        if len({plan.operator_id for plan in self.operators}) < len(self.operators):
            raise ConfigError("Two operators of a checkpoint have the same id; give each its uid.")
        for plan in self.operators:
            check_parallelism(plan.parallelism, plan.max_parallelism)

    @classmethod
    def of_operators(cls, *operators: OperatorPlan) -> CheckpointPlan:
        """A plan with one task per subtask, named ``<operator id>-<index>``."""
        tasks = tuple(
            CheckpointTask(f"{plan.operator_id}-{index}", index, (plan.operator_id,))
            for plan in operators
            for index in range(plan.parallelism)
        )
        return cls(operators, tasks, tasks)

    @property
    def tasks_to_commit_to(self) -> tuple[CheckpointTask, ...]:
        return self.tasks_to_wait_for


class TaskAcknowledgeResult(Enum):
    """The result of an acknowledgement."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"
    """The task does not take part, or the checkpoint is unknown."""
    DISCARDED = "discarded"
    """The checkpoint was aborted."""


class PendingCheckpoint:
    """Collects the reports of all parts of a job for one checkpoint.

    Invariants: (1) the report of a task counts once; (2) after ``discard`` no report is accepted.
    """

    def __init__(
        self,
        checkpoint_id: int,
        timestamp: int,
        plan: CheckpointPlan,
        properties: CheckpointProperties,
        target_location: str,
        *,
        deadline_ms: int,
        token: Hashable = None,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.timestamp = timestamp
        self.plan = plan
        self.properties = properties
        self.target_location = target_location
        self.deadline_ms = deadline_ms
        self.token = token
        self.tasks_triggered = False
        self.discarded = False
        self._tasks = {task.attempt_id: task for task in plan.tasks_to_wait_for}
        self._acknowledged: dict[str, TaskStateSnapshot] = {}
        self._coordinators: dict[OperatorID, ByteStreamStateHandle | None] = {}
        self._master_states: dict[str, MasterState | None] = {}

    # --------------------------------------------------------------------------- acknowledge

    def acknowledge_task(
        self, attempt_id: str, state: TaskStateSnapshot | None
    ) -> TaskAcknowledgeResult:
        if self.discarded:
            return TaskAcknowledgeResult.DISCARDED
        task = self._tasks.get(attempt_id)
        reported = state or {}
        if task is None or not _belongs(task, reported):
            return TaskAcknowledgeResult.UNKNOWN
        if attempt_id in self._acknowledged:
            return TaskAcknowledgeResult.DUPLICATE
        self._acknowledged[attempt_id] = reported
        return TaskAcknowledgeResult.SUCCESS

    def acknowledge_coordinator_state(
        self, operator_id: OperatorID, state: ByteStreamStateHandle | None
    ) -> TaskAcknowledgeResult:
        return _take(self, self.plan.operator_coordinators, self._coordinators, operator_id, state)

    def acknowledge_master_state(
        self, hook: str, state: MasterState | None
    ) -> TaskAcknowledgeResult:
        return _take(self, self.plan.master_hooks, self._master_states, hook, state)

    def is_acknowledged_by(self, attempt_id: str) -> bool:
        return attempt_id in self._acknowledged

    @property
    def coordinators_fully_acknowledged(self) -> bool:
        return len(self._coordinators) == len(self.plan.operator_coordinators)

    @property
    def master_states_fully_acknowledged(self) -> bool:
        return len(self._master_states) == len(self.plan.master_hooks)

    @property
    def is_fully_acknowledged(self) -> bool:
        return (
            len(self._acknowledged) == len(self._tasks)
            and self.coordinators_fully_acknowledged
            and self.master_states_fully_acknowledged
        )

    @property
    def can_be_subsumed(self) -> bool:
        return not self.properties.is_savepoint

    # --------------------------------------------------------------------------------- ends

    def discard(self) -> tuple[OperatorSubtaskState, ...]:
        """Aborts the checkpoint; returns the state that was reported for it."""
        self.discarded = True
        return tuple(
            state for reported in self._acknowledged.values() for state in reported.values()
        )

    def metadata(self) -> CheckpointMetadata:
        """The content of ``_metadata``, once all parts have acknowledged."""
        master_states = (self._master_states[name] for name in self.plan.master_hooks)
        return CheckpointMetadata(
            METADATA_VERSION,
            self.checkpoint_id,
            tuple(self._operator_state(plan) for plan in self.plan.operators),
            tuple(state for state in master_states if state is not None),
        )

    def _operator_state(self, plan: OperatorPlan) -> OperatorState:
        subtasks = {
            task.subtask_index: OperatorSubtaskState(task.subtask_index, finished=True)
            for task in self.plan.finished_tasks
            if plan.operator_id in task.operator_ids
        }
        fully_finished = len(subtasks) == plan.parallelism
        for reported in self._acknowledged.values():
            state = reported.get(plan.operator_id)
            if state is not None:
                subtasks[state.index] = state
        return OperatorState(
            plan.operator_id,
            plan.parallelism,
            plan.max_parallelism,
            () if fully_finished else tuple(subtasks[index] for index in sorted(subtasks)),
            uid=plan.uid,
            decimals=plan.decimals,
            coordinator_state=self._coordinators.get(plan.operator_id),
            fully_finished=fully_finished,
        )


def _take(
    pending: PendingCheckpoint,
    expected: tuple[_Name, ...],
    states: dict[_Name, _State],
    name: _Name,
    state: _State,
) -> TaskAcknowledgeResult:
    if pending.discarded:
        return TaskAcknowledgeResult.DISCARDED
    if name not in expected:
        return TaskAcknowledgeResult.UNKNOWN
    if name in states:
        return TaskAcknowledgeResult.DUPLICATE
    states[name] = state
    return TaskAcknowledgeResult.SUCCESS


def _belongs(task: CheckpointTask, reported: TaskStateSnapshot) -> bool:
    return all(
        operator_id in task.operator_ids and state.index == task.subtask_index
        for operator_id, state in reported.items()
    )


NUM_GHOST_CHECKPOINT_IDS = 16


class EndedCheckpoints:
    """The last checkpoints that ended, to tell late reports from reports of unknown checkpoints.

    ``aborted`` maps ids to the aborted checkpoints; ``completed`` are ids.
    """

    def __init__(self) -> None:
        self.aborted: dict[int, PendingCheckpoint] = {}
        self.completed: deque[int] = deque(maxlen=NUM_GHOST_CHECKPOINT_IDS)

    def __contains__(self, checkpoint_id: int) -> bool:
        return checkpoint_id in self.aborted or checkpoint_id in self.completed

    def add_aborted(self, pending: PendingCheckpoint) -> None:
        self.aborted[pending.checkpoint_id] = pending
        if len(self.aborted) > NUM_GHOST_CHECKPOINT_IDS:
            del self.aborted[next(iter(self.aborted))]

    def result_of_late_acknowledgement(self, checkpoint_id: int) -> TaskAcknowledgeResult:
        """The result of an acknowledgement whose checkpoint is no longer pending."""
        if checkpoint_id in self.completed:
            # The checkpoint references the reported state, so the state must not be deleted.
            return TaskAcknowledgeResult.DUPLICATE
        if checkpoint_id in self.aborted:
            return TaskAcknowledgeResult.DISCARDED
        return TaskAcknowledgeResult.UNKNOWN
