"""Subtasks by row and by column take the same checkpoints: a log on a base."""

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.errors import StorageError, UploadFailedError
from dstl_core.model.handle import ChangelogStateBackendHandle, KeyGroupsSavepointStateHandle
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.snapshot_type import CheckpointType, SavepointFormatType, SavepointType
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import JobLayout, Location
from tests.full_disk import full_disk
from tests.unit.job.subtasks import BY_ROW_AND_COLUMN, Subtask

FULL = CheckpointType.FULL_CHECKPOINT
ALL = KeyGroupRange(0, 1)


def restored(subtask):
    """What is in the handles, by the record-wise code."""
    root = Location.parse(subtask.folder)
    folder = JobLayout.of(root, JobID.for_name("j").hex).checkpoint(subtask.count)
    resolver = HandleResolver(open_file_io(root), folder, allow_roots=[root])
    state = restore_keyed_state(subtask.handles, ALL, 2, resolver, key_serializer=Types.STRING)
    return {key: value for group in ALL for _, (key, _, value) in state.rows(group)}


def files_of_the_log(subtask):
    return [path for path in subtask.folder.glob("*/dstl/*") if path.is_file()]


@BY_ROW_AND_COLUMN
def test_an_epoch_adds_a_log_and_a_full_checkpoint_makes_a_new_base(tmp_path, function, backend):
    subtask = Subtask(tmp_path, function, backend)
    handles = []
    for kind in (CheckpointType.CHECKPOINT, CheckpointType.CHECKPOINT, FULL, FULL):
        subtask.run(float(subtask.count), 7.0, kind=kind)
        [handle] = subtask.handles
        assert isinstance(handle, ChangelogStateBackendHandle)
        assert handle.checkpoint_id == subtask.count
        handles.append(
            (handle.materialization_id, len(handle.materialized), len(handle.non_materialized))
        )
        assert restored(subtask) == {"key 0": subtask.count - 1.0, "key 1": 7.0}
    assert handles == [(0, 0, 1), (0, 0, 2), (1, 1, 0), (2, 1, 0)]


@BY_ROW_AND_COLUMN
def test_a_savepoint_holds_all_state_and_takes_no_log(tmp_path, function, backend):
    subtask = Subtask(tmp_path, function, backend)
    subtask.run(1.0, 2.0)
    before = files_of_the_log(subtask)
    subtask.run(3.0, kind=SavepointType.savepoint(SavepointFormatType.CANONICAL))
    [handle] = subtask.handles
    assert isinstance(handle, KeyGroupsSavepointStateHandle)
    assert restored(subtask) == {"key 0": 3.0, "key 1": 2.0}
    assert files_of_the_log(subtask) == before


@BY_ROW_AND_COLUMN
def test_logs_of_earlier_epochs_are_written_together(tmp_path, function, backend):
    subtask = Subtask(tmp_path, function, backend)
    subtask.changelog_options = {"compaction_min_segments": 3}
    counts = []
    for _ in range(6):
        subtask.run(float(subtask.count), 7.0)
        counts.append(len(subtask.handles[0].non_materialized))
    assert counts == [1, 2, 3, 2, 3, 2]
    assert restored(subtask) == {"key 0": 5.0, "key 1": 7.0}


@BY_ROW_AND_COLUMN
def test_large_logs_of_earlier_epochs_are_not_written_again(
    tmp_path, function, backend, monkeypatch
):
    monkeypatch.setattr("dstl_core.state.restore.compaction.LARGE_SEGMENT_BYTES", 1)
    subtask = Subtask(tmp_path, function, backend)
    subtask.changelog_options = {"compaction_min_segments": 3}
    for _ in range(6):
        before = files_of_the_log(subtask)
        subtask.run(float(subtask.count), 7.0)
        assert len(files_of_the_log(subtask)) == len(before) + 1
    assert len(subtask.handles[0].non_materialized) == 6
    assert restored(subtask) == {"key 0": 5.0, "key 1": 7.0}


@BY_ROW_AND_COLUMN
def test_a_new_base_makes_the_log_of_its_epoch_superfluous(tmp_path, function, backend):
    subtask = Subtask(tmp_path, function, backend)
    subtask.changelog_options = {"preemptive_persist_threshold": 100}
    values = [float(each) for each in range(500)]
    subtask.run(*values, kind=FULL)
    assert files_of_the_log(subtask) == []
    assert restored(subtask) == {f"key {at}": value for at, value in enumerate(values)}


@BY_ROW_AND_COLUMN
def test_an_attempt_that_fails_leaves_the_log_of_the_others(tmp_path, function, backend):
    subtask = Subtask(tmp_path, function, backend)
    subtask.run(1.0, 2.0)
    before = files_of_the_log(subtask)
    with pytest.raises((StorageError, UploadFailedError)):
        subtask.run(*range(500), at_snapshot=full_disk(100))
    assert files_of_the_log(subtask) == before
    assert restored(subtask) == {"key 0": 1.0, "key 1": 2.0}
