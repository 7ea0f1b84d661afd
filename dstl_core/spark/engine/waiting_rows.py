"""Batches of rows that wait to be one large batch."""

from __future__ import annotations

import pyarrow as pa

ROWS_PER_CALL = 1_000_000
BYTES_PER_CALL = 256 << 20


class WaitingRows:
    """Batches of one schema. What is per key of a batch costs less the larger a batch is; its
    number of rows and bytes bound the memory.
    """

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Adds rows; True if they should be taken now."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        return self._rows >= ROWS_PER_CALL or self._bytes >= BYTES_PER_CALL

    def take(self) -> pa.RecordBatch | None:
        """All rows, as one batch; None if there are none."""
        if not self._rows:
            return None
        table = pa.Table.from_batches(self._batches).combine_chunks()
        self._batches, self._rows, self._bytes = [], 0, 0
        [rows] = table.to_batches()
        return rows
