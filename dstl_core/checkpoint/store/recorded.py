"""The checkpoints of a pipeline, read from the records of its commit log.

A new process starts from the summary in the head of the log's index, and reads the records after
it. It reads older records only when they are needed, newest first. So the cost of an epoch does not
grow with the number of earlier epochs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dstl_core.checkpoint.store.commit_lineage import not_undone
from dstl_core.checkpoint.store.completed_checkpoint import (
    CompletedCheckpoint,
    first_free_id,
    in_flight_of,
)
from dstl_core.checkpoint.store.properties import CheckpointProperties
from dstl_core.errors import FormatError, StorageError
from dstl_core.storage.commit_log import CommitLog
from dstl_core.storage.json_document import CONVERSION_ERRORS
from dstl_core.storage.log_record import LogRecord, OwnedRecordType

_LOG = logging.getLogger(__name__)
SUMMARY_VERSION = 1
KEPT = 64
"""Number of checkpoints whose place in the log is kept in memory."""
_WITH_ID = ("commit", "abort", "savepoint")
_HELD = ("commit", "restore")


@dataclass(frozen=True, slots=True)
class _HeldCommit:
    """The place in the log of a checkpoint that the pipeline can restore."""

    number: int
    checkpoint_id: int


class RecordedCheckpoints:
    """A view of a commit log, as far as this process has read it.

    A checkpoint is *held* if it was committed, or if the pipeline started from it, and no later
    record discards it.

    Invariant: ``_held`` are the last held checkpoints, oldest first; if ``_is_all``, there are no
    others. Ids of commits ascend in the log.

    Args:
        log: The log.
        on_claimed: Called with each snapshot whose files the pipeline took over.
        num_retained: Number of checkpoints that the pipeline keeps.
    """

    def __init__(
        self,
        log: CommitLog,
        on_claimed: Callable[[CompletedCheckpoint], None],
        *,
        num_retained: int = 1,
    ) -> None:
        self._log = log
        self._kept = max(KEPT, num_retained)
        self._on_claimed = on_claimed
        self._seen = 0
        self._held: list[_HeldCommit] = []
        self._is_all = True
        self._known: dict[int, CompletedCheckpoint] = {}
        self._restored: list[LogRecord] = []
        self._claimed: list[LogRecord] = []
        self._first_id = 1
        self._open_ids: set[int] = set()
        self._left: dict[int, int | None] = {}
        self.next_id = 1
        """The first id above all recorded ones."""
        self.in_flight = 1
        """Number of ids beyond ``next_id`` that the latest owner may use."""

    # ------------------------------------------------------------------------------ reading

    def read(self) -> None:
        """Reads the records that were added to the log since the last call."""
        if self._seen == 0 and self._log.opened_at:
            self._begin()
        for record in self._log.records_after(self._seen):
            self._take(record)
            self._seen += 1
        if len(self._held) > 2 * self._kept:
            del self._held[: -self._kept]
            self._is_all = False
        if len(self._known) > 4 * self._kept:
            numbers = {each.number for each in self._held}
            self._known = {at: each for at, each in self._known.items() if at in numbers}

    def _take(self, record: LogRecord) -> None:
        match record.type:
            case "claim":
                self.in_flight = in_flight_of(record)
                self._first_id = first_free_id(record)
                self._open_ids.clear()
            case "commit":
                self._hold(record)
            case "restore":
                self._restored.append(record)
                checkpoint = self._hold(record)
                if not checkpoint.properties.unclaimed:
                    self._claimed.append(record)
                    self._on_claimed(checkpoint)
            case "discard":
                self._keep(set(record.payload.get("kept_ids", ())), record.number)
        first_free = first_free_id(record)
        if record.type in _WITH_ID:
            self._open_ids |= set(range(self.next_id, first_free - 1))
            self._open_ids.discard(first_free - 1)
        self.next_id = max(self.next_id, first_free)

    def _hold(self, record: LogRecord) -> CompletedCheckpoint:
        checkpoint = CompletedCheckpoint.of(record)
        self._held.append(_HeldCommit(record.number, checkpoint.checkpoint_id))
        self._known[record.number] = checkpoint
        return checkpoint

    def _keep(self, kept: set[int], discarded_at: int) -> None:
        """Drops all checkpoints but these, also subsumed ones."""
        self._restored = [each for each in self._restored if first_free_id(each) - 1 in kept]
        self._held = [each for each in self._held if each.checkpoint_id in kept]
        missing = kept.difference(each.checkpoint_id for each in self._held)
        if not self._is_all and missing:
            first = self._held[0].number if self._held else discarded_at
            self._held = [*self._behind(first, missing), *self._held]
        self._is_all = True
        self._left.clear()

    def _behind(self, number: int, ids: set[int]) -> list[_HeldCommit]:
        """The last held checkpoints of these ids before a record, oldest first."""
        records: list[_HeldCommit] = []
        for record in self._log.backwards(before=number):
            if len(records) == len(ids):
                break
            if record.type in _HELD and first_free_id(record) - 1 in ids:
                records.append(_HeldCommit(record.number, first_free_id(record) - 1))
        return records[::-1]

    # ------------------------------------------------------------------------------ summary

    def write_index(self) -> None:
        """Updates the index of the log. Errors are logged; a later call tries again."""
        try:
            self._log.write_index(self.summary)
        except StorageError as error:
            _LOG.warning(
                "the index of the commit log was not updated; a later commit does: %s", error
            )

    def summary(self) -> Mapping[str, Any]:
        """The summary of all records, for ``CommitLog.write_index``."""
        return {
            "version": SUMMARY_VERSION,
            "next_id": self.next_id,
            "first_id": self._first_id,
            "open_ids": sorted(self._open_ids),
            "held": [[each.number, each.checkpoint_id] for each in self._held],
            "is_all": self._is_all,
            "restored": [record.to_json() for record in self._restored],
            "claimed": [record.to_json() for record in self._claimed],
            "left": sorted(self._left.items()),
        }

    def _begin(self) -> None:
        """Starts from the summary in the index, or from the first record if it is unusable."""
        body = self._log.summary
        claim = self._log.latest_claim
        try:
            if body["version"] != SUMMARY_VERSION:
                raise ValueError(f"version {body['version']}")
            restored, claimed = (
                [LogRecord.from_json(each, each["number"]) for each in body[name]]
                for name in ("restored", "claimed")
            )
            ids = int(body["next_id"]), int(body["first_id"]), {int(e) for e in body["open_ids"]}
            held = [_HeldCommit(int(number), int(id_)) for number, id_ in body["held"]]
            left = {int(id_): None if at is None else int(at) for id_, at in body["left"]}
            is_all = bool(body["is_all"])
        except (FormatError, *CONVERSION_ERRORS) as error:
            _LOG.warning("the summary of the commit log's index is not used: %s", error)
            return
        self.next_id, self._first_id, self._open_ids = ids
        self._held, self._is_all, self._left = held, is_all, left
        self._restored, self._claimed = restored, claimed
        self.in_flight = 1 if claim is None else in_flight_of(claim)
        self._seen = self._log.opened_at
        for checkpoint in self.claimed:
            self._on_claimed(checkpoint)

    # -------------------------------------------------------------------------------- views

    @property
    def claimed(self) -> list[CompletedCheckpoint]:
        """The snapshots whose files the pipeline took over, also those that a record discards: who
        wrote it may have been killed before it deleted them.
        """
        return [CompletedCheckpoint.of(record) for record in self._claimed]

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """The last held checkpoint."""
        self._extend(1)
        return self._checkpoint(self._held[-1].number) if self._held else None

    def retained(self, count: int, retain_ms: int = 0) -> list[CompletedCheckpoint]:
        """The checkpoints that a store retains, oldest first. Those that a rewind undid leave.

        Args:
            count: Its size.
            retain_ms: Checkpoints that were committed less than this time, in milliseconds, before
                the latest one are retained as well.
        """
        line: list[CompletedCheckpoint] = []
        young = 0
        for checkpoint in not_undone(self._newest_first()):
            is_young = not line or checkpoint.committed_ms > line[0].committed_ms - retain_ms
            # The newest one that is no savepoint stays, however old it is.
            is_enough = any(not kept.properties.is_savepoint for kept in line)
            if len(line) >= count and young < len(line) and is_enough:
                break
            young += is_young and young == len(line)
            line.append(checkpoint)
        gone = subsumed(line[::-1], max(count, young))
        return [each for each in line[::-1] if each not in gone]

    def _newest_first(self) -> Iterator[CompletedCheckpoint]:
        """Yields the held checkpoints, newest first, and keeps the places of those it yields."""
        at = 1
        while True:
            self._extend(at)
            if len(self._held) < at:
                return
            self._kept = max(self._kept, at)
            yield self._checkpoint(self._held[-at].number)
            at += 1

    def held(self, folder_ids: Collection[int]) -> list[CompletedCheckpoint]:
        """The held checkpoints with a location of their own or one of the given ids, oldest first.

        Args:
            folder_ids: Ids whose folders the pipeline has.
        """
        return self._in_order(
            {record.number for record in self._restored}.union(self._places_of(folder_ids))
        )

    def commits_among(self, ids: Collection[int]) -> list[CompletedCheckpoint]:
        """The held commits of the pipeline that have one of the given ids, oldest first."""
        return [each for each in self._in_order(self._places_of(ids)) if each.location is None]

    def _places_of(self, ids: Collection[int]) -> set[int]:
        """The record numbers of the held checkpoints that have one of the given ids."""
        known = {each.checkpoint_id: each.number for each in self._held}
        oldest = min(known, default=self.next_id)
        unknown = {each for each in ids if each < oldest} - self._left.keys()
        if unknown and not self._is_all:
            self._look_for(unknown, min(known.values(), default=self._log.count + 1))
        places = [known.get(id_, self._left.get(id_)) for id_ in ids]
        return {number for number in places if number is not None}

    def _in_order(self, numbers: Collection[int]) -> list[CompletedCheckpoint]:
        return [self._checkpoint(number) for number in sorted(numbers)]

    def commits(self) -> Iterator[CompletedCheckpoint]:
        """Yields all commits, also retired ones, newest first. It reads old ones when needed."""
        for record in self._log.backwards():
            if record.type == "commit":
                yield CompletedCheckpoint.of(record)

    def commit(self, checkpoint_id: int) -> CompletedCheckpoint | None:
        for commit in self.commits():
            if commit.checkpoint_id <= checkpoint_id:
                return commit if commit.checkpoint_id == checkpoint_id else None
        return None

    def find(
        self, since: int, owner: str, type_: OwnedRecordType, payload: Mapping[str, Any]
    ) -> LogRecord | None:
        """The record of this owner, type and payload after record ``since``."""
        for record in self._log.records_after(since):
            if (record.owner, record.type, record.payload) == (owner, type_, payload):
                return record
        return None

    def has_id(self, checkpoint_id: int) -> bool:
        """Whether a record has used this id."""
        if checkpoint_id >= self._first_id:
            return checkpoint_id < self.next_id and checkpoint_id not in self._open_ids
        # Only an owner that has lost its claim gets here.
        for record in self._log.backwards():
            first_free = first_free_id(record)
            if record.type == "claim" and first_free <= checkpoint_id:
                return False
            if record.type in _WITH_ID and first_free - 1 == checkpoint_id:
                return True
        return False

    def _checkpoint(self, number: int) -> CompletedCheckpoint:
        if number not in self._known:
            self._known[number] = CompletedCheckpoint.of(self._log.record(number))
        return self._known[number]

    def _extend(self, wanted: int) -> None:
        """Reads older held checkpoints until this number is known, or there are no more."""
        if self._is_all or len(self._held) >= wanted:
            return
        first = self._held[0].number if self._held else self._seen + 1
        older: list[_HeldCommit] = []
        for record in self._log.backwards(before=first):
            if record.type in _HELD:
                older.append(_HeldCommit(record.number, first_free_id(record) - 1))
            elif record.type == "discard":
                kept = set(record.payload.get("kept_ids", ()))
                older += self._behind(record.number, kept)[::-1]
                break
            if len(self._held) + len(older) >= wanted:
                self._held = [*older[::-1], *self._held]
                return
        self._held = [*older[::-1], *self._held]
        self._is_all = True

    def _look_for(self, unknown: set[int], before: int) -> None:
        """Notes the places of the commits of old ids, or that there are none."""
        self._left |= dict.fromkeys(unknown)
        for record in self._log.backwards(before=before):
            checkpoint_id = first_free_id(record) - 1
            if record.type == "discard":
                unknown = unknown & set(record.payload.get("kept_ids", ()))
            elif record.type == "commit" and checkpoint_id in unknown:
                self._left[checkpoint_id] = record.number
            if not unknown or (record.type == "commit" and checkpoint_id <= min(unknown)):
                return


class _HasProperties(Protocol):
    @property
    def properties(self) -> CheckpointProperties: ...


_Checkpoint = TypeVar("_Checkpoint", bound=_HasProperties)


def subsumed(checkpoints: Sequence[_Checkpoint], num_retained: int) -> list[_Checkpoint]:
    """The checkpoints beyond the retained number, oldest first.

    Savepoints count, and each but the newest may leave. The newest checkpoint that is not a
    savepoint stays at any age, because later checkpoints may reference its files. It leaves only if
    the newest of all stopped the job.

    Source: ``CheckpointSubsumeHelper`` of Flink 2.2.1.

    Args:
        checkpoints: All checkpoints in the store, oldest first.
        num_retained: Number of checkpoints that the store may have.
    """
    left: list[_Checkpoint] = []
    if not checkpoints:
        return left
    newest = checkpoints[-1]
    real = [each for each in checkpoints if not each.properties.is_savepoint]
    for checkpoint in checkpoints[:-1]:
        if len(checkpoints) - len(left) <= num_retained:
            break
        stays = not newest.properties.is_synchronous and bool(real) and checkpoint is real[-1]
        if not stays:
            left.append(checkpoint)
    return left
