"""Declared aggregates give what plain Spark gives, for all types, nulls and splits of rows."""

import datetime as dt
import math
import random
from decimal import Decimal

import pytest

from dstl_core import (
    AggregateOperator,
    KeyedOperator,
    KeyedProcessFunction,
    Snapshot,
    StatefulJob,
    ValueStateDescriptor,
    aggregates,
)
from dstl_core.errors import ConfigError
from dstl_core.job.spec.fingerprint import Fingerprint
from dstl_core.spark.job.inputs import fingerprint_of

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
    found = {"rows": (aggregates.count(), "count(*)")}
    for x in columns:
        found |= {
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
        found |= {
            f"count_{x}": (aggregates.count(x), f"count({x})"),
            f"null_{x}": (aggregates.count_null(x), f"count_if({x} IS NULL)"),
            f"minby_{x}": (aggregates.min_by(x, "o"), f"min_by({x}, o)"),
            f"maxby_{x}": (aggregates.max_by(x, "o"), f"max_by({x}, o)"),
        }
    for x in NUMBERS:
        if x in columns:
            found[f"sum_{x}"] = (aggregates.sum(x), f"sum({x})")
            found[f"avg_{x}"] = (aggregates.avg(x), f"avg({x})")
            found[f"var_{x}"] = (aggregates.variance(x), f"var_samp({x})")
            found[f"dev_{x}"] = (aggregates.stddev(x), f"stddev_samp({x})")
            found[f"corr_{x}"] = (aggregates.corr(x, "o"), f"corr({x}, o)")
            found[f"cov_{x}"] = (aggregates.covar_samp("o", x), f"covar_samp(o, {x})")
    if "t" in columns:
        found["and_t"] = (aggregates.bool_and("t"), "bool_and(t)")
        found["or_t"] = (aggregates.bool_or("t"), "bool_or(t)")
    return found


def job_of(spark, base, name, wanted, schema=SCHEMA, **options):
    operator = AggregateOperator("u", "k", wanted, schema=schema, output=True)
    return StatefulJob(spark, name, str(base), operator, parallelism=3, **options)


def states(spark, job):
    """The states of each key, decimals as Python's."""
    frame = spark.read.format("savepoint").option("operator.uid", "u").load(job.latest_path())
    return {
        row["state_key"]: {name: _plain(row[name]) for name in frame.columns}
        for row in frame.collect()
    }


def _plain(value):
    if hasattr(value, "asDict") and set(value.asDict()) == {"unscaled", "scale"}:
        return Decimal(int.from_bytes(value["unscaled"], "big", signed=True)).scaleb(
            -value["scale"]
        )
    return value


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
    rows = spark.sql(f"SELECT k, {sql} FROM given GROUP BY k").collect()
    return {row["k"]: row.asDict() for row in rows}


def epochs_of(spark, tmp_path, frame, declared, expected):
    """A job that ran the rows in one epoch, and one that ran them in three. The output of both is
    what is expected.
    """
    whole = job_of(spark, tmp_path, "whole", declared, frame.schema)
    done = whole.run(frame, 1)
    given = {"whole": {row["k"]: row.asDict() for row in done.output.collect()}, "split": {}}
    assert done.facts.input.rows == frame.count()
    assert Fingerprint.of_committed(done.facts.input) == fingerprint_of(frame)
    split = job_of(spark, tmp_path, "split", declared, frame.schema)
    for part in range(3):
        part_done = split.run(frame.where(f"pmod(coalesce(o, l, 0), 3) = {part}"), part)
        given["split"] |= {row["k"]: row.asDict() for row in part_done.output.collect()}
    for name, rows_of_keys in given.items():
        assert rows_of_keys.keys() == expected.keys(), name
        for each, row in rows_of_keys.items():
            wrong = {
                column: (value, expected[each][column])
                for column, value in row.items()
                if not same(value, expected[each][column])
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
    whole, split = epochs_of(spark, tmp_path, frame, declared, expected)
    for job in (whole, split):
        found = states(spark, job)
        assert found.keys() == expected.keys()
        for each, held in found.items():
            wrong = {
                name: (result(name, held), expected[each][name])
                for name in wanted
                if not same(result(name, held), expected[each][name])
            }
            assert wrong == {}


def lists_and_sketches():
    """Aggregates that keep more than one value, and what Spark calls them."""
    found = {"rows": (aggregates.count(), "count(*)")}
    for x in ("l", "d", "c", "s", "ts"):
        rows = f"collect_list(struct(o, {x})) FILTER (WHERE o IS NOT NULL AND {x} IS NOT NULL)"
        values = f"transform(array_sort({rows}), each -> each.{x})"
        found[f"list_{x}"] = aggregates.collect_list(x, 3, "o"), f"slice({values}, 1, 3)"
        found[f"last_{x}"] = aggregates.last_values(x, 2, "o"), f"slice(reverse({values}), 1, 2)"
    for x in ("n", "f", "b", "t", "tn", "c"):
        found[f"set_{x}"] = (
            aggregates.collect_set(x, 3),
            f"slice(array_sort(collect_set({x})), 1, 3)",
        )
        found[f"top_{x}"] = (
            aggregates.top(x, 3),
            f"slice(reverse(array_sort(collect_list({x}))), 1, 3)",
        )
    for x in ("n", "l", "f", "d", "c", "s", "b", "t", "day", "ts", "tn"):
        value = {"s": "nullif(s, '')", "b": "nullif(b, X'')"}.get(x, x)
        found[f"different_{x}"] = (
            aggregates.approx_count_distinct(x),
            f"size(collect_set({value}))",
        )
    for x in ("n", "d", "c"):
        found[f"half_{x}"] = (
            aggregates.quantiles(x, [0.5]),
            f"array(percentile_disc(0.5) WITHIN GROUP (ORDER BY CAST({x} AS double)))",
        )
    for x in ("n", "s", "t", "day", "ts"):
        each = f"transform(array_sort(collect_set({x})), v -> struct(v"
        among = f"filter(collect_list({x}), w -> w = v)"
        found[f"often_{x}"] = (
            aggregates.value_counts(x, 100),
            f"map_from_entries({each}, CAST(size({among}) AS bigint))))",
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
        found[f"faded_{x}"] = (
            aggregates.decayed_sum(x, life, time),
            f"aggregate({rows}, CAST(null AS double), (s, w) -> coalesce(s, 0D) + w.v * {weight})",
        )
    for x in ("l", "f", "c"):
        among = (f"{x} < -2.25", f"{x} >= -2.25 AND {x} < 100", f"{x} >= 100")
        counts = ", ".join(f"count_if({each})" for each in among)
        found[f"counts_{x}"] = (
            aggregates.histogram(x, [-2.25, 100]),
            f"IF(count({x}) > 0, array({counts}), null)",
        )
    return found


def test_lists_sketches_and_histograms_are_what_spark_gives_in_one_epoch_or_in_three(
    spark, tmp_path
):
    frame = spark.createDataFrame(random_rows(11), SCHEMA)
    wanted = lists_and_sketches()
    expected = spark_says(spark, frame, wanted)
    declared = {name: each for name, (each, _) in wanted.items()}
    for job in epochs_of(spark, tmp_path, frame, declared, expected):
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
    job = job_of(spark, tmp_path, "job", wanted, schema)
    for part in range(3):
        rows = spark.range(part * 20_000, part * 20_000 + 40_000).selectExpr("'a' k", "id v")
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


def run(spark, tmp_path, wanted, schema, *epochs):
    job = job_of(spark, tmp_path, "job", wanted, schema)
    for number, rows in enumerate(epochs):
        job.run(spark.createDataFrame(rows, schema), number)
    return states(spark, job)


def test_values_of_every_type_are_counted(spark, tmp_path):
    rows = spark.sql(
        "SELECT 1 k, v, named_struct('a', 1) s FROM VALUES (INTERVAL '1' DAY), (null) AS t (v)"
    )
    wanted = {each: aggregates.count(each) for each in ("v", "s")}
    operator = AggregateOperator("u", "k", wanted, key_type="int")
    job = StatefulJob(spark, "job", str(tmp_path), operator)
    job.run(rows, 1)
    assert states(spark, job) == {1: {"state_key": 1, "v": 1, "s": 2}}


def test_the_largest_of_nan_and_numbers_is_nan_and_the_smallest_a_number(spark, tmp_path):
    wanted = {"high": aggregates.max("v"), "low": aggregates.min("v")}
    rows = [(1, math.nan), (1, 5.0), (1, 1.0)]
    for name, epochs in (
        ("one", [rows]),
        ("three", [[each] for each in rows]),
        ("back", [[each] for each in rows[::-1]]),
    ):
        found = run(spark, tmp_path / name, wanted, "k bigint, v double", *epochs)
        assert math.isnan(found[1]["high"])
        assert found[1]["low"] == 1.0


def test_rows_of_one_order_give_one_value_in_any_split(spark, tmp_path):
    wanted = {
        "first": aggregates.first("v", "o"),
        "last": aggregates.last("v", "o"),
        "low": aggregates.min_by("v", "o"),
        "high": aggregates.max_by("v", "o"),
    }
    rows = [(1, 5, "b"), (1, 5, None), (1, 5, "c"), (1, 5, "a"), (1, None, "z")]
    expected = {"first": "a", "last": "c", "low": None, "high": "c"}
    for name, epochs in (
        ("one", [rows]),
        ("five", [[each] for each in rows]),
        ("back", [[each] for each in rows[::-1]]),
    ):
        found = run(spark, tmp_path / name, wanted, "k bigint, o int, v string", *epochs)
        assert {each: found[1][each] for each in expected} == expected


def test_the_last_value_batch_by_batch_keeps_no_order(spark, tmp_path):
    wanted = {
        "first": aggregates.first("v", ["o", "p"], keeps_order=False),
        "last": aggregates.last("v", ["o", "p"], keeps_order=False),
    }
    epochs = [
        [(1, 9, 1, "a"), (1, 9, 2, "b"), (1, None, 3, "n")],
        [(1, 1, 1, "c"), (1, 2, 0, None)],
    ]
    found = run(spark, tmp_path, wanted, "k bigint, o int, p int, v string", *epochs)
    assert found[1] == {"state_key": 1, "first": "n", "last": "c"}


def test_the_output_of_an_epoch_has_the_keys_that_changed_with_their_values_after_it(
    spark, tmp_path
):
    schema = "k string, v decimal(6, 2), s string"
    wanted = {
        "high": aggregates.max("v"),
        "mean": aggregates.avg("v"),
        "wide": aggregates.sum("v", "decimal(38, 4)"),
        "word": aggregates.min("s"),
    }
    operator = AggregateOperator("u", "k", wanted, schema=schema, output=["word", "high", "mean"])
    count = AggregateOperator("n", "k", {"n": aggregates.count()}, "string", None, "u", output=True)
    job = StatefulJob(spark, "job", str(tmp_path), operator, downstream=[count])
    first = [("a", Decimal("1.50"), "x"), ("a", Decimal("2.00"), None), ("b", None, "y")]
    done = job.run(spark.createDataFrame(first, schema), 1)
    assert done.outputs["u"].columns == ["k", "word", "high", "mean"]
    assert done.outputs["u"].schema["high"].dataType.simpleString() == "decimal(38,2)"
    assert sorted(map(tuple, done.outputs["u"].collect())) == [
        ("a", "x", Decimal("2.00"), 1.75),
        ("b", "y", None, None),
    ]
    second = [("b", None, "z"), ("a", Decimal("-1.00"), "x"), ("c", None, None)]
    done = job.run(spark.createDataFrame(second, schema), 2)
    # The state of b is as it was; that of c says that its mean has no values.
    assert sorted(map(tuple, done.outputs["u"].collect())) == [
        ("a", "x", Decimal("2.00"), pytest.approx(2.5 / 3)),
        ("c", None, None, None),
    ]
    assert sorted(map(tuple, done.outputs["n"].collect())) == [("a", 2), ("c", 1)]


@pytest.mark.parametrize(
    "output, wanted, message",
    [
        (["x", "y"], aggregates.count(), "expected some of x, got 'x', 'y'"),
        (["x", "x"], aggregates.count(), "at most once: expected some of x, got 'x', 'x'"),
        (True, aggregates.sum("v", "decimal"), "its decimals have no scale; give it a type such"),
    ],
)
def test_an_output_that_cannot_be_is_refused_when_it_is_declared(output, wanted, message):
    with pytest.raises(ConfigError, match=message):
        AggregateOperator("u", "k", {"x": wanted}, "bigint", output=output)


def test_an_aggregate_in_the_output_is_not_called_like_the_key():
    with pytest.raises(ConfigError, match="has two columns 'k': the key and an aggregate; rename"):
        AggregateOperator("u", "k", {"k": aggregates.count()}, "bigint", output=True)


LARGEST = (1 << 63) - 1


@pytest.mark.parametrize(
    "kind, epochs",
    [
        ("bigint", [[LARGEST, 1]]),
        ("bigint", [[LARGEST], [1]]),
        ("bigint", [[-LARGEST, -LARGEST], [LARGEST]]),
        ("int", [[(1 << 31) - 1], [1]]),
        ("decimal(38, 0)", [[Decimal(10**38 - 1), Decimal(1)]]),
        ("decimal(38, 0)", [[Decimal(10**38 - 1)], [Decimal(1)]]),
    ],
)
def test_a_sum_that_does_not_fit_names_its_state_and_commits_nothing(spark, tmp_path, kind, epochs):
    schema = f"k bigint, v {kind}"
    job = job_of(spark, tmp_path, "job", {"total": aggregates.sum("v", kind)}, schema)
    message = "^The sum of state 'total' of operator 'u' does not fit its type, .* give .* a wider"
    with pytest.raises(ConfigError, match=message):
        for number, values in enumerate(epochs):
            before = job.latest()
            job.run(spark.createDataFrame([(1, each) for each in values], schema), number)
    assert before is None or job.latest().checkpoint_id == before.checkpoint_id


def test_a_sum_that_fits_in_the_end_is_exact_and_a_wider_type_holds_more(spark, tmp_path):
    wanted = {"total": aggregates.sum("v"), "wide": aggregates.sum("v", "decimal(38, 0)")}
    values = [LARGEST, LARGEST, -LARGEST]
    found = run(spark, tmp_path, wanted, "k bigint, v bigint", [(1, each) for each in values])
    assert found[1]["total"] == LARGEST
    assert found[1]["wide"] == Decimal(LARGEST)


def test_a_narrow_state_takes_what_fits_and_names_itself_otherwise(spark, tmp_path):
    schema = "k string, v bigint"
    job = job_of(spark, tmp_path, "job", {"low": aggregates.min("v", "int")}, schema)
    job.run(spark.createDataFrame([("a", 7), ("b", None)], schema), 1)
    assert states(spark, job) == {"a": {"state_key": "a", "low": 7}}
    message = "^A value of state 'low' of operator 'u' does not fit its type, Integer"
    with pytest.raises(ConfigError, match=message):
        job.run(spark.createDataFrame([("a", -LARGEST)], schema), 2)


ROWS = [
    ("a", 5, 1.5, "x", 2),
    ("a", None, None, None, 1),
    ("b", -3, 2.5, "y", 1),
    ("b", 9, -0.5, "z", 3),
    ("c", None, None, None, 1),
]
OF_ROWS = "k string, v bigint, d double, s string, o int"
KEPT = {
    "n": aggregates.count(),
    "nulls": aggregates.count_null("v"),
    "total": aggregates.sum("v", "bigint"),
    "weight": aggregates.sum("d", "double"),
    "low": aggregates.min("v", "bigint"),
    "high": aggregates.max("d", "double"),
    "early": aggregates.first("s", "o", "string", keeps_order=False),
    "late": aggregates.last("s", "o", "string", keeps_order=False),
}


class ByRow(KeyedProcessFunction):
    """The same aggregates by rows, as pipelines were made before there was an operator for them."""

    def open(self, runtime_context):
        self.states = {
            name: runtime_context.get_state(
                ValueStateDescriptor(name, getattr(each, "type", None) or "bigint")
            )
            for name, each in KEPT.items()
        }

    def process_element(self, value, ctx):
        held = {name: state.value() for name, state in self.states.items()}
        v, d, s = value["v"], value["d"], value["s"]
        new = {"n": (held["n"] or 0) + 1, "nulls": (held["nulls"] or 0) + (v is None)}
        if v is not None:
            new |= {"total": (held["total"] or 0) + v, "low": min(v, held["low"] or v)}
        if d is not None:
            new |= {"weight": (held["weight"] or 0.0) + d, "high": max(d, held["high"] or d)}
        if s is not None:
            new |= {"early": held["early"] or s, "late": s}
        for name, each in new.items():
            self.states[name].update(each)


def test_a_pipeline_that_kept_aggregates_by_rows_goes_on_with_the_same_states(spark, tmp_path):
    by_row = KeyedOperator("u", "k", "string", ByRow())
    declared = AggregateOperator("u", "k", KEPT, "string")
    batches = [spark.createDataFrame(rows, OF_ROWS) for rows in (ROWS, ROWS[::-1], ROWS[2:])]
    kept = {}
    for name, operators in (("rows", [by_row] * 3), ("both", [by_row, declared, declared])):
        for number, (operator, rows) in enumerate(zip(operators, batches, strict=True)):
            job = StatefulJob(spark, name, str(tmp_path), operator, parallelism=2)
            job.run(rows, number, order_by=["o"])
        savepoint = Snapshot.load(job.savepoint(str(tmp_path / f"savepoint of {name}")))
        kept[name] = sorted(map(repr, savepoint["u"].dump()))
        # A function by row has queues of timers, which are empty here; an operator has none.
        types = {each.name: each.type for each in savepoint["u"].states if each.kind == "value"}
        kept[f"types of {name}"] = types
    assert kept["both"] == kept["rows"]
    assert kept["types of both"] == kept["types of rows"]
    assert kept["types of both"].keys() == KEPT.keys()


def test_rows_of_a_subtask_stay_together_where_spark_moves_rows_before_each_grouping(
    spark, tmp_path
):
    name = "spark.sql.requireAllClusterKeysForDistribution"
    spark.conf.set(name, "true")
    try:
        rows = [(key, key % 5) for key in range(200)] * 2
        wanted = {"n": aggregates.count(), "total": aggregates.sum("v")}
        found = run(spark, tmp_path, wanted, "k bigint, v int", rows)
    finally:
        spark.conf.unset(name)
    expected = {key: {"state_key": key, "n": 2, "total": 2 * (key % 5)} for key in range(200)}
    assert found == expected


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("'a' COLLATE UTF8_LCASE AS k, 'x' AS v", "k"),
        ("'a' AS k, 'x' COLLATE UNICODE_CI AS v", "v"),
    ],
)
def test_texts_that_spark_compares_in_another_way_are_refused(spark, tmp_path, sql, column):
    rows = spark.sql(f"SELECT {sql}")
    job = job_of(spark, tmp_path, "job", {"top": aggregates.max("v")}, "k string, v string")
    with pytest.raises(ConfigError, match=f"^The column '{column}' .* compares texts by their byt"):
        job.run(rows, 1)
    assert job.latest() is None


def test_a_null_key_is_refused(spark, tmp_path):
    job = job_of(spark, tmp_path, "job", {"n": aggregates.count()}, "k bigint")
    with pytest.raises(ConfigError, match="A key is null"):
        job.run(spark.createDataFrame([(1,), (None,)], "k bigint"), 1)


@pytest.mark.parametrize(
    "wanted, message",
    [
        (aggregates.sum("s", "bigint"), "has the type Long, and the column 's' is string"),
        (aggregates.max("d", "bigint"), "has the type Long, and the column 'd' is double"),
        (aggregates.min("s", "int"), "has the type Integer, and the column 's' is string"),
        (aggregates.max("ts", "timestamp_ntz"), "and the column 'ts' is timestamp"),
        (aggregates.last("s", "nothing", "string", order_type="int"), "no column 'nothing'"),
        (aggregates.last("s", "d", "string", order_type="int"), "and the column 'd' is double"),
        (aggregates.quantiles("s", [0.5]), "has the type Double, and the column 's' is string"),
        (aggregates.histogram("day", [0]), "has the type Double, and the column 'day' is date"),
        (
            aggregates.collect_set("s", 3, "int"),
            "has the type Integer, and the column 's' is string",
        ),
        (
            aggregates.collect_list("s", 3, "d", "string", order_type="int"),
            "and the column 'd' is double",
        ),
        (aggregates.approx_count_distinct("a"), "of simple types, and the column 'a' is array"),
    ],
)
def test_what_an_aggregate_cannot_keep_is_refused_before_anything_runs(
    spark, tmp_path, wanted, message
):
    operator = AggregateOperator("u", "k", {"x": wanted}, "bigint")
    job = StatefulJob(spark, "job", str(tmp_path), operator)
    with pytest.raises(ConfigError, match=message):
        job.run(spark.createDataFrame([], f"{SCHEMA}, a array<int>"), 1)
    assert job.latest() is None


def test_decimals_of_38_digits_keep_all_of_them(spark, tmp_path):
    large, small = Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001")
    schema = "k string, d decimal(38, 10), t int"
    wanted = {
        "most": aggregates.max("d"),
        "least": aggregates.min("d"),
        "all": aggregates.collect_set("d", 5),
        "newest": aggregates.last("d", order_by="t"),
    }
    operator = AggregateOperator("u", "k", wanted, schema=schema, output=True)
    with StatefulJob(spark, "digits", str(tmp_path), operator) as job:
        for day, rows in enumerate(([("a", small, 1)], [("a", large, 2), ("a", small, 1)])):
            job.run(spark.createDataFrame(rows, schema), day)
        [found] = job.current_output()["u"].filter("newest > 0").collect()
    assert (found["most"], found["least"], found["newest"]) == (large, small, large)
    assert sorted(found["all"]) == [small, large]
