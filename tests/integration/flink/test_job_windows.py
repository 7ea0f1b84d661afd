"""Flink's own window operator goes on with the open windows of a job, and gives them back."""

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from dstl_core.codec.serializers import Types
from dstl_core.spark import KeyedOperator, LocalCopies, StatefulJob
from dstl_core.state.evictors import CountEvictor
from dstl_core.state.triggers import CountTrigger, PurgingTrigger
from dstl_core.state.window_functions import ProcessWindowFunction, WindowFunction
from dstl_core.state.windowing import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from dstl_core.testing import ManualClock
from tests import stateful_job
from tests.integration.spark.conftest import spark  # noqa: F401  # a fixture
from tests.stateful_job import SumAndCount

pytestmark = [pytest.mark.flink, pytest.mark.spark]
ELEMENT = Types.TUPLE(Types.STRING, Types.LONG)
OUTPUT = pa.schema(
    [("key", pa.string()), ("window", pa.list_(pa.int64())), ("elements", pa.list_(pa.int64()))]
)
SCHEMA = "k string, v long, ts long"


@pytest.fixture(autouse=True, scope="module")
def by_value(request):
    for module in (stateful_job, request.module):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (stateful_job, request.module):
        cloudpickle.unregister_pickle_by_value(module)


class Show(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield {
            "key": key,
            "window": [] if window == "global" else list(window),
            "elements": sorted(each[1] for each in elements),
        }


class ShowSum(Show):
    def process(self, key, context, elements):
        yield {"key": key, "window": list(context.window()), "elements": elements}


class Sum(SumAndCount):
    """The result is the sum."""

    def add(self, value, accumulator):
        return super().add(value[1], accumulator)

    def get_result(self, accumulator):
        return accumulator[0]


def pair_of(row):
    return (row["k"], row["v"])


def add(a, b):
    return (a[0], a[1] + b[1])


def job_of(spark, base, name, function, clock):  # noqa: F811
    operator = KeyedOperator(
        "w", "k", Types.STRING, function, OUTPUT, event_time="ts", out_of_orderness_ms=1 << 40
    )
    local = LocalCopies(str(base / "local"))
    return StatefulJob(spark, name, str(base), operator, local_copies=local, clock=clock)


def shown(lines):
    return sorted((line["key"], *line["window"], tuple(line["elements"])) for line in lines)


# What three elements here, one in Flink and one here again make of each kind of window:
# ours, Flink's, the first rows, Flink's element, what fires there, the last row, what fires here.
FIRST = [("a", 1, 100), ("a", 2, 150), ("b", 4, 1250)]
CASES = {
    "tumbling": (
        WindowFunction(TumblingEventTimeWindows.of(1000), ELEMENT, add, allowed_lateness=50),
        {"assigner": "tumbling", "size": 1000, "lateness": 50, "function": "reduce"},
        [("a", 0, 1000, (11,))],
        [("a", 2000, 3000, (16,)), ("b", 1000, 2000, (4,))],
    ),
    "sliding": (
        WindowFunction(
            SlidingEventTimeWindows.of(1000, 500),
            Types.TUPLE(Types.LONG, Types.LONG),
            aggregate=Sum(),
            process=ShowSum(),
        ),
        {"assigner": "sliding", "size": 1000, "slide": 500, "function": "aggregate"},
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
        WindowFunction(EventTimeSessionWindows.with_gap(460), ELEMENT),
        {"assigner": "session", "size": 460, "function": "process"},
        [("a", 100, 1060, (1, 2, 8))],
        [("a", 2000, 2460, (16,)), ("b", 1250, 1710, (4,))],
    ),
    "evictor": (
        WindowFunction(TumblingEventTimeWindows.of(1000), ELEMENT, evictor=CountEvictor.of(2)),
        {"assigner": "tumbling", "size": 1000, "evict": 2, "function": "process"},
        [("a", 0, 1000, (2, 8))],
        [("a", 2000, 3000, (16,)), ("b", 1000, 2000, (4,))],
    ),
    "count": (
        WindowFunction(
            GlobalWindows.create(), ELEMENT, add, trigger=PurgingTrigger.of(CountTrigger.of(3))
        ),
        {"assigner": "global", "count": 3, "function": "reduce"},
        [("a", (11,))],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("changelog", [False, True])
def test_flink_fires_our_windows_and_we_fire_those_of_flink(
    spark,  # noqa: F811
    flink,
    tmp_path,
    name,
    changelog,
):
    function, window, fired_there, fired_here = CASES[name]
    parts = {"process": function.process or Show(), "element": pair_of}
    function = WindowFunction(**{**vars(function), **parts})
    job = job_of(spark, tmp_path, "job", function, ManualClock(0))
    for number, row in enumerate(FIRST):
        result = job.run(spark.createDataFrame([row], SCHEMA), number, order_by=["ts"])
        assert result.output.count() == 0
    path = job.latest_path() if changelog else job.savepoint(str(tmp_path / "savepoint"))

    there = flink.run_windows(
        path,
        window,
        elements=[("a", 8, 600)],
        watermark=1070,
        expected=len(fired_there),
        savepoint_to=tmp_path / "by-flink",
        backend="rocksdb" if changelog else "hashmap",
        parallelism=3,
        changelog=changelog,
    )

    assert shown(there.fired) == fired_there
    again = job_of(spark, tmp_path, "again", function, ManualClock(0))
    again.start(there.savepoint)
    last = spark.createDataFrame([("a", 16, 2000)], SCHEMA)
    result = again.run(last, 1, order_by=["ts"], watermark_ms=1 << 50)
    assert shown(row.asDict() for row in result.output.collect()) == fired_here
    kept = {
        (line["key"], line.get("state", "timer"), str(line.get("value")))
        for line in again.snapshot()["w"].dump()
    }
    if name == "count":
        assert kept == {
            ("a", "window-contents", "['a', 16]"),
            ("a", "count", "1"),
            ("b", "window-contents", "['b', 4]"),
            ("b", "count", "1"),
        }
    else:
        assert kept == set()


def test_flink_fires_our_windows_by_its_clock(spark, flink, tmp_path):  # noqa: F811
    function = WindowFunction(
        TumblingProcessingTimeWindows.of(1000), ELEMENT, add, process=Show(), element=pair_of
    )
    job = job_of(spark, tmp_path, "job", function, ManualClock(5_500))
    job.run(spark.createDataFrame(FIRST, SCHEMA), 1, order_by=["ts"])
    window = {"assigner": "processing", "size": 1000, "function": "reduce"}
    there = flink.run_windows(
        job.savepoint(str(tmp_path / "savepoint")),
        window,
        elements=[],
        watermark=0,
        expected=2,
        savepoint_to=tmp_path / "by-flink",
    )
    assert shown(there.fired) == [("a", 5000, 6000, (3,)), ("b", 5000, 6000, (4,))]
