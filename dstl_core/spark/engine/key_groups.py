"""Sends every row to the subtask that owns its key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.job.rows.keys import fitted_keys
from dstl_core.job.rows.spool import Spool
from dstl_core.job.spec.fingerprint import SUBTASK_COLUMN
from dstl_core.spark.engine.schema import quoted

_SEED_ZERO = -1693959553
"""Spark's ``hash`` of this int is 0. Hashed first, it gives the next column Flink's seed, 0."""
_WIDER: tuple[tuple[T.DataType, AnySerializer], ...] = (
    (T.ByteType(), Types.BYTE),
    (T.ShortType(), Types.SHORT),
    (T.IntegerType(), Types.INT),
    (T.LongType(), Types.LONG),
)
"""Whole-number types of Spark and Flink, from narrow to wide."""


def partition_by_subtask(
    rows: DataFrame,
    key_column: str,
    key_type: AnySerializer,
    *,
    max_parallelism: int,
    parallelism: int,
) -> DataFrame:
    """Partitions rows by subtask and adds the index of the owning subtask as ``SUBTASK_COLUMN``.

    All rows of a subtask are in one partition. If the JVM hashes the type of the key, rows with a
    null key stay in the result, and the tasks refuse them.
    """
    java_hash = _java_hash(key_column, rows.schema[key_column].dataType, key_type)
    if java_hash is None:
        group = _key_group_in_python(key_column, key_type, max_parallelism)
        owner = F.floor(group * F.lit(parallelism) / F.lit(max_parallelism)).cast("int")
    else:
        placed = f"({_key_group(java_hash, max_parallelism)}) * {parallelism} / {max_parallelism}"
        owner = F.expr(f"cast(floor({placed}) AS int)")
    return rows.withColumn(SUBTASK_COLUMN, owner).repartitionById(
        parallelism, F.col(SUBTASK_COLUMN)
    )


def _key_group_in_python(column: str, key_type: AnySerializer, max_parallelism: int) -> Column:
    def key_group(keys: pa.Array) -> pa.Array:
        fitted = fitted_keys(keys, column, key_type)
        return pa.array(key_groups_of(fitted, key_type, max_parallelism), pa.int32())

    group: Column = F.arrow_udf(key_group, "int")(F.col(quoted(column)))  # type: ignore[attr-defined]  # not in stub
    return group


def _key_group(java_hash: str, max_parallelism: int) -> str:
    """The key group of a key as SQL, as in Flink's ``KeyGroupRangeAssignment``.

    Source: ``org.apache.flink.util.MathUtils.murmurHash`` of Flink 2.2.1. It equals Spark's hash of
    an int except for the seed. It maps the smallest int to 0, as the mask does here.
    """
    mixed = f"abs(cast(hash({_SEED_ZERO}, {java_hash}) AS bigint))"
    return f"({mixed} & {0x7FFFFFFF}) % {max_parallelism}"


def _java_hash(column: str, kind: T.DataType, key_type: AnySerializer) -> str | None:
    """``hashCode()`` of a column of keys as SQL.

    It is one text, since each step of a ``Column`` is several calls to the JVM. None if Spark
    cannot compute it, or if the type of the column differs from the key type.
    """
    key = quoted(column)
    if key_type == Types.BOOLEAN and isinstance(kind, T.BooleanType):
        return f"CASE WHEN {key} THEN 1231 WHEN NOT {key} THEN 1237 END"
    if key_type == Types.LOCAL_DATE and isinstance(kind, T.DateType):
        day = f"shiftleft(year({key}), 11) + shiftleft(month({key}), 6) + dayofmonth({key})"
        return f"(year({key}) & {~0x7FF}) ^ ({day})"
    fitting = [flink for spark, flink in _WIDER[_place_of(kind) :]]
    if key_type not in fitting:
        return None
    if key_type != Types.LONG:
        return f"cast({key} AS int)"
    wide = f"cast({key} AS bigint)"
    folded = f"{wide} ^ shiftright({wide}, 32)"
    return f"cast(shiftright(shiftleft({folded}, 32), 32) AS int)"


def _place_of(kind: T.DataType) -> int:
    """The position of a type in ``_WIDER``; its length if it is not a whole-number type."""
    return next((at for at, (spark, _) in enumerate(_WIDER) if spark == kind), len(_WIDER))


def split_by_subtask(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Groups the batches of a partition by subtask; the rows of a subtask keep their order.

    A partition usually has one subtask. Spark may put several into one task: then the rows of all
    but the first subtask wait in temporary files.
    """
    pieces = _pieces(batches)
    first = next(pieces, None)
    if first is None:
        return
    waiting: dict[int, Spool] = {}

    def own() -> Iterator[pa.RecordBatch]:
        yield first[1]
        for subtask, piece in pieces:
            if subtask == first[0]:
                yield piece
                continue
            if subtask not in waiting:
                waiting[subtask] = Spool(piece.schema, 0)
            waiting[subtask].add(piece)

    yield first[0], own()
    for subtask, rows in sorted(waiting.items()):
        yield subtask, rows.batches()


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Splits each batch by subtask."""
    for batch in batches:
        if not batch.num_rows:
            continue
        owners = batch.column(SUBTASK_COLUMN)
        subtasks = pc.unique(owners).to_pylist()
        for subtask in subtasks:
            yield subtask, batch if len(subtasks) == 1 else batch.filter(pc.equal(owners, subtask))
