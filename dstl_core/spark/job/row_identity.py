"""What tells values and rows apart in Spark, which takes some different values for equal."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dstl_core.job.spec.fingerprint import FINGERPRINT_VERSION
from dstl_core.spark.engine.schema import quoted


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
