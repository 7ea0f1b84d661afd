"""Resolves stream handles to bytes, only inside the folders that a snapshot may reference.

Allowed by default: the folder of ``_metadata``; its job folder (the parent of ``chk-<n>``); and two
kinds of files that Flink stores next to that, recognized by their whole names: segments of a
changelog (``<job id>/dstl/<name>``, below the parent of the checkpoint folder) and files of a job
whose checkpoint was claimed (``<job id>/shared/..``, ``<job id>/taskowned/..``, in the checkpoint
folder; merged files are one folder deeper). An absolute handle elsewhere is looked up at its place
under the moved folders, under the changelog base, and by ``relocate``; otherwise it is refused.
Where Flink puts random letters into the keys of its data on S3 (``s3.entropy.key``) and not into
those of the metadata, a key counts as the one without them. Links are resolved before the check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dstl_core.errors import FormatError, PathNotAllowedError, StorageError, TruncatedDataError
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    EmptySegmentFileStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.file_set import RealLocations, real_location
from dstl_core.storage.file_systems import protocol_of
from dstl_core.storage.location import (
    CHANGELOG_DIR,
    SHARED_DIR,
    TASK_OWNED_DIR,
    Location,
    checkpoint_id_of,
)
from dstl_core.storage.read_ahead import AheadReader, ComingReads, ReadRange

_ENDS_KNOWN = 1 << 16
_JOB_ID = re.compile("[0-9a-f]{32}")
_ENTROPY = re.compile("[0-9A-Za-z]{1,64}")
"""A folder of random letters and digits, of which Flink makes four by default."""


@dataclass(frozen=True, slots=True)
class ResolvedStream:
    """The bytes of a handle: inline, or ``[start, end)`` of a file."""

    location: Location | None
    start: int
    end: int
    inline: bytes = b""


class HandleResolver:
    """Resolves and reads the handles of one snapshot.

    Args:
        folder: The folder of ``_metadata``.
        allow_roots: Further folders that handles may reference.
        relocate: Old root to new root, for snapshots that were moved.
        changelog_base: The folder of the changelog, as in Flink's option of that name.
    """

    def __init__(
        self,
        file_io: FileIO,
        folder: Location,
        *,
        allow_roots: Sequence[Location] = (),
        relocate: Mapping[str, Location] | None = None,
        changelog_base: Location | None = None,
    ) -> None:
        self._file_io = file_io
        self._folder = folder
        self._job_folder = _job_folder_of(folder)
        roots = [folder, *allow_roots]
        if self._job_folder is not None:
            roots.append(self._job_folder)
        moves = {self._parsed(old): new for old, new in (relocate or {}).items()}
        # If several roots contain a file, the longest one applies.
        self._relocate = dict(
            sorted(moves.items(), key=lambda move: len(move[0].path), reverse=True)
        )
        roots += self._relocate.values()
        self._changelog_base = changelog_base
        if changelog_base is not None:
            roots.append(changelog_base)
        self._real = RealLocations()
        self._roots = [real_location(root) for root in roots]
        self._ends: dict[Location, int] = {}
        """How far files are known to reach."""
        self._last: tuple[StreamStateHandle, ResolvedStream] | None = None
        """The handle that was resolved last: a reader asks for each of a million several times."""
        self._coming = None if folder.is_local else ComingReads(file_io.read_bytes)
        self._start: tuple[ResolvedStream, bytes] | None = None
        """The start of a stream on a store that was read last."""
        self.on_read: Callable[[Location, int, bytes], None] | None = None
        """Called with the place and the bytes of each part of a file that ``read`` has read."""

    @property
    def relocates(self) -> bool:
        """Whether files are looked for in other folders than their handles name."""
        return bool(self._relocate)

    @property
    def reads_ahead(self) -> bool:
        """Whether ``begin`` is of use: each read of a store waits for its answer."""
        return self._coming is not None

    def resolve(self, handle: StreamStateHandle) -> ResolvedStream:
        """Finds the bytes of a handle.

        Raises:
            PathNotAllowedError: The handle is outside the allowed folders. The message has the
                options.
        """
        last = self._last
        if last is None or last[0] is not handle:
            last = self._last = handle, self._resolved(handle)
        return last[1]

    def _resolved(self, handle: StreamStateHandle) -> ResolvedStream:
        match handle:
            case ByteStreamStateHandle():
                return ResolvedStream(None, 0, len(handle.data), handle.data)
            case RelativeFileStateHandle():
                location = self._checked(self._folder.child(handle.relative_path))
                return ResolvedStream(location, 0, handle.state_size)
            case FileStateHandle():
                return ResolvedStream(self._place(handle.path), 0, handle.state_size)
            case SegmentFileStateHandle():
                end = handle.start_position + handle.state_size
                return ResolvedStream(self._place(handle.path), handle.start_position, end)
            case EmptySegmentFileStateHandle():
                return ResolvedStream(None, 0, 0)

    def places(self, handle: StreamStateHandle) -> list[Location]:
        """Every possible place of a handle's file, without looking at files.

        The first one is the place that the handle names. The others apply if the file was moved.
        The list is empty for inline bytes.

        Raises:
            PathNotAllowedError: The reader does not accept the handle's path.
        """
        match handle:
            case RelativeFileStateHandle():
                return [self._folder.child(handle.relative_path)]
            case FileStateHandle() | SegmentFileStateHandle():
                location = self._named(handle.path)
                places = [location, *self._relocated(location)]
                if self._job_folder is None or not self._job_folder.contains(location):
                    places += [*self._moved(location), *self._neighbours(location)]
                return list(dict.fromkeys(places))
            case _:
                return []

    def read(self, handle: StreamStateHandle, start: int = 0, end: int | None = None) -> bytes:
        """Reads the bytes ``[start, end)`` of a handle's stream; by default all of them.

        Raises:
            FormatError: The range is outside the stream, so an offset in the snapshot is wrong; or
                the file is shorter than its handle says.
            StorageError: The file does not exist.
        """
        stream = self.resolve(handle)
        stop = stream.end - stream.start if end is None else end
        if not 0 <= start <= stop <= stream.end - stream.start:
            raise FormatError(
                "A range lies outside its stream",
                expected=f"0 <= start <= end <= {stream.end - stream.start}",
                got=f"{start}..{stop}",
                location=self.describe(handle),
            )
        if stream.location is None:
            return stream.inline[start:stop]
        first, last = stream.start + start, stream.start + stop
        try:
            data = None
            if self._coming is not None:
                data = self._coming.take(stream.location, first, last)
            if last < stream.end and self._ends.get(stream.location, 0) < stream.end:
                self._check_end(stream.location, stream.end)
            if data is None:
                data = self._file_io.read_bytes(stream.location, first, last)
        except StorageError:
            self._check_end(stream.location, stream.end)
            raise
        self._note_end(stream.location, last)
        on_read = self.on_read  # another thread may take it away
        if on_read is not None:
            on_read(stream.location, first, data)
        return data

    def begin(self, handle: StreamStateHandle, start: int, end: int) -> None:
        """Says that exactly these bytes will be read soon. Reads of a store begin now, side by
        side; a local disk is fast enough.
        """
        stream = self.resolve(handle)
        if self._coming is not None and stream.location is not None:
            self._coming.begin(stream.location, stream.start + start, stream.start + end)

    def afterwards(self, then: Callable[[], None]) -> None:
        """Has something called, once, when the ``last`` bytes that were begun are there. On a local
        disk, it is never called.
        """
        if self._coming is not None:
            self._coming.afterwards(then)

    def last(self) -> None:
        """Says that what is begun from here on is the rest of what is wanted."""
        if self._coming is not None:
            self._coming.last()

    def begin_reader(self, handle: StreamStateHandle, start: int, end: int) -> None:
        """Begins what ``reader`` will read first."""
        if self._coming is not None:
            AheadReader(
                partial(self.begin, handle), partial(self.read, handle), start, end
            ).go_ahead()

    def reader(self, handle: StreamStateHandle, start: int, end: int) -> ReadRange:
        """Reads a stream whose bytes ``[start, end)`` are wanted one after the other."""
        read = partial(self.read, handle)
        if self._coming is None:
            return read
        self.last()
        return AheadReader(partial(self.begin, handle), read, start, end)

    def read_start(self, handle: StreamStateHandle, size: int) -> bytes:
        """Reads the first bytes of a stream, as each reader of a part of it does."""
        stream = self.resolve(handle)
        if self._coming is None or stream.location is None:
            return self.read(handle, 0, size)
        start = self._start  # another thread may replace it
        if start is None or start[0] != stream or len(start[1]) < size:
            start = self._start = stream, self.read(handle, 0, size)
        return start[1][:size]

    def begin_start(self, handle: StreamStateHandle, size: int) -> None:
        """Says that ``read_start`` will read these bytes soon."""
        start = self._start
        if start is None or start[0] != self.resolve(handle):
            self.begin(handle, 0, size)

    def note_size(self, location: Location, size: int) -> None:
        """Keeps the size of a file, which somebody has asked for: no read asks for it again."""
        self._note_end(location, size)

    def _check_end(self, location: Location, end: int) -> None:
        """Checks that a file reaches up to where its handle ends.

        The size of a file is asked for once, and not if the first read goes up to the end: with a
        store, each question is a round trip.
        """
        size = self._file_io.size(location)
        if size is None:
            return  # the read says so
        if size < end:
            raise TruncatedDataError(
                "A state file is shorter than its handle says; the file is truncated",
                expected=f"{end} bytes",
                got=size,
                location=str(location),
            )
        self._note_end(location, end)

    def _note_end(self, location: Location, end: int) -> None:
        if len(self._ends) >= _ENDS_KNOWN:
            self._ends.clear()
        self._ends[location] = max(end, self._ends.get(location, 0))

    def describe(self, handle: StreamStateHandle) -> str:
        """The place of a handle's bytes, for messages."""
        stream = self.resolve(handle)
        return "inline in _metadata" if stream.location is None else str(stream.location)

    def read_segment(self, handle: StreamStateHandle) -> bytes:
        """Reads the whole file of a changelog handle, whose size excludes the flag byte."""
        stream = self.resolve(handle)
        if stream.location is None:
            return stream.inline
        return self._file_io.read_bytes(stream.location)

    def _place(self, path: str) -> Location:
        location = self._named(path)
        for relocated in self._relocated(location):
            return self._checked(relocated)
        if self._is_allowed(location):
            return location
        moved = self._moved(location)
        for place in moved:
            if self._file_io.size(place) is not None:
                return self._checked(place)
        for neighbour in self._neighbours(location):
            if self._file_io.size(neighbour) is not None:
                return neighbour
        if self._has_entropy(location):
            return location
        return self._checked(location, moved)

    def _named(self, path: str) -> Location:
        location = self._parsed(path)
        if ".." in path.split("/"):
            raise PathNotAllowedError(
                f"A state handle is refused: {path!r} contains '..'.", path=path
            )
        return location

    def _parsed(self, path: str) -> Location:
        """A path as a location of the snapshot's file system, which may have several schemes."""
        location = Location.parse(path)
        scheme = self._folder.scheme
        same = protocol_of(location.scheme) == protocol_of(scheme)
        return Location(scheme, location.path) if same else location

    def _is_allowed(self, location: Location) -> bool:
        real = self._real.of(location)
        return any(root.contains(real) for root in self._roots)

    def _relocated(self, location: Location) -> list[Location]:
        """The place of a handle after ``relocate``; empty if no root matches."""
        for old, new in self._relocate.items():
            if old.contains(location):
                relative = location.relative_to(old)
                return [new.child(relative) if relative != "." else new]
        return []

    def _moved(self, location: Location) -> list[Location]:
        """The handle's possible places under this snapshot's job folder and changelog base."""
        parts = location.path.split("/")
        places = []
        if self._job_folder is not None and self._job_folder.name in parts:
            below = parts[parts.index(self._job_folder.name) + 1 :]
            places += [self._job_folder.child(*below)] if below else []
        if self._changelog_base is not None and _is_of_job(parts, CHANGELOG_DIR):
            places += [self._changelog_base.child(*parts[-size:]) for size in (3, 2, 1)]
        return places

    def _neighbours(self, location: Location) -> list[Location]:
        """Places of a changelog segment or a shared file next to the job folder.

        A place counts only if it still has the required name after links are resolved.
        """
        if self._job_folder is None:
            return []
        checkpoints = self._job_folder.parent
        sizes: tuple[int, ...]
        parts = location.path.split("/")
        if _is_of_job(parts, CHANGELOG_DIR):
            root, sizes = checkpoints.parent, (4, 3)
        elif size := _claimed_parts(parts):
            root, sizes = checkpoints, (size,)
        else:
            return []
        real_root = real_location(root)
        if real_root.path == "/":
            return []
        places = [location, *(root.child(*parts[-size:]) for size in sizes if parts[-size])]
        neighbours = []
        for place in places:
            real = real_location(place)
            if real_root.contains(real) and real.path.split("/")[-3:] == parts[-3:]:
                neighbours.append(place)
        return neighbours

    def _has_entropy(self, location: Location) -> bool:
        """Whether a file of S3 would lie in the snapshot's folders without one random folder."""
        if protocol_of(location.scheme) != "s3":
            return False
        roots = [self._folder] if self._job_folder is None else [self._folder, self._job_folder]
        parts = location.path.split("/")
        return any(
            root.contains(Location(location.scheme, "/".join([*parts[:at], *parts[at + 1 :]])))
            for at in range(2, len(parts) - 1)  # after the bucket, and before the name
            if _ENTROPY.fullmatch(parts[at])
            for root in roots
        )

    def _checked(self, location: Location, looked_at: Sequence[Location] = ()) -> Location:
        if self._is_allowed(location):
            return location
        places = ", ".join(str(place) for place in looked_at)
        raise PathNotAllowedError(
            f"A state handle is refused: {location} lies outside the folders of this snapshot"
            f"{f' (and is not at {places})' if places else ''}; "
            f"if that is right, allow it (allow_roots, --allow-root), name the changelog's base "
            f"(changelog_base, --changelog-base) or say where it moved (relocate, --relocate).",
            path=str(location),
        )


def _is_of_job(parts: list[str], folder: str) -> bool:
    """Whether a path ends in ``<job id>/<folder>/<name>``."""
    return len(parts) >= 3 and parts[-2] == folder and _JOB_ID.fullmatch(parts[-3]) is not None


def _claimed_parts(parts: list[str]) -> int:
    """Number of names at the end of a path that identify a file of a claimed job; 0 if none."""
    for size in (3, 4):
        folder = parts[1 - size] if len(parts) >= size else ""
        if folder in (SHARED_DIR, TASK_OWNED_DIR) and _JOB_ID.fullmatch(parts[-size]):
            return size
    return 0


def _job_folder_of(folder: Location) -> Location | None:
    """The parent of ``chk-<n>``. A root is never a job folder, since it would allow everything."""
    is_checkpoint = checkpoint_id_of(folder.name) is not None
    return folder.parent if is_checkpoint and folder.parent.path != "/" else None
