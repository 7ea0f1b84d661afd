"""Checks what only Spark knows of a batch before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from dstl_core.errors import ConfigError
from dstl_core.job.spec.input_checks import check_input, check_names
from dstl_core.job.spec.operators import AggregateOperator, Operator
from dstl_core.job.spec.output_types import twins_of
from dstl_core.job.spec.read_columns import ALL_COLUMNS, ReadColumns
from dstl_core.spark.engine.schema import holds, quoted

_CASE_SENSITIVE = "spark.sql.caseSensitive"
_NOT_HASHED = (
    T.VariantType,
    T.CalendarIntervalType,
    T.YearMonthIntervalType,
    T.GeometryType,
    T.GeographyType,
)


def checked_batch(rows: Any, what: str, reads: ReadColumns = ALL_COLUMNS) -> DataFrame:
    """A batch without the columns that nobody reads and tasks cannot process.

    Raises:
        ConfigError: Tasks cannot process the batch.
    """
    if not isinstance(rows, DataFrame):
        raise ConfigError(
            f"{what} has to be a Spark DataFrame, a table or a stream of Arrow, or paths of "
            f"Parquet files, got a {type(rows).__name__}."
        )
    if rows.isStreaming:
        raise ConfigError(
            f"{what} is a stream; give each of its micro-batches to the job: "
            f"writeStream.foreachBatch(job.foreach_batch(..))."
        )
    check_names(rows.columns, what)
    twins = twins_of(rows.columns)
    if twins is not None and rows.sparkSession.conf.get(_CASE_SENSITIVE, "false") != "true":
        raise ConfigError(
            f"{what} has the columns {twins[0]!r} and {twins[1]!r}, which Spark cannot tell apart; "
            f"rename one of them, or set {_CASE_SENSITIVE} to true."
        )
    names = []
    for field in rows.schema.fields:
        if not holds(field.dataType, _NOT_HASHED):
            names.append(field.name)
        elif reads.reads(field.name):
            raise ConfigError(
                f"{what} has a column {field.name!r} of type {field.dataType.simpleString()}, "
                f"which Spark cannot hash or pass to Python; cast it, for example to a string."
            )
    return rows if names == rows.columns else rows.select(*map(quoted, names))


def check_rows(rows: DataFrame, operator: Operator, order_by: Sequence[str] | None) -> None:
    """Raises ConfigError if the rows cannot be applied by an operator."""
    fields = [(each.name, to_arrow_type(each.dataType, timezone="UTC")) for each in rows.schema]
    check_input(pa.schema(fields), operator, order_by)
    if isinstance(operator, AggregateOperator):
        _check_collations(rows, operator)


def _check_collations(rows: DataFrame, operator: AggregateOperator) -> None:
    """Raises ConfigError if Spark compares texts of an aggregate in another way than state does."""
    for column in operator.columns:
        if column in rows.columns and _has_collation(rows.schema[column].dataType):
            raise ConfigError(
                f"The column {column!r} of operator {operator.uid!r} has the type "
                f"{rows.schema[column].dataType.simpleString()}, and state compares texts by their "
                f"bytes; cast it to string, for example after lower(..)."
            )


def _has_collation(kind: T.DataType) -> bool:
    """Whether a type is, or contains, a text that is not compared by its bytes."""
    if isinstance(kind, T.StringType):
        return not kind.isUTF8BinaryCollation()
    if isinstance(kind, T.StructType):
        return any(_has_collation(each.dataType) for each in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _has_collation(kind.elementType)
    return False
