"""Lists, maps and tuples.

Source: ``ListSerializer``, ``MapSerializer`` and ``TupleSerializer`` of Flink 2.2.1 with their
snapshot classes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    JsonValue,
    SnapshotContext,
    TypeSerializer,
    check_snapshot_version,
    combine_java_hash,
    read_composite_header,
    write_composite_header,
    write_nested,
)
from dstl_core.errors import ConfigError, FormatError

_BASE = "org.apache.flink.api.common.typeutils.base."
_TUPLE_CLASS = "org.apache.flink.api.java.tuple.Tuple"


def text_key(value: JsonValue) -> str:
    """The order of map entries and set elements in text form."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True)
class ListSerializer(TypeSerializer[list[Any]]):
    """i32 count, then the elements."""

    element: AnySerializer
    snapshot_class: ClassVar[str] = _BASE + "ListSerializerSnapshot"

    @property
    def type_name(self) -> str:
        return f"List<{self.element.type_name}>"

    def serialize(self, value: list[Any], out: DataOutput) -> None:
        out.write_i32(len(value))
        for item in value:
            self.element.serialize(item, out)

    def deserialize(self, data: DataInput) -> list[Any]:
        count = data.read_count("list size", max(1, self.element.length))
        return [self.element.deserialize(data) for _ in range(count)]

    def write_snapshot_payload(self, out: DataOutput) -> None:
        write_composite_header(out, 1)
        write_nested(out, [self.element])

    def java_hash(self, value: list[Any]) -> int:
        return combine_java_hash([self.element.java_hash(item) for item in value])

    def to_text(self, value: list[Any]) -> JsonValue:
        return [self.element.to_text(item) for item in value]


def read_list_snapshot(data: DataInput, version: int, context: SnapshotContext) -> ListSerializer:
    check_snapshot_version(data, ListSerializer, version)
    return ListSerializer(*context.read_composite(data, 1, 1))


@dataclass(frozen=True)
class MapSerializer(TypeSerializer[list[tuple[Any, Any]]]):
    """i32 count, then ``key, bool is_null, [value]``. A value is a list of pairs, since a Flink
    key need not be hashable in Python.
    """

    key: AnySerializer
    value: AnySerializer
    snapshot_class: ClassVar[str] = _BASE + "MapSerializerSnapshot"

    @property
    def type_name(self) -> str:
        return f"Map<{self.key.type_name}, {self.value.type_name}>"

    def serialize(self, value: list[tuple[Any, Any]], out: DataOutput) -> None:
        out.write_i32(len(value))
        for key, item in value:
            self.key.serialize(key, out)
            out.write_bool(item is None)
            if item is not None:
                self.value.serialize(item, out)

    def deserialize(self, data: DataInput) -> list[tuple[Any, Any]]:
        pairs: list[tuple[Any, Any]] = []
        for _ in range(data.read_count("map size", 1)):
            key = self.key.deserialize(data)
            is_null = data.read_bool("map value is null")
            pairs.append((key, None if is_null else self.value.deserialize(data)))
        return pairs

    def write_snapshot_payload(self, out: DataOutput) -> None:
        write_composite_header(out, 1)
        write_nested(out, [self.key, self.value])

    def to_text(self, value: list[tuple[Any, Any]]) -> JsonValue:
        pairs = [
            [self.key.to_text(key), None if item is None else self.value.to_text(item)]
            for key, item in value
        ]
        return sorted(pairs, key=lambda pair: text_key(pair[0]))


def read_map_snapshot(data: DataInput, version: int, context: SnapshotContext) -> MapSerializer:
    check_snapshot_version(data, MapSerializer, version)
    return MapSerializer(*context.read_composite(data, 1, 2))


@dataclass(frozen=True)
class TupleSerializer(TypeSerializer[tuple[Any, ...]]):
    """Fields back to back; no field may be null unless its type allows it."""

    fields: tuple[AnySerializer, ...]
    snapshot_class: ClassVar[str] = (
        "org.apache.flink.api.java.typeutils.runtime.TupleSerializerSnapshot"
    )

    def __post_init__(self) -> None:
        if not self.fields:
            raise ConfigError("A tuple type needs at least one field.")

    @property
    def type_name(self) -> str:
        inner = ", ".join(field.type_name for field in self.fields)
        return f"Tuple{len(self.fields)}<{inner}>"

    @property
    def length(self) -> int:
        lengths = [field.length for field in self.fields]
        return -1 if min(lengths) < 0 else sum(lengths)

    def serialize(self, value: tuple[Any, ...], out: DataOutput) -> None:
        if len(value) != len(self.fields):
            raise TypeError(f"expected {len(self.fields)} fields, got {len(value)}")
        for field, item in zip(self.fields, value, strict=True):
            field.serialize(item, out)

    def deserialize(self, data: DataInput) -> tuple[Any, ...]:
        return tuple(field.deserialize(data) for field in self.fields)

    def write_snapshot_payload(self, out: DataOutput) -> None:
        write_composite_header(out, 2)
        out.write_utf(f"{_TUPLE_CLASS}{len(self.fields)}")
        write_nested(out, self.fields)

    def java_hash(self, value: tuple[Any, ...]) -> int:
        hashes = [
            0 if item is None else field.java_hash(item)
            for field, item in zip(self.fields, value, strict=True)
        ]
        return combine_java_hash(hashes[1:], hashes[0])

    def to_text(self, value: tuple[Any, ...]) -> JsonValue:
        return [field.to_text(item) for field, item in zip(self.fields, value, strict=True)]


def read_tuple_snapshot(data: DataInput, version: int, context: SnapshotContext) -> TupleSerializer:
    check_snapshot_version(data, TupleSerializer, version)
    read_composite_header(data, 2)
    at = data.position
    name = data.read_utf("tuple class")
    fields: Sequence[AnySerializer] = context.read_nested(data)
    if not fields or name != f"{_TUPLE_CLASS}{len(fields)}":
        raise FormatError(
            "A tuple's class and its fields do not fit",
            offset=at,
            expected=f"{_TUPLE_CLASS}{len(fields)}",
            got=name,
        )
    return TupleSerializer(tuple(fields))
