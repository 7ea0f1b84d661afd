"""What declared aggregates keep, give and refuse, whatever the engine."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from dstl_core import (
    AggregateOperator,
    KeyedOperator,
    Snapshot,
    StatefulJob,
    ValueStateDescriptor,
    aggregates,
)
from dstl_core.errors import ConfigError
from dstl_core.functions import KeyedProcessFunction
from tests.local_session import state_rows

pytestmark = pytest.mark.slow

SCHEMA = (
    "k bigint, o bigint, n int, l bigint, f float, d double, c decimal(12, 2), s string, b binary, "
    "t boolean, day date, ts timestamp, tn timestamp_ntz"
)


def job_of(session, base, name, wanted, schema):
    operator = AggregateOperator("u", "k", wanted, schema=schema, output=True)
    return StatefulJob(session, name, str(base), operator, parallelism=3)


def states(job):
    return {row.state_key: row.asDict() for row in state_rows(job.latest_path(), "u")}


def run(session, tmp_path, wanted, schema, *epochs):
    job = job_of(session, tmp_path, "job", wanted, schema)
    for number, rows in enumerate(epochs):
        job.run(session.createDataFrame(rows, schema), number)
    return states(job)


def test_the_largest_of_nan_and_numbers_is_nan_and_the_smallest_a_number(session, tmp_path):
    wanted = {"high": aggregates.max("v"), "low": aggregates.min("v")}
    rows = [(1, math.nan), (1, 5.0), (1, 1.0)]
    for name, epochs in (
        ("one", [rows]),
        ("three", [[each] for each in rows]),
        ("back", [[each] for each in rows[::-1]]),
    ):
        kept = run(session, tmp_path / name, wanted, "k bigint, v double", *epochs)
        assert math.isnan(kept[1]["high"])
        assert kept[1]["low"] == 1.0


def test_rows_of_one_order_give_one_value_in_any_split(session, tmp_path):
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
        kept = run(session, tmp_path / name, wanted, "k bigint, o int, v string", *epochs)
        assert {each: kept[1][each] for each in expected} == expected


def test_the_last_value_batch_by_batch_keeps_no_order(session, tmp_path):
    wanted = {
        "first": aggregates.first("v", ["o", "p"], keeps_order=False),
        "last": aggregates.last("v", ["o", "p"], keeps_order=False),
    }
    epochs = [
        [(1, 9, 1, "a"), (1, 9, 2, "b"), (1, None, 3, "n")],
        [(1, 1, 1, "c"), (1, 2, 0, None)],
    ]
    rows = run(session, tmp_path, wanted, "k bigint, o int, p int, v string", *epochs)
    assert rows[1] == {"state_key": 1, "first": "n", "last": "c"}


def test_the_output_of_an_epoch_has_the_keys_that_changed_with_their_values_after_it(
    session, tmp_path
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
    job = StatefulJob(session, "job", str(tmp_path), operator, downstream=[count])
    first = [("a", Decimal("1.50"), "x"), ("a", Decimal("2.00"), None), ("b", None, "y")]
    done = job.run(session.createDataFrame(first, schema), 1)
    assert done.outputs["u"].columns == ["k", "word", "high", "mean"]
    assert done.outputs["u"].schema.field("high").type == pa.decimal128(38, 2)
    assert sorted(map(tuple, done.outputs["u"].collect())) == [
        ("a", "x", Decimal("2.00"), 1.75),
        ("b", "y", None, None),
    ]
    second = [("b", None, "z"), ("a", Decimal("-1.00"), "x"), ("c", None, None)]
    done = job.run(session.createDataFrame(second, schema), 2)
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
def test_a_sum_that_does_not_fit_names_its_state_and_commits_nothing(
    session, tmp_path, kind, epochs
):
    schema = f"k bigint, v {kind}"
    job = job_of(session, tmp_path, "job", {"total": aggregates.sum("v", kind)}, schema)
    message = "^The sum of state 'total' of operator 'u' does not fit its type, .* give .* a wider"
    with pytest.raises(ConfigError, match=message):
        for number, values in enumerate(epochs):
            before = job.latest()
            job.run(session.createDataFrame([(1, each) for each in values], schema), number)
    assert before is None or job.latest().checkpoint_id == before.checkpoint_id


def test_a_sum_that_fits_in_the_end_is_exact_and_a_wider_type_holds_more(session, tmp_path):
    wanted = {"total": aggregates.sum("v"), "wide": aggregates.sum("v", "decimal(38, 0)")}
    values = [LARGEST, LARGEST, -LARGEST]
    rows = run(session, tmp_path, wanted, "k bigint, v bigint", [(1, each) for each in values])
    assert rows[1]["total"] == LARGEST
    assert rows[1]["wide"] == Decimal(LARGEST)


def test_a_narrow_state_takes_what_fits_and_names_itself_otherwise(session, tmp_path):
    schema = "k string, v bigint"
    job = job_of(session, tmp_path, "job", {"low": aggregates.min("v", "int")}, schema)
    job.run(session.createDataFrame([("a", 7), ("b", None)], schema), 1)
    assert states(job) == {"a": {"state_key": "a", "low": 7}}
    message = "^A value of state 'low' of operator 'u' does not fit its type, Integer"
    with pytest.raises(ConfigError, match=message):
        job.run(session.createDataFrame([("a", -LARGEST)], schema), 2)


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
                ValueStateDescriptor(name, getattr(kept, "type", None) or "bigint")
            )
            for name, kept in KEPT.items()
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
        for name, new_value in new.items():
            self.states[name].update(new_value)


def test_a_pipeline_that_kept_aggregates_by_rows_goes_on_with_the_same_states(session, tmp_path):
    by_row = KeyedOperator("u", "k", "string", ByRow())
    declared = AggregateOperator("u", "k", KEPT, "string")
    batches = [session.createDataFrame(rows, OF_ROWS) for rows in (ROWS, ROWS[::-1], ROWS[2:])]
    kept = {}
    for name, operators in (("rows", [by_row] * 3), ("both", [by_row, declared, declared])):
        for number, (operator, rows) in enumerate(zip(operators, batches, strict=True)):
            job = StatefulJob(session, name, str(tmp_path), operator, parallelism=2)
            job.run(rows, number, order_by=["o"])
        savepoint = Snapshot.load(job.savepoint(str(tmp_path / f"savepoint of {name}")))
        kept[name] = sorted(map(repr, savepoint["u"].dump()))
        # A function by row has queues of timers, which are empty here; an operator has none.
        types = {each.name: each.type for each in savepoint["u"].states if each.kind == "value"}
        kept[f"types of {name}"] = types
    assert kept["both"] == kept["rows"]
    assert kept["types of both"] == kept["types of rows"]
    assert kept["types of both"].keys() == KEPT.keys()


def test_a_null_key_is_refused(session, tmp_path):
    job = job_of(session, tmp_path, "job", {"n": aggregates.count()}, "k bigint")
    with pytest.raises(ConfigError, match="A key is null"):
        job.run(session.createDataFrame([(1,), (None,)], "k bigint"), 1)


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
    session, tmp_path, wanted, message
):
    operator = AggregateOperator("u", "k", {"x": wanted}, "bigint")
    job = StatefulJob(session, "job", str(tmp_path), operator)
    with pytest.raises(ConfigError, match=message):
        job.run(session.createDataFrame([], f"{SCHEMA}, a array<int>"), 1)
    assert job.latest() is None


def test_decimals_of_38_digits_keep_all_of_them(session, tmp_path):
    large, small = Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001")
    schema = "k string, d decimal(38, 10), t int"
    wanted = {
        "most": aggregates.max("d"),
        "least": aggregates.min("d"),
        "all": aggregates.collect_set("d", 5),
        "newest": aggregates.last("d", order_by="t"),
    }
    operator = AggregateOperator("u", "k", wanted, schema=schema, output=True)
    with StatefulJob(session, "digits", str(tmp_path), operator) as job:
        for day, rows in enumerate(([("a", small, 1)], [("a", large, 2), ("a", small, 1)])):
            job.run(session.createDataFrame(rows, schema), day)
        [own_row] = [row for row in job.current_output()["u"].collect() if row["newest"] > 0]
    assert (own_row["most"], own_row["least"], own_row["newest"]) == (large, small, large)
    assert sorted(own_row["all"]) == [small, large]
