"""The completed checkpoints of one pipeline, on the commit log.

Source of the behaviour: ``DefaultCompletedCheckpointStore``, ``CheckpointSubsumeHelper`` and
``SharedStateRegistry`` of Flink 2.2.1.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dstl_core.checkpoint.metadata_file import (
    MetadataFile,
    load_metadata_file,
    publish_metadata_file,
)
from dstl_core.errors import (
    CheckpointError,
    ConfigError,
    DstlError,
    FormatError,
    StateFileNotFoundError,
    error_context,
)
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorSubtaskState
from dstl_core.model.handle import (
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from dstl_core.storage.commit_log import CommitLog, LogRecord
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.json_document import CONVERSION_ERRORS
from dstl_core.storage.location import (
    METADATA_FILE_NAME,
    SIDECAR_FILE_NAME,
    JobLayout,
    Location,
    checkpoint_id_of,
)

_LOG = logging.getLogger(__name__)
_CHECKPOINT_ID = "checkpoint_id"
_FIRST_ID = "first_checkpoint_id"


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """One commit: where its metadata lies, and the facts that were recorded with it."""

    checkpoint_id: int
    parent: int | None
    metadata_sha256: str
    committed_ms: int
    facts: Mapping[str, Any]

    @property
    def data_version(self) -> str:
        """Names the content: the same commit always has the same version."""
        return f"ck-{self.checkpoint_id}:{self.metadata_sha256}"

    @classmethod
    def of(cls, record: LogRecord) -> CompletedCheckpoint:
        payload = record.payload
        try:
            parent = payload["parent"]
            return cls(
                int(payload[_CHECKPOINT_ID]),
                None if parent is None else int(parent),
                str(payload["metadata_sha256"]),
                record.at_ms,
                dict(payload["facts"]),
            )
        except CONVERSION_ERRORS as error:
            raise FormatError(
                f"Commit record {record.number} is damaged ({error})", number=record.number
            ) from error


class CompletedCheckpointStore:
    """Commits checkpoints and retires old ones. One owner at a time, by the claim it holds.

    Invariants: (1) ``latest`` is the last commit record; (2) a checkpoint's metadata is published
    before its commit record; (3) a file is deleted only if no retained metadata names it, and
    after the metadata that named it.
    """

    def __init__(
        self, file_io: FileIO, layout: JobLayout, log: CommitLog, *, num_retained: int = 1
    ) -> None:
        if num_retained < 1:
            raise ConfigError(f"At least one checkpoint must be retained, got {num_retained}.")
        self._file_io = file_io
        self.layout = layout
        self._log = log
        self._num_retained = num_retained
        self._owner: str | None = None

    def refresh(self) -> None:
        """Takes in what others committed."""
        self._log.refresh()

    def claim(self, owner: str) -> None:
        """Becomes the owner; whoever was it before can commit no more.

        The claim names the first checkpoint id of the new owner. The old one may still have one
        checkpoint in flight, whose id is skipped: no two owners ever use the same folder.
        """

        def payload() -> dict[str, int]:
            in_flight = 1 if self._log.latest_claim is not None else 0
            return {_FIRST_ID: self.next_checkpoint_id() + in_flight}

        self._log.claim(owner, payload)
        self._owner = owner

    def abort(self, checkpoint_id: int) -> None:
        """Records that a checkpoint of this owner will never be, so that its id is used up.

        Raises:
            FencedError: Another owner has claimed the pipeline.
        """
        self._log.append(self._require_owner(), "abort", {_CHECKPOINT_ID: checkpoint_id})

    def check_claim(self) -> None:
        """Raises FencedError if another owner has claimed the pipeline since."""
        self._log.refresh()
        if self._owner is not None:
            self._log.check_claim(self._owner)

    @property
    def completed(self) -> list[CompletedCheckpoint]:
        """All commits, oldest first, retired ones too."""
        with error_context(location=str(self.layout.commit_log)):
            return [CompletedCheckpoint.of(record) for record in self._log.commits]

    @property
    def latest(self) -> CompletedCheckpoint | None:
        commits = self._log.commits
        return CompletedCheckpoint.of(commits[-1]) if commits else None

    def next_checkpoint_id(self) -> int:
        """The id after all that claims, commits and aborts have used."""
        next_id = 1
        for record in self._log.records:
            with error_context(location=str(self.layout.commit_log)):
                next_id = max(next_id, _id_after(record))
        return next_id

    def load(self, checkpoint: CompletedCheckpoint) -> MetadataFile:
        """The metadata of a commit.

        Raises:
            CheckpointError: What lies there is not what was committed.
        """
        found = load_metadata_file(self._file_io, self.layout.checkpoint(checkpoint.checkpoint_id))
        if found.sha256 != checkpoint.metadata_sha256:
            raise CheckpointError(
                f"The metadata of checkpoint {checkpoint.checkpoint_id} is not what was "
                f"committed: expected sha256 {checkpoint.metadata_sha256}, got {found.sha256}.",
                location=str(found.folder),
            )
        return found

    def commit(self, metadata: CheckpointMetadata, facts: Mapping[str, Any]) -> CompletedCheckpoint:
        """Publishes metadata, then the commit record.

        Raises:
            FencedError: Another owner has claimed the pipeline.
            StorageError: The metadata could not be published; the id is used up. Or the record
                could not: whether it stands is seen after the next ``refresh``.
        """
        owner = self._require_owner()
        parent = self.latest
        parent_id = None if parent is None else parent.checkpoint_id
        folder = self.layout.checkpoint(metadata.checkpoint_id)
        try:
            digest, size = publish_metadata_file(
                self._file_io, folder, metadata, {"parent": parent_id, **facts}
            )
        except DstlError:
            # What lies in the folder now is unknown, so its id must not be used again.
            self.abort(metadata.checkpoint_id)
            raise
        record = self._log.append(
            owner,
            "commit",
            {
                _CHECKPOINT_ID: metadata.checkpoint_id,
                "parent": parent_id,
                "metadata_sha256": digest,
                "facts": {"metadata_bytes": size, **facts},
            },
        )
        return CompletedCheckpoint.of(record)

    def _require_owner(self) -> str:
        if self._owner is None:
            raise CheckpointError("Nothing was claimed; claim the pipeline before committing.")
        return self._owner

    # ---------------------------------------------------------------------------- retention

    def subsume(self) -> list[int]:
        """Retires checkpoints beyond the retained number, oldest first; returns their ids.

        Metadata goes first, so that a checkpoint stops being addressable before its files go.
        Only the owner retires. It never raises for what lies in the folder: the commit before it
        stands, and what cannot be read or deleted is left for gc.
        """
        try:
            self._require_owner()
            self.check_claim()
            commits = self.completed
            there = self._checkpoint_folders()
            retained = commits[-self._num_retained :]
            needed = {file for each in retained for file in self._named_files(self.load(each))}
        except DstlError as error:
            # Without every retained checkpoint nobody knows which files are needed.
            _LOG.warning("no checkpoint was retired: %s", error)
            return []
        ids = [each.checkpoint_id for each in commits[: -self._num_retained]]
        return [each for each in ids if each in there and self._retire(each, needed)]

    def _retire(self, checkpoint_id: int, needed: set[Location]) -> bool:
        folder = self.layout.checkpoint(checkpoint_id)
        try:
            files = self._files(checkpoint_id) - needed
            self._file_io.delete(folder.child(METADATA_FILE_NAME))
            self._file_io.delete(folder.child(SIDECAR_FILE_NAME))
            for location in files:
                self._file_io.delete(location)
            if not any(folder.contains(location) for location in needed):
                self._file_io.delete_folder(folder)
        except DstlError as error:
            _LOG.warning("checkpoint %d is left for gc: %s", checkpoint_id, error)
            return False
        return True

    def withdraw(self, metadata: CheckpointMetadata) -> None:
        """Removes a checkpoint that was published and then refused by the log."""
        folder = self.layout.checkpoint(metadata.checkpoint_id)
        self._file_io.delete(folder.child(METADATA_FILE_NAME))
        for operator in metadata.operators:
            self.discard(operator.subtasks)
        self._file_io.delete_folder(folder)

    def discard(self, states: tuple[OperatorSubtaskState, ...]) -> None:
        """Deletes the files of state that no commit names. Errors leave orphans for gc.

        The tasks that wrote the state must be gone: a changelog writer that lives on would name
        its files again in the next checkpoint.
        """
        try:
            # A commit whose answer got lost may stand in the log by now.
            self._log.refresh()
            there = self._checkpoint_folders()
            ids = [each.checkpoint_id for each in self.completed]
            needed = {file for each in ids if each in there for file in self._files(each)}
        except DstlError as error:
            _LOG.warning("nothing was discarded; gc will find it: %s", error)
            return
        for state in states:
            for stream in state.streams():
                try:
                    location = self._own_file(stream, self.layout.root)
                    if location is not None and location not in needed:
                        self._file_io.delete(location)
                except DstlError as error:
                    _LOG.warning("could not discard a file; gc will find it: %s", error)

    def _checkpoint_folders(self) -> set[int]:
        """The numbers of all ``chk-<n>`` folders, committed or not."""
        statuses = self._file_io.list_folder(self.layout.root)
        numbers = (checkpoint_id_of(status.location.name) for status in statuses)
        return {number for number in numbers if number is not None}

    def _files(self, checkpoint_id: int) -> set[Location]:
        """What a checkpoint names in this pipeline's folder; nothing if it was retired half-way,
        when its metadata was already gone.
        """
        try:
            found = load_metadata_file(self._file_io, self.layout.checkpoint(checkpoint_id))
        except StateFileNotFoundError:
            return set()
        return self._named_files(found)

    def _named_files(self, file: MetadataFile) -> set[Location]:
        streams = (
            stream
            for operator in file.metadata.operators
            for subtask in operator.subtasks
            for stream in subtask.streams()
        )
        found = (self._own_file(stream, file.folder) for stream in streams)
        return {location for location in found if location is not None}

    def _own_file(self, stream: StreamStateHandle, folder: Location) -> Location | None:
        """The file of a stream, if it lies in this pipeline's folder: others are not ours."""
        match stream:
            case FileStateHandle() | SegmentFileStateHandle():
                location = Location.parse(stream.path)
            case RelativeFileStateHandle():
                location = folder.child(stream.relative_path)
            case _:
                return None
        return location if self.layout.root.contains(location) else None


def _id_after(record: LogRecord) -> int:
    """The first id that a record leaves free."""
    try:
        if record.type == "claim":
            return int(record.payload[_FIRST_ID])
        return int(record.payload[_CHECKPOINT_ID]) + 1
    except CONVERSION_ERRORS as error:
        raise FormatError(
            f"Record {record.number} of the commit log is damaged ({error})"
        ) from error
