"""Writes the change sets of several tasks into one segment file.

Source: ``AbstractStateChangeFsUploader`` of Flink 2.2.1. Unlike there, a failed close fails the
upload, and a file counts only when it is there with its full size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import uuid4

from dstl_core.changelog.registry import TaskChangelogRegistry
from dstl_core.changelog.upload.task import UploadResult, UploadTask, UploadTasksResult
from dstl_core.codec.change_format import write_segment
from dstl_core.model.change import StateChangeSet
from dstl_core.model.handle import FileStateHandle
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import Location


class StateChangeUploader(Protocol):
    """Writes tasks into one durable file, or raises and leaves no task finished."""

    def upload(self, tasks: Sequence[UploadTask]) -> UploadTasksResult: ...

    def close(self) -> None: ...


class StateChangeFsUploader:
    """The uploader on a file system: ``<folder>/<random uuid>``. Thread-safe, owns nothing."""

    def __init__(
        self,
        file_io: FileIO,
        folder: Location,
        registry: TaskChangelogRegistry,
        *,
        compressed: bool = False,
    ) -> None:
        self._file_io = file_io
        self._folder = folder
        self._registry = registry
        self._compressed = compressed

    def upload(self, tasks: Sequence[UploadTask]) -> UploadTasksResult:
        """Raises: StorageError: The file could not be written, closed and sized."""
        ordered = [(task, _by_writer_and_number(task.change_sets)) for task in tasks]
        sets = [change_set for _, change_sets in ordered for change_set in change_sets]
        segment, offsets = write_segment(sets, compressed=self._compressed)
        location = self._folder.child(str(uuid4()))
        self._file_io.write_new(location, segment)
        # The handle's size counts the uncompressed body, as in Flink.
        body_size = offsets[-1] + _change_set_bytes(sets[-1]) if sets else 0
        handle = FileStateHandle(str(location), body_size)
        self._registry.start_tracking(handle, len(sets))
        remaining = iter(offsets)
        results = tuple(
            (
                task,
                tuple(
                    UploadResult(handle, next(remaining), each.sequence_number, each.size)
                    for each in change_sets
                ),
            )
            for task, change_sets in ordered
        )
        return UploadTasksResult(handle, results)

    def close(self) -> None:
        """Nothing is held open between uploads."""


def _by_writer_and_number(change_sets: Sequence[StateChangeSet]) -> list[StateChangeSet]:
    return sorted(change_sets, key=lambda each: (each.log_id.int, each.sequence_number))


def _change_set_bytes(change_set: StateChangeSet) -> int:
    groups = {change.key_group for change in change_set.changes}
    return 4 + 8 * len(groups) + 4 * len(change_set.changes) + change_set.size
