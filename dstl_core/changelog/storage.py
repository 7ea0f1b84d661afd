"""The changelog storage of a job: connects its writers, scheduler, uploader and registries.

Source: ``FsStateChangelogStorage`` and ``FsStateChangelogStorageForRecovery`` of Flink 2.2.1.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from uuid import UUID, uuid4

from dstl_core.changelog.discarder import FileDiscarder, delete_by_scheme
from dstl_core.changelog.inbox import Mailbox
from dstl_core.changelog.local_recovery import LOCAL_RECOVERY_DISABLED, LocalRecoveryConfig
from dstl_core.changelog.open_segments import Segment
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.registry import LocalChangelogRegistry, TaskChangelogRegistry
from dstl_core.changelog.segment_cache import ChangelogStreamHandleReaderWithCache
from dstl_core.changelog.storage_metrics import ChangelogStorageMetricGroup
from dstl_core.changelog.upload.scheduler import (
    BatchingStateChangeUploadScheduler,
    StateChangeUploadScheduler,
)
from dstl_core.changelog.upload.throttle import AvailabilityProvider
from dstl_core.changelog.upload.uploader import StateChangeUploader, base_location, fs_uploader
from dstl_core.changelog.writer import FsStateChangelogWriter
from dstl_core.closing import Closing
from dstl_core.config import ChangelogOptions
from dstl_core.errors import ConfigError, PathNotAllowedError
from dstl_core.metrics import MetricGroup
from dstl_core.model.handle import FileStateHandle, StreamStateHandle
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.scheduling import Scheduler, ThreadScheduler
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location

_LOG = logging.getLogger(__name__)

_CLOSE_TIMEOUT_MS = 5_000


class FsStateChangelogStorage(Closing):
    """The changelog of one job in one process: ``<base path>/<job id>/dstl/<uuid>``.

    It owns the scheduler, the registries and, unless they are given, the threads. It makes writers,
    each for one thread. All writers share files, limits and metrics. ``close`` must be called: it
    completes the uploads that wait.

    Args:
        file_io: Stores the segments; by default the file system of ``base-path``.
        metrics: The parent group of the storage's metrics.
        local_recovery: Folders for copies of segments on this machine; by default there are none.
        uploader: Replaces the file-system uploader.
        scheduler: Makes the scheduler of the uploader. By default it is the batching one;
            ``StateChangeUploadScheduler.direct_scheduler`` uploads at once on the writer's thread,
            without batches, retries and limits.
        threads: Runs uploads, timers, callbacks and deletions. The storage does not close it.
        new_name: Makes unique file names.
    """

    def __init__(
        self,
        job_id: JobID,
        options: ChangelogOptions,
        file_io: FileIO | None = None,
        *,
        metrics: MetricGroup | None = None,
        local_recovery: LocalRecoveryConfig = LOCAL_RECOVERY_DISABLED,
        uploader: StateChangeUploader | None = None,
        scheduler: Callable[[StateChangeUploader], StateChangeUploadScheduler] | None = None,
        threads: Scheduler | None = None,
        new_name: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        base = base_location(options)
        remote = file_io if file_io is not None else open_file_io(base, fsync=options.fsync)
        self._file_ios = {"file": local_recovery.file_io, base.scheme: remote}
        self._roots = [base, *local_recovery.folders]
        self._options = options
        self._log_ids = itertools.count()
        self._owns_threads = threads is None
        self._threads = threads if threads is not None else ThreadScheduler("dstl-changelog")
        self.metrics = ChangelogStorageMetricGroup(metrics)
        self._discarder = FileDiscarder(
            delete_by_scheme(self._file_ios), self._threads, options.num_discard_threads
        )
        self.registry = TaskChangelogRegistry(self._discarder)
        self.local_registry = (
            LocalChangelogRegistry(self._discarder)
            if local_recovery.is_local_backup_enabled
            else LocalChangelogRegistry.NO_OP
        )
        if uploader is None:
            uploader = fs_uploader(
                job_id,
                options,
                remote,
                self.registry,
                self.metrics,
                local_recovery,
                new_name,
            )
        self._scheduler = (
            scheduler(uploader)
            if scheduler is not None
            else BatchingStateChangeUploadScheduler.of_options(
                uploader, self._threads, options, self.metrics
            )
        )

    def create_writer(
        self, operator_id: str, key_group_range: KeyGroupRange, mailbox: Mailbox | None = None
    ) -> FsStateChangelogWriter:
        """Makes a writer for one subtask of an operator. The calling thread owns it.

        A finished upload asks the mailbox, if there is one, to run the writer's ``drain`` on that
        thread. Then futures complete without a further call.
        """
        log_id = UUID(int=next(self._log_ids))
        _LOG.debug("a changelog writer starts: operator_id=%s log_id=%s", operator_id, log_id)
        return FsStateChangelogWriter(
            log_id,
            key_group_range,
            self._scheduler,
            self.registry,
            preemptive_persist_threshold=self._options.preemptive_persist_threshold,
            mailbox=mailbox,
            local_registry=self.local_registry,
            threads=self._threads,
        )

    def create_reader(self) -> StateChangelogHandleReader:
        """Makes a reader of the handles of this storage's writers. It also reads local copies."""
        return StateChangelogHandleReader(segment_reader(self._file_ios, self._roots))

    def get_availability_provider(self) -> AvailabilityProvider:
        """Says whether uploads have room for another append."""
        return self._scheduler.get_availability_provider()

    def flush(self) -> None:
        """Uploads now what waits for the sets of other writers."""
        self._scheduler.flush()

    @property
    def bytes_in_flight(self) -> int:
        """Bytes that count towards ``upload.max-in-flight`` now; 0 with direct uploads."""
        return self._scheduler.bytes_in_flight

    @property
    def orphans(self) -> tuple[str, ...]:
        """Unreferenced files of this storage that it failed to delete; ``dstl gc`` finds them."""
        return self.registry.orphans

    def close(self) -> None:
        """Ends all uploads. Uploads that are not durable yet fail; their writers keep them.

        Pending deletions get some seconds. ``orphans`` lists the files that are left.
        """
        self._scheduler.close()
        self.registry.close()
        self.local_registry.close()
        self._discarder.close(_CLOSE_TIMEOUT_MS)
        if self._owns_threads:
            self._threads.close(_CLOSE_TIMEOUT_MS)


def segment_reader(
    file_ios: Mapping[str, FileIO], roots: Sequence[Location]
) -> Callable[[StreamStateHandle], bytes]:
    """Makes a function that reads whole segment files below the roots, by their path's scheme."""
    resolvers = {}
    for scheme, file_io in file_ios.items():
        of_scheme = [root for root in roots if root.scheme == scheme]
        if of_scheme:
            resolvers[scheme] = HandleResolver(file_io, of_scheme[0], allow_roots=of_scheme[1:])

    def read_segment(handle: StreamStateHandle) -> bytes:
        if not isinstance(handle, FileStateHandle):
            raise ConfigError(f"A changelog segment must be a file, got a {type(handle).__name__}.")
        resolver = resolvers.get(Location.parse(handle.path).scheme)
        if resolver is None:
            raise PathNotAllowedError(
                f"A changelog segment is refused: {handle.path} lies outside "
                f"{', '.join(map(str, roots))}.",
                path=handle.path,
            )
        return resolver.read_segment(handle)

    return read_segment


class FsStateChangelogStorageForRecovery(Closing):
    """A storage that only reads. It downloads each remote segment once and caches it for a while.

    It owns the cache and, unless they are given, the threads that empty it. ``close`` must be
    called.

    Args:
        read_segment: Returns the whole segment file of a handle (``segment_reader``).
        options: Set how long an unused segment stays cached.
        cache_folders: Folders for downloads; by default the system's temporary folder.
    """

    def __init__(
        self,
        read_segment: Callable[[StreamStateHandle], Segment],
        options: ChangelogOptions,
        *,
        cache_folders: Sequence[Path] = (),
        threads: Scheduler | None = None,
        random: Random | None = None,
    ) -> None:
        self._owns_threads = threads is None
        self._threads = threads if threads is not None else ThreadScheduler("dstl-recovery")
        self._reader = ChangelogStreamHandleReaderWithCache(
            read_segment,
            cache_folders or [Path(tempfile.gettempdir())],
            idle_timeout_ms=options.local_cache_idle_timeout_ms,
            threads=self._threads,
            random=random if random is not None else Random(),
        )

    def create_reader(self) -> StateChangelogHandleReader:
        """Makes a reader. All readers share the cache."""
        return self._reader

    def close(self) -> None:
        """Deletes the cached segments."""
        self._reader.close()
        if self._owns_threads:
            self._threads.close(_CLOSE_TIMEOUT_MS)
