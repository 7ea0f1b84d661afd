"""Types under the names of Flink's ``Types``; ``codec.declared_type`` accepts all other forms."""

from __future__ import annotations

from typing import Any

from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.serializers.arrays import (
    BytePrimitiveArraySerializer,
    GenericArraySerializer,
    StringArraySerializer,
)
from dstl_core.codec.serializers.base import AnySerializer, TypeSerializer
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
from dstl_core.codec.serializers.table_types import RowDataSerializer, row_data_of
from dstl_core.errors import ConfigError


class Types:
    """The types, under the names of Flink's ``Types``."""

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
        _check_parts("LIST", element)
        return ListSerializer(element)

    @staticmethod
    def SET(element: AnySerializer) -> SetSerializer:
        _check_parts("SET", element)
        return SetSerializer(element)

    @staticmethod
    def MAP(key: AnySerializer, value: AnySerializer) -> MapSerializer:
        _check_parts("MAP", key, value)
        return MapSerializer(key, value)

    @staticmethod
    def TUPLE(*fields: AnySerializer) -> TupleSerializer | Tuple0Serializer:
        _check_parts("TUPLE", *fields)
        return TupleSerializer(fields) if fields else Tuple0Serializer()

    @staticmethod
    def ROW(*fields: AnySerializer) -> RowSerializer:
        _check_parts("ROW", *fields)
        return RowSerializer(fields)

    @staticmethod
    def EITHER(left: AnySerializer, right: AnySerializer) -> EitherSerializer:
        _check_parts("EITHER", left, right)
        return EitherSerializer(left, right)

    @staticmethod
    def ENUM(enum_class: str, *constants: str) -> EnumSerializer:
        return EnumSerializer(enum_class, constants)

    @staticmethod
    def NULLABLE(inner: AnySerializer) -> NullableSerializer:
        _check_parts("NULLABLE", inner)
        return NullableSerializer(inner)

    @staticmethod
    def POJO(pojo_class: str, **fields: AnySerializer) -> PojoSerializer:
        """A POJO, by its Java class name and the fields that this class declares.

        In Flink 2, fields that are lists, sets or maps may be null, and so may their elements and
        keys: ``NULLABLE(LIST(NULLABLE(STRING)))``, ``NULLABLE(MAP(NULLABLE(STRING), LONG))``.
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
        """A row of a SQL job, by the SQL types of its fields.

        Args:
            types: For example ``BIGINT NOT NULL``, ``STRING``, ``DECIMAL(10, 2)``. Take nested
                types from a template savepoint.
        """
        return row_data_of(*types)

    @staticmethod
    def OBJECT_ARRAY(component_class: str, component: AnySerializer) -> GenericArraySerializer:
        return GenericArraySerializer(component_class, component)


def _check_parts(name: str, *parts: Any) -> None:
    """Raises ConfigError if a part of a type is no Flink type."""
    for part in parts:
        if not isinstance(part, TypeSerializer):
            raise ConfigError(
                f"A part of Types.{name} is wrong: expected a Flink type such as Types.LONG, got "
                f"{part!r}; write all of the type as text, such as 'array<bigint>', or all of it "
                f"with Types."
            )


def _field_key(pojo_class: str, name: str) -> bytes:
    """The name of a field in a POJO's snapshot: the declaring class and the field name."""
    out = DataOutput()
    out.write_utf(pojo_class)
    out.write_utf(name)
    return out.to_bytes()
