"""Joins small batches of rows, since work on columns has a price per batch. Divides large ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

TASK_ROWS = 100_000
TASK_BYTES = 32 << 20


def together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins small batches into larger ones, limited in rows and bytes."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > TASK_ROWS or size + batch.nbytes > TASK_BYTES):
            yield _one(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if rows:
        yield _one(held)


def within_bytes(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts of at most ``TASK_BYTES``, or of one row. Bytes that all parts share, those
    of a dictionary or behind a view, count as spread over the rows.
    """
    shared = batch.slice(0, 0).nbytes
    yield from _parts(batch, shared, shared / max(1, batch.num_rows))


def _parts(batch: pa.RecordBatch, shared: int, of_row: float) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    if rows < 2 or batch.nbytes - shared + rows * of_row <= TASK_BYTES:
        yield batch
        return
    yield from _parts(batch.slice(0, rows // 2), shared, of_row)
    yield from _parts(batch.slice(rows // 2), shared, of_row)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
