"""Reads that begin before their bytes are needed, so that nobody waits for a store once for each of
them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from dstl_core.storage.location import Location

_AT_ONCE = 16
"""Reads of a process that run at the same time."""
_MOST_BYTES = 96 << 20
"""Bytes that may have come, or be about to come, before somebody takes them."""
_PART_BYTES = 8 << 20
_PARTS_AHEAD = 2
_ARENAS, _HEAPS = -8, 2
"""``M_ARENA_MAX`` of glibc."""

ReadRange = Callable[[int, int], bytes]
Answer = TypeVar("Answer")
_Place = tuple[Location, int, int]


class ComingReads:
    """Reads that somebody has begun, and that nobody has taken yet. Threads may share it: in the
    worst case, bytes are read twice.

    Args:
        read: Reads the bytes ``[start, end)`` of a file.
    """

    def __init__(self, read: Callable[[Location, int, int], bytes]) -> None:
        self._read = read
        self._reset()

    def _reset(self) -> None:
        self._then: Callable[[], None] | None = None
        self._is_last = False
        self._coming: dict[_Place, Future[bytes]] = {}
        self._bytes = 0
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        """Without reads: another process begins its own."""
        return {"_read": self._read}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._read = state["_read"]
        self._reset()

    def begin(self, location: Location, start: int, end: int) -> None:
        """Begins to read; nothing is begun if too much is about to come already."""
        if self._process != os.getpid():  # a fork has no threads, and no reads that end
            self._reset()
        place = location, start, end
        if start < end and place not in self._coming and self._bytes + end - start <= _MOST_BYTES:
            self._bytes += end - start
            self._coming[place] = _pool().submit(self._read, location, start, end)

    def afterwards(self, then: Callable[[], None]) -> None:
        """Has something called, once, when nothing of the ``last`` ones is coming any more: the
        store would have nothing to do while their bytes are used.
        """
        if self._process != os.getpid():
            self._reset()
        self._then, self._is_last = then, False

    def last(self) -> None:
        """Says that what is begun from here on is the rest. While there is more, something of it is
        coming.
        """
        self._is_last = True

    def take(self, location: Location, start: int, end: int) -> bytes | None:
        """The bytes of a read that was begun; None of another one.

        Raises:
            StorageError: As the read itself.
        """
        if not self._coming or self._process != os.getpid():
            return None
        coming = self._coming.pop((location, start, end), None)
        if coming is None:
            return None
        self._bytes -= end - start
        then = self._then
        if then is not None and self._is_last and not self._coming:
            self._then = None
            then()
        return coming.result()


_POOLS: list[ThreadPoolExecutor] = []
"""The threads of this process; none until it reads ahead."""
os.register_at_fork(after_in_child=_POOLS.clear)


def _pool() -> ThreadPoolExecutor:
    if not _POOLS:
        _share_heaps()
        _POOLS.append(ThreadPoolExecutor(_AT_ONCE, "dstl-read-ahead"))
    return _POOLS[0]


def _share_heaps() -> None:
    """Lets threads allocate from two heaps. By default each thread of glibc has its own, and keeps
    what another one frees there: together as much as all reads at once. A number that the
    environment sets stays.
    """
    is_set = "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform.startswith("linux") and not is_set:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_ARENAS, _HEAPS)


def begun(ask: Callable[[Location], Answer], location: Location) -> Callable[[], Answer]:
    """A question about a file of a store, which is asked now, beside others; what it returns waits
    for the answer. On a local disk, it asks.
    """
    return partial(ask, location) if location.is_local else _pool().submit(ask, location).result


class AheadReader:
    """Reads a range of a stream that is wanted from its start to its end, parts ahead of whoever
    takes them.

    Args:
        begin: Begins to read bytes of the stream.
        read: Reads them.
        start: The start of the range.
        end: Its end. Nothing behind it is read ahead.
    """

    def __init__(
        self, begin: Callable[[int, int], None], read: ReadRange, start: int, end: int
    ) -> None:
        self._begin, self._read = begin, read
        self._next, self._end = start, end
        self._held: deque[tuple[int, bytes]] = deque()
        self._coming: deque[tuple[int, int]] = deque()

    def __call__(self, start: int, end: int) -> bytes:
        held = self._held
        while held and held[0][0] + len(held[0][1]) <= start:
            held.popleft()
        first = held[0][0] if held else self._taken
        if start < first or end > self._end:
            return self._read(start, end)
        if not self._coming:
            self._next = max(self._next, start)
        while self._taken < end:
            self.go_ahead()
            at, stop = self._coming.popleft()
            part = self._read(at, stop)
            if stop > start:
                held.append((at, part))
        self.go_ahead()
        pieces = [
            part[max(0, start - at) : end - at]
            for at, part in held
            if at < end and at + len(part) > start
        ]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def _taken(self) -> int:
        """Where the bytes end that were taken."""
        return self._coming[0][0] if self._coming else self._next

    def go_ahead(self) -> None:
        """Begins to read the parts that come next."""
        while len(self._coming) <= _PARTS_AHEAD and self._next < self._end:
            at, self._next = self._next, min(self._end, self._next + _PART_BYTES)
            self._begin(at, self._next)
            self._coming.append((at, self._next))


def reader_of(
    read: Callable[[Location, int, int], bytes], location: Location, size: int
) -> ReadRange:
    """Reads a file from its start to its end; ahead on a store."""
    if location.is_local:
        return partial(read, location)
    coming = ComingReads(read)

    def take(start: int, end: int) -> bytes:
        data = coming.take(location, start, end)
        return read(location, start, end) if data is None else data

    return AheadReader(partial(coming.begin, location), take, 0, size)
