"""Computes digests of files while they are written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dstl_core.storage.file_io import Content, FileIO, FsspecFileIO
from dstl_core.storage.location import Location
from dstl_core.storage.read_ahead import reader_of

_PART_BYTES = 8 << 20


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

    def write_new(self, location: Location, data: Content) -> None:
        passed = _Digested([data] if isinstance(data, bytes) else data)
        super().write_new(location, passed)
        path = str(location)
        self.written[path] = WrittenFile(path, passed.size, passed.digest.hexdigest())
        self.heads[path] = WrittenFile(path, *passed.head)


class _Digested:
    """Passes buffers on and computes their digest. It can be iterated once."""

    def __init__(self, buffers: Iterable[bytes | memoryview]) -> None:
        self._buffers = buffers
        self.digest = hashlib.sha256()
        self.size = 0
        self.head = 0, self.digest.hexdigest()

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for buffer in self._buffers:
            self.digest.update(buffer)
            is_first = self.size == 0
            self.size += memoryview(buffer).nbytes
            if is_first:
                self.head = self.size, self.digest.hexdigest()
            yield buffer


def sha256_of(file_io: FileIO, location: Location) -> str:
    """The sha256 of a file, which is read in parts."""
    digest, size = hashlib.sha256(), file_io.size(location) or 0
    read = reader_of(file_io.read_bytes, location, size)
    for start in range(0, size, _PART_BYTES):
        digest.update(read(start, min(start + _PART_BYTES, size)))
    return digest.hexdigest()
