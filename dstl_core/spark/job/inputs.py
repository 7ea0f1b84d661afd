"""Batches of input: their fingerprint, and their distribution to subtasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dstl_core.job.rows.placement import Placement
from dstl_core.job.spec.fingerprint import (
    FINGERPRINT_COLUMN,
    FINGERPRINT_VERSION,
    HASHES,
    SUBTASK_COLUMN,
    Fingerprint,
)
from dstl_core.job.spec.input_checks import needed_columns
from dstl_core.job.spec.operators import AggregateOperator, Operator, as_shipped
from dstl_core.job.spec.row_hashes import RowHash
from dstl_core.spark.engine.key_groups import partition_by_subtask
from dstl_core.spark.engine.schema import (
    has_simple_types,
    is_ordered,
    quoted,
    spark_schema_of,
)
from dstl_core.spark.engine.table_frames import map_in_arrow
from dstl_core.spark.engine.workers import Settled
from dstl_core.spark.job.sent_rows import MESSAGE_SCHEMA, SendRows

_EPOCH = "timestamp_ntz '1970-01-01'"
"""The beginning of time, as Spark writes it."""
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class PlacedRows:
    """Rows that are sent to their subtasks, with a column of their hashes.

    Args:
        frame: The rows, or parts of messages; ``SUBTASK_COLUMN`` names their subtask.
        in_messages: Whether they are messages.
    """

    frame: DataFrame
    in_messages: bool


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
    broken, and without ``order_by`` nothing is sorted: then the rows go as messages.
    """
    needed = needed_columns(operator, order_by)
    names = [name for name in rows.columns if needed is None or name in needed]
    placement = Placement(operator.key_by, operator.key_type, parallelism, max_parallelism)
    if order_by or not operator.function.order_insensitive:
        return PlacedRows(_in_order(_hashed(rows, names), operator, order_by, placement), False)
    rows, row_hash = with_hash(rows, names)
    send = Settled(SendRows(placement, names, row_hash, _reduced_for(operator)))
    parts = map_in_arrow(rows, send, spark_schema_of(MESSAGE_SCHEMA))
    return PlacedRows(parts.repartitionById(parallelism, F.col(SUBTASK_COLUMN)), True)


def with_hash(rows: DataFrame, names: Sequence[str]) -> tuple[DataFrame, RowHash | None]:
    """Rows with some columns at least, and what hashes them in tasks; None if the JVM does.

    The JVM hashes rows if their hash needs columns that tasks do not, or has to visit elements.
    """
    if len(names) < len(rows.columns) or not has_simple_types(rows.schema):
        return _hashed(rows, names), None
    fields = sorted(rows.schema.fields, key=lambda field: field.name)
    return rows, RowHash(header_of(fields), tuple(each.name for each in fields))


def _reduced_for(operator: Operator) -> AggregateOperator | None:
    """The operator as tasks get it, if its rows may be reduced on their way."""
    shipped = as_shipped(operator)
    if isinstance(shipped, AggregateOperator) and shipped.window is None:
        return shipped
    return None


def _hashed(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Some columns, and the hash of all of them that the JVM computes."""
    hashed = rows.withColumn(FINGERPRINT_COLUMN, row_hash_of(rows))
    return hashed.select(*(F.col(quoted(each)) for each in (*names, FINGERPRINT_COLUMN)))


def _in_order(
    hashed: DataFrame, operator: Operator, order_by: Sequence[str], placement: Placement
) -> DataFrame:
    parallelism = placement.parallelism
    if operator.key_by is not None:
        placed = partition_by_subtask(
            hashed,
            operator.key_by,
            operator.key_type,
            max_parallelism=placement.max_parallelism,
            parallelism=parallelism,
        )
    else:
        owner = F.pmod(F.col(FINGERPRINT_COLUMN), F.lit(parallelism)).cast("int")
        placed = hashed.withColumn(SUBTASK_COLUMN, owner).repartitionById(
            parallelism, F.col(SUBTASK_COLUMN)
        )
    order = list(order_by)
    if not operator.function.order_insensitive:
        bookkeeping = (SUBTASK_COLUMN, FINGERPRINT_COLUMN)
        order += [
            field.name
            for field in placed.schema.fields
            if field.name not in (*order_by, *bookkeeping) and is_ordered(field.dataType)
        ]
        order.append(FINGERPRINT_COLUMN)
    return placed.sortWithinPartitions(*(F.col(quoted(each)) for each in order))


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
    latest = rows.agg(time.alias("time")).collect()[0]["time"]
    if isinstance(latest, timedelta):
        latest = latest // _MILLISECOND
    return None if latest is None else int(latest)


def fingerprint_of(rows: DataFrame, version: int = FINGERPRINT_VERSION) -> Fingerprint:
    """Computes a fingerprint in Spark, by the rule of a version. It reads the whole batch."""
    hashes = rows.select(row_hash_of(rows, version).cast("decimal(38,0)").alias("hash"))
    sums = hashes.agg(F.count("*").alias("rows"), F.sum("hash").alias("hash")).collect()[0]
    return Fingerprint(sums["rows"], int(sums["hash"] or 0) % HASHES, version)


def in_types(rows: DataFrame, types: Mapping[str, str]) -> DataFrame | None:
    """Rows with other types of some columns; None if a value does not fit. It reads those columns.

    Args:
        rows: The rows.
        types: Columns to types, as Spark names them.
    """
    values = {each.name: F.col(quoted(each.name)) for each in rows.schema}
    for name, kind in types.items():
        value = values[name]
        values[name] = value.try_cast(kind)
        back = values[name].cast(rows.schema[name].dataType)
        if not rows.where(~back.eqNullSafe(value)).isEmpty():
            return None
    return rows.select(*(value.alias(name) for name, value in values.items()))


def row_hash_of(rows: DataFrame, version: int = FINGERPRINT_VERSION) -> Column:
    """A hash of all columns; maps are hashed by their sorted entries."""
    fields = rows.schema.fields
    first: list[Column] = []
    if version > 1:
        fields = sorted(fields, key=lambda field: field.name)
        first = [F.lit(header_of(fields))]
    parts = [identity_of(F.col(quoted(each.name)), each.dataType, version) for each in fields]
    return F.xxhash64(*first, *(part for each in parts for part in each))


def header_of(fields: Sequence[T.StructField]) -> str:
    """The names and types of columns, as the hash of a row begins with them."""
    return json.dumps([[each.name, each.dataType.simpleString()] for each in fields])


def identity_of(
    value: Column, kind: T.DataType, version: int = FINGERPRINT_VERSION
) -> list[Column]:
    """Columns that differ if the values differ, for a hash or a grouping of Spark.

    Spark's hash ignores nulls, the ends of arrays and the sign of zero.
    """
    if isinstance(kind, T.MapType):
        entry = T.StructType().add("key", kind.keyType).add("value", kind.valueType)
        entries = F.array_sort(F.map_entries(value))
        return identity_of(entries, T.ArrayType(entry), version)
    if isinstance(kind, T.StructType):
        parts = [
            identity_of(value.getField(field.name), field.dataType, version)
            for field in kind.fields
        ]
        return [value.isNull(), *(part for each in parts for part in each)]
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        items = F.transform(
            value,
            lambda element_of_array: F.struct(*identity_of(element_of_array, element, version)),
        )
        return [value.isNull(), F.size(value), items]
    if version > 1 and isinstance(kind, T.FloatType | T.DoubleType):
        # Spark's functions treat -0.0 as 0.0; only their texts differ.
        sign_of_zero = F.when(value == 0, value.cast("string"))
        return [value.isNull(), value, sign_of_zero]
    return [value.isNull(), value]
