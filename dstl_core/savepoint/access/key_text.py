"""Keys that a person writes: texts and values of columns, as values of state."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dstl_core.codec.serializers import AnySerializer, TupleSerializer, Types, serialize_to_bytes
from dstl_core.errors import UNREADABLE, ConfigError
from dstl_core.state.columns.arrow_values import column_type
from dstl_core.state.columns.column_fit import values_of_column


def parse_key(serializer: AnySerializer, text: str, *, is_json: bool = False) -> Any:
    """Parses a key: the text itself for a string key, JSON for a key of another type."""
    if serializer == Types.STRING and not is_json:
        return text
    try:
        exact = Decimal if serializer == Types.BIG_DEC else None  # 12.5 and 12.50 are two keys
        value = _plain(serializer, json.loads(text, parse_float=exact))
    except (ValueError, RecursionError, ArithmeticError):  # an exponent may be too large
        value = text  # a date without quotes
    return key_of(serializer, value)


def key_of(serializer: AnySerializer, value: Any) -> Any:
    """Converts a key to the value that state has.

    A key may be a value of state or of a column: a date, a ``datetime`` or a ``Decimal``, each also
    as text; a struct as a list or dictionary of its fields.

    Raises:
        ConfigError: The value is not a key of this type.
    """
    try:
        serialize_to_bytes(serializer, value)
        serializer.java_hash(value)
    except (*UNREADABLE, TypeError, ValueError, AttributeError):
        return _key_of_column(serializer, value)
    return value


def _key_of_column(serializer: AnySerializer, value: Any) -> Any:
    try:
        wanted = column_type(serializer)
        if serializer == Types.BIG_DEC:
            value = Decimal(str(value))
        elif pa.types.is_struct(wanted) and isinstance(value, list | tuple):
            value = dict(zip(wanted.names, value, strict=True))
        [key] = values_of_column(serializer, pa.array([value]), "The key")
    except (*UNREADABLE, ArithmeticError, ValueError, TypeError) as error:
        raise ConfigError(
            f"key is wrong: expected a {serializer.type_name}, got {value!r}."
        ) from error
    return key


def _plain(serializer: AnySerializer, value: Any) -> Any:
    if isinstance(serializer, TupleSerializer) and isinstance(value, list):
        parts = zip(serializer.fields, value, strict=True)
        return tuple(_plain(part, each) for part, each in parts)
    return value
