"""A file system that fails, hangs or truncates, driven by a seed or a script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from random import Random

from dstl_core.errors import StorageError
from dstl_core.storage.file_io import Content, FileIO, FileStatus, read_one_by_one
from dstl_core.storage.location import Location


class Fault(Enum):
    """The fault of one write."""

    NONE = "none"
    REFUSED = "refused"
    """The write fails before anything is written."""
    TRUNCATED = "truncated"
    """A part is written and stays; then the write fails."""
    BAD_CLOSE = "bad close"
    """All is written and stays; then the write fails."""
    SLOW = "slow"
    """All is written after a delay."""
    HANGING = "hanging"
    """The write fails after a delay; a part is written and stays."""


def seeded_faults(random: Random, weights: Mapping[Fault, float]) -> Callable[[], Fault]:
    """Draws a fault for each write. ``NONE`` has the weight that is left to 1."""
    faults = [*weights, Fault.NONE]
    shares = [*weights.values(), 1 - sum(weights.values())]
    return lambda: random.choices(faults, shares)[0]


def scripted_faults(faults: Iterable[Fault]) -> Callable[[], Fault]:
    """Returns these faults one by one, then ``NONE``."""
    left = iter(faults)
    return lambda: next(left, Fault.NONE)


class FaultyFileIO:
    """Adds faults to another ``FileIO``. Thread-safe if that and the source of faults are.

    Supported: faults of ``write_new``, ``delete``, reads, sizes and ``publish_once``, which may
    fail before or after it has published. Not supported: wrong bytes.

    Args:
        inner: The file IO that stores the files.
        next_fault: Returns the fault of each write.
        pause: Called with milliseconds if a write is slow or hangs.
        pause_ms: The delay of such a write.
        delete_fails: Decides about each deletion.
        publish_fault: Returns the fault of each publication: NONE, REFUSED or BAD_CLOSE.
        read_fails: Decides about each read of content or size.
    """

    def __init__(
        self,
        inner: FileIO,
        next_fault: Callable[[], Fault],
        *,
        pause: Callable[[int], None],
        pause_ms: int = 60_000,
        delete_fails: Callable[[], bool] = lambda: False,
        publish_fault: Callable[[], Fault] = lambda: Fault.NONE,
        read_fails: Callable[[], bool] = lambda: False,
    ) -> None:
        self.inner = inner
        self.next_fault = next_fault
        self.delete_fails = delete_fails
        self.publish_fault = publish_fault
        self.read_fails = read_fails
        self.seen: Counter[Fault] = Counter()
        """Counts of writes, by fault."""
        self._pause = pause
        self._pause_ms = pause_ms

    def write_new(self, location: Location, data: Content) -> None:
        fault = self.next_fault()
        self.seen[fault] += 1
        content = data if isinstance(data, bytes) else b"".join(data)
        if fault in (Fault.SLOW, Fault.HANGING):
            self._pause(self._pause_ms)
        if fault in (Fault.TRUNCATED, Fault.HANGING):
            self.inner.write_new(location, content[: len(content) // 2])
        elif fault is not Fault.REFUSED:
            self.inner.write_new(location, content)
        if fault not in (Fault.NONE, Fault.SLOW):
            raise StorageError(f"Cannot write {location}: {fault.value}.", path=str(location))

    def delete(self, location: Location) -> bool:
        if self.delete_fails():
            raise StorageError(f"Cannot delete {location}: refused.", path=str(location))
        return self.inner.delete(location)

    def read_bytes(self, location: Location, start: int = 0, end: int | None = None) -> bytes:
        self._check_read(location)
        return self.inner.read_bytes(location, start, end)

    def read_each(self, locations: Sequence[Location]) -> list[bytes | None]:
        return read_one_by_one(self, locations)

    def publish_once(self, location: Location, data: bytes) -> bool:
        fault = self.publish_fault()
        if fault is Fault.REFUSED:
            raise StorageError(f"Cannot publish {location}: refused.", path=str(location))
        done = self.inner.publish_once(location, data)
        if fault is not Fault.NONE:
            raise StorageError(f"Cannot publish {location}: no answer.", path=str(location))
        return done

    def replace(self, location: Location, data: Content) -> None:
        self.inner.replace(location, data)

    def size(self, location: Location) -> int | None:
        self._check_read(location)
        return self.inner.size(location)

    def modified_ms(self, location: Location) -> int | None:
        self._check_read(location)
        return self.inner.modified_ms(location)

    def _check_read(self, location: Location) -> None:
        if self.read_fails():
            raise StorageError(f"Cannot read {location}: no answer.", path=str(location))

    def list_folder(self, location: Location) -> list[FileStatus]:
        return self.inner.list_folder(location)

    def delete_folder(self, location: Location) -> None:
        self.inner.delete_folder(location)
