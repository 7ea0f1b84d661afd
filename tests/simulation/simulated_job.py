"""A job manager and its tasks in a simulated world."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from dstl_core.changelog.storage import FsStateChangelogStorage
from dstl_core.changelog.upload import StateChangeUploadScheduler
from dstl_core.checkpoint.coordination.events import AcknowledgeCheckpoint, DeclineCheckpoint
from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.coordination.gateway import CheckpointCoordinatorGateway
from dstl_core.checkpoint.coordination.pending import CheckpointPlan, CheckpointTask, OperatorPlan
from dstl_core.checkpoint.store.checkpoint_storage import FileSystemCheckpointStorage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.codec.serializers import Types
from dstl_core.config import ChangelogOptions, CheckpointConfig
from dstl_core.errors import DstlError
from dstl_core.functions import CheckpointedFunction, Context, KeyedProcessFunction, RuntimeContext
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState
from dstl_core.operators.environment import OperatorSetup, TaskEnvironment
from dstl_core.operators.subtask import OperatorSubtask
from dstl_core.state.backends.context import FunctionInitializationContext, FunctionSnapshotContext
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import JobLayout
from dstl_core.testing.manual import ManualClock, ManualScheduler

UID = "counter"
OPERATOR = OperatorID.for_uid(UID)
MAX_PARALLELISM = 8
TIMEOUT_MS = 1_000
RETENTIONS = ("NO_EXTERNALIZED_CHECKPOINTS", "DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION")
_COUNT = ValueStateDescriptor("count", Types.LONG)
_CHANGES = ListStateDescriptor("changes", Types.LONG)
_SPLIT = ListStateDescriptor("split", Types.LONG)

Keyed = dict[str, list[int]]
"""The changes of each key, in order."""


class CounterFunction(KeyedProcessFunction, CheckpointedFunction):
    """Remembers every change of a key, and counts them."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.split = context.operator_state_store.get_list_state(_SPLIT)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Does nothing: all data is in the state already."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(_COUNT)
        self._changes = runtime_context.get_list_state(_CHANGES)

    def process_element(self, value: Mapping[str, Any], ctx: Context) -> None:
        self._count.update((self._count.value() or 0) + 1)
        self._changes.add(value["change"])
        self.split.add(value["change"])

    def seen(self) -> tuple[int | None, list[int]]:
        """The count and the changes of the current key."""
        return self._count.value(), self._changes.get()


@dataclass
class Task:
    """One attempt of a subtask, and the changes that it has according to its own count."""

    plan: CheckpointTask
    subtask: OperatorSubtask
    function: CounterFunction
    keyed: Keyed = field(default_factory=dict)
    split: list[int] = field(default_factory=list)
    alive: bool = True


@dataclass
class Part:
    """The state of a task when it took its part of a checkpoint."""

    keyed: Keyed
    split: list[int]


Message = Callable[[], None]


class World(Protocol):
    """The part of the simulation that an owner uses."""

    seed: int
    random: Random
    clock: ManualClock
    threads: ManualScheduler
    job_id: JobID
    layout: JobLayout
    options: ChangelogOptions
    loss: float
    parts: dict[int, dict[str, Part]]

    @property
    def io(self) -> FileIO: ...

    def new_name(self) -> str: ...

    def open_store(self, io: FileIO) -> CompletedCheckpointStore: ...

    def setup(self, parallelism: int) -> OperatorSetup: ...

    def environment(self, changelog: FsStateChangelogStorage) -> TaskEnvironment: ...

    def key_group(self, key: str) -> int: ...

    def later(self, message: Message) -> None: ...

    def observe(self) -> None: ...

    def expected_of(self, checkpoint: CompletedCheckpoint) -> Part: ...

    def check_task(self, task: Task) -> None: ...


class Owner:
    """A job manager and its tasks; also ``CheckpointTasks``.

    A ghost is an owner that was replaced and does not know it.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.running = True
        self.tasks: dict[str, Task] = {}
        self.store = world.open_store(world.io)
        self.store.claim(name, in_flight=4)
        self._attempts = 0
        self._plan_of = OperatorPlan(OPERATOR, UID, 1, MAX_PARALLELISM)
        self.changelog = FsStateChangelogStorage(
            world.job_id,
            world.options,
            world.io,
            scheduler=StateChangeUploadScheduler.direct_scheduler,
            threads=world.threads,
            new_name=world.new_name,
        )
        config = CheckpointConfig.of(
            timeout_ms=TIMEOUT_MS,
            max_concurrent_checkpoints=world.random.choice([1, 1, 2]),
            tolerable_failed_checkpoints=None,
            externalized_checkpoint_retention=RETENTIONS[world.seed % len(RETENTIONS)],
        )
        self.gateway = CheckpointCoordinatorGateway(
            world.job_id,
            None,
            config,
            self.store,
            FileSystemCheckpointStorage(world.layout, file_io=world.io, new_name=world.new_name),
            self,
            world.clock,
            random=world.random,
        )

    # ------------------------------------------------------------------------------- restart

    def start_tasks(self) -> None:
        """Restarts all tasks from the latest checkpoint, with a random number of subtasks."""
        world = self.world
        for task in self.tasks.values():
            if task.alive:
                task.subtask.cancel()
        self.tasks = {}
        parallelism = world.random.choice([1, 2, 3])
        plan = OperatorPlan(OPERATOR, UID, parallelism, MAX_PARALLELISM)
        self._attempts += 1
        tasks = tuple(
            CheckpointTask(f"{self.name}-{self._attempts}-{index}", index, (OPERATOR,))
            for index in range(parallelism)
        )
        self.gateway.tasks_changed(CheckpointPlan((plan,), tasks, tasks))
        restored = self.gateway.restore_latest_checkpointed_state(
            error_if_no_checkpoint=False, all_or_nothing_state=True
        )
        parts = [PrioritizedOperatorSubtaskState()] * parallelism
        expected = Part({}, [])
        if restored is not None:
            parts = list(restored.assignment.subtasks[OPERATOR])
            world.observe()
            expected = world.expected_of(restored.checkpoint)
        for attempt, part in zip(tasks, parts, strict=True):
            function = CounterFunction()
            subtask = OperatorSubtask(
                world.setup(parallelism),
                world.environment(self.changelog),
                attempt.subtask_index,
                function,
                part,
            )
            task = Task(attempt, subtask, function, split=function.split.get())
            task.keyed = {
                key: list(changes)
                for key, changes in expected.keyed.items()
                if subtask.key_groups.contains(world.key_group(key))
            }
            self.tasks[attempt.attempt_id] = task
            world.check_task(task)

    # ---------------------------------------------------------------- as the tasks of the job

    def trigger_checkpoint(
        self,
        tasks: Sequence[CheckpointTask],
        checkpoint: CheckpointMetaData,
        options: CheckpointOptions,
    ) -> None:
        for attempt in tasks:
            self._send(attempt.attempt_id, lambda task: self._snapshot(task, checkpoint, options))

    def notify_checkpoint_complete(
        self, tasks: Sequence[CheckpointTask], checkpoint_id: int, timestamp: int
    ) -> None:
        for attempt in tasks:
            self._send(
                attempt.attempt_id,
                lambda task: task.subtask.notify_checkpoint_complete(checkpoint_id),
            )

    def notify_checkpoint_subsumed(
        self, tasks: Sequence[CheckpointTask], checkpoint_id: int
    ) -> None:
        for attempt in tasks:
            self._send(
                attempt.attempt_id,
                lambda task: task.subtask.notify_checkpoint_subsumed(checkpoint_id),
            )

    def notify_checkpoint_aborted(
        self,
        tasks: Sequence[CheckpointTask],
        checkpoint_id: int,
        latest_completed: int | None,
        reason: CheckpointFailureReason,
    ) -> None:
        for attempt in tasks:
            self._send(
                attempt.attempt_id,
                lambda task: task.subtask.notify_checkpoint_aborted(checkpoint_id),
            )

    def fail_job(self, message: str, attempt_id: str | None) -> None:
        self.world.later(self.end)

    def end(self) -> None:
        """Ends the process in an orderly way."""
        self.running = False
        for task in self.tasks.values():
            if task.alive:
                task.alive = False
                task.subtask.cancel()

    # ------------------------------------------------------------------------------ messages

    def _send(self, attempt_id: str, deliver: Callable[[Task], None]) -> None:
        def message() -> None:
            task = self.tasks.get(attempt_id)
            if task is not None and task.alive:
                deliver(task)

        # Only messages to tasks may get lost; Flink does not repeat them.
        if self.world.random.random() >= self.world.loss:
            self.world.later(message)

    def _snapshot(
        self, task: Task, checkpoint: CheckpointMetaData, options: CheckpointOptions
    ) -> None:
        world, checkpoint_id = self.world, checkpoint.checkpoint_id
        part = Part({k: list(v) for k, v in task.keyed.items()}, list(task.split))
        attempt_id = task.plan.attempt_id
        try:
            state = task.subtask.snapshot(checkpoint, options)
        except DstlError as error:
            reason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
            decline = DeclineCheckpoint(checkpoint_id, reason, str(error), attempt_id)
            world.later(lambda: self.gateway.receive_decline_message(decline))
            return
        world.parts.setdefault(checkpoint_id, {})[attempt_id] = part
        message = AcknowledgeCheckpoint(checkpoint_id, attempt_id, {OPERATOR: state})
        copies = world.random.choices([0, 1, 2, 3], [world.loss, 1.0, 0.15, 0.05])[0]
        for _ in range(copies):
            world.later(lambda: self._acknowledge(message))

    def _acknowledge(self, message: AcknowledgeCheckpoint) -> None:
        self.gateway.receive_acknowledge_message(message)
