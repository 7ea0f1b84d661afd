"""The index of a commit log: copies of its records in few files.

    <log>/index/1.json     a run: records 1 to 100
    <log>/index/2.json     records 101 to 200
    <log>/index/head.json  the records since the last full run, the latest claim, and a summary of
                           all records with everything that a new owner needs to know of old ones

A run is published once and never changes. It is determined by its records, so two writers publish
the same bytes. The head is replaced every few records. A new process reads the head and the few
records after it. It reads a run only to look up old records.

The index is derived from the numbered records. If one of its files is missing or damaged, the
records are read instead. Only where old records were deleted on request, the run is the only copy.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dstl_core.errors import FormatError
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.json_document import CONVERSION_ERRORS, parse_json_object
from dstl_core.storage.location import Location
from dstl_core.storage.log_record import LogRecord

_LOG = logging.getLogger(__name__)
INDEX_VERSION = 1
RUN = 100
"""Records in a run."""
_RUN_WHAT = "A run of the commit log's index"
_HEAD_WHAT = "The head of the commit log's index"


def run_of(number: int) -> int:
    """The run that contains a record."""
    return (number - 1) // RUN + 1


def first_of(run: int) -> int:
    return (run - 1) * RUN + 1


@dataclass(frozen=True, slots=True)
class Head:
    """The state of the log at its record ``count``.

    ``records`` are those of the run that contains record ``count``; there is at least one.
    """

    count: int
    claim: LogRecord | None
    summary: Mapping[str, Any]
    records: Sequence[LogRecord]


class LogIndex:
    """Reads and writes the files of the index. A damaged file never raises."""

    def __init__(self, file_io: FileIO, log: Location) -> None:
        self._file_io = file_io
        self._folder = log.child("index")
        self.head_location = self._folder.child("head.json")

    def location(self, run: int) -> Location:
        return self._folder.child(f"{run}.json")

    def has_run(self, run: int) -> bool:
        return self._file_io.size(self.location(run)) is not None

    def read_runs(self, runs: Sequence[int]) -> list[Sequence[LogRecord] | None]:
        """The records of runs; None for each run that is missing or damaged."""
        payloads = self._file_io.read_each([self.location(run) for run in runs])
        return [self.parse_run(run, raw) for run, raw in zip(runs, payloads, strict=True)]

    def parse_run(self, run: int, raw: bytes | None) -> Sequence[LogRecord] | None:
        """Parses the bytes of a run; None if they are missing or damaged."""
        if raw is None:
            return None
        try:
            return _parse_records(_unsealed(raw, _RUN_WHAT), first_of(run), RUN)
        except FormatError as error:
            _LOG.warning("%s is not used: %s", self.location(run), error)
            return None

    def publish_run(self, run: int, records: Sequence[LogRecord]) -> None:
        body = {"version": INDEX_VERSION, "records": [each.to_json() for each in records]}
        self._file_io.publish_once(self.location(run), _sealed(body))

    def read_head(self) -> Head | None:
        """The head; None if it is missing or damaged."""
        [raw] = self._file_io.read_each([self.head_location])
        if raw is None:
            return None
        try:
            return _parse_head(raw)
        except FormatError as error:
            _LOG.warning("%s is not used: %s", self.head_location, error)
            return None

    def write_head(self, head: Head) -> None:
        body = {
            "version": INDEX_VERSION,
            "count": head.count,
            "claim": None if head.claim is None else head.claim.to_json(),
            "summary": dict(head.summary),
            "records": [each.to_json() for each in head.records],
        }
        self._file_io.replace(self.head_location, _sealed(body))


def _parse_head(raw: bytes) -> Head:
    body = _unsealed(raw, _HEAD_WHAT)
    try:
        count, claim, summary = int(body["count"]), body["claim"], dict(body["summary"])
        claimed = None if claim is None else LogRecord.from_json(claim, claim["number"])
    except CONVERSION_ERRORS as error:
        raise FormatError(f"{_HEAD_WHAT} is damaged ({error})") from error
    first = first_of(run_of(count))
    return Head(count, claimed, summary, _parse_records(body, first, count - first + 1))


def _parse_records(body: Mapping[str, Any], first: int, count: int) -> Sequence[LogRecord]:
    records = body.get("records")
    if not isinstance(records, list) or len(records) != count:
        raise FormatError("A file of the commit log's index has other records than its name says")
    return [LogRecord.from_json(each, number) for number, each in enumerate(records, first)]


def _sealed(body: Mapping[str, Any]) -> bytes:
    return _compact({**body, "sha256": _digest(body)})


def _unsealed(raw: bytes, what: str) -> Mapping[str, Any]:
    body = parse_json_object(raw, what)
    expected, digest = body.pop("sha256", None), _digest(body)
    if expected != digest:
        raise FormatError(f"{what} is damaged", expected=f"sha256 {expected}", got=digest)
    if body.get("version") != INDEX_VERSION:
        raise FormatError(
            f"{what} is of an unknown kind",
            expected=f"version {INDEX_VERSION}",
            got=f"version {body.get('version')}",
        )
    return body


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(_compact(body)).hexdigest()


def _compact(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()
