"""Places of change records in a batch, and the state of each record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.kernels.change_rows import HEAD_BYTES as HEAD_BYTES
from dstl_core.codec.columnar.kernels.change_rows import split_changes
from dstl_core.codec.columnar.keyed.spans import Source, SpanBatch
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.scratch import scratch_words
from dstl_core.errors import FormatError, TruncatedDataError

METADATA = StateChangeOperation.METADATA.value


@dataclass(frozen=True)
class ChangeSpans:
    """Change records, ``[rows]`` each. The value of a span starts after the state id."""

    batch: SpanBatch
    operations: Int64s
    ids: Int64s
    rows: Int64s
    """Row of each record in its batch."""

    def take(self, rows: Any) -> ChangeSpans:
        """Selects records by a slice or indices."""
        return ChangeSpans(
            self.batch.take(rows), self.operations[rows], self.ids[rows], self.rows[rows]
        )

    def by_operation(self) -> Iterator[tuple[StateChangeOperation, int, ChangeSpans]]:
        """Yields operation, state id and records. All records must follow the same state metadata.

        Raises:
            FormatError: An operation is unknown.
        """
        kinds = self.operations << 16 | (self.ids & 0xFFFF)
        # Changes of a kind stand together, so that few of them have to be sorted.
        every = np.unique(kinds[np.flatnonzero(np.diff(kinds, prepend=-1))])
        is_one = len(every) == 1
        for kind in every:
            code = int(kind) >> 16
            if code >= METADATA:
                raise FormatError(
                    "A change has an unknown operation", offset=0, expected="0..8", got=code
                )
            taken = self if is_one else self.take(np.flatnonzero(kinds == kind))
            yield StateChangeOperation(code), int(taken.ids[0]), taken


def change_spans(batch: pa.RecordBatch) -> Iterator[ChangeSpans | bytes]:
    """Splits a batch of ``CHANGE_SCHEMA``, in its order.

    Yields the records between two metadata changes together, and each metadata change as bytes.

    Raises:
        FormatError: A record is too short for operation and state id.
    """
    values = batch.column("value")
    _, offsets, data = values.buffers()
    rows = len(values)
    if not rows:
        return
    source = Source(data if data is not None else b"", ())
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + rows + 1]
    groups = np.ascontiguousarray(batch.column("key_group").to_numpy())
    spans = scratch_words(rows, scan.SPAN_WORDS)
    operations, ids = np.empty(rows, np.int64), np.empty(rows, np.int64)
    columns = address_of(bounds), address_of(groups), rows
    out = address_of(spans), address_of(operations), address_of(ids)
    short = split_changes(source.base, *columns, *out)
    if short >= 0:
        raise TruncatedDataError(
            "The data ends too early",
            offset=0,
            field="operation and state id of a change",
            expected=f"{HEAD_BYTES} bytes",
            got=int(bounds[short + 1] - bounds[short]),
        )
    every = ChangeSpans(SpanBatch(spans, source), operations, ids, np.arange(rows))
    starts, ends = bounds[:-1], bounds[1:]
    first = 0
    for row in [*np.flatnonzero(operations == METADATA).tolist(), rows]:
        if row > first:
            yield every if row - first == rows else every.take(slice(first, row))
        if row < rows:
            yield bytes(source.data[int(starts[row]) : int(ends[row])])
        first = row + 1
