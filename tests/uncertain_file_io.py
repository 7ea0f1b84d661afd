"""A file system whose answers get lost, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dstl_core.errors import StorageError
from dstl_core.storage.file_io import Content, FileIO, FileStatus, read_one_by_one
from dstl_core.storage.location import Location


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return 0


class UncertainFileIO:
    """Publishes through a real file system and then, when told to, loses the answer.

    ``after_publish`` runs once after the next publish; what it returns is the answer, and what it
    raises is the error that the caller sees although the file is there.
    """

    def __init__(self, files: FileIO) -> None:
        self._files = files
        self.after_publish: Callable[[bool], bool] | None = None
        self.before_publish: Callable[[], None] | None = None

    def publish_once(self, location: Location, data: bytes) -> bool:
        before, self.before_publish = self.before_publish, None
        if before is not None:
            before()
        done = self._files.publish_once(location, data)
        after, self.after_publish = self.after_publish, None
        return done if after is None else after(done)

    def read_bytes(self, location: Location, start: int = 0, end: int | None = None) -> bytes:
        return self._files.read_bytes(location, start, end)

    def read_each(self, locations: Sequence[Location]) -> list[bytes | None]:
        return read_one_by_one(self, locations)

    def write_new(self, location: Location, data: bytes) -> None:
        self._files.write_new(location, data)

    def replace(self, location: Location, data: Content) -> None:
        self._files.replace(location, data)

    def size(self, location: Location) -> int | None:
        return self._files.size(location)

    def modified_ms(self, location: Location) -> int | None:
        return self._files.modified_ms(location)

    def list_folder(self, location: Location) -> list[FileStatus]:
        return self._files.list_folder(location)

    def delete(self, location: Location) -> bool:
        return self._files.delete(location)

    def delete_folder(self, location: Location) -> None:
        self._files.delete_folder(location)


def lose_the_answer(_: bool) -> bool:
    raise StorageError("Cannot publish: the connection was reset.")
