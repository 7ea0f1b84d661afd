"""Collects small batches of rows into one large batch."""

from __future__ import annotations

import sys

import pyarrow as pa

ROWS_PER_CALL = 1_000_000
BYTES_PER_CALL = 256 << 20


class RowBuffer:
    """Waiting batches of one schema.

    A larger batch has more rows per key, so work per key costs less. The batch is limited in rows
    and bytes, so memory stays bounded.

    Args:
        rows_per_call: The limit of rows; by default ``ROWS_PER_CALL``.
    """

    def __init__(self, rows_per_call: int | None = None) -> None:
        self._rows_per_call = rows_per_call or ROWS_PER_CALL
        self._bytes_per_call = BYTES_PER_CALL
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    @property
    def rows(self) -> int:
        """The number of rows that wait."""
        return self._rows

    def add(self, batch: pa.RecordBatch) -> bool:
        """Adds rows; returns True if the limit is reached and ``take`` should be called."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        return self._rows >= self._rows_per_call or self._bytes >= self._bytes_per_call

    def limit_by_bytes(self, bytes_per_call: int) -> bool:
        """Waits for these bytes, whatever the number of rows; returns as ``add``."""
        self._rows_per_call, self._bytes_per_call = sys.maxsize, bytes_per_call
        return self._bytes >= bytes_per_call

    def sample(self, name: str, rows: int) -> pa.Array:
        """About this number of values of a column, from all parts of the rows."""
        step = self._rows // rows + 1
        values = [
            batch.column(name).take(pa.array(range(0, batch.num_rows, step)))
            for batch in self._batches
        ]
        return pa.concat_arrays(values)

    def take(self) -> pa.RecordBatch | None:
        """Removes and returns all rows as one batch; None if there are no rows."""
        if not self._rows:
            return None
        batches, self._batches, self._rows, self._bytes = self._batches, [], 0, 0
        return one_batch(batches)


def one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema as one. It takes them out of the list, and lets go of each column that
    it has copied.
    """
    if len(batches) == 1:
        return batches.pop()
    schema = batches[0].schema
    columns = [[batch.column(at) for batch in batches] for at in range(len(schema))]
    batches.clear()
    copied = []
    while columns:
        copied.append(pa.concat_arrays(columns.pop(0)))
    return pa.RecordBatch.from_arrays(copied, schema=schema)
