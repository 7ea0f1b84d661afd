"""The shell: requests become commits on real files, and failures leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from dstl_core.checkpoint.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.events import AcknowledgeCheckpoint, DeclineCheckpoint
from dstl_core.checkpoint.failure import CheckpointFailureReason
from dstl_core.checkpoint.gateway import CheckpointCoordinatorGateway
from dstl_core.checkpoint.pending import CheckpointPlan, CheckpointTask, OperatorPlan
from dstl_core.checkpoint.properties import CheckpointProperties, JobStatus
from dstl_core.checkpoint.storage import FileSystemCheckpointStorage
from dstl_core.config import CheckpointConfig
from dstl_core.errors import (
    CheckpointError,
    ConfigError,
    DstlError,
    FencedError,
    NonRestoredStateError,
    RestoreError,
    StorageError,
)
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import RelativeFileStateHandle, StreamStateHandle
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.snapshot_type import (
    CheckpointMetaData,
    CheckpointOptions,
    CheckpointType,
    SavepointType,
)
from dstl_core.storage.location import Location
from tests.uncertain_file_io import lose_the_answer
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
            first = min(due, key=lambda each: each.due)
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
                pipeline.layout, savepoint_dir=savepoints, file_io=pipeline.files
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


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


def error_of(future: Future[CompletedCheckpoint]) -> CheckpointError:
    error = future.exception(0)
    assert isinstance(error, CheckpointError)
    return error


# ------------------------------------------------------------------------------------ commits


def test_a_checkpoint(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    base = shell.write("taskowned/base")
    future = shell.gateway.trigger_checkpoint(facts=lambda: {"rows": 3})
    assert not future.done()
    assert shell.acknowledge(1, base)
    completed = future.result(0)
    assert (completed.checkpoint_id, completed.facts["rows"]) == (1, 3)
    assert shell.store.latest == completed
    assert shell.store.load(completed).metadata.checkpoint_id == 1
    assert shell.tasks.told == [("trigger", 1), ("complete", 1)]
    [options] = shell.tasks.options
    assert options.target_location == str(pipeline.layout.checkpoint(1))


def test_old_checkpoints_go(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    base, one, two = (shell.write(name) for name in ("taskowned/b", "dstl/1", "dstl/2"))
    shell.checkpoint(base, one)
    shell.checkpoint(base, two)
    assert shell.tasks.told[-2:] == [("complete", 2), ("subsumed", 1)]
    assert pipeline.there() == {"chk-2/_metadata", "chk-2/_dstl.json", "taskowned/b", "dstl/2"}


def test_a_task_may_answer_while_it_is_asked(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    shell.acknowledge_at_once(shell.write("taskowned/base"))
    assert shell.gateway.trigger_checkpoint().result(0).checkpoint_id == 1


def test_a_task_that_cannot_be_asked(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)

    def refuse(checkpoint: CheckpointMetaData, options: CheckpointOptions) -> None:
        raise StorageError("The connection was refused.")

    shell.tasks.on_trigger = refuse
    error = error_of(shell.gateway.trigger_checkpoint())
    assert error.context["reason"] is CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE
    assert "The connection was refused." in str(error)


def test_a_failing_notification_stops_nobody(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    shell = Shell(pipeline)

    class Deaf(Tasks):
        def notify_checkpoint_complete(self, *_: object) -> None:
            raise ValueError("no")

    shell.gateway._runner._tasks = shell.tasks = Deaf()
    assert shell.checkpoint(shell.write("taskowned/base")).checkpoint_id == 1
    assert "a notification failed" in caplog.text


# -------------------------------------------------------------------------------------- aborts


def test_a_declined_checkpoint_leaves_nothing_but_what_tasks_own(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    future = shell.gateway.trigger_checkpoint()
    shell.write("chk-1/own")
    segment, base = shell.write("dstl/1"), shell.write("taskowned/base")
    shell.gateway.receive_decline_message(DeclineCheckpoint(1, DECLINED, "no", "x", JOB))
    # This report comes too late.
    assert shell.acknowledge(1, base, segment, RelativeFileStateHandle("own", 4))
    error = error_of(future)
    assert error.context["reason"] is DECLINED
    assert str(error) == "Checkpoint was declined: no"
    assert shell.tasks.told[-1] == ("aborted", 1, "CHECKPOINT_DECLINED")
    assert pipeline.there() == {"dstl/1", "taskowned/base"}
    assert not Path(pipeline.layout.checkpoint(1).path).exists()


def test_when_tasks_are_gone_their_files_go_too(pipeline: Pipeline) -> None:
    shell = Shell(pipeline, tasks_live_on=False)
    shell.gateway.trigger_checkpoint()
    shell.gateway.receive_decline_message(DeclineCheckpoint(1, DECLINED))
    shell.acknowledge(1, shell.write("taskowned/base"), shell.write("dstl/1"))
    assert pipeline.there() == set()


def test_an_aborted_id_is_recorded(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    shell.gateway.trigger_checkpoint()
    shell.gateway.receive_decline_message(DeclineCheckpoint(1, DECLINED))
    reader = pipeline.store()
    reader.refresh()
    assert reader.next_checkpoint_id() == 2


def test_expiry_by_the_timer(pipeline: Pipeline) -> None:
    shell = Shell(pipeline, timeout_ms=1000)
    future = shell.gateway.trigger_checkpoint()
    shell.time.pass_to(999)
    assert not future.done()
    shell.time.pass_to(1000)
    assert error_of(future).context["reason"] is CheckpointFailureReason.CHECKPOINT_EXPIRED


def test_a_message_for_another_job(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    other = JobID.for_name("other")
    with pytest.raises(CheckpointError, match="A message is for another job: expected abab"):
        shell.gateway.receive_acknowledge_message(AcknowledgeCheckpoint(1, "t", None, other))
    with pytest.raises(CheckpointError, match="another job"):
        shell.gateway.receive_decline_message(DeclineCheckpoint(1, DECLINED, job_id=other))


def test_a_message_for_nothing_we_know(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    stray = shell.write("chk-9/x")
    assert not shell.acknowledge(9, stray)
    assert pipeline.there() == set()


def test_a_failed_task(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    future = shell.gateway.trigger_checkpoint()
    shell.gateway.task_failed(TASK.attempt_id, "gone")
    assert error_of(future).context["reason"] is CheckpointFailureReason.TASK_FAILURE


def test_too_many_failures_fail_the_job(pipeline: Pipeline) -> None:
    shell = Shell(pipeline, tolerable_failed_checkpoints=0)
    shell.gateway.trigger_checkpoint()
    shell.gateway.receive_decline_message(DeclineCheckpoint(1, DECLINED, attempt_id="t"))
    assert shell.tasks.told[-1] == ("fail job", "t")


# ------------------------------------------------------------------------ storage that fails


def test_metadata_that_cannot_be_published(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    base = shell.write("taskowned/base")
    future = shell.gateway.trigger_checkpoint()
    pipeline.files.after_publish = lose_the_answer
    shell.acknowledge(1, base)
    error = error_of(future)
    assert error.context["reason"] is CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE
    assert isinstance(error.__cause__, StorageError)
    # The sidecar had arrived; it goes, what the task owns stays for the next checkpoint.
    assert pipeline.there() == {"taskowned/base"}
    assert shell.checkpoint(base).checkpoint_id == 2


def refuse_publishes(pipeline: Pipeline, after: int) -> None:
    """Every publish but the first few fails, and does nothing."""
    publishes = 0

    def refuse() -> None:
        nonlocal publishes
        publishes += 1
        pipeline.files.before_publish = refuse
        if publishes > after:
            raise StorageError("Cannot publish: the connection was refused.")

    pipeline.files.before_publish = refuse


def test_a_commit_whose_outcome_is_unknown_is_found_out(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    base = shell.write("taskowned/base")
    future = shell.gateway.trigger_checkpoint()
    refuse_publishes(pipeline, after=2)
    shell.acknowledge(1, base)
    assert shell.gateway.uncertain_commit is not None
    assert not future.done()
    # It is pending still, and nothing it names is touched; nothing else starts.
    waiting = shell.gateway.trigger_checkpoint()
    shell.gateway.receive_decline_message(DeclineCheckpoint(1, DECLINED))
    shell.time.pass_to(5_000)
    assert not future.done()
    assert "chk-1/_metadata" in pipeline.there()
    pipeline.files.before_publish = None
    shell.time.pass_to(6_000)
    assert future.result(0).checkpoint_id == 1
    assert shell.gateway.uncertain_commit is None
    assert shell.triggered == 2
    assert not waiting.done()


def test_an_overtaken_owner_commits_nothing_and_fails_its_job(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    base = shell.write("taskowned/base")
    shell.checkpoint(base)
    future = shell.gateway.trigger_checkpoint()
    successor = pipeline.store()
    successor.claim("new")
    shell.acknowledge(2, base, shell.write("dstl/2"))
    assert isinstance(future.exception(0), FencedError)
    assert shell.tasks.told[-2:] == [
        ("aborted", 2, "FINALIZE_CHECKPOINT_FAILURE"),
        ("fail job", None),
    ]
    assert "chk-2/_metadata" not in pipeline.there()
    later = error_of(shell.gateway.trigger_checkpoint())
    down = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
    assert later.context["reason"] is down
    successor.refresh()
    assert [each.checkpoint_id for each in successor.completed] == [1]
    # The successor skips all ids that the old owner may have in flight.
    assert successor.next_checkpoint_id() == 2 + 9


def test_ids_stay_within_what_the_next_owner_skips(pipeline: Pipeline) -> None:
    shell = Shell(pipeline, max_concurrent_checkpoints=99)
    futures = [shell.gateway.trigger_checkpoint() for _ in range(9)]
    assert shell.triggered == 9
    tenth = error_of(shell.gateway.trigger_checkpoint())
    assert tenth.context["reason"] is CheckpointFailureReason.IO_EXCEPTION
    assert "Too many checkpoints are in flight" in str(tenth)
    assert not any(each.done() for each in futures)
    successor = pipeline.store()
    successor.claim("new")
    assert successor.next_checkpoint_id() == 10


def test_an_abort_that_cannot_be_recorded_is_recorded_later(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    store = pipeline.store()
    store.claim("owner", in_flight=1)
    shell = Shell(pipeline, store=store)
    shell.gateway.trigger_checkpoint()
    refuse_publishes(pipeline, after=0)
    shell.gateway.receive_decline_message(DeclineCheckpoint(1, DECLINED))
    pipeline.files.before_publish = None
    assert "an abort could not be recorded yet" in caplog.text
    # The window is one id wide, so the next trigger records it first.
    shell.gateway.trigger_checkpoint()
    assert shell.triggered == 2
    reader = pipeline.store()
    reader.refresh()
    assert reader.next_checkpoint_id() == 2


def test_a_folder_that_is_taken(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    pipeline.write("chk-1/_metadata")
    error = error_of(shell.gateway.trigger_checkpoint())
    assert error.context["reason"] is CheckpointFailureReason.IO_EXCEPTION
    assert "There is a checkpoint 1 already" in str(error)
    shell.gateway.trigger_checkpoint()
    assert shell.triggered == 2


# ---------------------------------------------------------------------------------- scheduler


def test_periodic_checkpoints(pipeline: Pipeline) -> None:
    shell = Shell(pipeline, interval_ms=1000, min_pause_ms=200)
    shell.gateway.start_checkpoint_scheduler()
    shell.acknowledge_at_once(shell.write("taskowned/base"))
    shell.time.pass_to(199)
    assert shell.tasks.told == []
    shell.time.pass_to(5_000)
    assert 4 <= shell.triggered <= 5
    shell.gateway.stop_checkpoint_scheduler()
    taken = shell.triggered
    shell.time.pass_to(60_000)
    assert shell.triggered == taken
    shell.gateway.start_checkpoint_scheduler()
    shell.time.pass_to(62_000)
    assert shell.triggered > taken


def test_a_scheduler_without_a_period_or_after_the_end(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    with pytest.raises(ConfigError, match=r"execution\.checkpointing\.interval"):
        shell.gateway.start_checkpoint_scheduler()
    shell.gateway.shutdown(JobStatus.SUSPENDED)
    with pytest.raises(CheckpointError, match="shut down"):
        shell.gateway.start_checkpoint_scheduler()


# --------------------------------------------------------------------------------- savepoints


def test_a_savepoint_is_the_users(pipeline: Pipeline, tmp_path: Path) -> None:
    shell = Shell(pipeline)
    base = shell.write("taskowned/base")
    first = shell.checkpoint(base)
    future = shell.gateway.trigger_savepoint(str(tmp_path / "mine"))
    shell.acknowledge(2, base)
    savepoint = future.result(0)
    assert savepoint.location is not None
    folder = Path(Location.parse(savepoint.location).path)
    assert folder.parent == tmp_path / "mine"
    assert folder.name.startswith("savepoint-ababab-")
    assert (folder / "_metadata").exists()
    # The pipeline goes on from its own checkpoint, and never deletes the savepoint.
    assert shell.store.latest == first
    assert shell.store.next_checkpoint_id() == 3
    assert ("complete", 2) not in shell.tasks.told
    shell.checkpoint(base)
    assert (folder / "_metadata").exists()
    assert shell.store.latest is not None
    assert shell.store.latest.parent == 1


def test_a_failed_savepoint_leaves_no_folder(pipeline: Pipeline, tmp_path: Path) -> None:
    shell = Shell(pipeline)
    future = shell.gateway.trigger_savepoint()
    [options] = shell.tasks.options
    assert options.target_location is not None
    folder = Location.parse(options.target_location)
    pipeline.files.write_new(folder.child("state"), b"1234")
    shell.gateway.receive_decline_message(DeclineCheckpoint(1, DECLINED))
    assert error_of(future).context["reason"] is DECLINED
    assert not Path(folder.path).exists()


def test_stop_with_savepoint(pipeline: Pipeline) -> None:
    shell = Shell(pipeline, interval_ms=1000)
    base = shell.write("taskowned/base")
    shell.gateway.start_checkpoint_scheduler()
    shell.time.pass_to(1_000)
    periodic = shell.triggered
    future = shell.gateway.stop_with_savepoint(terminate=True)
    assert ("aborted", periodic, "CHECKPOINT_COORDINATOR_SUSPEND") in shell.tasks.told
    kind = shell.tasks.options[-1].checkpoint_type
    assert isinstance(kind, SavepointType)
    assert kind.should_drain
    shell.time.pass_to(9_000)
    assert shell.triggered == periodic + 1
    shell.acknowledge(shell.triggered, base)
    assert future.result(0).location is not None
    # The tasks end with this notification.
    assert shell.tasks.told[-1] == ("complete", periodic + 1)
    shell.time.pass_to(60_000)
    assert shell.triggered == periodic + 1


def test_after_a_failed_stop_the_job_goes_on(pipeline: Pipeline) -> None:
    shell = Shell(pipeline, interval_ms=1000)
    shell.gateway.start_checkpoint_scheduler()
    future = shell.gateway.stop_with_savepoint(terminate=False)
    shell.gateway.receive_decline_message(DeclineCheckpoint(1, DECLINED))
    assert error_of(future).context["reason"] is DECLINED
    shell.time.pass_to(5_000)
    assert shell.triggered > 1


def test_no_place_for_a_savepoint(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    shell.gateway._runner._storage = FileSystemCheckpointStorage(
        pipeline.layout, file_io=pipeline.files
    )
    error = error_of(shell.gateway.trigger_savepoint())
    assert error.context["reason"] is CheckpointFailureReason.IO_EXCEPTION
    assert "execution.checkpointing.savepoint-dir" in str(error)


# ------------------------------------------------------------------------------------ restore


def test_without_a_checkpoint(pipeline: Pipeline) -> None:
    gateway = Shell(pipeline).gateway
    assert (
        gateway.restore_latest_checkpointed_state(
            error_if_no_checkpoint=False, all_or_nothing_state=True
        )
        is None
    )
    with pytest.raises(RestoreError, match="No completed checkpoint available"):
        gateway.restore_latest_checkpointed_state(
            error_if_no_checkpoint=True, all_or_nothing_state=True
        )


def test_the_latest_checkpoint_is_restored(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    base = shell.write("taskowned/base")
    shell.checkpoint(base)
    latest = shell.checkpoint(base)
    restored = Shell(pipeline, owner="next").gateway.restore_latest_checkpointed_state(
        error_if_no_checkpoint=True, all_or_nothing_state=True
    )
    assert restored is not None
    assert restored.checkpoint == latest
    [subtask_state] = restored.assignment.subtasks[ID]
    assert subtask_state.restored_checkpoint_id == latest.checkpoint_id
    assert subtask_state.managed_keyed_state == (subtask(base).managed_keyed_state,)


def test_state_without_an_operator(pipeline: Pipeline) -> None:
    Shell(pipeline).checkpoint(pipeline.write("taskowned/base"))
    other = CheckpointPlan.of_operators(OperatorPlan(OperatorID.for_uid("v"), "v", 1, 1))
    gateway = Shell(pipeline, owner="next", plan=other).gateway
    with pytest.raises(NonRestoredStateError):
        gateway.restore_latest_checkpointed_state(
            error_if_no_checkpoint=True, all_or_nothing_state=True
        )
    restored = gateway.restore_latest_checkpointed_state(
        error_if_no_checkpoint=True, all_or_nothing_state=False
    )
    assert restored is not None


def savepoint_of_another_job(tmp_path: Path) -> str:
    """A savepoint with a file of its own, as checkpoint 40 of its job."""
    other = Pipeline(tmp_path / "other")
    shell = Shell(other)
    shell.gateway._ids.set_count(8)
    future = shell.gateway.trigger_savepoint(str(tmp_path / "source"))
    location = shell.tasks.options[-1].target_location
    assert location is not None
    other.files.write_new(Location.parse(location).child("state"), b"1234")
    shell.acknowledge(shell.triggered, RelativeFileStateHandle("state", 4))
    future.result(0)
    return location


@pytest.mark.parametrize("claim_mode", ["CLAIM", "NO_CLAIM"])
def test_a_pipeline_starts_from_a_savepoint(
    pipeline: Pipeline, tmp_path: Path, claim_mode: str
) -> None:
    source = savepoint_of_another_job(tmp_path)
    folder = Path(Location.parse(source).path)
    shell = Shell(pipeline)
    restored = shell.gateway.restore_savepoint(source, claim_mode=claim_mode)  # type: ignore[arg-type]  # a literal
    assert restored.checkpoint.location == source
    assert restored.checkpoint.checkpoint_id == 8
    # Until the first checkpoint, this is what a failed job goes back to.
    again = Shell(pipeline, owner="next").gateway.restore_latest_checkpointed_state(
        error_if_no_checkpoint=True, all_or_nothing_state=True
    )
    assert again is not None
    assert again.checkpoint == restored.checkpoint
    shell = Shell(pipeline, owner="third")
    shell.gateway.restore_latest_checkpointed_state(
        error_if_no_checkpoint=True, all_or_nothing_state=True
    )
    shell.checkpoint(shell.write("taskowned/base"))
    full, usual = CheckpointType.FULL_CHECKPOINT, CheckpointType.CHECKPOINT
    kinds = [each.checkpoint_type for each in shell.tasks.options]
    assert kinds == [full if claim_mode == "NO_CLAIM" else usual]
    # A claimed snapshot goes when it is subsumed; another one is the user's.
    assert folder.exists() is (claim_mode == "NO_CLAIM")
    assert shell.triggered > 8
    shell.gateway.trigger_checkpoint()
    assert shell.tasks.options[-1].checkpoint_type is usual


def test_a_savepoint_that_does_not_fit_is_not_recorded(pipeline: Pipeline, tmp_path: Path) -> None:
    source = savepoint_of_another_job(tmp_path)
    other = CheckpointPlan.of_operators(OperatorPlan(OperatorID.for_uid("v"), "v", 1, 1))
    shell = Shell(pipeline, plan=other)
    with pytest.raises(NonRestoredStateError):
        shell.gateway.restore_savepoint(source)
    assert shell.store.latest is None
    assert shell.gateway.restore_savepoint(source, allow_non_restored_state=True)


# --------------------------------------------------------------------- hooks and coordinators


class Hook:
    identifier = "hook"
    version = 3

    def __init__(self) -> None:
        self.told: list[object] = []
        self.fails = False

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: int) -> bytes | None:
        if self.fails:
            raise CheckpointError("The hook cannot.")
        return b"%d" % checkpoint_id

    def restore_checkpoint(self, checkpoint_id: int, version: int, data: bytes | None) -> None:
        self.told.append((checkpoint_id, version, data))

    def reset(self) -> None:
        self.told.append("reset")


class Coordinator:
    def __init__(self) -> None:
        self.told: list[object] = []
        self.error: DstlError | None = None

    def checkpoint_coordinator(self, checkpoint_id: int) -> bytes | None:
        if self.error is not None:
            raise self.error
        return b"c%d" % checkpoint_id

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.told.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.told.append(("aborted", checkpoint_id))

    def reset_to_checkpoint(self, checkpoint_id: int | None, data: bytes | None) -> None:
        self.told.append(("reset", checkpoint_id, data))


def with_participants(pipeline: Pipeline, owner: str) -> tuple[Shell, Hook, Coordinator]:
    plan = CheckpointPlan(
        PLAN.operators,
        PLAN.tasks_to_trigger,
        PLAN.tasks_to_wait_for,
        operator_coordinators=(ID,),
        master_hooks=("hook",),
    )
    shell = Shell(pipeline, owner=owner, plan=plan)
    hook, coordinator = Hook(), Coordinator()
    assert shell.gateway.add_master_hook(hook)
    assert not shell.gateway.add_master_hook(Hook())
    shell.gateway.add_operator_coordinator(ID, coordinator)
    return shell, hook, coordinator


def test_hooks_and_coordinators_take_part_and_are_restored(pipeline: Pipeline) -> None:
    shell, hook, coordinator = with_participants(pipeline, "first")
    flags = {"error_if_no_checkpoint": False, "all_or_nothing_state": True}
    assert shell.gateway.restore_latest_checkpointed_state(**flags) is None
    assert hook.told == ["reset"]
    assert coordinator.told == [("reset", None, None)]
    shell.checkpoint(shell.write("taskowned/base"))
    assert coordinator.told[-1] == ("complete", 1)
    coordinator.error = CheckpointError("The coordinator cannot.")
    error = error_of(shell.gateway.trigger_checkpoint())
    assert "The coordinator cannot." in str(error)
    assert coordinator.told[-1] == ("aborted", 2)
    coordinator.error, hook.fails = None, True
    assert "The hook cannot." in str(error_of(shell.gateway.trigger_checkpoint()))

    shell, hook, coordinator = with_participants(pipeline, "second")
    assert shell.gateway.restore_latest_checkpointed_state(**flags) is not None
    assert hook.told == [(1, 3, b"1")]
    assert coordinator.told == [("reset", 1, b"c1")]
    stranger = Shell(pipeline, owner="third")
    with pytest.raises(RestoreError, match=r"state of master hooks .* hook"):
        stranger.gateway.restore_latest_checkpointed_state(**flags)


# ------------------------------------------------------------------------------------ the end


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        ("NO_EXTERNALIZED_CHECKPOINTS", []),
        ("DELETE_ON_CANCELLATION", ["FAILED"]),
        ("RETAIN_ON_CANCELLATION", ["CANCELED", "FAILED", "SUSPENDED"]),
    ],
)
@pytest.mark.parametrize("status", list(JobStatus))
def test_what_the_end_of_the_job_leaves(
    pipeline: Pipeline, retention: str, kept: list[str], status: JobStatus
) -> None:
    shell = Shell(pipeline, externalized_checkpoint_retention=retention)
    shell.checkpoint(shell.write("taskowned/base"))
    pending = shell.gateway.trigger_checkpoint()
    shell.gateway.shutdown(status)
    down = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
    assert error_of(pending).context["reason"] is down
    reader = pipeline.store()
    reader.refresh()
    if status.value in kept:
        assert reader.latest is not None
        assert "taskowned/base" in pipeline.there()
    else:
        # It is recorded as gone before the first file goes: nobody restores it.
        assert reader.latest is None
        assert pipeline.there() == set()
    assert [each.checkpoint_id for each in reader.completed] == [1]


def test_properties_of_a_commit_are_remembered(pipeline: Pipeline) -> None:
    shell = Shell(pipeline, externalized_checkpoint_retention="RETAIN_ON_CANCELLATION")
    completed = shell.checkpoint(shell.write("taskowned/base"))
    properties = completed.properties
    assert properties == shell.gateway.checkpoint_properties
    assert properties == CheckpointProperties(
        False, CheckpointType.CHECKPOINT, True, frozenset({JobStatus.FINISHED})
    )
