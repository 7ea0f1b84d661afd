"""Sends every row to the subtask that owns its key."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.serializers import AnySerializer
from dstl_core.savepoint.columns.arrow_values import column_type
from dstl_core.savepoint.write.column_fit import fit
from dstl_core.spark.engine.schema import quoted

SUBTASK_COLUMN = "__dstl_subtask"


def partition_by_subtask(
    rows: DataFrame,
    key_column: str,
    key_type: AnySerializer,
    *,
    max_parallelism: int,
    parallelism: int,
) -> DataFrame:
    """The rows with the index of the owning subtask in ``SUBTASK_COLUMN``, those of one subtask in
    one partition.
    """

    def key_group(keys: pa.Array) -> pa.Array:
        fitted = fit(keys, column_type(key_type), "The key")
        return pa.array(key_groups_of(fitted, key_type, max_parallelism), pa.int32())

    assign = F.arrow_udf(key_group, "int")  # type: ignore[attr-defined]  # public, not in the stub
    key = F.col(quoted(key_column))
    owner = F.floor(assign(key) * F.lit(parallelism) / F.lit(max_parallelism))
    return rows.withColumn(SUBTASK_COLUMN, owner.cast("int")).repartitionById(
        parallelism, F.col(SUBTASK_COLUMN)
    )
