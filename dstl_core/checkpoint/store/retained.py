"""The files that the checkpoints of a running pipeline reference."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.metadata_file import MetadataFile, load_metadata_file
from dstl_core.checkpoint.store.references import references_of
from dstl_core.errors import CheckpointError, StateFileNotFoundError
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.file_set import FileSet
from dstl_core.storage.location import JobLayout, Location, checkpoint_id_of

LOOKS = 20
_KNOWN = 8


class Store(Protocol):
    """The part of ``CompletedCheckpointStore`` that this module needs."""

    layout: JobLayout

    @property
    def latest(self) -> CompletedCheckpoint | None: ...

    def refresh(self) -> None: ...

    def load(self, checkpoint: CompletedCheckpoint) -> MetadataFile: ...

    def folder_of(self, checkpoint: CompletedCheckpoint) -> Location: ...

    def file_io_of(self, folder: Location) -> FileIO: ...


class ReferencedFiles:
    """Finds referenced files by the log and the metadata of a store. Not thread-safe.

    Every method raises a ``DstlError`` if the references of a checkpoint are unknown. Then no file
    may be deleted.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, FileSet] = {}
        """Referenced files by data version. A commit never changes."""
        self.checkpoints = 0
        """Number of checkpoints in the last result of ``all``."""

    def of(self, checkpoints: Iterable[CompletedCheckpoint]) -> FileSet:
        """The files that these checkpoints reference, according to their present metadata."""
        files = FileSet()
        for checkpoint in checkpoints:
            file = self._store.load(checkpoint)
            named = references_of(self._store.file_io_of(file.folder), file)
            for name in checkpoint.facts.output_files:
                named.add_name(name)
            files.update(named)
            self._known[checkpoint.data_version] = named
        for version in list(self._known)[:-_KNOWN]:
            del self._known[version]
        return files

    def latest(self) -> FileSet:
        """The files that the latest checkpoint references. It reads the log again."""
        for _ in range(LOOKS):
            self._store.refresh()
            latest = self._store.latest
            if latest is None:
                return FileSet()
            if latest.data_version in self._known:
                return self._known[latest.data_version]
            try:
                return self.of([latest])
            except StateFileNotFoundError:
                self._store.refresh()
                if self._store.latest == latest:
                    if latest.properties.unclaimed:
                        return FileSet()  # another owner had it and has deleted it
                    raise
        raise self._too_busy()

    def all(self) -> FileSet:
        """The files that the checkpoints in the pipeline's folder and the latest one reference.

        Uncommitted checkpoints count, because Flink may use them. The pipeline may commit and
        retire at the same time. Without a commit nothing is retired, so this reads the checkpoints
        again until no commit has come in between.
        """
        for _ in range(LOOKS):
            self._store.refresh()
            before = self._store.latest
            files, self.checkpoints = FileSet(), 0
            root = self._store.layout.root
            for status in self._store.file_io_of(root).list_folder(root):
                if checkpoint_id_of(status.location.name) is not None:
                    self.checkpoints += self._add(files, status.location)
            files.update(self.latest())
            if self._store.latest == before:
                return files
        raise self._too_busy()

    def references_of_existing(self, checkpoints: Iterable[CompletedCheckpoint]) -> FileSet:
        """The files that the given checkpoints reference; skips those without metadata."""
        files = FileSet()
        for checkpoint in checkpoints:
            self._add(files, self._store.folder_of(checkpoint))
        return files

    def _add(self, files: FileSet, folder: Location) -> bool:
        """Adds the files that a snapshot references; False if it was retired or is not published
        yet.
        """
        file_io = self._store.file_io_of(folder)
        with suppress(StateFileNotFoundError):
            files.update(references_of(file_io, load_metadata_file(file_io, folder)))
            return True
        return False

    def _too_busy(self) -> CheckpointError:
        root = self._store.layout.root
        return CheckpointError(
            f"The files that the checkpoints in {root} reference are unknown: a commit came in "
            f"between at each of {LOOKS} attempts to read them; try again when the pipeline is "
            f"less busy.",
            location=str(root),
        )
