"""A file system in a dictionary."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from dstl_core.errors import StateFileNotFoundError, StorageError
from dstl_core.storage.file_io import Content, FileStatus, read_one_by_one
from dstl_core.storage.location import Location


class MemoryFileIO:
    """``FileIO`` without a disk: one instance is one file system, of any scheme. Thread-safe.

    Supported: everything of ``FileIO``. Not supported: permissions, modification times, links,
    folders without files.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.files: dict[str, bytes] = {}
        """Content by location, as text."""

    def read_bytes(self, location: Location, start: int = 0, end: int | None = None) -> bytes:
        with self._lock:
            data = self.files.get(str(location))
        if data is None:
            raise StateFileNotFoundError(
                f"Cannot read {location}: there is no such file or folder.", path=str(location)
            )
        if end is not None and not start <= end <= len(data):
            raise StorageError(
                f"A file is shorter than its handle says: expected {end - start} bytes from "
                f"{start}, got {max(0, len(data) - start)}.",
                location=str(location),
            )
        return data[start:end]

    def read_each(self, locations: Sequence[Location]) -> list[bytes | None]:
        return read_one_by_one(self, locations)

    def write_new(self, location: Location, data: Content) -> None:
        content = data if isinstance(data, bytes) else b"".join(data)
        with self._lock:
            if str(location) in self.files:
                raise StorageError(
                    f"Cannot write {location}: it is there already.", path=str(location)
                )
            self.files[str(location)] = content

    def publish_once(self, location: Location, data: bytes) -> bool:
        with self._lock:
            return self.files.setdefault(str(location), data) == data

    def replace(self, location: Location, data: Content) -> None:
        content = data if isinstance(data, bytes) else b"".join(data)
        with self._lock:
            self.files[str(location)] = content

    def size(self, location: Location) -> int | None:
        with self._lock:
            data = self.files.get(str(location))
        return None if data is None else len(data)

    def modified_ms(self, location: Location) -> int | None:
        return None

    def list_folder(self, location: Location) -> list[FileStatus]:
        with self._lock:
            files = {Location.parse(path): len(data) for path, data in self.files.items()}
        statuses: dict[str, FileStatus] = {}
        for file, size in files.items():
            if file == location or not location.contains(file):
                continue
            name, _, below = file.relative_to(location).partition("/")
            is_folder = bool(below)
            statuses[name] = FileStatus(location.child(name), 0 if is_folder else size, is_folder)
        return [statuses[name] for name in sorted(statuses)]

    def delete(self, location: Location) -> bool:
        with self._lock:
            return self.files.pop(str(location), None) is not None

    def delete_folder(self, location: Location) -> None:
        with self._lock:
            for path in [path for path in self.files if location.contains(Location.parse(path))]:
                del self.files[path]
