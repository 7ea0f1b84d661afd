"""A reader with a cache: recovery reads one segment for many handles, and downloads it once.

Source: ``ChangelogStreamHandleReaderWithCache`` of Flink 2.2.1. Unlike in Flink, a failed download
leaves no file, and the cached files have no names: no other process can replace them, and no crash
leaves them behind.
"""

from __future__ import annotations

import itertools
import mmap
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from typing import IO

from dstl_core.changelog.open_segments import Segment
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_format import PLAIN_FLAG, segment_body
from dstl_core.errors import SchedulerClosedError, WriterClosedError
from dstl_core.model.handle import FileStateHandle, StreamStateHandle
from dstl_core.scheduling import Cancellable, Scheduler
from dstl_core.storage.location import Location

CACHE_FOLDER = "dstl-cache-file"


class _CachedSegment:
    """One cached segment. ``file`` is None until it is downloaded."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.file: IO[bytes] | None = None
        self.users = 0
        self.cleanup: Cancellable | None = None


class ChangelogStreamHandleReaderWithCache(StateChangelogHandleReader):
    """A reader that keeps remote segments, decompressed, in local files. Thread-safe.

    Local segments, and handles that are not files, are read directly.

    Args:
        read_segment: Returns the whole segment file of a handle.
        folders: Folders for the files, used in turn from a random one on.
        idle_timeout_ms: Time for which a file is kept after its last use.
        threads: Run the clean-up.
    """

    def __init__(
        self,
        read_segment: Callable[[StreamStateHandle], Segment],
        folders: Sequence[Path],
        *,
        idle_timeout_ms: int,
        threads: Scheduler,
        random: Random,
    ) -> None:
        super().__init__(read_segment)
        self._folders = [folder / CACHE_FOLDER for folder in folders]
        for folder in self._folders:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._next = itertools.count(random.randrange(len(self._folders)))
        self._idle_timeout_ms = idle_timeout_ms
        self._threads = threads
        self._lock = threading.Lock()
        self._entries: dict[str, _CachedSegment] = {}
        self._closed = False

    @property
    def cached(self) -> int:
        """Number of segments in the cache."""
        with self._lock:
            return len(self._entries)

    def open_segment(self, handle: StreamStateHandle) -> AbstractContextManager[Segment]:
        if isinstance(handle, FileStateHandle) and not Location.parse(handle.path).is_local:
            return self._open_cached(handle)
        return super().open_segment(handle)

    def close(self) -> None:
        """Drops all files. A file in use is deleted after its last use."""
        with self._lock:
            self._closed = True
            entries = list(self._entries.values())
            self._entries.clear()
        for entry in entries:
            if entry.cleanup is not None:
                entry.cleanup.cancel()
            self._drop_if_unused(entry)

    @contextmanager
    def _open_cached(self, handle: FileStateHandle) -> Iterator[Segment]:
        entry = self._enter(handle.path)
        try:
            yield self._content(entry, handle)
        finally:
            self._leave(handle.path, entry)

    def _enter(self, path: str) -> _CachedSegment:
        with self._lock:
            if self._closed:
                raise WriterClosedError("A changelog reader was used after its close.")
            entry = self._entries.setdefault(path, _CachedSegment())
            entry.users += 1
            if entry.cleanup is not None:
                entry.cleanup.cancel()
                entry.cleanup = None
        return entry

    def _content(self, entry: _CachedSegment, handle: FileStateHandle) -> Segment:
        # Holds the entry's lock, so that all readers of the segment wait for one download.
        with entry.lock:
            if entry.file is None:
                entry.file = self._download(handle)
            return memoryview(mmap.mmap(entry.file.fileno(), 0, access=mmap.ACCESS_READ))

    def _download(self, handle: FileStateHandle) -> IO[bytes]:
        body = segment_body(self._read_segment(handle), handle.state_size)
        folder = self._folders[next(self._next) % len(self._folders)]
        file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # lives as long as its entry
        try:
            file.write(PLAIN_FLAG)
            file.write(body)
            file.flush()
        except BaseException:
            file.close()
            raise
        return file

    def _leave(self, path: str, entry: _CachedSegment) -> None:
        with self._lock:
            entry.users -= 1
            if entry.users:
                return
            if entry.file is not None and not self._closed:
                try:
                    entry.cleanup = self._threads.schedule(
                        lambda: self._clean_up(path, entry), self._idle_timeout_ms
                    )
                    return
                except SchedulerClosedError:
                    pass  # without a timer, no segment stays cached
            self._entries.pop(path, None)
        self._drop_if_unused(entry)

    def _clean_up(self, path: str, entry: _CachedSegment) -> None:
        with self._lock:
            if entry.users or self._entries.get(path) is not entry:
                return
            del self._entries[path]
        self._drop_if_unused(entry)

    def _drop_if_unused(self, entry: _CachedSegment) -> None:
        """Drops an entry that is no longer in the cache, unless it is in use."""
        if not entry.users and entry.file is not None:
            entry.file.close()
            entry.file = None
