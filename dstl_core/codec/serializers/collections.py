"""Lists, sets, maps and tuples.

Source: ``ListSerializer``, ``ArrayListSerializer``, ``SetSerializer``, ``MapSerializer`` and
``TupleSerializer`` of Flink 2.2.1 with their snapshot classes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    CompositeSerializer,
    JsonValue,
    SnapshotContext,
    combine_java_hash,
    read_composite_header,
    readers_of,
)
from dstl_core.errors import ConfigError, FormatError

_BASE = "org.apache.flink.api.common.typeutils.base."
_TUPLE_CLASS = "org.apache.flink.api.java.tuple.Tuple"


def text_key(value: JsonValue) -> bytes:
    """Sort key of map entries and set elements in text form.

    The order is that of their JSON texts, compared by UTF-16 code units as in Java, with numbers as
    Java prints them.
    """
    return _json_text(value).encode("utf-16-be", "surrogatepass")


def _json_text(value: JsonValue) -> str:
    if isinstance(value, float):
        return java_double_text(value)
    if isinstance(value, list):
        return f"[{','.join(_json_text(item) for item in value)}]"
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)}:{_json_text(item)}" for key, item in sorted(value.items()))
        return f"{{{','.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=False)


def java_double_text(value: float) -> str:
    """The text that ``Double.toString`` returns for a finite number."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return text if "e" not in text else f"{value:f}"
    mantissa, exponent = f"{value!r}".lower().partition("e")[::2]
    sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    whole, _, fraction = digits.partition(".")
    power = int(exponent or 0)
    if whole.strip("0"):
        power += len(whole) - 1
        all_digits = whole + fraction
    else:
        power -= len(fraction) - len(fraction.lstrip("0")) + 1
        all_digits = fraction.lstrip("0")
    all_digits = all_digits.rstrip("0") or "0"
    return f"{sign}{all_digits[0]}.{all_digits[1:] or '0'}E{power}"


@dataclass(frozen=True)
class ListSerializer(CompositeSerializer[list[Any]]):
    """i32 count, then the elements."""

    element: AnySerializer
    snapshot_class: ClassVar[str] = _BASE + "ListSerializerSnapshot"
    kind: ClassVar[str] = "List"
    part_names: ClassVar[tuple[str, ...]] = ("element",)

    def serialize(self, value: list[Any], out: DataOutput) -> None:
        out.write_i32(len(value))
        for item in value:
            self.element.serialize(item, out)

    def deserialize(self, data: DataInput) -> list[Any]:
        count = data.read_count("list size", max(1, self.element.length))
        return [self.element.deserialize(data) for _ in range(count)]

    def java_hash(self, value: list[Any]) -> int:
        return combine_java_hash([self.element.java_hash(item) for item in value])

    def to_text(self, value: list[Any]) -> JsonValue:
        return [self.element.to_text(item) for item in value]


@dataclass(frozen=True)
class ArrayListSerializer(ListSerializer):
    """The list type of Flink's runtime. Its bytes equal those of a list."""

    snapshot_class: ClassVar[str] = "org.apache.flink.runtime.state.ArrayListSerializerSnapshot"
    kind: ClassVar[str] = "ArrayList"


@dataclass(frozen=True)
class SetSerializer(CompositeSerializer[list[Any]]):
    """i32 count, then ``bool is_null, [element]``.

    A value is a list without duplicates, in the order of the bytes.
    """

    element: AnySerializer
    snapshot_class: ClassVar[str] = _BASE + "SetSerializerSnapshot"
    kind: ClassVar[str] = "Set"
    part_names: ClassVar[tuple[str, ...]] = ("element",)

    def serialize(self, value: list[Any], out: DataOutput) -> None:
        out.write_i32(len(value))
        for item in value:
            out.write_bool(item is None)
            if item is not None:
                self.element.serialize(item, out)

    def deserialize(self, data: DataInput) -> list[Any]:
        return [
            None if data.read_bool("set element is null") else self.element.deserialize(data)
            for _ in range(data.read_count("set size", 1))
        ]

    def to_text(self, value: list[Any]) -> JsonValue:
        items = [None if item is None else self.element.to_text(item) for item in value]
        return sorted(items, key=text_key)


@dataclass(frozen=True)
class MapSerializer(CompositeSerializer[list[tuple[Any, Any]]]):
    """i32 count, then ``key, bool is_null, [value]``.

    A value is a list of pairs, since keys of Flink may not be hashable in Python.
    """

    key: AnySerializer
    value: AnySerializer
    snapshot_class: ClassVar[str] = _BASE + "MapSerializerSnapshot"
    kind: ClassVar[str] = "Map"
    part_names: ClassVar[tuple[str, ...]] = ("key", "value")

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

    def to_text(self, value: list[tuple[Any, Any]]) -> JsonValue:
        pairs = [
            [self.key.to_text(key), None if item is None else self.value.to_text(item)]
            for key, item in value
        ]
        return sorted(pairs, key=lambda pair: text_key(pair[0]))


@dataclass(frozen=True)
class TupleSerializer(CompositeSerializer[tuple[Any, ...]]):
    """Fields without gaps; a field may be null only if its type allows null."""

    fields: tuple[AnySerializer, ...]
    snapshot_class: ClassVar[str] = (
        "org.apache.flink.api.java.typeutils.runtime.TupleSerializerSnapshot"
    )
    outer_version = 2

    def __post_init__(self) -> None:
        if not self.fields:
            raise ConfigError("A tuple type needs at least one field.")

    @property
    def type_name(self) -> str:
        inner = ", ".join(field.type_name for field in self.fields)
        return f"Tuple{len(self.fields)}<{inner}>"

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return self.fields

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

    def write_outer_fields(self, out: DataOutput) -> None:
        out.write_utf(f"{_TUPLE_CLASS}{len(self.fields)}")

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        read_composite_header(data, 2)
        at = data.position
        name = data.read_utf("tuple class")
        fields: Sequence[AnySerializer] = context.read_nested(data)
        if not fields or name != f"{_TUPLE_CLASS}{len(fields)}":
            raise FormatError(
                "The class of a tuple does not fit its number of fields",
                offset=at,
                expected=f"{_TUPLE_CLASS}{len(fields)}",
                got=name,
            )
        return cls(tuple(fields))

    def java_hash(self, value: tuple[Any, ...]) -> int:
        hashes = [
            0 if item is None else field.java_hash(item)
            for field, item in zip(self.fields, value, strict=True)
        ]
        return combine_java_hash(hashes[1:], hashes[0])

    def to_text(self, value: tuple[Any, ...]) -> JsonValue:
        return [field.to_text(item) for field, item in zip(self.fields, value, strict=True)]


READERS = readers_of(
    ListSerializer, ArrayListSerializer, SetSerializer, MapSerializer, TupleSerializer
)
