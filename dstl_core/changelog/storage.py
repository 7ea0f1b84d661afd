"""Wires writers, scheduler, uploader and registry of one job together.

Source: ``FsStateChangelogStorage`` of Flink 2.2.1.
"""

from __future__ import annotations

from uuid import UUID

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.registry import TaskChangelogRegistry
from dstl_core.changelog.upload import StateChangeFsUploader, direct_scheduler
from dstl_core.changelog.writer import FsStateChangelogWriter, Mailbox
from dstl_core.config import ChangelogOptions
from dstl_core.model.handle import FileStateHandle, StreamStateHandle
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.location import JobLayout, Location


class FsStateChangelogStorage:
    """The changelog of one job in one process: ``<base path>/<job id>/dstl/<uuid>``.

    Owns the scheduler and the registry; hands out writers, each for one thread.
    """

    def __init__(
        self, job_id: JobID, options: ChangelogOptions, file_io: FileIO | None = None
    ) -> None:
        base = Location.parse(options.base_path)
        self._file_io = file_io if file_io is not None else open_file_io(base)
        self._options = options
        self._next_log = 0
        self.registry = TaskChangelogRegistry(self._file_io)
        self._scheduler = direct_scheduler(
            StateChangeFsUploader(
                self._file_io,
                JobLayout.of(base, job_id.hex).changelog,
                self.registry,
                compressed=options.compression_enabled,
            )
        )

    def create_writer(
        self, operator_id: str, key_group_range: KeyGroupRange, mailbox: Mailbox | None = None
    ) -> FsStateChangelogWriter:
        """A writer for one subtask of an operator, owned by the calling thread.

        With a mailbox, finished uploads ask it to run the writer's ``drain`` on that thread, so
        that futures complete without a further call.
        """
        log_id = UUID(int=self._next_log)
        self._next_log += 1
        return FsStateChangelogWriter(
            log_id,
            key_group_range,
            self._scheduler,
            self.registry,
            preemptive_persist_threshold=self._options.preemptive_persist_threshold,
            mailbox=mailbox,
        )

    def create_reader(self) -> StateChangelogHandleReader:
        """A reader of handles that this storage's writers gave."""
        return StateChangelogHandleReader(self._read_segment)

    def _read_segment(self, handle: StreamStateHandle) -> bytes:
        if not isinstance(handle, FileStateHandle):
            raise TypeError(f"expected a file handle, got {type(handle).__name__}")
        return self._file_io.read_bytes(Location.parse(handle.path))

    def close(self) -> None:
        self._scheduler.close()
