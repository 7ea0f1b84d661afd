"""What a task tells the driver: one row per subtask, the state handle as ``_metadata`` bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.metadata_handles import read_keyed_handle, write_keyed_handle
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import ChangelogStateBackendHandle, KeyedStateHandle
from dstl_core.spark.inputs import Fingerprint

REPORT_SCHEMA = pa.schema(
    [
        ("subtask", pa.int32()),
        ("handle", pa.binary()),
        ("rows", pa.int64()),
        ("hash_sum", pa.string()),
        ("changes", pa.int64()),
        ("changed_keys", pa.int64()),
        ("output_rows", pa.int64()),
        ("output_files", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class SubtaskReport:
    """The outcome of one subtask. ``handle`` is encoded as in ``_metadata``."""

    subtask: int
    handle: bytes
    rows: int = 0
    hash_sum: str = "0"
    changes: int = 0
    changed_keys: int = 0
    output_rows: int = 0
    output_files: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, row: Row) -> SubtaskReport:
        values = row.asDict()
        return cls(**{**values, "handle": bytes(values["handle"])})

    def to_batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([asdict(self)], schema=REPORT_SCHEMA)

    @property
    def state(self) -> OperatorSubtaskState:
        return OperatorSubtaskState(self.subtask, managed_keyed_state=decode_handle(self.handle))

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.rows, int(self.hash_sum))

    @property
    def checkpointed_size(self) -> int:
        """Bytes that this checkpoint added."""
        handle = decode_handle(self.handle)
        if isinstance(handle, ChangelogStateBackendHandle):
            return handle.checkpointed_size
        return 0 if handle is None else handle.state_size


def encode_handle(handle: KeyedStateHandle | None) -> bytes:
    out = DataOutput()
    write_keyed_handle(out, handle)
    return out.to_bytes()


def decode_handle(raw: bytes) -> KeyedStateHandle | None:
    return read_keyed_handle(DataInput(raw))


def epoch_facts(
    input_id: str | int, reports: Sequence[SubtaskReport], *, seconds: float
) -> dict[str, Any]:
    """What the commit record keeps of an epoch; ``seconds`` is from its call to its commit."""
    fingerprint = sum((report.fingerprint for report in reports), Fingerprint(0, 0))
    return {
        "kind": "epoch",
        "input": {
            "id": input_id,
            "rows": fingerprint.rows,
            "hash_sum": f"{fingerprint.hash_sum:016x}",
        },
        "seconds": round(seconds, 3),
        "changes": sum(report.changes for report in reports),
        "changed_keys": sum(report.changed_keys for report in reports),
        "log_bytes": sum(report.checkpointed_size for report in reports),
        "output_rows": sum(report.output_rows for report in reports),
        "output_files": sorted(name for report in reports for name in report.output_files),
    }
