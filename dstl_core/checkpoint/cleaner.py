"""Deletes checkpoints and state, in an order that a crash cannot hurt.

Source of the behaviour: ``CheckpointsCleaner`` and ``SharedStateRegistry`` of Flink 2.2.1. There a
registry counts who uses a file; here the retained metadata says so.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from dstl_core.checkpoint.metadata_file import MetadataFile, load_metadata_file
from dstl_core.errors import DstlError, StateFileNotFoundError
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import (
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import (
    METADATA_FILE_NAME,
    SIDECAR_FILE_NAME,
    JobLayout,
    Location,
    checkpoint_id_of,
)

_LOG = logging.getLogger(__name__)


class CheckpointsCleaner:
    """Deletes what lies in a pipeline's folder, or in that of a snapshot it has claimed.

    Invariants: (1) metadata goes first, so that a checkpoint stops being addressable before its
    files go; (2) if it does not go, its files stay; (3) nothing raises: what cannot be read or
    deleted is left for gc.
    """

    def __init__(self, file_io: FileIO, layout: JobLayout) -> None:
        self._file_io = file_io
        self._layout = layout
        self._roots = [layout.root]

    @property
    def roots(self) -> Sequence[Location]:
        """The folders whose files are the pipeline's own."""
        return self._roots

    def own(self, snapshot: Location) -> None:
        """The pipeline claimed a snapshot: its files are its own from now on."""
        self._roots.append(snapshot)
        if checkpoint_id_of(snapshot.name) is not None:
            self._roots.append(snapshot.parent)

    def named_files(self, file: MetadataFile) -> set[Location]:
        """What a snapshot names in the folders that are the pipeline's own."""
        streams = (
            stream
            for operator in file.metadata.operators
            for subtask in operator.subtasks
            for stream in subtask.streams()
        )
        found = (self._own_file(stream, file.folder) for stream in streams)
        return {location for location in found if location is not None}

    def files_of(self, folder: Location) -> set[Location]:
        """As ``named_files``; nothing if the snapshot was retired half-way, when its metadata was
        already gone.
        """
        try:
            return self.named_files(load_metadata_file(self._file_io, folder))
        except StateFileNotFoundError:
            return set()

    def checkpoint_folders(self) -> set[int]:
        """The numbers of all ``chk-<n>`` folders of the pipeline, committed or not."""
        statuses = self._file_io.list_folder(self._layout.root)
        numbers = (checkpoint_id_of(status.location.name) for status in statuses)
        return {number for number in numbers if number is not None}

    def retire(self, folder: Location, needed: Collection[Location]) -> bool:
        """Deletes a checkpoint with all files that nothing needed names; False if any is left."""
        try:
            files = self.files_of(folder).difference(needed)
            self._delete_metadata(folder)
            for location in sorted(files, key=str):
                self._file_io.delete(location)
            if not any(folder.contains(location) for location in needed):
                self._file_io.delete_folder(folder)
        except DstlError as error:
            _LOG.warning("%s is left for gc: %s", folder.name, error)
            return False
        return True

    def withdraw(self, folder: Location) -> bool:
        """Makes a snapshot that was refused unreadable; False if its metadata may still stand."""
        try:
            self._delete_metadata(folder)
        except DstlError as error:
            _LOG.warning("a refused snapshot is left for gc: %s", error)
            return False
        return True

    def discard(
        self,
        states: Iterable[OperatorSubtaskState],
        needed: Collection[Location],
        folder: Location,
        *,
        not_below: Sequence[Location] = (),
    ) -> None:
        """Deletes the files of state that nobody needs.

        Args:
            states: What was reported.
            needed: Files that stay.
            folder: Where the relative ones among them lie.
            not_below: Folders whose files somebody else releases.
        """
        for state in states:
            for stream in state.streams():
                try:
                    location = self._own_file(stream, folder)
                    if location is None or location in needed:
                        continue
                    if not any(each.contains(location) for each in not_below):
                        self._file_io.delete(location)
                except DstlError as error:
                    _LOG.warning("could not discard a file; gc will find it: %s", error)

    def delete_folder(self, folder: Location) -> None:
        try:
            self._file_io.delete_folder(folder)
        except DstlError as error:
            _LOG.warning("%s is left for gc: %s", folder.name, error)

    def _delete_metadata(self, folder: Location) -> None:
        self._file_io.delete(folder.child(METADATA_FILE_NAME))
        self._file_io.delete(folder.child(SIDECAR_FILE_NAME))

    def _own_file(self, stream: StreamStateHandle, folder: Location) -> Location | None:
        """The file of a stream, if it lies in a folder of ours: others are not ours to delete."""
        match stream:
            case FileStateHandle() | SegmentFileStateHandle():
                location = Location.parse(stream.path)
            case RelativeFileStateHandle():
                location = folder.child(stream.relative_path)
            case _:
                return None
        return location if any(root.contains(location) for root in self._roots) else None
