"""Decides whether every value of one type is a value of another type, and writes the cast."""

from __future__ import annotations

from dstl_core.codec.logical_types import LogicalType
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.primitives import (
    BooleanSerializer,
    ByteSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from dstl_core.codec.serializers.strings import StringSerializer

_WHOLE = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
"""Whole numbers: the decimal digits that hold all their values."""
_EXACT_IN = {"FLOAT": ("TINYINT", "SMALLINT"), "DOUBLE": ("TINYINT", "SMALLINT", "INT", "FLOAT")}
_SCALARS: dict[type, str] = {
    BooleanSerializer: "BOOLEAN",
    ByteSerializer: "TINYINT",
    ShortSerializer: "SMALLINT",
    IntSerializer: "INT",
    LongSerializer: "BIGINT",
    FloatSerializer: "FLOAT",
    DoubleSerializer: "DOUBLE",
    StringSerializer: "STRING",
}


def widens(old: LogicalType, new: LogicalType) -> bool:
    """Whether all values of a SQL type are values of another one, nulls included."""
    if old.nullable and not new.nullable:
        return False
    if old.root == new.root:
        return _widens_within(old, new)
    if new.root in _WHOLE:
        return old.root in _WHOLE and _WHOLE[old.root] <= _WHOLE[new.root]
    if new.root == "DECIMAL":
        return old.root in _WHOLE and new.precision - new.scale >= _WHOLE[old.root]
    if new.root in ("VARCHAR", "VARBINARY"):
        return old.root == new.root.removeprefix("VAR") and old.length <= new.length
    return old.root in _EXACT_IN.get(new.root, ())


def _widens_within(old: LogicalType, new: LogicalType) -> bool:
    match old.root:
        case "VARCHAR" | "VARBINARY":
            return old.length <= new.length
        case "CHAR" | "BINARY":
            return old.length == new.length  # otherwise Flink pads or cuts
        case "DECIMAL":
            digits = new.precision - new.scale >= old.precision - old.scale
            return digits and new.scale >= old.scale
        case "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ" | "TIMESTAMP_TZ":
            return old.precision <= new.precision
    same = (old.names, len(old.children)) == (new.names, len(new.children))
    return same and all(widens(*pair) for pair in zip(old.children, new.children, strict=True))


def sql_name(serializer: AnySerializer) -> str | None:
    """The SQL name of a Java type, e.g. ``BIGINT`` for ``Long``; None if it has none."""
    return _SCALARS.get(type(serializer))


def scalar_widens(old: AnySerializer, new: AnySerializer) -> bool:
    """Whether all values of a Java type are values of another one, e.g. ``Integer``, ``Long``."""
    before, after = sql_name(old), sql_name(new)
    if before is None or after is None:
        return False
    return before == after or widens(LogicalType(before), LogicalType(after))


def cast(expression: str, to: LogicalType | str) -> str:
    return f"cast({expression}, {to})"
