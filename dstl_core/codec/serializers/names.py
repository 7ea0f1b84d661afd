"""Types by name: ``Types`` for code, ``parse_type`` for the command line."""

from __future__ import annotations

import re
from collections.abc import Callable

from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.serializers.arrays import (
    BytePrimitiveArraySerializer,
    GenericArraySerializer,
    StringArraySerializer,
)
from dstl_core.codec.serializers.base import AnySerializer
from dstl_core.codec.serializers.collections import (
    ListSerializer,
    MapSerializer,
    SetSerializer,
    TupleSerializer,
)
from dstl_core.codec.serializers.dates import (
    DateSerializer,
    InstantSerializer,
    LocalDateSerializer,
    LocalDateTimeSerializer,
    LocalTimeSerializer,
    SqlDateSerializer,
    SqlTimeSerializer,
    SqlTimestampSerializer,
)
from dstl_core.codec.serializers.numbers import BigDecSerializer, BigIntSerializer
from dstl_core.codec.serializers.optional_map import OptionalSnapshot
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.primitives import (
    BooleanSerializer,
    ByteSerializer,
    CharSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
    VoidSerializer,
)
from dstl_core.codec.serializers.strings import StringSerializer
from dstl_core.codec.serializers.structs import (
    EitherSerializer,
    EnumSerializer,
    NullableSerializer,
    RowSerializer,
    Tuple0Serializer,
)
from dstl_core.codec.serializers.table import RowDataSerializer, row_data_of
from dstl_core.errors import ConfigError


class Types:
    """The types by the names of Flink's ``Types``."""

    VOID = VoidSerializer()
    BOOLEAN = BooleanSerializer()
    BYTE = ByteSerializer()
    SHORT = ShortSerializer()
    INT = IntSerializer()
    LONG = LongSerializer()
    FLOAT = FloatSerializer()
    DOUBLE = DoubleSerializer()
    CHAR = CharSerializer()
    STRING = StringSerializer()
    BIG_INT = BigIntSerializer()
    BIG_DEC = BigDecSerializer()
    DATE = DateSerializer()
    SQL_DATE = SqlDateSerializer()
    SQL_TIME = SqlTimeSerializer()
    SQL_TIMESTAMP = SqlTimestampSerializer()
    INSTANT = InstantSerializer()
    LOCAL_DATE = LocalDateSerializer()
    LOCAL_TIME = LocalTimeSerializer()
    LOCAL_DATE_TIME = LocalDateTimeSerializer()
    BYTES = BytePrimitiveArraySerializer()
    STRING_ARRAY = StringArraySerializer()

    @staticmethod
    def LIST(element: AnySerializer) -> ListSerializer:
        return ListSerializer(element)

    @staticmethod
    def SET(element: AnySerializer) -> SetSerializer:
        return SetSerializer(element)

    @staticmethod
    def MAP(key: AnySerializer, value: AnySerializer) -> MapSerializer:
        return MapSerializer(key, value)

    @staticmethod
    def TUPLE(*fields: AnySerializer) -> TupleSerializer | Tuple0Serializer:
        return TupleSerializer(fields) if fields else Tuple0Serializer()

    @staticmethod
    def ROW(*fields: AnySerializer) -> RowSerializer:
        return RowSerializer(fields)

    @staticmethod
    def EITHER(left: AnySerializer, right: AnySerializer) -> EitherSerializer:
        return EitherSerializer(left, right)

    @staticmethod
    def ENUM(enum_class: str, *constants: str) -> EnumSerializer:
        return EnumSerializer(enum_class, constants)

    @staticmethod
    def NULLABLE(inner: AnySerializer) -> NullableSerializer:
        return NullableSerializer(inner)

    @staticmethod
    def POJO(pojo_class: str, **fields: AnySerializer) -> PojoSerializer:
        """A POJO by its Java class name and its fields, which its own class declares. Flink 2 lets
        fields that are lists, sets or maps, and the elements or keys of these, be null:
        ``NULLABLE(LIST(NULLABLE(STRING)))``, ``NULLABLE(MAP(NULLABLE(STRING), LONG))``.
        """
        return PojoSerializer(
            pojo_class,
            tuple(
                OptionalSnapshot(name, _field_key(pojo_class, name), fields[name])
                for name in sorted(fields)
            ),
        )

    @staticmethod
    def ROW_DATA(*types: str) -> RowDataSerializer:
        """A row of a SQL job by the SQL types of its fields, e.g. ``BIGINT NOT NULL``, ``STRING``,
        ``DECIMAL(10, 2)``. Nested types come from a template savepoint.
        """
        return row_data_of(*types)

    @staticmethod
    def OBJECT_ARRAY(component_class: str, component: AnySerializer) -> GenericArraySerializer:
        return GenericArraySerializer(component_class, component)


def _field_key(pojo_class: str, name: str) -> bytes:
    """How a POJO's snapshot names a field: the declaring class and the name."""
    out = DataOutput()
    out.write_utf(pojo_class)
    out.write_utf(name)
    return out.to_bytes()


_SIMPLE: dict[str, AnySerializer] = {
    "boolean": Types.BOOLEAN,
    "byte": Types.BYTE,
    "short": Types.SHORT,
    "int": Types.INT,
    "long": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "char": Types.CHAR,
    "string": Types.STRING,
    "bigint": Types.BIG_INT,
    "bigdec": Types.BIG_DEC,
    "date": Types.DATE,
    "instant": Types.INSTANT,
    "localdate": Types.LOCAL_DATE,
    "localtime": Types.LOCAL_TIME,
    "localdatetime": Types.LOCAL_DATE_TIME,
    "bytes": Types.BYTES,
}
_COMPOSITE: dict[str, Callable[..., AnySerializer]] = {
    "tuple": Types.TUPLE,
    "row": Types.ROW,
    "list": Types.LIST,
    "set": Types.SET,
    "map": Types.MAP,
    "either": Types.EITHER,
    "nullable": Types.NULLABLE,
}
_TOKEN = re.compile(r"\s*([a-z]+|[<>,])")
_MAX_DEPTH = 32


def parse_type(text: str) -> AnySerializer:
    """A type from its name: ``string``, ``long``, ``tuple<string,long>``, ``list<int>``, ..

    Raises:
        ConfigError: The text names no such type; lists those that there are.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise _no_type(text)
    serializer, end = _parse(tokens, 0, text, 0)
    if end != len(tokens):
        raise _no_type(text)
    return serializer


def _parse(tokens: list[str], at: int, text: str, depth: int) -> tuple[AnySerializer, int]:
    name = tokens[at] if at < len(tokens) else ""
    if name in _SIMPLE:
        return _SIMPLE[name], at + 1
    if name not in _COMPOSITE or tokens[at + 1 : at + 2] != ["<"] or depth > _MAX_DEPTH:
        raise _no_type(text)
    parts, at = [], at + 1
    while tokens[at : at + 1] in (["<"], [","]):
        part, at = _parse(tokens, at + 1, text, depth + 1)
        parts.append(part)
    if tokens[at : at + 1] != [">"]:
        raise _no_type(text)
    try:
        return _COMPOSITE[name](*parts), at + 1
    except TypeError:
        raise _no_type(text) from None


def _no_type(text: str) -> ConfigError:
    return ConfigError(
        f"Not a type: expected one of {', '.join(sorted(_SIMPLE))}, or "
        f"{', '.join(f'{name}<..>' for name in sorted(_COMPOSITE))}, got {text!r}."
    )
