"""Appends an owner's records to the commit log, even if answers of the storage are lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dstl_core.checkpoint.store.completed_checkpoint import CHECKPOINT_ID, CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.checkpoint.store.metadata_file import metadata_digest
from dstl_core.checkpoint.store.recorded import RecordedCheckpoints
from dstl_core.errors import CheckpointError, CommitUncertainError, FencedError, StorageError
from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.storage.commit_log import CommitLog, LogRecord, OwnedRecordType
from dstl_core.storage.location import Location

COMMIT_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class CommitInDoubt:
    """A commit whose record may be in the log.

    Args:
        folder: The folder of its metadata.
        payload: The payload of the record.
        facts: The facts in the payload.
        since: Number of records in the log before the first attempt.
    """

    folder: Location
    payload: Mapping[str, Any]
    facts: EpochFacts
    since: int

    def is_of(self, metadata: CheckpointMetadata, facts: EpochFacts) -> bool:
        """Whether this is the commit of this metadata and these facts."""
        digest = str(self.payload["metadata_sha256"])
        return facts == self.facts and metadata_digest(metadata) == digest


class RecordWriter:
    """Writes records, and finds records of its own that are in the log already.

    Invariant: a record counts as its own only if owner, type and payload are those of the commit.
    If another record has the same checkpoint id, the commit is refused.

    Args:
        log: The log.
        read: The view of the log, as far as this process has read it.
        folder: The folder of the log, for messages.
    """

    def __init__(
        self, log: CommitLog, read: Callable[[], RecordedCheckpoints], folder: Location
    ) -> None:
        self._log = log
        self._read = read
        self._folder = folder

    def append(
        self, since: int, owner: str, type_: OwnedRecordType, payload: Mapping[str, Any]
    ) -> LogRecord:
        """Appends a record. It tries again if the answer is lost.

        Args:
            since: Number of records before the first attempt.
            owner: The owner, which holds the claim.
            type_: The type of the record.
            payload: The payload, as a reader of the log gets it.

        Raises:
            FencedError: Another owner has claimed the pipeline.
            CheckpointError: Another commit has used the id.
            CommitUncertainError: The outcome is unknown.
        """
        problem: StorageError | None = None
        latest = self._latest()
        for _ in range(COMMIT_ATTEMPTS):
            standing = self._standing(since, owner, type_, payload)
            if standing is not None:
                return standing
            try:
                return self._log.append(owner, type_, payload)
            except StorageError as error:
                problem = error
                with suppress(StorageError):
                    # Even a read that fails may have found the record.
                    self._log.refresh()
            except FencedError:
                # The record may be in the log already. Only a record of another commit is a reason
                # to refuse this one.
                self._log.check_claim(owner)
                if self._latest() != latest:
                    raise
        standing = self._standing(since, owner, type_, payload)
        if standing is not None:
            return standing
        raise CommitUncertainError(
            f"Whether checkpoint {payload[CHECKPOINT_ID]} was recorded is unknown ({problem}); "
            f"no file was deleted; try again: the commit log has the outcome.",
            location=str(self._folder),
        ) from problem

    def _standing(
        self, since: int, owner: str, type_: OwnedRecordType, payload: Mapping[str, Any]
    ) -> LogRecord | None:
        """The record of this commit, if this process has read it from the log.

        Raises:
            CheckpointError: Another commit has used the id.
        """
        record = self._read().find(since, owner, type_, payload)
        if record is None and type_ != "restore":
            self.check_id(payload[CHECKPOINT_ID])
        return record

    def check_id(self, checkpoint_id: int) -> None:
        """Raises CheckpointError if the log has a record of the id: each id is recorded once."""
        if self._read().has_id(checkpoint_id):
            raise self.id_used(checkpoint_id)

    def id_used(self, checkpoint_id: int) -> CheckpointError:
        """The error of a commit whose id another commit has used."""
        return CheckpointError(
            f"Nothing was committed: another checkpoint has used the id {checkpoint_id}; run the "
            f"epoch again.",
            location=str(self._folder),
        )

    def _latest(self) -> CompletedCheckpoint | None:
        return self._read().latest
