"""Another process commits while this one deletes: what the latest checkpoint references stays.

On a local disk and on S3. The other process is a real one, told over pipes what to do and when.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.checkpoint.store.guard import DeletionGuard
from dstl_core.checkpoint.store.properties import (
    CheckpointProperties,
    CheckpointRetentionPolicy,
    JobStatus,
)
from dstl_core.clock import SystemClock
from dstl_core.errors import FencedError
from dstl_core.model.handle import FileStateHandle
from dstl_core.savepoint.gc import GarbageReport, collect_garbage
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.location import Location
from dstl_core.storage.walk import files_below
from tests.other_process import OtherProcess
from tests.s3_server import S3Server
from tests.unit.checkpoint.pipeline import Pipeline, metadata, subtask


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "s3":
        return Location.parse(request.getfixturevalue("bucket")).child("base")
    return Location.parse(tmp_path / "base")


@pytest.fixture
def files(root: Location, s3: S3Server) -> FileIO:
    return open_file_io(root, None if root.is_local else s3.storage_options)


@pytest.fixture
def mine(root: Location, files: FileIO) -> Pipeline:
    """The pipeline, as this process reaches it."""
    return Pipeline(root, files)


@pytest.fixture
def theirs(root: Location, other_processes: dict[str, OtherProcess]) -> Pipeline:
    """The same pipeline, as the other process reaches it."""
    return Pipeline(root, other_processes[root.scheme])  # type: ignore[arg-type]  # has its methods


class Meanwhile:
    """This process's files; something happens right before a call is answered, once."""

    def __init__(
        self, files: FileIO, when: Callable[[str, Location], bool], then: Callable[[], object]
    ) -> None:
        self._files, self._when, self._then = files, when, then
        self.happened = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._files, name)

        def call(location: Any, *arguments: object) -> Any:
            if not self.happened and self._when(name, location):
                self.happened = True
                self._then()
            return method(location, *arguments)

        return call


def state_file(pipeline: Pipeline, folder: str = "taskowned") -> FileStateHandle:
    return pipeline.write(f"{folder}/{uuid4()}")


def place(handle: FileStateHandle) -> Location:
    return Location.parse(handle.path)


def claimed(pipeline: Pipeline, owner: str, num_retained: int = 1) -> CompletedCheckpointStore:
    """A store whose claims tell the real time."""
    store = CompletedCheckpointStore(
        pipeline.files, pipeline.layout, SystemClock(), num_retained=num_retained
    )
    store.claim(owner)
    return store


def commit(store: CompletedCheckpointStore, *files: FileStateHandle) -> int:
    return store.commit(metadata(store.next_checkpoint_id(), *files)).checkpoint_id


def let_time_pass(pipeline: Pipeline) -> None:
    """What is there is older than all that comes: a store counts in seconds, a disk is told."""
    statuses = list(files_below(pipeline.files, pipeline.layout.root))
    if pipeline.layout.root.is_local:
        for file in statuses:
            os.utime(file.location.path, (1, 1))
        return
    last = max(each.modified_ms or 0 for each in statuses)
    probe = pipeline.layout.root.parent.child("probes")
    while True:
        pipeline.files.replace(probe.child("probe"), b"")
        [status] = pipeline.files.list_folder(probe)
        if (status.modified_ms or 0) > last:
            return


def collect(root: Location, files: FileIO, *, delete: bool = True) -> GarbageReport:
    return collect_garbage(root, delete=delete, older_than_ms=0, file_io=files)


def sizes(pipeline: Pipeline, store: CompletedCheckpointStore) -> list[int | None]:
    """The sizes of the files that the latest checkpoint names; None for one that is gone."""
    store.refresh()
    assert store.latest is not None
    [operator] = store.load(store.latest).metadata.operators
    named = [each for subtask in operator.subtasks for each in subtask.streams()]
    return [pipeline.files.size(place(each)) for each in named]  # type: ignore[arg-type]  # files


# ------------------------------------------------------------------------------------ gc


def test_gc_knows_what_was_committed_after_it_had_listed_the_files(
    root: Location, files: FileIO, theirs: Pipeline
) -> None:
    first = claimed(theirs, "first")
    base, log = state_file(theirs), state_file(theirs, "dstl")
    commit(first, base, log)
    let_time_pass(theirs)
    second = claimed(theirs, "second")

    def goes_on() -> None:
        commit(second, base, log, state_file(theirs, "dstl"))
        assert second.subsume() == [1], "the only metadata that gc had listed is gone"

    # The files are listed last of all in the walk, so this is the look that comes after it.
    looks: list[Location] = []

    def is_second_look(name: str, location: Location) -> bool:
        if name == "list_folder" and location == theirs.layout.root:
            looks.append(location)
        return len(looks) == 2

    meanwhile = Meanwhile(files, is_second_look, goes_on)
    report = collect(root, meanwhile)  # type: ignore[arg-type]  # has all methods
    assert meanwhile.happened
    assert report.garbage == [] and report.deleted == 0
    assert sizes(theirs, second) == [4, 4, 4]


def test_gc_keeps_what_was_committed_between_two_deletions(
    root: Location, files: FileIO, theirs: Pipeline
) -> None:
    first = claimed(theirs, "first")
    base = state_file(theirs)
    commit(first, base)
    unnamed = sorted((state_file(theirs) for _ in range(3)), key=lambda handle: handle.path)
    let_time_pass(theirs)
    second = claimed(theirs, "second")
    meanwhile = Meanwhile(
        files,
        lambda name, location: name == "delete" and location == place(unnamed[0]),
        lambda: commit(second, base, unnamed[1]),
    )
    report = collect(root, meanwhile)  # type: ignore[arg-type]  # has all methods
    assert meanwhile.happened
    assert report.kept == {"referenced by now": 1}
    assert {each.location for each in report.garbage} == {place(unnamed[0]), place(unnamed[2])}
    assert sizes(theirs, second) == [4, 4]
    assert theirs.files.size(place(unnamed[2])) is None


def test_a_second_gc_of_a_process_sees_what_came_since_the_first(
    root: Location, files: FileIO, theirs: Pipeline
) -> None:
    first = claimed(theirs, "first")
    commit(first, state_file(theirs))
    left = state_file(theirs)
    let_time_pass(theirs)
    second = claimed(theirs, "second")
    assert [each.location for each in collect(root, files, delete=False).garbage] == [place(left)]
    live = [state_file(theirs) for _ in range(4)]
    commit(second, *live)
    second.subsume()
    let_time_pass(theirs)
    third = claimed(theirs, "third")
    report = collect(root, files)
    assert [each.location for each in report.garbage] == [place(left)]
    assert sizes(theirs, third) == [4, 4, 4, 4]


def test_gc_keeps_what_the_owner_has_written_and_not_yet_committed(
    root: Location, files: FileIO, theirs: Pipeline
) -> None:
    first = claimed(theirs, "first")
    base, left = state_file(theirs), state_file(theirs)
    commit(first, base)
    let_time_pass(theirs)
    second = claimed(theirs, "second")
    persisted = state_file(theirs, "dstl")
    report = collect(root, files)
    assert [each.location for each in report.garbage] == [place(left)]
    assert report.kept == {"of a live claim": 1}
    commit(second, base, persisted)
    assert sizes(theirs, second) == [4, 4]


def test_an_owner_whose_clock_is_ahead_of_the_stores_loses_nothing(
    root: Location, files: FileIO, theirs: Pipeline
) -> None:
    class Ahead(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + 600_000

    owner = CompletedCheckpointStore(theirs.files, theirs.layout, Ahead())
    owner.claim("ahead")
    base, persisted = state_file(theirs), state_file(theirs)
    commit(owner, base)
    assert collect(root, files).kept == {"of a live claim": 1}
    commit(owner, base, persisted)
    assert sizes(theirs, owner) == [4, 4]


def test_gc_over_several_pipelines_knows_the_latest_of_each(
    root: Location, files: FileIO, theirs: Pipeline
) -> None:
    other = Pipeline(root, theirs.files, job_id="cd" * 16)
    stores = [claimed(each, "owner") for each in (theirs, other)]
    shared = state_file(theirs)
    commit(stores[0], state_file(theirs))
    commit(stores[1], state_file(other))
    let_time_pass(theirs)
    stores = [claimed(each, "next") for each in (theirs, other)]
    # A file in the folder of one pipeline that the latest checkpoint of the other references.
    commit(stores[1], shared)
    assert collect(root, files).garbage == []
    assert sizes(other, stores[1]) == [4]


# ---------------------------------------------------------------------- claims, the cleaner


def test_an_owner_that_was_overtaken_retires_nothing(mine: Pipeline, theirs: Pipeline) -> None:
    old = claimed(mine, "old")
    base = state_file(mine)
    commit(old, base)
    commit(old, base)
    new = claimed(theirs, "new")
    latest = commit(new, base)
    assert old.subsume() == []
    with pytest.raises(FencedError):
        commit(old, base)
    assert new.subsume() == [1, 2]
    old.refresh()
    assert old.latest is not None and old.latest.checkpoint_id == latest
    assert sizes(mine, old) == [4]


def test_an_owner_that_is_overtaken_after_the_metadata_is_gone_leaves_the_files(
    mine: Pipeline, theirs: Pipeline, files: FileIO
) -> None:
    base, again = state_file(mine), state_file(mine)

    def takes_over() -> None:
        """Goes on from the first checkpoint, which was read before it went."""
        commit(claimed(theirs, "new"), base, again)

    meanwhile = Meanwhile(
        files, lambda name, place: name == "delete" and place.name == "_dstl.json", takes_over
    )
    old = claimed(Pipeline(mine.layout.root.parent, meanwhile), "old")  # type: ignore[arg-type]
    commit(old, base, again)
    commit(old, base)
    old.subsume()
    assert meanwhile.happened
    assert sizes(mine, old) == [4, 4]


def test_a_commit_that_comes_to_light_keeps_the_files_that_are_discarded(
    mine: Pipeline, theirs: Pipeline, files: FileIO
) -> None:
    base, first, second = (state_file(mine) for _ in range(3))
    confirmed: list[CompletedCheckpointStore] = []

    def confirms() -> None:
        """Another process confirms what was persisted here."""
        store = Pipeline(theirs.layout.root.parent, theirs.files).store()
        store.resume_claim("mine")
        commit(store, base, first, second)
        confirmed.append(store)

    meanwhile = Meanwhile(
        files, lambda name, path: name == "delete" and path == place(first), confirms
    )
    store = claimed(Pipeline(mine.layout.root.parent, meanwhile), "mine")  # type: ignore[arg-type]
    commit(store, base)
    lost = state_file(mine)
    store.discard((subtask(base, lost, first, second),))
    assert meanwhile.happened
    assert mine.files.size(place(lost)) is None
    assert mine.files.size(place(second)) == 4


def test_a_snapshot_that_was_committed_after_all_is_not_withdrawn(
    mine: Pipeline, theirs: Pipeline
) -> None:
    old = claimed(mine, "mine")
    base = state_file(mine)
    commit(old, base)
    confirming = theirs.store()
    confirming.resume_claim("mine")
    confirmed = metadata(confirming.next_checkpoint_id(), base)
    confirming.commit(confirmed)
    folder = mine.layout.checkpoint(confirmed.checkpoint_id)
    assert old.withdraw_metadata(confirmed, folder) is False
    old.discard((subtask(base),), folder=folder, folder_goes=True)
    assert sizes(mine, confirming) == [4]


def test_the_output_of_an_epoch_that_was_committed_after_all_stays(
    mine: Pipeline, theirs: Pipeline
) -> None:
    old = claimed(mine, "mine")
    base = state_file(mine)
    next_id = old.next_checkpoint_id()
    name = f"part-00000-{uuid4().hex}.parquet"
    output = mine.layout.output(next_id).child(name)
    mine.files.write_new(output, b"rows")
    confirming = theirs.store()
    confirming.resume_claim("mine")
    confirming.commit(metadata(next_id, base), EpochFacts(output_files=(name,)))
    old.delete_output(next_id)
    assert mine.files.size(output) == 4
    assert DeletionGuard(mine.files, old.references.latest).delete(output) is False
    aborted = mine.layout.output(next_id + 1).child(f"part-00000-{uuid4().hex}.parquet")
    mine.files.write_new(aborted, b"rows")
    old.delete_output(next_id + 1)
    assert mine.files.size(aborted) is None


def test_the_end_of_a_job_leaves_what_the_kept_checkpoint_references(
    mine: Pipeline, theirs: Pipeline
) -> None:
    store = claimed(theirs, "theirs", num_retained=2)
    base, own = state_file(theirs), state_file(theirs)
    commit(store, base)
    goes = CheckpointProperties.for_checkpoint(
        CheckpointRetentionPolicy.NEVER_RETAIN_AFTER_TERMINATION
    )
    store.commit(metadata(store.next_checkpoint_id(), base, own), properties=goes)
    assert store.shutdown(JobStatus.FINISHED) == [2]
    seen = mine.store()
    assert sizes(mine, seen) == [4]
    assert mine.files.size(place(own)) is None
