"""The latest event time of the rows that tasks read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.job.spec.fingerprint import TIME_COLUMN


def later(one: int | None, other: int | None) -> int | None:
    """The later of two times; None is no time."""
    return max((time for time in (one, other) if time is not None), default=None)


def latest_time_in(batch: pa.RecordBatch, column: str | None) -> int | None:
    """The latest event time of rows in milliseconds, rounded down; None if there is none."""
    if TIME_COLUMN in batch.schema.names:
        column = TIME_COLUMN
    if column is None:
        return None
    latest = pc.max(batch.column(column))
    if not pa.types.is_timestamp(latest.type):
        return latest.as_py()  # type: ignore[no-any-return]
    micros = latest.cast(pa.timestamp("us", latest.type.tz)).value
    return None if micros is None else micros // 1000
