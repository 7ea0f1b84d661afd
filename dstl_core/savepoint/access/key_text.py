"""Keys that a person writes: texts and values of columns, as values of state."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dstl_core.codec.big_decimal import BigDecimal
from dstl_core.codec.pyflink.states import PythonStates, key_in_row
from dstl_core.codec.serializers import AnySerializer, Types, key_groups_of, serialize_to_bytes
from dstl_core.codec.serializers.structs import Row
from dstl_core.display import LONGEST_KEY, cut_text
from dstl_core.errors import UNREADABLE, ConfigError
from dstl_core.savepoint.access.text_values import row_parts, value_of_text
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.state.columns.arrow_values import column_type
from dstl_core.state.columns.column_fit import values_of_column


def parse_key(serializer: AnySerializer, text: str, *, is_json: bool = False) -> Any:
    """Parses a key: the text itself for a string key, JSON for a key of another type.

    Raises:
        ConfigError: The text is no key of this type.
    """
    if serializer == Types.STRING and not is_json:
        return text
    try:
        exact = Decimal if serializer == Types.BIG_DEC else None  # 12.5 and 12.50 are two keys
        value = json.loads(text, parse_float=exact)
    except (ValueError, RecursionError, ArithmeticError):  # an exponent may be too large
        value = text  # a date without quotes
    with suppress(ValueError):  # it has another form, which may be that of a column
        shown = value_of_text(serializer, value)
        if _is_key(serializer, shown):
            return shown
    return key_of(serializer, value)


def _is_key(serializer: AnySerializer, value: Any) -> bool:
    try:
        serialize_to_bytes(serializer, value)
        key_groups_of(serializer, value, 1)
    except (*UNREADABLE, TypeError, ValueError, AttributeError, KeyError):
        return False
    return True


def key_of_operator(operator: OperatorSnapshot, text: str) -> Any:
    """Parses a key as a dump of an operator with keyed state shows it.

    A key of PyFlink is without the row around it.

    Raises:
        ConfigError: The text is no key of the operator's type.
    """
    key_type = operator.key_type
    assert key_type is not None  # of keyed state
    inner = None
    if isinstance(operator.forms, PythonStates):
        inner = key_in_row(key_type.serializer)
    if inner is None:
        return parse_key(key_type.serializer, text)
    return Row(0, (parse_key(inner, text),))


def key_of(serializer: AnySerializer, value: Any) -> Any:
    """Converts a key to the value that state has.

    A key may be a value of state or of a column: a date, a ``datetime`` or a ``Decimal``, each also
    as text; a struct as a list or dictionary of its fields.

    Raises:
        ConfigError: The value is not a key of this type.
    """
    if _is_key(serializer, value):
        return value
    return _key_of_column(serializer, value)


def _key_of_column(serializer: AnySerializer, value: Any) -> Any:
    try:
        if serializer == Types.BIG_DEC:
            key = _big_decimal(Decimal(str(value)))
            serialize_to_bytes(serializer, key)  # refuses an exponent of more than 32 bits
            return key
        wanted = column_type(serializer)
        if pa.types.is_struct(wanted) and isinstance(value, list | tuple):
            kind, value = row_parts(value, len(wanted.names))
            if kind:
                raise ValueError("a row of keys is an insertion")
            value = dict(zip(wanted.names, value, strict=True))
        [key] = values_of_column(serializer, pa.array([value]), "The key")
        if key is None and not _is_key(serializer, key):
            raise ValueError("no key is null")
    except (*UNREADABLE, ArithmeticError, ValueError, TypeError) as error:
        raise ConfigError(
            f"key is wrong: expected a {serializer.type_name}, got "
            f"{cut_text(repr(value), LONGEST_KEY)}."
        ) from error
    return key


def _big_decimal(value: Decimal) -> BigDecimal:
    """The same digits and scale: Java tells 5E+3 from 5000, and a column does not."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is no number")
    unscaled = int("".join(map(str, digits)))
    return BigDecimal(-unscaled if sign else unscaled, -exponent)
