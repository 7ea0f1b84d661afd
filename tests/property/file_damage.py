"""Damage to any byte of any file of a real snapshot, and what may come of it.

Allowed: a ``DstlError`` (``FormatError`` for bytes; another one where a damaged path or operator
name leads nowhere), or an answer. Where a checksum stands guard, only the undamaged answer. Not
allowed: any other error, work that does not end, or more memory than 64 MiB and 16 times the files.
"""

from __future__ import annotations

import json
import random
import resource
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from dstl_core import Snapshot
from dstl_core.changelog.columnar_sets import check_set
from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.codec.serializers import BUILT_IN
from dstl_core.errors import DstlError
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from dstl_core.testing import MemoryFileIO
from tests.golden_files import Fixture

EXTRA_BYTES = 64 << 20
BYTES_PER_BYTE = 16
ENDLESS_S = 60.0
"""Of this process's own time. The files take milliseconds, so only what does not end takes this."""
_PAGE = resource.getpagesize()
# Libraries and compiled kernels take address space once, so they are loaded before any limit.
check_set(memoryview(bytes(4)), 0)


class Endless(BaseException):
    """The reader goes on and on. No ``Exception``, so that no reader takes it for bad input."""


@dataclass(frozen=True)
class _Whole:
    """The undamaged files, and what they say."""

    files: MemoryFileIO
    answer: list[str]


@cache
def _whole(fixture: Fixture) -> _Whole:
    files = MemoryFileIO()
    for path in fixture.folder.rglob("*"):
        if path.is_file() and not path.name.startswith("truth"):
            files.files[str(Location.parse(path))] = path.read_bytes()
    return _Whole(files, _dump(fixture, files))


def _dump(fixture: Fixture, files: MemoryFileIO) -> list[str]:
    folder = Location.parse(fixture.snapshot)
    file = load_metadata_file(files, folder)
    snapshot = Snapshot(file, files, HandleResolver(files, folder), BUILT_IN)
    lines = (line for operator in snapshot.operators for line in operator.dump())
    return sorted(json.dumps(line) for line in lines)


def right_answer(fixture: Fixture) -> list[str]:
    """What the undamaged files say."""
    return _whole(fixture).answer


def answer_with(fixture: Fixture, changed: Mapping[Path, bytes | None]) -> list[str] | None:
    """What the snapshot says with other bytes in place of some files, or without them; None if it
    is refused.

    Raises:
        Endless: The reader does not end.
        MemoryError: It took too much memory.
    """
    files = MemoryFileIO()
    named = {str(Location.parse(path)): raw for path, raw in changed.items()}
    every = {**_whole(fixture).files.files, **named}
    files.files = {place: raw for place, raw in every.items() if raw is not None}
    limit = EXTRA_BYTES + BYTES_PER_BYTE * sum(map(len, files.files.values()))
    with time_limit(ENDLESS_S), memory_limit(limit):
        try:
            return _dump(fixture, files)
        except DstlError:
            return None


@dataclass
class DamagedFile:
    """One file of a snapshot that is held in memory. ``guarded`` are the bytes under a checksum."""

    fixture: Fixture
    path: Path

    def __str__(self) -> str:
        return f"{self.fixture}/{self.path.name}"

    @cached_property
    def raw(self) -> bytes:
        return self.path.read_bytes()

    @cached_property
    def guarded(self) -> range:
        if self.path.name in files_of_databases(self.fixture):
            return range(len(self.raw))
        if self.path.name == "_metadata" or "compressed" not in self.fixture.name:
            return range(0)
        return range(_first_section(self.fixture, self.path), len(self.raw))

    def check(self, damaged: bytes) -> None:
        """Reads the snapshot with these bytes in place of the file.

        Raises:
            AssertionError: A checksum would have told that the answer is wrong.
            Endless: The reader does not end.
            MemoryError: It took too much memory.
        """
        answer = answer_with(self.fixture, {self.path: damaged})
        is_judged = len(damaged) < len(self.raw) or self._is_guarded(damaged)
        if answer is not None and is_judged:
            assert answer == right_answer(self.fixture), "a wrong answer in place of an error"

    def _is_guarded(self, damaged: bytes) -> bool:
        pairs = zip(self.raw, damaged, strict=True)
        return all(at in self.guarded for at, (a, b) in enumerate(pairs) if a != b)


def damaged_files(fixture: Fixture) -> list[DamagedFile]:
    """Its metadata and the files that state lies in."""
    paths = [fixture.snapshot / "_metadata"]
    for path in sorted(fixture.folder.rglob("*")):
        is_state = path.is_file() and path.parent != fixture.folder and path.stat().st_size
        if is_state and path.name not in ("_metadata", "MANIFEST", "CURRENT"):
            paths.append(path)
    return [DamagedFile(fixture, path) for path in paths]


def flipped(file: DamagedFile, chance: random.Random) -> bytes:
    """One bit turned over."""
    raw = bytearray(file.raw)
    raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    return bytes(raw)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Of this process's own time, so that a busy machine changes nothing."""

    def stop(*_: object) -> None:
        raise Endless(f"no end after {seconds:.2f} s of work")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """More address space than now by ``size`` bytes at most."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@cache
def files_of_databases(fixture: Fixture) -> dict[str, str]:
    """Files of RocksDB to their local names: tables, the list of them, which file that is, and
    options, which nobody reads.
    """
    snapshot = Snapshot.load(fixture.snapshot)
    return {
        place.name: name
        for operator in snapshot.operators
        for whole in operator.keyed_handles
        for handle in getattr(whole, "materialized", (whole,))
        if isinstance(handle, IncrementalRemoteKeyedStateHandle)
        for name, stream in handle.shared + handle.private
        if isinstance(stream, FileStateHandle | RelativeFileStateHandle)
        and (place := snapshot.resolver.resolve(stream).location) is not None
    }


def _first_section(fixture: Fixture, path: Path) -> int:
    """Where the compressed key groups of a canonical stream begin; the end if it is none."""
    snapshot = Snapshot.load(fixture.snapshot)
    for operator in snapshot.operators:
        for handle in operator.keyed_handles:
            is_canonical = isinstance(handle, KeyGroupsSavepointStateHandle)
            if is_canonical and not isinstance(handle.stream, ByteStreamStateHandle):
                place = snapshot.resolver.resolve(handle.stream).location
                if place == Location.parse(path):
                    return min(at for at in handle.offsets.offsets if at)
    return path.stat().st_size
