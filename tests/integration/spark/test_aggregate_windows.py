"""Windows of declared aggregates give what Spark's own windows give."""

import datetime as dt
import math
import random
from decimal import Decimal

import pytest
from pyspark.sql import functions as F

from dstl_core import (
    AggregateOperator,
    StatefulJob,
    aggregates,
    windows,
)
from dstl_core.job.spec.fingerprint import Fingerprint
from dstl_core.spark.job.inputs import fingerprint_of
from tests.local_session import LocalSession

pytestmark = pytest.mark.spark
UTC = dt.UTC
NEVER = 1 << 50
"""So far behind, no watermark ends a window."""
CASES = {
    "tumbling of a timestamp": ("ts", windows.TumblingEventTimeWindows.of(1000), ("c", "s")),
    "sliding of a local time": (
        "tn",
        windows.SlidingEventTimeWindows.of(1000, 300, -70),
        ("d", "ts"),
    ),
    "sliding of milliseconds": ("ms", windows.SlidingEventTimeWindows.of(900, 300), ("t",)),
    "sessions of a timestamp": ("ts", windows.EventTimeSessionWindows.with_gap(120), ("c", "s")),
    "sessions of milliseconds": ("ms", windows.EventTimeSessionWindows.with_gap(300), ("d", "ts")),
}


SCHEMA = (
    "k bigint, o bigint, n int, l bigint, f float, d double, c decimal(12, 2), s string, b binary, "
    "t boolean, day date, ts timestamp, tn timestamp_ntz"
)
NUMBERS = ("n", "l", "f", "d", "c")


def random_rows(seed, count=240):
    """Rows of some keys: one without any value, one without nulls, others with some."""
    chooser = random.Random(seed)
    orders = chooser.sample(range(10 * count), count)
    makers = {
        "n": lambda: chooser.randint(-(1 << 31), (1 << 31) - 1),
        "l": lambda: chooser.randint(-(1 << 55), 1 << 55),
        "f": lambda: chooser.choice([0.5, -2.25, 1e10, math.nan, math.inf, 0.0]),
        "d": lambda: chooser.choice([chooser.uniform(-1e6, 1e6), 0.0]),
        "c": lambda: Decimal(chooser.randint(-(10**11), 10**11)).scaleb(-2),
        "s": lambda: chooser.choice(["", "a", "ß", "😀", "ab", "z" * 40]),
        "b": lambda: bytearray(chooser.randbytes(chooser.randrange(4))),
        "t": lambda: chooser.random() < 0.5,
        "day": lambda: dt.date(2000, 1, 1) + dt.timedelta(chooser.randint(-40_000, 40_000)),
        "ts": lambda: dt.datetime(1970, 1, 1, tzinfo=UTC) + _micros(chooser),
        "tn": lambda: dt.datetime(1970, 1, 1) + _micros(chooser),
    }
    rows = []
    for at in range(count):
        key = chooser.randrange(8)
        nulls = {0: 1.0, 1: 0.0}.get(key, 0.4)
        order = None if chooser.random() < 0.1 else orders[at]
        values = [None if chooser.random() < nulls else make() for make in makers.values()]
        rows.append((key, order, *values))
    return rows


def _micros(chooser):
    return dt.timedelta(microseconds=chooser.randint(-(1 << 50), 1 << 50))


def aggregates_of(columns):
    """Every aggregate of some columns, and what Spark calls it."""
    made = {"rows": (aggregates.count(), "count(*)")}
    for x in columns:
        made |= {
            f"min_{x}": (aggregates.min(x), f"min({x})"),
            f"max_{x}": (aggregates.max(x), f"max({x})"),
            f"first_{x}": (
                aggregates.first(x, "o"),
                f"min_by({x}, o) FILTER (WHERE {x} IS NOT NULL)",
            ),
            f"last_{x}": (
                aggregates.last(x, "o"),
                f"max_by({x}, o) FILTER (WHERE {x} IS NOT NULL)",
            ),
        }
    for x in {"l", "s"}.intersection(columns):
        made |= {
            f"count_{x}": (aggregates.count(x), f"count({x})"),
            f"null_{x}": (aggregates.count_null(x), f"count_if({x} IS NULL)"),
            f"minby_{x}": (aggregates.min_by(x, "o"), f"min_by({x}, o)"),
            f"maxby_{x}": (aggregates.max_by(x, "o"), f"max_by({x}, o)"),
        }
    for x in NUMBERS:
        if x in columns:
            made[f"sum_{x}"] = (aggregates.sum(x), f"sum({x})")
            made[f"avg_{x}"] = (aggregates.avg(x), f"avg({x})")
            made[f"var_{x}"] = (aggregates.variance(x), f"var_samp({x})")
            made[f"dev_{x}"] = (aggregates.stddev(x), f"stddev_samp({x})")
            made[f"corr_{x}"] = (aggregates.corr(x, "o"), f"corr({x}, o)")
            made[f"cov_{x}"] = (aggregates.covar_samp("o", x), f"covar_samp(o, {x})")
    if "t" in columns:
        made["and_t"] = (aggregates.bool_and("t"), "bool_and(t)")
        made["or_t"] = (aggregates.bool_or("t"), "bool_or(t)")
    return made


def same(one, other):
    if one is None or other is None:
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        one, other = float(one), float(other)
        return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return one == other


def timed(spark, seed):
    """Random rows with times near 1970, before it and after it, between two milliseconds."""
    frame = spark.createDataFrame(random_rows(seed), SCHEMA)
    micros = F.pmod(F.xxhash64("o", "n", "l", "s"), F.lit(6_000_000)) - 3_000_000
    return frame.select(
        *(each for each in frame.columns if each not in ("ts", "tn")),
        F.timestamp_micros(micros).alias("ts"),
        F.timestamp_micros(micros).cast("timestamp_ntz").alias("tn"),
        F.floor(micros / 1000).alias("ms"),
    )


def by_spark(frame, time, assigner, wanted):
    """The aggregates of each key and window by Spark's own windows."""
    if assigner.is_merging:
        window = F.session_window(F.timestamp_millis("ms"), f"{assigner.gap} milliseconds")
    else:
        instant = F.timestamp_millis("ms") if time == "ms" else F.col(time)
        size, slide = (f"{n} milliseconds" for n in (assigner.size, assigner.slide))
        start = f"{assigner.offset % assigner.slide} milliseconds"
        window = F.window(instant, size, slide, start)
    grouped = frame.groupBy("k", window.alias("window")).agg(
        *(F.expr(text).alias(name) for name, (_, text) in wanted.items())
    )
    return {
        (row["k"], _plain(row["window"]["start"]), _plain(row["window"]["end"])): row
        for row in grouped.toArrow().to_pylist()
    }


def _plain(time):
    """A time without its zone, and milliseconds as such a time."""
    if isinstance(time, int):
        time = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=time)
    return time.astimezone(dt.UTC).replace(tzinfo=None) if time.tzinfo else time


@pytest.mark.parametrize("name", CASES)
def test_windows_are_what_spark_gives_in_one_epoch_or_in_two(spark, tmp_path, name):
    time, assigner, columns = CASES[name]
    frame = timed(spark, 5)
    wanted = aggregates_of(columns)
    expected = by_spark(frame, time, assigner, wanted)
    declared = {each: aggregate for each, (aggregate, _) in wanted.items()}
    operator = AggregateOperator(
        "u",
        "k",
        declared,
        schema=frame.schema,
        window=assigner,
        event_time=time,
        out_of_orderness_ms=NEVER,
    )
    kept = []
    for parts in (1, 2):
        for part in range(parts):
            # The second epoch has one more subtask.
            job = StatefulJob(
                LocalSession(), f"in-{parts}", str(tmp_path), operator, parallelism=2 + part
            )
            rows = frame.where(f"pmod(coalesce(o, l, 0), {parts}) = {part}")
            done = job.run(rows.toArrow(), part)
            if part == 0:
                read = rows.select([each for each in rows.columns if each in operator.columns])
                assert Fingerprint.of_committed(done.facts.input) == fingerprint_of(read)
        kept.append(sorted(str(each) for each in job.snapshot()["u"].timer_entries()))
        job.stop_with_savepoint(str(tmp_path / f"savepoint-{parts}"), drain=True)
        output = job.output_of(job.history()[-2])["u"]
        by_window = {
            (row["k"], _plain(row["window_start"]), _plain(row["window_end"])): row.asDict()
            for row in output.collect()
        }
        assert output.count() == len(by_window)
        assert by_window.keys() == expected.keys()
        for key, row in by_window.items():
            wrong = {
                column: (row[column], expected[key][column])
                for column in wanted
                if not same(row[column], expected[key][column])
            }
            assert wrong == {}, key
    assert kept[0] == kept[1] and len(kept[0]) == len(expected)
