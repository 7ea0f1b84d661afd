"""Checks files against the latest checkpoint before they are deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container

from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import Location
from dstl_core.storage.walk import files_below

_LOG = logging.getLogger(__name__)


class DeletionGuard:
    """Deletes files, but none that the latest committed checkpoint references.

    It reads the commit log before each deletion. So it sees a commit that was made after the caller
    chose the files. All code that deletes state files uses a guard.

    Args:
        file_io: The file IO of the files.
        latest: Reads the log; returns the files that the latest checkpoint references. It raises a
            ``DstlError`` if they are unknown; then nothing is deleted.
    """

    def __init__(self, file_io: FileIO, latest: Callable[[], Container[Location]]) -> None:
        self._file_io = file_io
        self._latest = latest

    def delete(self, *files: Location) -> bool:
        """Deletes files after one check; deletes none and returns False if one has to stay."""
        referenced = self._latest()
        needed = [each for each in files if each in referenced]
        if needed:
            _LOG.warning("%s stays: the latest checkpoint references it", needed[0])
            return False
        for file in files:
            self._file_io.delete(file)
        return True

    def delete_folder(self, folder: Location, needed: Container[Location] = ()) -> bool:
        """Deletes a folder, unless a file in it has to stay.

        Args:
            folder: The folder.
            needed: Further files that stay.
        """
        files = [each.location for each in files_below(self._file_io, folder)]
        if files:
            referenced = self._latest()
            if any(each in needed or each in referenced for each in files):
                return False
        self._file_io.delete_folder(folder)
        return True
