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

    def write_new(self, location: Location, data: Content) -> None:
        passed = _Digested([data] if isinstance(data, bytes) else data)
        super().write_new(location, passed)
        path = str(location)
        self.written[path] = WrittenFile(path, passed.size, passed.digest.hexdigest())


class _Digested:
    """Passes buffers on and computes their digest. It can be iterated once."""

    def __init__(self, buffers: Iterable[bytes | memoryview]) -> None:
        self._buffers = buffers
        self.digest = hashlib.sha256()
        self.size = 0

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for buffer in self._buffers:
            self.digest.update(buffer)
            self.size += memoryview(buffer).nbytes
            yield buffer


def sha256_of(file_io: FileIO, location: Location) -> str:
    """The sha256 of a file, which is read in parts."""
    digest, size = hashlib.sha256(), file_io.size(location) or 0
    read = reader_of(file_io.read_bytes, location, size)
    for start in range(0, size, _PART_BYTES):
        digest.update(read(start, min(start + _PART_BYTES, size)))
    return digest.hexdigest()
