"""Garbage collection: what is found, and above all what is left alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from dstl_core import Snapshot, rewrite_savepoint
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.clock import SystemClock
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.savepoint.gc import check_is_folder, collect_garbage, parse_age
from dstl_core.storage.file_io import FileIO, FileStatus, open_file_io
from dstl_core.storage.location import JobLayout, Location
from tests.integration.flink.checker import State
from tests.integration.flink.writing import LoggingJob, write_savepoint

HOUR = 3600
STATES = [State("n", "value", "long")]


def make_old(folder: Path, seconds: int = 48 * HOUR) -> None:
    """Two days pass for all files but the records of claims, which are of now."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.parent.name != "log":
            then = time.time() - seconds
            os.utime(path, (then, then))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough for files beside the metadata."""
    updates = [
        {"key": f"{number:0100}", "state": "n", "do": "update", "value": number}
        for number in range(500)
    ]
    return write_savepoint(
        tmp_path_factory.mktemp("gc") / "source", "op", "string", STATES, updates, parallelism=2
    )


@pytest.fixture
def savepoint(source: Path) -> Callable[..., Path]:
    def write(folder: Path, mode: str = "error") -> Path:
        rewrite_savepoint(Snapshot.load(source), folder, mode=mode)  # type: ignore[arg-type]
        assert len(list(folder.iterdir())) >= 4
        return folder

    return write


def test_what_an_overwritten_savepoint_left_is_found_and_deleted(
    tmp_path: Path, savepoint: Callable[..., Path]
) -> None:
    out = savepoint(tmp_path / "sp")
    first = {path.name for path in out.iterdir()} - {"_metadata", "_dstl.json"}
    savepoint(out, "overwrite")
    make_old(tmp_path)
    report = collect_garbage(str(tmp_path))
    assert {each.location.name for each in report.garbage} == first
    assert report.deleted == 0
    assert first <= {path.name for path in out.iterdir()}, "listing deletes nothing"
    assert collect_garbage(str(tmp_path), delete=True).deleted == len(first)
    list(Snapshot.load(out)["op"].dump())
    assert collect_garbage(str(tmp_path)).garbage == []


def test_young_files_foreign_names_and_links_stay(
    tmp_path: Path, savepoint: Callable[..., Path]
) -> None:
    out = savepoint(tmp_path / "sp")
    (out / str(uuid4())).write_bytes(b"somebody is writing")
    (out / "notes.txt").write_bytes(b"mine")
    target = tmp_path / "elsewhere.bin"
    target.write_bytes(b"x")
    (out / str(uuid4())).symlink_to(target)
    report = collect_garbage(str(tmp_path), delete=True)
    assert (report.garbage, report.kept) == ([], {"young": 1})
    make_old(tmp_path)
    assert len(collect_garbage(str(tmp_path)).garbage) == 1
    assert target.exists()


def test_a_metadata_that_cannot_be_read_stops_everything(
    tmp_path: Path, savepoint: Callable[..., Path]
) -> None:
    savepoint(tmp_path / "good")
    (tmp_path / "good" / str(uuid4())).write_bytes(b"unnamed")
    broken = savepoint(tmp_path / "broken")
    (broken / "_metadata").write_bytes((broken / "_metadata").read_bytes()[:100])
    make_old(tmp_path)
    with pytest.raises(SavepointError, match="Nothing is collected"):
        collect_garbage(str(tmp_path), delete=True)
    assert len(list((tmp_path / "good").iterdir())) > 2


def test_files_that_another_place_names_stay(
    tmp_path: Path, savepoint: Callable[..., Path]
) -> None:
    out = savepoint(tmp_path / "a" / "sp")
    copy = tmp_path / "b" / "sp"
    copy.mkdir(parents=True)
    (out / "_metadata").rename(copy / "_metadata")
    make_old(tmp_path)
    assert collect_garbage(str(tmp_path / "a")).garbage
    report = collect_garbage(str(tmp_path / "a"), also_referenced_from=[str(tmp_path / "b")])
    assert report.garbage == []


def test_an_empty_folder_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("link", "empty"):
        check_is_folder(str(tmp_path / name))
    check_is_folder("/")
    with pytest.raises(SavepointError, match="no such folder"):
        check_is_folder(str(tmp_path / "empty" / "nothing" / "below"))


def test_a_flink_jobs_folder_needs_to_be_told_that_the_job_is_stopped(tmp_path: Path) -> None:
    job = tmp_path / "00112233445566778899aabbccddeeff"
    (job / "shared").mkdir(parents=True)
    (job / "shared" / str(uuid4())).write_bytes(b"an SST file")
    make_old(tmp_path)
    with pytest.raises(SavepointError, match=r"say so \(flink_job_stopped\)"):
        collect_garbage(str(tmp_path))
    assert len(collect_garbage(str(tmp_path), flink_job_stopped=True).garbage) == 1


@pytest.mark.parametrize("name", ["dstl", "shared", "taskowned"])
def test_a_base_folder_may_have_a_name_that_flink_gives_a_folder_of_files(
    tmp_path: Path, savepoint: Callable[..., Path], name: str
) -> None:
    """Here the folder above would be taken for the folder of a Flink job."""
    base = tmp_path / name
    lost = savepoint(base / "savepoints" / "sp") / str(uuid4())
    lost.write_bytes(b"of nobody")
    make_old(tmp_path)
    report = collect_garbage(str(base), also_referenced_from=[str(base)])
    assert [each.location.name for each in report.garbage] == [lost.name]


@pytest.mark.parametrize("folder", ["shared", "taskowned"])
def test_merged_files_of_a_flink_job_without_a_checkpoint_are_its_own(
    tmp_path: Path, folder: str
) -> None:
    job = "00112233445566778899aabbccddeeff"
    merged = tmp_path / job / folder / f"job_{job}_tm_1" / str(uuid4())
    merged.parent.mkdir(parents=True)
    merged.write_bytes(b"of several subtasks")
    make_old(tmp_path)
    with pytest.raises(SavepointError, match=r"say so \(flink_job_stopped\)"):
        collect_garbage(str(tmp_path), delete=True)
    assert merged.exists()


def test_what_is_younger_than_the_latest_claim_stays_at_any_age_limit(tmp_path: Path) -> None:
    job = LoggingJob(tmp_path, "op", "string", max_parallelism=128)
    before = tmp_path / job.job_id.hex / "taskowned" / str(uuid4())
    before.parent.mkdir(parents=True, exist_ok=True)
    before.write_bytes(b"of an owner that is gone")
    make_old(tmp_path / job.job_id.hex / "taskowned")
    run = job.run(STATES, parallelism=2)
    run.apply([{"key": "k", "state": "n", "do": "update", "value": 1}])
    run.materialize()  # its files are named by the next checkpoint only
    report = collect_garbage(str(tmp_path), older_than_ms=0, delete=True)
    assert [each.location.name for each in report.garbage] == [before.name]
    assert "of a live claim" in report.kept
    checkpoint = run.checkpoint()
    run.close()
    assert [line["value"] for line in Snapshot.load(checkpoint)["op"].dump()] == [1]


class Meanwhile:
    """A store of files; something happens between two listings."""

    def __init__(self, files: FileIO, at: str, then: Callable[[], object]) -> None:
        self._files, self._at, self._then = files, at, then
        self.rounds = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def list_folder(self, location: Location) -> list[FileStatus]:
        statuses = self._files.list_folder(location)
        if location.name == self._at and self.rounds:
            self.rounds -= 1
            self._then()
        return statuses


class OfTwoOwners:
    """A pipeline whose base an earlier owner has written, two days ago."""

    def __init__(self, base: Path) -> None:
        job = LoggingJob(base, "op", "string", max_parallelism=128)
        run = job.run(STATES, parallelism=1)
        run.apply(
            [
                {"key": f"{number:0100}", "state": "n", "do": "update", "value": number}
                for number in range(500)
            ]
        )
        run.materialize()
        run.checkpoint()
        run.close()
        make_old(base)
        self.job = LoggingJob(base, "op", "string", max_parallelism=128)
        self.run = self.job.run(STATES, parallelism=1)

    def commit(self) -> None:
        self.run.apply([{"key": "k", "state": "n", "do": "update", "value": 7}])
        self.run.checkpoint()
        assert self.job.store.subsume(), "the checkpoint before is gone"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "below another place, too"])
def test_what_a_pipeline_commits_while_files_are_listed_is_known(
    tmp_path: Path, elsewhere: bool
) -> None:
    pipeline = OfTwoOwners(tmp_path)
    files = Meanwhile(open_file_io(Location.parse(tmp_path)), "_dstl", pipeline.commit)
    report = collect_garbage(
        str(tmp_path),
        older_than_ms=0,
        delete=True,
        also_referenced_from=[str(tmp_path)] if elsewhere else [],
        file_io=files,  # type: ignore[arg-type]  # it is one
    )
    assert files.rounds == 0
    assert report.garbage == []
    assert len(list(Snapshot.load(pipeline.run.checkpoint())["op"].dump())) == 501
    pipeline.run.close()


def test_nothing_is_collected_where_every_look_finds_another_commit(tmp_path: Path) -> None:
    pipeline = OfTwoOwners(tmp_path)
    name = pipeline.job.layout.root.name
    files = Meanwhile(open_file_io(Location.parse(tmp_path)), name, pipeline.commit)
    files.rounds = 100
    with pytest.raises(SavepointError, match="less busy"):
        collect_garbage(str(tmp_path), older_than_ms=0, delete=True, file_io=files)  # type: ignore[arg-type]  # it is one
    pipeline.run.close()


@pytest.mark.parametrize(
    ("text", "ms"), [("24h", 86_400_000), ("90m", 5_400_000), ("7d", 604_800_000)]
)
def test_ages(text: str, ms: int) -> None:
    assert parse_age(text) == ms


@pytest.mark.parametrize("text", ["", "24", "-1h", "1 day"])
def test_an_age_of_another_form_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="An age is wrong"):
        parse_age(text)


def test_the_output_of_a_job_is_no_flink_job(tmp_path: Path) -> None:
    layout = JobLayout(Location.parse(str(tmp_path / "job")))
    files = open_file_io(layout.root)
    CompletedCheckpointStore(files, layout, SystemClock()).claim("driver")
    output = tmp_path / "job" / "_dstl" / "output" / "chk-1"
    output.mkdir(parents=True)
    (output / "part-00000-0123.parquet").write_bytes(b"rows")
    left = tmp_path / "job" / "taskowned" / str(uuid4())
    left.parent.mkdir()
    left.write_bytes(b"left by a lost task")
    make_old(tmp_path)
    garbage = collect_garbage(str(tmp_path)).garbage
    assert [each.location.name for each in garbage] == [left.name]


@pytest.mark.parametrize("linked", ["the folder", "the metadata"])
def test_a_snapshot_behind_a_link_keeps_the_files_that_it_references(
    tmp_path: Path, savepoint: Callable[..., Path], linked: str
) -> None:
    out = savepoint(tmp_path / "base" / "sp")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (out / "_metadata").rename(elsewhere / "_metadata")
    link = tmp_path / "base" / "link"
    if linked == "the folder":
        link.symlink_to(elsewhere)
    else:
        link.mkdir()
        (link / "_metadata").symlink_to(elsewhere / "_metadata")
    make_old(tmp_path)
    report = collect_garbage(str(tmp_path / "base"), delete=True)
    assert (report.garbage, report.snapshots) == ([], 1)
    link.rename(tmp_path / "away")
    assert collect_garbage(str(tmp_path / "base")).garbage


def test_without_the_metadata_of_the_latest_checkpoint_nothing_is_collected(
    tmp_path: Path,
) -> None:
    pipeline = OfTwoOwners(tmp_path)
    make_old(tmp_path)
    pipeline.run.close()
    latest = pipeline.job.store.latest
    assert latest is not None
    metadata = Path(pipeline.job.layout.checkpoint(latest.checkpoint_id).path, "_metadata")
    metadata.rename(tmp_path / "put away")
    with pytest.raises(SavepointError, match=r"Nothing is collected.*; repair the pipeline in"):
        collect_garbage(str(tmp_path), older_than_ms=0, delete=True)
    (tmp_path / "put away").rename(metadata)
    assert collect_garbage(str(tmp_path), older_than_ms=0, delete=True).garbage == []
    assert len(list(Snapshot.load(metadata.parent)["op"].dump())) == 500
