"""Computes digests of files while they are written."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import xxhash

from dstl_core.storage.file_io import Content, FileIO, FsspecFileIO
from dstl_core.storage.location import Location
from dstl_core.storage.read_ahead import reader_of

_PART_BYTES = 1 << 20
"""What is read at once: it stays in the cache of a processor."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file with its size in bytes and its sha256 (hex)."""

    path: str
    size: int
    sha256: str


class DigestingFileIO(FsspecFileIO):
    """A file IO that records the digests of the files that it writes, by path."""

    def __init__(self, scheme: str) -> None:
        super().__init__(scheme)
        self.written: dict[str, WrittenFile] = {}
        self.heads: dict[str, WrittenFile] = {}
        """Size and sha256 of the first buffer of each file: the header of a stream."""
        self._checksums: dict[str, bytes] = {}

    def write_new(self, location: Location, data: Content) -> None:
        passed = _Digested(data, has_digest=True)
        super().write_new(location, passed)
        self._learn(location, passed)

    def write_over(self, location: Location, data: Content, *, is_begun: bool) -> None:
        passed = _Digested(data, has_digest=True)
        super().write_over(location, passed, is_begun=is_begun)
        self._learn(location, passed)

    def write_self_checking(self, location: Location, data: Content) -> None:
        """As ``write_new``, for a file all of whose bytes have checksums in it: nobody needs a
        sha256 of it.
        """
        passed = _Digested(data, has_digest=False)
        super().write_new(location, passed)
        self._checksums[str(location)] = passed.checksum.digest()

    def _learn(self, location: Location, passed: _Digested) -> None:
        path = str(location)
        self._checksums[path] = passed.checksum.digest()
        self.written[path] = WrittenFile(path, passed.size, passed.digest.hexdigest())
        self.heads[path] = WrittenFile(path, *passed.head)

    def holds(self, location: Location) -> bool | None:
        """Whether a file has the bytes that were written here, as it is read again; None if it was
        not written here. A disk that fails does not forge bytes, so a checksum tells, for an eighth
        of the work of a sha256.
        """
        known = self._checksums.get(str(location))
        if known is None:
            return None
        checksum = xxhash.xxh3_128()
        for part in _parts(self, location):
            checksum.update(part)
        return checksum.digest() == known


class _Digested:
    """Passes buffers on and computes their digest. It can be iterated once."""

    def __init__(self, data: Content, *, has_digest: bool) -> None:
        self._buffers: Iterable[bytes | memoryview] = [data] if isinstance(data, bytes) else data
        self._has_digest = has_digest
        self.digest = hashlib.sha256()
        self.checksum = xxhash.xxh3_128()
        self.size = 0
        self.head = 0, self.digest.hexdigest()

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for buffer in self._buffers:
            if self._has_digest:
                self.digest.update(buffer)
            self.checksum.update(buffer)
            is_first = self.size == 0
            self.size += memoryview(buffer).nbytes
            if is_first:
                self.head = self.size, self.digest.hexdigest()
            yield buffer


def sha256_of(file_io: FileIO, location: Location) -> str:
    """The sha256 of a file, which is read in parts."""
    digest = hashlib.sha256()
    for part in _parts(file_io, location):
        digest.update(part)
    return digest.hexdigest()


class DigestOfReads:
    """The sha256 of a file that somebody else reads, mostly from its start to its end. What the
    reads leave out is read here. Thread-safe: threads may read one snapshot.
    """

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._end = 0
        self._lock = threading.Lock()

    def add(self, start: int, data: bytes) -> None:
        """Takes the bytes that were read from ``start`` on, if they go on with those before, and if
        no other thread adds some.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            if start <= self._end < start + len(data):
                self._digest.update(memoryview(data)[self._end - start :])
                self._end = start + len(data)
        finally:
            self._lock.release()

    def sha256(self, file_io: FileIO, location: Location) -> str:
        with self._lock:
            for part in _parts(file_io, location, self._end):
                self._digest.update(part)
                self._end += len(part)
            return self._digest.hexdigest()


def _parts(file_io: FileIO, location: Location, first: int = 0) -> Iterator[bytes]:
    """The bytes of a file, from some place on."""
    size = file_io.size(location) or 0
    read = reader_of(file_io.read_bytes, location, size)
    for start in range(first, size, _PART_BYTES):
        yield read(start, min(start + _PART_BYTES, size))
