"""One record of a commit log: a JSON file, or an object in a file of the index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dstl_core.errors import FormatError
from dstl_core.storage.json_document import (
    CONVERSION_ERRORS,
    as_read_back,
    parse_json_object,
    write_json_object,
)

RECORD_VERSION = 1
OwnedRecordType = Literal["commit", "abort", "savepoint", "restore", "discard"]
"""Types of owners' records: a completed checkpoint, an aborted checkpoint id, a savepoint, the
snapshot that the pipeline was restored from, and checkpoints discarded at its end.
"""
RecordType = Literal["claim"] | OwnedRecordType
RECORD_TYPES = ("claim", *get_args(OwnedRecordType))
_WHAT = "A record of the commit log"


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record. The owner defines the content of ``payload``."""

    number: int
    type: RecordType
    owner: str
    at_ms: int
    payload: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": RECORD_VERSION,
            "number": self.number,
            "type": self.type,
            "owner": self.owner,
            "at_ms": self.at_ms,
            "payload": dict(self.payload),
        }

    def to_bytes(self) -> bytes:
        return write_json_object(self.to_json(), _WHAT)

    @classmethod
    def from_bytes(cls, raw: bytes, number: int) -> LogRecord:
        return cls.from_json(parse_json_object(raw, _WHAT), number)

    @classmethod
    def from_json(cls, body: Mapping[str, Any], number: int) -> LogRecord:
        """Reads the record with a number.

        Raises:
            FormatError: The record is damaged, of an unknown kind, or has another number.
        """
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


def as_recorded(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Converts a payload to the form that is read back from a record, for comparisons."""
    return as_read_back(payload, _WHAT)
