"""From a stream handle to bytes, without leaving the places that a snapshot may name.

Allowed by default: the folder that holds ``_metadata`` and its job folder (the parent of
``chk-<n>``). An absolute handle outside is first looked up at its place under the moved job
folder, then by ``relocate``; otherwise it is refused. Links are resolved before the check.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dstl_core.errors import FormatError, PathNotAllowedError, StorageError
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    EmptySegmentFileStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import Location, checkpoint_id_of


@dataclass(frozen=True, slots=True)
class ResolvedStream:
    """Where the bytes of a handle lie: inline, or ``[start, end)`` of a file."""

    location: Location | None
    start: int
    end: int
    inline: bytes = b""


class HandleResolver:
    """Resolves and reads the handles of one snapshot.

    Args:
        folder: The folder that holds ``_metadata``.
        allow_roots: Further folders that handles may name.
        relocate: Old root to new root, for snapshots that were moved.
    """

    def __init__(
        self,
        file_io: FileIO,
        folder: Location,
        *,
        allow_roots: Sequence[Location] = (),
        relocate: Mapping[str, Location] | None = None,
    ) -> None:
        self._file_io = file_io
        self._folder = folder
        self._job_folder = _job_folder_of(folder)
        roots = [folder, *allow_roots]
        if self._job_folder is not None:
            roots.append(self._job_folder)
        moves = {Location.parse(old): new for old, new in (relocate or {}).items()}
        # The longest of several roots that hold a file decides.
        self._relocate = dict(
            sorted(moves.items(), key=lambda move: len(move[0].path), reverse=True)
        )
        roots += self._relocate.values()
        self._roots = [_without_links(root) for root in roots]

    def resolve(self, handle: StreamStateHandle) -> ResolvedStream:
        """Where a handle's bytes lie.

        Raises:
            PathNotAllowedError: The handle leaves the allowed folders; names the options.
        """
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

    def read(self, handle: StreamStateHandle, start: int = 0, end: int | None = None) -> bytes:
        """The bytes ``[start, end)`` of a handle's stream; all of them by default.

        Raises:
            FormatError: The range leaves the stream, so an offset of the snapshot is wrong.
            StorageError: The file is not there, or shorter than the handle says.
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
        size = self._file_io.size(stream.location)
        if size is not None and size < stream.end:
            raise StorageError(
                f"A state file is shorter than its handle says: expected {stream.end} bytes, "
                f"got {size}; the file is truncated.",
                location=str(stream.location),
            )
        return self._file_io.read_bytes(stream.location, stream.start + start, stream.start + stop)

    def describe(self, handle: StreamStateHandle) -> str:
        """Where a handle's bytes lie, for messages."""
        stream = self.resolve(handle)
        return "inline in _metadata" if stream.location is None else str(stream.location)

    def read_segment(self, handle: StreamStateHandle) -> bytes:
        """The whole file behind a changelog handle, whose size leaves out the flag byte."""
        stream = self.resolve(handle)
        if stream.location is None:
            return stream.inline
        return self._file_io.read_bytes(stream.location)

    def _place(self, path: str) -> Location:
        location = Location.parse(path)
        if ".." in path.split("/"):
            raise PathNotAllowedError(
                f"A state handle is refused: {path!r} contains '..'.", path=path
            )
        for old, new in self._relocate.items():
            if old.contains(location):
                relative = location.relative_to(old)
                return self._checked(new.child(relative) if relative != "." else new)
        if any(root.contains(_without_links(location)) for root in self._roots):
            return location
        moved = self._moved(location)
        if moved is not None and self._file_io.size(moved) is not None:
            return self._checked(moved)
        return self._checked(location)

    def _moved(self, location: Location) -> Location | None:
        """The handle's place under this snapshot's job folder, if both are of the same job."""
        if self._job_folder is None:
            return None
        parts = location.path.split("/")
        if self._job_folder.name not in parts:
            return None
        below = parts[parts.index(self._job_folder.name) + 1 :]
        return self._job_folder.child(*below) if below else None

    def _checked(self, location: Location) -> Location:
        if any(root.contains(_without_links(location)) for root in self._roots):
            return location
        raise PathNotAllowedError(
            f"A state handle is refused: {location} lies outside the folders of this snapshot; "
            f"if that is right, allow it (allow_roots, --allow-root) or say where it moved "
            f"(relocate, --relocate).",
            path=str(location),
        )


def _job_folder_of(folder: Location) -> Location | None:
    """The parent of ``chk-<n>``; a root is nobody's job folder, it would allow everything."""
    is_checkpoint = checkpoint_id_of(folder.name) is not None
    return folder.parent if is_checkpoint and folder.parent.path != "/" else None


def _without_links(location: Location) -> Location:
    if not location.is_local:
        return location
    return Location(location.scheme, os.path.realpath(location.path))
