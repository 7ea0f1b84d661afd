"""Commits and retention on real files: what a retained checkpoint names is never deleted."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from dstl_core.checkpoint.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.metadata_file import publish_metadata_file
from dstl_core.errors import (
    CheckpointError,
    ConfigError,
    FencedError,
    FormatError,
    StorageError,
)
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    CheckpointedStateScope,
    FileStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.storage.commit_log import CommitLog
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.location import JobLayout, Location
from tests.uncertain_file_io import FixedClock, UncertainFileIO, lose_the_answer

RANGE = KeyGroupRange(0, 0)


class Pipeline:
    """A job folder with real files, and any number of owners."""

    def __init__(self, path: Path) -> None:
        self.layout = JobLayout.of(Location.parse(path / "base"), "ab" * 16)
        self.files = UncertainFileIO(open_file_io(self.layout.root, fsync=False))

    def store(
        self, *, num_retained: int = 1, files: FileIO | None = None
    ) -> CompletedCheckpointStore:
        files = files or self.files
        log = CommitLog(files, self.layout.commit_log, FixedClock())
        return CompletedCheckpointStore(files, self.layout, log, num_retained=num_retained)

    def owner(self, name: str = "owner", *, num_retained: int = 1) -> CompletedCheckpointStore:
        store = self.store(num_retained=num_retained)
        store.claim(name)
        return store

    def write(self, name: str, size: int = 4) -> FileStateHandle:
        """A file below the job folder, and its absolute handle."""
        location = self.layout.root.child(name)
        self.files.write_new(location, bytes(size))
        return FileStateHandle(str(location), size)

    def there(self) -> set[str]:
        """Names of all files below the job folder, but for the commit log."""
        root = Path(self.layout.root.path)
        names = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        return {name for name in names if not name.startswith("_dstl/")}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


def subtask(*streams: StreamStateHandle) -> OperatorSubtaskState:
    """A base in the first stream, segments in the others."""
    base = KeyGroupsSavepointStateHandle(KeyGroupRangeOffsets(RANGE, (0,)), streams[0])
    segments = tuple((stream, 0) for stream in streams[1:])
    log = ChangelogStateHandleStream(segments, RANGE, 0, 0, "log")
    handle = ChangelogStateBackendHandle((base,), (log,), RANGE, 0, 0, 0, "id")
    return OperatorSubtaskState(0, managed_keyed_state=handle)


def metadata(checkpoint_id: int, *streams: StreamStateHandle) -> CheckpointMetadata:
    operator = OperatorState(OperatorID.for_uid("u"), 1, 1, (subtask(*streams),), uid="u")
    return CheckpointMetadata(3, checkpoint_id, (operator,))


# ---------------------------------------------------------------------------------- commits


def test_a_commit_is_the_latest_for_everybody(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    assert store.latest is None
    base = pipeline.write("taskowned/base")
    first = store.commit(metadata(store.next_checkpoint_id(), base), {"input_id": "monday"})
    second = store.commit(metadata(store.next_checkpoint_id(), base), {"input_id": "tuesday"})
    assert (first.checkpoint_id, first.parent) == (1, None)
    assert (second.checkpoint_id, second.parent) == (2, 1)
    assert second.facts["input_id"] == "tuesday"
    assert second.data_version == f"ck-2:{second.metadata_sha256}"
    other = pipeline.store()
    other.refresh()
    assert other.latest == second
    assert other.completed == [first, second]
    assert other.load(second).metadata.checkpoint_id == 2
    assert other.load(second).sidecar is not None


def test_without_a_claim_nothing_is_published(pipeline: Pipeline) -> None:
    with pytest.raises(CheckpointError, match="Nothing was claimed"):
        pipeline.store().commit(metadata(1, pipeline.write("taskowned/base")), {})
    assert pipeline.there() == {"taskowned/base"}


def test_a_fenced_owner_commits_nothing(pipeline: Pipeline) -> None:
    old = pipeline.owner("old")
    base = pipeline.write("taskowned/base")
    mine = old.next_checkpoint_id()
    new = pipeline.owner("new")
    assert new.next_checkpoint_id() != mine
    with pytest.raises(FencedError):
        old.commit(metadata(mine, base), {})
    committed = new.commit(metadata(new.next_checkpoint_id(), base), {})
    old.refresh()
    assert old.completed == [committed]
    with pytest.raises(FencedError):
        old.check_claim()
    with pytest.raises(FencedError):
        old.abort(mine)


def test_an_aborted_id_is_not_used_again(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    first = store.next_checkpoint_id()
    store.abort(first)
    assert store.next_checkpoint_id() == first + 1
    assert store.completed == []


def test_owners_never_share_a_checkpoint_id(pipeline: Pipeline) -> None:
    base = pipeline.write("taskowned/base")
    used: list[int] = []
    for name in ("a", "b", "c"):
        store = pipeline.owner(name)
        # Each leaves one in flight, commits one, and leaves one in flight again.
        used.append(store.next_checkpoint_id())
        store.abort(used[-1])
        used.append(store.next_checkpoint_id())
        store.commit(metadata(used[-1], base), {})
        used.append(store.next_checkpoint_id())
    assert len(set(used)) == len(used)


def test_a_foreign_chk_folder_does_not_change_ids(pipeline: Pipeline) -> None:
    pipeline.write("chk-99999999999999999999/file")
    pipeline.write("chk-5000/file")
    assert pipeline.owner().next_checkpoint_id() < 10


def test_metadata_that_is_not_what_was_committed(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    committed = store.commit(metadata(1, base), {})
    folder = pipeline.layout.checkpoint(1)
    pipeline.files.delete(folder.child("_metadata"))
    pipeline.files.delete(folder.child("_dstl.json"))
    publish_metadata_file(pipeline.files, folder, metadata(9, base), {})
    with pytest.raises(CheckpointError, match="is not what was committed: expected sha256"):
        store.load(committed)


def test_a_failed_publish_uses_the_id_up_and_the_next_commit_goes_through(
    pipeline: Pipeline,
) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    mine = store.next_checkpoint_id()
    pipeline.files.after_publish = lose_the_answer
    with pytest.raises(StorageError, match="connection was reset"):
        store.commit(metadata(mine, base), {})
    assert store.next_checkpoint_id() == mine + 1
    assert store.commit(metadata(mine + 1, base), {}).parent is None


def test_a_commit_record_whose_answer_got_lost_is_seen_after_a_refresh(
    pipeline: Pipeline,
) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")

    def let_two_pass(done: bool) -> bool:
        def let_one_pass(done: bool) -> bool:
            pipeline.files.after_publish = lose_the_answer
            return done

        pipeline.files.after_publish = let_one_pass
        return done

    # Sidecar and metadata are published, the record is too, but nobody hears of it.
    pipeline.files.after_publish = let_two_pass
    with pytest.raises(StorageError, match="connection was reset"):
        store.commit(metadata(1, base), {"n": 1})
    # The driver gives up: what the state names must stay, because the commit stands.
    store.discard((subtask(base),))
    assert "taskowned/base" in pipeline.there()
    store.check_claim()
    assert [each.facts["n"] for each in store.completed] == [1]
    assert store.next_checkpoint_id() == 2


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"checkpoint_id": 1, "parent": None, "metadata_sha256": "x"},
        {"checkpoint_id": "x", "parent": None, "metadata_sha256": "x", "facts": {}},
        {"checkpoint_id": 1, "parent": [], "metadata_sha256": "x", "facts": {}},
        {"checkpoint_id": 1, "parent": None, "metadata_sha256": "x", "facts": 5},
        {"checkpoint_id": 1e400, "parent": None, "metadata_sha256": "x", "facts": {}},
    ],
)
def test_damaged_commit_records_are_format_errors(
    pipeline: Pipeline, payload: dict[str, object]
) -> None:
    pipeline.owner()
    raw = (
        '{"version": 1, "number": 2, "type": "commit", "owner": "owner", "at_ms": 5, "payload": '
        + str(payload).replace("'", '"').replace("None", "null").replace("inf", "1e400")
        + "}"
    )
    pipeline.files.write_new(pipeline.layout.commit_log.child("2.json"), raw.encode())
    store = pipeline.store()
    store.refresh()
    with pytest.raises(FormatError, match=r"Commit record 2 is damaged"):
        _ = store.completed


def test_at_least_one_is_retained(pipeline: Pipeline) -> None:
    with pytest.raises(ConfigError, match="At least one checkpoint must be retained, got 0"):
        pipeline.store(num_retained=0)


# -------------------------------------------------------------------------------- retention


def test_old_checkpoints_go_with_the_files_that_only_they_name(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    base, one = pipeline.write("taskowned/base"), pipeline.write("dstl/one")
    two, three = pipeline.write("dstl/two"), pipeline.write("dstl/three")
    store.commit(metadata(1, base, one, two), {})
    assert store.subsume() == []
    store.commit(metadata(2, base, two, three), {})
    assert store.subsume() == [1]
    assert pipeline.there() == {
        *("chk-2/_metadata", "chk-2/_dstl.json"),
        *("taskowned/base", "dstl/two", "dstl/three"),
    }
    assert store.subsume() == []
    assert [each.checkpoint_id for each in store.completed] == [1, 2]


def test_files_of_the_old_folder_that_a_newer_one_names_stay(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    inside = pipeline.write("chk-1/base")
    pipeline.write("chk-1/own")
    store.commit(metadata(1, inside, RelativeFileStateHandle("own", 4)), {})
    store.commit(metadata(2, inside), {})
    assert store.subsume() == [1]
    assert pipeline.there() == {"chk-2/_metadata", "chk-2/_dstl.json", "chk-1/base"}
    store.commit(metadata(3, pipeline.write("taskowned/base")), {})
    assert store.subsume() == [1, 2]
    assert pipeline.there() == {"chk-3/_metadata", "chk-3/_dstl.json", "taskowned/base"}


def test_segments_of_merged_files_count_by_file(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    merged = pipeline.write("taskowned/merged", 100)

    def part(start: int) -> SegmentFileStateHandle:
        return SegmentFileStateHandle(
            merged.path, start, 10, CheckpointedStateScope.SHARED, f"{start}"
        )

    store.commit(metadata(1, part(0)), {})
    store.commit(metadata(2, part(50)), {})
    store.subsume()
    assert "taskowned/merged" in pipeline.there()


def test_files_outside_the_job_folder_are_nobodys_to_delete(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    outside = tmp_path / "savepoint"
    outside.mkdir()
    (outside / "state").write_bytes(b"1234")
    store = pipeline.owner()
    store.commit(metadata(1, FileStateHandle(f"file:{outside}/state", 4)), {})
    store.commit(metadata(2, ByteStreamStateHandle("h", b"")), {})
    assert store.subsume() == [1]
    store.discard((subtask(FileStateHandle(f"file:{outside}/state", 4)),))
    assert (outside / "state").exists()


def test_several_can_be_retained(pipeline: Pipeline) -> None:
    store = pipeline.owner(num_retained=2)
    segments = [pipeline.write(f"dstl/{number}") for number in range(5)]
    for number, segment in enumerate(segments, 1):
        store.commit(metadata(number, segment), {})
    assert store.subsume() == [1, 2, 3]
    assert {name for name in pipeline.there() if name.startswith("dstl")} == {"dstl/3", "dstl/4"}


@pytest.mark.parametrize("damage", ["missing", "truncated", "exchanged"])
def test_without_the_retained_metadata_nothing_is_deleted(
    pipeline: Pipeline, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    store.commit(metadata(1, base), {})
    store.commit(metadata(2, base), {})
    path = Path(pipeline.layout.checkpoint(2).path, "_metadata")
    raw = path.read_bytes()
    path.unlink()
    if damage == "truncated":
        path.write_bytes(raw[:-1])
    elif damage == "exchanged":
        path.write_bytes(Path(pipeline.layout.checkpoint(1).path, "_metadata").read_bytes())
    before = pipeline.there()
    with caplog.at_level(logging.WARNING):
        assert store.subsume() == []
        store.discard((subtask(pipeline.write("dstl/aborted")),))
    assert pipeline.there() >= before
    assert "no checkpoint was retired" in caplog.text


def test_old_metadata_that_cannot_be_read_is_left_for_gc(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    store = pipeline.owner()
    base, own = pipeline.write("taskowned/base"), pipeline.write("dstl/own")
    store.commit(metadata(1, base, own), {})
    store.commit(metadata(2, base), {})
    path = Path(pipeline.layout.checkpoint(1).path, "_metadata")
    path.write_bytes(path.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        assert store.subsume() == []
    assert "checkpoint 1 is left for gc" in caplog.text
    assert "dstl/own" in pipeline.there()


def test_half_retired_checkpoints_are_finished(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    pipeline.write("chk-1/own")
    store.commit(metadata(1, base, RelativeFileStateHandle("own", 4)), {})
    store.commit(metadata(2, base), {})
    pipeline.files.delete(pipeline.layout.checkpoint(1).child("_metadata"))
    assert store.subsume() == [1]
    assert not any(name.startswith("chk-1/") for name in pipeline.there())
    assert "taskowned/base" in pipeline.there()


def test_only_the_owner_retires(pipeline: Pipeline) -> None:
    old = pipeline.owner("old")
    base = pipeline.write("taskowned/base")
    for number in (1, 2):
        old.commit(metadata(number, base), {})
    reader = pipeline.store()
    reader.refresh()
    assert reader.subsume() == []
    new = pipeline.owner("new")
    assert old.subsume() == []
    assert new.subsume() == [1]


def test_an_owner_that_was_overtaken_deletes_nothing_of_its_successor(pipeline: Pipeline) -> None:
    # The old owner has committed and is about to retire; the new one committed and retired.
    old = pipeline.owner("old")
    base = pipeline.write("taskowned/base")
    for number in (1, 2):
        old.commit(metadata(number, base), {})
    new = pipeline.owner("new")
    latest = new.commit(metadata(new.next_checkpoint_id(), base), {})
    assert new.subsume() == [1, 2]
    assert old.subsume() == []
    assert "taskowned/base" in pipeline.there()
    assert new.load(latest).metadata.operators


# ---------------------------------------------------------------------------------- discard


def test_discard_deletes_what_no_commit_names(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    base, own = pipeline.write("taskowned/base"), pipeline.write("dstl/own")
    store.commit(metadata(1, base), {})
    store.discard((subtask(base, own),))
    assert {"taskowned/base"} == {name for name in pipeline.there() if "chk" not in name}


def test_discard_leaves_what_any_commit_that_is_there_names(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    first, second = pipeline.write("taskowned/1"), pipeline.write("taskowned/2")
    store.commit(metadata(1, first), {})
    store.commit(metadata(2, second), {})
    store.discard((subtask(first, second),))
    assert {"taskowned/1", "taskowned/2"} <= pipeline.there()


def test_discard_of_a_handle_that_is_no_path_is_a_warning(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    store = pipeline.owner()
    own = pipeline.write("dstl/own")
    bad = (FileStateHandle("file:/a\0", 1), RelativeFileStateHandle("../../x", 1))
    with caplog.at_level(logging.WARNING):
        store.discard((subtask(*bad, own),))
    assert pipeline.there() == set()
    assert caplog.text.count("could not discard a file") == 2


def test_withdraw_removes_a_refused_checkpoint_and_nothing_else(pipeline: Pipeline) -> None:
    old = pipeline.owner("old")
    base = pipeline.write("taskowned/base")
    old.commit(metadata(1, base), {})
    mine = old.next_checkpoint_id()
    pipeline.owner("new")
    refused = metadata(mine, base, pipeline.write("dstl/own"))
    with pytest.raises(FencedError):
        old.commit(refused, {})
    old.withdraw(refused)
    assert pipeline.there() == {"chk-1/_metadata", "chk-1/_dstl.json", "taskowned/base"}


# --------------------------------------------------------------------------------- at random


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_never_lose_a_named_file(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    pipeline = Pipeline(tmp_path)
    retained = rng.randint(1, 3)
    store = pipeline.owner("0", num_retained=retained)
    segments: list[FileStateHandle] = []
    for step in range(40):
        checkpoint_id = store.next_checkpoint_id()
        folder = rng.choice(("taskowned", "dstl", "shared", f"chk-{checkpoint_id}"))
        new = pipeline.write(f"{folder}/{step}")
        named = [new, *rng.sample(segments, rng.randint(0, min(3, len(segments))))]
        match rng.choice(("commit", "commit", "commit", "abort", "take over", "subsume")):
            case "commit":
                store.commit(metadata(checkpoint_id, *named), {"step": step})
                segments = list(named)
            case "abort":
                store.discard((subtask(*named),))
                store.abort(checkpoint_id)
            case "take over":
                store = pipeline.owner(f"{step}", num_retained=retained)
            case "subsume":
                store.subsume()
        for checkpoint in store.completed[-retained:]:
            for file in store._named_files(store.load(checkpoint)):
                assert pipeline.files.size(file) == 4, (seed, step, file)
    store.subsume()
    completed = store.completed
    expected = {
        str(location.relative_to(pipeline.layout.root))
        for checkpoint in completed[-retained:]
        for location in store._named_files(store.load(checkpoint))
    }
    # Files of take-overs and aborts in chk folders stay for gc; those of commits are gone.
    assert expected <= pipeline.there()
