"""The Spark schema of a Parquet file, from its footer (``ParquetToSparkSchemaConverter``).

The stored types decide, not the writer's own metadata. For example, pyarrow's metadata may call a
column a dictionary or a duration; Spark and dstl read it as text or a number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from dstl_core.errors import ConfigError

_PLAIN: dict[str, T.DataType] = {
    "BOOLEAN": T.BooleanType(),
    "INT32": T.IntegerType(),
    "INT64": T.LongType(),
    "INT96": T.TimestampType(),
    "FLOAT": T.FloatType(),
    "DOUBLE": T.DoubleType(),
    "BYTE_ARRAY": T.BinaryType(),
    "FIXED_LEN_BYTE_ARRAY": T.BinaryType(),
}
_INTEGERS: dict[tuple[int, bool], T.DataType] = {
    (8, True): T.ByteType(),
    (16, True): T.ShortType(),
    (32, True): T.IntegerType(),
    (64, True): T.LongType(),
    (8, False): T.ShortType(),
    (16, False): T.IntegerType(),
    (32, False): T.LongType(),
    (64, False): T.DecimalType(20, 0),
}
_ANNOTATED: dict[str, T.DataType] = {
    "STRING": T.StringType(),
    "ENUM": T.StringType(),
    "JSON": T.StringType(),
    "BSON": T.BinaryType(),
    "DATE": T.DateType(),
}


def spark_schema_of_parquet(file: pq.ParquetFile) -> T.StructType:
    """The columns with the types that ``spark.read.parquet`` gives them.

    Raises:
        ConfigError: Spark has no type for a column, e.g. for a time in nanoseconds.
    """
    columns = file.schema
    leaves = iter([columns.column(at) for at in range(len(columns))])
    return _struct(file.schema_arrow, leaves)


def _struct(fields: Any, leaves: Iterator[Any]) -> T.StructType:
    return T.StructType([T.StructField(each.name, _type(each.type, leaves)) for each in fields])


def _type(shape: pa.DataType, leaves: Iterator[Any]) -> T.DataType:
    """The Spark type: the nesting of the Arrow type with the types of the stored leaves."""
    if pa.types.is_map(shape):
        return T.MapType(_type(shape.key_type, leaves), _type(shape.item_type, leaves))
    if pa.types.is_struct(shape):
        return _struct(shape, leaves)
    if pa.types.is_nested(shape):
        return T.ArrayType(_type(shape.value_type, leaves))
    return _leaf(next(leaves))


def _leaf(column: Any) -> T.DataType:
    says = json.loads(column.logical_type.to_json())
    spark_type: T.DataType | None
    match says["Type"]:
        case "None" | "Null":
            spark_type = _PLAIN.get(column.physical_type)
        case "Int":
            spark_type = _INTEGERS.get((says["bitWidth"], says["isSigned"]))
        case "Decimal":
            spark_type = T.DecimalType(says["precision"], says["scale"])
        case "Timestamp" if says["timeUnit"] != "nanoseconds":
            spark_type = T.TimestampType() if says["isAdjustedToUTC"] else T.TimestampNTZType()
        case other:
            spark_type = _ANNOTATED.get(other.upper())
    if spark_type is None:
        raise ConfigError(
            f"The Parquet column {column.path!r} has a type that Spark does not have: "
            f"{column.physical_type}, {column.logical_type}; store it with another type."
        )
    return spark_type
