"""Sends every row to the subtask that owns its key."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dstl_core.codec.columnar.key_groups import key_groups_of
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError
from dstl_core.spark.input_checks import quoted

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
        try:
            return pa.array(key_groups_of(keys, key_type, max_parallelism), pa.int32())
        except pa.ArrowException as error:
            raise ConfigError(
                f"A key does not fit the key type {key_type.type_name}: {error}"
            ) from error

    assign = F.arrow_udf(key_group, "int")  # type: ignore[attr-defined]  # public, not in the stub
    owner = F.floor(assign(F.col(quoted(key_column))) * F.lit(parallelism) / F.lit(max_parallelism))
    return rows.withColumn(SUBTASK_COLUMN, owner.cast("int")).repartitionById(
        parallelism, F.col(SUBTASK_COLUMN)
    )
