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
    latest = pc.max(batch.column(column))
    [time] = millis_of(pa.array([latest.as_py()], latest.type)).to_pylist()
    return time  # type: ignore[no-any-return]


def millis_of(column: pa.Array) -> pa.Array:
    """Times as milliseconds, rounded down: of timestamps, or of whole numbers of milliseconds."""
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    # Rounding uses local time, which is ambiguous in the zone of a session.
    zone = None if column.type.tz is None else "UTC"
    exact = column.cast(pa.timestamp(column.type.unit, zone))
    millis = pc.floor_temporal(exact, unit="millisecond").cast(pa.timestamp("ms", zone))
    return millis.cast(pa.int64())
