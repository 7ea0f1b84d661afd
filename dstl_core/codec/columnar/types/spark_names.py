"""The names of Spark's types for Arrow types: in messages, and in the hash of a row."""

from __future__ import annotations

import re

import pyarrow as pa

_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.null(): "void",
}


def spark_name(kind: pa.DataType) -> str:
    """The name that Spark's ``simpleString`` gives; Arrow's own name if Spark has no such type."""
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_map(kind):
        return f"map<{spark_name(kind.key_type)},{spark_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{spark_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = ",".join(f"{field.name}:{spark_name(field.type)}" for field in kind)
        return f"struct<{fields}>"
    return _NAMES.get(kind, str(kind))


_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def number_type(name: str) -> pa.DataType:
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return next(kind for kind, text in _NAMES.items() if text == name)
