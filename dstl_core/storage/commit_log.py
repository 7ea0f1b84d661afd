"""The commit log: one sequence of numbered files in which owners claim and commit.

    <log>/1.json  {"type": "claim", "owner": ..}
    <log>/2.json  {"type": "commit", "owner": .., "payload": {..}}
    <log>/3.json  {"type": "abort", "owner": .., "payload": {..}}
    ...

Every record is published exactly once under its number. Any record but a claim is valid only in the
slot right after what its owner knows, and its owner must hold the latest claim; whoever claims in
between takes that slot, so the late record fails. The latest commit is the last commit record,
never a listing of checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dstl_core.clock import Clock
from dstl_core.errors import (
    CheckpointError,
    FencedError,
    FormatError,
    InvariantViolation,
    StorageError,
    error_context,
)
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.json_document import CONVERSION_ERRORS, parse_json_object, write_json_object
from dstl_core.storage.location import Location

RECORD_VERSION = 1
OwnedRecordType = Literal["commit", "abort", "savepoint", "restore", "discard"]
"""What an owner records: a checkpoint, an id without one, a savepoint, where it started from,
checkpoints that it gave up when it ended.
"""
RecordType = Literal["claim"] | OwnedRecordType
RECORD_TYPES = ("claim", *get_args(OwnedRecordType))
MOST_AT_ONCE = 128
"""Records that a reader asks for at a time."""
MOST_TRIES = 50
"""Slots that a claim tries, and looks at a slot that is taken, before it gives up."""
_WHAT = "A record of the commit log"


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One file of the log. What ``payload`` says is its owner's matter."""

    number: int
    type: RecordType
    owner: str
    at_ms: int
    payload: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        body = {
            "version": RECORD_VERSION,
            "number": self.number,
            "type": self.type,
            "owner": self.owner,
            "at_ms": self.at_ms,
            "payload": dict(self.payload),
        }
        return write_json_object(body, _WHAT)

    @classmethod
    def from_bytes(cls, raw: bytes, number: int) -> LogRecord:
        body = parse_json_object(raw, _WHAT)
        try:
            record = cls(
                int(body["number"]),
                body["type"],
                str(body["owner"]),
                int(body["at_ms"]),
                dict(body["payload"]),
            )
            version = body["version"]
        except CONVERSION_ERRORS as error:
            raise FormatError(f"{_WHAT} is damaged ({error})") from error
        if version != RECORD_VERSION or record.type not in RECORD_TYPES:
            raise FormatError(
                f"{_WHAT} is of an unknown kind",
                expected=f"version {RECORD_VERSION}, one of {RECORD_TYPES}",
                got=f"version {version}, {record.type}",
            )
        if record.number != number:
            raise FormatError(
                f"{_WHAT} has another number than its file",
                expected=number,
                got=record.number,
            )
        return record


class CommitLog:
    """One process's view of a commit log. Not thread-safe.

    Invariants: (1) ``records`` is a prefix of what is published, without gaps; (2) this process
    writes only into the slot right after ``records``; (3) a record, once seen, never changes.
    """

    def __init__(self, file_io: FileIO, folder: Location, clock: Clock) -> None:
        self._file_io = file_io
        self._folder = folder
        self._clock = clock
        self._records: list[LogRecord] = []

    @property
    def records(self) -> tuple[LogRecord, ...]:
        return tuple(self._records)

    def records_after(self, number: int) -> list[LogRecord]:
        """The records behind the given number, as far as this process knows."""
        return self._records[number:]

    @property
    def commits(self) -> list[LogRecord]:
        return [record for record in self._records if record.type == "commit"]

    @property
    def latest_claim(self) -> LogRecord | None:
        claims = (record for record in reversed(self._records) if record.type == "claim")
        return next(claims, None)

    def refresh(self) -> None:
        """Reads the records that were published since the last look."""
        ahead = 1
        while True:
            first = len(self._records) + 1
            slots = [self._slot(number) for number in range(first, first + ahead)]
            found = self._file_io.read_while_there(slots)
            for number, (slot, raw) in enumerate(zip(slots, found, strict=False), first):
                with error_context(location=str(slot)):
                    self._records.append(LogRecord.from_bytes(raw, number))
            if len(found) < ahead:
                return
            # There were more than was asked for: who has been away long reads many at a time.
            ahead = min(2 * ahead, MOST_AT_ONCE)

    def check_there(self) -> None:
        """Raises CheckpointError if the last record that this process knows has been deleted."""
        if self._records and self._file_io.size(self._slot(len(self._records))) is None:
            raise CheckpointError(
                f"Nothing was committed: record {len(self._records)} of the commit log is gone, "
                f"and no driver deletes records; put the folder back, or start a pipeline of "
                f"another name from the latest checkpoint.",
                location=str(self._folder),
            )

    def claim(self, owner: str, payload: Callable[[], Mapping[str, Any]] = dict) -> LogRecord:
        """Makes ``owner`` the only one who may commit, whoever was it before.

        Args:
            owner: Name of the owner; unique to a process.
            payload: What the record says, given all records before it.

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
            f"Nothing was claimed: {owner!r} waited for a free slot of the commit log, and other "
            f"drivers took {MOST_TRIES} in a row; stop the drivers that restart all the time.",
            location=str(self._folder),
            owner=owner,
        )

    def append(self, owner: str, type_: OwnedRecordType, payload: Mapping[str, Any]) -> LogRecord:
        """Appends a record of the owner in the next slot.

        Raises:
            FencedError: The owner does not hold the latest claim, or an earlier record of its own
                came to light; nothing was recorded.
            StorageError: Whether the record stands is unknown until the next ``refresh``.
        """
        self.check_claim(owner)
        record = self._next(owner, type_, payload)
        if self._publish(record):
            return record
        # The slot is taken. Either the write that failed before was in truth ours, or another
        # owner claimed: only the record that stands there tells.
        standing = self._standing(record.number)
        if (standing.owner, standing.type, standing.payload) == (owner, type_, record.payload):
            return standing
        self.check_claim(owner)
        raise FencedError(
            f"Nothing was recorded: record {record.number} of {owner!r}, whose answer had got "
            f"lost, stands in its place; look at the log again.",
            location=str(self._folder),
            owner=owner,
        )

    def _standing(self, number: int) -> LogRecord:
        """The record in a slot that is taken.

        Raises:
            StorageError: It cannot be read.
        """
        for _ in range(MOST_TRIES):
            self.refresh()
            if len(self._records) >= number:
                return self._records[number - 1]
        raise StorageError(
            f"Nothing was recorded: slot {number} of the commit log is taken, and {MOST_TRIES} "
            f"looks waited in vain for the record that stands there; look for what hides or "
            f"deletes it: a cache in front of the store, a cleaning job, missing rights to read.",
            location=str(self._folder),
        )

    def check_claim(self, owner: str) -> None:
        """Raises FencedError unless ``owner`` holds the latest claim that this process knows."""
        claim = self.latest_claim
        if claim is None or claim.owner != owner:
            raise self._fenced(owner, claim)

    def _next(self, owner: str, type_: RecordType, payload: Mapping[str, Any]) -> LogRecord:
        number = len(self._records) + 1
        # The payload is read back from JSON so that it compares equal to what a reader sees.
        plain = parse_json_object(write_json_object(payload, _WHAT), _WHAT)
        return LogRecord(number, type_, owner, self._clock.now_ms(), plain)

    def _publish(self, record: LogRecord) -> bool:
        if record.number != len(self._records) + 1:
            raise InvariantViolation("a log record is not in the next slot")
        if not self._file_io.publish_once(self._slot(record.number), record.to_bytes()):
            return False
        self._records.append(record)
        return True

    def _slot(self, number: int) -> Location:
        return self._folder.child(f"{number}.json")

    def _fenced(self, owner: str, claim: LogRecord | None) -> FencedError:
        holder = f"{claim.owner!r} claimed it with record {claim.number}" if claim else "nobody did"
        return FencedError(
            f"Nothing was committed: {owner!r} does not own this pipeline ({holder}); start again "
            f"from the latest committed checkpoint.",
            location=str(self._folder),
            owner=owner,
        )
