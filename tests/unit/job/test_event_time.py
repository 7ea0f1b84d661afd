"""Times of rows in milliseconds, rounded down, also at the ends of what a timestamp holds."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dstl_core.job.task.event_time import latest_time_in, millis_of

MOST = (1 << 63) - 1
MICROS = [0, 1, -1, 999, 1000, -999, -1000, -1001, MOST, -MOST - 1, None, 1_700_000_000_123_456]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_are_rounded_down(zone: str | None) -> None:
    column = pa.array(MICROS, pa.int64()).view(pa.timestamp("us", zone))
    wanted = [None if micros is None else micros // 1000 for micros in MICROS]
    assert millis_of(column).to_pylist() == wanted
    for micros, millis in zip(MICROS, wanted, strict=True):
        times = pa.array([micros, None], pa.int64()).view(pa.timestamp("us", zone))
        assert latest_time_in(pa.record_batch({"t": times}), "t") == millis


def test_whole_numbers_are_milliseconds() -> None:
    column = pa.array([MOST, None, -5], pa.int64())
    assert millis_of(column).to_pylist() == [MOST, None, -5]
    assert millis_of(pa.array([7], pa.int16())).to_pylist() == [7]
    assert latest_time_in(pa.record_batch({"t": column}), "t") == MOST
    assert latest_time_in(pa.record_batch({"t": column}), None) is None
