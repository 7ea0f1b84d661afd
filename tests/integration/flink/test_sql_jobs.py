"""Jobs of real Flink SQL go on from state that was bootstrapped by columns.

The planner makes the operators; the state of a history is computed by Spark and written with the
serializers of a savepoint of the same job. After more rows, results and state must be those of a
job that has seen the history itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dstl_core import Snapshot
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from tests.integration.flink.checker import FlinkChecker, Table
from tests.integration.flink.model import text, texts
from tests.integration.spark.conftest import functions_travel_by_value

__all__ = ["functions_travel_by_value"]
pytestmark = [pytest.mark.flink, pytest.mark.spark]

Rows = list[list[Any]]
COLUMNS = {"k": "string", "v": "long", "d": "double"}
SCHEMA = "k string, v bigint, d double"
KEYS = ["a", "", "Zürich", "😀", None, "k5", "k6"]


def rows_of(numbers: range, keys: Sequence[str | None] = KEYS) -> Rows:
    """Values come twice or more for a key; every third has no double."""
    return [[keys[n % len(keys)], n * 7 % 40 - 20, n / 4 if n % 3 else None] for n in numbers]


HISTORY, MORE = rows_of(range(100)), rows_of(range(100, 130), [*KEYS, "new"])


@dataclass(frozen=True)
class Query:
    """A query over tables, and how Spark computes its state: a column per state."""

    text: str
    states: Callable[..., DataFrame]
    tables: tuple[str, ...] = ("events",)

    def __str__(self) -> str:
        return self.states.__name__

    def over(self, *parts: Rows) -> list[Table]:
        """Rows go to the tables in turn."""
        every = [row for part in parts for row in part]
        return [
            Table(name, COLUMNS, every[at :: len(self.tables)])
            for at, name in enumerate(self.tables)
        ]


def group(events: DataFrame) -> DataFrame:
    grouped = events.groupBy("k").agg(
        F.count("*").alias("f0"),
        F.sum("v").alias("f1"),
        F.max("v").alias("f2"),
        F.coalesce(F.sum("d"), F.lit(0.0)).alias("f3"),
        F.count("d").alias("f4"),
    )
    return grouped.select(
        _row("k").alias("key"),
        F.struct("f0", "f1", "f2", "f3", "f4").alias("accState"),
    )


def join(left: DataFrame, right: DataFrame) -> DataFrame:
    """Each side: how often a row came. Flink also keeps those with a null, which join nothing."""
    sides = []
    for name, side in (("left-records", left), ("right-records", right)):
        counted = side.groupBy("k", "v", "d").agg(F.count("*").cast("int").alias("n"))
        pair = F.struct(_row("k", "v", "d"), F.col("n"))
        side = counted.groupBy(_row("k").alias("key"))
        sides.append(side.agg(F.map_from_entries(F.collect_list(pair)).alias(name)))
    one, other = sides
    both = one.join(other, one["key"].eqNullSafe(other["key"]), "full")
    key = F.coalesce(one["key"], other["key"]).alias("key")
    return both.select(key, "left-records", "right-records")


def top(events: DataFrame) -> DataFrame:
    """The rows of each value that is sorted by; of a history here always one."""
    rank = F.row_number().over(Window.partitionBy("k").orderBy(F.desc("v")))
    best = events.withColumn("rank", rank).where("rank <= 3")
    pair = F.struct(_row("v"), F.array(_row("k", "v", "d")))
    pairs = F.map_from_entries(F.collect_list(pair)).alias("data-state-with-append")
    return best.groupBy(_row("k").alias("key")).agg(pairs)


def _row(*names: str) -> Column:
    return F.struct(*(F.col(name).alias(f"f{at}") for at, name in enumerate(names)))


QUERIES = [
    Query(
        "SELECT k, COUNT(*) AS c, SUM(v) AS s, MAX(v) AS m, AVG(d) AS a FROM events GROUP BY k",
        group,
    ),
    Query(
        "SELECT l.k, l.v, l.d, r.v AS w, r.d AS e FROM lefts AS l JOIN rights AS r ON l.k = r.k",
        join,
        ("lefts", "rights"),
    ),
    Query(
        "SELECT k, v, d FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n "
        "FROM events) WHERE n <= 3",
        top,
    ),
]


def stateful(snapshot: str) -> OperatorSnapshot:
    [operator] = [each for each in Snapshot.load(snapshot).operators if each.keyed_handles]
    return operator


def applied(table: Counter[str], changes: Rows) -> Counter[str]:
    """A table after the changes of a changelog; what is retracted has to be there."""
    rows = Counter(table)
    for kind, *row in changes:
        rows[text(row)] += 1 if kind in ("+I", "+U") else -1
        assert kind in ("+I", "+U") or rows[text(row)] >= 0, row
    return +rows


@pytest.mark.parametrize(("backend", "parallelism"), [("hashmap", 1), ("rocksdb", 3)])
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_sql_job_goes_on_from_state_that_spark_computed(
    flink: FlinkChecker, spark: Any, tmp_path: Path, query: Query, backend: str, parallelism: int
) -> None:
    other = "rocksdb" if backend == "hashmap" else "hashmap"
    of_job = {"backend": backend, "parallelism": parallelism}
    running = flink.run_sql(
        None, query.text, query.over(HISTORY[:8]), backend=other, savepoint_to=tmp_path / "running"
    )
    before = flink.run_sql(None, query.text, query.over(HISTORY), savepoint_to=tmp_path / "before")
    whole = flink.run_sql(
        None, query.text, query.over(HISTORY, MORE), savepoint_to=tmp_path / "whole"
    )
    template = stateful(running.savepoint)
    history = [
        spark.createDataFrame(table.rows, SCHEMA).repartition(2) for table in query.over(HISTORY)
    ]
    bootstrap = (
        OperatorTransformation.bootstrap_with(query.states(*history))
        .key_by("key")
        .transform_columns(template=template)
    )
    operator = OperatorIdentifier(template.operator_id)
    ours = (
        SavepointWriter.from_existing_savepoint(spark, running.savepoint)
        .remove_operator(operator)
        .with_operator(operator, bootstrap)
        .write(str(tmp_path / "ours"))
    )

    went_on = flink.run_sql(
        ours, query.text, query.over(MORE), savepoint_to=tmp_path / "after", **of_job
    )

    table = applied(applied(Counter(), before.rows), went_on.rows)
    assert table == applied(Counter(), whole.rows)
    assert went_on.rows
    after, expected = stateful(went_on.savepoint), stateful(whole.savepoint)
    assert after.operator_id == expected.operator_id
    assert texts(after.dump()) == texts(expected.dump())
