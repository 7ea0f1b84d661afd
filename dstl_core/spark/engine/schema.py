"""Converts Arrow types to Spark types and back, and Spark types to Flink types.

``docs/reference/types.md`` has the table.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T

from dstl_core.codec.declared_type import TypeLike, declared_type, flink_type
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError
from dstl_core.job.spec.output_types import SIMPLE_TYPES, stored_arrow_type

_SIMPLE: dict[pa.DataType, T.DataType] = dict(
    zip(
        SIMPLE_TYPES,
        (
            *(T.BooleanType(), T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType()),
            *(T.FloatType(), T.DoubleType(), T.StringType(), T.BinaryType(), T.DateType()),
            *(T.TimestampNTZType(), T.TimestampType()),
        ),
        strict=True,
    )
)
_TO_ARROW = {spark: arrow for arrow, spark in _SIMPLE.items()}

_NOT_ORDERED = (T.MapType, T.VariantType, T.CalendarIntervalType)


def spark_type_of(arrow_type: pa.DataType) -> T.DataType:
    """The Spark type of an Arrow type.

    Raises:
        ConfigError: Spark has no such type.
    """
    arrow_type = stored_arrow_type(arrow_type)
    if pa.types.is_list(arrow_type):
        return T.ArrayType(spark_type_of(arrow_type.value_type))
    if pa.types.is_map(arrow_type):
        return T.MapType(spark_type_of(arrow_type.key_type), spark_type_of(arrow_type.item_type))
    if pa.types.is_struct(arrow_type):
        return spark_schema_of(pa.schema(list(arrow_type)))
    if pa.types.is_decimal128(arrow_type):
        return T.DecimalType(arrow_type.precision, arrow_type.scale)
    return _SIMPLE[arrow_type]


def spark_schema_of(schema: pa.Schema) -> T.StructType:
    return T.StructType(
        [T.StructField(field.name, spark_type_of(field.type), field.nullable) for field in schema]
    )


def has_simple_types(schema: T.StructType) -> bool:
    """Whether no column has fields or elements, which the JVM hashes faster than ``RowHash``."""
    return all(
        field.dataType in _TO_ARROW or isinstance(field.dataType, T.DecimalType) for field in schema
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
    arrow_type = _TO_ARROW.get(spark_type)
    if arrow_type is None:
        raise ConfigError(
            f"A column of Spark type {spark_type.simpleString()} is not supported here; cast it "
            f"to one of: {', '.join(sorted(each.simpleString() for each in _TO_ARROW))}, or an "
            f"array, map or struct of these."
        )
    return arrow_type


def arrow_schema_from_spark(schema: T.StructType) -> pa.Schema:
    return pa.schema([(each.name, arrow_type_from_spark(each.dataType)) for each in schema])


def type_of_column(
    schema: T.StructType, column: str, declared: TypeLike | None = None
) -> AnySerializer:
    """The Flink type of a DataFrame's column: the given type, in any form, or the Spark type's.

    Raises:
        ConfigError: The given type is not a type, the column does not exist, or Flink has no such
            type.
    """
    if declared is not None:
        return flink_type(declared_type(declared, f"Column {column!r}"))
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


def is_ordered(kind: T.DataType) -> bool:
    """Whether Spark can sort by a type."""
    return not holds(kind, _NOT_ORDERED)


def holds(kind: T.DataType, types: tuple[type[T.DataType], ...]) -> bool:
    """Whether a type is, or contains, one of ``types``."""
    if isinstance(kind, types):
        return True
    if isinstance(kind, T.StructType):
        return any(holds(each.dataType, types) for each in kind.fields)
    if isinstance(kind, T.ArrayType):
        return holds(kind.elementType, types)
    if isinstance(kind, T.MapType):
        return holds(kind.keyType, types) or holds(kind.valueType, types)
    return False


def quoted(column: str) -> str:
    """Quotes the name of a column: Spark parses dots and backticks in names."""
    return "`" + column.replace("`", "``") + "`"
