"""Declared aggregates give what plain Spark gives, for all types, nulls and splits of rows."""

import datetime as dt
import math
import random
from decimal import Decimal

import pytest

from dstl_core import (
    AggregateOperator,
    StatefulJob,
    aggregates,
)
from dstl_core.errors import ConfigError
from dstl_core.job.spec.fingerprint import Fingerprint
from dstl_core.spark.job import small_batches
from dstl_core.spark.job.inputs import fingerprint_of
from tests.local_session import LocalSession, state_rows

pytestmark = pytest.mark.spark

UTC = dt.UTC
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


@pytest.fixture(scope="module", autouse=True)
def each_subtask_has_a_task():
    """One task would apply such small batches without a shuffle: ``test_engines`` has both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_batches, "SMALL_BYTES", 0)
        yield


def job_of(base, name, wanted, schema, engine=None):
    operator = AggregateOperator("u", "k", wanted, schema=schema, output=True)
    return StatefulJob(engine or LocalSession(), name, str(base), operator, parallelism=3)


def states(job):
    """The states of each key."""
    return {row.state_key: row.asDict() for row in state_rows(job.latest_path(), "u")}


def result(name, held):
    """An aggregate from its states."""
    if name.startswith("avg_"):
        count = held[f"{name}_count"]
        return held[f"{name}_sum"] / count if count else None
    if name.startswith(("var_", "dev_")):
        count = held[f"{name}_count"]
        variance = held[f"{name}_m2"] / (count - 1) if count and count > 1 else None
        return math.sqrt(variance) if variance and name.startswith("dev_") else variance
    if name.startswith(("corr_", "cov_")):
        count, comoment = held[f"{name}_count"], held[f"{name}_comoment"]
        if not count or count < 2:
            return None
        if name.startswith("cov_"):
            return comoment / (count - 1)
        squares = held[f"{name}_m2"] * held[f"{name}_other_m2"]
        return comoment / math.sqrt(squares) if squares else None
    return held[name]


def same(one, other):
    if isinstance(other, list):  # of Spark: an empty one where there is nothing
        other = other if any(each is not None for each in other) else None
        if one is not None and other is not None:
            return len(one) == len(other) and all(map(same, one, other))
    if isinstance(other, dict):
        return one == (other or None)
    if one is None or other is None:
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        one, other = float(one), float(other)
        return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return one == other


def spark_says(spark, frame, wanted):
    """The aggregates of each key by plain Spark."""
    sql = ", ".join(f"{text} AS {name}" for name, (_, text) in wanted.items())
    frame.createOrReplaceTempView("given")
    rows = spark.sql(f"SELECT k, {sql} FROM given GROUP BY k").toArrow().to_pylist()
    return {row["k"]: row for row in rows}


def epochs_of(tmp_path, frame, declared, expected):
    """A job that ran the rows in one epoch, and one that ran them in three. The output of both is
    what is expected. The jobs need no Spark: their rules are one code on both engines.
    """
    whole = job_of(tmp_path, "whole", declared, frame.schema)
    done = whole.run(frame.toArrow(), 1)
    outputs = {"whole": {row["k"]: row.asDict() for row in done.output.collect()}, "split": {}}
    assert done.facts.input.rows == frame.count()
    [operator] = whole.operators
    read = frame.select([each for each in frame.columns if each in operator.columns])
    assert Fingerprint.of_committed(done.facts.input) == fingerprint_of(read)
    split = job_of(tmp_path, "split", declared, frame.schema)
    for part in range(3):
        rows = frame.where(f"pmod(coalesce(o, l, 0), 3) = {part}").toArrow()
        part_done = split.run(rows, part)
        outputs["split"] |= {row["k"]: row.asDict() for row in part_done.output.collect()}
    for name, rows_of_keys in outputs.items():
        assert rows_of_keys.keys() == expected.keys(), name
        for key, row in rows_of_keys.items():
            wrong = {
                column: (value, expected[key][column])
                for column, value in row.items()
                if not same(value, expected[key][column])
            }
            assert wrong == {}, name
    return whole, split


@pytest.mark.parametrize(
    "key, columns",
    [
        ("bigint", ("n", "l", "f", "d", "t", "c")),
        ("string", ("l", "s", "b", "day", "ts", "tn")),
    ],
)
def test_every_aggregate_of_every_type_is_what_spark_gives_in_one_epoch_or_in_three(
    spark, tmp_path, key, columns
):
    rows = random_rows(7)
    frame = spark.createDataFrame(rows, SCHEMA)
    if key == "string":
        frame = frame.withColumn("k", frame["k"].cast("string"))
    wanted = aggregates_of(columns)
    expected = spark_says(spark, frame, wanted)
    declared = {name: each for name, (each, _) in wanted.items()}
    whole, split = epochs_of(tmp_path, frame, declared, expected)
    for job in (whole, split):
        kept = states(job)
        assert kept.keys() == expected.keys()
        for place, held in kept.items():
            wrong = {
                name: (result(name, held), expected[place][name])
                for name in wanted
                if not same(result(name, held), expected[place][name])
            }
            assert wrong == {}


def lists_and_sketches():
    """Aggregates that keep more than one value, and what Spark calls them."""
    made = {"rows": (aggregates.count(), "count(*)")}
    for x in ("l", "d", "c", "s", "ts"):
        rows = f"collect_list(struct(o, {x})) FILTER (WHERE o IS NOT NULL AND {x} IS NOT NULL)"
        values = f"transform(array_sort({rows}), each -> each.{x})"
        made[f"list_{x}"] = aggregates.collect_list(x, 3, "o"), f"slice({values}, 1, 3)"
        made[f"last_{x}"] = aggregates.last_values(x, 2, "o"), f"slice(reverse({values}), 1, 2)"
    for x in ("n", "f", "b", "t", "tn", "c"):
        made[f"set_{x}"] = (
            aggregates.collect_set(x, 3),
            f"slice(array_sort(collect_set({x})), 1, 3)",
        )
        made[f"top_{x}"] = (
            aggregates.top(x, 3),
            f"slice(reverse(array_sort(collect_list({x}))), 1, 3)",
        )
    for x in ("n", "l", "f", "d", "c", "s", "b", "t", "day", "ts", "tn"):
        value = {"s": "nullif(s, '')", "b": "nullif(b, X'')"}.get(x, x)
        made[f"different_{x}"] = (
            aggregates.approx_count_distinct(x),
            f"size(collect_set({value}))",
        )
    for x in ("n", "d", "c"):
        made[f"half_{x}"] = (
            aggregates.quantiles(x, [0.5]),
            f"array(percentile_disc(0.5) WITHIN GROUP (ORDER BY CAST({x} AS double)))",
        )
    for x in ("n", "s", "t", "day", "ts"):
        counted = f"transform(array_sort(collect_set({x})), v -> struct(v"
        among = f"filter(collect_list({x}), w -> w = v)"
        made[f"often_{x}"] = (
            aggregates.value_counts(x, 100),
            f"map_from_entries({counted}, CAST(size({among}) AS bigint))))",
        )
    for x, time in (("d", "l"), ("c", "ts"), ("n", "tn")):
        life = 1e14 if time == "l" else 1e11
        unit = "" if time == "l" else " * 1e3D"
        known = f"{x} IS NOT NULL AND {time} IS NOT NULL"
        at = "w.t" if time == "l" else "unix_micros(CAST(w.t AS timestamp))"
        rows = f"collect_list(struct({time} AS t, CAST({x} AS double) AS v)) FILTER (WHERE {known})"
        last = f"max({time}) FILTER (WHERE {known})"
        last = last if time == "l" else f"unix_micros(CAST({last} AS timestamp))"
        weight = f"pow(0.5D, (CAST({last} AS double) - CAST({at} AS double)) / ({life}D{unit}))"
        made[f"faded_{x}"] = (
            aggregates.decayed_sum(x, life, time),
            f"aggregate({rows}, CAST(null AS double), (s, w) -> coalesce(s, 0D) + w.v * {weight})",
        )
    for x in ("l", "f", "c"):
        among = (f"{x} < -2.25", f"{x} >= -2.25 AND {x} < 100", f"{x} >= 100")
        counts = ", ".join(f"count_if({each})" for each in among)
        made[f"counts_{x}"] = (
            aggregates.histogram(x, [-2.25, 100]),
            f"IF(count({x}) > 0, array({counts}), null)",
        )
    return made


def test_lists_sketches_and_histograms_are_what_spark_gives_in_one_epoch_or_in_three(
    spark, tmp_path
):
    frame = spark.createDataFrame(random_rows(11), SCHEMA)
    wanted = lists_and_sketches()
    expected = spark_says(spark, frame, wanted)
    declared = {name: each for name, (each, _) in wanted.items()}
    for job in epochs_of(tmp_path, frame, declared, expected):
        kept = spark.read.format("savepoint").option("operator.uid", "u").load(job.latest_path())
        estimates = kept.where("different_l IS NOT NULL AND half_d IS NOT NULL").selectExpr(
            "state_key",
            "hll_sketch_estimate(different_l) AS different_l",
            "array(kll_sketch_get_quantile_double(half_d, 0.5D)) AS half_d",
        )
        rows = estimates.collect()
        assert len(rows) > 5
        for row in rows:
            for name in ("different_l", "half_d"):
                assert row[name] == expected[row["state_key"]][name]


def test_sketches_of_many_values_are_as_near_as_they_say(spark, tmp_path):
    wanted = {
        "different": aggregates.approx_count_distinct("v"),
        "some": aggregates.quantiles("v", [0.1, 0.5, 0.9]),
        "last": aggregates.last_values("v", 100_000, "v"),
    }
    schema = "k string, v bigint"
    job = job_of(tmp_path, "job", wanted, schema)
    for part in range(3):
        rows = (
            spark.range(part * 20_000, part * 20_000 + 40_000).selectExpr("'a' k", "id v").toArrow()
        )
        done = job.run(rows, part)
    [row] = done.output.collect()
    assert row["different"] == pytest.approx(80_000, rel=0.05)
    values = [each for part in range(3) for each in range(part * 20_000, part * 20_000 + 40_000)]
    assert row["last"] == sorted(values, reverse=True)[:100_000]
    ranks = [
        (sum(max(0, min(value - part * 20_000, 40_000)) for part in range(3))) / 120_000
        for value in row["some"]
    ]
    assert ranks == pytest.approx([0.1, 0.5, 0.9], abs=0.04)


def test_values_of_every_type_are_counted(spark, tmp_path):
    rows = spark.sql(
        "SELECT 1 k, v, named_struct('a', 1) s FROM VALUES (INTERVAL '1' DAY), (null) AS t (v)"
    )
    wanted = {each: aggregates.count(each) for each in ("v", "s")}
    operator = AggregateOperator("u", "k", wanted, key_type="int")
    job = StatefulJob(spark, "job", str(tmp_path), operator)
    job.run(rows, 1)
    assert states(job) == {1: {"state_key": 1, "v": 1, "s": 2}}


def test_rows_of_a_subtask_stay_together_where_spark_moves_rows_before_each_grouping(
    spark, tmp_path
):
    name = "spark.sql.requireAllClusterKeysForDistribution"
    spark.conf.set(name, "true")
    try:
        rows = [(key, key % 5) for key in range(200)] * 2
        wanted = {"n": aggregates.count(), "total": aggregates.sum("v")}
        job = job_of(tmp_path, "job", wanted, "k bigint, v int", spark)
        job.run(spark.createDataFrame(rows, "k bigint, v int"), 1)
    finally:
        spark.conf.unset(name)
    expected = {key: {"state_key": key, "n": 2, "total": 2 * (key % 5)} for key in range(200)}
    assert states(job) == expected


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("'a' COLLATE UTF8_LCASE AS k, 'x' AS v", "k"),
        ("'a' AS k, 'x' COLLATE UNICODE_CI AS v", "v"),
    ],
)
def test_texts_that_spark_compares_in_another_way_are_refused(spark, tmp_path, sql, column):
    rows = spark.sql(f"SELECT {sql}")
    job = job_of(tmp_path, "job", {"top": aggregates.max("v")}, "k string, v string", spark)
    with pytest.raises(ConfigError, match=f"^The column '{column}' .* compares texts by their byt"):
        job.run(rows, 1)
    assert job.latest() is None
