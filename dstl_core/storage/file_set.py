"""Which file a path means, however it is written.

Two paths of one file may differ: in symbolic links, in the name of the scheme (``s3a``, ``s3``), in
the file system under which a folder is mounted, and in the root, after a folder was moved.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterable

from dstl_core.storage.file_systems import protocol_of
from dstl_core.storage.location import OUTPUT_NAME, UUID_NAME, Location


def real_location(location: Location) -> Location:
    """The same place in the one form that all its spellings have: without links, and with the
    scheme that names the file system.
    """
    protocol = protocol_of(location.scheme)
    if protocol == "file":
        return Location("file", os.path.realpath(location.path))
    return Location(protocol, location.path)


class FileSet:
    """Files, compared by what they are and not by how their paths are written.

    A file is in the set if it lies at a place that was added, by whatever way the path leads there;
    if it is the same local file under another path; or if its name is one that only one file ever
    gets, and a file of that name was added. So a file is known wherever its folder was moved.

    Invariant: a file that was added is in the set under each of its spellings.
    """

    def __init__(self, places: Iterable[Location] = ()) -> None:
        self._places: set[str] = set()
        self._inodes: set[tuple[int, int]] = set()
        self._names: set[str] = set()
        self.add_all(places)

    def add_all(self, places: Iterable[Location]) -> None:
        """Adds the files at these places."""
        folders: dict[tuple[str, str], Location] = {}
        for place in places:
            path, name = posixpath.split(place.path)
            folder = folders.get((place.scheme, path))
            if folder is None:
                folder = real_location(place.parent)
                folders[place.scheme, path] = folder
            real, inode = _identity(folder.scheme, posixpath.join(folder.path, name))
            self._places.add(real)
            if inode is not None:
                self._inodes.add(inode)
            self.add_name(name)

    def add_name(self, name: str) -> None:
        """Adds the file of a name, wherever it lies; nothing if many files have such a name."""
        if UUID_NAME.fullmatch(name) or OUTPUT_NAME.fullmatch(name):
            self._names.add(name)

    def update(self, other: FileSet) -> None:
        """Adds the files of another set."""
        self._places |= other._places
        self._inodes |= other._inodes
        self._names |= other._names

    def __contains__(self, location: object) -> bool:
        if not isinstance(location, Location):
            return False
        if location.name in self._names:
            return True
        resolved = real_location(location)
        real, inode = _identity(resolved.scheme, resolved.path)
        return (
            real in self._places or inode in self._inodes or posixpath.basename(real) in self._names
        )


def _identity(scheme: str, path: str) -> tuple[str, tuple[int, int] | None]:
    """Where a file of a real folder lies, and the number of a local one that is there."""
    if scheme != "file":
        return f"{scheme}:{path}", None
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            path = os.path.realpath(path)
            found = os.stat(path)
    except OSError:
        return f"file:{path}", None
    return f"file:{path}", (found.st_dev, found.st_ino)
