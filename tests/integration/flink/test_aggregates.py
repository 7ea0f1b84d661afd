"""Real Flink restores what declared aggregates have kept."""

import datetime as dt
from decimal import Decimal

import datasketches
import pyarrow as pa
import pytest

from benchmarks.day_worker import COLUMNS, operator_of_a_day
from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates
from dstl_core.codec.columnar.types.declared_schema import schema_of
from tests.integration.flink.checker import Operator, State

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
    State("kinds", "value", "bytes"),
    State("middle", "value", "bytes"),
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
# Distinct texts; whole numbers that are not null, and the median of these.
SKETCHED = {1: (2, (2, 5.0)), 2: (2, (1, 8.0)), 3: (1, (1, -4.0)), 4: (1, (1, 1.0))}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_flink_restores_a_checkpoint_of_aggregates(spark, flink, tmp_path, backend):
    """With a changelog, and for RocksDB as a native savepoint."""
    wanted = {
        "n": aggregates.count(),
        "total": aggregates.sum("v"),
        "last": aggregates.last("t", "o"),
        "mean": aggregates.avg("v"),
        "high": aggregates.top("v", 2),
        "kinds": aggregates.approx_count_distinct("t"),
        "middle": aggregates.quantiles("v", [0.5]),
    }
    operator = AggregateOperator("totals", "k", wanted, schema=SCHEMA)
    job = StatefulJob(spark, "job", str(tmp_path), operator)
    for number, rows in enumerate(BATCHES):
        job.run(spark.createDataFrame(rows, SCHEMA), number)
    operators = [Operator("totals", "long", STATES, max_parallelism=128)]
    is_native = backend == "rocksdb"
    path = job.savepoint(str(tmp_path / "sp"), format="native") if is_native else job.latest_path()
    restored = flink.restore(
        path, operators, backend=backend, parallelism=3, changelog=not is_native
    )
    by_key = {}
    for entry in restored.entries:
        by_key.setdefault(entry["key"], {})[entry["state"]] = entry["value"]
    sketches = {key: (hll(row.pop("kinds")), kll(row.pop("middle"))) for key, row in by_key.items()}
    assert by_key == KEPT
    assert sketches == SKETCHED


DAY = schema_of(f"k string, {COLUMNS}", "a day")
MORNING, NOON, NIGHT = (dt.datetime(2026, 11, 24, hour, tzinfo=dt.UTC) for hour in (6, 12, 23))
DAYS = [
    [
        ("ada", NOON, Decimal("10.25"), 1.5, "pen", False),
        ("ada", MORNING, Decimal("-0.50"), 4.0, "ink", False),
        ("bob", None, None, None, None, None),
    ],
    [
        ("ada", NIGHT, Decimal("99999999999999.99"), 2.5, None, True),
        ("ada", MORNING, None, -8.0, "cap", None),
        ("cyd", MORNING, Decimal("0.00"), 0.25, "", False),
    ],
]
DAY_STATES = {
    "n": "long",
    "total": "decimal",
    "first": "instant",
    "last": "instant",
    "latest": "string",
    "latest_order": "instant",
    "top": "double",
    "price": "double",
    "ok": "boolean",
}
DAY_KEPT = {
    "ada": {
        "n": 4,
        "total": "100000000000009.74",
        "first": "2026-11-24T06:00:00Z",
        "last": "2026-11-24T23:00:00Z",
        "latest_order": "2026-11-24T23:00:00Z",  # of the row whose item is null
        "top": 4.0,
        "price": 0.0,
        "ok": True,
    },
    "bob": {"n": 1},
    "cyd": {
        "n": 1,
        "total": "0.00",
        "first": "2026-11-24T06:00:00Z",
        "last": "2026-11-24T06:00:00Z",
        "latest": "",
        "latest_order": "2026-11-24T06:00:00Z",
        "top": 0.25,
        "price": 0.25,
        "ok": False,
    },
}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_flink_restores_the_state_of_a_users_day(flink, tmp_path, backend):
    day = operator_of_a_day("day", "string")
    job = StatefulJob(LocalEngine(), "job", str(tmp_path), day)
    for number, rows in enumerate(DAYS):
        columns = zip(DAY, zip(*rows, strict=True), strict=True)
        job.run(pa.table({field.name: pa.array(own, field.type) for field, own in columns}), number)
    states = [State(name, "value", kind) for name, kind in DAY_STATES.items()]
    operators = [Operator("day", "string", states, max_parallelism=128)]
    restored = flink.restore(
        job.latest_path(), operators, backend=backend, parallelism=3, changelog=True
    )
    by_key = {}
    for entry in restored.entries:
        by_key.setdefault(entry["key"], {})[entry["state"]] = entry["value"]
    assert by_key == DAY_KEPT


def hll(text):
    """The estimate of an HLL sketch, which is exact for so few values."""
    return round(datasketches.hll_sketch.deserialize(bytes.fromhex(text)).get_estimate())


def kll(text):
    """How many values a KLL sketch has seen, and their median."""
    sketch = datasketches.kll_doubles_sketch.deserialize(bytes.fromhex(text))
    return sketch.n, sketch.get_quantile(0.5, True)
