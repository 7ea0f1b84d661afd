"""Where sources stand, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from dstl_core.savepoint.connectors.source_positions import source_positions
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.read.table_base import SnapshotTable, Split


@dataclass
class PositionTable(SnapshotTable):
    """A row per split of every source, with the fields of ``SourcePosition``."""

    snapshot: Snapshot
    size: int = 0
    schema: pa.Schema = field(
        default_factory=lambda: pa.schema(
            [
                ("op", pa.string()),
                ("connector", pa.string()),
                ("split", pa.string()),
                ("position", pa.string()),
                ("word", pa.string()),
                ("stop", pa.string()),
                ("subtask", pa.int32()),
                ("status", pa.string()),
                ("version", pa.int32()),
                ("time_ms", pa.int64()),
                ("snapshot_ms", pa.int64()),
            ]
        )
    )

    def splits(self, split_bytes: int, minimum: int) -> list[Split]:
        return [(0, 0)]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        rows = [each.to_json() for each in source_positions(self.snapshot)]
        yield pa.RecordBatch.from_pylist(rows, schema=self.schema)
