"""Windows that are bootstrapped here go on in Flink's own window operator, and fire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.spark import OperatorTransformation, SavepointWriter
from dstl_core.state.triggers import CountTrigger, PurgingTrigger
from dstl_core.state.windowing import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.integration.flink.checker import Entry, FlinkChecker, Operator, Windows
from tests.integration.spark.conftest import functions_travel_by_value, spark

__all__ = ["functions_travel_by_value", "spark"]
pytestmark = [pytest.mark.flink, pytest.mark.spark]

PAIR = Types.TUPLE(Types.LONG, Types.LONG)
Element = tuple[int, int]
"""A number, and its time. Its key is ``number % 5``."""

# Twelve elements of each key; every key pauses for a second now and then, so that sessions end.
BEFORE: list[Element] = [(n, n * 100 + n // 15 * 1000) for n in range(60)]
AFTER: list[Element] = [(60 + n, 5000 + n * 10) for n in range(15)]
WATERMARK = 6999


class Sum:
    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0]

    def merge(self, a: Any, b: Any) -> Any:
        return (a[0] + b[0], a[1] + b[1])


def add(a: int, b: int) -> int:
    return a + b


Fired = tuple[int, int, list[int]]
"""Start, end and elements of a window."""


def time_windows(size: int, slide: int) -> Callable[[list[Element]], Iterator[Fired]]:
    def windows(elements: list[Element]) -> Iterator[Fired]:
        starts = {ts // slide * slide - slide * back for _, ts in elements for back in range(9)}
        for start in sorted(starts):
            inside = [number for number, ts in elements if start <= ts < start + size]
            if inside:
                yield start, start + size, inside

    return windows


def sessions(gap: int) -> Callable[[list[Element]], Iterator[Fired]]:
    def windows(elements: list[Element]) -> Iterator[Fired]:
        inside: list[int] = []
        start = end = 0
        for number, ts in sorted(elements, key=lambda each: each[1]):
            if inside and ts > end:
                yield start, end, inside
                inside = []
            if not inside:
                start = ts
            inside, end = [*inside, number], ts + gap
        yield start, end, inside

    return windows


def expected(
    windows: Callable[[list[Element]], Iterator[Fired]], form: Callable[[list[int]], list[int]]
) -> list[Entry]:
    """What fires up to the watermark, of all elements of each key in their order."""
    found = []
    for key in range(5):
        own = [each for each in BEFORE + AFTER if each[0] % 5 == key]
        for start, end, inside in windows(own):
            if end - 1 <= WATERMARK:
                found.append((f"key-{key}", [start, end], form(inside)))
    return [{"op": "w", "key": key, "ns": ns, "value": value} for key, ns, value in sorted(found)]


def total(numbers: list[int]) -> list[int]:
    return [sum(numbers)]


def same(numbers: list[int]) -> list[int]:
    return numbers


def last_two(numbers: list[int]) -> list[int]:
    return [sum(numbers[-2:])]


TUMBLING, SLIDING = TumblingEventTimeWindows.of(1000), SlidingEventTimeWindows.of(2000, 1000)
CASES: list[tuple[str, Any, bool, Windows, Any, Any]] = [
    (
        "tumbling",
        TUMBLING,
        False,
        Windows("tumbling", "reducing", 1000),
        time_windows(1000, 1000),
        total,
    ),
    (
        "sliding",
        SLIDING,
        False,
        Windows("sliding", "aggregating", 2000, 1000),
        time_windows(2000, 1000),
        total,
    ),
    (
        "session",
        EventTimeSessionWindows.with_gap(600),
        False,
        Windows("session", "reducing", 600),
        sessions(600),
        total,
    ),
    (
        "process",
        TUMBLING,
        False,
        Windows("tumbling", "list", 1000),
        time_windows(1000, 1000),
        same,
    ),
    (
        "evictor",
        TUMBLING,
        True,
        Windows("tumbling", "reducing", 1000, keep=2),
        time_windows(1000, 1000),
        last_two,
    ),
]


def bootstrap(spark: Any, assigner: Any, job: Windows, path: Any, **options: Any) -> str:
    rows = [(f"key-{number % 5}", number, ts) for number, ts in BEFORE]
    frame = spark.createDataFrame(rows, "k string, n bigint, ts bigint")
    windows = (
        OperatorTransformation.bootstrap_with(frame).key_by("k").window(assigner, timestamp="ts")
    )
    if "trigger" in options:
        windows = windows.trigger(options["trigger"])
    if options.get("evicting"):
        windows = windows.evictor()
    order: dict[str, Any] = {"element": "n", "order_by": ["ts"]}
    made = {
        "reducing": lambda: windows.reduce(add, **order),
        "aggregating": lambda: windows.aggregate(Sum(), PAIR, **order),
        "list": lambda: windows.process(**order),
    }[job.kind]()
    writer = SavepointWriter.new_savepoint(spark, 128, 2)
    return writer.with_operator(OperatorIdentifier.for_uid("w"), made).write(str(path))


def fired(flink: FlinkChecker, path: str, job: Windows, backend: str) -> list[Entry]:
    operator = Operator("w", "string", number_window=job)
    updates: list[Entry] = [{"op": "w", "value": number, "ts": ts} for number, ts in AFTER]
    restored = flink.restore(
        path, [operator], backend=backend, parallelism=3, updates=updates, watermark=WATERMARK
    )
    return sorted(restored.fired, key=lambda each: (each["key"], each["ns"]))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("name", "assigner", "evicting", "job", "windows", "form"),
    CASES,
    ids=[each[0] for each in CASES],
)
def test_windows_fire_in_flinks_window_operator(
    flink: FlinkChecker,
    spark: Any,
    tmp_path: Any,
    name: str,
    assigner: Any,
    evicting: bool,
    job: Windows,
    windows: Any,
    form: Any,
    backend: str,
) -> None:
    path = bootstrap(spark, assigner, job, tmp_path / name, evicting=evicting)

    found = fired(flink, path, job, backend)

    wanted = expected(windows, form)
    assert found == wanted
    assert any(each["ns"][1] > 5000 for each in wanted), "new elements count"


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_count_windows_go_on_counting(
    flink: FlinkChecker, spark: Any, tmp_path: Any, backend: str
) -> None:
    """Two of twelve elements of a key are left of windows of five; three more make one full."""
    job = Windows("count", "reducing", 5)
    trigger = PurgingTrigger.of(CountTrigger.of(5))
    path = bootstrap(spark, GlobalWindows.create(), job, tmp_path / "sp", trigger=trigger)

    found = fired(flink, path, job, backend)

    assert found == [
        {
            "op": "w",
            "key": f"key-{key}",
            "ns": "global",
            "value": [sum(n for n in range(50, 75) if n % 5 == key)],
        }
        for key in range(5)
    ]
