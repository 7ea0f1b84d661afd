"""Batches of input: their fingerprint, and their distribution to subtasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import InputFacts
from dstl_core.errors import ConfigError, FormatError, InputChangedError, InvariantViolation
from dstl_core.spark.engine.key_groups import SUBTASK_COLUMN, has_expression, partition_by_subtask
from dstl_core.spark.engine.row_hashes import RowHash, can_hash
from dstl_core.spark.engine.schema import quoted
from dstl_core.spark.task.input_checks import is_ordered, needed_columns
from dstl_core.spark.task.lineage import InputPlace
from dstl_core.spark.task.operators import AggregateOperator, Operator
from dstl_core.spark.task.reduction import (
    EPOCH,
    HIGH_COLUMN,
    LOW_COLUMN,
    ROWS_COLUMN,
    TIME_COLUMN,
    is_reduced_in_tasks,
    reduced,
)
from dstl_core.spark.task.row_identity import FINGERPRINT_VERSION, header_of, row_hash_of
from dstl_core.state.backends.timers import MIN_WATERMARK

FINGERPRINT_COLUMN = "__dstl_row_hash"
OWN_COLUMNS = (
    FINGERPRINT_COLUMN,
    SUBTASK_COLUMN,
    ROWS_COLUMN,
    HIGH_COLUMN,
    LOW_COLUMN,
    TIME_COLUMN,
)
"""Columns that ``place`` adds for the job."""
_MOVES_AGAIN = "spark.sql.requireAllClusterKeysForDistribution"
"""This option makes Spark shuffle rows by all columns of a grouping before it groups them."""
_HASHES = 1 << 64
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Fingerprint:
    """Identity of a batch, independent of the order of rows and columns.

    It is the number of rows and the sum of their 64-bit hashes. A hash covers the names, types and
    values of the columns. Fingerprints of different versions cannot be compared.
    """

    rows: int
    hash_sum: int
    version: int = FINGERPRINT_VERSION

    @classmethod
    def of(cls, rows: DataFrame, version: int = FINGERPRINT_VERSION) -> Fingerprint:
        """Computes the fingerprint in Spark, by the rule of a version. It reads the whole batch."""
        hashes = rows.select(row_hash_of(rows, version).cast("decimal(38,0)").alias("hash"))
        found = hashes.agg(F.count("*").alias("rows"), F.sum("hash").alias("hash")).collect()[0]
        return cls(found["rows"], int(found["hash"] or 0) % _HASHES, version)

    @classmethod
    def of_column(cls, hashes: pa.Array) -> Fingerprint:
        """The fingerprint of rows with these hashes. Summing halves of 32 bits cannot overflow."""
        high = pc.sum(pc.shift_right(hashes, 32)).as_py() or 0
        low = pc.sum(pc.bit_wise_and(hashes, 0xFFFFFFFF)).as_py() or 0
        return cls(len(hashes), ((high << 32) + low) % _HASHES)

    @classmethod
    def of_batch(cls, batch: pa.RecordBatch, row_hash: RowHash | None = None) -> Fingerprint:
        """The fingerprint of rows from ``place``; each may stand for several input rows."""
        if row_hash is not None:
            return cls.of_column(row_hash.of(batch))
        if FINGERPRINT_COLUMN in batch.schema.names:
            return cls.of_column(batch.column(FINGERPRINT_COLUMN))
        rows, high, low = (
            pc.sum(batch.column(name)).as_py() or 0
            for name in (ROWS_COLUMN, HIGH_COLUMN, LOW_COLUMN)
        )
        return cls(rows, ((high << 32) + low) % _HASHES)

    @classmethod
    def of_committed(cls, stored: InputFacts) -> Fingerprint:
        """The fingerprint in a commit record.

        Raises:
            ConfigError: This release does not know the version of the fingerprint.
            FormatError: The record is damaged.
        """
        version = stored.fingerprint_version
        if not 1 <= version <= FINGERPRINT_VERSION:
            raise ConfigError(
                f"A newer release of dstl committed the input {stored.id!r}: expected a "
                f"fingerprint of version {FINGERPRINT_VERSION} at most, got {version}; use that "
                f"release."
            )
        try:
            hash_sum = int(stored.hash_sum, 16)
        except ValueError as error:
            raise FormatError(
                f"The commit record of the input {stored.id!r} is damaged",
                field="facts.input.hash_sum",
                expected="hexadecimal digits",
                got=repr(stored.hash_sum),
            ) from error
        return cls(stored.rows, hash_sum, version)

    def of_input(self, input_id: str | int) -> InputFacts:
        """The facts of an input with this fingerprint in a commit record."""
        return InputFacts(
            id=input_id,
            rows=self.rows,
            hash_sum=f"{self.hash_sum:016x}",
            fingerprint_version=self.version,
        )

    def __add__(self, other: Fingerprint) -> Fingerprint:
        if self.version != other.version:
            raise InvariantViolation("fingerprints of different versions were added")
        hash_sum = (self.hash_sum + other.hash_sum) % _HASHES
        return Fingerprint(self.rows + other.rows, hash_sum, self.version)

    def __str__(self) -> str:
        return f"{self.rows} rows, hash {self.hash_sum:016x}"


@dataclass(frozen=True)
class PlacedRows:
    """Rows that are sent to their subtasks.

    ``row_hash`` hashes them in the tasks. If it is None, they have a column of hashes, or are
    reduced and have columns of their sums.
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
    watermark: int = MIN_WATERMARK,
) -> PlacedRows:
    """Sends rows to their subtasks: the columns that the operator needs, and a hash of each row.

    Rows arrive in the order in which they apply: sorted by ``order_by``, then by the other columns,
    or by the hash for columns without an order. For an order-insensitive function ties are not
    broken, and without ``order_by`` nothing is sorted. ``watermark`` is the event time before the
    batch, in milliseconds.
    """
    row_hash = _hash_in_tasks(rows, operator, order_by)
    hashed = rows
    if row_hash is None:
        hashed = rows.withColumn(FINGERPRINT_COLUMN, row_hash_of(rows))
    frame = _sent(hashed, operator, order_by, parallelism, max_parallelism, watermark)
    return PlacedRows(frame, row_hash)


def _hash_in_tasks(rows: DataFrame, operator: Operator, order_by: Sequence[str]) -> RowHash | None:
    """The hash of rows that tasks can compute; None if the JVM has to.

    Tasks need all columns for it. Functions that depend on the order of rows need the hash before.
    """
    if operator.key_by is None or not can_hash(rows.schema):
        return None
    needed = needed_columns(operator, order_by)
    if needed is not None and not needed.issuperset(rows.columns):
        return None
    if isinstance(operator, AggregateOperator):
        if not _is_reduced_in_tasks(rows, operator):
            return None
    elif not operator.function.order_insensitive:
        return None
    fields = sorted(rows.schema.fields, key=lambda each: each.name)
    return RowHash(header_of(fields), tuple(each.name for each in fields))


def _sent(
    hashed: DataFrame,
    operator: Operator,
    order_by: Sequence[str],
    parallelism: int,
    max_parallelism: int,
    watermark: int,
) -> DataFrame:
    needed = needed_columns(operator, order_by)
    if needed is not None:
        names = [each for each in hashed.columns if each in {*needed, FINGERPRINT_COLUMN}]
        if names != hashed.columns:
            hashed = hashed.select(*(F.col(quoted(each)) for each in names))
    if isinstance(operator, AggregateOperator):
        return _place_reduced(hashed, operator, parallelism, max_parallelism, watermark)
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


def _place_reduced(
    hashed: DataFrame,
    operator: AggregateOperator,
    parallelism: int,
    max_parallelism: int,
    watermark: int,
) -> DataFrame:
    """Sends one row per key to its subtask, or the rows themselves if tasks can reduce them.

    If the JVM can hash the key, there is one shuffle. With windows of a fixed size Spark reduces
    first, since many rows usually share a key and a window, and few rows are left to send. Sessions
    need all rows of a key in their order, so they are sent first.
    """
    by_key = partial(
        partition_by_subtask,
        key_column=operator.key_by,
        key_type=operator.function_key_type,
        max_parallelism=max_parallelism,
        parallelism=parallelism,
    )
    if _is_reduced_in_tasks(hashed, operator):
        return by_key(hashed)
    is_placed = _is_placed_by_jvm(hashed, operator)
    moves_again = hashed.sparkSession.conf.get(_MOVES_AGAIN) == "true"
    is_aligned = operator.window is not None and not operator.window.is_merging
    if is_placed and not moves_again and not is_aligned:
        own = (FINGERPRINT_COLUMN, SUBTASK_COLUMN)
        return reduced(by_key(hashed), operator, *own, watermark=watermark)
    return by_key(reduced(hashed, operator, FINGERPRINT_COLUMN, watermark=watermark))


def _is_placed_by_jvm(rows: DataFrame, operator: AggregateOperator) -> bool:
    return has_expression(rows.schema[operator.key_by].dataType, operator.function_key_type)


def _is_reduced_in_tasks(rows: DataFrame, operator: AggregateOperator) -> bool:
    return _is_placed_by_jvm(rows, operator) and is_reduced_in_tasks(operator, rows.schema)


def latest_time_of(rows: DataFrame, column: str) -> int | None:
    """The largest time of a batch in milliseconds; None if no row has a time. It reads the column
    in Spark.
    """
    kind = rows.schema[column].dataType
    time = F.max(quoted(column))
    if isinstance(kind, T.TimestampType):
        time = F.unix_millis(time)
    elif isinstance(kind, T.TimestampNTZType):  # it has no zone, and must not get the session's
        time = time - F.expr(EPOCH)
    found = rows.agg(time.alias("time")).collect()[0]["time"]
    if isinstance(found, timedelta):
        found = found // _MILLISECOND
    return None if found is None else int(found)


def later(one: int | None, other: int | None) -> int | None:
    """The later of two times; None is no time."""
    return max((time for time in (one, other) if time is not None), default=None)


def latest_time_in(batch: pa.RecordBatch, column: str | None) -> int | None:
    """As ``latest_time_of``, for rows from ``place``; None if there is no event time."""
    if TIME_COLUMN in batch.schema.names:
        column = TIME_COLUMN
    if column is None:
        return None
    latest = pc.max(batch.column(column))
    if not pa.types.is_timestamp(latest.type):
        return latest.as_py()  # type: ignore[no-any-return]
    micros = latest.cast(pa.timestamp("us", latest.type.tz)).value
    return None if micros is None else micros // 1000


def committed_before(
    place: InputPlace, rows: DataFrame, input_id: str | int, *, rewind: bool
) -> CompletedCheckpoint | None:
    """The commit of an input, if it was committed with the same rows; None if it has to run.

    Raises:
        InputChangedError: The input was committed with other rows.
    """
    checkpoint = place.commit
    stored = None if checkpoint is None else checkpoint.facts.input
    if checkpoint is None or stored is None or (rewind and place.last_input != input_id):
        return None
    expected = Fingerprint.of_committed(stored)
    found = Fingerprint.of(rows, expected.version)
    if found == expected:
        return checkpoint
    if rewind:
        return None
    raise InputChangedError(
        f"The input {input_id!r} was committed as checkpoint {checkpoint.checkpoint_id} with other "
        f"rows or columns: expected {expected}, got {found}; give the correction its own input id, "
        f"or give rewind=True to run it and all later inputs again."
    )
