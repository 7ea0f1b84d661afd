"""A commit looks whether every file that it names is there: what is committed can be restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.errors import CheckpointError, FencedError
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    CheckpointedStateScope,
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from dstl_core.storage.location import Location
from dstl_core.storage.written_files import WrittenFile
from tests.unit.checkpoint.pipeline import Pipeline, metadata

BASE = ByteStreamStateHandle("base", b"inline")


def absolute(pipeline: Pipeline) -> tuple[StreamStateHandle, ...]:
    return (pipeline.write("taskowned/file", 100),)


def relative(pipeline: Pipeline) -> tuple[StreamStateHandle, ...]:
    pipeline.write("chk-1/file", 100)
    return (RelativeFileStateHandle("file", 100),)


def merged(pipeline: Pipeline) -> tuple[StreamStateHandle, ...]:
    path = pipeline.write("taskowned/file", 100).path
    parts = [
        SegmentFileStateHandle(path, start, 50, CheckpointedStateScope.SHARED, str(start))
        for start in (0, 50)
    ]
    return tuple(parts)


def segment(pipeline: Pipeline) -> tuple[StreamStateHandle, ...]:
    # The handle of a segment counts bytes before compression.
    path = pipeline.write("dstl/file", 100).path
    return (BASE, FileStateHandle(path, 5_000))


Named = Callable[[Pipeline], tuple[StreamStateHandle, ...]]
KINDS = [absolute, relative, merged, segment]


def the_file(pipeline: Pipeline) -> Path:
    [path] = Path(pipeline.layout.root.path).rglob("file")
    return path


@pytest.mark.parametrize("damage", ["missing", "empty", "shorter", "longer"])
@pytest.mark.parametrize("named", KINDS)
def test_a_file_that_is_not_as_its_handle_says_refuses_the_commit(
    pipeline: Pipeline, named: Named, damage: str
) -> None:
    store = pipeline.owner()
    streams = named(pipeline)
    path = the_file(pipeline)
    raw = path.read_bytes()
    harmless = damage == "longer" and named in (merged, segment)
    harmless |= damage == "shorter" and named is segment  # its bytes may be compressed
    match damage:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "shorter":
            path.write_bytes(raw[:-1])
        case _:
            path.write_bytes(raw + b"x")
    if harmless:
        assert store.commit(metadata(1, *streams)) == store.latest
        return
    problem = "is missing" if damage == "missing" else r"has \d+ bytes instead of"
    with pytest.raises(
        CheckpointError,
        match=rf"^Checkpoint 1 was not committed, because it could not be restored: file:{path} "
        rf"{problem}.*; put the file back as it was, or start a pipeline of another name",
    ):
        store.commit(metadata(1, *streams))
    assert store.completed == []
    assert not any(name.endswith("_metadata") for name in pipeline.there())
    path.write_bytes(raw)
    assert store.commit(metadata(1, *streams)).checkpoint_id == 1


@pytest.mark.parametrize("size", [99, 101])
def test_a_segment_has_the_size_that_its_task_has_reported(pipeline: Pipeline, size: int) -> None:
    streams = segment(pipeline)
    path = the_file(pipeline)
    for name in ("owner", "another"):
        store = pipeline.owner(name)
        # The first owner hears of the file from the task, the other one reads it in the sidecar.
        if store.latest is None:
            store.learn([WrittenFile(f"file:{path}", 100, "ab" * 32)])
        else:
            store.load(store.latest)
        next_id = store.next_checkpoint_id()
        path.write_bytes(bytes(size))
        with pytest.raises(CheckpointError, match=rf"has {size} bytes instead of 100"):
            store.commit(metadata(next_id, *streams))
        path.write_bytes(bytes(100))
        sidecar = store.load(store.commit(metadata(next_id, *streams))).sidecar
        assert sidecar is not None
        assert list(sidecar.files.values()) == [WrittenFile(f"file:{path}", 100, "ab" * 32)]


def test_what_is_known_of_files_that_nothing_names_any_more_is_forgotten(
    pipeline: Pipeline,
) -> None:
    store = pipeline.owner()
    first, second = pipeline.write("dstl/first"), pipeline.write("dstl/second")
    store.learn(WrittenFile(each.path, 4, "ab" * 32) for each in (first, second))
    store.commit(metadata(1, BASE, first, second))
    store.commit(metadata(2, BASE, second))
    assert list(store._written) == [second.path]


def test_a_savepoint_is_looked_at_too(pipeline: Pipeline, tmp_path: Path) -> None:
    store = pipeline.owner()
    folder = Location.parse(tmp_path / "savepoint")
    snapshot = metadata(1, RelativeFileStateHandle("state", 4))
    with pytest.raises(CheckpointError, match=r"savepoint/state is missing"):
        store.commit_savepoint(snapshot, folder)
    pipeline.files.write_new(folder.child("state"), b"1234")
    store.commit_savepoint(snapshot, folder)
    assert load_metadata_file(pipeline.files, folder).metadata.checkpoint_id == 1


def test_all_missing_files_are_counted_and_some_are_named(pipeline: Pipeline) -> None:
    store = pipeline.owner()
    gone = [FileStateHandle(f"{pipeline.layout.changelog}/{at}", 4) for at in range(5)]
    with pytest.raises(CheckpointError, match=r"dstl/0 .*dstl/1 .*dstl/2 is missing and 2 more;"):
        store.commit(metadata(1, BASE, *gone))


def test_an_owner_that_was_overtaken_is_told_so_and_not_of_files(pipeline: Pipeline) -> None:
    old = pipeline.owner("old")
    mine = pipeline.write("dstl/mine")
    new = pipeline.owner("new")
    pipeline.files.delete(Location.parse(mine.path))  # as gc may, once the claim is lost
    with pytest.raises(FencedError):
        old.commit(metadata(1, BASE, mine))
    assert new.completed == []


def test_files_of_a_pipeline_that_was_moved_are_found_where_a_restore_finds_them(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    base = pipeline.write("taskowned/base")
    pipeline.owner().commit(metadata(1, base))
    (tmp_path / "base").rename(tmp_path / "moved")
    moved = Pipeline(tmp_path)
    moved.layout = type(moved.layout).of(Location.parse(tmp_path / "moved"), "ab" * 16)
    store = moved.owner("new")
    committed = store.commit(metadata(store.next_checkpoint_id(), base))
    assert store.latest == committed
    (tmp_path / "moved" / ("ab" * 16) / "taskowned" / "base").unlink()
    with pytest.raises(CheckpointError, match="base is missing"):
        store.commit(metadata(store.next_checkpoint_id(), base))
