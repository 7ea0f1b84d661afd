"""Casts of columns: a value that does not fit is never cut; its row is reported.

The SQL names of types are Flink's. Text becomes a number only if it is one, as a whole.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.types.type_layouts import ColumnOptions, layout_of
from dstl_core.codec.logical_types import LogicalType
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.errors import ConfigError

OPTIONS = ColumnOptions("error", "entries", "exact", "column", decimals="exact")
"""Columns of a migration: text is text, and all other values are exact."""
LONGEST = 2147483647

_NAMES = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "BYTE": "TINYINT",
    "SMALLINT": "SMALLINT",
    "SHORT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "LONG": "BIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "STRING": "STRING",
    "VARCHAR": "VARCHAR",
    "CHAR": "CHAR",
    "BYTES": "BYTES",
    "VARBINARY": "VARBINARY",
    "BINARY": "BINARY",
    "DECIMAL": "DECIMAL",
    "DATE": "DATE",
    "TIME": "TIME",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP_LTZ",
}
_TYPE = re.compile(
    r"(?P<name>[A-Z_]+)(?:\((?P<first>\d{1,10})(?:,(?P<second>\d{1,3}))?\))?(?P<more>NOT NULL)?"
)
_WHOLE_TEXT = r"^[+-]?[0-9]{1,18}$"
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def parse_sql_type(text: str) -> LogicalType:
    """A type of a cast: ``BIGINT``, ``DECIMAL(12, 2)``, ``VARCHAR(10)``, ``STRING``, ...

    Raises:
        ConfigError: The text is no type that a cast knows.
    """
    squeezed = re.sub(r"\s*([(),])\s*", r"\1", " ".join(text.upper().split()))
    match = _TYPE.fullmatch(squeezed.replace(" NOT NULL", "NOT NULL"))
    name = None if match is None else _NAMES.get(match["name"])
    if match is None or name is None:
        raise ConfigError(
            f"The type {text!r} of a cast is not known: expected one of {', '.join(_NAMES)}."
        )
    first, second = (None if each is None else int(each) for each in match.group(2, 3))
    nullable = match["more"] is None
    if name in ("STRING", "VARCHAR"):
        return LogicalType("VARCHAR", nullable, length=first if first else LONGEST)
    if name in ("BYTES", "VARBINARY"):
        return LogicalType("VARBINARY", nullable, length=first if first else LONGEST)
    if name in ("CHAR", "BINARY"):
        return LogicalType(name, nullable, length=first or 1)
    if name == "DECIMAL":
        precision, scale = first or 10, second or 0
        if not 1 <= precision <= 38 or scale > precision:
            raise ConfigError(f"The type {text!r} of a cast is wrong: expected at most 38 digits.")
        return LogicalType(name, nullable, precision=precision, scale=scale)
    if name in ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ"):
        default = 0 if name == "TIME" else 6
        return LogicalType(name, nullable, precision=default if first is None else first)
    return LogicalType(name, nullable)


def arrow_type_of(kind: LogicalType) -> pa.DataType:
    """The type of a column with values of a SQL type."""
    row = layout_of(RowDataSerializer((kind,)), OPTIONS).arrow_type
    return row.field("f0").type


def cast_column(
    column: pa.Array, old: LogicalType, new: LogicalType
) -> tuple[pa.Array, pa.BooleanArray | None]:
    """The values in another type; where one does not fit, null.

    Returns:
        The column, and the rows whose value does not fit; None if all fit.

    Raises:
        ConfigError: Values of these types are never cast.
    """
    target = arrow_type_of(new)
    if pa.types.is_nested(column.type) or pa.types.is_nested(target):
        if column.type == target:
            return column, None
        raise _never(old, new)
    if pa.types.is_floating(column.type) and pa.types.is_string(target):
        raise _never(old, new)
    try:
        cast_values = _exactly(column, target)
    except pa.ArrowNotImplementedError as error:
        raise _never(old, new) from error
    except pa.ArrowInvalid:
        cast_values = _what_fits(column, target)
    return _within(column, cast_values, new)


def _never(old: LogicalType, new: LogicalType) -> ConfigError:
    return ConfigError(f"A value of type {old} is never cast to {new}.")


def _exactly(column: pa.Array, target: pa.DataType) -> pa.Array:
    if column.type == target:
        return column
    if pa.types.is_decimal(target) and pa.types.is_integer(column.type):
        column = column.cast(pa.int64()).cast(pa.decimal128(19, 0))
    if pa.types.is_decimal(target) and pa.types.is_string(column.type):
        plain = pc.all(pc.match_substring_regex(column, r"^[+-]?[0-9]+(\.[0-9]+)?$")).as_py()
        if plain is False:
            raise pa.ArrowInvalid("text that is no number")
    if pa.types.is_decimal(column.type) and pa.types.is_decimal(target):
        return _decimal(column, target)
    return column.cast(target, safe=True)


def _decimal(column: pa.Array, target: pa.DataType) -> pa.Array:
    if target.scale <= column.type.scale:
        return column.cast(target, safe=True)
    # More digits behind the point need room in front of it, which Arrow asks for up front.
    digits = column.type.precision + target.scale - column.type.scale
    if digits <= target.precision:
        return column.cast(target, safe=True)
    wide = pa.decimal256(min(digits, 76), target.scale)
    return column.cast(wide).cast(target, safe=True)


def _what_fits(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Casts the values that fit; the others become null."""
    if pa.types.is_string(column.type) and pa.types.is_integer(target):
        fits = pc.match_substring_regex(column, _WHOLE_TEXT)
        long = pc.greater(pc.binary_length(column), 18)  # may fit, and is looked at one by one
        column = pc.if_else(pc.or_(fits, long), column, pa.scalar(None, column.type))
    try:
        return _exactly(column, target)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, target)
    half = len(column) // 2
    parts = [_what_fits(column[:half], target), _what_fits(column[half:], target)]
    return pa.concat_arrays(parts)


def _within(
    column: pa.Array, cast_values: pa.Array, new: LogicalType
) -> tuple[pa.Array, pa.BooleanArray | None]:
    """Looks at the length of texts and bytes, which Arrow does not know."""
    if new.root in ("VARCHAR", "CHAR", "VARBINARY", "BINARY") and new.length < LONGEST:
        length = pc.utf8_length if pa.types.is_string(cast_values.type) else pc.binary_length
        sizes = length(cast_values)
        exact = new.root in ("CHAR", "BINARY")
        fits = pc.equal(sizes, new.length) if exact else pc.less_equal(sizes, new.length)
        if pc.all(fits).as_py() is False:
            cast_values = pc.if_else(fits, cast_values, pa.scalar(None, cast_values.type))
    if cast_values.null_count == column.null_count:
        return cast_values, None
    return cast_values, pc.and_(pc.is_null(cast_values), pc.is_valid(column))


def rows_of(mask: pa.BooleanArray) -> list[int]:
    """The numbers of the rows that are marked."""
    rows: list[int] = np.flatnonzero(np.asarray(mask)).tolist()
    return rows
