"""Checks that the files of a snapshot exist.

Tasks with local copies do not notice that a file of an earlier checkpoint was deleted. Their
checkpoint could not be restored. So every commit checks the files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dstl_core.checkpoint.store.metadata_file import NOTHING_KNOWN
from dstl_core.errors import CheckpointError, PathNotAllowedError
from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.handle import (
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
)
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from dstl_core.storage.written_files import WrittenFile

MAX_NAMED = 3
"""Files that a message names; further ones are only counted."""
_REQUESTS = 16
"""Number of concurrent requests to a storage."""
_LISTED_FROM = 32
"""From this number of files in a folder, the folder is listed once instead."""
_QUICK_SCHEMES = ("file", "memory")


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that a snapshot needs.

    Args:
        location: The place at which a restore looks for it.
        size: Minimum size in bytes.
        exact: Whether the file has exactly this size.
    """

    location: Location
    size: int
    exact: bool

    def problem(self, stored_size: int | None) -> str | None:
        """The problem if the file has the size ``stored_size``; None: the file does not exist."""
        if stored_size is None:
            return f"{self.location} is missing"
        if stored_size < self.size or (self.exact and stored_size > self.size):
            expected = f"{'' if self.exact else 'at least '}{self.size}"
            return f"{self.location} has {stored_size} bytes instead of {expected}"
        return None


def check_state_files(
    metadata: CheckpointMetadata,
    folder: Location,
    file_io_of: Callable[[Location], FileIO],
    allow_roots: Iterable[Location],
    written: Mapping[str, WrittenFile] = NOTHING_KNOWN,
) -> None:
    """Checks before a commit that all files of the snapshot exist.

    Args:
        metadata: The snapshot.
        folder: The folder of its ``_metadata``.
        file_io_of: Returns the file IO of a location.
        allow_roots: Further folders whose files it may reference.
        written: Size and sha256 of files, by absolute path.

    Raises:
        CheckpointError: A file is missing, or has another size.
    """
    resolver = HandleResolver(file_io_of(folder), folder, allow_roots=list(allow_roots))
    files = set(named_files(metadata, resolver, written))
    sizes = _sizes({each.location for each in files}, file_io_of)
    problems = [each.problem(sizes[each.location]) for each in files]
    sentences = sorted(each for each in problems if each is not None)
    if sentences:
        more = f" and {len(sentences) - MAX_NAMED} more" if len(sentences) > MAX_NAMED else ""
        raise CheckpointError(
            f"Checkpoint {metadata.checkpoint_id} was not committed, because it could not be "
            f"restored: {'; '.join(sentences[:MAX_NAMED])}{more}; put the file back as it was, or "
            f"start a pipeline of another name from a savepoint or an earlier checkpoint.",
            location=str(folder),
        )


def named_files(
    metadata: CheckpointMetadata, resolver: HandleResolver, written: Mapping[str, WrittenFile]
) -> Iterator[NamedFile]:
    """The files of all handles of a snapshot; state inside ``_metadata`` has no file."""
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            logs = set(subtask.log_streams())
            for stream in dict.fromkeys(subtask.streams()):
                try:
                    place = resolver.resolve(stream)
                except PathNotAllowedError:
                    # A changelog or a claimed snapshot: only its readers know its folder.
                    if not isinstance(stream, FileStateHandle | SegmentFileStateHandle):
                        raise
                    yield NamedFile(Location.parse(stream.path), 1, exact=False)
                    continue
                if place.location is None:
                    continue
                known = written.get(getattr(stream, "path", str(place.location)))
                if known is not None:
                    yield NamedFile(place.location, known.size, exact=True)
                    continue
                if stream in logs and not isinstance(stream, SegmentFileStateHandle):
                    # The handle has the size before compression; no segment is empty.
                    yield NamedFile(place.location, 1, exact=False)
                    continue
                whole = isinstance(stream, FileStateHandle | RelativeFileStateHandle)
                yield NamedFile(place.location, place.end, exact=whole)


def _sizes(
    locations: Iterable[Location], file_io_of: Callable[[Location], FileIO]
) -> Mapping[Location, int | None]:
    """The sizes of files, None for those that do not exist, with few requests."""
    folders: dict[Location, list[Location]] = defaultdict(list)
    sizes: dict[Location, int | None] = {}
    for location in locations:
        if location.scheme in _QUICK_SCHEMES:
            sizes[location] = file_io_of(location).size(location)
        else:
            folders[location.parent].append(location)
    if folders:
        with ThreadPoolExecutor(_REQUESTS) as pool:
            requests = [
                pool.submit(_ask, file_io_of(folder), folder, part)
                for folder, wanted in folders.items()
                for part in ([wanted] if len(wanted) >= _LISTED_FROM else [[e] for e in wanted])
            ]
            for request in requests:
                sizes.update(request.result())
    return sizes


def _ask(file_io: FileIO, folder: Location, wanted: list[Location]) -> dict[Location, int | None]:
    if len(wanted) < _LISTED_FROM:
        return {each: file_io.size(each) for each in wanted}
    sizes = {each.location: each.size for each in file_io.list_folder(folder) if not each.is_folder}
    return {each: sizes.get(each) for each in wanted}
