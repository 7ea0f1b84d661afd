"""Converts a type that a user declares, in any form, to a Flink type.

A form is one of: a Flink type (``Types.LONG``); text, as SQL, Spark or Flink write it (``bigint``,
``array<int>``, ``struct<a: int>``, ``tuple<string, long>``, ``LocalDate``); a Spark type; an Arrow
type; a Python type (``int``, ``datetime.date``, ``dict[str, int]``, a dataclass).

Spark and Arrow types are recognised by their attributes, so this module imports neither.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dstl_core.codec.serializers import AnySerializer, Types, TypeSerializer
from dstl_core.codec.type_text import DeclaredType, leaf, parse_columns, parse_type_text
from dstl_core.errors import ConfigError

TypeLike: TypeAlias = Any
"""Any form of a type: Spark's and Arrow's classes cannot be named without loading them."""

SchemaLike: TypeAlias = Any
"""Any form of columns: DDL text, a Spark or Arrow schema, names with types, a dataclass."""

FORMS = (
    "SQL text such as 'bigint' or 'array<int>', a Flink type such as Types.LONG, a Spark or Arrow "
    "type, or a Python type such as int"
)

_PYTHON: dict[Any, str] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "binary",
    datetime.date: "date",
    datetime.time: "time",
    decimal.Decimal: "decimal",
}
_ARROW = {
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "uint16": "char",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "string_view": "string",
    "binary": "binary",
    "large_binary": "binary",
    "fixed_size_binary": "binary",
    "date32": "date",
    "time32": "time",
    "time64": "time",
    "decimal128": "decimal",
}
_MAX_DEPTH = 32
_MAX_PARTS = 20_000


@dataclasses.dataclass(frozen=True)
class _Place:
    """How deep a part of a type stands, and how many parts the type had so far.

    A dataclass with two fields of one other class is small, and ten of them in a row hold a
    thousand parts: types are graphs, and are written as trees.
    """

    depth: int = 0
    parts: list[None] = dataclasses.field(default_factory=list)

    def inner(self) -> _Place:
        """The place of a part.

        Raises:
            ConfigError: It is too deep, or one part too many.
        """
        if self.depth == _MAX_DEPTH:
            raise ConfigError(f"it is nested more than {_MAX_DEPTH} levels deep.")
        self.parts.append(None)
        if len(self.parts) > _MAX_PARTS:
            raise ConfigError(
                f"it has more than {_MAX_PARTS:,} parts with each class written out wherever it "
                f"stands."
            )
        return _Place(self.depth + 1, self.parts)


def declared_type(declaration: TypeLike, where: str) -> DeclaredType:
    """Reads the type that a user declared.

    Args:
        declaration: A type in any form.
        where: What has this type, for the error: ``The key of operator 'totals'``.

    Raises:
        ConfigError: It is not a type, or an ambiguous one. The message has ``where`` and what to
            write.
    """
    try:
        declared = _declared(declaration, _Place())
        flink_type(declared)
        return declared
    except ConfigError as error:
        raise ConfigError(f"{where} has a wrong type: {error.message}") from None


def declared_columns(declaration: Any, where: str) -> DeclaredType:
    """Reads the columns that a user declared.

    Args:
        declaration: DDL text, a Spark or Arrow schema, a mapping of names to types, or a dataclass.
        where: As for ``declared_type``.

    Raises:
        ConfigError: As for ``declared_type``.
    """
    try:
        declared = _columns(declaration)
    except ConfigError as error:
        raise ConfigError(f"{where} is wrong: {error.message}") from None
    check_twice(declared.names, where)
    return declared


def check_twice(names: Sequence[str], where: str) -> None:
    """Raises ConfigError if two columns have the same name."""
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigError(
            f"{where} is wrong: two columns are called {min(twice)!r}; give each a name of its own."
        )


def _columns(declaration: Any) -> DeclaredType:
    place = _Place()
    if isinstance(declaration, str):
        return parse_columns(declaration)
    if _is_arrow(declaration) and hasattr(declaration, "names"):
        return _struct([(each.name, _arrow(each.type, place.inner())) for each in declaration])
    if isinstance(declaration, Mapping):
        return _struct(
            [(str(name), _declared(each, place.inner())) for name, each in declaration.items()]
        )
    declared = _declared(declaration, _Place()) if _may_be_columns(declaration) else None
    if declared is None or declared.name != "struct":
        raise ConfigError(
            f"expected columns, as text such as 'id string, n bigint', a Spark or Arrow schema, a "
            f"mapping of names to types, or a dataclass, got {_shown(declaration)}."
        )
    return declared


def _may_be_columns(declaration: Any) -> bool:
    """Whether a value is a dataclass, or a type that may have fields."""
    if isinstance(declaration, type):
        return dataclasses.is_dataclass(declaration)
    if hasattr(declaration, "jsonValue"):
        return not hasattr(declaration, "dataType")  # a single field of a Spark schema has one
    return isinstance(declaration, TypeSerializer) or (
        _is_arrow(declaration) and hasattr(declaration, "num_fields")
    )


def _declared(declaration: Any, place: _Place) -> DeclaredType:
    if isinstance(declaration, TypeSerializer):
        return DeclaredType("flink", flink=declaration)
    if isinstance(declaration, str):
        return parse_type_text(declaration)
    if hasattr(declaration, "jsonValue") and not isinstance(declaration, type):
        try:
            json = declaration.jsonValue()
        except RuntimeError:  # a type of the user, which has no JSON
            raise ConfigError(f"there is no Flink type for Spark's {declaration!r}.") from None
        return _spark(json, place)
    if isinstance(declaration, type) and hasattr(declaration, "jsonValue"):
        return _declared(_made(declaration), place)
    if _is_arrow(declaration) and hasattr(declaration, "num_fields"):
        return _arrow(declaration, place)
    return _python(declaration, place)


def _made(spark_class: Callable[[], Any]) -> Any:
    """An instance of a Spark type that was given as its class, e.g. ``LongType``, as Spark does."""
    try:
        return spark_class()
    except TypeError:
        raise ConfigError(
            f"{_shown(spark_class)} needs arguments; give an instance of it."
        ) from None


def _is_arrow(declaration: Any) -> bool:
    return type(declaration).__module__.partition(".")[0] == "pyarrow"


def _shown(declaration: Any) -> str:
    return declaration.__name__ if isinstance(declaration, type) else repr(declaration)


def _struct(fields: Sequence[tuple[str, DeclaredType]], made: type | None = None) -> DeclaredType:
    return DeclaredType(
        "struct", tuple(each for _, each in fields), tuple(name for name, _ in fields), made=made
    )


# ----------------------------------------------------------------------------------- Spark


def _spark(json: Any, place: _Place) -> DeclaredType:
    """A Spark type from its JSON form, which is complete and allows any field name."""
    if isinstance(json, str):
        return parse_type_text(json)
    match json.get("type"):
        case "array":
            return DeclaredType("array", (_spark(json["elementType"], place.inner()),))
        case "map":
            parts = (
                _spark(json["keyType"], place.inner()),
                _spark(json["valueType"], place.inner()),
            )
            return DeclaredType("map", parts)
        case "struct":
            return _struct(
                [(each["name"], _spark(each["type"], place.inner())) for each in json["fields"]]
            )
        case other:
            raise ConfigError(f"there is no Flink type for Spark's {other!r}.")


# ----------------------------------------------------------------------------------- Arrow


def _arrow(arrow_type: Any, place: _Place) -> DeclaredType:
    name = str(arrow_type).partition("<")[0].partition("[")[0].partition("(")[0]
    if name in ("list", "large_list", "fixed_size_list"):
        return DeclaredType("array", (_arrow(arrow_type.value_type, place.inner()),))
    if name == "map":
        parts = (
            _arrow(arrow_type.key_type, place.inner()),
            _arrow(arrow_type.item_type, place.inner()),
        )
        return DeclaredType("map", parts)
    if name == "struct":
        fields = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
        return _struct([(each.name, _arrow(each.type, place.inner())) for each in fields])
    if name == "timestamp":
        return leaf("timestamp_ntz" if arrow_type.tz is None else "timestamp")
    if name == "decimal128":
        return DeclaredType("decimal", precision=arrow_type.precision, scale=arrow_type.scale)
    if name not in _ARROW:
        raise ConfigError(f"there is no Flink type for Arrow's {arrow_type}; cast it.")
    return leaf(_ARROW[name])


# ---------------------------------------------------------------------------------- Python


def _python(python_type: Any, place: _Place) -> DeclaredType:
    origin, arguments = typing.get_origin(python_type), typing.get_args(python_type)
    if origin in (typing.Union, types.UnionType):
        rest = [each for each in arguments if each is not type(None)]
        if len(rest) == 1 and len(arguments) == 2:
            return DeclaredType("nullable", (_declared(rest[0], place.inner()),))
    if python_type is datetime.datetime:
        raise ConfigError(
            "datetime is ambiguous; write 'timestamp' for a moment, whose values have a time zone, "
            "or 'timestamp_ntz' for a date and time without one."
        )
    if isinstance(python_type, type) and python_type in _PYTHON:
        return leaf(_PYTHON[python_type])
    if isinstance(python_type, type) and dataclasses.is_dataclass(python_type):
        hints = typing.get_type_hints(python_type)
        return _struct(
            [
                (field.name, _without_null(_declared(hints[field.name], place.inner())))
                for field in dataclasses.fields(python_type)
            ],
            made=python_type,
        )
    parts = tuple(each for each in arguments if each is not Ellipsis)
    if origin in (list, dict, set, tuple) and len(parts) == len(arguments):
        names = {list: "array", dict: "map", set: "set", tuple: "tuple"}
        return DeclaredType(names[origin], tuple(_declared(each, place.inner()) for each in parts))
    raise ConfigError(f"expected {FORMS}, got {_shown(python_type)}.")


def _without_null(declared: DeclaredType) -> DeclaredType:
    """Removes ``nullable`` from the type of a field: fields of a row may always be null."""
    return declared.parts[0] if declared.name == "nullable" else declared


# ----------------------------------------------------------------------------------- Flink


_LEAVES: dict[str, AnySerializer] = {
    "void": Types.VOID,
    "boolean": Types.BOOLEAN,
    "byte": Types.BYTE,
    "short": Types.SHORT,
    "int": Types.INT,
    "long": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "char": Types.CHAR,
    "string": Types.STRING,
    "biginteger": Types.BIG_INT,
    "decimal": Types.BIG_DEC,
    "java.util.date": Types.DATE,
    "java.sql.date": Types.SQL_DATE,
    "java.sql.time": Types.SQL_TIME,
    "java.sql.timestamp": Types.SQL_TIMESTAMP,
    "timestamp": Types.INSTANT,
    "date": Types.LOCAL_DATE,
    "time": Types.LOCAL_TIME,
    "timestamp_ntz": Types.LOCAL_DATE_TIME,
    "binary": Types.BYTES,
    "string[]": Types.STRING_ARRAY,
}
_COMPOSITES: dict[str, Callable[..., AnySerializer]] = {
    "array": Types.LIST,
    "map": Types.MAP,
    "struct": Types.ROW,
    "row": Types.ROW,
    "tuple": Types.TUPLE,
    "set": Types.SET,
    "either": Types.EITHER,
    "nullable": Types.NULLABLE,
}


def flink_type(declared: DeclaredType) -> AnySerializer:
    """The Flink type of a declared type.

    Raises:
        ConfigError: The declared type has too many or too few parts.
    """
    if declared.flink is not None:
        return declared.flink
    if declared.name in _LEAVES:
        return _LEAVES[declared.name]
    try:
        return _COMPOSITES[declared.name](*(flink_type(each) for each in declared.parts))
    except TypeError:
        raise ConfigError(
            f"the type {declared.name} does not have {len(declared.parts)} parts."
        ) from None


def parse_type(text: str) -> AnySerializer:
    """The Flink type of a text: ``string``, ``bigint``, ``tuple<string, long>``, ...

    Raises:
        ConfigError: The text is not a type.
    """
    return flink_type(parse_type_text(text))
