"""Reference counts of segment files and of their local copies.

Source: ``TaskChangelogRegistryImpl`` and ``LocalChangelogRegistryImpl`` of Flink 2.2.1. Each
change set of a file counts once. Once a checkpoint owns the file (``stop_tracking``), writers never
delete it.
"""

from __future__ import annotations

import threading

from dstl_core.changelog.discarder import FileDiscarder
from dstl_core.errors import ChangelogError
from dstl_core.model.handle import FileStateHandle


class TaskChangelogRegistry:
    """Reference counts of segment files. All writers of a storage share it. Thread-safe.

    Invariants:
        1. A file is deleted only when its count falls to 0, or when nobody got its handle
           (``discard``).
        2. A file is never deleted after ``stop_tracking``: a checkpoint may reference it, and for a
           shared file the checkpoint of every writer.
    """

    NO_OP: TaskChangelogRegistry

    def __init__(self, discarder: FileDiscarder) -> None:
        self._discarder = discarder
        self._lock = threading.Lock()
        self._references: dict[str, int] = {}
        self._unfinished: set[str] = set()

    def start_writing(self, path: str) -> None:
        """Notes a file that is about to be written. No handle references it yet."""
        with self._lock:
            self._unfinished.add(path)

    def discard_unfinished(self, path: str) -> None:
        """Deletes the part of a file whose writing failed."""
        with self._lock:
            self._unfinished.discard(path)
        self._discarder.discard(path)

    def start_tracking(self, handle: FileStateHandle, references: int) -> None:
        """Counts a finished file; ``references`` is the number of change sets in it."""
        if references <= 0:
            raise ChangelogError(
                f"A file needs at least one reference to be tracked, got {references}.",
                path=handle.path,
            )
        with self._lock:
            self._unfinished.discard(handle.path)
            self._references[handle.path] = references

    def stop_tracking(self, handle: FileStateHandle) -> None:
        """Hands the file over to a checkpoint."""
        with self._lock:
            self._references.pop(handle.path, None)

    def release(self, handle: FileStateHandle) -> None:
        """Releases one change set of the file. The last release deletes the file."""
        with self._lock:
            left = self._references.get(handle.path)
            if left is None:
                return  # a checkpoint owns it
            if left > 1:
                self._references[handle.path] = left - 1
                return
            del self._references[handle.path]
        self._discarder.discard(handle.path)

    def discard(self, handle: FileStateHandle) -> None:
        """Deletes a file whose handle nobody got, because another attempt finished first."""
        with self._lock:
            self._references.pop(handle.path, None)
        self._discarder.discard(handle.path)

    @property
    def tracked(self) -> dict[str, int]:
        """A copy of the counts by path."""
        with self._lock:
            return dict(self._references)

    @property
    def orphans(self) -> tuple[str, ...]:
        """Unreferenced files that this process could not delete."""
        return self._discarder.orphans

    def close(self) -> None:
        """Reports files that hanging attempts still write.

        Tracked files stay, because a checkpoint that was never confirmed may reference them.
        """
        with self._lock:
            unfinished, self._unfinished = self._unfinished, set()
        for path in unfinished:
            self._discarder.report(path, "it was still being written")


class _NoOpTaskChangelogRegistry(TaskChangelogRegistry):
    """A registry for uploaders that do not own their files."""

    def __init__(self) -> None:
        super().__init__(FileDiscarder(lambda location: None))

    def start_writing(self, path: str) -> None: ...

    def discard_unfinished(self, path: str) -> None: ...

    def start_tracking(self, handle: FileStateHandle, references: int) -> None: ...

    def discard(self, handle: FileStateHandle) -> None: ...


TaskChangelogRegistry.NO_OP = _NoOpTaskChangelogRegistry()


class LocalChangelogRegistry:
    """The last checkpoint that uses each local copy. Thread-safe."""

    NO_OP: LocalChangelogRegistry

    def __init__(self, discarder: FileDiscarder) -> None:
        self._discarder = discarder
        self._lock = threading.Lock()
        self._last_used: dict[str, tuple[FileStateHandle, int]] = {}

    def register(self, handle: FileStateHandle, checkpoint_id: int) -> None:
        """Notes that a checkpoint uses a local copy.

        Raises:
            ChangelogError: Another file was registered under the same path.
        """
        with self._lock:
            known, last = self._last_used.get(handle.path, (handle, checkpoint_id))
            if known != handle:
                raise ChangelogError(
                    f"Two local changelog files have one path: expected {known}, got {handle}."
                )
            self._last_used[handle.path] = handle, max(last, checkpoint_id)

    def discard_up_to_checkpoint(self, up_to: int) -> frozenset[str]:
        """Deletes the copies that only checkpoints below ``up_to`` use; returns their paths."""
        with self._lock:
            unused = [path for path, (_, last) in self._last_used.items() if last < up_to]
            for path in unused:
                del self._last_used[path]
        for path in unused:
            self._discarder.discard(path)
        return frozenset(unused)

    def close(self) -> None:
        """Drops all entries. The files stay for recovery."""
        with self._lock:
            self._last_used.clear()


class _NoOpLocalChangelogRegistry(LocalChangelogRegistry):
    """The registry for storages without local recovery."""

    def __init__(self) -> None:
        super().__init__(FileDiscarder(lambda location: None))

    def register(self, handle: FileStateHandle, checkpoint_id: int) -> None: ...


LocalChangelogRegistry.NO_OP = _NoOpLocalChangelogRegistry()
