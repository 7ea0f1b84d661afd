"""Files with the digest of what was written to them, taken while the bytes are at hand."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dstl_core.storage.file_io import Content, FsspecFileIO
from dstl_core.storage.location import Location


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file, the number of its bytes, and their sha256 (hex)."""

    path: str
    size: int
    sha256: str


class DigestingFileIO(FsspecFileIO):
    """A file IO that keeps the digests of the new files that it has written, by their path."""

    def __init__(self, scheme: str) -> None:
        super().__init__(scheme)
        self.written: dict[str, WrittenFile] = {}

    def write_new(self, location: Location, data: Content) -> None:
        passed = _Digested([data] if isinstance(data, bytes) else data)
        super().write_new(location, passed)
        path = str(location)
        self.written[path] = WrittenFile(path, passed.size, passed.digest.hexdigest())


class _Digested:
    """Buffers, digested as they are passed on. They are asked for once."""

    def __init__(self, buffers: Iterable[bytes | memoryview]) -> None:
        self._buffers = buffers
        self.digest = hashlib.sha256()
        self.size = 0

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for buffer in self._buffers:
            self.digest.update(buffer)
            self.size += memoryview(buffer).nbytes
            yield buffer
