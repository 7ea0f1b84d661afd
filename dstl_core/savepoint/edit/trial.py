"""Says what a rewriting takes, without writing it: a few units of each operator are done, and
nothing of them is kept.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dstl_core.clock import Clock
from dstl_core.codec.sst.table_builder import HELD_BYTES
from dstl_core.display import size_text
from dstl_core.errors import StorageError
from dstl_core.model.handle import RelativeFileStateHandle, StreamStateHandle
from dstl_core.savepoint.access.units import Jobs, Unit, jobs_for
from dstl_core.savepoint.write.folder import KeyedForm, StateFiles
from dstl_core.storage.file_io import Content, FileIO
from dstl_core.storage.location import Location

_TRIED = 3
"""Units that are tried of an operator."""
_READ_BACK = 1
"""What is written anew is read once, as records with checksums."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Forecast:
    """What a rewriting takes.

    Args:
        read: Bytes that it reads: state of the source, what it wrote, temporary files, and pieces
            that it has kept.
        written: Bytes of state of the result.
        memory: Bytes of memory of a process.
        temporary: Bytes in the folder for temporary files.
        beside: Bytes beside the output, while it is written.
        seconds: How long it takes.
        processes: In how many processes; None if Spark divides the units.
        is_exact: Whether ``written`` is known: all files are copies.
    """

    read: int
    written: int
    memory: int
    temporary: int
    beside: int
    seconds: float
    processes: int | None
    is_exact: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "bytes_read": self.read,
            "bytes_written": self.written,
            "memory": self.memory,
            "temporary_bytes": self.temporary,
            "beside_the_output": self.beside,
            "seconds": round(self.seconds),
            "processes": self.processes,
            "is_exact": self.is_exact,
        }

    def __str__(self) -> str:
        about = "" if self.is_exact else "about "
        of = "on Spark" if self.processes is None else f"in {self.processes} processes"
        if self.processes == 1:
            of = "in one process"
        return (
            f"reads {size_text(self.read)}, writes {about}{size_text(self.written)}; about "
            f"{size_text(self.memory)} of memory a process, {size_text(self.temporary)} of "
            f"temporary files, {size_text(self.beside)} beside the output while it is written; "
            f"about {_time_text(self.seconds)} {of}"
        )


def _time_text(seconds: float) -> str:
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


class TriedFiles(StateFiles):
    """Counts what would be written, and writes nothing."""

    def __init__(self, path: str | os.PathLike[str], form: KeyedForm) -> None:
        super().__init__(path, form=form)
        self.new_bytes = 0
        self.copied_bytes = 0

    def _write(self, name: str, data: Content, *, is_self_checking: bool = False) -> None:
        parts: Iterable[bytes | memoryview] = [data] if isinstance(data, bytes) else data
        self.new_bytes += sum(memoryview(part).nbytes for part in parts)

    def add_parts(self, parts: Sequence[bytes], *, is_copy: bool = False) -> StreamStateHandle:
        size = sum(map(len, parts))
        if is_copy:
            self.copied_bytes += size
        else:
            self.new_bytes += size
        return RelativeFileStateHandle(self.names.new(), size)

    def add_mended(self, parts: Iterable[bytes], size: int) -> StreamStateHandle:
        self.copied_bytes += size
        return RelativeFileStateHandle(self.names.new(), size)

    def add_copy(
        self,
        read: Callable[[int, int], bytes],
        size: int,
        whole: tuple[FileIO, Location] | None = None,
    ) -> RelativeFileStateHandle:
        self.copied_bytes += size
        return RelativeFileStateHandle(self.names.new(), size)


@dataclass
class Trial:
    """What was tried.

    Args:
        clock: Tells how long it took.
        files: Counts what would be written.
    """

    clock: Clock
    files: TriedFiles
    written: float = 0
    milliseconds: float = 0
    temporary: int = 0
    beside: int = 0
    held: int = 0
    pieces: float = 0
    _scale: float = 1.0

    def results(
        self, task: Callable[[Unit], Result], units: Sequence[Unit]
    ) -> list[tuple[Unit, Result]]:
        """Does a few of some units, evenly spread."""
        if not units:
            return []
        picked = sorted({len(units) * at // _TRIED for at in range(_TRIED)})
        task(units[0])  # loads kernels
        start = self.clock.monotonic_ms()
        results = [(units[at], task(units[at])) for at in picked]
        took = self.clock.monotonic_ms() - start
        total, tried = _size_of(units), _size_of(unit for unit, _ in results)
        self._scale = total / max(tried, 1) if tried else len(units) / len(picked)
        self.milliseconds += took * self._scale
        return results

    def write(self, write: Callable[[StateFiles], int], headers: int) -> None:
        """Writes what the units gave, and takes it as a part of all.

        Args:
            write: Writes it; gives the bytes of it that are headers.
            headers: Bytes of all headers.
        """
        before, start = self.files.new_bytes, self.clock.monotonic_ms()
        tried = write(self.files)
        self.written += headers + (self.files.new_bytes - before - tried) * self._scale
        self.files.new_bytes = before
        self.milliseconds += (self.clock.monotonic_ms() - start) * self._scale

    def holds(self, size: int, limit: int, packed: int, kept: int) -> None:
        """Takes records that are put together here: beyond a limit, in a temporary file.

        Args:
            size: Bytes of the records that were tried.
            limit: Bytes of records that memory holds.
            packed: Bytes that those that were tried have when they are packed.
            kept: Bytes of packed records that stay in memory.
        """
        held = round(size * self._scale)
        self.beside = max(self.beside, held)
        self.held = max(self.held, min(held, limit))
        if held > limit:
            self.temporary = max(self.temporary, round(packed * self._scale) - kept)

    def builds(self, size: int, tried: int) -> None:
        """Takes native state of some size. Files of what was tried are mostly not as large as those
        that memory builds.
        """
        self.held = max(self.held, min(size, HELD_BYTES) - tried)

    def keeps_pieces(self, size: int) -> None:
        """Takes what units gave that is too large for memory: it is read from the record."""
        self.pieces += size * self._scale

    def forecast(self, source_size: int, jobs: Jobs, *, is_recorded: bool) -> Forecast:
        """What all takes.

        Args:
            source_size: Bytes of the state that is read.
            jobs: The number of processes, or what runs units.
            is_recorded: Whether units are kept.
        """
        new = round(self.written) + self.files.new_bytes
        copied = self.files.copied_bytes
        processes = jobs_for(source_size, jobs)
        count = processes if isinstance(processes, int) else None
        pieces = round(self.pieces) if is_recorded else 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return Forecast(
            read=source_size + _READ_BACK * new + copied + self.temporary + pieces,
            written=new + copied,
            memory=self.held + (peak if sys.platform == "darwin" else peak << 10),
            temporary=self.temporary,
            beside=self.beside,
            seconds=2 * self.milliseconds / 1000 / (count or 1),
            processes=count,
            is_exact=not new,
        )


def _size_of(units: Iterable[Unit]) -> int:
    return sum(unit.size for unit in units)


def check_room(folder: Location, size: int) -> None:
    """Checks that a local disk has room for the output.

    Raises:
        StorageError: It has not.
    """
    if folder.scheme != "file":
        return
    path = folder.path
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    free = shutil.disk_usage(path).free
    if free < size:
        raise StorageError(
            f"The disk of the output is too small: expected {size_text(size)} free, got "
            f"{size_text(free)} in {path}; choose a folder on another disk.",
            path=str(folder),
        )
