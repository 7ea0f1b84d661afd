"""Rows of a record batch as Python objects."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from dstl_core.errors import ConfigError, InvariantViolation

_BY_NUMPY = frozenset(
    [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_()]
)
_AT_ONCE = 3
_TEXTS = frozenset([pa.string(), pa.large_string()])
_AS_OBJECTS = _TEXTS | {pa.binary(), pa.large_binary()}
_DATE, _TIME, _INSTANT = pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")
_UNITS = {_DATE: "D", _TIME: "us", _INSTANT: "us"}
"""NumPy's units of dates and times."""
_FIRST, _LAST = (np.datetime64(day, "us") for day in ("0001-01-01", "9999-12-31T23:59:59.999999"))


def rows_of(
    batch: pa.RecordBatch, known: Mapping[str, Sequence[Any]] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """A dictionary per row, as ``to_pylist`` returns, in a third of the time.

    Args:
        batch: The rows.
        known: Values of columns that are known already, by name.

    Raises:
        ConfigError: Python has no such value: a date after the year 9999, or text that is not
            UTF-8.
    """
    names = batch.schema.names
    if not names:
        return [{} for _ in range(batch.num_rows)]
    columns = [
        known[name] if name in known else _values_of(name, batch.column(at))
        for at, name in enumerate(names)
    ]
    rows = _first_columns(names, columns)
    # Column by column takes half as long as ``dict(zip(..))`` row by row.
    for name, column in zip(names[_AT_ONCE:], columns[_AT_ONCE:], strict=True):
        for row, value in zip(rows, column, strict=True):
            row[name] = value
    return rows


def _first_columns(names: list[str], columns: list[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows of the first ``_AT_ONCE`` columns. A literal is made in half the time of its parts."""
    a, b, c = [*names, "", ""][:_AT_ONCE]
    match columns:
        case [first]:
            return [{a: value} for value in first]
        case [first, second]:
            return [{a: x, b: y} for x, y in zip(first, second, strict=True)]
        case [first, second, third, *_]:
            return [{a: x, b: y, c: z} for x, y, z in zip(first, second, third, strict=True)]
        case _:
            raise InvariantViolation("rows without columns")


def _values_of(name: str, column: pa.Array) -> list[Any]:
    try:
        return values_of(column)
    except MemoryError:  # Arrow's is one of its exceptions, too
        raise
    except (OverflowError, ValueError, pa.ArrowException) as error:
        if isinstance(error, UnicodeDecodeError) or column.type in _TEXTS:
            raise ConfigError(
                f"The column {name!r} has text that is not UTF-8, which Python does not have: "
                f"replace such bytes (in Spark, make_valid_utf8), or cast the column to binary."
            ) from None
        raise ConfigError(
            f"The column {name!r} has a value of type {column.type} that Python does not have "
            f"({error}): expected years 1 to 9999 and whole microseconds; replace such values, or "
            f"cast the column, for example to a string."
        ) from None


def values_of(column: pa.Array) -> list[Any]:
    """The values of a column as in ``to_pylist``. Columns of plain values take much less time."""
    kind = column.type
    values: list[Any]
    if kind in _AS_OBJECTS:
        values = column.to_numpy(zero_copy_only=False).tolist()
        return values
    if pa.types.is_decimal128(kind):
        coded = column.dictionary_encode()
        if 2 * len(coded.dictionary) > len(column):
            return _decimals(column)
        # Where values come again, each is made once.
        distinct = np.array([*_decimals(coded.dictionary), None], object)
        values = distinct[coded.indices.fill_null(len(distinct) - 1).to_numpy()].tolist()
        return values
    if kind in _BY_NUMPY:
        zero = pa.scalar(0).cast(kind)
        filled = column.fill_null(zero) if column.null_count else column
        return _with_nulls(filled.to_numpy(zero_copy_only=False).tolist(), column)
    if kind in _UNITS:
        return dates_of(column, pa.scalar(0, kind).as_py().tzinfo if kind == _INSTANT else None)
    values = column.to_pylist()
    return values


def _decimals(column: pa.Array) -> list[Any]:
    texts = column.cast(pa.string()).to_numpy(zero_copy_only=False).tolist()
    if not column.null_count:
        return list(map(Decimal, texts))
    return [None if text is None else Decimal(text) for text in texts]


def dates_of(column: pa.Array, zone: dt.tzinfo | None) -> list[Any]:
    """The dates or times of a column, in a time zone if they are instants.

    Raises:
        OverflowError: Python does not have one of these years.
    """
    numbers = column.view(pa.int32() if column.type == _DATE else pa.int64()).fill_null(0)
    times = numbers.to_numpy().astype(np.int64).view(f"M8[{_UNITS[column.type]}]")
    first, last = _FIRST.astype(times.dtype), _LAST.astype(times.dtype)
    if len(times) and not (first <= times.min() and times.max() <= last):
        raise OverflowError("a year that is not from 1 to 9999")
    if column.type == _INSTANT:
        epoch = dt.datetime(1970, 1, 1, tzinfo=zone)
        return _with_nulls(list(map(epoch.__add__, times.view("m8[us]").tolist())), column)
    return _with_nulls(times.tolist(), column)


def _with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    if column.null_count:
        for at in column.is_null().to_numpy(zero_copy_only=False).nonzero()[0].tolist():
            values[at] = None
    return values
