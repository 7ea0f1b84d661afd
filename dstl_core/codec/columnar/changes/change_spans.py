"""Places of change records in a batch, and the state of each record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.spans import Source, SpanBatch
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.errors import FormatError, TruncatedDataError

HEAD_BYTES = 3
"""Size of operation and state id."""
METADATA = StateChangeOperation.METADATA.value


@dataclass(frozen=True)
class ChangeSpans:
    """Change records, ``[rows]`` each. The value of a span starts after the state id."""

    batch: SpanBatch
    operations: Int64s
    ids: Int64s
    rows: Int64s
    """Row of each record in its batch."""

    def take(self, rows: Int64s) -> ChangeSpans:
        return ChangeSpans(
            self.batch.take(rows), self.operations[rows], self.ids[rows], self.rows[rows]
        )

    def by_operation(self) -> Iterator[tuple[StateChangeOperation, int, ChangeSpans]]:
        """Yields operation, state id and records. All records must follow the same state metadata.

        Raises:
            FormatError: An operation is unknown.
        """
        kinds = self.operations << 16 | (self.ids & 0xFFFF)
        for kind in np.unique(kinds):
            own = np.flatnonzero(kinds == kind)
            code = int(kind) >> 16
            if code >= METADATA:
                raise FormatError(
                    "A change has an unknown operation", offset=0, expected="0..8", got=code
                )
            yield StateChangeOperation(code), int(self.ids[own[0]]), self.take(own)


def change_spans(batch: pa.RecordBatch) -> Iterator[ChangeSpans | bytes]:
    """Splits a batch of ``CHANGE_SCHEMA``, in its order.

    Yields the records between two metadata changes together, and each metadata change as bytes.

    Raises:
        FormatError: A record is too short for operation and state id.
    """
    values = batch.column("value")
    _, offsets, data = values.buffers()
    rows = len(values)
    source = Source(data if data is not None else b"", ())
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + rows + 1]
    starts, ends = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
    short = np.flatnonzero(ends - starts < HEAD_BYTES)
    if len(short):
        raise TruncatedDataError(
            "The data ends too early",
            offset=0,
            field="operation and state id of a change",
            expected=f"{HEAD_BYTES} bytes",
            got=int((ends - starts)[short[0]]),
        )
    raw = np.frombuffer(source.data or b"\0", np.uint8)
    spans = np.zeros((rows, scan.SPAN_WORDS), np.int64)
    spans[:, scan.VALUE_START] = source.base + starts + HEAD_BYTES
    spans[:, scan.VALUE_END] = source.base + ends
    spans[:, scan.TAG] = batch.column("key_group").to_numpy().astype(np.int64) << 16
    operations = raw[starts].astype(np.int64)
    ids = (raw[starts + 1].astype(np.int16) << 8 | raw[starts + 2]).astype(np.int64)
    every = ChangeSpans(SpanBatch(spans, source), operations, ids, np.arange(rows))
    first = 0
    for row in [*np.flatnonzero(operations == METADATA).tolist(), rows]:
        if row > first:
            yield every.take(np.arange(first, row))
        if row < rows:
            yield bytes(source.data[int(starts[row]) : int(ends[row])])
        first = row + 1
