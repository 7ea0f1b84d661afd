"""A gateway around one task on real files, for tests of the shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random

from dstl_core.checkpoint.coordination.events import AcknowledgeCheckpoint
from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.coordination.gateway import CheckpointCoordinatorGateway
from dstl_core.checkpoint.coordination.pending import CheckpointPlan, CheckpointTask, OperatorPlan
from dstl_core.checkpoint.store.checkpoint_storage import FileSystemCheckpointStorage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.config import CheckpointConfig
from dstl_core.errors import (
    CheckpointError,
)
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import StreamStateHandle
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.snapshot_type import (
    CheckpointMetaData,
    CheckpointOptions,
)
from tests.unit.checkpoint.pipeline import Pipeline, subtask

JOB = JobID.from_hex("ab" * 16)
ID = OperatorID.for_uid("u")
PLAN = CheckpointPlan.of_operators(OperatorPlan(ID, "u", 1, 1))
[TASK] = PLAN.tasks_to_wait_for
DECLINED = CheckpointFailureReason.CHECKPOINT_DECLINED


class ManualTime:
    """A clock, and a scheduler whose actions run when time passes."""

    def __init__(self) -> None:
        self.now = 0
        self._actions: list[list[object]] = []

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.now

    def monotonic_ms(self) -> int:
        return self.now

    def schedule(self, action: Callable[[], None], delay_ms: int) -> ManualTime._Entry:
        entry = self._Entry(self.now + delay_ms, action)
        self.entries.append(entry)
        return entry

    @dataclass
    class _Entry:
        due: int
        action: Callable[[], None] | None

        def cancel(self) -> None:
            self.action = None

    @property
    def entries(self) -> list[_Entry]:
        return self._actions  # type: ignore[return-value]  # one list, typed here

    def pass_to(self, now: int) -> None:
        while True:
            due = [each for each in self.entries if each.action is not None and each.due <= now]
            if not due:
                break
            first = min(due, key=lambda task: task.due)
            self.entries.remove(first)
            self.now = max(self.now, first.due)
            assert first.action is not None
            first.action()
        self.now = now


@dataclass
class Tasks:
    """One task, which does what the test tells it to, and remembers what it was told."""

    told: list[tuple[object, ...]] = field(default_factory=list)
    options: list[CheckpointOptions] = field(default_factory=list)
    on_trigger: Callable[[CheckpointMetaData, CheckpointOptions], None] | None = None

    def trigger_checkpoint(
        self,
        tasks: Sequence[CheckpointTask],
        checkpoint: CheckpointMetaData,
        options: CheckpointOptions,
    ) -> None:
        self.told.append(("trigger", checkpoint.checkpoint_id))
        self.options.append(options)
        if self.on_trigger is not None:
            self.on_trigger(checkpoint, options)

    def notify_checkpoint_complete(
        self, tasks: Sequence[CheckpointTask], checkpoint_id: int, timestamp: int
    ) -> None:
        self.told.append(("complete", checkpoint_id))

    def notify_checkpoint_subsumed(
        self, tasks: Sequence[CheckpointTask], checkpoint_id: int
    ) -> None:
        self.told.append(("subsumed", checkpoint_id))

    def notify_checkpoint_aborted(
        self,
        tasks: Sequence[CheckpointTask],
        checkpoint_id: int,
        latest_completed: int | None,
        reason: CheckpointFailureReason,
    ) -> None:
        self.told.append(("aborted", checkpoint_id, reason.name))

    def fail_job(self, message: str, attempt_id: str | None) -> None:
        self.told.append(("fail job", attempt_id))


class Shell:
    """A gateway with one task that writes real files."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        owner: str = "owner",
        plan: CheckpointPlan | None = PLAN,
        tasks_live_on: bool = True,
        store: CompletedCheckpointStore | None = None,
        has_savepoint_dir: bool = True,
        **options: object,
    ) -> None:
        options.setdefault("tolerable_failed_checkpoints", None)
        self.pipeline = pipeline
        self.store = store or pipeline.store()
        if store is None:
            self.store.claim(owner, in_flight=9)
        self.time = ManualTime()
        self.tasks = Tasks()
        savepoints = str(pipeline.layout.root.parent.parent.child("savepoints"))
        self.gateway = CheckpointCoordinatorGateway(
            JOB,
            plan,
            CheckpointConfig.of(**options),
            self.store,
            FileSystemCheckpointStorage(
                pipeline.layout,
                savepoint_dir=savepoints if has_savepoint_dir else None,
                file_io=pipeline.files,
            ),
            self.tasks,
            self.time,
            scheduler=self.time,
            random=Random(1),
            tasks_live_on=tasks_live_on,
        )

    def state(self, *streams: StreamStateHandle) -> dict[OperatorID, OperatorSubtaskState]:
        return {ID: subtask(*streams)}

    def write(self, name: str) -> StreamStateHandle:
        return self.pipeline.write(name)

    def acknowledge(self, checkpoint_id: int, *streams: StreamStateHandle) -> bool:
        message = AcknowledgeCheckpoint(checkpoint_id, TASK.attempt_id, self.state(*streams), JOB)
        return self.gateway.receive_acknowledge_message(message)

    def acknowledge_at_once(self, *streams: StreamStateHandle) -> None:
        """The task answers while it is asked."""

        def answer(checkpoint: CheckpointMetaData, options: CheckpointOptions) -> None:
            self.acknowledge(checkpoint.checkpoint_id, *streams)

        self.tasks.on_trigger = answer

    def checkpoint(self, *streams: StreamStateHandle) -> CompletedCheckpoint:
        future = self.gateway.trigger_checkpoint()
        self.acknowledge(self.triggered, *streams)
        return future.result(0)

    @property
    def triggered(self) -> int:
        return int(str([each[1] for each in self.tasks.told if each[0] == "trigger"][-1]))


def error_of(future: Future[CompletedCheckpoint]) -> CheckpointError:
    error = future.exception(0)
    assert isinstance(error, CheckpointError)
    return error
