"""The Arrow schema of columns that users declare in any form."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.declared_type import check_twice, declared_columns, flink_type
from dstl_core.codec.type_text import DeclaredType
from dstl_core.errors import ConfigError, NotInColumnsError

_LEAVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "char": pa.uint16(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("ns"),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def schema_of(columns: Any, where: str) -> pa.Schema:
    """The schema of columns that a user declared.

    Args:
        columns: DDL text, a Spark or Arrow schema, a mapping of names to types, or a dataclass.
        where: What has these columns, for the error.

    Raises:
        ConfigError: The value does not declare columns, or a column has no Arrow type. The message
            has ``where`` and the column.
    """
    if isinstance(columns, pa.Schema):
        check_twice(columns.names, where)
        return columns
    declared = declared_columns(columns, where)
    return pa.schema(
        [
            (name, _arrow_type(part, f"{where}: the column {name!r}"))
            for name, part in zip(declared.names, declared.parts, strict=True)
        ]
    )


def _arrow_type(declared: DeclaredType, where: str) -> pa.DataType:
    if declared.name in _LEAVES:
        return _LEAVES[declared.name]
    parts = [_arrow_type(each, where) for each in declared.parts]
    match declared.name:
        case "decimal" if declared.precision is not None:
            return pa.decimal128(declared.precision, declared.scale)
        case "decimal":
            raise ConfigError(f"{where} is a decimal without its digits; write decimal(38, 9).")
        case "array" | "set":
            return pa.list_(parts[0])
        case "map":
            return pa.map_(parts[0], parts[1])
        case "struct":
            return pa.struct(list(zip(declared.names, parts, strict=True)))
        case "nullable":
            return parts[0]
        case _:
            return _column_of(declared, where)


def _column_of(declared: DeclaredType, where: str) -> pa.DataType:
    serializer = flink_type(declared)
    try:
        return layout_of(serializer).arrow_type
    except NotInColumnsError:
        raise ConfigError(
            f"{where} has the type {serializer.type_name}, which cannot be a column."
        ) from None
