"""A declared aggregate is checked where it is declared."""

import ast
import math
import re
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates, windows
from dstl_core.aggregates import AGGREGATES, aggregate_of
from dstl_core.aggregates.aggregate_merge import Merge
from dstl_core.errors import ConfigError
from dstl_core.job.spec.operators import LocalCopies

HOME = "dstl_core.aggregates"


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: aggregate_of("median", column="v"), "is one of .*, count, .*, got 'median'"),
        (
            lambda: aggregate_of("sum", column="v", limit=3),
            "The aggregate sum has no option 'limit': expected some of column, type",
        ),
        (
            lambda: aggregate_of("top", column="v"),
            "The aggregate top needs 'limit': expected .*, got column",
        ),
        (
            lambda: aggregate_of("stddev"),
            "The aggregate stddev needs 'column': expected column, got none",
        ),
        (lambda: aggregates.stddev(None), "The aggregate stddev needs a column"),
        (lambda: aggregates.collect_list("v", 2, ()), "of 'v' needs an order; give order_by"),
        (lambda: aggregates.approx_count_distinct("v", 3), "expected 4 to 21, got 3"),
        (lambda: aggregates.quantiles("v", [0.5], 7), "expected 8 to 65535, got 7"),
        (lambda: aggregates.top("v", 0), "limit of the aggregate top of 'v' is out of range"),
        (lambda: aggregates.top("v", True), "of 'v' is a whole number, got True"),
        (lambda: aggregates.collect_set("v", 2.5), "of 'v' is a whole number, got 2.5"),
        (lambda: aggregates.collect_list("v", 10**6, "o"), "expected 1 to 100000, got 1000000"),
        (lambda: aggregates.quantiles("v", []), "need probabilities: .* got \\[\\]"),
        (lambda: aggregates.quantiles("v", [0.5, 1.5]), "numbers from 0 to 1, got \\[0.5, 1.5\\]"),
        (lambda: aggregates.quantiles("v", [math.nan]), "need probabilities"),
        (
            lambda: aggregates.quantiles("v", 0.5),
            "The probabilities of the .* are numbers, got 0.5",
        ),
        (lambda: aggregates.histogram("v", ["a"]), "of 'v' are numbers, got \\['a'\\]"),
        (lambda: aggregates.histogram("v", []), "needs the numbers where its buckets meet"),
        (lambda: aggregates.histogram("v", [2, 1]), "each larger than the one before, got"),
        (lambda: aggregates.histogram("v", [1, math.nan]), "each larger than the one before"),
        (lambda: aggregates.value_counts("v", 0), "of 'v' is out of range: expected 1 to 100000"),
        (
            lambda: aggregates.decayed_sum("v", 0, "t"),
            "needs a half-life: .* above 0, got 0.0",
        ),
        (lambda: aggregates.decayed_sum("v", math.inf, "t"), "needs a half-life"),
        (lambda: aggregates.decayed_sum("v", "1 h", "t"), "half_life_ms of .* is a number, got"),
        (lambda: aggregates.decayed_sum("v", 1, 5), "The event_time of .* decayed_sum is wrong"),
        (lambda: aggregates.corr("v", 5), "The other of the aggregate corr is wrong: .* got 5"),
        (lambda: aggregates.sum(5), "The column of the aggregate sum is wrong: .* got 5"),
        (lambda: aggregates.count(["v"]), "The column of the aggregate count is .* got \\['v'\\]"),
        (lambda: aggregates.last("v", None), "The order_by of the aggregate last of 'v' is wrong"),
        (lambda: aggregates.last("v", "t", keeps_order="no"), "expected True or False, got 'no'"),
        (lambda: aggregates.max_by("v", 5), "expected names of columns, got 5"),
    ],
)
def test_an_aggregate_that_cannot_be_is_refused(declare, message):
    with pytest.raises(ConfigError, match=message):
        declare()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (aggregates.value_counts("v", 9, "double"), "keep counts of values of type Double, which"),
        (aggregates.value_counts("v", 9, "binary"), "which cannot be the key of a map; expected"),
        (
            aggregates.decayed_sum("v", 5, "t", time_type="string"),
            "a time of type String, which",
        ),
        (aggregates.top("v", 5, "map<string,int>"), "cannot keep a value of type .* no order"),
        (aggregates.collect_list("v", 5, "o", "int", order_type="array<int>"), "keep an order of"),
        (aggregates.collect_set("v", 5), "has no type; give type, or a schema with the column 'v'"),
    ],
)
def test_a_type_that_cannot_hold_an_aggregate_is_refused(wanted, message):
    with pytest.raises(ConfigError, match=message):
        AggregateOperator("u", "k", {"x": wanted}, "bigint")


SCHEMA = "k string, v bigint, s string, t boolean, a array<int>, d double, c decimal(9, 2)"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([aggregates.count()], "expected a mapping of names to aggregates, got"),
        ({}, "has no aggregate; give it at least one"),
        ({5: aggregates.count()}, "The name of an aggregate .* expected text, got 5"),
        ({"n": "count"}, "expected one of dstl_core.aggregates, .*, got 'count'"),
        ({"n": aggregates.count}, "got the class count"),
        ({"n": aggregates.sum("s")}, "sum, takes numbers, and the schema has string for the co"),
        ({"n": aggregates.avg("s")}, "avg, takes numbers, and the schema has string for the co"),
        ({"n": aggregates.variance("t")}, "variance, takes numbers, and the schema has bool"),
        ({"n": aggregates.corr("v", "s")}, "corr, takes numbers, and the schema has string for"),
        ({"n": aggregates.histogram("s", [1])}, "histogram, takes numbers, and the schema"),
        ({"n": aggregates.quantiles("s", [0.5])}, "quantiles, takes numbers, and the schema"),
        ({"n": aggregates.bool_and("v")}, "bool_and, takes booleans, and the schema has int64"),
        ({"n": aggregates.sum("c", "int")}, "has the type Integer, and the schema has decimal128"),
        ({"n": aggregates.avg("d", "bigint")}, "has the type Long, and the schema has double for"),
        ({"n": aggregates.sum("d", "decimal(38, 2)")}, "has the type BigDecimal, and the schema"),
        ({"n": aggregates.approx_count_distinct("a")}, "takes values that are no lists, maps or"),
    ],
)
def test_what_an_operator_cannot_aggregate_is_refused_when_it_is_declared(wanted, message):
    with pytest.raises(ConfigError, match=message):
        AggregateOperator("u", "k", wanted, schema=SCHEMA)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"uid": 5}, "The uid of an operator is wrong: expected a name, got 5"),
        ({"key_by": ["k", "v"]}, "expected the name of one column, got \\['k', 'v'\\]"),
        ({"key_type": "map<string, int>"}, "is a Map<String, Integer>, which cannot be a key"),
        ({"output": "n"}, "The output of .* expected True, False, or a list of names .* got 'n'"),
        ({"source": 5}, "The source of operator 'u' is wrong"),
        ({"out_of_orderness_ms": True}, "expected a duration of at least 0 ms .*, got True"),
        ({"event_time": "s"}, "expected a timestamp, or milliseconds .* has string for the col"),
        ({"event_time": "v", "allowed_lateness": True}, "The allowed lateness .*, got True"),
    ],
)
def test_a_wrong_argument_is_refused_when_it_is_declared(options, message):
    arguments = {
        "uid": "u",
        "key_by": "k",
        "schema": SCHEMA,
        "aggregates": {"n": aggregates.count()},
    }
    window = windows.TumblingEventTimeWindows.of(1000)
    with pytest.raises(ConfigError, match=message):
        AggregateOperator(**{**arguments, "window": window, "event_time": "v", **options})


@pytest.mark.parametrize("column, type", [("v", "decimal(38, 0)"), ("c", "double"), ("v", "float")])
def test_sums_of_narrower_numbers_have_wider_states(column, type):
    wanted = {"n": aggregates.sum(column, type), "m": aggregates.avg(column, type)}
    assert AggregateOperator("u", "k", wanted, schema=SCHEMA).items


@pytest.mark.parametrize("how", AGGREGATES)
def test_a_class_describes_its_arguments_and_a_page_its_states(how):
    aggregate = AGGREGATES[how]
    names = [each.name for each in fields(aggregate)]
    assert list(aggregate.example) == names
    for name in names:
        assert re.search(rf"^    +{name}: \S", aggregate.__doc__, re.MULTILINE), name
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "aggregates.md").read_text()
    assert re.search(rf"^\| [^|]*`{how}`", page, re.MULTILINE)


@pytest.mark.slow
def test_one_package_knows_aggregates_by_name():
    """Neither engines nor faces have code for one: they take the class."""
    merges = {each.__name__ for each in Merge.__subclasses__()}
    merges |= {below.__name__ for each in Merge.__subclasses__() for below in each.__subclasses__()}
    root = Path(__file__).parents[2]
    knowing = [
        f"{path.relative_to(root)}: {name}"
        for package in ("dstl_core", "dstl_dagster")
        for path in (root / package).rglob("*.py")
        if path.parent.name != "aggregates"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(HOME)
        for name in (alias.name for alias in node.names)
        if name in {*AGGREGATES, *merges}
    ]
    assert knowing == []


def test_every_decimal_of_a_state_comes_back_as_it_was_declared(tmp_path):
    """The sum of an average is called otherwise than the aggregate."""
    wanted = {
        "total": aggregates.sum("c"),
        "mean": aggregates.avg("c", "decimal(20, 2)"),
        "most": aggregates.max("c"),
        "best": aggregates.max_by("k", "c"),
        "some": aggregates.top("c", 2),
    }
    operator = AggregateOperator("u", "k", wanted, schema=SCHEMA)
    copies = LocalCopies(str(tmp_path / "local"))
    job = StatefulJob(LocalEngine(), "job", str(tmp_path), operator, local_copies=copies)
    cents = pa.array([Decimal("1.25"), Decimal("0.50")], pa.decimal128(9, 2))
    job.run(pa.table({"k": ["ada", "ada"], "c": cents}), 1)
    [state] = job.snapshot()["u"].keyed().read()
    types = {field.name: field.type for field in state.schema}
    narrow = pa.decimal128(9, 2)
    assert {name: types[name] for name in types if name not in ("state_key", "best")} == {
        "total": pa.decimal128(38, 2),
        "mean_sum": pa.decimal128(20, 2),
        "mean_count": pa.int64(),
        "most": narrow,
        "best_order": narrow,
        "some": pa.list_(narrow),
    }
    assert state.to_pylist()[0]["mean_sum"] == Decimal("1.75")
