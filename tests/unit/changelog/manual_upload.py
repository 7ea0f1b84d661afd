"""A real uploader whose moment and outcome the test decides."""

from __future__ import annotations

from uuid import UUID, uuid4

from dstl_core.changelog.discarder import FileDiscarder
from dstl_core.changelog.inbox import Mailbox
from dstl_core.changelog.registry import LocalChangelogRegistry, TaskChangelogRegistry
from dstl_core.changelog.upload import (
    DuplicatingStateChangeFsUploader,
    StateChangeFsUploader,
    StateChangeUploadScheduler,
    UploadTask,
)
from dstl_core.changelog.writer import FsPersistFuture, FsStateChangelogWriter
from dstl_core.codec.change_format import read_change_set, segment_body
from dstl_core.model.handle import ChangelogStateHandleStream, FileStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

KEY_GROUPS = KeyGroupRange(0, 5)
SMALL = b"0123456789"
ZERO = SequenceNumber(0)


class ManualUploads(StateChangeUploadScheduler):
    """Keeps tasks until it is told to upload them into one file, or to fail them."""

    def __init__(self, uploader: StateChangeFsUploader) -> None:
        self._uploader = uploader
        self.queued: list[UploadTask] = []
        self.submitted: list[UploadTask] = []

    def upload(self, task: UploadTask) -> None:
        self.queued.append(task)
        self.submitted.append(task)

    def complete_upload(self, count: int | None = None) -> None:
        """Uploads the first ``count`` queued tasks (default: all) into one file."""
        count = len(self.queued) if count is None else count
        tasks, self.queued = self.queued[:count], self.queued[count:]
        if tasks:
            self._uploader.upload(tasks).complete()

    def complete_last(self) -> None:
        self._uploader.upload([self.queued.pop()]).complete()

    def fail_upload(self, error: BaseException) -> None:
        tasks, self.queued = self.queued, []
        for task in tasks:
            task.fail(error)

    @property
    def sizes(self) -> list[int]:
        """Payload bytes of everything that was ever submitted, by task."""
        return [task.size for task in self.submitted]

    def close(self) -> None:
        """Nothing is owned."""


class Changelog:
    """Writers over one manual scheduler and one registry, in an in-memory folder of its own.

    Args:
        local: Whether copies are kept, below ``local``.
    """

    def __init__(self, *, threshold: int = 1000, local: bool = False) -> None:
        self.folder = Location.parse(f"memory://{uuid4().hex}/dstl")
        self.local = self.folder.parent.child("local")
        self.files = open_file_io(self.folder)
        discarder = FileDiscarder(self.files.delete)
        self.registry = TaskChangelogRegistry(discarder)
        self.local_registry = LocalChangelogRegistry.NO_OP
        uploader = StateChangeFsUploader(self.files, self.folder, self.registry)
        if local:
            self.local_registry = LocalChangelogRegistry(discarder)
            uploader = DuplicatingStateChangeFsUploader(
                self.files, self.folder, self.registry, self.files, self.local
            )
        self.scheduler = ManualUploads(uploader)
        self._threshold = threshold
        self._logs = 0

    def writer(self, mailbox: Mailbox | None = None) -> FsStateChangelogWriter:
        self._logs += 1
        return FsStateChangelogWriter(
            UUID(int=self._logs - 1),
            KEY_GROUPS,
            self.scheduler,
            self.registry,
            preemptive_persist_threshold=self._threshold,
            mailbox=mailbox,
            local_registry=self.local_registry,
        )

    def file_names(self) -> set[str]:
        return {str(status.location) for status in self.files.list_folder(self.folder)}

    def remove(self) -> None:
        """Frees the memory."""
        self.files.delete_folder(self.folder.parent)

    def read(self, handle: ChangelogStateHandleStream) -> list[tuple[int, bytes]]:
        """The changes behind a handle; fails if one of its files is gone."""
        changes = []
        for stream, offset in handle.handles_and_offsets:
            assert isinstance(stream, FileStateHandle)
            body = segment_body(self.files.read_bytes(Location.parse(stream.path)))
            changes += [(each.key_group, each.change) for each in read_change_set(body, offset)]
        return changes


def handle_of(future: FsPersistFuture) -> ChangelogStateHandleStream:
    assert future.done()
    return future.result(0).job_manager_owned_snapshot


def files_of(handle: ChangelogStateHandleStream) -> set[str]:
    return {stream.path for stream, _ in handle.handles_and_offsets}  # type: ignore[union-attr]


def append(writer: FsStateChangelogWriter, change: bytes = SMALL) -> SequenceNumber:
    """Appends one change to a set of its own; gives the number of the set."""
    number = writer.next_sequence_number()
    writer.append(0, change)
    return number
