"""Real Flink restores what declared aggregates have kept."""

import pytest

from dstl_core import AggregateOperator, StatefulJob, aggregates
from tests.integration.flink.checker import Operator, State
from tests.integration.spark.conftest import spark  # noqa: F401  # a fixture

pytestmark = [pytest.mark.flink, pytest.mark.spark]
SCHEMA = "k bigint, v bigint, t string, o bigint"
BATCHES = [
    [(1, 5, "a", 10), (2, None, "x", 3), (1, None, None, 30), (3, -4, "q", 1)],
    [(1, 7, "b", 20), (2, 8, "w", 2), (4, 1, "n", 5)],
]
STATES = [
    State("n", "value", "long"),
    State("total", "value", "long"),
    State("last", "value", "string"),
    State("last_order", "value", "long"),
    State("mean_sum", "value", "double"),
    State("mean_count", "value", "long"),
    State("high", "value", "list<long>"),
]
KEPT = {
    1: {
        "n": 3,
        "total": 12,
        "last": "b",
        "last_order": 20,
        "mean_sum": 12.0,
        "mean_count": 2,
        "high": [7, 5],
    },
    2: {
        "n": 2,
        "total": 8,
        "last": "x",
        "last_order": 3,
        "mean_sum": 8.0,
        "mean_count": 1,
        "high": [8],
    },
    3: {
        "n": 1,
        "total": -4,
        "last": "q",
        "last_order": 1,
        "mean_sum": -4.0,
        "mean_count": 1,
        "high": [-4],
    },
    4: {
        "n": 1,
        "total": 1,
        "last": "n",
        "last_order": 5,
        "mean_sum": 1.0,
        "mean_count": 1,
        "high": [1],
    },
}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_flink_restores_a_checkpoint_of_aggregates(spark, flink, tmp_path, backend):  # noqa: F811
    wanted = {
        "n": aggregates.count(),
        "total": aggregates.sum("v"),
        "last": aggregates.last("t", "o"),
        "mean": aggregates.avg("v"),
        "high": aggregates.top("v", 2),
    }
    operator = AggregateOperator("totals", "k", wanted, schema=SCHEMA)
    job = StatefulJob(spark, "job", str(tmp_path), operator)
    for number, rows in enumerate(BATCHES):
        job.run(spark.createDataFrame(rows, SCHEMA), number)
    operators = [Operator("totals", "long", STATES, max_parallelism=128)]
    restored = flink.restore(
        job.latest_path(), operators, backend=backend, parallelism=3, changelog=True
    )
    found = {}
    for entry in restored.entries:
        found.setdefault(entry["key"], {})[entry["state"]] = entry["value"]
    assert found == KEPT
