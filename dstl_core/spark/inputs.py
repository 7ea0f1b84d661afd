"""Batches of input: their identity, and their way to the subtasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dstl_core.spark.input_checks import is_ordered
from dstl_core.spark.key_groups import SUBTASK_COLUMN, partition_by_subtask
from dstl_core.spark.operators import KeyedOperator, Operator
from dstl_core.spark.schema import quoted

FINGERPRINT_COLUMN = "__dstl_row_hash"
_HASHES = 1 << 64
_EPOCH = "timestamp_ntz '1970-01-01'"
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Fingerprint:
    """Identity of a batch, whatever the order of its rows: their number and the sum of their
    64-bit hashes.
    """

    rows: int
    hash_sum: int

    @classmethod
    def of(cls, rows: DataFrame) -> Fingerprint:
        """Computes it in Spark; reads the whole batch."""
        hashes = rows.select(_row_hash(rows).cast("decimal(38,0)").alias("hash"))
        found = hashes.agg(F.count("*").alias("rows"), F.sum("hash").alias("hash")).collect()[0]
        return cls(found["rows"], int(found["hash"] or 0) % _HASHES)

    @classmethod
    def of_column(cls, hashes: pa.Array) -> Fingerprint:
        """From the hashes of a part of the rows; high and low halves cannot overflow."""
        high = pc.sum(pc.shift_right(hashes, 32)).as_py() or 0
        low = pc.sum(pc.bit_wise_and(hashes, 0xFFFFFFFF)).as_py() or 0
        return cls(len(hashes), ((high << 32) + low) % _HASHES)

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, (self.hash_sum + other.hash_sum) % _HASHES)

    def __str__(self) -> str:
        return f"{self.rows} rows, hash {self.hash_sum:016x}"


def place(
    rows: DataFrame,
    operator: Operator,
    order_by: Sequence[str],
    *,
    parallelism: int,
    max_parallelism: int,
) -> DataFrame:
    """The rows at their subtasks, with the hash of each, in the order in which they apply: by
    ``order_by``, ties by all other columns, and by the hash of those that have no order.
    """
    hashed = rows.withColumn(FINGERPRINT_COLUMN, _row_hash(rows))
    if isinstance(operator, KeyedOperator):
        placed = partition_by_subtask(
            hashed,
            operator.key_by,
            operator.key_type,
            max_parallelism=max_parallelism,
            parallelism=parallelism,
        )
    else:
        owner = F.pmod(F.col(FINGERPRINT_COLUMN), F.lit(parallelism)).cast("int")
        placed = hashed.withColumn(SUBTASK_COLUMN, owner).repartitionById(
            parallelism, F.col(SUBTASK_COLUMN)
        )
    ties = [
        each.name
        for each in rows.schema.fields
        if each.name not in order_by and is_ordered(each.dataType)
    ]
    order = [F.col(quoted(each)) for each in (*order_by, *ties)]
    return placed.sortWithinPartitions(F.col(SUBTASK_COLUMN), *order, F.col(FINGERPRINT_COLUMN))


def watermark_of(rows: DataFrame, column: str, out_of_orderness_ms: int) -> int | None:
    """The watermark behind a batch; None if it has no time. Reads the column in Spark."""
    kind = rows.schema[column].dataType
    time = F.max(quoted(column))
    if isinstance(kind, T.TimestampType):
        time = F.unix_millis(time)
    elif isinstance(kind, T.TimestampNTZType):  # has no zone, and must not get the session's
        time = time - F.expr(_EPOCH)
    found = rows.agg(time.alias("time")).collect()[0]["time"]
    if isinstance(found, timedelta):
        found = found // _MILLISECOND
    # A watermark says that nothing at or before it comes any more.
    return None if found is None else int(found) - out_of_orderness_ms - 1


def _row_hash(rows: DataFrame) -> Column:
    """A hash of all columns; maps are hashed by their sorted entries."""
    parts = [_hashed(F.col(quoted(each.name)), each.dataType) for each in rows.schema.fields]
    return F.xxhash64(*(part for each in parts for part in each))


def _hashed(value: Column, kind: T.DataType) -> list[Column]:
    """What tells a value from all others: the hash passes over nulls, and over where arrays end."""
    if isinstance(kind, T.MapType):
        entry = T.StructType().add("key", kind.keyType).add("value", kind.valueType)
        return _hashed(F.array_sort(F.map_entries(value)), T.ArrayType(entry))
    if isinstance(kind, T.StructType):
        parts = [_hashed(value.getField(each.name), each.dataType) for each in kind.fields]
        return [value.isNull(), *(part for each in parts for part in each)]
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        items = F.transform(value, lambda each: F.struct(*_hashed(each, element)))
        return [value.isNull(), F.size(value), items]
    return [value.isNull(), value]
