"""Whole jobs under one seed, and bugs planted on purpose: each kind has to be found."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from dstl_core.checkpoint.coordination.action_runner import ActionRunner
from dstl_core.checkpoint.coordination.coordinator import CheckpointCoordinator
from dstl_core.checkpoint.coordination.events import CommitFailed
from dstl_core.checkpoint.coordination.pending import (
    EndedCheckpoints,
    PendingCheckpoint,
    TaskAcknowledgeResult,
)
from dstl_core.checkpoint.store import completed_store
from dstl_core.checkpoint.store.cleaner import CheckpointsCleaner
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.recorded import RecordedCheckpoints
from dstl_core.checkpoint.store.retained import ReferencedFiles
from dstl_core.operators import keyed_snapshots
from dstl_core.operators.subtask import OperatorSubtask
from dstl_core.state.backends.changelog_backend import ChangelogKeyedStateBackend
from dstl_core.state.backends.state_changelog import ChangelogTruncateHelper
from dstl_core.state.restore.carry_over import CarriedState, carry_over
from dstl_core.state.restore.compaction import compact_log
from dstl_core.storage.commit_log import CommitLog
from tests.simulation.checkpoint_simulation import CheckpointSimulation, SimulationError

SEEDS_TO_FIND_A_BUG = 600
SOAK_SEEDS = 20_000


def test_a_slice_of_the_seeds() -> None:
    commits = restored = 0
    for seed in range(60):
        world = CheckpointSimulation(seed)
        world.run()
        commits += world.commits
        restored += world.restored
    assert commits > 180
    assert restored > 240


@pytest.mark.soak
def test_twenty_thousand_seeds(
    soak_seed: int,
    record_property: Callable[[str, object], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All of them, whatever the budget of the other long runs is."""
    # What half a million aborted checkpoints have to say would fill the memory.
    caplog.set_level(logging.CRITICAL, logger="dstl_core")
    commits = restored = 0
    started = time.monotonic()
    for seed in range(soak_seed, soak_seed + SOAK_SEEDS):
        world = CheckpointSimulation(seed)
        world.run()
        commits += world.commits
        restored += world.restored
    minutes = (time.monotonic() - started) / 60
    record_property("seeds_per_minute", round(SOAK_SEEDS / minutes))
    record_property("commits", commits)
    record_property("restored", restored)


def test_a_seed_is_one_run() -> None:
    def trace(seed: int) -> tuple[Any, ...]:
        world = CheckpointSimulation(seed)
        world.run()
        return world.commits, world.restored, world.clock.now_ms(), sorted(world.disk.files)

    assert [trace(seed) for seed in range(5)] == [trace(seed) for seed in range(5)]


# -------------------------------------------------------------------------------- planted bugs


def drops_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is cleaned from the dirty set before it is logged."""
    real = ChangelogKeyedStateBackend.value_updated

    def forgetful(self: Any, table: Any, key_group: int, scope: bytes) -> None:
        if len(self._dirty) < 2:
            real(self, table, key_group, scope)

    monkeypatch.setattr(ChangelogKeyedStateBackend, "value_updated", forgetful)


def cuts_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two subtasks takes over all of a log that belongs to both."""

    def careless(handles: Any, own: Any) -> CarriedState | None:
        carried = carry_over(handles, own)
        if carried is not None:
            return carried
        base = [each for handle in handles for each in getattr(handle, "materialized", ())]
        logs = [each for handle in handles for each in getattr(handle, "non_materialized", ())]
        return CarriedState(tuple(base), tuple(logs), 0) if logs else None

    monkeypatch.setattr(keyed_snapshots, "carry_over", careless)


def forgets_what_it_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first checkpoint of a run leaves out the logs of earlier runs."""
    real = ChangelogKeyedStateBackend.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **(options | {"restored_log": ()}))

    monkeypatch.setattr(ChangelogKeyedStateBackend, "__init__", init)


def truncates_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log goes as soon as it is materialized, whatever checkpoints are on their way."""

    def eager(self: Any) -> None:
        if self._materialized > self._done:
            self._truncate_log(self._materialized)
            self._done = self._materialized

    monkeypatch.setattr(ChangelogTruncateHelper, "_truncate", eager)


def deletes_shared_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retiring a checkpoint deletes all that it names. The last look saves the latest one only."""
    real = CheckpointsCleaner.retire
    monkeypatch.setattr(
        CheckpointsCleaner,
        "retire",
        lambda self, folder, needed, latest: real(self, folder, (), latest),
    )


def does_not_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before, and nobody looks at the latest checkpoint right before a file goes."""
    deletes_shared_files(monkeypatch)
    monkeypatch.setattr(ReferencedFiles, "latest", lambda self: ())


def brings_back_what_was_subsumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the end of a job discards makes room for checkpoints that are gone already."""
    real = RecordedCheckpoints._take

    def take(self: Any, record: Any) -> None:
        if record.type != "discard":
            real(self, record)
            return
        gone = set(record.payload["checkpoint_ids"])
        self._held = [each for each in self._held if each.checkpoint_id not in gone]

    monkeypatch.setattr(RecordedCheckpoints, "_take", take)


def does_not_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that lost its claim goes on committing."""

    def append(self: Any, owner: str, type_: Any, payload: Any) -> Any:
        self.refresh()
        record = self._next(owner, type_, payload)
        assert self._publish(record)
        return record

    monkeypatch.setattr(CommitLog, "append", append)
    monkeypatch.setattr(CommitLog, "check_claim", lambda self, owner: None)


def shares_ids_with_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that has seen its successor's claim counts on from the successor's ids."""
    monkeypatch.setattr(CompletedCheckpointStore, "check_known_claim", lambda self: None)


def discards_what_is_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """An acknowledgement that comes again counts as a stranger's, and nobody looks who needs what
    it names.
    """
    monkeypatch.setattr(ReferencedFiles, "latest", lambda self: ())
    real = CheckpointsCleaner.discard
    monkeypatch.setattr(
        CheckpointsCleaner,
        "discard",
        lambda self, states, needed, folder, **rest: real(self, states, (), folder, **rest),
    )
    monkeypatch.setattr(
        EndedCheckpoints,
        "result_of_late_acknowledgement",
        lambda self, checkpoint_id: TaskAcknowledgeResult.UNKNOWN,
    )


def completes_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is complete with the first acknowledgement."""
    monkeypatch.setattr(
        PendingCheckpoint,
        "is_fully_acknowledged",
        property(lambda self: bool(self._acknowledged)),
    )


def completes_what_old_tasks_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of old tasks completes after the new ones started from an earlier one."""
    real = CheckpointCoordinator._handle

    def handle(self: Any, event: Any) -> None:
        if type(event).__name__ == "TasksChanged":
            self._plan = event.plan
        else:
            real(self, event)

    monkeypatch.setattr(CheckpointCoordinator, "_handle", handle)


def completes_what_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an expired checkpoint holds is deleted, but late tasks may still complete it; and no
    commit looks whether its files are there.
    """
    monkeypatch.setattr(completed_store, "check_state_files", lambda *arguments: None)
    real = CheckpointCoordinator._can_expire
    expired: set[int] = set()

    def can_expire(self: Any, pending: Any) -> bool:
        if not real(self, pending) or self._now_ms < pending.deadline_ms:
            return False
        if id(pending) not in expired:
            expired.add(id(pending))
            states = copy.copy(pending).discard()
            self._discard(pending.checkpoint_id, states, pending, counts=False)
        return False

    monkeypatch.setattr(CheckpointCoordinator, "_can_expire", can_expire)


def takes_no_answer_for_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose answer got lost counts as failed, and nobody looks at the log again."""
    monkeypatch.setattr(ReferencedFiles, "latest", lambda self: ())
    real = ActionRunner.commit

    def hasty(self: Any, action: Any, facts: Any) -> Any:
        events = real(self, action, facts)
        if self.uncertainty is None:
            return events
        self._in_doubt = self.uncertainty = None
        folder = self._store.layout.checkpoint(action.metadata.checkpoint_id)
        self._store._cleaner.withdraw(folder)
        return [CommitFailed(action.metadata.checkpoint_id, "no answer")]

    monkeypatch.setattr(ActionRunner, "commit", hasty)


def lets_checkpoints_overtake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subtask takes an earlier checkpoint after a later one."""
    real = OperatorSubtask.start_snapshot

    def start(self: Any, checkpoint: Any, options: Any) -> Any:
        self._last_snapshot = -1
        return real(self, checkpoint, options)

    monkeypatch.setattr(OperatorSubtask, "start_snapshot", start)


def compacts_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are written together, the latest first."""
    monkeypatch.setattr(
        keyed_snapshots, "compact_log", lambda log, *others: compact_log(log[::-1], *others)
    )


# A seed shortly before the first one that finds the bug. The search goes on from there.
BUGS = {
    drops_an_update: 0,
    cuts_logs: 0,
    forgets_what_it_restored: 0,
    truncates_too_early: 10,
    deletes_shared_files: 0,
    does_not_look_again: 0,
    brings_back_what_was_subsumed: 0,
    does_not_fence: 0,
    shares_ids_with_its_successor: 0,
    discards_what_is_doubled: 0,
    completes_too_early: 0,
    completes_what_expired: 36,
    completes_what_old_tasks_began: 88,
    takes_no_answer_for_a_no: 348,
    lets_checkpoints_overtake: 202,
    compacts_in_another_order: 36,
}


@pytest.mark.parametrize(("plant", "first"), BUGS.items(), ids=[each.__name__ for each in BUGS])
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(SimulationError, match=r"^seed \d+: ") as failure:
        for seed in range(first, first + SEEDS_TO_FIND_A_BUG):
            CheckpointSimulation(seed).run()
    # It was found by what it broke, not by a mistake of the plant.
    assert not isinstance(failure.value.__cause__, AttributeError | TypeError | NameError)
