"""Rows on their way to the subtasks that own their keys, as messages of Arrow.

A task that reads a batch divides it by subtask, and makes a message of the rows of each. Spark's
shuffle sends the messages in parts, as rows of bytes. So it handles few rows, and no row becomes
columns a second time: ``docs/decisions/0041-rows-sent-as-arrow.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from dstl_core.job.rows.placement import Placement
from dstl_core.job.rows.row_buffer import RowBuffer
from dstl_core.job.spec.fingerprint import FINGERPRINT_COLUMN, SUBTASK_COLUMN, Fingerprint
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.job.spec.row_hashes import RowHash
from dstl_core.job.task.reduced_rows import reduced_on_the_way

PART_BYTES = 8 << 10
"""Bytes of a part. Spark limits its batches by rows alone, so parts have to be small."""
ROWS_PER_MESSAGE = 500_000
"""Rows that a task divides at a time, or fewer if they are large."""
_PAYLOAD, _HASH_SUM = "payload", b"hash_sum"
MESSAGE_SCHEMA = pa.schema(
    [
        pa.field(SUBTASK_COLUMN, pa.int32()),
        pa.field("source", pa.int32()),
        pa.field("message", pa.int32()),
        pa.field("part", pa.int32()),
        pa.field("parts", pa.int32()),
        pa.field(_PAYLOAD, pa.binary()),
    ]
)


@dataclass(frozen=True)
class SendRows:
    """Runs in tasks: makes messages of the rows of a partition.

    Args:
        placement: Finds the subtask of a row.
        columns: The columns that the subtasks get.
        row_hash: Hashes rows; None: they have a column of hashes.
        reduced_for: The operator whose aggregates are reduced on the way; None: no row is reduced.
    """

    placement: Placement
    columns: Sequence[str]
    row_hash: RowHash | None
    reduced_for: AggregateOperator | None = None
    label = "send rows to their subtasks"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        source = 0 if context is None else context.partitionId()
        number = 0
        for batch in _gathered(batches):
            for subtask, message in self._messages(batch):
                yield _parts_of(message, subtask, source, number)
                number += 1

    def _messages(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.Buffer]]:
        hashes = self.row_hash.of(batch) if self.row_hash else batch.column(FINGERPRINT_COLUMN)
        reduced = None
        if self.reduced_for is not None:
            reduced = reduced_on_the_way(self.reduced_for, batch, hashes)
        if reduced is None:
            sent = batch.select(list(self.columns))
        else:
            batch = sent = reduced.drop_columns(FINGERPRINT_COLUMN)
            hashes = reduced.column(FINGERPRINT_COLUMN)
        for subtask, places in self.placement.split(batch, hashes):
            if places is None:
                yield subtask, _message_of(sent, hashes)
            else:
                yield subtask, _message_of(sent.take(places), hashes.take(places))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting = RowBuffer(ROWS_PER_MESSAGE)
    for batch in batches:
        if waiting.add(batch) and (rows := waiting.take()) is not None:
            yield rows
    if (rows := waiting.take()) is not None:
        yield rows


def _message_of(rows: pa.RecordBatch, hashes: pa.Array) -> pa.Buffer:
    """Rows as a stream, and the sum of their hashes: a fingerprint needs no more of them."""
    fingerprint = Fingerprint.of_column(hashes)
    schema = rows.schema.with_metadata({_HASH_SUM: str(fingerprint.hash_sum)})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as stream:
        stream.write_batch(rows.replace_schema_metadata(schema.metadata))
    return out.getvalue()


def _parts_of(message: pa.Buffer, subtask: int, source: int, number: int) -> pa.RecordBatch:
    """The parts of a message, without a copy of its bytes."""
    bounds = np.append(np.arange(0, message.size, PART_BYTES), message.size).astype(np.int32)
    count = len(bounds) - 1
    heads = [np.full(count, value, np.int32) for value in (subtask, source, number)]
    payload = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), message])
    parts = [*heads, np.arange(count, dtype=np.int32), np.full(count, count, np.int32), payload]
    return pa.RecordBatch.from_arrays([*map(pa.array, parts[:-1]), payload], schema=MESSAGE_SCHEMA)


def received(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in tasks: the rows of messages, whose parts come in any order.

    The first row of a message has the sum of the hashes of its rows, and all others have 0.
    """
    waiting: dict[tuple[int, int], dict[int, pa.Buffer]] = {}
    for batch in batches:
        heads = (batch.column(name).to_pylist() for name in ("source", "message", "part", "parts"))
        for source, number, part, count, payload in zip(
            *heads, batch.column(_PAYLOAD), strict=True
        ):
            parts = waiting.setdefault((source, number), {})
            parts[part] = payload.as_buffer()
            if len(parts) == count:
                del waiting[source, number]
                yield _rows_of(b"".join(parts[at] for at in range(count)))


def _rows_of(message: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(message) as stream:
        [rows] = stream
        hash_sum = int(stream.schema.metadata[_HASH_SUM])
    hashes = np.zeros(rows.num_rows, np.uint64)
    hashes[0] = hash_sum
    return rows.append_column(FINGERPRINT_COLUMN, pa.array(hashes.view(np.int64)))
