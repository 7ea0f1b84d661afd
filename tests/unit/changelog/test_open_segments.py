"""Segments that are read ahead on threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dstl_core.changelog.open_segments import OpenSegments
from dstl_core.codec.snappy_frames import compress_frames
from dstl_core.errors import FormatError
from dstl_core.model.handle import FileStateHandle, StreamStateHandle

SIZE = 400_000
WAIT = 30


def body(number: int) -> bytes:
    return bytes((number,)) * SIZE


class Files:
    """Segments of 400,000 bytes, plain and compressed in turn; counts those that are open."""

    def __init__(self, count: int, damaged: int = -1) -> None:
        self.handles = [FileStateHandle(f"file:/s{number}", SIZE) for number in range(count)]
        self.opened = {each.path: threading.Event() for each in self.handles}
        self.closed: list[str] = []
        self._damaged = damaged

    @contextmanager
    def open(self, stream: StreamStateHandle) -> Iterator[bytes]:
        assert isinstance(stream, FileStateHandle)
        assert not self.opened[stream.path].is_set(), "a segment is opened once"
        self.opened[stream.path].set()
        number = int(stream.path.removeprefix("file:/s"))
        raw = body(number)[: SIZE // 2 if number == self._damaged else SIZE]
        yield b"\0" + raw if number % 3 == 1 else b"\1" + compress_frames(raw)
        self.closed.append(stream.path)


def test_bodies_come_in_order_and_the_next_ones_are_read_meanwhile() -> None:
    files = Files(6)
    with OpenSegments(files.open, files.handles) as segments:
        assert segments.body(files.handles[0]) == body(0)
        for ahead in (1, 2):
            assert files.opened[f"file:/s{ahead}"].wait(WAIT)
        assert not files.opened["file:/s5"].is_set()
        for number, handle in enumerate(files.handles):
            assert segments.body(handle) == body(number)
            assert segments.body(handle) == body(number)
    assert sorted(files.closed) == sorted(files.opened)


def test_a_damaged_segment_is_reported_when_it_is_asked_for() -> None:
    files = Files(4, damaged=2)
    with OpenSegments(files.open, files.handles) as segments:
        assert segments.body(files.handles[0]) == body(0)
        assert segments.body(files.handles[1]) == body(1)
        with pytest.raises(FormatError, match="wrong size"):
            segments.body(files.handles[2])


def test_nothing_stays_open_after_the_end() -> None:
    files = Files(6)
    with OpenSegments(files.open, files.handles) as segments:
        segments.body(files.handles[0])
    assert sorted(files.closed) == sorted(
        path for path, event in files.opened.items() if event.is_set()
    )
    assert not [each for each in threading.enumerate() if "dstl-changelog-read" in each.name]


def test_a_segment_that_was_not_expected_is_opened_as_well() -> None:
    files = Files(4)
    with OpenSegments(files.open, files.handles[::2]) as segments:
        for number in (0, 1, 2, 3):
            assert segments.body(files.handles[number]) == body(number)
