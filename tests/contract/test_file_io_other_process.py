"""Another process writes, and this one sees it at once: whatever it looked at before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dstl_core.errors import FencedError, StateFileNotFoundError, StorageError
from dstl_core.storage.commit_log import CommitLog
from dstl_core.storage.file_io import FsspecFileIO, open_file_io
from dstl_core.storage.location import Location
from tests.other_process import OtherProcess, other_process
from tests.s3_server import S3Server
from tests.uncertain_file_io import FixedClock, UncertainFileIO


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "s3":
        return Location.parse(request.getfixturevalue("bucket")).child("root")
    return Location.parse(tmp_path / "root")


@pytest.fixture
def files(root: Location, s3: S3Server) -> FsspecFileIO:
    return open_file_io(root, None if root.is_local else s3.storage_options)


@pytest.fixture(scope="module")
def others(s3: S3Server) -> Iterator[dict[str, OtherProcess]]:
    local = other_process(Location.parse("/"))
    with local as on_disk, other_process(Location.parse("s3://b"), s3.storage_options) as on_s3:
        yield {"file": on_disk, "s3": on_s3}


@pytest.fixture
def other(root: Location, others: dict[str, OtherProcess]) -> OtherProcess:
    return others[root.scheme]


def names(files: FsspecFileIO, folder: Location) -> list[str]:
    return [each.location.name for each in files.list_folder(folder)]


def look_at_all(files: FsspecFileIO, root: Location) -> None:
    """Asks for everything that a cache could keep."""
    for place in (root.parent, root, root.child("chk-1"), root.child("chk-1", "file")):
        files.list_folder(place)
        files.size(place)
    if files.size(root.child("chk-1", "file")) is not None:
        files.read_bytes(root.child("chk-1", "file"))
        with files.open_input(root.child("chk-1", "file")) as opened:
            opened.read(1)


def test_a_new_file_is_there_at_once(
    files: FsspecFileIO, other: OtherProcess, root: Location
) -> None:
    place = root.child("chk-1", "file")
    other.write_new(root.child("chk-1", "before"), b"x")
    look_at_all(files, root)
    other.write_new(place, b"0123456789")
    assert files.size(place) == 10
    assert names(files, place.parent) == ["before", "file"]
    assert files.read_bytes(place) == b"0123456789"
    assert files.read_each([place, root.child("none")]) == [b"0123456789", None]
    other.write_new(root.child("chk-2", "file"), b"x")
    assert names(files, root) == ["chk-1", "chk-2"]
    assert files.publish_once(place, b"mine") is False
    with pytest.raises(StorageError, match="there already"):
        files.write_new(place, b"mine")


def test_a_deleted_file_is_gone_at_once(
    files: FsspecFileIO, other: OtherProcess, root: Location
) -> None:
    place = root.child("chk-1", "file")
    for name in ("file", "kept"):
        other.write_new(root.child("chk-1", name), b"x")
    look_at_all(files, root)
    assert other.delete(place) is True
    assert files.size(place) is None
    assert names(files, place.parent) == ["kept"]
    assert files.delete(place) is False
    with pytest.raises(StateFileNotFoundError):
        files.read_bytes(place)
    with pytest.raises(StateFileNotFoundError):
        files.open_input(place)
    look_at_all(files, root)
    other.delete_folder(root)
    assert names(files, root) == []


def test_other_content_is_read_at_once(
    files: FsspecFileIO, other: OtherProcess, root: Location
) -> None:
    place = root.child("chk-1", "file")
    other.replace(place, b"old")
    look_at_all(files, root)
    with files.open_input(place) as opened:
        assert opened.read() == b"old"
    other.replace(place, b"new and longer")
    assert files.size(place) == 14
    assert [each.size for each in files.list_folder(place.parent)] == [14]
    assert files.read_bytes(place, 4, 7) == b"and"
    with files.open_input(place) as opened:
        assert opened.read() == b"new and longer"


@pytest.mark.parametrize("root", ["s3"], indirect=True)
def test_an_open_file_keeps_no_bytes(
    files: FsspecFileIO, other: OtherProcess, root: Location
) -> None:
    place = root.child("file")
    other.write_new(place, b"a" * 1000)
    with files.open_input(place) as opened:
        assert opened.read(1) == b"a"
        other.replace(place, b"b" * 1000)
        assert opened.read(1) == b"b"


def test_what_a_folder_holds_is_asked_again_before_it_is_deleted(
    files: FsspecFileIO, other: OtherProcess, root: Location
) -> None:
    other.write_new(root.child("chk-1", "file"), b"x")
    look_at_all(files, root)
    other.write_new(root.child("chk-1", "deep", "second"), b"x")
    files.delete_folder(root.child("chk-1"))
    assert other.list_folder(root.child("chk-1")) == []


@pytest.mark.parametrize("root", ["s3"], indirect=True)
def test_a_user_of_the_same_store_with_a_cache_changes_nothing(
    files: FsspecFileIO, other: OtherProcess, root: Location, s3: S3Server
) -> None:
    import fsspec

    cached = fsspec.filesystem("s3", **s3.storage_options)
    other.write_new(root.child("a"), b"x")
    assert len(cached.ls(str(root))) == 1
    again = open_file_io(root, {**s3.storage_options, "use_listings_cache": True})
    for user_files in (files, again):
        assert names(user_files, root)[0] == "a"
        other.write_new(root.child(f"b{id(user_files)}"), b"x")
        assert f"b{id(user_files)}" in names(user_files, root)
    assert len(cached.ls(str(root))) == 1, "the user's own file system goes on as it was"


def test_a_claim_sees_what_another_process_recorded(
    files: FsspecFileIO, other: OtherProcess, root: Location
) -> None:
    limited = LimitedFileIO(files)
    mine = CommitLog(limited, root, FixedClock())
    theirs = CommitLog(other, root, FixedClock())
    mine.claim("a")
    mine.append("a", "commit", {"checkpoint_id": 1})
    assert [each.location.name for each in files.list_folder(root)] == ["1.json", "2.json"]
    theirs.claim("b")
    theirs.append("b", "commit", {"checkpoint_id": 2})
    assert mine.claim("c").number == 5
    assert [record.owner for record in mine.records] == ["a", "a", "b", "b", "c"]
    with pytest.raises(FencedError, match="'c' claimed it with record 5"):
        theirs.append("b", "commit", {"checkpoint_id": 3})


class LimitedFileIO(UncertainFileIO):
    """Ends who publishes for ever."""

    published = 0

    def publish_once(self, location: Location, data: bytes) -> bool:
        self.published += 1
        assert self.published < 100, "tries without end"
        return super().publish_once(location, data)
