"""Windows bootstrapped here, and those of a job, go on in Flink's own window operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, Snapshot, aggregates
from dstl_core.codec.serializers import Types
from dstl_core.functions import ProcessWindowFunction, WindowFunction
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.state.windows.evictors import CountEvictor
from dstl_core.state.windows.triggers import CountTrigger, PurgingTrigger
from dstl_core.state.windows.windowing import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from dstl_core.stateful_job import StatefulJob
from dstl_core.testing import ManualClock
from tests.integration.flink.checker import (
    Entry,
    FlinkChecker,
    Operator,
    State,
    TimerService,
    Windows,
)
from tests.integration.flink.model import texts
from tests.integration.spark.conftest import functions_travel_by_value

__all__ = ["functions_travel_by_value"]
pytestmark = [pytest.mark.flink, pytest.mark.spark]

Element = tuple[str, int, int]
"""A key, a number and its time; as rows, ``k``, ``n`` and ``ts``."""
SCHEMA = "k string, n bigint, ts bigint"
ELEMENT = Types.TUPLE(Types.STRING, Types.LONG, Types.LONG)
PAIR = Types.TUPLE(Types.LONG, Types.LONG)


def element_of(row: Any) -> Element:
    return (row["k"], row["n"], row["ts"])


def add(a: Element, b: Element) -> Element:
    return (a[0], a[1] + b[1], max(a[2], b[2]))


class SumAndCount:
    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Element, accumulator: Any) -> Any:
        return (accumulator[0] + value[1], accumulator[1] + 1)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return (a[0] + b[0], a[1] + b[1])


# Twelve elements of each of five keys; all keys pause for a second now and then, so that sessions
# end.
BEFORE: list[Element] = [(f"key-{n % 5}", n, n * 100 + n // 15 * 1000) for n in range(60)]
AFTER: list[Element] = [(f"key-{n % 5}", 60 + n, 5000 + n * 10) for n in range(15)]
WATERMARK = 6999

Fired = tuple[list[int] | str, list[Element]]
"""Start and end (or ``global``) of a window, and its elements."""


def time_windows(elements: list[Element], size: int, slide: int) -> Iterator[Fired]:
    starts = {ts // slide * slide - slide * back for _, _, ts in elements for back in range(9)}
    for start in sorted(starts):
        inside = [each for each in elements if start <= each[2] < start + size]
        if inside and start + size - 1 <= WATERMARK:
            yield [start, start + size], inside


def tumbling(elements: list[Element]) -> Iterator[Fired]:
    return time_windows(elements, 1000, 1000)


def sliding(elements: list[Element]) -> Iterator[Fired]:
    return time_windows(elements, 2000, 1000)


def sessions(elements: list[Element]) -> Iterator[Fired]:
    inside: list[Element] = []
    for element in [*sorted(elements, key=lambda candidate: candidate[2]), ("", 0, 1 << 40)]:
        if inside and element[2] > inside[-1][2] + 600:
            end = inside[-1][2] + 600
            if end - 1 <= WATERMARK:
                yield [inside[0][2], end], inside
            inside = []
        inside = [*inside, element]


def fifth_of_a_second(elements: list[Element]) -> Iterator[Fired]:
    """Only with the elements of before there are five, in one window of a second."""
    return (each for each in tumbling(elements) if len(each[1]) >= 5)


def third_five(elements: list[Element]) -> Iterator[Fired]:
    """Two of twelve elements of a key are left of windows of five; three more make one full."""
    if len(elements) >= 15:
        yield "global", elements[10:15]


class Case(NamedTuple):
    """Windows as they are bootstrapped, as Flink has them, and what of a key they hold and fire."""

    assigner: Any
    windows: Windows
    fired: Callable[[list[Element]], Iterator[Fired]]
    trigger: Any = None


SECONDS = TumblingEventTimeWindows.of(1000)
CASES = {
    "tumbling": Case(SECONDS, Windows("tumbling", "reduce", 1000), tumbling),
    "sliding": Case(
        SlidingEventTimeWindows.of(2000, 1000),
        Windows("sliding", "aggregate", 2000, 1000),
        sliding,
    ),
    "session": Case(
        EventTimeSessionWindows.with_gap(600), Windows("session", "reduce", 600), sessions
    ),
    "process": Case(SECONDS, Windows("tumbling", "process", 1000), tumbling),
    "evictor": Case(SECONDS, Windows("tumbling", "reduce", 1000, keep=2), tumbling),
    "count-trigger": Case(
        SECONDS,
        Windows("tumbling", "reduce", 1000, trigger="count", every=5),
        fifth_of_a_second,
        CountTrigger.of(5),
    ),
    "count": Case(
        GlobalWindows.create(),
        Windows("count", "reduce", 5),
        third_five,
        PurgingTrigger.of(CountTrigger.of(5)),
    ),
}
ELEMENT_NAME = "tuple<string,long,long>"
STATES = {
    "reduce": State("window-contents", "reducing", ELEMENT_NAME, ns="timewindow"),
    "aggregate": State("window-contents", "aggregating", "tuple<long,long>", ns="timewindow"),
    "process": State("window-contents", "list", ELEMENT_NAME, ns="timewindow"),
}
COUNT = State("count", "reducing", "long", ns="timewindow")
TIMERS = [TimerService("window-timers", "timewindow")]
NUMBERS = Operator(
    "numbers", "string", [State("window-contents", "reducing", "long", ns="timewindow")], TIMERS
)
"""Windows whose elements have the type of a column."""


@pytest.fixture(scope="module")
def bootstrapped(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """One savepoint with an operator of every case, and with the numbers."""
    keyed = OperatorTransformation.bootstrap_with(spark.createDataFrame(BEFORE, SCHEMA)).key_by("k")
    writer = SavepointWriter.new_savepoint(spark, 128, 2)
    order: dict[str, Any] = {"element": element_of, "order_by": ["ts"]}
    for uid, case in CASES.items():
        windows = keyed.window(case.assigner, timestamp="ts")
        if case.trigger is not None:
            windows = windows.trigger(case.trigger)
        if case.windows.keep is not None:
            windows = windows.evictor()
        made = {
            "reduce": lambda windows: windows.reduce(add, ELEMENT, **order),
            "aggregate": lambda windows: windows.aggregate(SumAndCount(), PAIR, **order),
            "process": lambda windows: windows.process(ELEMENT, **order),
        }[case.windows.function](windows)
        writer = writer.with_operator(OperatorIdentifier.for_uid(uid), made)
    numbers = keyed.window(SECONDS, timestamp="ts").reduce(lambda a, b: a + b, element="n")
    writer = writer.with_operator(OperatorIdentifier.for_uid("numbers"), numbers)
    return writer.write(str(tmp_path_factory.mktemp("bootstrapped") / "sp"))


def expected(uid: str, case: Case, elements: list[Element]) -> Iterator[Entry]:
    """What fires up to the watermark, of all elements of each key in their order."""
    for key in sorted({each[0] for each in elements}):
        for ns, inside in case.fired([each for each in elements if each[0] == key]):
            kept = inside[-case.windows.keep :] if case.windows.keep else inside
            total = sum(each[1] for each in kept)
            value: Any = {
                "reduce": [[key, total, max(each[2] for each in kept)]],
                "aggregate": [[total, len(kept)]],
                "process": [list(each) for each in kept],
            }[case.windows.function]
            yield {"op": uid, "key": key, "ns": ns, "value": value}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_bootstrapped_windows_fire_in_flinks_window_operator(
    flink: FlinkChecker, bootstrapped: str, backend: str
) -> None:
    restored = flink.restore(
        bootstrapped,
        [*(Operator(uid, windows=case.windows) for uid, case in CASES.items()), NUMBERS],
        backend=backend,
        parallelism=3,
        updates=[
            {"op": uid, "key": key, "value": number, "ts": ts}
            for uid in CASES
            for key, number, ts in AFTER
        ],
        watermark=WATERMARK,
    )

    for uid, case in CASES.items():
        wanted = texts(expected(uid, case, BEFORE + AFTER))
        assert texts(each for each in restored.fired if each["op"] == uid) == wanted
        assert wanted != texts(expected(uid, case, BEFORE)), "new elements count"


def declaration(uid: str, case: Case) -> Operator:
    """The states and timers of windows, for the checker to report."""
    if uid in ("evictor", "count"):  # it has no elements with times, and no global window
        return Operator(uid, "string")
    states = [STATES[case.windows.function], *([COUNT] if case.trigger else [])]
    return Operator(uid, "string", states, TIMERS)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_bootstrapped_windows_restore_and_their_timers_fire(
    flink: FlinkChecker, bootstrapped: str, backend: str
) -> None:
    declared = [NUMBERS, *(declaration(uid, case) for uid, case in CASES.items())]

    restored = flink.restore(bootstrapped, declared, backend=backend, parallelism=3, watermark=2999)

    for operator in declared:
        uid, names = str(operator.uid), {state.name for state in operator.states}
        # The set of merged windows is of a type that cannot be declared; Flink keeps it unclaimed.
        ours = [
            line
            for line in Snapshot.load(bootstrapped)[uid].dump()
            if line.get("state") in names or (operator.timers and "service" in line)
        ]
        assert bool(ours) == bool(operator.states)
        assert texts((e for e in restored.entries if e["op"] == uid), "kg") == texts(ours, "kg")
        due = [line for line in ours if line["kind"] == "event-timer" and line["ts"] <= 2999]
        fired = [(each["key"], each["ts"]) for each in restored.fired if each["op"] == uid]
        assert sorted(fired) == sorted((line["key"], line["ts"]) for line in due)
        assert bool(due) == bool(operator.states)


class Show(ProcessWindowFunction):
    """Key, window and numbers: of elements, or the sums of accumulators."""

    schema = pa.schema(
        [
            ("key", pa.string()),
            ("window", pa.list_(pa.int64())),
            ("numbers", pa.list_(pa.int64())),
        ]
    )

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Entry]:
        window = context.window()
        yield {
            "key": key,
            "window": [] if window == "global" else list(window),
            "numbers": sorted(each[-2] for each in elements),
        }


def shown(fired: list[Entry]) -> list[tuple[Any, ...]]:
    """What Flink's windows gave, in the form of ours."""
    return sorted(
        (
            window["key"],
            *(window["ns"] if isinstance(window["ns"], list) else []),
            tuple(sorted(value[-2] for value in window["value"])),
        )
        for window in fired
    )


def job_of(
    spark: Any, base: Path, name: str, function: WindowFunction, clock: ManualClock
) -> StatefulJob:
    operator = KeyedOperator(
        "w", "k", Types.STRING, function, Show.schema, event_time="ts", out_of_orderness_ms=1 << 40
    )
    local = LocalCopies(str(base / "local"))
    return StatefulJob(spark, name, str(base), operator, local_copies=local, clock=clock)


def window_function(assigner: Any, type: Any = ELEMENT, **options: Any) -> WindowFunction:
    return WindowFunction(assigner, type, process=Show(), element=element_of, **options)


# What three elements here, one in Flink and one here again make of each kind of window: ours,
# Flink's, what fires there, what fires here.
FIRST: list[Element] = [("a", 1, 100), ("a", 2, 150), ("b", 4, 1250)]
JOBS: dict[str, tuple[WindowFunction, Windows, Any, Any]] = {
    "tumbling": (
        window_function(SECONDS, reduce=add, allowed_lateness=50),
        Windows("tumbling", "reduce", 1000, lateness=50),
        [("a", 0, 1000, (11,))],
        [("a", 2000, 3000, (16,)), ("b", 1000, 2000, (4,))],
    ),
    "sliding": (
        window_function(SlidingEventTimeWindows.of(1000, 500), PAIR, aggregate=SumAndCount()),
        Windows("sliding", "aggregate", 1000, 500),
        [("a", -500, 500, (3,)), ("a", 0, 1000, (11,))],
        [
            ("a", 500, 1500, (8,)),
            ("a", 1500, 2500, (16,)),
            ("a", 2000, 3000, (16,)),
            ("b", 500, 1500, (4,)),
            ("b", 1000, 2000, (4,)),
        ],
    ),
    "session": (
        window_function(EventTimeSessionWindows.with_gap(460)),
        Windows("session", "process", 460),
        [("a", 100, 1060, (1, 2, 8))],
        [("a", 2000, 2460, (16,)), ("b", 1250, 1710, (4,))],
    ),
    "evictor": (
        window_function(SECONDS, evictor=CountEvictor.of(2)),
        Windows("tumbling", "process", 1000, keep=2),
        [("a", 0, 1000, (2, 8))],
        [("a", 2000, 3000, (16,)), ("b", 1000, 2000, (4,))],
    ),
    "count": (
        window_function(
            GlobalWindows.create(), reduce=add, trigger=PurgingTrigger.of(CountTrigger.of(3))
        ),
        Windows("global", "reduce", trigger="purging", every=3),
        [("a", (11,))],
        [],
    ),
}


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("changelog", [False, True])
def test_flink_fires_the_windows_of_a_job_and_the_job_fires_those_of_flink(
    spark: Any, flink: FlinkChecker, tmp_path: Path, name: str, changelog: bool
) -> None:
    function, windows, fired_there, fired_here = JOBS[name]
    job = job_of(spark, tmp_path, "job", function, ManualClock(0))
    for number, row in enumerate(FIRST):
        result = job.run(spark.createDataFrame([row], SCHEMA), number, order_by=["ts"])
        assert result.output.count() == 0
    path = job.latest_path() if changelog else job.savepoint(str(tmp_path / "savepoint"))

    restored = flink.restore(
        path,
        [Operator("w", windows=windows)],
        updates=[{"op": "w", "key": "a", "value": 8, "ts": 600}],
        watermark=1070,
        savepoint_to=tmp_path / "by-flink",
        backend="rocksdb" if changelog else "hashmap",
        parallelism=3,
        changelog=changelog,
    )

    assert shown(restored.fired) == fired_there
    again = job_of(spark, tmp_path, "again", function, ManualClock(0))
    assert restored.savepoint is not None
    again.start(restored.savepoint)
    last = spark.createDataFrame([("a", 16, 2000)], SCHEMA)
    result = again.run(last, 1, order_by=["ts"], watermark_ms=1 << 50)
    here = [(each.key, *each.window, tuple(each.numbers)) for each in result.output.collect()]
    assert sorted(here) == fired_here
    kept = {
        (line["key"], line.get("state", "timer"), str(line.get("value")))
        for line in again.snapshot()["w"].dump()
    }
    assert kept == (
        {
            ("a", "window-contents", "['a', 16, 2000]"),
            ("a", "count", "1"),
            ("b", "window-contents", "['b', 4, 1250]"),
            ("b", "count", "1"),
        }
        if name == "count"
        else set()
    )


def test_flink_fires_the_windows_of_a_job_by_its_clock(
    spark: Any, flink: FlinkChecker, tmp_path: Path
) -> None:
    function = window_function(TumblingProcessingTimeWindows.of(1000), reduce=add)
    job = job_of(spark, tmp_path, "job", function, ManualClock(5_500))
    job.run(spark.createDataFrame(FIRST, SCHEMA), 1, order_by=["ts"])

    restored = flink.restore(
        job.savepoint(str(tmp_path / "savepoint")),
        [Operator("w", windows=Windows("processing", "reduce", 1000))],
        fires=2,
    )

    assert shown(restored.fired) == [("a", 5000, 6000, (3,)), ("b", 5000, 6000, (4,))]


# What the declared count, sum and smallest number of three elements, two of them without a number,
# become in Flink, where an element comes along, and here again: as of ``JOBS``.
DECLARED: dict[str, tuple[Any, Windows, Any, Any]] = {
    "tumbling": (
        SECONDS,
        Windows("tumbling", "row", 1000, lateness=50),
        [("a", 0, 1000, [3, 11, 1])],
        [
            ("a", 2000, 3000, 1, 16, 16),
            ("b", 1000, 2000, 2, 4, 4),
            ("c", 1000, 2000, 1, None, None),
        ],
    ),
    "sliding": (
        SlidingEventTimeWindows.of(1000, 500),
        Windows("sliding", "row", 1000, 500, lateness=50),
        [("a", -500, 500, [2, 3, 1]), ("a", 0, 1000, [3, 11, 1])],
        [
            ("a", 500, 1500, 1, 8, 8),
            ("a", 1500, 2500, 1, 16, 16),
            ("a", 2000, 3000, 1, 16, 16),
            ("b", 500, 1500, 2, 4, 4),
            ("b", 1000, 2000, 2, 4, 4),
            ("c", 500, 1500, 1, None, None),
            ("c", 1000, 2000, 1, None, None),
        ],
    ),
    # The element that comes to Flink touches two sessions, and merges them.
    "session": (
        EventTimeSessionWindows.with_gap(450),
        Windows("session", "row", 450, lateness=50),
        [("a", 100, 1060, [4, 18, 1])],
        [
            ("a", 2000, 2450, 1, 16, 16),
            ("b", 1250, 1750, 2, 4, 4),
            ("c", 1260, 1710, 1, None, None),
        ],
    ),
}


@pytest.mark.parametrize(
    "name, changelog",
    [("tumbling", False), ("sliding", True), ("session", False), ("session", True)],
)
def test_flink_fires_the_windows_of_declared_aggregates_and_the_job_fires_those_of_flink(
    spark: Any, flink: FlinkChecker, tmp_path: Path, name: str, changelog: bool
) -> None:
    assigner, windows, fired_there, fired_here = DECLARED[name]
    operator = AggregateOperator(
        "w",
        "k",
        {"n": aggregates.count(), "total": aggregates.sum("n"), "low": aggregates.min("n")},
        schema=SCHEMA,
        window=assigner,
        event_time="ts",
        out_of_orderness_ms=1 << 40,
        allowed_lateness=50,
    )
    local = LocalCopies(str(tmp_path / "local"))
    job = StatefulJob(spark, "job", str(tmp_path), operator, local_copies=local)
    second = [("b", None, 1300), ("c", None, 1260)]
    if name == "session":
        second.append(("a", 7, 610))
    for number, rows in enumerate((FIRST, second)):
        result = job.run(spark.createDataFrame(rows, SCHEMA), number)
        assert result.output.count() == 0
    path = job.latest_path() if changelog else job.savepoint(str(tmp_path / "savepoint"))

    restored = flink.restore(
        path,
        [Operator("w", windows=windows)],
        updates=[{"op": "w", "key": "a", "value": 8, "ts": 600}],
        watermark=1070,
        savepoint_to=tmp_path / "by-flink",
        backend="rocksdb" if changelog else "hashmap",
        parallelism=3,
        changelog=changelog,
    )

    assert (
        sorted((each["key"], *each["ns"], *each["value"]) for each in restored.fired) == fired_there
    )
    again = StatefulJob(spark, "again", str(tmp_path), operator, local_copies=local)
    assert restored.savepoint is not None
    again.start(restored.savepoint)
    last = spark.createDataFrame([("a", 16, 2000)], SCHEMA)
    result = again.run(last, 1, watermark_ms=1 << 50)
    assert sorted(tuple(row) for row in result.output.collect()) == fired_here
    assert list(again.snapshot()["w"].dump()) == []
