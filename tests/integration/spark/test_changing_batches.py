"""A batch that gives other rows each time it is read is read once, or nothing is committed."""

from pathlib import Path

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, KeyedOperator, StatefulJob, aggregates
from dstl_core.codec.serializers import Types
from dstl_core.errors import InputChangedError
from dstl_core.functions import BroadcastFunction, KeyedProcessFunction
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.state.windows.windowing import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

pytestmark = pytest.mark.spark
SCHEMA = "k string, v long, ts {}"


class Total(KeyedProcessFunction):
    order_insensitive = True

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("v", Types.LONG))

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value["v"])


class TotalOfBoth(Total, BroadcastFunction):
    def process_broadcast_element(self, value):
        self.more = value["v"]


def by_row(uid="u", function=None, **options):
    return KeyedOperator(uid, "k", Types.STRING, function or Total(), **options)


def by_column(uid="u", kind="long", **options):
    totals = {"v": aggregates.sum("v")}
    return AggregateOperator(uid, "k", totals, schema=SCHEMA.format(kind), **options)


@pytest.fixture
def run(spark, tmp_path):
    def run_of(rows, *operators, **options):
        first, *others = operators
        local = LocalCopies(str(tmp_path / "local"))
        job = StatefulJob(
            spark, "job", str(tmp_path / "jobs"), first, downstream=others, local_copies=local
        )
        try:
            job.run(rows, 1, **options)
        finally:
            assert (job.latest().facts.kind == "epoch") == (job.latest().checkpoint_id > 1)
        return job

    return run_of


@pytest.fixture
def changing(spark, tmp_path):
    """Two rows, whose values and times say how often they were read before."""
    counted = tmp_path / "reads"
    counted.touch()

    def read(batches, path=str(counted)):
        yield from ()
        for _ in batches:
            seen = Path(path).stat().st_size
            with open(path, "ab") as file:
                file.write(b".")
            yield pa.record_batch([["a", "b"], [seen, 1], [seen * 1000, 5]], ["k", "v", "ts"])

    return spark.range(0, 1, 1, 1).mapInArrow(read, SCHEMA.format("long"))


def totals(job, uid="u"):
    return {line["key"]: line["value"] for line in job.snapshot()[uid].dump("v")}


SOURCES = {
    "the input and a function": [by_column(), by_column("w", source=lambda f: f["input"])],
    "a function and the input": [by_column(source=lambda f: f["input"]), by_column("w")],
    "a function": [by_column(source=lambda f: f["input"].where("v >= 0"))],
    "two functions": [by_row(uid, source=lambda f: dict(f)["input"]) for uid in ("u", "w")],
    "the input twice": [by_row(), by_column("w")],
    "a broadcast": [by_row(function=TotalOfBoth(), broadcast="input")],
    "a function for a broadcast": [by_row(function=TotalOfBoth(), broadcast=lambda f: f["input"])],
}


@pytest.mark.parametrize("name", SOURCES)
def test_operators_and_sources_see_one_batch(run, changing, name):
    with pytest.raises(
        InputChangedError,
        match=r"The batch changed while several operators read it: 2 rows, hash .* and 2 rows, "
        r"hash .*; write it to a table first",
    ):
        run(changing, *SOURCES[name])


TIMES = {
    "row": by_row(event_time="ts"),
    "tumbling": by_column(window=TumblingEventTimeWindows.of(10), event_time="ts"),
    "sliding": by_column(window=SlidingEventTimeWindows.of(30, 10), event_time="ts"),
    "sessions": by_column(window=EventTimeSessionWindows.with_gap(10), event_time="ts"),
}


@pytest.mark.parametrize("name", TIMES)
def test_a_watermark_is_that_of_the_rows_that_were_applied(run, changing, name):
    with pytest.raises(
        InputChangedError,
        match="The batch changed while the operator 'u' read it twice: latest event time 5 and "
        "latest event time 1000; write it to a table first",
    ):
        run(changing, TIMES[name])


def test_a_batch_that_is_read_once_may_change(run, changing):
    assert totals(run(changing, by_column())) == {"a": 0, "b": 1}


def test_a_batch_is_read_once_where_the_watermark_is_given(run, changing):
    job = run(changing, TIMES["row"], watermark_ms=7)
    assert totals(job) == {"a": 0, "b": 1}
    assert job.latest().facts.watermarks == {"u": 7}


@pytest.mark.parametrize("kind", ["long", "timestamp", "timestamp_ntz"])
def test_batches_that_do_not_change_are_applied(spark, run, kind):
    """Times before 1970 and between milliseconds, and rows without a time, are no change."""
    zone = "Z" if kind == "timestamp" else ""
    times = [f"timestamp_ntz '1969-12-31 23:59:59.99{digit}0001'" for digit in (1, 7, 9)]
    if kind == "long":
        times = ["-9", "-3", "-1"]
    elif zone:
        times = [each.replace("_ntz", "").replace("0001'", "0001Z'") for each in times]
    values = ", ".join(f"('a', {at}L, {time})" for at, time in enumerate([*times, "null"]))
    rows = spark.sql(f"SELECT * FROM VALUES {values} AS t(k, v, ts)")
    operators = [
        by_column(
            "u",
            kind,
            window=TumblingEventTimeWindows.of(1000),
            event_time="ts",
            source=lambda frames: frames["input"].where("ts IS NOT NULL"),
        ),
        by_row("w", event_time="ts"),
    ]
    job = run(rows, *operators)
    assert totals(job, "w") == {"a": 6}
    assert job.latest().facts.watermarks == {"u": -2, "w": -2}
    assert job.run(rows, 1).committed_before
