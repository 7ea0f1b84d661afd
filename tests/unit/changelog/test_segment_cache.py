"""Reading through a cache: ChangelogStreamHandleReaderWithCacheTest of Flink, and the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from dstl_core.changelog.segment_cache import ChangelogStreamHandleReaderWithCache
from dstl_core.codec.snappy_frames import compress_frames
from dstl_core.errors import StorageError, WriterClosedError
from dstl_core.model.change import StateChange
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChangelogStateHandleStream,
    FileStateHandle,
    StreamStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.scheduling import ThreadScheduler
from dstl_core.testing import ManualScheduler
from tests.unit.codec.java_bytes import i32

BODY = i32(1, 1, 3, 2) + b"ab"
REMOTE = FileStateHandle("s3://bucket/segment", len(BODY))
OTHER = FileStateHandle("s3://bucket/other", len(BODY))
LOCAL = FileStateHandle("file:/segment", len(BODY))


class Fixture:
    def __init__(self, folder: Path, threads: ManualScheduler | ThreadScheduler | None = None):
        self.threads = threads if threads is not None else ManualScheduler()
        self.folder = folder
        self.opened: list[str] = []
        self.segment = b"\1" + compress_frames(BODY)
        self.before_read: Callable[[], None] = lambda: None
        self.reader = ChangelogStreamHandleReaderWithCache(
            self._read,
            [folder / "a", folder / "b"],
            idle_timeout_ms=1_000,
            threads=self.threads,
            random=Random(1),
        )

    def _read(self, handle: StreamStateHandle) -> bytes:
        self.opened.append(getattr(handle, "path", "inline"))
        self.before_read()
        return self.segment

    def open(self, handle: StreamStateHandle = REMOTE) -> bytes:
        with self.reader.open_segment(handle) as segment:
            return bytes(segment)

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


@pytest.fixture
def f(tmp_path: Path) -> Iterator[Fixture]:
    fixture = Fixture(tmp_path)
    yield fixture
    fixture.reader.close()


def test_close_stream_twice(f: Fixture) -> None:
    f.segment = b"\0"
    empty = FileStateHandle(REMOTE.path, 0)
    opened = f.reader.open_segment(empty)
    with opened as segment:
        assert bytes(segment) == b"\0"
    assert f.open(empty) == b"\0"
    assert f.open(empty) == b"\0"
    assert len(f.opened) == 1


def test_a_segment_is_fetched_once_and_kept_decompressed(f: Fixture) -> None:
    assert f.open() == f.open() == b"\0" + BODY
    assert f.opened == [REMOTE.path]
    f.open(OTHER)
    assert f.reader.cached == 2


def test_local_segments_and_inlined_ones_are_read_where_they_are(f: Fixture) -> None:
    for handle in (LOCAL, ByteStreamStateHandle("inline", b"")):
        for _ in range(2):
            f.open(handle)
    assert len(f.opened) == 4
    assert f.reader.cached == 0


def test_an_idle_segment_is_dropped_and_fetched_anew(f: Fixture) -> None:
    assert isinstance(f.threads, ManualScheduler)
    f.open()
    f.threads.advance(600)
    f.open()  # its time starts again
    f.threads.advance(999)
    assert f.reader.cached == 1
    f.threads.advance(1)
    assert f.reader.cached == 0
    f.open()
    assert len(f.opened) == 2


def test_a_segment_in_use_is_not_dropped(f: Fixture) -> None:
    assert isinstance(f.threads, ManualScheduler)
    with f.reader.open_segment(REMOTE):
        f.open()
        f.threads.advance(5_000)
        assert f.reader.cached == 1
    f.threads.advance(1_000)
    assert f.reader.cached == 0


def test_a_failed_download_leaves_nothing_and_can_be_repeated(f: Fixture) -> None:
    def fail() -> None:
        raise StorageError("no network")

    f.before_read = fail
    with pytest.raises(StorageError, match="no network"):
        f.open()
    assert f.reader.cached == 0
    f.before_read = lambda: None
    assert f.open() == b"\0" + BODY
    assert f.files() == []


def test_no_crash_leaves_a_file(f: Fixture) -> None:
    # The files have no names: what is not closed goes with the process.
    f.open()
    assert f.reader.cached == 1
    assert f.files() == []
    assert {path.name for path in f.folder.iterdir()} == {"a", "b"}
    assert all((f.folder / each / "dstl-cache-file").is_dir() for each in "ab")


def test_closing_drops_all_but_what_is_in_use(f: Fixture) -> None:
    f.open(OTHER)
    with f.reader.open_segment(REMOTE) as segment:
        f.reader.close()
        assert bytes(segment) == b"\0" + BODY
    assert f.reader.cached == 0
    with pytest.raises(WriterClosedError, match="after its close"):
        f.open()


def test_without_a_timer_nothing_is_kept(f: Fixture) -> None:
    f.threads.close(0)
    f.open()
    assert f.reader.cached == 0


def test_others_wait_for_one_download(tmp_path: Path) -> None:
    threads = ThreadScheduler("test")
    f = Fixture(tmp_path, threads)
    started, go = threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        assert go.wait(30)

    f.before_read = slow
    downloads: list[bytes] = []
    readers = [threading.Thread(target=lambda: downloads.append(f.open())) for _ in range(4)]
    for reader in readers:
        reader.start()
    assert started.wait(30)
    go.set()
    for reader in readers:
        reader.join(30)
    assert downloads == [b"\0" + BODY] * 4
    assert f.opened == [REMOTE.path]
    f.reader.close()
    threads.close(1_000)


def test_it_is_a_reader_like_any_other(f: Fixture) -> None:
    handle = ChangelogStateHandleStream(((REMOTE, 0), (REMOTE, 0)), KeyGroupRange(0, 5), 4, 4, "i")
    for _ in range(2):
        assert list(f.reader.get_changes(handle)) == [StateChange(3, b"ab")] * 2
    assert f.opened == [REMOTE.path]
