"""Rows of batches as Python objects."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from dstl_core.job.rows.row_buffer import RowBuffer
from dstl_core.job.task.python_rows import rows_of

NOON = dt.datetime(2026, 1, 2, 12)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, -3], kind)
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
    ]
    + [
        pa.array([True, None, False]),
        pa.array([0.1, 2.0, 3.5], pa.float32()),
        pa.array(["a", None, "ü😀"]),
        pa.array(["a", "", "b"], pa.large_string()),
        pa.array([b"\0", None, b""]),
        pa.array([NOON, None, NOON], pa.timestamp("us", "UTC")),
        pa.array([NOON.date(), None, NOON.date()]),
        pa.array([Decimal("1.50"), None, Decimal("-2.25")]),
        pa.array([[1], None, []], pa.list_(pa.int64())),
        pa.array([{"a": 1}, None, {"a": None}]),
        pa.array([None, None, None]),
    ],
    ids=lambda case: str(case.type),
)
def test_rows_are_those_of_arrow(column):
    batch = pa.record_batch([column, pa.array([1, 2, 3])], names=["a", "b"])
    for part in (batch, batch.slice(1), batch.slice(1, 1), batch.slice(0, 0)):
        rows, expected = rows_of(part), part.to_pylist()
        assert rows == expected
        assert [type(row["a"]) for row in rows] == [type(row["a"]) for row in expected]


def test_rows_without_columns_are_still_rows():
    batch = pa.record_batch([pa.array([1, 2])], names=["a"]).select([])
    assert rows_of(batch) == [{}, {}]


def test_batches_wait_until_they_are_many(monkeypatch):
    monkeypatch.setattr("dstl_core.job.rows.row_buffer.ROWS_PER_CALL", 4)
    rows = RowBuffer()
    assert rows.take() is None
    assert not rows.add(pa.record_batch([pa.array([1, 2, 3])], names=["a"]))
    assert rows.add(pa.record_batch([pa.array([4])], names=["a"]))
    assert rows.take().column("a").to_pylist() == [1, 2, 3, 4]
    assert rows.take() is None
