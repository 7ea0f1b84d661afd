"""The shell: requests become commits on real files, aborts leave nothing, and the job ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core.checkpoint.coordination.events import AcknowledgeCheckpoint, DeclineCheckpoint
from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.checkpoint.store.properties import CheckpointProperties, JobStatus
from dstl_core.errors import (
    CheckpointError,
    ConfigError,
    StorageError,
)
from dstl_core.model.handle import RelativeFileStateHandle
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.snapshot_type import (
    CheckpointMetaData,
    CheckpointOptions,
    CheckpointType,
)
from tests.unit.checkpoint.pipeline import Pipeline
from tests.unit.checkpoint.shell import DECLINED, JOB, TASK, Shell, Tasks, error_of

# ------------------------------------------------------------------------------------ commits


def test_a_checkpoint(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    base = shell.write("taskowned/base")
    future = shell.gateway.trigger_checkpoint(facts=lambda: EpochFacts(changes=3))
    assert not future.done()
    assert shell.acknowledge(1, base)
    completed = future.result(0)
    assert (completed.checkpoint_id, completed.facts.changes) == (1, 3)
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


def test_another_period_while_a_backlog_is_worked_off(pipeline: Pipeline) -> None:
    shell = Shell(pipeline, interval_ms=1000, min_pause_ms=0, interval_during_backlog_ms=60_000)
    shell.gateway.start_checkpoint_scheduler()
    shell.acknowledge_at_once(shell.write("taskowned/base"))
    source = OperatorID.for_uid("source")
    shell.gateway.set_is_processing_backlog(source, True)
    shell.time.pass_to(59_000)
    assert shell.triggered == 1, "the one that was due when the backlog began"
    shell.gateway.set_is_processing_backlog(source, False)
    shell.time.pass_to(64_500)
    assert shell.triggered == 6


def test_a_scheduler_without_a_period_or_after_the_end(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    with pytest.raises(ConfigError, match=r"execution\.checkpointing\.interval"):
        shell.gateway.start_checkpoint_scheduler()
    shell.gateway.shutdown(JobStatus.SUSPENDED)
    with pytest.raises(CheckpointError, match="shut down"):
        shell.gateway.start_checkpoint_scheduler()


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
    base = shell.write("taskowned/base")
    shell.checkpoint(base)
    shell.checkpoint(base)
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
    assert [each.checkpoint_id for each in reader.completed] == [1, 2]


def test_properties_of_a_commit_are_remembered(pipeline: Pipeline) -> None:
    shell = Shell(pipeline, externalized_checkpoint_retention="RETAIN_ON_CANCELLATION")
    completed = shell.checkpoint(shell.write("taskowned/base"))
    properties = completed.properties
    assert properties == shell.gateway.checkpoint_properties
    assert properties == CheckpointProperties(
        False, CheckpointType.CHECKPOINT, True, frozenset({JobStatus.FINISHED})
    )
