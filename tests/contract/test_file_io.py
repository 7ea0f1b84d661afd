"""What every ``FileIO`` has to do, over each file system that can commit."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dstl_core.errors import PathNotAllowedError, StateFileNotFoundError, StorageError
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.location import Location
from dstl_core.testing import MemoryFileIO
from tests.cloud_servers import CloudServer

_BUCKETS = itertools.count()


STORES = [pytest.param(name, marks=pytest.mark.stores) for name in ("gcs", "azure")]
"""Their servers come with ``make test-stores``."""


@pytest.fixture(params=["local", "local without fsync", "memory", "s3", "fake", *STORES])
def root(request: pytest.FixtureRequest, tmp_path: Path, memory_files: None) -> Location:
    match request.param:
        case "memory":
            return Location.parse("memory://contract/root")
        case "s3":
            return Location.parse(request.getfixturevalue("bucket")).child("root")
        case "fake":
            return Location.parse("abfs://container/root")
        case "gcs" | "azure" as name:
            server: CloudServer = request.getfixturevalue(name)
            return Location.parse(server.make_bucket(f"contract-{next(_BUCKETS)}")).child("root")
        case _:
            return Location.parse(tmp_path / "root")


@pytest.fixture
def files(request: pytest.FixtureRequest, root: Location) -> Iterator[FileIO]:
    match request.node.callspec.params["root"]:
        case "s3":
            yield open_file_io(root, request.getfixturevalue("s3").storage_options)
        case "fake":
            yield MemoryFileIO()
        case "gcs" | "azure" as name:
            yield open_file_io(root, request.getfixturevalue(name).storage_options)
        case name:
            yield open_file_io(root, fsync=name != "local without fsync")


def test_a_written_file_is_read_back_whole_and_in_part(files: FileIO, root: Location) -> None:
    location = root.child("a", "b", "file")
    files.write_new(location, b"0123456789")
    assert files.size(location) == 10
    assert files.read_bytes(location) == b"0123456789"
    assert files.read_bytes(location, 3) == b"3456789"
    assert files.read_bytes(location, 3, 5) == b"34"
    assert files.read_bytes(location, 0, 0) == b""
    assert files.read_bytes(location, 10, 10) == b""


def test_many_files_are_read_in_order_and_none_where_there_is_none(
    files: FileIO, root: Location
) -> None:
    every = [root.child("log", f"{number}.json") for number in range(40)]
    for number in (*range(35), 36):
        assert files.publish_once(every[number], b"%d" % number)
    written = [b"%d" % number for number in range(35)]
    assert files.read_each(every) == [*written, None, b"36", None, None, None]
    assert files.read_each(every[36:37]) == [b"36"]
    assert files.read_each(every[37:]) == [None] * 3
    assert files.read_each([]) == []


def test_an_empty_file(files: FileIO, root: Location) -> None:
    location = root.child("empty")
    files.write_new(location, b"")
    assert files.size(location) == 0
    assert files.read_bytes(location) == b""


@pytest.mark.parametrize(("start", "end"), [(0, 11), (5, 20), (30, 31)])
def test_a_range_beyond_the_end_is_an_error(
    files: FileIO, root: Location, start: int, end: int
) -> None:
    files.write_new(root.child("file"), b"0123456789")
    with pytest.raises(StorageError, match="shorter than its handle says"):
        files.read_bytes(root.child("file"), start, end)


def test_what_is_not_there(files: FileIO, root: Location) -> None:
    missing = root.child("no", "file")
    assert files.size(missing) is None
    assert files.list_folder(missing) == []
    assert files.delete(missing) is False
    files.delete_folder(missing)
    with pytest.raises(StateFileNotFoundError, match=r"Cannot read .*no/file: there is no such"):
        files.read_bytes(missing)


def test_a_folder_has_no_size(files: FileIO, root: Location) -> None:
    files.write_new(root.child("a", "file"), b"x")
    assert files.size(root.child("a")) is None


def test_an_existing_file_is_never_overwritten(files: FileIO, root: Location) -> None:
    location = root.child("file")
    files.write_new(location, b"first")
    with pytest.raises(StorageError, match="there already"):
        files.write_new(location, b"second")
    assert files.read_bytes(location) == b"first"


@pytest.mark.parametrize("root", ["local", "memory"], indirect=True)
def test_a_file_is_no_folder_where_there_are_folders(files: FileIO, root: Location) -> None:
    files.write_new(root.child("file"), b"first")
    for write in (files.write_new, files.publish_once):
        with pytest.raises(StorageError, match=r"Cannot (write|publish) .*file/below"):
            write(root.child("file", "below"), b"x")
    assert files.list_folder(root.child("file")) == []
    assert files.read_bytes(root.child("file")) == b"first"


def test_the_time_of_one_file_is_that_of_the_listing(files: FileIO, root: Location) -> None:
    """So that nobody lists a folder of a million files to ask for one."""
    files.write_new(root.child("folder", "file"), b"x")
    [listed] = files.list_folder(root.child("folder"))
    assert files.modified_ms(listed.location) == listed.modified_ms
    assert files.modified_ms(root.child("folder")) is None
    assert files.modified_ms(root.child("missing")) is None


def test_a_listing_shows_what_lies_directly_in_a_folder(files: FileIO, root: Location) -> None:
    files.write_new(root.child("b"), b"12")
    files.write_new(root.child("a", "deep", "file"), b"x")
    files.write_new(root.child("a[1]", "file"), b"x")
    listed = files.list_folder(root)
    assert [(each.location, each.is_folder) for each in listed] == [
        (root.child("a"), True),
        (root.child("a[1]"), True),
        (root.child("b"), False),
    ]
    assert listed[-1].size == 2
    assert [each.location for each in files.list_folder(root.child("a"))] == [
        root.child("a", "deep")
    ]


def test_delete_takes_one_file(files: FileIO, root: Location) -> None:
    files.write_new(root.child("a"), b"x")
    files.write_new(root.child("ab"), b"x")
    assert files.delete(root.child("a")) is True
    assert files.delete(root.child("a")) is False
    assert files.size(root.child("ab")) == 1


def test_delete_folder_takes_all_below_and_nothing_beside(files: FileIO, root: Location) -> None:
    for name in ("chk-1/x", "chk-1/deep/y", "chk-10/x", "chk-2"):
        files.write_new(root.child(name), b"x")
    files.delete_folder(root.child("chk-1"))
    assert files.list_folder(root.child("chk-1")) == []
    assert [each.location.name for each in files.list_folder(root)] == ["chk-10", "chk-2"]


@pytest.mark.parametrize("name", ["job*", "job?", "job[12]", "**"])
def test_a_name_is_a_name_and_no_pattern(files: FileIO, root: Location, name: str) -> None:
    if root.scheme == "abfs" and name == "job?" and not isinstance(files, MemoryFileIO):
        with pytest.raises(PathNotAllowedError, match="which is another name"):
            files.delete_folder(root.child(name))  # its file system would delete "job"
        return
    for folder in (name, "job1", "jobs", "jobx"):
        files.write_new(root.child(folder, "file"), folder.encode())
    files.delete_folder(root.child(name))
    assert files.size(root.child(name, "file")) is None
    for folder in ("job1", "jobs", "jobx"):
        assert files.read_bytes(root.child(folder, "file")) == folder.encode()
    assert files.delete(root.child(name)) is False
    assert [each.location.name for each in files.list_folder(root)] == ["job1", "jobs", "jobx"]


def test_names_with_spaces_and_other_letters(files: FileIO, root: Location) -> None:
    location = root.child("Ordner mit Leerzeichen", "日本語 %20 #1.json")
    files.write_new(location, b"x")
    assert files.read_bytes(location) == b"x"
    [listed] = files.list_folder(location.parent)
    assert listed.location == location


# ------------------------------------------------------------------------- publish-once


def test_only_the_first_is_published(files: FileIO, root: Location) -> None:
    slot = root.child("log", "1.json")
    assert files.publish_once(slot, b"first") is True
    assert files.publish_once(slot, b"second") is False
    assert files.read_bytes(slot) == b"first"
    assert [each.location for each in files.list_folder(slot.parent)] == [slot]


def test_the_same_bytes_are_published_already(files: FileIO, root: Location) -> None:
    slot = root.child("log", "1.json")
    assert files.publish_once(slot, b"first") is True
    assert files.publish_once(slot, b"first") is True
    assert files.publish_once(slot, b"fir") is False
    assert files.publish_once(slot, b"") is False
    assert files.read_bytes(slot) == b"first"


def test_a_plain_file_takes_the_slot_too(files: FileIO, root: Location) -> None:
    files.write_new(root.child("slot"), b"first")
    assert files.publish_once(root.child("slot"), b"second") is False
    assert files.read_bytes(root.child("slot")) == b"first"


def test_of_many_threads_exactly_one_wins_each_slot(files: FileIO, root: Location) -> None:
    threads, slots = 12, 15
    barrier = threading.Barrier(threads)

    def race(thread: int) -> list[bool]:
        won = []
        for slot in range(slots):
            barrier.wait()
            content = f"thread {thread} slot {slot} ".encode() * 500
            won.append(files.publish_once(root.child(f"{slot}"), content))
        return won

    with ThreadPoolExecutor(threads) as pool:
        outcomes = list(pool.map(race, range(threads)))
    for slot in range(slots):
        [winner] = [thread for thread in range(threads) if outcomes[thread][slot]]
        expected = f"thread {winner} slot {slot} ".encode() * 500
        assert files.read_bytes(root.child(f"{slot}")) == expected
    assert len(files.list_folder(root)) == slots
