"""A completed checkpoint, as the commit log records it."""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.checkpoint.store.properties import CheckpointProperties, JobStatus
from dstl_core.errors import FormatError
from dstl_core.model.snapshot_type import CheckpointType
from dstl_core.storage.commit_log import LogRecord
from dstl_core.storage.json_document import CONVERSION_ERRORS

CHECKPOINT_ID = "checkpoint_id"
FIRST_ID = "first_checkpoint_id"
IN_FLIGHT = "in_flight"
OUTPUTS_FROM = "outputs_from"

KEPT = CheckpointProperties(False, CheckpointType.CHECKPOINT, True)
"""Properties of a checkpoint that is deleted when it is subsumed and kept when the job ends."""


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """One commit: the place and digest of its metadata, and the ``EpochFacts`` of its record.

    ``location`` is the folder of a savepoint, or of the snapshot that a pipeline started from. It
    is None for a checkpoint in the pipeline's own folder. ``outputs_from`` is the id of the oldest
    commit whose stored output is kept; None if this commit does not limit the output.
    """

    checkpoint_id: int
    parent: int | None
    metadata_sha256: str
    committed_ms: int
    facts: EpochFacts
    properties: CheckpointProperties = KEPT
    location: str | None = None
    outputs_from: int | None = None

    @property
    def data_version(self) -> str:
        """Identifies the content of the commit; it never changes."""
        return f"ck-{self.checkpoint_id}:{self.metadata_sha256}"

    @classmethod
    def of(cls, record: LogRecord) -> CompletedCheckpoint:
        """The checkpoint of a record of type ``commit``, ``savepoint`` or ``restore``.

        Raises:
            FormatError: The record is damaged.
            UnsupportedVersionError: A newer release of dstl wrote it.
        """
        payload, what = record.payload, f"{record.type.capitalize()} record {record.number}"
        facts = EpochFacts.from_json(payload.get("facts"), what)
        try:
            parent = payload.get("parent")
            location = payload.get("location")
            outputs_from = payload.get(OUTPUTS_FROM)
            return cls(
                int(payload[CHECKPOINT_ID]),
                None if parent is None else int(parent),
                str(payload["metadata_sha256"]),
                record.at_ms,
                facts,
                _properties_of(record),
                None if location is None else str(location),
                None if outputs_from is None else int(outputs_from),
            )
        except CONVERSION_ERRORS as error:
            raise FormatError(
                f"{what} is damaged ({error})",
                number=record.number,
            ) from error


def _properties_of(record: LogRecord) -> CheckpointProperties:
    if record.type == "savepoint":
        return CheckpointProperties.for_savepoint()
    if record.type == "restore" and record.payload["claim_mode"] != "CLAIM":
        return CheckpointProperties.for_unclaimed_snapshot()
    statuses = frozenset(JobStatus(name) for name in record.payload.get("discard_on", ()))
    return CheckpointProperties(False, CheckpointType.CHECKPOINT, True, statuses)


def in_flight_of(record: LogRecord) -> int:
    """Number of ids that the owner of a claim may use beyond the recorded ones."""
    try:
        return int(record.payload.get(IN_FLIGHT, 1))
    except CONVERSION_ERRORS as error:
        raise _damaged(record, error) from error


def first_free_id(record: LogRecord) -> int:
    """The first checkpoint id that this record leaves unused."""
    try:
        match record.type:
            case "claim":
                return int(record.payload[FIRST_ID])
            case "discard":
                return 1
            case _:
                return int(record.payload[CHECKPOINT_ID]) + 1
    except CONVERSION_ERRORS as error:
        raise _damaged(record, error) from error


def _damaged(record: LogRecord, error: Exception) -> FormatError:
    return FormatError(f"Record {record.number} of the commit log is damaged ({error})")
