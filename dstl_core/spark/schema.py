"""Spark types of Arrow types, and Flink types of Spark columns."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T

from dstl_core.codec.columnar.arrow_types import serializer_of
from dstl_core.codec.serializers import AnySerializer, Types
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
}
_TO_ARROW = {spark: arrow for arrow, spark in _SIMPLE.items()}


def spark_type_of(arrow_type: pa.DataType) -> T.DataType:
    """The Spark type of an Arrow type of ``arrow_type_of``."""
    if pa.types.is_list(arrow_type):
        return T.ArrayType(spark_type_of(arrow_type.value_type))
    if pa.types.is_map(arrow_type):
        return T.MapType(spark_type_of(arrow_type.key_type), spark_type_of(arrow_type.item_type))
    if pa.types.is_struct(arrow_type):
        return spark_schema_of(pa.schema(list(arrow_type)))
    return _SIMPLE[arrow_type]


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
    found = _TO_ARROW.get(spark_type)
    if found is None:
        raise ConfigError(
            f"A column of Spark type {spark_type.simpleString()} is not supported here; cast it "
            f"to one of: {', '.join(sorted(each.simpleString() for each in _TO_ARROW))}, or an "
            f"array of these."
        )
    return found


def flink_type_of_column(schema: T.StructType, column: str) -> AnySerializer:
    """The Flink type that a DataFrame's column becomes.

    Raises:
        ConfigError: There is no such column, or its type has no Flink type.
    """
    if column not in schema.names:
        raise ConfigError(
            f"There is no column {column!r}; the DataFrame has: {', '.join(schema.names)}."
        )
    spark_type = schema[column].dataType
    if isinstance(spark_type, T.ArrayType):
        return Types.LIST(serializer_of(arrow_type_from_spark(spark_type.elementType)))
    return serializer_of(arrow_type_from_spark(spark_type))
