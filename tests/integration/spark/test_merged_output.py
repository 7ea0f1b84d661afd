"""Tasks of Spark say which rows of output are of new keys, also where rows are reduced before."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dstl_core import AggregateOperator, StatefulJob, aggregates
from dstl_core.sinks import ParquetSink

pytestmark = pytest.mark.spark


def test_a_restated_day_on_spark_is_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    operator = AggregateOperator(
        "totals",
        "k",
        {"n": aggregates.count(), "total": aggregates.sum("v")},
        schema="k string, v bigint",
        output=True,
    )
    job = StatefulJob(spark, "job", str(tmp_path), operator, parallelism=2, num_retained=9)
    sink = ParquetSink(str(tmp_path / "totals.parquet"))

    def run(number: int, *rows: tuple[str, int], rewind: bool = False) -> dict[str, int]:
        job.run(spark.createDataFrame(rows, "k string, v bigint"), number, rewind=rewind)
        return job.merge_into(sink).counts

    assert run(1, ("a", 1), ("b", 2)) == {"insert": 2}
    assert run(2, ("b", 3), ("c", 4), ("c", 5)) == {"insert": 1, "update": 1}
    assert run(2, ("a", 9), ("d", 7), rewind=True) == {"insert": 1, "update": 2, "delete": 1}
    rows = sorted(tuple(row.values()) for row in pq.read_table(sink.path).to_pylist())
    assert rows == [("a", 2, 10), ("b", 1, 2), ("d", 1, 7)]
