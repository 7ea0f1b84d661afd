"""Batches of input: their fingerprint, and their distribution to subtasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dstl_core.job.spec.fingerprint import (
    FINGERPRINT_COLUMN,
    FINGERPRINT_VERSION,
    HASHES,
    SUBTASK_COLUMN,
    Fingerprint,
)
from dstl_core.job.spec.input_checks import needed_columns
from dstl_core.job.spec.operators import Operator
from dstl_core.job.spec.row_hashes import RowHash
from dstl_core.spark.engine.key_groups import partition_by_subtask
from dstl_core.spark.engine.schema import has_simple_types, is_ordered, quoted
from dstl_core.spark.job.row_identity import header_of, row_hash_of

_EPOCH = "timestamp_ntz '1970-01-01'"
"""The beginning of time, as Spark writes it."""
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class PlacedRows:
    """Rows that are sent to their subtasks.

    ``row_hash`` hashes them in the tasks. If it is None, they have a column of hashes.
    """

    frame: DataFrame
    row_hash: RowHash | None = None


def place(
    rows: DataFrame,
    operator: Operator,
    order_by: Sequence[str],
    *,
    parallelism: int,
    max_parallelism: int,
) -> PlacedRows:
    """Sends rows to their subtasks: the columns that the operator needs, and a hash of each row.

    Rows arrive in the order in which they apply: sorted by ``order_by``, then by the other columns,
    or by the hash for columns without an order. For an order-insensitive function ties are not
    broken, and without ``order_by`` nothing is sorted.
    """
    row_hash = _hash_in_tasks(rows, operator, order_by)
    hashed = rows
    if row_hash is None:
        hashed = rows.withColumn(FINGERPRINT_COLUMN, row_hash_of(rows))
    frame = _sent(hashed, operator, order_by, parallelism, max_parallelism)
    return PlacedRows(frame, row_hash)


def _hash_in_tasks(rows: DataFrame, operator: Operator, order_by: Sequence[str]) -> RowHash | None:
    """The hash of rows that tasks can compute; None if the JVM has to.

    Tasks need all columns for it. Functions that depend on the order of rows need the hash before.
    """
    if operator.key_by is None or not has_simple_types(rows.schema):
        return None
    needed = needed_columns(operator, order_by)
    if needed is not None and not needed.issuperset(rows.columns):
        return None
    if not operator.function.order_insensitive:
        return None
    fields = sorted(rows.schema.fields, key=lambda each: each.name)
    return RowHash(header_of(fields), tuple(each.name for each in fields))


def _sent(
    hashed: DataFrame,
    operator: Operator,
    order_by: Sequence[str],
    parallelism: int,
    max_parallelism: int,
) -> DataFrame:
    needed = needed_columns(operator, order_by)
    if needed is not None:
        names = [each for each in hashed.columns if each in {*needed, FINGERPRINT_COLUMN}]
        if names != hashed.columns:
            hashed = hashed.select(*(F.col(quoted(each)) for each in names))
    if operator.key_by is not None:
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
    order = list(order_by)
    if not operator.function.order_insensitive:
        own = (SUBTASK_COLUMN, FINGERPRINT_COLUMN)
        order += [
            each.name
            for each in placed.schema.fields
            if each.name not in (*order_by, *own) and is_ordered(each.dataType)
        ]
        order.append(FINGERPRINT_COLUMN)
    return (
        placed.sortWithinPartitions(*(F.col(quoted(each)) for each in order)) if order else placed
    )


def latest_time_of(rows: DataFrame, column: str) -> int | None:
    """The largest time of a batch in milliseconds; None if no row has a time. It reads the column
    in Spark.
    """
    kind = rows.schema[column].dataType
    time = F.max(quoted(column))
    if isinstance(kind, T.TimestampType):
        time = F.unix_millis(time)
    elif isinstance(kind, T.TimestampNTZType):  # it has no zone, and must not get the session's
        time = time - F.expr(_EPOCH)
    found = rows.agg(time.alias("time")).collect()[0]["time"]
    if isinstance(found, timedelta):
        found = found // _MILLISECOND
    return None if found is None else int(found)


def fingerprint_of(rows: DataFrame, version: int = FINGERPRINT_VERSION) -> Fingerprint:
    """Computes a fingerprint in Spark, by the rule of a version. It reads the whole batch."""
    hashes = rows.select(row_hash_of(rows, version).cast("decimal(38,0)").alias("hash"))
    found = hashes.agg(F.count("*").alias("rows"), F.sum("hash").alias("hash")).collect()[0]
    return Fingerprint(found["rows"], int(found["hash"] or 0) % HASHES, version)
