"""Deletes unreferenced files in the background.

A file that cannot be deleted is reported as an orphan, which ``dstl gc`` finds. It never causes an
error of the writer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from dstl_core.errors import SchedulerClosedError
from dstl_core.scheduling import BoundedExecutor, Scheduler
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import Location

_LOG = logging.getLogger(__name__)

Delete = Callable[[Location], object]
"""Deletes one file; a missing file is not an error."""


def delete_by_scheme(file_ios: Mapping[str, FileIO]) -> Delete:
    """Makes a ``Delete`` that selects the file IO by the scheme of the location."""

    def delete(location: Location) -> bool:
        return file_ios[location.scheme].delete(location)

    return delete


class FileDiscarder:
    """Deletes files in the background, and remembers those that it could not delete.

    Thread-safe. It owns its queue, but not the threads.

    Args:
        delete: Deletes a file of any scheme that the changelog uses.
        threads: Run the deletions; None deletes on the caller's thread.
        num_threads: Number of concurrent deletions.
    """

    def __init__(
        self, delete: Delete, threads: Scheduler | None = None, num_threads: int = 1
    ) -> None:
        self._delete = delete
        self._threads = threads
        self._executor = BoundedExecutor(threads, num_threads) if threads is not None else None
        self._changed = threading.Condition(threading.Lock())
        self._pending: dict[str, int] = {}
        self._orphans: dict[str, None] = {}

    @property
    def orphans(self) -> tuple[str, ...]:
        """Unreferenced files that this process knows and could not delete."""
        with self._changed:
            return tuple(self._orphans)

    def discard(self, path: str) -> None:
        """Deletes a file soon. An error only makes the file an orphan."""
        with self._changed:
            self._pending[path] = self._pending.get(path, 0) + 1
        if self._executor is not None:
            try:
                self._executor.execute(lambda slot: self._discard(path))
                return
            except SchedulerClosedError:
                pass  # the threads have ended: delete on the caller's thread
        self._discard(path)

    def close(self, timeout_ms: int) -> None:
        """Waits for running deletions; files of the others become orphans."""
        if self._threads is None or self._executor is None:
            return
        with self._changed:
            self._threads.wait_for(self._changed, lambda: not self._pending, timeout_ms)
        self._executor.close()
        with self._changed:
            left, self._pending = self._pending, {}
        for path in left:
            self.report(path, "the changelog was closed first")

    def _discard(self, path: str) -> None:
        try:
            self._delete(Location.parse(path))
        except OSError as error:  # a StorageError, or what a file IO of the user's raises
            self.report(path, error)
        else:
            with self._changed:
                self._orphans.pop(path, None)
        finally:
            with self._changed:
                left = self._pending.pop(path, 1) - 1
                if left > 0:
                    self._pending[path] = left
                self._changed.notify_all()

    def report(self, path: str, reason: object) -> None:
        """Records an unreferenced file that stays."""
        _LOG.warning("an unused segment is left for gc: path=%s reason=%s", path, reason)
        with self._changed:
            self._orphans[path] = None
