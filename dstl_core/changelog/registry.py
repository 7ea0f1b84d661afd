"""Who still needs which segment file.

Source: ``TaskChangelogRegistryImpl`` of Flink 2.2.1. A file is counted once per change set in it;
when a checkpoint owns it (``stop_tracking``) the writers never delete it again.
"""

from __future__ import annotations

import logging
import threading

from dstl_core.errors import StorageError
from dstl_core.model.handle import FileStateHandle
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import Location

_LOG = logging.getLogger(__name__)


class TaskChangelogRegistry:
    """Reference counts of segment files; shared by all writers of one storage, thread-safe.

    Invariant: a file is deleted at most once, and never after ``stop_tracking``.
    """

    def __init__(self, file_io: FileIO) -> None:
        self._file_io = file_io
        self._lock = threading.Lock()
        self._references: dict[str, int] = {}

    def start_tracking(self, handle: FileStateHandle, references: int) -> None:
        """Counts a new file; ``references`` is the number of change sets in it."""
        with self._lock:
            self._references[handle.path] = references

    def stop_tracking(self, handle: FileStateHandle) -> None:
        """A checkpoint owns the file from now on."""
        with self._lock:
            self._references.pop(handle.path, None)

    def release(self, handle: FileStateHandle) -> None:
        """One change set of the file is not needed any more; the last one deletes the file."""
        with self._lock:
            left = self._references.get(handle.path)
            if left is None:
                return
            if left > 1:
                self._references[handle.path] = left - 1
                return
            del self._references[handle.path]
        try:
            self._file_io.delete(Location.parse(handle.path))
        except StorageError as error:
            _LOG.warning("could not delete an unused segment; gc will find it: %s", error)

    @property
    def tracked(self) -> dict[str, int]:
        """A copy of the counts by path."""
        with self._lock:
            return dict(self._references)
