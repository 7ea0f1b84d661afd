"""The Arrow type of a Flink type, and values between the two.

The table is the one of ``docs/reference/types.md``. What has no entry cannot be a column.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TtlSerializer,
    TupleSerializer,
    Types,
)
from dstl_core.errors import ConfigError

_SIMPLE: dict[str, pa.DataType] = {
    "Boolean": pa.bool_(),
    "Byte": pa.int8(),
    "Short": pa.int16(),
    "Integer": pa.int32(),
    "Long": pa.int64(),
    "Float": pa.float32(),
    "Double": pa.float64(),
    "String": pa.string(),
}
_FROM_ARROW: dict[pa.DataType, AnySerializer] = {
    pa.bool_(): Types.BOOLEAN,
    pa.int8(): Types.BYTE,
    pa.int16(): Types.SHORT,
    pa.int32(): Types.INT,
    pa.int64(): Types.LONG,
    pa.float32(): Types.FLOAT,
    pa.float64(): Types.DOUBLE,
    pa.string(): Types.STRING,
    pa.large_string(): Types.STRING,
}


def arrow_type_of(serializer: AnySerializer) -> pa.DataType | None:
    """The Arrow type of a Flink type, or None if it cannot be a column."""
    match serializer:
        case ListSerializer():
            element = arrow_type_of(serializer.element)
            return None if element is None else pa.list_(element)
        case MapSerializer():
            key, value = arrow_type_of(serializer.key), arrow_type_of(serializer.value)
            return None if key is None or value is None else pa.map_(key, value)
        case TupleSerializer():
            fields = [arrow_type_of(field) for field in serializer.fields]
            if any(field is None for field in fields):
                return None
            return pa.struct([(f"f{index}", field) for index, field in enumerate(fields) if field])
        case TtlSerializer():
            value = arrow_type_of(serializer.value)
            return None if value is None else pa.struct([("v", value), ("ts", pa.int64())])
        case _:
            return _SIMPLE.get(serializer.type_name)


def serializer_of(arrow_type: pa.DataType) -> AnySerializer:
    """The Flink type that a column of an Arrow type becomes.

    Raises:
        ConfigError: No Flink type stands for it.
    """
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return Types.LIST(serializer_of(arrow_type.value_type))
    found = _FROM_ARROW.get(arrow_type)
    if found is None:
        raise ConfigError(
            f"No Flink type stands for a column of type {arrow_type}; cast it, or give the type."
        )
    return found


def to_arrow_value(serializer: AnySerializer, value: Any) -> Any:
    """A decoded value in the form that ``pa.array`` takes for ``arrow_type_of``."""
    if value is None:
        return None
    match serializer:
        case ListSerializer():
            return [to_arrow_value(serializer.element, item) for item in value]
        case MapSerializer():
            return [
                (to_arrow_value(serializer.key, key), to_arrow_value(serializer.value, item))
                for key, item in value
            ]
        case TupleSerializer():
            return {
                f"f{index}": to_arrow_value(field, item)
                for index, (field, item) in enumerate(zip(serializer.fields, value, strict=True))
            }
        case TtlSerializer():
            return {"v": to_arrow_value(serializer.value, value.value), "ts": value.last_access}
        case _:
            return value
