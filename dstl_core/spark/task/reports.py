"""The reports of tasks to the driver: one row per subtask, its state as ``_metadata`` bytes."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from dstl_core.checkpoint.store.epoch_facts import EpochFacts, InputFacts, Kind, OperatorFacts
from dstl_core.codec.metadata.metadata_format import read_metadata, write_metadata
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import ChangelogStateBackendHandle, KeyedStateHandle
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import UPPER_BOUND_MAX_PARALLELISM
from dstl_core.spark.task.inputs import Fingerprint
from dstl_core.storage.written_files import WrittenFile

REPORT_SCHEMA = pa.schema(
    [
        ("uid", pa.string()),
        ("subtask", pa.int32()),
        ("state", pa.binary()),
        ("rows", pa.int64()),
        ("hash_sum", pa.string()),
        ("changes", pa.int64()),
        ("changed_keys", pa.int64()),
        ("output_rows", pa.int64()),
        ("output_files", pa.list_(pa.string())),
        ("warmth", pa.string()),
        ("restore_ms", pa.int64()),
        ("apply_ms", pa.int64()),
        ("persist_ms", pa.int64()),
        ("attempt", pa.int32()),
        ("late_rows", pa.int64()),
        ("back_pressure_ms", pa.int64()),
        ("failed_uploads", pa.int64()),
        ("late_files", pa.list_(pa.string())),
        (
            "written",
            pa.list_(
                pa.struct([("path", pa.string()), ("size", pa.int64()), ("sha256", pa.string())])
            ),
        ),
    ]
)

NO_NOTES: Mapping[str, Any] = MappingProxyType({})
_WARMTHS = ("warm", "caught up", "cold", "idle")


@dataclass(frozen=True, kw_only=True)
class SubtaskMetrics:
    """The present counts of a subtask, with the names of ``SubtaskReport``."""

    changes: int
    changed_keys: int
    late_rows: int
    back_pressure_ms: int
    failed_uploads: int


@dataclass(frozen=True)
class SubtaskReport:
    """The outcome of one subtask.

    Args:
        uid: Of its operator.
        subtask: Its index, from 0.
        state: Its state, encoded as in ``_metadata``.
        rows: Rows that it read.
        hash_sum: Sum of their hashes.
        changes: Changes that it logged.
        changed_keys: Keys whose state changed.
        output_rows: Rows that it gave.
        output_files: Names of the files with them.
        warmth: Where its state came from: ``warm`` (a local copy), ``caught up`` (an older copy and
            the log since), ``cold`` (the snapshot) or ``idle`` (it did not run).
        restore_ms: How long it restored.
        apply_ms: How long it applied rows.
        persist_ms: How long it made its state durable.
        attempt: Number of the task's attempt, from 0.
        late_rows: Rows that came after all of their windows had ended.
        back_pressure_ms: How long it waited for uploads to be accepted.
        failed_uploads: Attempts to upload that failed.
        late_files: Names of the files with late rows.
        written: The state files that it wrote.
    """

    uid: str
    subtask: int
    state: bytes
    _: KW_ONLY
    rows: int = 0
    hash_sum: str = "0"
    changes: int = 0
    changed_keys: int = 0
    output_rows: int = 0
    output_files: list[str] = field(default_factory=list)
    warmth: str = "idle"
    restore_ms: int = 0
    apply_ms: int = 0
    persist_ms: int = 0
    attempt: int = 0
    late_rows: int = 0
    back_pressure_ms: int = 0
    failed_uploads: int = 0
    late_files: list[str] = field(default_factory=list)
    written: list[WrittenFile] = field(default_factory=list)

    @classmethod
    def of(cls, row: Row) -> SubtaskReport:
        values = row.asDict(recursive=True)
        written = [WrittenFile(**each) for each in values["written"]]
        return cls(**{**values, "state": bytes(values["state"]), "written": written})

    @classmethod
    def of_keyed(
        cls, subtask: int, handle: KeyedStateHandle | None, written: Iterable[WrittenFile] = ()
    ) -> SubtaskReport:
        """The report of a task that only wrote keyed state."""
        state = OperatorSubtaskState(subtask, managed_keyed_state=handle)
        return cls("", subtask, encode_state(state), written=list(written))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "state": base64.b64encode(self.state).decode()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SubtaskReport:
        state = base64.b64decode(body["state"], validate=True)
        written = [WrittenFile(**each) for each in body.get("written", ())]
        return cls(**{**body, "state": state, "written": written})

    def to_batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([asdict(self)], schema=REPORT_SCHEMA)

    @property
    def subtask_state(self) -> OperatorSubtaskState:
        return decode_state(self.state)

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.rows, int(self.hash_sum))

    @property
    def checkpointed_size(self) -> int:
        """Bytes that this checkpoint added."""
        if self.warmth == "idle":
            return 0
        state = self.subtask_state
        keyed = state.managed_keyed_state
        if isinstance(keyed, ChangelogStateBackendHandle):
            return keyed.checkpointed_size + state.state_size - keyed.state_size
        return state.state_size


def encode_state(state: OperatorSubtaskState) -> bytes:
    """Encodes the state of a subtask as a ``_metadata`` file that has nothing else."""
    operator = OperatorState(
        OperatorID.for_uid(""), state.index + 1, UPPER_BOUND_MAX_PARALLELISM, (state,)
    )
    return write_metadata(CheckpointMetadata(3, 1, (operator,)))


def decode_state(raw: bytes) -> OperatorSubtaskState:
    return read_metadata(raw).operators[0].subtasks[0]


def epoch_facts(
    kind: Kind,
    reports: Sequence[SubtaskReport],
    *,
    given: InputFacts | None = None,
    seconds: float = 0.0,
    watermarks: Mapping[str, int],
    restored_from: int,
    notes: Mapping[str, Any] = NO_NOTES,
) -> EpochFacts:
    """Makes the facts of an epoch for its commit record.

    Args:
        kind: Why the epoch ran.
        reports: The reports of all subtasks.
        given: Its input, if it had one.
        seconds: Time from the call to the commit.
        watermarks: Event time that operators have reached, in milliseconds, by uid.
        restored_from: Id of the checkpoint whose state it restored.
        notes: Values that the record stores for the caller.
    """
    uids = list(dict.fromkeys(report.uid for report in reports))
    operators = {uid: _operator([each for each in reports if each.uid == uid]) for uid in uids}
    return EpochFacts(
        kind=kind,
        input=given,
        seconds=round(seconds, 3),
        restored_from=restored_from,
        watermarks=dict(watermarks),
        changes=sum(each.changes for each in operators.values()),
        changed_keys=sum(each.changed_keys for each in operators.values()),
        log_bytes=sum(each.log_bytes for each in operators.values()),
        output_rows=sum(each.output_rows for each in operators.values()),
        # gc recognizes output files by these names.
        output_files=tuple(
            sorted(
                name
                for each in operators.values()
                for name in (*each.output_files, *each.late_files)
            )
        ),
        operators=operators,
        notes=notes,
    )


def _operator(reports: Sequence[SubtaskReport]) -> OperatorFacts:
    """Sums up the reports of the subtasks of one operator."""
    warmth = Counter(each.warmth for each in reports)
    return OperatorFacts(
        rows=sum(each.rows for each in reports),
        changes=sum(each.changes for each in reports),
        changed_keys=sum(each.changed_keys for each in reports),
        log_bytes=sum(each.checkpointed_size for each in reports),
        output_rows=sum(each.output_rows for each in reports),
        output_files=tuple(sorted(name for each in reports for name in each.output_files)),
        late_rows=sum(each.late_rows for each in reports),
        late_files=tuple(sorted(name for each in reports for name in each.late_files)),
        warmth={how: warmth[how] for how in _WARMTHS if warmth[how]},
        restore_ms=max(each.restore_ms for each in reports),
        apply_ms=max(each.apply_ms for each in reports),
        persist_ms=max(each.persist_ms for each in reports),
        back_pressure_ms=max(each.back_pressure_ms for each in reports),
        failed_uploads=sum(each.failed_uploads for each in reports),
        retries=sum(each.attempt for each in reports),
    )
