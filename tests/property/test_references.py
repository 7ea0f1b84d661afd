"""Whatever way a path is written: a file that the latest checkpoint references is never deleted.

By random spellings of the handles of real files. Beside each of them lies a file that nothing
references, so that a user of the references that keeps everything fails as well.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dstl_core.checkpoint.store import completed_store
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.model.handle import FileStateHandle, RelativeFileStateHandle, StreamStateHandle
from dstl_core.model.ids import JobID
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.storage.file_io import FileStatus
from dstl_core.storage.location import Location
from dstl_core.testing import MemoryFileIO
from tests.examples import examples
from tests.unit.checkpoint.pipeline import Pipeline, metadata

JOB_ID = JobID.for_name("spelled").hex
FOLDERS = ("taskowned", "dstl", "shared")

Spelling = Callable[[Location, Location, random.Random], StreamStateHandle]
"""Makes a handle of a file: its place, the root of the pipeline, where to take chance from."""


def absolute(path: str) -> FileStateHandle:
    return FileStateHandle(path, 4)


def with_noise(file: Location, rng: random.Random) -> str:
    """The path, with parts in between that say nothing."""
    noise = ("/", "//", "/./", "///", "/x/../")
    path = "".join(f"{rng.choice(noise)}{part}" for part in file.path.split("/")[1:])
    return path + rng.choice(("", "/"))


def plain(file: Location, root: Location, rng: random.Random) -> FileStateHandle:
    return absolute(f"/{with_noise(file, rng).lstrip('/')}")


def as_url(file: Location, root: Location, rng: random.Random) -> FileStateHandle:
    return absolute(rng.choice(("file:", "file://", "FILE:", "File:///")) + with_noise(file, rng))


def beside_metadata(file: Location, root: Location, rng: random.Random) -> RelativeFileStateHandle:
    return RelativeFileStateHandle(f"../{file.relative_to(root)}", 4)


def by_linked_base(file: Location, root: Location, rng: random.Random) -> FileStateHandle:
    link = Path(root.parent.path).with_name("linked")
    if not link.is_symlink():
        link.symlink_to(root.parent.path)
    return absolute(f"file:{link}/{file.relative_to(root.parent)}")


def by_linked_folder(file: Location, root: Location, rng: random.Random) -> FileStateHandle:
    link = Path(root.path, f"link-{rng.randrange(1 << 40)}")
    link.symlink_to(file.parent.path)
    return absolute(f"file:{link}/{file.name}")


def by_link_of_another_name(file: Location, root: Location, rng: random.Random) -> FileStateHandle:
    link = Path(root.path, f"alias-{rng.randrange(1 << 40)}")
    link.symlink_to(file.path)
    return absolute(str(link))


def of_the_same_inode(file: Location, root: Location, rng: random.Random) -> FileStateHandle:
    other = Path(root.path, f"same-{rng.randrange(1 << 40)}")
    other.hardlink_to(file.path)
    return absolute(str(other))


def where_it_lay_before(file: Location, root: Location, rng: random.Random) -> FileStateHandle:
    base = rng.choice(("hdfs://host:1/old", "s3a://bucket/old", "file:/old/base", "/mnt/x"))
    return absolute(f"{base}/{root.name}/{file.relative_to(root)}")


def of_another_scheme(file: Location, root: Location, rng: random.Random) -> FileStateHandle:
    scheme = rng.choice(("s3", "s3a", "S3", "s3p", "S3A"))
    return absolute(f"{scheme}:/{with_noise(file, rng)}")


LOCAL: list[Spelling] = [
    plain,
    as_url,
    beside_metadata,
    by_linked_base,
    by_linked_folder,
    by_link_of_another_name,
    of_the_same_inode,
    where_it_lay_before,
]
STORE: list[Spelling] = [of_another_scheme, beside_metadata, where_it_lay_before]


class Aged:
    """Files that are all older than the records of the log."""

    def __init__(self, files: MemoryFileIO) -> None:
        self._files = files

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)

    def list_folder(self, location: Location) -> list[FileStatus]:
        age = 2 if location.name == "log" else 1
        return [replace(each, modified_ms=age) for each in self._files.list_folder(location)]


class Spelled:
    """A pipeline whose only checkpoint references files under random spellings."""

    def __init__(self, pipeline: Pipeline, spellings: list[Spelling], seed: int) -> None:
        rng = random.Random(seed)
        self.pipeline = pipeline
        self.live: list[Location] = []
        self.left: list[Location] = []
        for files in (self.live, self.left):
            for _ in spellings:
                name = str(UUID(int=rng.getrandbits(128)))
                written = pipeline.write(f"{rng.choice(FOLDERS)}/{name}")
                files.append(Location.parse(written.path))
        root = pipeline.layout.root
        self.named = [
            spelling(file, root, rng) for spelling, file in zip(spellings, self.live, strict=True)
        ]


def spellings(of: list[Spelling]) -> st.SearchStrategy[list[Spelling]]:
    return st.lists(st.sampled_from(of), min_size=1, max_size=4)


def commit(owner: CompletedCheckpointStore, files: list[StreamStateHandle]) -> CompletedCheckpoint:
    """Commits as somebody who does not look whether dstl could open the files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(completed_store, "check_state_files", lambda *arguments: None)
        return owner.commit(metadata(owner.next_checkpoint_id(), *files))


def check_all_users(spelled: Spelled) -> None:
    pipeline, live, left = spelled.pipeline, spelled.live, spelled.left
    owner = pipeline.owner()
    commit(owner, spelled.named)
    referenced = owner.references.all()
    assert [each for each in live if each not in referenced] == []
    assert [each for each in left if each in referenced] == []
    report = collect_garbage(
        pipeline.layout.root.parent,
        older_than_ms=0,
        file_io=pipeline.files,  # type: ignore[arg-type]  # has all methods
    )
    garbage = {each.location for each in report.garbage}
    assert garbage.isdisjoint(live) and garbage == set(left)
    # The checkpoint before named the same files, spelled as they are; it is retired last.
    first = commit(owner, [absolute(str(each)) for each in live])
    second = commit(owner, spelled.named)
    assert first.checkpoint_id in owner.subsume()
    assert [each for each in live if pipeline.files.size(each) != 4] == []
    assert owner.latest == second


@settings(max_examples=examples(40))
@given(chosen=spellings(LOCAL), seed=st.integers(0, 1 << 32))
def test_no_spelling_of_a_local_file_lets_it_be_deleted(chosen: list[Spelling], seed: int) -> None:
    from dstl_core.checkpoint.store.pipeline_store import PipelineStore

    with tempfile.TemporaryDirectory() as folder:
        base = Location.parse(os.path.realpath(folder)).child("base")
        spelled = Spelled(Pipeline(base, job_id=JOB_ID), chosen, seed)
        for path in Path(base.path).rglob("*"):
            if path.is_file() and not path.is_symlink():
                os.utime(path, (1, 1))
        check_all_users(spelled)
        swept = {"taskowned", "dstl"}
        orphans = PipelineStore(str(base), "spelled").orphans()
        assert set(orphans) == {str(e) for e in spelled.left if e.parent.name in swept}


@settings(max_examples=examples(40))
@given(chosen=spellings(STORE), seed=st.integers(0, 1 << 32))
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_no_spelling_of_an_object_lets_it_be_deleted(
    scheme: str, chosen: list[Spelling], seed: int
) -> None:
    files = Aged(MemoryFileIO())
    base = Location.parse(f"{scheme}://bucket/deep/base")
    check_all_users(Spelled(Pipeline(base, files, JOB_ID), chosen, seed))  # type: ignore[arg-type]
