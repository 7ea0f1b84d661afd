"""The commit log: one sequence of numbered files in which owners claim and commit.

    <log>/1.json  {"type": "claim", "owner": ..}
    <log>/2.json  {"type": "commit", "owner": .., "payload": {..}}
    <log>/3.json  {"type": "abort", "owner": .., "payload": {..}}
    ...
    <log>/index/  the same records in few files, for readers (see ``log_index``)

Every record is published exactly once under its number. A record other than a claim is valid only
in the slot right after the last record that its owner knows, and its owner must hold the latest
claim. A claim in between takes that slot, so the late record fails. The latest commit is the last
commit record, never a result of listing checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dstl_core.clock import Clock
from dstl_core.errors import (
    CheckpointError,
    FencedError,
    InvariantViolation,
    StorageError,
    error_context,
)
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import Location
from dstl_core.storage.log_index import RUN, Head, LogIndex, first_of, run_of
from dstl_core.storage.log_record import LogRecord, OwnedRecordType, RecordType, as_recorded

__all__ = ["CommitLog", "LogRecord", "OwnedRecordType", "RecordType", "as_recorded"]
MOST_AT_ONCE = 128
"""Records that a reader requests at a time."""
MOST_TRIES = 50
"""Slots that a claim tries before it fails, and reads of an occupied slot before it fails."""
HEAD_EVERY = 8
"""Records between two heads of the index. A new process reads that many records one by one."""
KEPT_RUNS = 3
"""Runs whose records stay in memory."""
RUNS_AT_ONCE = 16
"""Runs of the index that a reader of old records requests at a time."""


class CommitLog:
    """One process's view of a commit log. Not thread-safe.

    Invariants: (1) this process knows the records 1 to ``count``, without gaps, and keeps the last
    ones in memory; (2) it writes only into the slot after them; (3) a record that was read never
    changes.
    """

    def __init__(self, file_io: FileIO, folder: Location, clock: Clock) -> None:
        self._file_io = file_io
        self._folder = folder
        self._clock = clock
        self._index = LogIndex(file_io, folder)
        self._recent: list[LogRecord] = []
        self._older: tuple[int, Sequence[LogRecord]] = (0, ())
        self._claim: LogRecord | None = None
        self._head_at = 0
        self._runs = 0
        self.count = 0
        """Number of the last record that this process knows."""
        self.opened_at = 0
        """Number of the record that this process started from, instead of the first one."""
        self.summary: Mapping[str, Any] = {}
        """The owner's summary of all records up to ``opened_at``."""

    # -------------------------------------------------------------------------------- views

    @property
    def records(self) -> tuple[LogRecord, ...]:
        """All records, oldest first. It reads old records again, which takes long for a long
        log.
        """
        return tuple(self.backwards())[::-1]

    @property
    def commits(self) -> list[LogRecord]:
        """All commits, oldest first. Takes as long as ``records``."""
        return [record for record in self.records if record.type == "commit"]

    @property
    def latest_claim(self) -> LogRecord | None:
        return self._claim

    def record(self, number: int) -> LogRecord:
        """A record that this process knows, by number."""
        return next(self.backwards(before=number + 1))

    def records_after(self, number: int) -> list[LogRecord]:
        """The known records after the given number, oldest first."""
        missing = self.count - len(self._recent) - number
        if missing <= 0:
            return self._recent[-missing:]
        records = []
        for record in self.backwards():
            if record.number <= number:
                break
            records.append(record)
        return records[::-1]

    def backwards(self, before: int | None = None) -> Iterator[LogRecord]:
        """Yields the records before ``before`` (by default all), newest first, and reads them
        on demand.
        """
        last = self.count if before is None else before - 1
        while last > (kept_from := self.count - len(self._recent)):
            yield self._recent[last - kept_from - 1]
            last -= 1
        ahead = 1
        while last > 0:
            run = run_of(last)
            for records in self._read_runs(range(run, max(run - ahead, 0), -1)):
                yield from (each for each in reversed(records) if each.number <= last)
            last = first_of(max(run - ahead, 0) + 1) - 1
            ahead = min(2 * ahead, RUNS_AT_ONCE)

    def _read_runs(self, runs: Sequence[int]) -> Iterator[Sequence[LogRecord]]:
        """The records of old runs; read from their slots if the index does not have them."""
        if len(runs) == 1 and self._older[0] == runs[0]:
            yield self._older[1]
            return
        for run, records in zip(runs, self._index.read_runs(runs), strict=True):
            self._older = (run, records or self._read_slots(first_of(run), RUN))
            yield self._older[1]

    def _read_slots(self, first: int, count: int) -> Sequence[LogRecord]:
        numbers = range(first, first + count)
        payloads = self._file_io.read_each([self._slot(number) for number in numbers])
        return [self._parse(number, raw) for number, raw in zip(numbers, payloads, strict=True)]

    # ----------------------------------------------------------------------------- reading

    def refresh(self) -> None:
        """Reads the records that were published since the last call.

        Raises:
            CheckpointError: A record is missing although later records exist.
        """
        ahead = 2  # one more than expected, to distinguish a missing record from the end of the log
        if self.count == 0 and self._open():
            ahead = HEAD_EVERY + 1
        while ahead:
            ahead = self._read_on(ahead)
        while len(self._recent) > KEPT_RUNS * RUN and self._index.has_run(self._oldest_run()):
            del self._recent[: self._oldest_run() * RUN + 1 - self._recent[0].number]

    def _oldest_run(self) -> int:
        return run_of(self._recent[0].number)

    def _open(self) -> bool:
        """Starts from the head of the index, if there is one; returns whether it did."""
        head = self._index.read_head()
        if head is None:
            return False
        [last] = self._read_slots(head.count, 1)
        if last != head.records[-1]:
            raise CheckpointError(
                f"The commit log and its index differ: record {head.count} is not the record in "
                f"{self._index.head_location}; restore the folder, or delete the index if the "
                f"records are right.",
                location=str(self._slot(head.count)),
            )
        self._head_at = self.count = self.opened_at = head.count
        self._claim, self.summary = head.claim, head.summary
        self._runs = head.count // RUN
        self._recent = list(head.records)
        return True

    def _read_on(self, ahead: int) -> int:
        """Reads the next records; returns how many to request next, 0 at the end of the log."""
        first = self.count + 1
        run = run_of(first)
        numbers = range(first, first + ahead)
        places = [*(self._slot(number) for number in numbers), self._index.location(run)]
        *payloads, raw_run = self._file_io.read_each(places)
        run_length = payloads.index(None) if None in payloads else ahead
        of_run = (self._index.parse_run(run, raw_run) or ())[first - first_of(run) :]
        if len(of_run) > run_length:
            self._take(of_run)
            return HEAD_EVERY + 1
        self._take(
            [self._parse(*each) for each in zip(numbers, payloads[:run_length], strict=False)]
        )
        if any(raw is not None for raw in payloads[run_length:]):
            self._check_hole(first + run_length)
            return ahead
        # A process that is far behind reads many records at a time.
        return 0 if run_length < ahead - 1 else min(2 * ahead, MOST_AT_ONCE)

    def _check_hole(self, number: int) -> None:
        """Raises CheckpointError if a record is missing although a later one exists."""
        if self._file_io.size(self._slot(number)) is None:
            raise self._gone(number)

    def _take(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            if record.type == "claim":
                self._claim = record
        self._recent += records
        self.count += len(records)

    def _parse(self, number: int, raw: bytes | None) -> LogRecord:
        if raw is None:
            raise self._gone(number)
        with error_context(location=str(self._slot(number))):
            return LogRecord.from_bytes(raw, number)

    def check_there(self) -> None:
        """Raises CheckpointError if the last record that this process knows has been deleted."""
        if self.count and self._file_io.size(self._slot(self.count)) is None:
            raise CheckpointError(
                f"Nothing was committed: record {self.count} of the commit log is missing, and "
                f"dstl never deletes it; restore the folder, or start a pipeline of "
                f"another name from the latest checkpoint.",
                location=str(self._folder),
            )

    # ----------------------------------------------------------------------------- writing

    def claim(self, owner: str, payload: Callable[[], Mapping[str, Any]] = dict) -> LogRecord:
        """Makes ``owner`` the only owner that may commit.

        Args:
            owner: Name of the owner; unique to a process.
            payload: Makes the content of the record. It is called once all earlier records are
                known.

        Raises:
            CheckpointError: Other drivers took every slot that was tried.
            StorageError: A slot is taken by a record that cannot be read.
        """
        self.refresh()
        for _ in range(MOST_TRIES):
            record = self._next(owner, "claim", payload())
            if self._publish(record):
                return record
            self._standing(record.number)
        raise CheckpointError(
            f"Nothing was claimed: other drivers took all {MOST_TRIES} slots of the commit log "
            f"that {owner!r} tried; stop drivers that restart continuously.",
            location=str(self._folder),
            owner=owner,
        )

    def append(self, owner: str, type_: OwnedRecordType, payload: Mapping[str, Any]) -> LogRecord:
        """Appends a record of the owner in the next slot.

        Raises:
            FencedError: The owner does not hold the latest claim, or an earlier record of its own
                turns out to be written; nothing was recorded.
            StorageError: It is unknown until the next ``refresh`` whether the record was written.
        """
        self.check_claim(owner)
        record = self._next(owner, type_, payload)
        if self._publish(record):
            return record
        # The slot is occupied: either an earlier write of ours succeeded although it reported
        # failure, or another owner claimed. The record in the slot decides.
        standing = self._standing(record.number)
        if (standing.owner, standing.type, standing.payload) == (owner, type_, record.payload):
            return standing
        self.check_claim(owner)
        raise FencedError(
            f"Nothing was recorded: the slot already has record {record.number} of {owner!r}, "
            f"whose write seemed to fail; read the log again.",
            location=str(self._folder),
            owner=owner,
        )

    def _standing(self, number: int) -> LogRecord:
        """The record in an occupied slot.

        Raises:
            StorageError: The record cannot be read.
        """
        for _ in range(MOST_TRIES):
            self.refresh()
            if self.count >= number:
                return self.record(number)
        raise StorageError(
            f"Nothing was recorded: slot {number} of the commit log is taken, but its record could "
            f"not be read in {MOST_TRIES} attempts; check for a cache in front of the store, a "
            f"job that deletes files, or missing read rights.",
            location=str(self._folder),
        )

    def check_claim(self, owner: str) -> None:
        """Raises FencedError unless ``owner`` holds the latest claim that this process knows."""
        claim = self.latest_claim
        if claim is None or claim.owner != owner:
            raise self._fenced(owner, claim)

    def _next(self, owner: str, type_: RecordType, payload: Mapping[str, Any]) -> LogRecord:
        return LogRecord(self.count + 1, type_, owner, self._clock.now_ms(), as_recorded(payload))

    def _publish(self, record: LogRecord) -> bool:
        if record.number != self.count + 1:
            raise InvariantViolation("a log record is not in the next slot")
        if not self._file_io.publish_once(self._slot(record.number), record.to_bytes()):
            return False
        self._take([record])
        return True

    # ------------------------------------------------------------------------------- index

    def write_index(self, summary: Callable[[], Mapping[str, Any]]) -> None:
        """Updates the index if enough records were added. Only owners call it.

        Args:
            summary: Makes the summary of all records up to ``count``, for a process that starts
                there.

        Raises:
            StorageError: A file could not be written. The log remains valid.
        """
        for run in range(self._runs + 1, self.count // RUN + 1):
            first = first_of(run)
            records = self.records_after(first - 1)[:RUN]
            self._index.publish_run(run, records)
            self._runs = run
        if self.count - self._head_at >= HEAD_EVERY:
            records = self.records_after(first_of(run_of(self.count)) - 1)
            self._index.write_head(Head(self.count, self._claim, summary(), records))
            self._head_at = self.count
            del self._recent[: -len(records)]

    # ------------------------------------------------------------------------------ errors

    def _slot(self, number: int) -> Location:
        return self._folder.child(f"{number}.json")

    def _gone(self, number: int) -> CheckpointError:
        return CheckpointError(
            f"Record {number} of the commit log is missing, but later records exist: its file was "
            f"lost or deleted, and no driver continues without it; restore the file from a backup, "
            f"or start a pipeline of another name from the latest checkpoint.",
            location=str(self._slot(number)),
        )

    def _fenced(self, owner: str, claim: LogRecord | None) -> FencedError:
        holder = f"{claim.owner!r} claimed it with record {claim.number}" if claim else "nobody did"
        return FencedError(
            f"Nothing was committed: {owner!r} does not own this pipeline ({holder}); start again "
            f"from the latest committed checkpoint.",
            location=str(self._folder),
            owner=owner,
        )
