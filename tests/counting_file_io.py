"""A file system that counts what is read from it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dstl_core import Snapshot
from dstl_core.storage.file_io import FsspecFileIO, open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location


class CountingFileIO(FsspecFileIO):
    """Counts reads, bytes, and questions for a size."""

    def __init__(self, scheme: str = "file") -> None:
        super().__init__(scheme)
        self.reads: Counter[str] = Counter()
        """Reads by the name of the file."""
        self.ends: Counter[str] = Counter()
        """Reads that include the last bytes of a file, by the name of the file."""
        self.bytes = 0
        self.sizes = 0

    def read_bytes(self, location: Location, start: int = 0, end: int | None = None) -> bytes:
        data = super().read_bytes(location, start, end)
        self.reads[location.name] += 1
        if start + len(data) == super().size(location):
            self.ends[location.name] += 1
        self.bytes += len(data)
        return data

    def size(self, location: Location) -> int | None:
        self.sizes += 1
        return super().size(location)


def counted_snapshot(folder: Path) -> tuple[Snapshot, CountingFileIO]:
    """A snapshot on a local disk, and the counts of its reads since it was loaded."""
    known = Snapshot.load(folder)
    files = CountingFileIO(open_file_io(known.folder).scheme)
    return Snapshot(known.file, files, HandleResolver(files, known.folder), known.registry), files
