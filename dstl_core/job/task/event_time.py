"""The latest event time of the rows that tasks read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def later(one: int | None, other: int | None) -> int | None:
    """The later of two times; None is no time."""
    return max((time for time in (one, other) if time is not None), default=None)


def latest_time_in(batch: pa.RecordBatch, column: str | None) -> int | None:
    """The latest event time of rows in milliseconds, rounded down; None if there is none."""
    if column is None:
        return None
    times = batch.column(column)
    latest = pc.max(times)
    if not latest.is_valid:
        return None
    [millis] = millis_of(times.slice(pc.index(times, latest).as_py(), 1)).to_pylist()
    return millis  # type: ignore[no-any-return]


def millis_of(column: pa.Array) -> pa.Array:
    """Times as milliseconds, rounded down: of timestamps, or of whole numbers of milliseconds."""
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    millis = pc.fill_null(micros, 0).to_numpy() // 1000
    return pa.array(millis, mask=column.is_null().to_numpy(zero_copy_only=False))
