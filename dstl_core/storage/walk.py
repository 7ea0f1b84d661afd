"""Lists all files below a folder."""

from __future__ import annotations

from collections.abc import Iterator

from dstl_core.storage.file_io import FileIO, FileStatus
from dstl_core.storage.file_set import real_location
from dstl_core.storage.location import Location


def files_below(files: FileIO, folder: Location) -> Iterator[FileStatus]:
    """Yields every file below a folder. A link is returned as a link and not followed."""
    for status in files.list_folder(folder):
        if status.is_folder and not status.is_link:
            yield from files_below(files, status.location)
        else:
            yield status


def files_behind(files: FileIO, link: Location) -> Iterator[FileStatus]:
    """Yields every file below the target folder of a link, through further links; each folder
    once.
    """
    seen: set[Location] = set()
    left = [link]
    while left:
        folder = left.pop()
        if real_location(folder) in seen:
            continue
        seen.add(real_location(folder))
        for status in files.list_folder(folder):
            if status.is_folder or status.is_link:
                left.append(status.location)
            if not status.is_folder:
                yield status
