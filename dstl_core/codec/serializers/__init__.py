"""Type serializers: one module for each family, with snapshots, values, hashes and text form.

``BUILT_IN`` is the registry of all of them. ``Types`` has short names for use in code.
"""

from __future__ import annotations

from dstl_core.codec.serializers import (
    arrays,
    avro,
    collections,
    dates,
    numbers,
    opaque,
    pojo,
    primitives,
    runtime,
    scala,
    strings,
    structs,
    table_state,
    table_types,
    value_classes,
    window_types,
)
from dstl_core.codec.serializers.base import (
    AnySerializer,
    JsonValue,
    OpaqueValue,
    SerializerRegistry,
    SnapshotContext,
    SnapshotReader,
    TypeSerializer,
    UnknownSerializer,
    deserialize_bounded,
    deserialize_exactly,
    key_groups_of,
    opaque_text,
    serialize_key,
    serialize_to_bytes,
    value_text,
    write_snapshot,
)
from dstl_core.codec.serializers.collections import ListSerializer, MapSerializer, TupleSerializer
from dstl_core.codec.serializers.libraries import (
    flink_scala_api,
    flink_scala_types,
    roaring_bitmap,
)
from dstl_core.codec.serializers.names import Types
from dstl_core.codec.serializers.operators import (
    cep,
    sequenced_multiset,
    two_phase_commit,
)
from dstl_core.codec.serializers.runtime import (
    TimerSerializer,
    TtlSerializer,
    VoidNamespaceSerializer,
)

__all__ = [
    "BUILT_IN",
    "AnySerializer",
    "JsonValue",
    "ListSerializer",
    "MapSerializer",
    "OpaqueValue",
    "SerializerRegistry",
    "SnapshotContext",
    "SnapshotReader",
    "TimerSerializer",
    "TtlSerializer",
    "TupleSerializer",
    "TypeSerializer",
    "Types",
    "UnknownSerializer",
    "VoidNamespaceSerializer",
    "deserialize_bounded",
    "deserialize_exactly",
    "key_groups_of",
    "opaque_text",
    "serialize_key",
    "serialize_to_bytes",
    "value_text",
    "write_snapshot",
]

BUILT_IN = SerializerRegistry(
    primitives.READERS
    | strings.READERS
    | numbers.READERS
    | dates.READERS
    | arrays.READERS
    | collections.READERS
    | structs.READERS
    | value_classes.READERS
    | pojo.READERS
    | opaque.READERS
    | window_types.READERS
    | runtime.READERS
    | table_types.READERS
    | table_state.READERS
    | avro.READERS
    | cep.READERS
    | sequenced_multiset.READERS
    | two_phase_commit.READERS
    | scala.READERS
    | flink_scala_api.READERS
    | flink_scala_types.READERS
    | roaring_bitmap.READERS
)
