"""Reads of a store that begin before their bytes are needed: the same bytes, and each one once."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import threading

import pytest

from dstl_core.errors import StorageError
from dstl_core.storage import read_ahead
from dstl_core.storage.location import Location
from dstl_core.storage.read_ahead import ComingReads, reader_of

PLACE = Location.parse("s3://bucket/file")
DATA = random.Random(7).randbytes(1000)


class Store:
    """Counts reads, and answers when it is told to."""

    def __init__(self, *, waits: bool = False) -> None:
        self.asked: list[tuple[int, int]] = []
        self.answers = threading.Event()
        if not waits:
            self.answers.set()

    def read(self, location: Location, start: int, end: int) -> bytes:
        self.asked.append((start, end))
        assert self.answers.wait(10)
        return DATA[start:end]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_PART_BYTES", 64)


def _in_steps(size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, 1000)) for start in range(0, 1000, size)]


@pytest.mark.parametrize("size", [1, 7, 64, 100, 999, 1000])
def test_a_file_that_is_read_to_its_end_is_read_once(size: int) -> None:
    store = Store()
    read = reader_of(store.read, PLACE, 1000)
    assert b"".join(read(*each) for each in _in_steps(size)) == DATA
    assert sorted(store.asked) == _in_steps(64)


def test_steps_may_overlap_and_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    read = reader_of(store.read, PLACE, 1000)
    for start, end in [(0, 100), (90, 200), (90, 250), (700, 720), (10, 20), (720, 1000), (0, 3)]:
        assert read(start, end) == DATA[start:end]


def test_parts_come_side_by_side() -> None:
    store = Store(waits=True)
    read = reader_of(store.read, PLACE, 1000)
    taken: list[bytes] = []
    taker = threading.Thread(target=lambda: taken.append(read(0, 10)))
    taker.start()
    while len(store.asked) < 3:  # each of them waits for an answer
        assert taker.is_alive()
    store.answers.set()
    taker.join()
    assert taken == [DATA[:10]]


def test_a_read_that_was_begun_is_taken_once() -> None:
    store = Store()
    coming = ComingReads(store.read)
    coming.begin(PLACE, 3, 5)
    coming.begin(PLACE, 3, 5)
    assert coming.take(PLACE, 3, 6) is None
    assert coming.take(PLACE, 3, 5) == DATA[3:5]
    assert coming.take(PLACE, 3, 5) is None
    assert store.asked == [(3, 5)]


def test_what_comes_afterwards_is_called_once_when_the_last_ones_are_there() -> None:
    coming, called = ComingReads(Store().read), []
    coming.afterwards(lambda: called.append(len(called)))

    def take(*ranges: tuple[int, int]) -> None:
        for start, end in ranges:
            coming.begin(PLACE, start, end)
        for start, end in ranges:
            coming.take(PLACE, start, end)

    take((0, 4), (4, 8))
    assert called == [], "these were not the last ones"
    coming.last()
    take((8, 12), (12, 16))
    assert called == [0]
    take((16, 20))
    assert called == [0]


def test_no_more_comes_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_MOST_BYTES", 10)
    store = Store()
    coming = ComingReads(store.read)
    for start in range(0, 40, 8):
        coming.begin(PLACE, start, start + 8)
    assert coming.take(PLACE, 0, 8) == DATA[:8]
    assert coming.take(PLACE, 8, 16) is None
    coming.begin(PLACE, 8, 16)
    assert coming.take(PLACE, 8, 16) == DATA[8:16]


def test_an_error_is_that_of_the_read() -> None:
    def fails(location: Location, start: int, end: int) -> bytes:
        raise StorageError("The store is away.")

    coming = ComingReads(fails)
    coming.begin(PLACE, 0, 1)
    with pytest.raises(StorageError, match="is away"):
        coming.take(PLACE, 0, 1)


def _begun_here(coming: ComingReads) -> bool:
    coming.begin(PLACE, 0, 4)
    return coming.take(PLACE, 0, 4) == DATA[:4]


def test_a_fork_and_a_copy_begin_their_own_reads() -> None:
    coming = ComingReads(Store().read)
    coming.begin(PLACE, 0, 4)
    process = os.fork()
    if not process:
        is_own = coming.take(PLACE, 0, 4) is None and _begun_here(coming)
        os._exit(0 if is_own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert coming.take(PLACE, 0, 4) == DATA[:4]
    copy = pickle.loads(pickle.dumps(ComingReads(_of_module)))
    assert _begun_here(copy)


def _of_module(location: Location, start: int, end: int) -> bytes:
    return DATA[start:end]


_HEAPS = """
import ctypes, threading
from dstl_core.storage.location import Location
from dstl_core.storage.read_ahead import begun

together = threading.Barrier(8)

def ask(location):
    together.wait()
    return bytes(1000)

for answer in [begun(ask, Location.parse("s3://bucket/file")) for _ in range(8)]:
    answer()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


@pytest.mark.parametrize(("wanted", "heaps"), [(None, 2), ("1", 1), ("4", 4)])
def test_threads_share_two_heaps_or_what_the_environment_says(
    wanted: str | None, heaps: int
) -> None:
    environment = {name: own for name, own in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    if wanted is not None:
        environment["MALLOC_ARENA_MAX"] = wanted
    ran = subprocess.run(
        [sys.executable, "-c", _HEAPS], env=environment, capture_output=True, check=True, text=True
    )
    assert ran.stdout.count("<heap nr=") == heaps
