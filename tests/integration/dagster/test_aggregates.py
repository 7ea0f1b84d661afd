"""Aggregates of a pipeline are checked where they are declared."""

import pytest

from dstl_core import windows
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_dagster import Aggregate, EventTimeWindows, aggregating_pipeline


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("Sum", "v"), "An aggregate is one of count, .*, got 'Sum'"),
        (("mean", "v"), "got 'mean'"),
        (("sum",), "The aggregate sum needs a column"),
        (("sum", "v", "string"), "adds up numbers: .* got String"),
        (("avg", "v", "date"), "adds up numbers: .* got LocalDate"),
        (("max", "v", "array<int>"), "cannot keep a value of type .*, which has no order"),
        (("max", "v", "nothing"), "The aggregate max of 'v' has a wrong type"),
        (("max_by", "v"), "The aggregate max_by of 'v' needs an order; give order_by"),
        (("max_by", "v", "long", "o", "nothing"), "The order of the aggregate max_by of 'v' has a"),
        (("top", "v"), "The size of the aggregate top of 'v' is out of range"),
        (("top", "v", "array<int>", None, None, 3), "cannot keep a value of type"),
        (("histogram", "v"), "The histogram of 'v' needs the numbers where its buckets meet"),
        (("last", "v", "long", "o", "array<int>"), "cannot keep an order of type"),
    ],
)
def test_an_aggregate_that_cannot_be_kept_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Aggregate(*arguments)


def test_a_type_is_long_unless_the_aggregate_has_another():
    assert Aggregate("sum", "v").state_type == Types.LONG
    assert Aggregate("avg", "v").state_type == Types.DOUBLE
    assert Aggregate("bool_or", "v").state_type == Types.BOOLEAN
    assert Aggregate("max", "v", "timestamp").state_type == Types.INSTANT


def test_each_state_of_an_aggregate_comes_from_its_column():
    pipeline = aggregating_pipeline(
        "payments",
        uid="totals",
        key_by="account",
        states={"n": Aggregate("count"), "mean": Aggregate("avg", "amount")},
    )
    assert pipeline.lineage == {
        "state_key": ["account"],
        "n": ["account"],
        "mean_sum": ["amount"],
        "mean_count": ["amount"],
    }


def test_an_aggregate_with_its_own_order_keeps_it():
    pipeline = aggregating_pipeline(
        "payments",
        uid="totals",
        key_by="account",
        states={
            "place": Aggregate("max_by", "shop", "string", "paid_at", "timestamp"),
            "shops": Aggregate("approx_count_distinct", "shop"),
            "half": Aggregate("quantiles", "amount", points=[0.5]),
            "largest": Aggregate("top", "amount", "double", size=3),
        },
    )
    assert pipeline.lineage == {
        "state_key": ["account"],
        "place": ["shop", "paid_at"],
        "place_order": ["shop", "paid_at"],
        "shops": ["shop"],
        "half": ["amount"],
        "largest": ["amount"],
    }


def test_the_first_and_the_last_value_need_an_order():
    with pytest.raises(ConfigError, match="takes the first or last value; give an order_by"):
        aggregating_pipeline(
            "p", uid="u", key_by="k", states={"last": Aggregate("last", "v", "string")}
        )


def test_the_output_of_a_pipeline_is_that_of_its_operator():
    states = {"n": Aggregate("count"), "mean": Aggregate("avg", "v")}
    pipeline = aggregating_pipeline("p", uid="u", key_by="k", states=states, output=["mean"])
    assert pipeline.job.operator.output_schema.names == ["k", "mean"]
    pipeline = aggregating_pipeline("p", uid="u", key_by="k", states=states)
    assert pipeline.job.operator.output_schema is None
    with pytest.raises(ConfigError, match="expected some of n, mean, got 'x'"):
        aggregating_pipeline("p", uid="u", key_by="k", states=states, output=["x"])


def test_a_pipeline_of_windows_keeps_their_contents_and_gives_those_that_fire():
    hours = windows.TumblingEventTimeWindows.of(3_600_000)
    pipeline = aggregating_pipeline(
        "payments",
        uid="hourly",
        key_by="account",
        states={"n": Aggregate("count"), "total": Aggregate("sum", "amount")},
        windows=EventTimeWindows(hours, "paid_at", allowed_lateness=60_000),
    )
    operator = pipeline.job.operator
    assert (operator.window, operator.allowed_lateness) == (hours, 60_000)
    assert list(pipeline.outputs) == ["hourly"]
    assert operator.output_schema.names == [
        "account",
        "window_start",
        "window_end",
        "n",
        "total",
    ]
    assert pipeline.lineage == {
        "state_key": ["account"],
        "window-contents": ["account", "paid_at", "amount"],
    }
