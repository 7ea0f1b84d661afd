"""Savepoints of the shell, what it restores, and the hooks and coordinators that take part."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core.checkpoint.coordination.events import DeclineCheckpoint
from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.coordination.pending import CheckpointPlan, OperatorPlan
from dstl_core.checkpoint.store.checkpoint_storage import FileSystemCheckpointStorage
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.clock import SystemClock
from dstl_core.config import CheckpointConfig
from dstl_core.errors import (
    CheckpointError,
    ConfigError,
    DstlError,
    NonRestoredStateError,
    RestoreError,
)
from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.handle import RelativeFileStateHandle
from dstl_core.model.ids import OperatorID
from dstl_core.model.snapshot_type import (
    CheckpointType,
    SavepointType,
)
from dstl_core.storage.location import Location
from tests.unit.checkpoint.pipeline import Pipeline, subtask
from tests.unit.checkpoint.shell import DECLINED, ID, JOB, PLAN, Shell, error_of

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


def test_the_configured_folder_of_savepoints(pipeline: Pipeline, tmp_path: Path) -> None:
    folder = str(tmp_path / "configured")
    shell = Shell(pipeline, has_savepoint_dir=False, savepoint_dir=folder)
    future = shell.gateway.trigger_savepoint()
    shell.acknowledge(shell.triggered, shell.write("taskowned/base"))
    location = future.result(0).location
    assert location is not None
    assert Path(Location.parse(location).path).parent == Path(folder)


# ------------------------------------------------------------------------------------ restore


def test_the_configured_snapshot_is_restored_in_the_configured_mode(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    source = savepoint_of_another_job(tmp_path)
    folder = Path(Location.parse(source).path)
    configured = {
        "execution.state-recovery.path": source,
        "execution.state-recovery.claim-mode": "CLAIM",
    }
    shell = Shell(pipeline, **configured)
    assert shell.gateway.restore_savepoint().checkpoint.location == source
    shell.checkpoint(shell.write("taskowned/base"))
    assert not folder.exists()  # claimed, and subsumed
    with pytest.raises(
        ConfigError, match=r"No snapshot is given .* execution\.state-recovery\.path"
    ):
        Shell(Pipeline(tmp_path / "none")).gateway.restore_savepoint()


def test_the_configuration_may_leave_state_out(pipeline: Pipeline, tmp_path: Path) -> None:
    source = savepoint_of_another_job(tmp_path)
    other = CheckpointPlan.of_operators(OperatorPlan(OperatorID.for_uid("v"), "v", 1, 1))
    left_out = Shell(pipeline, plan=other, ignore_unclaimed_state=True)
    assert left_out.gateway.restore_savepoint(source).checkpoint.location == source
    strict = Shell(Pipeline(tmp_path / "strict"), plan=other, ignore_unclaimed_state=True)
    with pytest.raises(NonRestoredStateError):
        strict.gateway.restore_savepoint(source, allow_non_restored_state=False)


def test_the_store_of_a_configuration(tmp_path: Path) -> None:
    config = CheckpointConfig.of(checkpoint_dir=str(tmp_path), num_retained=2)
    store = CompletedCheckpointStore.from_config(JOB, config, SystemClock())
    assert Path(store.layout.root.path) == tmp_path / JOB.hex
    store.claim("owner")
    for number in (1, 2, 3):
        store.commit(CheckpointMetadata(3, number, ()))
    assert [each.checkpoint_id for each in store.retained] == [2, 3]
    with pytest.raises(ConfigError, match=r"set execution\.checkpointing\.dir"):
        CompletedCheckpointStore.from_config(JOB, CheckpointConfig.of(), SystemClock())


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


@pytest.mark.parametrize("missing", ["hook", "coordinator"])
def test_a_participant_that_only_the_plan_knows_fails_the_checkpoint(
    pipeline: Pipeline, missing: str
) -> None:
    shell, _, _ = with_participants(pipeline, "first")
    runner = shell.gateway._runner
    (runner.hooks if missing == "hook" else runner.coordinators).clear()
    error = error_of(shell.gateway.trigger_checkpoint())
    assert error.context["reason"] is CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE
    assert "which the gateway does not have; call add_" in str(error)


def test_a_request_of_a_former_owner_names_its_reason(pipeline: Pipeline) -> None:
    shell = Shell(pipeline)
    Shell(pipeline, owner="next")
    shell.gateway.trigger_checkpoint()
    future = shell.gateway.trigger_checkpoint()
    first = shell.gateway.trigger_checkpoint()
    shell.acknowledge(shell.triggered, shell.write("taskowned/base"))
    for ended in (future, first):
        assert isinstance(error_of(ended).context["reason"], CheckpointFailureReason)


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
