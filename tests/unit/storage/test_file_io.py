"""What is special to a file system: durability, two processes, permissions, full disks."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dstl_core.errors import ConfigError, StorageError
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.storage.file_io import FsspecFileIO, open_file_io
from dstl_core.storage.location import Location
from tests.unprivileged import public_folder, unprivileged


def file_io(path: Path, *, fsync: bool = True) -> tuple[FsspecFileIO, Location]:
    location = Location.parse(path)
    return open_file_io(location, fsync=fsync), location


# ---------------------------------------------------------------------------- durability


@contextmanager
def recorded_syncs() -> Iterator[set[tuple[int, int]]]:
    """The device and inode of everything that is fsynced in the block."""
    synced: set[tuple[int, int]] = set()
    real = os.fsync

    def fsync(handle: int) -> None:
        status = os.fstat(handle)
        synced.add((status.st_dev, status.st_ino))
        real(handle)

    os.fsync = fsync
    try:
        yield synced
    finally:
        os.fsync = real


def identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def write_over(files: FsspecFileIO, location: Location, data: bytes) -> None:
    files.write_over(location, data, is_begun=False)


@pytest.mark.parametrize("write", [FsspecFileIO.write_new, FsspecFileIO.publish_once, write_over])
def test_a_file_its_folder_and_every_new_folder_survive_a_power_loss(
    tmp_path: Path, write: Callable[[FsspecFileIO, Location, bytes], object]
) -> None:
    files, root = file_io(tmp_path)
    with recorded_syncs() as synced:
        write(files, root.child("new", "newer", "file"), b"x")
    path = tmp_path / "new" / "newer" / "file"
    assert identity(path) in synced
    for folder in (path.parent, path.parent.parent, tmp_path):
        assert identity(folder) in synced, folder
    with recorded_syncs() as synced:
        write(files, root.child("new", "newer", "second"), b"x")
    assert {identity(path.parent / "second"), identity(path.parent)} == synced


def test_a_file_that_was_begun_is_gone_on_with(tmp_path: Path) -> None:
    """What an error leaves of it is there, and nothing behind what is written at last."""
    files, root = file_io(tmp_path)
    path = tmp_path / "file"

    def parts() -> Iterator[bytes]:
        yield b"begun"
        assert path.read_bytes() == b"begun"
        yield b" and longer"
        raise StorageError("the source is gone")

    with pytest.raises(StorageError, match="gone"):
        files.write_over(root.child("file"), parts(), is_begun=False)
    assert path.read_bytes() == b"begun and longer"
    with pytest.raises(StorageError, match="it is there already"):
        files.write_over(root.child("file"), b"begun", is_begun=False)
    files.write_over(root.child("file"), [b"begun", b"", memoryview(b" anew")], is_begun=True)
    assert path.read_bytes() == b"begun anew"


def test_without_fsync_nothing_is_synced_but_what_is_published(tmp_path: Path) -> None:
    files, root = file_io(tmp_path, fsync=False)
    with recorded_syncs() as synced:
        files.write_new(root.child("new", "file"), b"x")
    assert synced == set()
    with recorded_syncs() as synced:
        files.publish_once(root.child("slot"), b"x")
    assert synced == {identity(tmp_path / "slot"), identity(tmp_path)}


# ----------------------------------------------------------------------------- full disk


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses to let a file grow, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("fsync", [True, False])
@pytest.mark.parametrize("write", ["write_new", "publish_once"])
@pytest.mark.parametrize("size", [5_000, 500_000])
def test_a_file_that_does_not_fit_fails_and_leaves_nothing(
    tmp_path: Path, write: str, fsync: bool, size: int
) -> None:
    # The smaller one fits into Python's buffer, so that only flush or close finds out.
    files, root = file_io(tmp_path / "data", fsync=fsync)
    with files_of_at_most(1000), pytest.raises(StorageError, match="File too large"):
        getattr(files, write)(root.child("file"), bytes(size))
    assert files.list_folder(root) == []
    # The name is free for another try.
    getattr(files, write)(root.child("file"), bytes(size))
    assert files.size(root.child("file")) == size


def test_a_failed_link_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    files, root = file_io(tmp_path)
    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(StorageError, match=r"Cannot publish .*slot: Operation not permitted"):
        files.publish_once(root.child("slot"), b"x")
    assert files.list_folder(root) == []


# ------------------------------------------------------------------------- two processes

RACE = """
import json, sys
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
root, name = Location.parse(sys.argv[1]), sys.argv[2]
files = open_file_io(root)
sys.stdout.write("ready\\n"); sys.stdout.flush()
sys.stdin.readline()
won = [n for n in range(100) if files.publish_once(root.child(f"{n}"), name.encode() * 1000)]
print(json.dumps(won))
"""


@pytest.mark.slow
def test_of_two_processes_exactly_one_wins_each_slot(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert sorted(won[0] + won[1]) == list(range(100))
    for name, slots in zip("ab", won, strict=True):
        for slot in slots:
            assert (tmp_path / str(slot)).read_text() == name * 1000
    assert len(list(tmp_path.iterdir())) == 100


# ----------------------------------------------------------------------- links and rights


def test_a_linked_file_is_a_file(tmp_path: Path) -> None:
    files, root = file_io(tmp_path)
    files.write_new(root.child("file"), b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert files.size(root.child("link")) == 3
    assert files.read_bytes(root.child("link")) == b"abc"


def test_deleting_a_folder_follows_no_link(tmp_path: Path) -> None:
    files, root = file_io(tmp_path)
    files.write_new(root.child("outside", "kept"), b"x")
    files.write_new(root.child("folder", "file"), b"x")
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "outside")
    files.delete_folder(root.child("folder"))
    assert not (tmp_path / "folder").exists()
    assert files.size(root.child("outside", "kept")) == 1


def test_a_link_is_not_deleted_as_a_folder(tmp_path: Path) -> None:
    files, root = file_io(tmp_path)
    files.write_new(root.child("outside", "kept"), b"x")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(StorageError, match="Cannot delete"):
        files.delete_folder(root.child("link"))
    assert files.size(root.child("outside", "kept")) == 1


def test_the_working_folder_can_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, root = file_io(tmp_path)
    files.write_new(root.child("here", "file"), b"x")
    monkeypatch.chdir(tmp_path / "here")
    files.delete_folder(root.child("here"))
    assert files.list_folder(root) == []


def test_permissions_are_one_sentence_that_names_the_file() -> None:
    with public_folder() as folder:
        files, root = file_io(folder)
        files.write_new(root.child("closed", "file"), b"x")
        (folder / "closed").chmod(0o000)
        with unprivileged():
            for act in (
                lambda: files.read_bytes(root.child("closed", "file")),
                lambda: files.size(root.child("closed", "file")),
                lambda: files.list_folder(root.child("closed")),
                lambda: files.write_new(root.child("closed", "more"), b"x"),
                lambda: files.publish_once(root.child("closed", "more"), b"x"),
                lambda: files.delete(root.child("closed", "file")),
                lambda: files.delete_folder(root.child("closed")),
            ):
                with pytest.raises(StorageError) as caught:
                    act()
                assert str(caught.value).startswith("Cannot ")
                assert "Permission denied" in str(caught.value)
                assert f"file:{folder}/closed" in str(caught.value)


# ------------------------------------------------------------------------------- schemes


def test_an_unknown_scheme_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="No file system for the scheme 'nosuch'"):
        open_file_io(Location.parse("nosuch://bucket/key"))


def test_a_path_of_another_scheme_is_refused(memory_files: None, tmp_path: Path) -> None:
    files, _ = file_io(tmp_path)
    with pytest.raises(ConfigError, match=r"another file system: expected 'file', got memory://a"):
        files.read_bytes(Location.parse("memory://a"))


def test_committing_where_nothing_is_published_once_names_the_scheme() -> None:
    files = FsspecFileIO("data")
    with pytest.raises(
        ConfigError, match=r"Committing to 'data' is not supported.*file, gcs, memory"
    ):
        files.publish_once(Location.parse("data://a"), b"x")


def test_a_savepoint_is_refused_there_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match=r"Committing to 'data' is not supported"):
        SavepointFolder("data://a")


# --------------------------------------------------------------------- regular files only

OPEN_ALL = """
import sys
from dstl_core.errors import StorageError
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
for path in sys.argv[1:]:
    location = Location.parse(path)
    files = open_file_io(location)
    for act in (
        lambda: files.read_bytes(location),
        lambda: files.read_bytes(location, 0, 10),
        lambda: files.open_input(location),
        lambda: Snapshot.load(str(location)),
    )[: 4 if location.name == "_metadata" else 3]:
        try:
            act()
        except StorageError as error:
            print(error)
        else:
            print("no error:", path)
"""


@pytest.mark.slow
def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    (tmp_path / "chk-1").mkdir()
    os.mkfifo(tmp_path / "chk-1" / "_metadata")
    with socket.socket(socket.AF_UNIX) as server:
        # Its path has at most 107 bytes, so it is made by its name.
        with contextlib.chdir(tmp_path):
            server.bind("socket")
        places = {
            tmp_path / "fifo": "a named pipe (FIFO)",
            tmp_path / "link": "a named pipe (FIFO)",
            tmp_path / "chk-1" / "_metadata": "a named pipe (FIFO)",
            tmp_path / "socket": "a socket",
            Path("/dev/zero"): "a device",
        }
        # In a process of its own, which is ended if it waits for somebody to write.
        done = subprocess.run(
            [sys.executable, "-c", OPEN_ALL, *map(str, places)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    expected = [
        f"Cannot read file:{path}: expected a regular file, got {kind}; remove it, or correct the "
        f"path that leads to it."
        for path, kind in places.items()
        for _ in range(4 if path.name == "_metadata" else 3)
    ]
    assert done.stdout.splitlines() == expected


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    files, root = file_io(tmp_path)
    with pytest.raises(StorageError, match="expected a regular file, got a folder"):
        files.read_bytes(root)
