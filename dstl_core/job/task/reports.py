"""The reports of tasks to the driver: one row per subtask, its state as ``_metadata`` bytes."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from dstl_core.cached_property import cached_property
from dstl_core.checkpoint.store.epoch_facts import (
    EpochFacts,
    InputFacts,
    KeyFacts,
    Kind,
    OperatorFacts,
    WorkFacts,
)
from dstl_core.codec.metadata.metadata_format import read_metadata, write_metadata
from dstl_core.job.spec.fingerprint import Fingerprint
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import ChangelogStateBackendHandle, KeyedStateHandle
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import UPPER_BOUND_MAX_PARALLELISM
from dstl_core.storage.written_files import WrittenFile

_COLUMN_TYPES = {"int": pa.int64(), "tuple[str, ...]": pa.list_(pa.string())}
"""The Arrow type of a field of ``WorkFacts``, by its annotation."""
REPORT_SCHEMA = pa.schema(
    [
        ("uid", pa.string()),
        ("subtask", pa.int32()),
        ("state", pa.binary()),
        ("hash_sum", pa.string()),
        ("warmth", pa.string()),
        ("attempt", pa.int32()),
        ("latest_time", pa.int64()),
        (
            "written",
            pa.list_(
                pa.struct([("path", pa.string()), ("size", pa.int64()), ("sha256", pa.string())])
            ),
        ),
        *((each.name, _COLUMN_TYPES[str(each.type)]) for each in fields(WorkFacts)),
    ]
)

NO_NOTES: Mapping[str, Any] = MappingProxyType({})
NO_DEFINITIONS: Mapping[str, Mapping[str, str]] = MappingProxyType({})
NO_KEYS: Mapping[str, KeyFacts] = MappingProxyType({})
_WARMTHS = ("warm", "caught up", "cold", "idle")
_NAMES = ("output_files", "late_files")


@dataclass(frozen=True, kw_only=True)
class SubtaskMetrics:
    """The present counts of a subtask, with the names of ``WorkFacts``."""

    changes: int
    changed_keys: int
    keys_gained: int
    late_rows: int
    back_pressure_ms: int
    failed_uploads: int


@dataclass(frozen=True)
class SubtaskReport(WorkFacts):
    """The outcome of one subtask.

    Args:
        uid: The uid of its operator.
        subtask: Its index, from 0.
        state: Its state, encoded as in ``_metadata``.
        hash_sum: Sum of the hashes of its rows.
        warmth: How it got its state: ``warm`` (a local copy), ``caught up`` (an older copy and the
            log after it), ``cold`` (the snapshot) or ``idle`` (it did not run).
        attempt: Number of the task's attempt, from 0.
        written: The state files that it wrote.
        latest_time: The largest event time of its rows, in milliseconds; None if none has a time.

    The other arguments are those of ``WorkFacts``.
    """

    uid: str
    subtask: int
    state: bytes
    _: KW_ONLY
    hash_sum: str = "0"
    warmth: str = "idle"
    attempt: int = 0
    written: list[WrittenFile] = field(default_factory=list)
    latest_time: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> SubtaskReport:
        """The report of a row of ``REPORT_SCHEMA``, with dictionaries for structs."""
        return cls._of_values({**values, "state": bytes(values["state"])})

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
        return cls._of_values({**body, "state": base64.b64decode(body["state"], validate=True)})

    @classmethod
    def _of_values(cls, values: Mapping[str, Any]) -> SubtaskReport:
        names = {key: tuple(each) for key, each in values.items() if key in _NAMES}
        written = [WrittenFile(**each) for each in values.get("written", ())]
        return cls(**{**values, **names, "written": written})

    def to_batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([asdict(self)], schema=REPORT_SCHEMA)

    @cached_property
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
    epoch_input: InputFacts | None = None,
    seconds: float = 0.0,
    watermarks: Mapping[str, int],
    restored_from: int,
    keys_before: Mapping[str, KeyFacts] = NO_KEYS,
    notes: Mapping[str, Any] = NO_NOTES,
    definitions: Mapping[str, Mapping[str, str]] = NO_DEFINITIONS,
    outputs: Mapping[str, tuple[str, ...]] | None = None,
) -> EpochFacts:
    """Makes the facts of an epoch for its commit record.

    Args:
        kind: Why the epoch ran.
        reports: The reports of all subtasks.
        epoch_input: Its input, if it had one.
        seconds: Time from the call to the commit.
        watermarks: Event time that operators have reached, in milliseconds, by uid.
        restored_from: Id of the checkpoint whose state it restored.
        keys_before: The keys of operators that count them, before the epoch, by uid.
        notes: Values that the record stores for the caller.
        definitions: The definitions of aggregates, by uid and name.
        outputs: The columns of the outputs that it stored, by name.
    """
    uids = list(dict.fromkeys(report.uid for report in reports))
    operators = {uid: _operator([each for each in reports if each.uid == uid]) for uid in uids}
    return EpochFacts(
        kind=kind,
        input=epoch_input,
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
                for operator in operators.values()
                for name in (*operator.output_files, *operator.late_files)
            )
        ),
        operators=operators,
        notes=notes,
        keys={
            uid: replace(before, count=before.count + operators[uid].keys_gained)
            for uid, before in keys_before.items()
        },
        definitions=definitions,
        outputs=outputs,
    )


def _operator(reports: Sequence[SubtaskReport]) -> OperatorFacts:
    """Sums up the reports of the subtasks of one operator."""
    warmth = Counter(each.warmth for each in reports)
    return OperatorFacts(
        log_bytes=sum(each.checkpointed_size for each in reports),
        warmth={how: warmth[how] for how in _WARMTHS if warmth[how]},
        retries=sum(each.attempt for each in reports),
        **{each.name: _total(each.name, reports) for each in fields(WorkFacts)},
    )


def _total(name: str, reports: Sequence[SubtaskReport]) -> Any:
    """Joins the names of files, takes the longest time, and adds other numbers."""
    values = [getattr(each, name) for each in reports]
    if name in _NAMES:
        return tuple(sorted(file for each in values for file in each))
    return max(values) if name.endswith("_ms") else sum(values)
