"""Which bytes a handle may reach, and which it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core.errors import (
    FormatError,
    PathNotAllowedError,
    StateFileNotFoundError,
    StorageError,
    TruncatedDataError,
    flags_in_messages,
)
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    CheckpointedStateScope,
    EmptySegmentFileStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from dstl_core.testing import MemoryFileIO

JOB = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job folder with a checkpoint, shared files, a neighbour and an outside."""
    job = tmp_path / "checkpoints" / JOB
    for path in (
        job / "chk-7" / "own",
        job / "shared" / "deep" / "file",
        job.parent / "other-job" / "file",
        tmp_path / "outside" / "secret",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"0123456789")
    return job


def resolver(
    folder: Path, *, allow: tuple[Path, ...] = (), relocate: dict[str, Path] | None = None
) -> HandleResolver:
    location = Location.parse(folder)
    return HandleResolver(
        open_file_io(location),
        location,
        allow_roots=[Location.parse(path) for path in allow],
        relocate={old: Location.parse(new) for old, new in (relocate or {}).items()},
    )


def absolute(path: Path | str) -> FileStateHandle:
    return FileStateHandle(f"file:{path}" if isinstance(path, Path) else path, 10)


def segment(path: Path, start: int, size: int) -> SegmentFileStateHandle:
    return SegmentFileStateHandle(f"file:{path}", start, size, CheckpointedStateScope.SHARED, "id")


def test_inline_bytes(job: Path) -> None:
    handle = ByteStreamStateHandle("../../etc/passwd", b"0123456789")
    files = resolver(job / "chk-7")
    assert files.read(handle) == b"0123456789"
    assert files.read(handle, 2, 4) == b"23"
    assert files.describe(handle) == "inline in _metadata"
    assert files.read_segment(handle) == b"0123456789"


def test_an_empty_segment_has_no_bytes(job: Path) -> None:
    assert resolver(job / "chk-7").read(EmptySegmentFileStateHandle()) == b""


def test_relative_and_absolute_files_of_the_checkpoint_and_its_job(job: Path) -> None:
    files = resolver(job / "chk-7")
    for handle in (
        RelativeFileStateHandle("own", 10),
        absolute(job / "chk-7" / "own"),
        absolute(job / "shared" / "deep" / "file"),
        absolute(f"file://{job}/chk-7/own"),
        absolute(f"{job}/chk-7/./own"),
    ):
        assert files.read(handle) == b"0123456789"
        assert files.read(handle, 3, 5) == b"34"
    assert files.describe(RelativeFileStateHandle("own", 10)) == f"file:{job}/chk-7/own"


def test_a_segment_is_a_part_of_a_file(job: Path) -> None:
    files = resolver(job / "chk-7")
    handle = segment(job / "shared" / "deep" / "file", 3, 5)
    assert files.read(handle) == b"34567"
    assert files.read(handle, 1, 3) == b"45"


@pytest.mark.parametrize(
    ("start", "end"), [(0, 6), (4, 6), (-1, 2), (3, 2)], ids=["end", "both", "before", "crossed"]
)
@pytest.mark.parametrize("kind", ["inline", "segment"])
def test_nothing_beyond_a_stream_is_read(job: Path, kind: str, start: int, end: int) -> None:
    # The neighbours in a merged file are other states.
    handle: StreamStateHandle = (
        ByteStreamStateHandle("h", b"34567")
        if kind == "inline"
        else segment(job / "shared" / "deep" / "file", 3, 5)
    )
    with pytest.raises(FormatError, match=r"outside its stream: expected 0 <= start <= end <= 5"):
        resolver(job / "chk-7").read(handle, start, end)


@pytest.mark.parametrize(
    "relative",
    [
        *["../shared/deep/file", "..", "own/../../shared/deep/file", "/etc/passwd"],
        *["own\0", "a::b", "\ud800"],
    ],
)
def test_relative_paths_stay_in_their_folder(job: Path, relative: str) -> None:
    with pytest.raises(PathNotAllowedError):
        resolver(job / "chk-7").read(RelativeFileStateHandle(relative, 10))


@pytest.mark.parametrize(
    "path",
    [
        "file:{tmp}/outside/secret",
        "{tmp}/outside/secret",
        "file:{tmp}/checkpoints/other-job/file",
        "file:{job}-evil/file",
        "file:{job}/chk-7/../../../outside/secret",
        "file:{job}/chk-7/../chk-7/own",
        "file:/etc/passwd",
        "s3://bucket/key",
        "http://localhost/key",
        "simplecache::file:{job}/chk-7/own",
        "file:{job}/chk-7/own\0",
        "file:{job}/chk-7/\ud800",
    ],
)
def test_absolute_paths_outside_are_refused(job: Path, tmp_path: Path, path: str) -> None:
    handle = absolute(path.format(tmp=tmp_path, job=job))
    for read in (resolver(job / "chk-7").read, resolver(job / "chk-7").read_segment):
        with pytest.raises(PathNotAllowedError):
            read(handle)


def test_the_refusal_names_the_handle_and_the_options(job: Path, tmp_path: Path) -> None:
    with pytest.raises(PathNotAllowedError) as caught:
        resolver(job / "chk-7").read(absolute(tmp_path / "outside" / "secret"))
    assert f"file:{tmp_path}/outside/secret" in str(caught.value)
    assert "(allow_roots)" in str(caught.value)
    assert "(relocate)" in str(caught.value)
    with flags_in_messages():
        assert "(--allow-root)" in str(caught.value)
        assert "--relocate)" in str(caught.value)


def test_a_savepoint_does_not_open_its_parent_folder(job: Path) -> None:
    savepoint = job / "savepoint-012345-0123456789ab"
    savepoint.mkdir()
    with pytest.raises(PathNotAllowedError):
        resolver(savepoint).read(absolute(job / "shared" / "deep" / "file"))


def test_a_checkpoint_at_the_root_does_not_open_the_whole_file_system() -> None:
    with pytest.raises(PathNotAllowedError):
        resolver(Path("/chk-1")).resolve(absolute("file:/etc/passwd"))


# ----------------------------------------------------------------------------------- links


@pytest.mark.parametrize("kind", ["relative", "absolute"])
def test_a_link_out_is_refused(job: Path, tmp_path: Path, kind: str) -> None:
    (job / "chk-7" / "link").symlink_to(tmp_path / "outside" / "secret")
    (job / "chk-7" / "folder").symlink_to(tmp_path / "outside")
    files = resolver(job / "chk-7")
    for name in ("link", "folder/secret"):
        handle: StreamStateHandle = (
            RelativeFileStateHandle(name, 10)
            if kind == "relative"
            else absolute(job / "chk-7" / name)
        )
        with pytest.raises(PathNotAllowedError):
            files.read(handle)


def test_a_link_inside_is_fine(job: Path) -> None:
    (job / "chk-7" / "link").symlink_to(job / "shared" / "deep" / "file")
    assert resolver(job / "chk-7").read(RelativeFileStateHandle("link", 10)) == b"0123456789"


def test_a_snapshot_behind_a_link_is_fine(job: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(job / "chk-7")
    files = resolver(tmp_path / "latest")
    assert files.read(RelativeFileStateHandle("own", 10)) == b"0123456789"
    assert files.read(absolute(job / "chk-7" / "own")) == b"0123456789"


def test_a_linked_job_folder_does_not_open_what_lies_beside_the_link(
    job: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside" / "chk-7").symlink_to(job / "chk-7")
    with pytest.raises(PathNotAllowedError):
        resolver(job / "chk-7").read(absolute(tmp_path / "outside" / "secret"))


# ------------------------------------------------------------------------------ moved files


def test_a_moved_job_folder_is_searched_first(job: Path) -> None:
    files = resolver(job / "chk-7")
    for old in (f"file:/old/place/{JOB}/shared/deep/file", f"s3://b/{JOB}/shared/deep/file"):
        assert files.read(FileStateHandle(old, 10)) == b"0123456789"


def test_a_moved_file_that_is_not_there_is_refused_by_its_own_name(job: Path) -> None:
    old = f"file:/old/place/{JOB}/shared/missing"
    with pytest.raises(PathNotAllowedError, match=old):
        resolver(job / "chk-7").read(FileStateHandle(old, 10))


def test_a_moved_link_out_is_refused(job: Path, tmp_path: Path) -> None:
    (job / "shared" / "link").symlink_to(tmp_path / "outside" / "secret")
    with pytest.raises(PathNotAllowedError):
        resolver(job / "chk-7").read(FileStateHandle(f"file:/old/{JOB}/shared/link", 10))


def test_relocate_says_where_files_moved(job: Path, tmp_path: Path) -> None:
    files = resolver(job / "chk-7", relocate={"s3://old/root": tmp_path / "outside"})
    assert files.read(FileStateHandle("s3://old/root/secret", 10)) == b"0123456789"
    with pytest.raises(PathNotAllowedError):
        files.read(FileStateHandle("s3://old/rooted/secret", 10))


def test_relocate_does_not_lead_out_by_a_link(job: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "link").symlink_to(tmp_path / "outside" / "secret")
    files = resolver(job / "chk-7", relocate={"s3://old/root": tmp_path / "new"})
    with pytest.raises(PathNotAllowedError):
        files.read(FileStateHandle("s3://old/root/link", 10))


def test_the_longest_relocation_wins(job: Path, tmp_path: Path) -> None:
    files = resolver(
        job / "chk-7",
        relocate={"s3://old": tmp_path / "nowhere", "s3://old/root": tmp_path / "outside"},
    )
    assert files.read(FileStateHandle("s3://old/root/secret", 10)) == b"0123456789"


def test_a_whole_root_can_be_a_file(job: Path, tmp_path: Path) -> None:
    files = resolver(job / "chk-7", relocate={"s3://b/x": tmp_path / "outside" / "secret"})
    assert files.read(FileStateHandle("s3://b/x", 10)) == b"0123456789"


def test_allowed_roots_are_allowed(job: Path, tmp_path: Path) -> None:
    files = resolver(job / "chk-7", allow=(tmp_path / "outside",))
    assert files.read(absolute(tmp_path / "outside" / "secret")) == b"0123456789"
    with pytest.raises(PathNotAllowedError):
        files.read(absolute(tmp_path / "checkpoints" / "other-job" / "file"))


# ----------------------------------------------------------------------------------- damage


def test_a_file_shorter_than_its_handle(job: Path) -> None:
    with pytest.raises(TruncatedDataError, match="truncated: expected 11 bytes, got 10"):
        resolver(job / "chk-7").read(RelativeFileStateHandle("own", 11))
    with pytest.raises(TruncatedDataError, match="truncated: expected 12 bytes, got 10"):
        resolver(job / "chk-7").read(segment(job / "chk-7" / "own", 7, 5), 0, 1)


def test_a_missing_file(job: Path) -> None:
    with pytest.raises(StateFileNotFoundError, match="chk-7/missing"):
        resolver(job / "chk-7").read(RelativeFileStateHandle("missing", 10))


def test_a_folder_is_no_state_file(job: Path) -> None:
    with pytest.raises(StorageError):
        resolver(job / "chk-7").read(RelativeFileStateHandle(".", 10))


@pytest.mark.parametrize("folder", ["shared", "taskowned", "taskowned/job_0_tm_1"])
def test_files_of_a_claimed_job_are_read_where_they_stay(
    job: Path, tmp_path: Path, folder: str
) -> None:
    """A job that claims the checkpoint of another one goes on using its files."""
    claimed = tmp_path / "checkpoints" / ("c" * 32) / folder / "file"
    claimed.parent.mkdir(parents=True)
    claimed.write_bytes(b"0123456789")
    files = resolver(job / "chk-7")
    assert files.read(absolute(claimed)) == b"0123456789"
    moved = FileStateHandle(f"file:/old/place/{'c' * 32}/{folder}/file", 10)
    assert files.read(moved) == b"0123456789"
    with pytest.raises(PathNotAllowedError):
        files.read(FileStateHandle(f"file:/old/place/{'c' * 32}/other/file", 10))


def on_s3(*paths: str) -> HandleResolver:
    files = MemoryFileIO()
    for path in paths:
        files.write_new(Location.parse(path), b"0123456789")
    return HandleResolver(files, Location.parse(f"s3://b/ckpt/{JOB}/chk-2"))


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_random_letters_in_keys_of_s3_are_those_of_flink(scheme: str) -> None:
    files = on_s3(f"s3://b/k3Jx/ckpt/{JOB}/shared/f", f"s3://b/ckpt/y9/{JOB}/chk-2/g")
    for place in (f"b/k3Jx/ckpt/{JOB}/shared/f", f"b/ckpt/y9/{JOB}/chk-2/g"):
        assert files.read(absolute(f"{scheme}://{place}"), 3, 5) == b"34"


@pytest.mark.parametrize(
    "place",
    [
        f"s3://other/k3Jx/ckpt/{JOB}/shared/f",
        f"s3://b/k3Jx/more/ckpt/{JOB}/shared/f",
        f"s3://b/k3-x/ckpt/{JOB}/shared/f",
        "s3://b/k3Jx/ckpt/other/shared/f",
        f"s3://b/{JOB}/shared/f",
    ],
    ids=["other bucket", "two folders", "no letters", "other job", "one folder less"],
)
def test_other_keys_of_s3_are_refused(place: str) -> None:
    with pytest.raises(PathNotAllowedError, match="allow_roots"):
        on_s3(place).read(absolute(place))


class _ReadBeside(HandleResolver):
    """Another thread reads another stream's start whenever one was kept."""

    other: StreamStateHandle | None = None

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "_start" and self.other is not None:
            other, self.other = self.other, None
            self.read_start(other, 4)


def test_threads_that_read_starts_get_those_of_their_streams() -> None:
    files, folder = MemoryFileIO(), Location.parse("memory://starts/sp")
    for name, data in (("one", b"1111"), ("two", b"2222")):
        files.write_new(folder.child(name), data)
    shared = _ReadBeside(files, folder)
    shared.other = RelativeFileStateHandle("two", 4)
    assert shared.read_start(RelativeFileStateHandle("one", 4), 4) == b"1111"
