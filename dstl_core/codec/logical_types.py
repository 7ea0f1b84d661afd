"""SQL's logical types, read from the Java objects in serializer snapshots.

Source: ``org.apache.flink.table.types.logical`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.codec.java_stream import JavaObject, JavaValue, java_list
from dstl_core.errors import FormatError

_PACKAGE = "org.apache.flink.table.types.logical."
_MAX_NESTING = 50

# Class name without package and without "Type": name of the SQL type.
_NAMES = {
    "Char": "CHAR",
    "VarChar": "VARCHAR",
    "Boolean": "BOOLEAN",
    "Binary": "BINARY",
    "VarBinary": "VARBINARY",
    "Decimal": "DECIMAL",
    "TinyInt": "TINYINT",
    "SmallInt": "SMALLINT",
    "Int": "INT",
    "BigInt": "BIGINT",
    "Float": "FLOAT",
    "Double": "DOUBLE",
    "Date": "DATE",
    "Time": "TIME",
    "Timestamp": "TIMESTAMP",
    "ZonedTimestamp": "TIMESTAMP_TZ",
    "LocalZonedTimestamp": "TIMESTAMP_LTZ",
    "YearMonthInterval": "INTERVAL_YEAR_MONTH",
    "DayTimeInterval": "INTERVAL_DAY_TIME",
    "Array": "ARRAY",
    "Multiset": "MULTISET",
    "Map": "MAP",
    "Row": "ROW",
    "Structured": "ROW",
    "Null": "NULL",
    "Raw": "RAW",
    "TypeInformationRaw": "RAW",
    "Symbol": "RAW",
    "Variant": "VARIANT",
}


@dataclass(frozen=True)
class LogicalType:
    """A SQL type.

    ``root`` is its name; ``children`` are the types of its elements or fields; ``names`` are the
    names of a row's fields.
    """

    root: str
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    length: int = 0
    children: tuple[LogicalType, ...] = ()
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = self.root
        if self.root in ("CHAR", "VARCHAR", "BINARY", "VARBINARY"):
            text += f"({self.length})"
        elif self.root == "DECIMAL":
            text += f"({self.precision}, {self.scale})"
        elif self.root in ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_TZ"):
            text += f"({self.precision})"
        elif self.root == "ROW":
            pairs = zip(self.names, self.children, strict=True)
            text += f"<{', '.join(f'`{name}` {child}' for name, child in pairs)}>"
        elif self.children:
            text += f"<{', '.join(str(child) for child in self.children)}>"
        return text if self.nullable else f"{text} NOT NULL"


def logical_type_of(value: JavaValue, depth: int = 0) -> LogicalType:
    """The SQL type that a Java object describes.

    Raises:
        FormatError: The class of the object is not a logical type, or its fields do not fit the
            class.
    """
    if depth > _MAX_NESTING:
        raise FormatError("A SQL type is nested too deeply", expected=f"<= {_MAX_NESTING} levels")
    name = value.name if isinstance(value, JavaObject) else type(value).__name__
    short = name.removeprefix(_PACKAGE).removesuffix("Type")
    if not isinstance(value, JavaObject) or not name.startswith(_PACKAGE):
        raise FormatError("A SQL type is of an unknown class", expected="LogicalType", got=name)
    nullable = value.fields.get("isNullable") is not False
    if short == "Distinct":
        source = logical_type_of(value.fields.get("sourceType"), depth + 1)
        return source
    if short == "LegacyTypeInformation":
        return LogicalType("RAW", nullable)
    root = _NAMES.get(short)
    if root is None:
        raise FormatError("A SQL type is of an unknown class", expected="LogicalType", got=name)
    names, children = _children(root, value, depth)
    return LogicalType(
        root,
        nullable,
        _number(value, "precision"),
        _number(value, "scale"),
        _number(value, "length"),
        children,
        names,
    )


def _children(
    root: str, value: JavaObject, depth: int
) -> tuple[tuple[str, ...], tuple[LogicalType, ...]]:
    fields = value.fields
    if root in ("ARRAY", "MULTISET"):
        return (), (logical_type_of(fields.get("elementType"), depth + 1),)
    if root == "MAP":
        parts = (fields.get("keyType"), fields.get("valueType"))
        return (), tuple(logical_type_of(part, depth + 1) for part in parts)
    if root != "ROW":
        return (), ()
    names, children = [], []
    for java_field in java_list(fields.get("fields", fields.get("attributes"))):
        if not isinstance(java_field, JavaObject) or not isinstance(
            java_field.fields.get("name"), str
        ):
            raise FormatError("A field of a SQL row has no name")
        names.append(java_field.fields["name"])
        children.append(logical_type_of(java_field.fields.get("type"), depth + 1))
    return tuple(names), tuple(children)


def _number(value: JavaObject, field: str) -> int:
    number = value.fields.get(field, 0)
    return number if isinstance(number, int) else 0
