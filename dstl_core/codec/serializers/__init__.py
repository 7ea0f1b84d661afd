"""Type serializers: one module a family, each with snapshots, values, hashes and text form.

``BUILT_IN`` is the registry of all of them, ``Types`` the short names for people.
"""

from __future__ import annotations

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    JsonValue,
    SerializerRegistry,
    SnapshotContext,
    SnapshotReader,
    TypeSerializer,
    check_snapshot_version,
    deserialize_exactly,
    serialize_to_bytes,
    write_snapshot,
)
from dstl_core.codec.serializers.collections import (
    ListSerializer,
    MapSerializer,
    TupleSerializer,
    read_list_snapshot,
    read_map_snapshot,
    read_tuple_snapshot,
)
from dstl_core.codec.serializers.primitives import (
    BooleanSerializer,
    ByteSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from dstl_core.codec.serializers.runtime import (
    TimerSerializer,
    TimeWindowSerializer,
    TtlSerializer,
    VoidNamespaceSerializer,
    read_timer_snapshot,
    read_ttl_snapshot,
)
from dstl_core.codec.serializers.strings import StringSerializer

__all__ = [
    "BUILT_IN",
    "AnySerializer",
    "JsonValue",
    "ListSerializer",
    "MapSerializer",
    "SerializerRegistry",
    "SnapshotContext",
    "TimerSerializer",
    "TtlSerializer",
    "TupleSerializer",
    "TypeSerializer",
    "Types",
    "VoidNamespaceSerializer",
    "deserialize_exactly",
    "serialize_to_bytes",
    "write_snapshot",
]


def _simple(serializer: AnySerializer) -> tuple[str, SnapshotReader]:
    """The reader of a snapshot without payload."""

    def read(data: DataInput, version: int, context: SnapshotContext) -> AnySerializer:
        check_snapshot_version(data, type(serializer), version)
        return serializer

    return serializer.snapshot_class, read


BUILT_IN = SerializerRegistry(
    dict(
        [
            _simple(BooleanSerializer()),
            _simple(ByteSerializer()),
            _simple(ShortSerializer()),
            _simple(IntSerializer()),
            _simple(LongSerializer()),
            _simple(FloatSerializer()),
            _simple(DoubleSerializer()),
            _simple(StringSerializer()),
            _simple(VoidNamespaceSerializer()),
            _simple(TimeWindowSerializer()),
            (ListSerializer.snapshot_class, read_list_snapshot),
            (MapSerializer.snapshot_class, read_map_snapshot),
            (TupleSerializer.snapshot_class, read_tuple_snapshot),
            (TimerSerializer.snapshot_class, read_timer_snapshot),
            (TtlSerializer.snapshot_class, read_ttl_snapshot),
        ]
    )
)


class Types:
    """The types by the names of Flink's ``Types``."""

    BOOLEAN = BooleanSerializer()
    BYTE = ByteSerializer()
    SHORT = ShortSerializer()
    INT = IntSerializer()
    LONG = LongSerializer()
    FLOAT = FloatSerializer()
    DOUBLE = DoubleSerializer()
    STRING = StringSerializer()

    @staticmethod
    def LIST(element: AnySerializer) -> ListSerializer:
        return ListSerializer(element)

    @staticmethod
    def MAP(key: AnySerializer, value: AnySerializer) -> MapSerializer:
        return MapSerializer(key, value)

    @staticmethod
    def TUPLE(*fields: AnySerializer) -> TupleSerializer:
        return TupleSerializer(fields)
