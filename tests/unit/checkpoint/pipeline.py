"""A pipeline's folder on real files, for tests of the store and of the shell around it."""

from __future__ import annotations

from pathlib import Path

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.clock import Clock
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    FileStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    StreamStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.location import JobLayout, Location
from dstl_core.storage.walk import files_below
from tests.uncertain_file_io import FixedClock, UncertainFileIO

RANGE = KeyGroupRange(0, 0)


class Pipeline:
    """A job folder with real files, and any number of owners.

    Args:
        path: A folder for it.
        files: How it is reached, perhaps by another process.
        job_id: Of the pipeline.
    """

    def __init__(
        self, path: Path | Location, files: FileIO | None = None, job_id: str = "ab" * 16
    ) -> None:
        base = path if isinstance(path, Location) else Location.parse(path / "base")
        self.layout = JobLayout.of(base, job_id)
        self.files = UncertainFileIO(files or open_file_io(self.layout.root, fsync=False))

    def store(
        self,
        *,
        num_retained: int = 1,
        retain_ms: int = 0,
        num_retained_outputs: int | None = None,
        files: FileIO | None = None,
        clock: Clock | None = None,
    ) -> CompletedCheckpointStore:
        return CompletedCheckpointStore(
            files or self.files,
            self.layout,
            clock or FixedClock(),
            num_retained=num_retained,
            retain_ms=retain_ms,
            num_retained_outputs=num_retained_outputs,
        )

    def owner(self, name: str = "owner", *, num_retained: int = 1) -> CompletedCheckpointStore:
        store = self.store(num_retained=num_retained)
        store.claim(name)
        return store

    def write(self, name: str, size: int = 4) -> FileStateHandle:
        """A file below the job folder, and its absolute handle."""
        location = self.layout.root.child(name)
        self.files.write_new(location, bytes(size))
        return FileStateHandle(str(location), size)

    def there(self) -> set[str]:
        """Names of all files below the job folder, but for the commit log."""
        root = self.layout.root
        names = {each.location.relative_to(root) for each in files_below(self.files, root)}
        return {name for name in names if not name.startswith("_dstl/")}


def subtask(*streams: StreamStateHandle) -> OperatorSubtaskState:
    """A base in the first stream, segments in the others."""
    base = KeyGroupsSavepointStateHandle(KeyGroupRangeOffsets(RANGE, (0,)), streams[0])
    segments = tuple((stream, 0) for stream in streams[1:])
    log = ChangelogStateHandleStream(segments, RANGE, 0, 0, "log")
    handle = ChangelogStateBackendHandle((base,), (log,), RANGE, 0, 0, 0, "id")
    return OperatorSubtaskState(0, managed_keyed_state=handle)


def metadata(checkpoint_id: int, *streams: StreamStateHandle) -> CheckpointMetadata:
    operator = OperatorState(OperatorID.for_uid("u"), 1, 1, (subtask(*streams),), uid="u")
    return CheckpointMetadata(3, checkpoint_id, (operator,))


def named_by(store: CompletedCheckpointStore, checkpoint: CompletedCheckpoint) -> list[Location]:
    """The files of absolute handles in a checkpoint."""
    [operator] = store.load(checkpoint).metadata.operators
    streams = [stream for each in operator.subtasks for stream in each.streams()]
    return [Location.parse(each.path) for each in streams if isinstance(each, FileStateHandle)]
