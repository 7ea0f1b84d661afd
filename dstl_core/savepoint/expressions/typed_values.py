"""Columns with the types of their values, as expressions and conversions of values take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Union

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.logical_types import LogicalType
from dstl_core.codec.serializers import AnySerializer, TupleSerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.structs import RowSerializer
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.errors import ConfigError
from dstl_core.savepoint.expressions.expression import Literal
from dstl_core.savepoint.expressions.recoded_column import holds_messages
from dstl_core.savepoint.expressions.sql_cast import (
    OPTIONS,
    arrow_type_of,
    cast_column,
    parse_sql_type,
)
from dstl_core.state.tables.sql_widening import sql_name

Kind = Union[LogicalType, AnySerializer, None]  # noqa: UP007
"""A type; None is that of a null."""


@dataclass(frozen=True)
class Values:
    """A column, and the type of its values."""

    column: pa.Array
    kind: Kind
    constant: pa.Array | None = None
    """The one value of all rows, also where there are no rows."""


def kind_of(serializer: AnySerializer) -> Kind:
    """A type; scalars of Java as SQL knows them."""
    name = sql_name(serializer)
    if name is None:
        return serializer
    return parse_sql_type(name)


def arrow_of(kind: Kind) -> pa.DataType:
    if kind is None:
        return pa.null()
    if holds_messages(kind):
        return pa.binary()
    return (
        arrow_type_of(kind)
        if isinstance(kind, LogicalType)
        else layout_of(kind, OPTIONS).arrow_type
    )


def name_of(kind: Kind) -> str:
    if kind is None:
        return "null"
    return str(kind) if isinstance(kind, LogicalType) else kind.type_name


def fields_of(kind: Kind) -> list[tuple[str, Kind]] | None:
    """The fields of a row, tuple or POJO; None for other types."""
    match kind:
        case LogicalType(root="ROW"):
            return list(zip(kind.names, kind.children, strict=True))
        case RowDataSerializer():
            return [(f"f{at}", each) for at, each in enumerate(kind.types)]
        case TupleSerializer():
            return [(f"f{at}", kind_of(each)) for at, each in enumerate(kind.fields)]
        case PojoSerializer():
            return [
                (name, None if kind_of_field is None else kind_of(kind_of_field))
                for name, _, kind_of_field in kind.fields
            ]
    return None


def parts_of_row(kind: Kind) -> list[tuple[str, Kind]]:
    """The fields of a Row, which an expression may read. A Row as a whole is not converted."""
    if not isinstance(kind, RowSerializer):
        return []
    return [(f"f{at}", kind_of(field)) for at, field in enumerate(kind.fields)]


def field_column(column: pa.Array, name: str) -> pa.Array:
    """A field of a struct; null where the struct is."""
    at = column.type.get_field_index(name)
    child = column.field(at)
    return child if not column.null_count else pc.struct_field(column, [at])


def nullable(kind: LogicalType) -> LogicalType:
    return replace(kind, nullable=True)


def literal_values(literal: Literal, rows: int) -> Values:
    """A constant, in the narrowest type that holds it."""
    value = literal.value
    kind: LogicalType
    match value:
        case None:
            return Values(pa.nulls(rows), None)
        case bool():
            kind = LogicalType("BOOLEAN", False)
        case int():
            sizes: Sequence[tuple[str, int]] = (
                ("TINYINT", 7),
                ("SMALLINT", 15),
                ("INT", 31),
                ("BIGINT", 63),
            )
            fitting = [name for name, bits in sizes if -(1 << bits) <= value < 1 << bits]
            if not fitting:
                raise ConfigError(f"The constant {value} is too large for BIGINT.")
            kind = LogicalType(fitting[0], False)
        case float():
            kind = LogicalType("DOUBLE", False)
        case str():
            kind = LogicalType("VARCHAR", False, length=max(len(value), 1))
    target = arrow_type_of(kind)
    return Values(pa.repeat(pa.scalar(value, target), rows), kind, pa.array([value], target))


_CONSTANTS = {
    "BOOLEAN": ("BOOLEAN",),
    "VARCHAR": ("VARCHAR", "CHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ"),
}
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")


def constant_in(one: pa.Array, old: LogicalType, new: LogicalType, where: str) -> pa.Array:
    """A constant in the type of a column, exactly."""
    takes = new.root in _CONSTANTS.get(old.root, _NUMBERS)
    fraction = old.root == "DOUBLE" and new.root not in ("FLOAT", "DOUBLE", "DECIMAL")
    constant, mask = (None, None)
    if takes and not fraction:
        if old.root == "DOUBLE" and new.root == "DECIMAL":
            text = pa.array([None if each is None else repr(each) for each in one.to_pylist()])
            constant, mask = cast_column(text.cast(pa.string()), old, new)
        else:
            constant, mask = cast_column(one, old, new)
    if constant is None or mask is not None:
        value = one[0].as_py()
        raise ConfigError(
            f"{where} is wrong: the constant {value!r} is no value of type {nullable(new)}."
        )
    return constant
