"""Deletes checkpoints and state in an order that is safe under crashes.

Source of the behaviour: ``CheckpointsCleaner`` and ``SharedStateRegistry`` of Flink 2.2.1. Flink
counts the users of a file in a registry; here the metadata of retained checkpoints decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Sequence

from dstl_core.checkpoint.store.guard import DeletionGuard
from dstl_core.checkpoint.store.metadata_file import MetadataFile, load_metadata_file
from dstl_core.checkpoint.store.references import file_handles
from dstl_core.errors import DstlError, FormatError, StateFileNotFoundError
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import StreamStateHandle
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.file_set import RealLocations, real_location
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import (
    METADATA_FILE_NAME,
    SIDECAR_FILE_NAME,
    JobLayout,
    Location,
    checkpoint_id_of,
)

_LOG = logging.getLogger(__name__)


class CheckpointsCleaner:
    """Deletes files in a pipeline's folder, and in folders of snapshots that it has claimed.

    Invariants: (1) metadata is deleted first, so that nobody can open a checkpoint whose files are
    being deleted; (2) if that fails, the files stay; (3) nothing raises: ``dstl gc`` finds files
    that could not be read or deleted; (4) every deletion goes through a ``DeletionGuard``.

    Args:
        file_io: The file IO of the files.
        layout: The folder of the pipeline.
        latest: As in ``DeletionGuard``.
    """

    def __init__(
        self, file_io: FileIO, layout: JobLayout, latest: Callable[[], Container[Location]]
    ) -> None:
        self._file_io = file_io
        self._layout = layout
        self._guard = DeletionGuard(file_io, latest)
        self._roots = [real_location(layout.root)]

    @property
    def roots(self) -> Sequence[Location]:
        """The folders whose files the pipeline owns."""
        return self._roots

    def own(self, snapshot: Location) -> None:
        """Makes the pipeline own the files of a snapshot that it claimed."""
        self._roots.append(real_location(snapshot))
        if checkpoint_id_of(snapshot.name) is not None:
            self._roots.append(real_location(snapshot.parent))

    def own_files(self, file: MetadataFile, needed: Container[Location] = ()) -> set[Location]:
        """The files of a snapshot in folders that the pipeline owns, without needed files."""
        resolver = HandleResolver(self._file_io, file.folder)
        real = RealLocations()
        locations = (
            self._own_file(handle, resolver, real, needed) for handle in file_handles(file.metadata)
        )
        return {location for location in locations if location is not None}

    def checkpoint_folders(self) -> set[int]:
        """The numbers of all ``chk-<n>`` folders of the pipeline, committed or not."""
        return self._numbered_in(self._layout.root)

    def output_folders(self) -> set[int]:
        """The numbers of all folders of stored output, of commits or not."""
        return self._numbered_in(self._layout.output(0).parent)

    def _numbered_in(self, folder: Location) -> set[int]:
        numbers = (
            checkpoint_id_of(status.location.name) for status in self._file_io.list_folder(folder)
        )
        return {number for number in numbers if number is not None}

    def retire(
        self,
        folder: Location,
        needed: Container[Location],
        latest: Callable[[], Container[Location]],
        *,
        even_damaged: bool = False,
    ) -> bool:
        """Deletes a checkpoint with all its files that are not needed.

        While the metadata exists, a new owner may restore this checkpoint. So ``latest`` looks for
        a new owner again after the metadata is deleted and before the first file is.

        Args:
            folder: The folder of the checkpoint.
            needed: Files that stay.
            latest: As in ``DeletionGuard``. It also raises if the pipeline has another owner.
            even_damaged: Whether a checkpoint goes whose metadata is damaged. What it names outside
                of its folder is unknown, and stays until a sweep of files that nothing names.

        Returns:
            False if part of the checkpoint is left.
        """
        guard = DeletionGuard(self._file_io, latest)
        try:
            try:
                files = self._files_in(folder, needed)
            except FormatError as error:
                if not even_damaged:
                    raise
                _LOG.warning("%s is deleted without knowing its files: %s", folder, error)
                files = set()
            if not _delete_metadata(guard, folder):
                return False
            for location in sorted(files, key=str):
                guard.delete(location)
            guard.delete_folder(folder, needed)
        except DstlError as error:
            _LOG.warning("%s is left for gc: %s", folder.name, error)
            return False
        return True

    def withdraw(self, folder: Location) -> bool:
        """Deletes the metadata of a refused snapshot; False if it may still exist."""
        try:
            return _delete_metadata(self._guard, folder)
        except DstlError as error:
            _LOG.warning("a refused snapshot is left for gc: %s", error)
            return False

    def discard(
        self,
        states: Iterable[OperatorSubtaskState],
        needed: Container[Location],
        folder: Location,
        *,
        not_below: Sequence[Location] = (),
    ) -> None:
        """Deletes the files of state that no checkpoint needs.

        Args:
            states: The reported state.
            needed: Files that stay.
            folder: The folder that relative paths start from.
            not_below: Folders whose files are deleted by others.
        """
        others = [real_location(each) for each in not_below]
        resolver, real = HandleResolver(self._file_io, folder), RealLocations()
        for state in states:
            for stream in state.streams():
                try:
                    location = self._own_file(stream, resolver, real, needed)
                    if location is not None and not any(
                        other.contains(real.of(location)) for other in others
                    ):
                        self._guard.delete(location)
                except DstlError as error:
                    _LOG.warning("could not discard a file; gc will find it: %s", error)

    def delete_folder(self, folder: Location, needed: Container[Location] = ()) -> None:
        """Deletes a folder with its files, unless one of them is needed."""
        try:
            self._guard.delete_folder(folder, needed)
        except DstlError as error:
            _LOG.warning("%s is left for gc: %s", folder.name, error)

    def _files_in(self, folder: Location, needed: Container[Location]) -> set[Location]:
        """As ``own_files``; none if an interrupted deletion has removed the metadata already."""
        try:
            return self.own_files(load_metadata_file(self._file_io, folder), needed)
        except StateFileNotFoundError:
            return set()

    def _own_file(
        self,
        stream: StreamStateHandle,
        resolver: HandleResolver,
        real: RealLocations,
        needed: Container[Location],
    ) -> Location | None:
        """The file of a stream, if the pipeline owns its folder and the file is not needed."""
        for place in resolver.places(stream):
            if place in needed:
                return None
            real_place = real.of(place)
            if any(root.contains(real_place) for root in self._roots):
                return place
        return None


def _delete_metadata(guard: DeletionGuard, folder: Location) -> bool:
    return guard.delete(folder.child(METADATA_FILE_NAME), folder.child(SIDECAR_FILE_NAME))
