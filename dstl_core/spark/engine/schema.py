"""Converts Arrow types to Spark types and back, and Spark types to Flink types.

``docs/reference/types.md`` has the table. An Arrow type that Spark lacks becomes the nearest type
that can store every value: an unsigned char becomes an int, a time of day becomes its nanoseconds
as a long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import types as T

from dstl_core.codec.declared_type import TypeLike, declared_type, flink_type
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError

_SIMPLE: dict[pa.DataType, T.DataType] = {
    pa.bool_(): T.BooleanType(),
    pa.int8(): T.ByteType(),
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    pa.float32(): T.FloatType(),
    pa.float64(): T.DoubleType(),
    pa.string(): T.StringType(),
    pa.binary(): T.BinaryType(),
    pa.date32(): T.DateType(),
    pa.timestamp("us"): T.TimestampNTZType(),
    pa.timestamp("us", "UTC"): T.TimestampType(),
}
_TO_ARROW = {spark: arrow for arrow, spark in _SIMPLE.items()}


def spark_arrow_type(arrow_type: pa.DataType) -> pa.DataType:
    """The Arrow type with which a column of ``arrow_type`` is passed to Spark."""
    if pa.types.is_uint16(arrow_type):
        return pa.int32()
    if pa.types.is_time(arrow_type):
        return pa.int64()
    if pa.types.is_null(arrow_type):
        return pa.string()
    if pa.types.is_large_string(arrow_type):
        return pa.string()
    if pa.types.is_fixed_size_binary(arrow_type) or pa.types.is_large_binary(arrow_type):
        return pa.binary()
    if pa.types.is_timestamp(arrow_type):
        return pa.timestamp("us", None if arrow_type.tz is None else "UTC")
    if pa.types.is_list(arrow_type):
        return pa.list_(arrow_type.value_field.with_type(spark_arrow_type(arrow_type.value_type)))
    if pa.types.is_map(arrow_type):
        return pa.map_(
            spark_arrow_type(arrow_type.key_type), spark_arrow_type(arrow_type.item_type)
        )
    if pa.types.is_struct(arrow_type):
        return pa.struct([each.with_type(spark_arrow_type(each.type)) for each in arrow_type])
    return arrow_type


def spark_arrow_schema(schema: pa.Schema) -> pa.Schema:
    """As ``spark_arrow_type``, for every column."""
    return pa.schema([pa.field(each.name, spark_arrow_type(each.type)) for each in schema])


Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def for_spark(rows: Rows, schema: pa.Schema) -> Rows:
    """Casts rows to the types of ``spark_arrow_schema``."""
    if rows.schema.equals(schema):
        return rows
    columns = zip(rows.columns, schema, strict=True)
    return type(rows).from_arrays(
        [_cast(column, wanted.type) for column, wanted in columns], schema=schema
    )


def _cast(column: Any, wanted: pa.DataType) -> Any:
    if column.type.equals(wanted):
        return column
    if pa.types.is_time(column.type):
        return column.cast(pa.time64("ns")).cast(pa.int64())
    return column.cast(wanted)


def spark_type_of(arrow_type: pa.DataType) -> T.DataType:
    """The Spark type of an Arrow type.

    Raises:
        ConfigError: Spark has no such type.
    """
    arrow_type = spark_arrow_type(arrow_type)
    if pa.types.is_list(arrow_type):
        return T.ArrayType(spark_type_of(arrow_type.value_type))
    if pa.types.is_map(arrow_type):
        return T.MapType(spark_type_of(arrow_type.key_type), spark_type_of(arrow_type.item_type))
    if pa.types.is_struct(arrow_type):
        return spark_schema_of(pa.schema(list(arrow_type)))
    if pa.types.is_decimal128(arrow_type):
        return T.DecimalType(arrow_type.precision, arrow_type.scale)
    found = _SIMPLE.get(arrow_type)
    if found is None:
        raise ConfigError(
            f"Spark has no type for Arrow's {arrow_type}; use one of: decimal128, "
            f"{', '.join(sorted(map(str, _SIMPLE)))}, or a list, map or struct of these."
        )
    return found


def spark_schema_of(schema: pa.Schema) -> T.StructType:
    """The Spark schema of an Arrow schema."""
    return T.StructType(
        [T.StructField(field.name, spark_type_of(field.type), field.nullable) for field in schema]
    )


def arrow_type_from_spark(spark_type: T.DataType) -> pa.DataType:
    """The Arrow type of a Spark column that may become state or output.

    Raises:
        ConfigError: The type is not supported.
    """
    if isinstance(spark_type, T.ArrayType):
        return pa.list_(arrow_type_from_spark(spark_type.elementType))
    if isinstance(spark_type, T.MapType):
        return pa.map_(
            arrow_type_from_spark(spark_type.keyType), arrow_type_from_spark(spark_type.valueType)
        )
    if isinstance(spark_type, T.StructType):
        return pa.struct([(each.name, arrow_type_from_spark(each.dataType)) for each in spark_type])
    if isinstance(spark_type, T.DecimalType):
        return pa.decimal128(spark_type.precision, spark_type.scale)
    found = _TO_ARROW.get(spark_type)
    if found is None:
        raise ConfigError(
            f"A column of Spark type {spark_type.simpleString()} is not supported here; cast it "
            f"to one of: {', '.join(sorted(each.simpleString() for each in _TO_ARROW))}, or an "
            f"array, map or struct of these."
        )
    return found


def arrow_schema_from_spark(schema: T.StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema."""
    return pa.schema([(each.name, arrow_type_from_spark(each.dataType)) for each in schema])


def type_of_column(
    schema: T.StructType, column: str, given: TypeLike | None = None
) -> AnySerializer:
    """The Flink type of a DataFrame's column: the given type, in any form, or the Spark type's.

    Raises:
        ConfigError: The given type is not a type, the column does not exist, or Flink has no such
            type.
    """
    if given is not None:
        return flink_type(declared_type(given, f"Column {column!r}"))
    if column not in schema.names:
        raise ConfigError(
            f"There is no column {column!r}; the DataFrame has: {', '.join(schema.names)}."
        )
    return flink_type_of(schema[column].dataType)


def flink_type_of(spark_type: T.DataType) -> AnySerializer:
    """The Flink type of a Spark type. A struct becomes a ``Row``, whose fields may be null.

    Elements of arrays and values of maps may not be null, unless the type is given.
    """
    arrow_type_from_spark(spark_type)  # raises for an unsupported type
    return flink_type(declared_type(spark_type, "A column"))


def twins_of(names: Sequence[str]) -> tuple[str, str] | None:
    """Two names that differ in case only, which Spark treats as equal; None if there are none."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            return other, name
    return None


def quoted(column: str) -> str:
    """Quotes the name of a column: Spark parses dots and backticks in names."""
    return "`" + column.replace("`", "``") + "`"
