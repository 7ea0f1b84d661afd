"""SavepointWriter: windows as a job's operator would keep them, read back."""

import pytest
from pyspark.sql import functions as F

from dstl_core.codec.serializers import Types
from dstl_core.codec.serializers.window_types import TimeWindow
from dstl_core.state.windows.triggers import CountTrigger, PurgingTrigger
from dstl_core.state.windows.windowing import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.integration.spark.writing import Mean, bootstrap_with, entries, write

pytestmark = pytest.mark.spark


def contents(operator):
    return {
        (line["key"], tuple(line["ns"])): line["value"] for line in operator.dump("window-contents")
    }


def window_timers(operator):
    return {
        (line["key"], tuple(line["ns"]), line["ts"]) for line in entries(operator, "event-timer")
    }


def add(a, b):
    return a + b


def test_tumbling_windows_with_reduce_and_the_same_by_columns(spark, tmp_path, accounts):
    assigner = TumblingEventTimeWindows.of(5000)
    windows = bootstrap_with(accounts).key_by("id").window(assigner, timestamp="ts")
    reduced = write(spark, tmp_path / "f", "op", windows.reduce(add, element="amount"))
    expected = {}
    for n in range(40):
        start = n * 1000 // 5000 * 5000
        place = (n % 7, (start, start + 5000))
        expected[place] = expected.get(place, 0.0) + n
    assert contents(reduced) == expected
    timers = {(key, window, window[1] - 1) for key, window in expected}
    assert window_timers(reduced) == timers
    start = F.floor(F.col("ts") / 5000).cast("bigint") * 5000
    grouped = accounts.groupBy(
        "id", F.struct(start.alias("start"), (start + 5000).alias("end")).alias("w")
    ).agg(F.sum("amount").alias("total"))
    by_columns = (
        bootstrap_with(grouped)
        .key_by("id")
        .window(assigner, timestamp="unused")
        .transform_columns("w", "total", kind="reducing")
    )
    other = write(spark, tmp_path / "c", "op", by_columns)
    assert contents(other) == expected
    assert window_timers(other) == timers


def test_sliding_windows_with_aggregate(spark, tmp_path, accounts):
    windows = (
        bootstrap_with(accounts)
        .key_by("id")
        .window(SlidingEventTimeWindows.of(10_000, 5000), timestamp="ts")
        .aggregate(Mean(), Types.TUPLE(Types.DOUBLE, Types.LONG), element="amount")
    )
    operator = write(spark, tmp_path / "sp", "op", windows)
    expected = {}
    for n in range(40):
        last = n * 1000 // 5000 * 5000
        for start in (last, last - 5000):
            total, count = expected.get((n % 7, (start, start + 10_000)), (0.0, 0))
            expected[n % 7, (start, start + 10_000)] = (total + n, count + 1)
    assert contents(operator) == {place: list(value) for place, value in expected.items()}


def test_sessions_merge(spark, tmp_path):
    frame = spark.createDataFrame(
        [("a", 0), ("a", 3000), ("a", 20_000), ("a", 1500), ("a", 25_000), ("b", 7)],
        "k string, ts bigint",
    )
    windows = (
        bootstrap_with(frame)
        .key_by("k")
        .window(EventTimeSessionWindows.with_gap(2000), timestamp="ts")
        .reduce(add, element="ts")
    )
    operator = write(spark, tmp_path / "sp", "op", windows)
    sessions_read = {
        (entry.key, tuple(entry.window)): (entry.states["window-contents"], entry.event_time_timers)
        for entry in operator.window_entries()
    }
    assert sessions_read == {
        ("a", (0, 5000)): (4500, [4999]),
        ("a", (20_000, 22_000)): (20_000, [21_999]),
        ("a", (25_000, 27_000)): (25_000, [26_999]),
        ("b", (7, 2007)): (7, [2006]),
    }


def test_count_windows_purge_when_they_fire(spark, tmp_path):
    frame = spark.createDataFrame([("a", n) for n in range(7)], "k string, n bigint")
    windows = (
        bootstrap_with(frame)
        .key_by("k")
        .window(GlobalWindows.create(), timestamp="n")
        .trigger(PurgingTrigger.of(CountTrigger.of(3)))
        .reduce(add, element="n", order_by=["n"])
    )
    operator = write(spark, tmp_path / "sp", "op", windows)
    assert [line["value"] for line in operator.dump("window-contents")] == [6]
    assert [line["value"] for line in operator.dump("count")] == [1]


def test_windows_with_an_evictor_keep_elements_and_times(spark, tmp_path):
    frame = spark.createDataFrame([("a", 1, 10), ("a", 2, 20)], "k string, n bigint, ts bigint")
    windows = (
        bootstrap_with(frame)
        .key_by("k")
        .window(TumblingEventTimeWindows.of(1000), timestamp="ts")
        .evictor()
        .process(element="n", order_by=["ts"])
    )
    operator = write(spark, tmp_path / "sp", "op", windows)
    [line] = operator.dump("window-contents")
    assert line["value"] == [{"value": 1, "ts": 10}, {"value": 2, "ts": 20}]
    assert line["ns"] == list(TimeWindow(0, 1000))
