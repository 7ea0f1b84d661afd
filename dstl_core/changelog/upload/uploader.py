"""Writes the change sets of several tasks into one segment file.

Source: ``AbstractStateChangeFsUploader``, ``StateChangeFsUploader`` and
``DuplicatingStateChangeFsUploader`` of Flink 2.2.1. Unlike in Flink, a failed close fails the
attempt. A file counts only when it exists with its full size. Files that a failed attempt left are
deleted. A local copy that fails does not fail the upload.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypedDict, Unpack
from uuid import uuid4

from dstl_core.changelog.change_set import StateChangeSet
from dstl_core.changelog.local_recovery import LOCAL_RECOVERY_DISABLED, LocalRecoveryConfig
from dstl_core.changelog.registry import TaskChangelogRegistry
from dstl_core.changelog.storage_metrics import ChangelogStorageMetricGroup
from dstl_core.changelog.upload.task import Offsets, UploadTask, UploadTasksResult
from dstl_core.codec.change_format import COMPRESSED_FLAG, PLAIN_FLAG
from dstl_core.codec.snappy_frames import compress_together
from dstl_core.config import ChangelogOptions
from dstl_core.errors import ChangelogError, ConfigError
from dstl_core.model.handle import FileStateHandle
from dstl_core.model.ids import JobID
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import JobLayout, Location

_LOG = logging.getLogger(__name__)

DEFAULT_BUFFER_SIZE = 1 << 20
_POOLED_FROM_BYTES = 1 << 20
"""Below this, new memory costs less than loading Arrow."""
Buffers = Sequence[bytes | memoryview]


class StateChangeUploader(Protocol):
    """Writes tasks into one durable file.

    It completes no task itself: its result does, or its error. An ``OSError`` is retried; other
    errors are not. ``upload`` runs on several threads at once, and twice for the same tasks if the
    first attempt times out.
    """

    def upload(self, tasks: Sequence[UploadTask]) -> UploadTasksResult: ...

    def close(self) -> None: ...


class StateChangeFsUploader:
    """The uploader on a file system: ``<folder>/<random uuid>``. Thread-safe.

    Args:
        file_io: Stores the segments.
        folder: The job's changelog folder.
        registry: Tracks every file, finished or not.
        compressed: Whether the body is one Snappy-framed stream.
        buffer_size: Smaller buffers are joined into writes of this size.
        nano_time: A monotonic clock in nanoseconds, for the latency metric.
        new_name: Makes unique file names.
    """

    def __init__(
        self,
        file_io: FileIO,
        folder: Location,
        registry: TaskChangelogRegistry,
        *,
        compressed: bool = False,
        buffer_size: int = DEFAULT_BUFFER_SIZE,
        metrics: ChangelogStorageMetricGroup | None = None,
        nano_time: Callable[[], int] = time.perf_counter_ns,
        new_name: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._file_io = file_io
        self._folder = folder
        self._registry = registry
        self._compressed = compressed
        self._buffer_size = buffer_size
        self._metrics = metrics if metrics is not None else ChangelogStorageMetricGroup()
        self._nano_time = nano_time
        self._new_name = new_name

    def upload(self, tasks: Sequence[UploadTask]) -> UploadTasksResult:
        """Raises:
        StorageError: The file could not be written, closed and sized.
        ChangelogError: The tasks are empty.
        """
        if not any(task.change_sets for task in tasks):
            raise ChangelogError("An upload needs at least one change set, got none.")
        self._metrics.upload_requests.inc()
        started = self._nano_time()
        tasks_offsets, sets, body_size = _layout(tasks)
        name = self._new_name()
        location = self._folder.child(name)
        path = str(location)
        segment = self._segment(sets)
        self._registry.start_writing(path)
        try:
            self._file_io.write_new(location, segment)
        except BaseException as error:
            self._registry.discard_unfinished(path)
            if isinstance(error, OSError):
                self._metrics.upload_failures.inc()
            raise
        # The handle's size counts the uncompressed body, as in Flink.
        handle = FileStateHandle(path, body_size)
        self._registry.start_tracking(handle, len(sets))
        local_handle = self._duplicate(name, segment, body_size, len(sets))
        self._metrics.upload_latencies_nanos.update(self._nano_time() - started)
        self._metrics.upload_sizes.update(body_size)
        return UploadTasksResult(
            tasks_offsets, handle, local_handle, discard_handle=self._registry.discard
        )

    def _segment(self, sets: Sequence[StateChangeSet]) -> Buffers:
        bodies = [change_set.encoded for change_set in sets]
        if self._compressed:
            return [COMPRESSED_FLAG, compress_together(bodies, _memory)]
        return list(_joined([PLAIN_FLAG, *bodies], self._buffer_size))

    def _duplicate(
        self, name: str, segment: Buffers, body_size: int, references: int
    ) -> FileStateHandle | None:
        """Writes the local copy of a durable segment; None if there is no copy."""
        return None

    def close(self) -> None:
        """Does nothing: no file stays open between uploads."""


class _UploaderOptions(TypedDict, total=False):
    """The keywords of ``StateChangeFsUploader``."""

    compressed: bool
    buffer_size: int
    metrics: ChangelogStorageMetricGroup | None
    nano_time: Callable[[], int]
    new_name: Callable[[], str]


class DuplicatingStateChangeFsUploader(StateChangeFsUploader):
    """Also keeps a copy of each segment on this machine, under the same name.

    The copy is optional: if writing it fails, the upload goes on without it.
    """

    def __init__(
        self,
        file_io: FileIO,
        folder: Location,
        registry: TaskChangelogRegistry,
        local_file_io: FileIO,
        local_folder: Location,
        **options: Unpack[_UploaderOptions],
    ) -> None:
        super().__init__(file_io, folder, registry, **options)
        self._local_file_io = local_file_io
        self._local_folder = local_folder

    def _duplicate(
        self, name: str, segment: Buffers, body_size: int, references: int
    ) -> FileStateHandle | None:
        location = self._local_folder.child(name)
        path = str(location)
        self._registry.start_writing(path)
        try:
            self._local_file_io.write_new(location, segment)
        except OSError as error:
            # A file IO of the user's need not know our StorageError, which is an OSError.
            _LOG.warning("a local copy of a segment was not written: error=%s", error)
            self._registry.discard_unfinished(path)
            return None
        handle = FileStateHandle(path, body_size)
        self._registry.start_tracking(handle, references)
        return handle


def _memory(size: int) -> bytearray | memoryview:
    """Makes the memory of a compressed segment; large memory comes from Arrow's pool."""
    if size < _POOLED_FROM_BYTES:
        return bytearray(size)
    from dstl_core.codec.columnar.types.scratch import scratch_bytes  # loads Arrow

    return scratch_bytes(size)


def _layout(
    tasks: Sequence[UploadTask],
) -> tuple[dict[UploadTask, dict[StateChangeSet, Offsets]], list[StateChangeSet], int]:
    """The offsets of the sets: tasks in order, the sets of a task by writer and number."""
    position = 0
    sets: list[StateChangeSet] = []
    tasks_offsets: dict[UploadTask, dict[StateChangeSet, Offsets]] = {}
    for task in tasks:
        offsets: dict[StateChangeSet, Offsets] = {}
        for change_set in sorted(task.change_sets, key=_by_writer_and_number):
            offsets[change_set] = position, position
            sets.append(change_set)
            position += len(change_set.encoded)
        tasks_offsets[task] = offsets
    return tasks_offsets, sets, position


def _by_writer_and_number(change_set: StateChangeSet) -> tuple[int, int, int]:
    """Java compares the halves of a UUID as signed numbers."""
    high, low = divmod(change_set.log_id.int, 1 << 64)
    sign = 1 << 63
    return high ^ sign, low ^ sign, change_set.sequence_number.number


def _joined(buffers: Buffers, size: int) -> Iterator[bytes | memoryview]:
    """Joins small buffers into buffers of up to ``size`` bytes."""
    small: list[bytes | memoryview] = []
    waiting = 0
    for buffer in buffers:
        if waiting and waiting + len(buffer) > size:
            yield small[0] if len(small) == 1 else b"".join(small)
            small, waiting = [], 0
        small.append(buffer)
        waiting += len(buffer)
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)


def base_location(options: ChangelogOptions) -> Location:
    """The folder of all jobs' changelogs.

    Raises:
        ConfigError: ``base-path`` is not set.
    """
    if options.base_path is None:
        raise ConfigError(
            "A file-system changelog needs a folder: set state.changelog.dstl.dfs.base-path."
        )
    return Location.parse(options.base_path)


def fs_uploader(
    job_id: JobID,
    options: ChangelogOptions,
    file_io: FileIO,
    registry: TaskChangelogRegistry,
    metrics: ChangelogStorageMetricGroup | None = None,
    local_recovery: LocalRecoveryConfig = LOCAL_RECOVERY_DISABLED,
    new_name: Callable[[], str] = lambda: str(uuid4()),
) -> StateChangeUploader:
    """Makes the uploader that the options describe: ``<base path>/<job id>/dstl/<uuid>``."""
    folder = JobLayout.of(base_location(options), job_id.hex).changelog
    keywords: _UploaderOptions = {
        "compressed": options.compression_enabled,
        "buffer_size": options.upload_buffer_size,
        "metrics": metrics,
        "new_name": new_name,
    }
    if not local_recovery.is_local_backup_enabled:
        return StateChangeFsUploader(file_io, folder, registry, **keywords)
    return DuplicatingStateChangeFsUploader(
        file_io,
        folder,
        registry,
        local_recovery.file_io,
        local_recovery.task_owned_dir(job_id),
        **keywords,
    )
