"""Identifies files, independent of the spelling of their paths.

Two paths of one file may differ in symbolic links, in the name of the scheme (``s3a``, ``s3``), in
the mounted file system, and, after a folder was moved, in the root.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterable

from dstl_core.storage.file_systems import protocol_of
from dstl_core.storage.location import OUTPUT_NAME, UUID_NAME, Location


def real_location(location: Location) -> Location:
    """The canonical form of a location: without links, and with the scheme that names the file
    system.
    """
    protocol = protocol_of(location.scheme)
    if protocol == "file":
        return Location("file", os.path.realpath(location.path))
    return Location(protocol, location.path)


class RealLocations:
    """As ``real_location``, for many files of few folders: it resolves each folder once."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def of(self, location: Location) -> Location:
        """The canonical form of a location."""
        folder, name = posixpath.split(location.path)
        if protocol_of(location.scheme) != "file" or name in ("", ".", ".."):
            return real_location(location)
        real = self._folders.get(folder)
        if real is None:
            real = self._folders[folder] = os.path.realpath(folder)
        path = posixpath.join(real, name)
        return Location("file", os.path.realpath(path) if os.path.islink(path) else path)


class FileSet:
    """A set of files, compared by identity and not by path.

    A file is in the set in three cases: its canonical location was added; it is the same local file
    as an added one; or its name is unique to one file, and a file with that name was added.
    Therefore the set recognizes files in a folder that was moved.

    Invariant: every spelling of an added file is in the set.
    """

    def __init__(self, places: Iterable[Location] = ()) -> None:
        self._places: set[str] = set()
        self._inodes: set[tuple[int, int]] = set()
        self._names: set[str] = set()
        self.add_all(places)

    def add_all(self, places: Iterable[Location]) -> None:
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
        """Adds the file with a name, at any location; does nothing if the name is not unique."""
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
    """The canonical path of a file, and the inode of an existing local file."""
    if scheme != "file":
        return f"{scheme}:{path}", None
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            path = os.path.realpath(path)
            status = os.stat(path)
    except OSError:
        return f"file:{path}", None
    return f"file:{path}", (status.st_dev, status.st_ino)
