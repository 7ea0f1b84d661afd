"""Rows that a user gives, as DataFrames."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dstl_core.job.spec.given_rows import arrow_of, in_stored_types, paths_of, stored_schema
from dstl_core.job.spec.read_columns import ALL_COLUMNS, ReadColumns
from dstl_core.spark.engine.parquet_rows import read_parquet
from dstl_core.spark.engine.schema import spark_schema_of


def frame_of(spark: SparkSession, rows: Any, what: str, reads: ReadColumns = ALL_COLUMNS) -> Any:
    """A DataFrame of rows in any form that the local engine takes; others are returned as they are.

    Rows of Arrow go through the memory of this process.

    Args:
        spark: The session.
        rows: The rows.
        what: Their name, for errors.
        reads: The columns that are read. Others are left out if Spark has no type for them.

    Raises:
        ConfigError: Spark has no type for a column or a value, or there is no file.
    """
    if isinstance(rows, DataFrame):
        return rows
    paths = paths_of(rows)
    if paths is not None:
        frame, _ = read_parquet(spark, paths)
        return frame
    arrow_rows = arrow_of(rows)
    if arrow_rows is None:
        return rows
    table = arrow_rows if isinstance(arrow_rows, pa.Table) else arrow_rows.read_all()
    schema = stored_schema(table.schema, what, reads.reads)
    stored = in_stored_types(table, schema, what)
    return spark.createDataFrame(stored, spark_schema_of(schema))
