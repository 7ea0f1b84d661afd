from __future__ import annotations

import threading

import pytest

from dstl_core.errors import InvariantViolation
from dstl_core.metrics import HISTOGRAM_WINDOW, Histogram, MetricGroup


def test_a_name_gives_the_same_metric_and_another_group_another_one() -> None:
    root = MetricGroup(labels={"job": "j"})
    group = root.add_group("ChangelogStorage")
    assert group.counter("uploads") is group.counter("uploads")
    assert root.add_group("ChangelogStorage") is group
    assert root.add_group("ChangelogStorage", operator="o") is not group
    assert group.scope == ("ChangelogStorage",)
    assert root.add_group("x", operator="o").labels == {"job": "j", "operator": "o"}
    group.counter("uploads").inc()
    group.counter("uploads").inc(4)
    assert group.counter("uploads").count == 5


def test_a_name_has_one_kind() -> None:
    group = MetricGroup()
    group.counter("a")
    group.histogram("b")
    with pytest.raises(InvariantViolation, match="'a' is already of another kind"):
        group.histogram("a")
    with pytest.raises(InvariantViolation, match="'b' is already of another kind"):
        group.counter("b")


def test_a_gauge_is_read_when_it_is_asked_for_and_can_be_replaced() -> None:
    group = MetricGroup()
    size = [1]
    group.gauge("size", lambda: size[0])
    size[0] = 7
    assert group.metrics()["size"]() == 7  # type: ignore[operator]
    group.gauge("size", lambda: 9)
    assert group.metrics()["size"]() == 9  # type: ignore[operator]


def test_statistics_speak_of_the_last_thousand_samples() -> None:
    histogram = Histogram()
    for value in range(2_500, 0, -1):
        histogram.update(value)
    statistics = histogram.statistics()
    assert len(statistics.samples) == HISTOGRAM_WINDOW == 1000
    assert (statistics.min, statistics.max, statistics.mean) == (1, 1000, 500.5)
    assert [statistics.quantile(q) for q in (0, 0.5, 0.999, 1)] == [1, 500, 999, 1000]
    assert (histogram.count, histogram.sum) == (2_500, 2_500 * 2_501 / 2)


def test_an_empty_histogram_is_all_zero() -> None:
    statistics = Histogram().statistics()
    assert (statistics.min, statistics.max, statistics.mean, statistics.quantile(0.5)) == (
        0,
        0,
        0,
        0,
    )


def test_counting_on_many_threads_loses_nothing() -> None:
    group = MetricGroup()
    barrier = threading.Barrier(4)

    def count() -> None:
        barrier.wait()
        for _ in range(2_000):
            group.counter("c").inc()
            group.histogram("h").update(1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert group.counter("c").count == group.histogram("h").count == 8_000


def test_walking_meets_every_group() -> None:
    root = MetricGroup()
    root.add_group("a").add_group("b")
    root.add_group("c")
    assert [group.scope for group in root.walk()] == [(), ("a",), ("a", "b"), ("c",)]
