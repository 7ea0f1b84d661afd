"""The completed checkpoints of one pipeline, stored in the commit log.

Source of the behaviour: ``DefaultCompletedCheckpointStore`` of Flink 2.2.1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Self

from dstl_core.checkpoint.store.cleaner import CheckpointsCleaner
from dstl_core.checkpoint.store.completed_checkpoint import (
    CHECKPOINT_ID,
    FIRST_ID,
    IN_FLIGHT,
    KEPT,
    OUTPUTS_FROM,
    CompletedCheckpoint,
)
from dstl_core.checkpoint.store.epoch_facts import NO_FACTS, EpochFacts
from dstl_core.checkpoint.store.kept_outputs import KeptOutputs, oldest_kept_output
from dstl_core.checkpoint.store.metadata_file import (
    MetadataFile,
    holds_metadata,
    known_of,
    load_metadata_file,
    metadata_digest,
    metadata_sha256,
    publish_metadata_file,
)
from dstl_core.checkpoint.store.properties import CheckpointProperties, JobStatus
from dstl_core.checkpoint.store.record_writer import CommitInDoubt, RecordWriter
from dstl_core.checkpoint.store.recorded import RecordedCheckpoints
from dstl_core.checkpoint.store.retained import ReferencedFiles
from dstl_core.checkpoint.store.state_files import check_state_files
from dstl_core.clock import Clock
from dstl_core.config import CheckpointConfig
from dstl_core.errors import (
    CheckpointError,
    ConfigError,
    DstlError,
    FencedError,
    error_context,
)
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorSubtaskState
from dstl_core.model.ids import JobID
from dstl_core.storage.commit_log import CommitLog, LogRecord, OwnedRecordType, as_recorded
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.file_set import FileSet, real_location
from dstl_core.storage.location import JobLayout, Location, checkpoint_id_of
from dstl_core.storage.written_files import WrittenFile

_LOG = logging.getLogger(__name__)
CLOCK_MARGIN_MS = 3_600_000
"""How far an owner's clock may be ahead of the storage's, if the storage has no time stamps."""


class CompletedCheckpointStore:
    """Commits checkpoints and retires old ones. Only the owner of the latest claim can commit.

    Invariants:
        1. ``latest`` is the last record of a commit, or of the snapshot that the pipeline started
           from, unless a later record discards it.
        2. A checkpoint's metadata is published before its record.
        3. A file is deleted only if no retained metadata references it, and after the metadata that
           did. Right before that, the log is read again; files that ``latest`` references stay.
        4. Two owners never use the same checkpoint id: an owner has at most ``in_flight`` ids
           beyond the recorded ones, and its successor skips them.
    """

    def __init__(
        self,
        file_io: FileIO,
        layout: JobLayout,
        clock: Clock,
        *,
        num_retained: int = 1,
        retain_ms: int = 0,
        num_retained_outputs: int | None = None,
    ) -> None:
        if num_retained < 1:
            raise ConfigError(f"At least one checkpoint must be retained, got {num_retained}.")
        self._file_io = file_io
        self.layout = layout
        self._log = log = CommitLog(file_io, layout.commit_log, clock)
        self._num_retained = num_retained
        self._retain_ms = retain_ms
        self._num_retained_outputs = num_retained_outputs
        self._owner: str | None = None
        self.references = ReferencedFiles(self)
        self._cleaner = self._cleaner_on(file_io)
        self._recorded = RecordedCheckpoints(
            log,
            lambda claimed: self._cleaner.own(self.folder_of(claimed)),
            num_retained=num_retained,
        )
        self._writer = RecordWriter(log, self._read, layout.commit_log)
        self._unrecorded_aborts: set[int] = set()
        self._written: dict[str, WrittenFile] = {}
        self._in_doubt: dict[int, CommitInDoubt] = {}

    @classmethod
    def from_config(cls, job_id: JobID, config: CheckpointConfig, clock: Clock) -> Self:
        """Makes the store that the options describe, in ``<checkpoint dir>/<job id>``.

        Raises:
            ConfigError: ``execution.checkpointing.dir`` is not set.
        """
        if config.checkpoint_dir is None:
            raise ConfigError(
                "A pipeline needs a folder for its checkpoints: set execution.checkpointing.dir."
            )
        layout = JobLayout.of(Location.parse(config.checkpoint_dir), job_id.hex)
        return cls(open_file_io(layout.root), layout, clock, num_retained=config.num_retained)

    def refresh(self) -> None:
        """Reads the records that other processes have added to the log."""
        self._log.refresh()

    @property
    def is_empty(self) -> bool:
        """Whether the log has no record yet, not even a claim."""
        return self._log.count == 0

    def claimed_ms(self) -> int | None:
        """When the latest claim was made, in milliseconds; None if there is no claim.

        It is the earlier of the storage's time stamp of the record and the time that the owner
        recorded, because the owner's clock may be ahead. Without a time stamp it is an hour before
        the recorded time.
        """
        claim = self._log.latest_claim
        if claim is None:
            return None
        name = f"{claim.number}.json"
        stamp = next(
            (
                status.modified_ms
                for status in self._file_io.list_folder(self.layout.commit_log)
                if status.location.name == name
            ),
            None,
        )
        return claim.at_ms - CLOCK_MARGIN_MS if stamp is None else min(claim.at_ms, stamp)

    def _read(self) -> RecordedCheckpoints:
        """The view of the log, with the newest records."""
        with error_context(location=str(self.layout.commit_log)):
            self._recorded.read()
        return self._recorded

    # -------------------------------------------------------------------------------- claims

    def claim(self, owner: str, *, in_flight: int = 1) -> None:
        """Becomes the owner. The former owner can no longer commit.

        The claim names the first checkpoint id of the new owner. It is above all ids that the
        former owner may have in flight.

        Args:
            owner: Name of the owner, unique to a process.
            in_flight: Number of checkpoints that this owner may have in flight.
        """

        def payload() -> dict[str, int]:
            recorded = self._read()
            skipped = recorded.in_flight if self._log.latest_claim is not None else 0
            return {FIRST_ID: recorded.next_id + skipped, IN_FLIGHT: in_flight}

        self._log.claim(owner, payload)
        self._owner = owner
        self._read().write_index()

    def resume_claim(self, owner: str) -> None:
        """Continues as an owner that claimed in another process. Raises FencedError if another
        owner has claimed since.
        """
        self._log.refresh()
        self._log.check_claim(owner)
        self._owner = owner
        self._read()

    def check_claim(self) -> None:
        """Raises FencedError if another owner has claimed since."""
        self._log.refresh()
        self.check_known_claim()

    def check_log_is_there(self) -> None:
        """Raises CheckpointError if the last record that this process knows has been deleted."""
        self._log.check_there()

    def check_known_claim(self) -> None:
        """As ``check_claim``, without reading the log again."""
        if self._owner is not None:
            self._log.check_claim(self._owner)

    def next_checkpoint_id(self) -> int:
        """The first checkpoint id above all recorded ones."""
        used = max((*self._unrecorded_aborts, *self._in_doubt), default=0)
        return max(self._read().next_id, used + 1)

    def id_limit(self) -> int:
        """The first id that the next owner would not skip."""
        recorded = self._read()
        return recorded.next_id + recorded.in_flight

    # --------------------------------------------------------------------------------- views

    @property
    def completed(self) -> list[CompletedCheckpoint]:
        """All commits, also retired ones, oldest first. Every call reads them all again."""
        return list(self.commits())[::-1]

    def commits(self) -> Iterator[CompletedCheckpoint]:
        """Yields all commits, newest first. It reads old ones when they are needed."""
        return self._read().commits()

    def commit_of(self, checkpoint_id: int) -> CompletedCheckpoint | None:
        return self._read().commit(checkpoint_id)

    @property
    def latest(self) -> CompletedCheckpoint | None:
        return self._read().latest

    @property
    def retained(self) -> list[CompletedCheckpoint]:
        """The retained checkpoints, oldest first."""
        return self._read().retained(self._num_retained, self._retain_ms)

    def folder_of(self, checkpoint: CompletedCheckpoint) -> Location:
        if checkpoint.location is not None:
            return Location.parse(checkpoint.location)
        return self.layout.checkpoint(checkpoint.checkpoint_id)

    def load(self, checkpoint: CompletedCheckpoint) -> MetadataFile:
        """The metadata of a commit.

        Raises:
            CheckpointError: The folder holds other metadata than was committed.
        """
        folder = self.folder_of(checkpoint)
        file = load_metadata_file(self.file_io_of(folder), folder)
        if file.sha256 != checkpoint.metadata_sha256:
            raise CheckpointError(
                f"The metadata of checkpoint {checkpoint.checkpoint_id} is not the committed one: "
                f"expected sha256 {checkpoint.metadata_sha256}, got {file.sha256}; "
                f"restore the file from a copy.",
                location=str(file.folder),
            )
        self.learn(file.written.values())
        return file

    def learn(self, files: Iterable[WrittenFile]) -> None:
        """Notes size and sha256 of state files. The next commits check and record them."""
        self._written.update((each.path, each) for each in files)

    # ------------------------------------------------------------------------------- records

    def commit(
        self,
        metadata: CheckpointMetadata,
        facts: EpochFacts = NO_FACTS,
        properties: CheckpointProperties = KEPT,
    ) -> CompletedCheckpoint:
        """Publishes metadata, then the commit record. May be called again after an error.

        Raises:
            FencedError: Another owner has claimed the pipeline.
            StorageError: The metadata could not be published; the id is used up.
            CommitUncertainError: The outcome is unknown; nothing was deleted.
        """
        folder = self.layout.checkpoint(metadata.checkpoint_id)
        record = self._record_snapshot("commit", metadata, folder, facts, properties)
        # ``load`` gives size and sha256 of older files with the checkpoint that references them.
        named = known_of(folder, metadata, self._written).values()
        self._written = {each.path: each for each in named}
        return CompletedCheckpoint.of(record)

    def commit_savepoint(
        self, metadata: CheckpointMetadata, folder: Location, facts: EpochFacts = NO_FACTS
    ) -> CompletedCheckpoint:
        """Commits a savepoint into a folder of the user. The pipeline does not restore from it."""
        properties = CheckpointProperties.for_savepoint()
        record = self._record_snapshot("savepoint", metadata, folder, facts, properties)
        return CompletedCheckpoint.of(record)

    def _record_snapshot(
        self,
        type_: OwnedRecordType,
        metadata: CheckpointMetadata,
        folder: Location,
        facts: EpochFacts,
        properties: CheckpointProperties,
    ) -> LogRecord:
        owner, checkpoint_id = self._require_owner(), metadata.checkpoint_id
        doubt = self._in_doubt.get(checkpoint_id)
        if doubt is not None and not doubt.is_of(metadata, facts):
            raise self._writer.id_used(checkpoint_id)
        if doubt is None:
            payload = self._payload(type_, metadata, folder, facts, properties)
            # From here on the record may be in the log, even if every attempt reports an error.
            since = self._log.count
            doubt = self._in_doubt[checkpoint_id] = CommitInDoubt(folder, payload, facts, since)
        try:
            record = self._writer.append(doubt.since, owner, type_, doubt.payload)
        except CheckpointError:
            del self._in_doubt[checkpoint_id]
            raise
        del self._in_doubt[checkpoint_id]
        self._read().write_index()
        return record

    def _payload(
        self,
        type_: OwnedRecordType,
        metadata: CheckpointMetadata,
        folder: Location,
        facts: EpochFacts,
        properties: CheckpointProperties,
    ) -> Mapping[str, Any]:
        """Publishes the metadata; returns the payload of its record."""
        self._writer.check_id(metadata.checkpoint_id)
        try:
            check_state_files(metadata, folder, self.file_io_of, self._cleaner.roots, self._written)
        except CheckpointError:
            # A new owner may have deleted the files of this one.
            self.check_claim()
            raise
        parent = self.latest
        parent_id = None if parent is None else parent.checkpoint_id
        digest, size = self._publish(metadata, folder, parent_id, facts)
        payload: dict[str, Any] = {
            CHECKPOINT_ID: metadata.checkpoint_id,
            "parent": parent_id,
            "metadata_sha256": digest,
            "facts": replace(facts, metadata_bytes=size).to_json(),
        }
        if type_ == "commit" and self._num_retained_outputs is not None:
            new = CompletedCheckpoint(metadata.checkpoint_id, parent_id, digest, 0, facts)
            payload[OUTPUTS_FROM] = oldest_kept_output(
                chain([new], self.commits()), self._num_retained_outputs
            )
        if properties.discard_on:
            payload["discard_on"] = sorted(status.value for status in properties.discard_on)
        if type_ == "savepoint":
            payload["location"] = str(folder)
        return as_recorded(payload)

    def _publish(
        self,
        metadata: CheckpointMetadata,
        folder: Location,
        parent_id: int | None,
        facts: EpochFacts,
    ) -> tuple[str, int]:
        try:
            return publish_metadata_file(
                self.file_io_of(folder),
                folder,
                metadata,
                {"parent": parent_id, **facts.to_json()},
                self._written,
            )
        except DstlError:
            # The content of the folder is unknown now, so its id must not be used again.
            self.abort(metadata.checkpoint_id)
            raise

    def is_in_doubt(self, checkpoint_id: int) -> bool:
        """Whether the log may have a record of the checkpoint that this process has not seen."""
        return checkpoint_id in self._in_doubt

    def settle(self) -> None:
        """Aborts commits whose outcome is unknown, unless the log has their records.

        Raises:
            FencedError: Another owner has claimed the pipeline.
            StorageError: The outcome is still unknown.
        """
        for checkpoint_id, commit in list(self._in_doubt.items()):
            # The abort takes the slot of the commit. If the commit took it first, it is valid.
            self.abort(checkpoint_id)
            if self.commit_of(checkpoint_id) is None:
                self._withdraw(commit.folder, commit.payload["metadata_sha256"])
            del self._in_doubt[checkpoint_id]

    def claimed_folders(self) -> Sequence[Location]:
        """Folders of snapshots that the pipeline has claimed."""
        self._read()
        return self._cleaner.roots[1:]

    def claimed_and_there(self) -> list[CompletedCheckpoint]:
        """The snapshots that the pipeline has claimed, that are there, and that are not the latest.
        Another snapshot may be in such a folder by now.
        """
        latest = self.latest
        places = [(own, self.folder_of(own)) for own in self._read().claimed if own != latest]
        return [
            snapshot
            for snapshot, folder in places
            if metadata_sha256(self.file_io_of(folder), folder) == snapshot.metadata_sha256
        ]

    def claimed_and_gone(self) -> list[Location]:
        """The folders of snapshots that the pipeline has claimed, and whose metadata is no longer
        there. If who deleted it was killed, files are left.
        """
        whole = [*self.claimed_and_there(), self.latest]
        return [self.folder_of(own) for own in self._read().claimed if own not in whole]

    def file_io_of(self, folder: Location) -> FileIO:
        return self._file_io if folder.scheme == self.layout.root.scheme else open_file_io(folder)

    def record_restore(
        self, checkpoint_id: int, location: Location, metadata_sha256: str, *, claim: bool
    ) -> CompletedCheckpoint:
        """Records the snapshot that the pipeline starts from. With ``claim`` the pipeline owns its
        files, and deletes them when the snapshot is subsumed.
        """
        payload = {
            CHECKPOINT_ID: checkpoint_id,
            "metadata_sha256": metadata_sha256,
            "location": str(location),
            "claim_mode": "CLAIM" if claim else "NO_CLAIM",
            "facts": NO_FACTS.to_json(),
        }
        since = self._log.count
        record = self._writer.append(since, self._require_owner(), "restore", as_recorded(payload))
        return CompletedCheckpoint.of(record)

    def abort(self, checkpoint_id: int) -> None:
        """Records that a checkpoint of this owner was aborted, so that its id is not used again.

        Raises:
            FencedError: Another owner has claimed the pipeline.
            StorageError: The record could not be written; ``record_aborts`` tries again.
        """
        self._require_owner()
        self._unrecorded_aborts.add(checkpoint_id)
        self.record_aborts()

    def record_aborts(self) -> None:
        """Records aborts whose records could not be written. Raises the errors of ``abort``."""
        owner = self._require_owner()
        for checkpoint_id in sorted(self._unrecorded_aborts):
            self._log.refresh()
            while not self._read().has_id(checkpoint_id):
                try:
                    self._log.append(owner, "abort", {CHECKPOINT_ID: checkpoint_id})
                except FencedError:
                    # Another owner has claimed, or an earlier record of this owner is in the log.
                    self._log.check_claim(owner)
            self._unrecorded_aborts.discard(checkpoint_id)

    def _require_owner(self) -> str:
        if self._owner is None:
            raise CheckpointError(
                "This process has not claimed the pipeline; call claim before a commit."
            )
        return self._owner

    # ---------------------------------------------------------------------------- retention

    def subsume(self) -> list[int]:
        """Retires checkpoints beyond the retained number, oldest first; returns their ids.

        Only the owner retires. Errors of files are logged, not raised: the commit is done, and
        ``dstl gc`` finds files that could not be read or deleted.
        """
        try:
            self._require_owner()
            self.check_claim()
            retained = self.retained
            leaving = [each for each in self._held_and_there() if each not in retained]
            needed = self.references.of(retained)
        except DstlError as error:
            # The needed files are unknown unless every retained checkpoint can be read.
            _LOG.warning("no checkpoint was retired: %s", error)
            return []
        return [
            checkpoint.checkpoint_id
            for checkpoint in leaving
            if checkpoint.properties.discard_subsumed
            and self._cleaner.retire(self.folder_of(checkpoint), needed, self._latest_as_owner)
        ]

    def shutdown(self, status: JobStatus) -> list[int]:
        """Ends the pipeline: deletes the checkpoints that the end of the job discards.

        It records them as discarded before it deletes the first file, so that nobody restores them.

        Returns:
            The ids of the discarded checkpoints.
        """
        self.check_claim()
        leaving = [each for each in self.retained if each.properties.discard_on_job(status)]
        if not leaving:
            return []
        ids = [each.checkpoint_id for each in leaving]
        kept = [each.checkpoint_id for each in self.retained if each not in leaving]
        payload = {"checkpoint_ids": ids, "kept_ids": kept}
        self._log.append(self._require_owner(), "discard", payload)
        needed = self.references.of(self.retained)
        for checkpoint in leaving:
            self._cleaner.retire(self.folder_of(checkpoint), needed, self._latest_as_owner)
        return ids

    def discard_earlier(self) -> list[int]:
        """Records that no checkpoint but the latest can be restored, and deletes the others.

        Returns:
            The ids of checkpoints of which a part is left; a later call tries again.
        """
        self.check_claim()
        latest = self.latest
        if latest is None:
            return []
        leaving = [each for each in self._held_and_there() if each != latest]
        if leaving or len(self._read().retained(2)) > 1:
            ids, kept = [each.checkpoint_id for each in leaving], [latest.checkpoint_id]
            payload = {"checkpoint_ids": ids, "kept_ids": kept}
            self._log.append(self._require_owner(), "discard", payload)
        of_commits = [commit for commit in leaving if commit.properties.discard_subsumed]
        # Those that an earlier call has recorded and not deleted, and those of no commit, which
        # nobody can commit after this claim. Folders of snapshots of other jobs have the same ids.
        places = [
            (snapshot.checkpoint_id, self.folder_of(snapshot))
            for snapshot in [*of_commits, *self.claimed_and_there()]
        ]
        numbers = self._cleaner.checkpoint_folders()
        places += [(number, self.layout.checkpoint(number)) for number in numbers]
        by_folder = {real_location(folder): (number, folder) for number, folder in places}
        by_folder.pop(real_location(self.folder_of(latest)), None)
        needed = self.references.of([latest])
        return [
            number
            for number, folder in sorted(
                by_folder.values(), key=lambda known: (known[0], str(known[1]))
            )
            if not self._cleaner.retire(folder, needed, self._latest_as_owner, even_damaged=True)
        ]

    def withdraw_metadata(self, metadata: CheckpointMetadata, folder: Location) -> bool:
        """Deletes the metadata of a refused snapshot; False if it may still exist."""
        return self._withdraw(folder, metadata_digest(metadata))

    def _withdraw(self, folder: Location, digest: str) -> bool:
        """Deletes the metadata of this digest, unless the folder holds a checkpoint of the log."""
        file_io = self.file_io_of(folder)
        try:
            self._log.refresh()
            if self._is_held(folder) or not holds_metadata(file_io, folder, digest):
                _LOG.warning("%s was not withdrawn: it holds another snapshot", folder.name)
                return False
        except DstlError as error:
            _LOG.warning("a refused snapshot is left for gc: %s", error)
            return False
        return self._cleaner_on(file_io).withdraw(folder)

    def discard(
        self,
        states: tuple[OperatorSubtaskState, ...],
        *,
        folder: Location | None = None,
        folder_goes: bool = False,
        tasks_live_on: bool = False,
    ) -> None:
        """Deletes the files of state that no commit references. Errors leave files for ``dstl gc``.

        Args:
            states: The reported state.
            folder: The folder of exclusive files.
            folder_goes: Whether the folder belongs to an aborted snapshot.
            tasks_live_on: Whether the tasks that reported it still run. Then they keep the files of
                their logs and materializations, which the next checkpoint references again.
        """
        try:
            # The log may have a commit whose answer was lost.
            self._log.refresh()
            needed = self.references.references_of_existing(self._held_and_there())
        except DstlError as error:
            _LOG.warning("nothing was discarded; gc will find it: %s", error)
            return
        layout = self.layout
        theirs = (layout.changelog, layout.task_owned) if tasks_live_on else ()
        self._cleaner.discard(states, needed, folder or layout.root, not_below=theirs)
        if folder is None or not folder_goes or self._is_held(folder):
            return
        cleaner = self._cleaner_on(self.file_io_of(folder))
        if cleaner.withdraw(folder):
            cleaner.delete_folder(folder, needed)

    def delete_output(self, checkpoint_id: int) -> None:
        """Deletes the output of an aborted epoch, unless the epoch was committed."""
        self._log.refresh()
        if self.commit_of(checkpoint_id) is None:
            self._cleaner.delete_folder(self.layout.output(checkpoint_id))

    def retire_outputs(self) -> list[int]:
        """Deletes the stored output that the log no longer keeps (``KeptOutputs``).

        Output of no commit stays: its driver may still run, and ``dstl gc`` finds it.

        Only the owner retires. Errors of files are logged, not raised; a later call tries again.

        Returns:
            The ids of the commits whose output was to be deleted, oldest first.
        """
        try:
            self._require_owner()
            self.check_claim()
            output_ids = self._cleaner.output_folders()
            stored = [each.checkpoint_id for each in self._read().commits_among(output_ids)]
            kept = KeptOutputs.of(self.commits(), min(stored, default=self.next_checkpoint_id()))
        except DstlError as error:
            _LOG.warning("no stored output was deleted; a later epoch does it: %s", error)
            return []
        leaving = [each for each in stored if not kept.keeps(each)]
        for checkpoint_id in leaving:
            self._cleaner.delete_folder(self.layout.output(checkpoint_id))
        return leaving

    def _cleaner_on(self, file_io: FileIO) -> CheckpointsCleaner:
        return CheckpointsCleaner(file_io, self.layout, self.references.latest)

    def _latest_as_owner(self) -> FileSet:
        """The files that the latest checkpoint references. Raises FencedError if another owner has
        claimed since.
        """
        references = self.references.latest()
        self.check_known_claim()
        return references

    def _held_and_there(self) -> list[CompletedCheckpoint]:
        """The checkpoints of the log whose folder exists, also in other folders, oldest first."""
        return self._read().held(self._cleaner.checkpoint_folders())

    def _is_held(self, folder: Location) -> bool:
        """Whether a folder holds a checkpoint of the log."""
        checkpoint_id = checkpoint_id_of(folder.name)
        ids = set() if checkpoint_id is None else {checkpoint_id}
        return any(self.folder_of(each) == folder for each in self._read().held(ids))
