"""The folders of checkpoints and savepoints.

Source: ``CheckpointStorage`` and ``FsCheckpointStorageAccess`` of Flink 2.2.1.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Protocol

from dstl_core.checkpoint.store.metadata_file import MetadataFile, load_metadata_file
from dstl_core.errors import ConfigError, StorageError
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.location import METADATA_FILE_NAME, JobLayout, Location

_NAME_ATTEMPTS = 10


class CheckpointStorage(Protocol):
    """Finds snapshots, and makes folders for new ones."""

    def resolve_checkpoint(self, pointer: str) -> MetadataFile:
        """Loads the snapshot at ``pointer``: its folder, or the ``_metadata`` in it."""
        ...

    def has_default_savepoint_location(self) -> bool: ...

    def initialize_location_for_checkpoint(self, checkpoint_id: int) -> Location:
        """The folder of a checkpoint's exclusive files."""
        ...

    def initialize_location_for_savepoint(
        self, checkpoint_id: int, external_location: str | None
    ) -> Location:
        """Makes a folder below ``external_location``, or below the default folder."""
        ...


class FileSystemCheckpointStorage:
    """On a file system: ``<dir>/<job id>/chk-<n>`` and ``<target>/savepoint-<job>-<random>``.

    Args:
        layout: The folder of the pipeline.
        savepoint_dir: Default folder of savepoints.
        file_io: The pipeline's file system.
        new_name: Makes twelve random hex digits.
    """

    def __init__(
        self,
        layout: JobLayout,
        *,
        savepoint_dir: str | None = None,
        file_io: FileIO | None = None,
        new_name: Callable[[], str] = lambda: secrets.token_hex(6),
    ) -> None:
        self._layout = layout
        self._savepoint_dir = savepoint_dir
        self._file_io = file_io if file_io is not None else open_file_io(layout.root)
        self._new_name = new_name

    def resolve_checkpoint(self, pointer: str) -> MetadataFile:
        location = Location.parse(pointer)
        return load_metadata_file(self._file_io_of(location), location)

    def has_default_savepoint_location(self) -> bool:
        return self._savepoint_dir is not None

    def initialize_location_for_checkpoint(self, checkpoint_id: int) -> Location:
        """Raises: StorageError: The folder holds another checkpoint."""
        folder = self._layout.checkpoint(checkpoint_id)
        if self._file_io.size(folder.child(METADATA_FILE_NAME)) is not None:
            raise StorageError(
                f"The folder of checkpoint {checkpoint_id} already holds a checkpoint of another "
                f"owner: {folder}; try again, which takes the next id.",
                path=str(folder),
            )
        return folder

    def initialize_location_for_savepoint(
        self, checkpoint_id: int, external_location: str | None
    ) -> Location:
        """Raises: ConfigError: No folder is given or configured."""
        target = external_location or self._savepoint_dir
        if target is None:
            raise ConfigError(
                f"No folder is given or configured for savepoint {checkpoint_id}; give a folder, "
                f"or set execution.checkpointing.savepoint-dir."
            )
        base = Location.parse(target)
        file_io = self._file_io_of(base)
        job = self._layout.root.name[:6]
        for _ in range(_NAME_ATTEMPTS):
            folder = base.child(f"savepoint-{job}-{self._new_name()}")
            if not file_io.list_folder(folder):
                return folder
        raise StorageError(
            f"No unused name for a savepoint was found in {base}; delete old savepoints, or give "
            f"another folder.",
            path=str(base),
        )

    def _file_io_of(self, location: Location) -> FileIO:
        if location.scheme == self._layout.root.scheme:
            return self._file_io
        return open_file_io(location)
