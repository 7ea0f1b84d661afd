"""Commits and retention on real files: what a retained checkpoint names is never deleted."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from pathlib import Path

import pytest

from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.checkpoint.store.metadata_file import load_metadata_file, publish_metadata_file
from dstl_core.errors import (
    CheckpointError,
    CommitUncertainError,
    ConfigError,
    DstlError,
    FencedError,
    FormatError,
    StorageError,
)
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    CheckpointedStateScope,
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
)
from dstl_core.storage.commit_log import LogRecord
from dstl_core.storage.location import Location
from dstl_core.testing import ManualClock
from tests.uncertain_file_io import lose_the_answer
from tests.unit.checkpoint.pipeline import Pipeline, metadata, named_by, subtask


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


# ---------------------------------------------------------------------------------- commits


def numbered(number: int) -> EpochFacts:
    """Facts that tell one epoch from another."""
    return EpochFacts(changes=number)


def test_a_commit_is_the_latest_for_everybody(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    assert store.latest is None
    base = pipeline.write("taskowned/base")
    first = store.commit(metadata(store.next_checkpoint_id(), base), EpochFacts(attempt="monday"))
    second = store.commit(metadata(store.next_checkpoint_id(), base), EpochFacts(attempt="tuesday"))
    assert (first.checkpoint_id, first.parent) == (1, None)
    assert (second.checkpoint_id, second.parent) == (2, 1)
    assert second.facts.attempt == "tuesday"
    assert second.data_version == f"ck-2:{second.metadata_sha256}"
    other = pipeline.store()
    other.refresh()
    assert other.latest == second
    assert other.completed == [first, second]
    assert other.load(second).metadata.checkpoint_id == 2
    assert other.load(second).sidecar is not None


def test_without_a_claim_nothing_is_published(pipeline: Pipeline) -> None:
    with pytest.raises(CheckpointError, match="has not claimed the pipeline"):
        pipeline.store().commit(metadata(1, pipeline.write("taskowned/base")))
    assert pipeline.there() == {"taskowned/base"}


def test_a_fenced_owner_commits_nothing(pipeline: Pipeline) -> None:
    old = pipeline.owner("old")
    base = pipeline.write("taskowned/base")
    mine = old.next_checkpoint_id()
    new = pipeline.owner("new")
    assert new.next_checkpoint_id() != mine
    with pytest.raises(FencedError):
        old.commit(metadata(mine, base))
    committed = new.commit(metadata(new.next_checkpoint_id(), base))
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
        store.commit(metadata(used[-1], base))
        used.append(store.next_checkpoint_id())
    assert len(set(used)) == len(used)


def test_a_foreign_chk_folder_does_not_change_ids(pipeline: Pipeline) -> None:
    pipeline.write("chk-99999999999999999999/file")
    pipeline.write("chk-5000/file")
    assert pipeline.owner().next_checkpoint_id() < 10


def test_metadata_that_is_not_what_was_committed(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    committed = store.commit(metadata(1, base))
    folder = pipeline.layout.checkpoint(1)
    pipeline.files.delete(folder.child("_metadata"))
    pipeline.files.delete(folder.child("_dstl.json"))
    publish_metadata_file(pipeline.files, folder, metadata(9, base), {})
    with pytest.raises(CheckpointError, match="is not the committed one: expected sha256"):
        store.load(committed)


def test_a_failed_publish_uses_the_id_up_and_the_next_commit_goes_through(
    pipeline: Pipeline,
) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    mine = store.next_checkpoint_id()
    pipeline.files.after_publish = lose_the_answer
    with pytest.raises(StorageError, match="connection was reset"):
        store.commit(metadata(mine, base))
    assert store.next_checkpoint_id() == mine + 1
    assert store.commit(metadata(mine + 1, base)).parent is None


def lose_answers(pipeline: Pipeline, first: int, *, arrived: bool) -> None:
    """Loses the answers of all publishes from the given one on; 0 is the next one."""
    left = first

    def publish(done: bool) -> bool:
        nonlocal left
        pipeline.files.after_publish = publish
        left -= 1
        return done if left >= 0 else lose_the_answer(done)

    def refuse() -> None:
        pipeline.files.before_publish = refuse
        if left <= 0 and not arrived:
            raise StorageError("Cannot publish: the connection was refused.")

    pipeline.files.after_publish = publish
    pipeline.files.before_publish = refuse


def test_a_commit_record_whose_answer_got_lost_stands_once(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    # Sidecar and metadata are published, the record is too, but nobody hears of it.
    lose_answers(pipeline, 2, arrived=True)
    committed = store.commit(metadata(1, base), numbered(1))
    assert store.completed == [committed]
    assert len(pipeline.files.list_folder(pipeline.layout.commit_log)) == 2


def test_a_commit_whose_outcome_is_unknown_deletes_nothing(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    lose_answers(pipeline, 2, arrived=False)
    with pytest.raises(CommitUncertainError, match="Whether checkpoint 1 was recorded is unknown"):
        store.commit(metadata(1, base), numbered(1))
    assert {"taskowned/base", "chk-1/_metadata", "chk-1/_dstl.json"} == pipeline.there()
    pipeline.files.before_publish = pipeline.files.after_publish = None
    assert store.commit(metadata(1, base), numbered(1)).facts.changes == 1
    assert store.next_checkpoint_id() == 2


def late_record(pipeline: Pipeline) -> None:
    """The record of checkpoint 1 arrives after all, from a network that was slow."""
    metadata_file = load_metadata_file(pipeline.files, pipeline.layout.checkpoint(1))
    facts = {"metadata_bytes": metadata_file.size, "changes": 1}
    payload = {"checkpoint_id": 1, "parent": None, "metadata_sha256": metadata_file.sha256}
    record = LogRecord(2, "commit", "owner", 5, {**payload, "facts": facts})
    pipeline.files.publish_once(pipeline.layout.commit_log.child("2.json"), record.to_bytes())


@pytest.mark.parametrize("settled", ["by a retry", "by giving it up"])
def test_a_commit_that_arrives_late_stands(pipeline: Pipeline, settled: str) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    lose_answers(pipeline, 2, arrived=False)
    with pytest.raises(CommitUncertainError):
        store.commit(metadata(1, base), numbered(1))
    assert store.next_checkpoint_id() == 2
    pipeline.files.before_publish = pipeline.files.after_publish = None
    late_record(pipeline)
    # What the state names must stay, because the commit stands.
    store.discard((subtask(base),))
    if settled == "by a retry":
        assert store.commit(metadata(1, base), numbered(1)).facts.changes == 1
    else:
        store.settle()
    assert {"taskowned/base", "chk-1/_metadata"} <= pipeline.there()
    assert [each.facts.changes for each in store.completed] == [1]
    assert store.next_checkpoint_id() == 2


def test_a_commit_that_was_given_up_cannot_arrive_any_more(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    lose_answers(pipeline, 2, arrived=False)
    with pytest.raises(CommitUncertainError):
        store.commit(metadata(1, base), numbered(1))
    with pytest.raises(StorageError):
        store.settle()
    pipeline.files.before_publish = pipeline.files.after_publish = None
    metadata_file = load_metadata_file(pipeline.files, pipeline.layout.checkpoint(1))
    store.settle()
    assert pipeline.there() == {"taskowned/base"}
    publish_metadata_file(pipeline.files, metadata_file.folder, metadata_file.metadata, {})
    late_record(pipeline)
    store.refresh()
    assert store.completed == []
    assert store.commit(metadata(2, base)).parent is None


@pytest.mark.parametrize("number", [2, 3], ids=["same facts", "other facts"])
def test_a_record_of_the_same_id_is_not_taken_for_ones_own(pipeline: Pipeline, number: int) -> None:
    # One owner in two threads or processes: both work on checkpoint 1.
    one = pipeline.owner()
    other = pipeline.store()
    other.resume_claim("owner")
    base, mine = pipeline.write("taskowned/base"), pipeline.write("dstl/mine")
    committed = one.commit(metadata(1, base), numbered(2))
    for store in (one, other):
        with pytest.raises(DstlError):
            store.commit(metadata(1, base, mine), numbered(number))
        # What the refused one does now deletes nothing of the commit.
        assert not store.withdraw_metadata(metadata(1, base, mine), pipeline.layout.checkpoint(1))
    assert pipeline.store().completed == []
    for store in (one, other):
        store.refresh()
        assert store.completed == [committed]
        assert named_by(store, committed) == [Location.parse(base.path)]


def test_an_equal_checkpoint_with_other_facts_is_another_commit(pipeline: Pipeline) -> None:
    # Two epochs that changed nothing: their metadata is the same to the last byte.
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    store.commit(metadata(1, base), numbered(2))
    with pytest.raises(CheckpointError, match="another checkpoint has used the id 1"):
        store.commit(metadata(1, base), numbered(3))


def test_a_commit_that_is_in_doubt_is_not_the_answer_to_another_one(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    lose_answers(pipeline, 2, arrived=False)
    with pytest.raises(CommitUncertainError):
        store.commit(metadata(1, base), numbered(1))
    pipeline.files.before_publish = pipeline.files.after_publish = None
    late_record(pipeline)
    with pytest.raises(CheckpointError, match="another checkpoint has used the id 1"):
        store.commit(metadata(1, base), numbered(2))
    assert store.commit(metadata(1, base), numbered(1)).facts.changes == 1


def test_a_commit_behind_an_abort_of_its_id_is_refused(pipeline: Pipeline) -> None:
    # One process of an owner gives the id up, while another one is about to record it.
    one = pipeline.owner()
    other = pipeline.store()
    other.resume_claim("owner")
    base = pipeline.write("taskowned/base")

    def meanwhile() -> None:
        if pipeline.files.size(pipeline.layout.checkpoint(1).child("_metadata")) is None:
            pipeline.files.before_publish = meanwhile
        else:
            other.abort(1)

    pipeline.files.before_publish = meanwhile
    with pytest.raises(CheckpointError, match="another checkpoint has used the id 1"):
        one.commit(metadata(1, base))
    assert one.completed == []
    assert one.commit(metadata(one.next_checkpoint_id(), base)).checkpoint_id == 2


def test_facts_are_compared_as_they_are_read_back(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    lose_answers(pipeline, 2, arrived=True)
    facts = EpochFacts(kind="epoch", output_files=("b", "a"), watermarks={"u": -5}, seconds=0.25)
    committed = store.commit(metadata(1, base), facts)
    assert replace(committed.facts, metadata_bytes=None) == facts
    assert len(pipeline.files.list_folder(pipeline.layout.commit_log)) == 2


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
    store.commit(metadata(1, base, one, two))
    assert store.subsume() == []
    store.commit(metadata(2, base, two, three))
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
    store.commit(metadata(1, inside, RelativeFileStateHandle("own", 4)))
    store.commit(metadata(2, inside))
    assert store.subsume() == [1]
    assert pipeline.there() == {"chk-2/_metadata", "chk-2/_dstl.json", "chk-1/base"}
    store.commit(metadata(3, pipeline.write("taskowned/base")))
    assert store.subsume() == [1, 2]
    assert pipeline.there() == {"chk-3/_metadata", "chk-3/_dstl.json", "taskowned/base"}


def test_segments_of_merged_files_count_by_file(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    merged = pipeline.write("taskowned/merged", 100)

    def part(start: int) -> SegmentFileStateHandle:
        return SegmentFileStateHandle(
            merged.path, start, 10, CheckpointedStateScope.SHARED, f"{start}"
        )

    store.commit(metadata(1, part(0)))
    store.commit(metadata(2, part(50)))
    store.subsume()
    assert "taskowned/merged" in pipeline.there()


def test_files_outside_the_job_folder_are_nobodys_to_delete(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    outside = tmp_path / "savepoint"
    outside.mkdir()
    (outside / "state").write_bytes(b"1234")
    store = pipeline.owner()
    store.commit(metadata(1, FileStateHandle(f"file:{outside}/state", 4)))
    store.commit(metadata(2, ByteStreamStateHandle("h", b"")))
    assert store.subsume() == [1]
    store.discard((subtask(FileStateHandle(f"file:{outside}/state", 4)),))
    assert (outside / "state").exists()


def test_several_can_be_retained(pipeline: Pipeline) -> None:
    store = pipeline.owner(num_retained=2)
    segments = [pipeline.write(f"dstl/{number}") for number in range(5)]
    for number, segment in enumerate(segments, 1):
        store.commit(metadata(number, segment))
    assert store.subsume() == [1, 2, 3]
    assert {name for name in pipeline.there() if name.startswith("dstl")} == {"dstl/3", "dstl/4"}


def test_checkpoints_that_a_rewind_undid_take_no_place(pipeline: Pipeline) -> None:
    """So a job can go back as far as it was told, whatever it undid before."""
    store = pipeline.owner(num_retained=2)

    def commit(number: int, restored_from: int | None) -> list[int]:
        segment = pipeline.write(f"dstl/{number}")
        store.commit(metadata(number, segment), EpochFacts(restored_from=restored_from))
        return store.subsume()

    assert [commit(number, number - 1 or None) for number in (1, 2, 3)] == [[], [], [1]]
    assert commit(4, 2) == [3], "2 is what the next rewind needs"
    assert [each.checkpoint_id for each in store.retained] == [2, 4]
    assert [commit(5, 2), commit(6, 5), commit(7, 6)] == [[4], [2], [5]]
    assert {name for name in pipeline.there() if name.startswith("dstl")} == {"dstl/6", "dstl/7"}


def test_young_checkpoints_are_retained_whatever_their_number(pipeline: Pipeline) -> None:
    """Age counts from the latest commit, so a pipeline that rests loses nothing."""
    clock, hour = ManualClock(), 3_600_000
    store = pipeline.store(num_retained=2, retain_ms=3 * hour, clock=clock)
    store.claim("owner")

    def commit(number: int) -> list[int]:
        store.commit(metadata(number, pipeline.write(f"dstl/{number}")))
        return store.subsume()

    assert [commit(number) for number in (1, 2, 3)] == [[], [], []]
    clock.advance(2 * hour)
    assert commit(4) == []
    clock.advance(hour)
    assert commit(5) == [1, 2, 3], "three hours old"
    clock.advance(1_000 * hour)
    assert store.subsume() == []
    assert commit(6) == [4], "two are retained at any age"
    assert {name for name in pipeline.there() if name.startswith("dstl")} == {"dstl/5", "dstl/6"}


@pytest.mark.parametrize("damage", ["missing", "truncated", "exchanged"])
def test_without_the_retained_metadata_nothing_is_deleted(
    pipeline: Pipeline, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    store.commit(metadata(1, base))
    store.commit(metadata(2, base))
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
    store.commit(metadata(1, base, own))
    store.commit(metadata(2, base))
    path = Path(pipeline.layout.checkpoint(1).path, "_metadata")
    path.write_bytes(path.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        assert store.subsume() == []
    assert "chk-1 is left for gc" in caplog.text
    assert "dstl/own" in pipeline.there()


def test_half_retired_checkpoints_are_finished(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    base = pipeline.write("taskowned/base")
    pipeline.write("chk-1/own")
    store.commit(metadata(1, base, RelativeFileStateHandle("own", 4)))
    store.commit(metadata(2, base))
    pipeline.files.delete(pipeline.layout.checkpoint(1).child("_metadata"))
    assert store.subsume() == [1]
    assert not any(name.startswith("chk-1/") for name in pipeline.there())
    assert "taskowned/base" in pipeline.there()


def test_only_the_owner_retires(pipeline: Pipeline) -> None:
    old = pipeline.owner("old")
    base = pipeline.write("taskowned/base")
    for number in (1, 2):
        old.commit(metadata(number, base))
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
        old.commit(metadata(number, base))
    new = pipeline.owner("new")
    latest = new.commit(metadata(new.next_checkpoint_id(), base))
    assert new.subsume() == [1, 2]
    assert old.subsume() == []
    assert "taskowned/base" in pipeline.there()
    assert new.load(latest).metadata.operators


# ---------------------------------------------------------------------------------- discard


def test_discard_deletes_what_no_commit_names(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    base, own = pipeline.write("taskowned/base"), pipeline.write("dstl/own")
    store.commit(metadata(1, base))
    store.discard((subtask(base, own),))
    assert {"taskowned/base"} == {name for name in pipeline.there() if "chk" not in name}


def test_discard_leaves_what_any_commit_that_is_there_names(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    first, second = pipeline.write("taskowned/1"), pipeline.write("taskowned/2")
    store.commit(metadata(1, first))
    store.commit(metadata(2, second))
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
    old.commit(metadata(1, base))
    mine = old.next_checkpoint_id()
    pipeline.owner("new")
    refused = metadata(mine, base, pipeline.write("dstl/own"))
    with pytest.raises(FencedError):
        old.commit(refused)
    folder = pipeline.layout.checkpoint(mine)
    assert old.withdraw_metadata(refused, folder)
    [operator] = refused.operators
    old.discard(operator.subtasks, folder=folder, folder_goes=True)
    assert pipeline.there() == {"chk-1/_metadata", "chk-1/_dstl.json", "taskowned/base"}


# --------------------------------------------------------------------------------- at random


@pytest.mark.slow
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
                store.commit(metadata(checkpoint_id, *named), numbered(step))
                segments = list(named)
            case "abort":
                store.discard((subtask(*named),))
                store.abort(checkpoint_id)
            case "take over":
                store = pipeline.owner(f"{step}", num_retained=retained)
            case "subsume":
                store.subsume()
        for checkpoint in store.completed[-retained:]:
            for file in named_by(store, checkpoint):
                assert pipeline.files.size(file) == 4, (seed, step, file)
    store.subsume()
    completed = store.completed
    expected = {
        str(location.relative_to(pipeline.layout.root))
        for checkpoint in completed[-retained:]
        for location in named_by(store, checkpoint)
    }
    # Files of take-overs and aborts in chk folders stay for gc; those of commits are gone.
    assert expected <= pipeline.there()


@pytest.mark.parametrize("is_own_first", [True, False])
def test_two_checkpoints_of_one_id_do_not_hide_each_other(
    pipeline: Pipeline, tmp_path: Path, *, is_own_first: bool
) -> None:
    """One of them is a snapshot of another job that the pipeline has claimed."""
    store, others = pipeline.owner(num_retained=3), []
    if is_own_first:
        store.commit(metadata(1, pipeline.write("taskowned/own")))
    for name in ("one", "two"):
        job = Pipeline(tmp_path / name)
        snapshot = job.owner().commit(metadata(1, job.write("taskowned/base")))
        others.append(job.layout.checkpoint(1))
        store.record_restore(1, others[-1], snapshot.metadata_sha256, claim=True)
    if not is_own_first:
        pipeline.write("chk-1/of no commit")
    latest = store.commit(metadata(store.next_checkpoint_id(), pipeline.write("taskowned/last")))
    assert latest.checkpoint_id > 1
    assert store.discard_earlier() == []
    for folder in (*others, pipeline.layout.checkpoint(1)):
        assert list(pipeline.files.list_folder(folder)) == []
    assert store.latest == latest
    assert store.load(latest).metadata.checkpoint_id == latest.checkpoint_id
