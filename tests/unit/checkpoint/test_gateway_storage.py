"""The shell on storage that fails, lies or belongs to somebody else by now."""

from __future__ import annotations

import pytest

from dstl_core.checkpoint.coordination.events import DeclineCheckpoint
from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.errors import (
    FencedError,
    StorageError,
)
from tests.uncertain_file_io import lose_the_answer
from tests.unit.checkpoint.pipeline import Pipeline
from tests.unit.checkpoint.shell import DECLINED, Shell, error_of

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
    assert "The folder of checkpoint 1 already holds a checkpoint" in str(error)
    shell.gateway.trigger_checkpoint()
    assert shell.triggered == 2
