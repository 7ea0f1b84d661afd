"""State of SQL's sink materializer with the strategies MAP and ADAPTIVE.

    highestSqnState   VALUE  MetaSqnInfo
    rowToSqnState     MAP    RowDataKey -> RowSqnInfo
    sqnToNodeState    MAP    Long -> Node, which forms a doubly linked list

Source: ``org.apache.flink.table.runtime.sequencedmultisetstate.linked`` of Flink 2.2.1. The
    snapshot of
a key row has two Java objects, which compare and hash rows; their bytes are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    CompositeSerializer,
    JsonValue,
    SnapshotContext,
    TypeSerializer,
    WrapperSerializer,
    read_composite_header,
    readers_of,
    write_snapshot,
)
from dstl_core.codec.serializers.primitives import long_java_hash

_SIGN = -(1 << 63)
_LINKED = "org.apache.flink.table.runtime.sequencedmultisetstate.linked."


class SqnRange(NamedTuple):
    """Two numbers; the serializer gives their meaning."""

    first: int
    second: int


@dataclass(frozen=True)
class _RecordSerializer(CompositeSerializer[Any]):
    """The fields of a ``value_class``, one after the other."""

    parts: tuple[AnySerializer, ...]
    value_class: ClassVar[Any]
    outer_version = 0

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return self.parts

    def serialize(self, value: Any, out: DataOutput) -> None:
        for serializer, part in zip(self.parts, value, strict=True):
            serializer.serialize(part, out)

    def deserialize(self, data: DataInput) -> Any:
        return self.value_class(*(each.deserialize(data) for each in self.parts))

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        read_composite_header(data, cls.outer_version)
        return cls(tuple(context.read_nested(data, len(cls.value_class._fields))))


@dataclass(frozen=True)
class _SqnSerializer(_RecordSerializer):
    """Two i64."""

    names: ClassVar[tuple[str, str]]
    value_class: ClassVar[Any] = SqnRange
    length: ClassVar[int] = 16

    def to_text(self, value: SqnRange) -> JsonValue:
        return dict(zip(self.names, value, strict=True))


@dataclass(frozen=True)
class MetaSqnInfoSerializer(_SqnSerializer):
    """The highest number in use, and the number of rows."""

    names: ClassVar[tuple[str, str]] = ("highest", "size")
    snapshot_class: ClassVar[str] = _LINKED + "MetaSqnInfoSerializer$MetaSqnInfoSerializerSnapshot"
    type_name: ClassVar[str] = "MetaSqnInfo"


@dataclass(frozen=True)
class RowSqnInfoSerializer(_SqnSerializer):
    """The first and the last number of equal rows."""

    names: ClassVar[tuple[str, str]] = ("first", "last")
    snapshot_class: ClassVar[str] = _LINKED + "RowSqnInfoSerializer$RowSqnInfoSerializerSnapshot"
    type_name: ClassVar[str] = "RowSqnInfo"


class SqnNode(NamedTuple):
    """A row of the list. The number of a neighbour is None at an end of the list."""

    row: Any
    number: int
    previous: int | None
    next: int | None
    next_same: int | None
    timestamp: int


@dataclass(frozen=True)
class SqnNodeSerializer(_RecordSerializer):
    """Row, number, numbers of the previous row, the next row and the next equal row, timestamp."""

    value_class: ClassVar[Any] = SqnNode
    snapshot_class: ClassVar[str] = _LINKED + "NodeSerializer$NodeSerializerSnapshot"

    @property
    def type_name(self) -> str:
        return f"Node<{self.parts[0].type_name}>"

    def to_text(self, value: SqnNode) -> JsonValue:
        return {
            "row": self.parts[0].to_text(value.row),
            "number": value.number,
            "previous": value.previous,
            "next": value.next,
            "next_same": value.next_same,
            "ts": value.timestamp,
        }


@dataclass(frozen=True)
class RowDataKeySerializer(WrapperSerializer):
    """A row. Its snapshot has the Java objects that compare and hash rows, each after its length,
    and then the snapshot of the row.
    """

    inner: AnySerializer
    objects: tuple[bytes, bytes] = field(compare=False, repr=False)
    snapshot_class: ClassVar[str] = _LINKED + "RowDataKeySerializerSnapshot"
    snapshot_version: ClassVar[int] = 0

    @property
    def type_name(self) -> str:
        return self.inner.type_name

    def write_snapshot_payload(self, out: DataOutput) -> None:
        for raw in self.objects:
            out.write_sized(raw)
        write_snapshot(out, self.inner)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        equaliser = data.read_bytes(data.read_length("equaliser size"), "equaliser")
        hasher = data.read_bytes(data.read_length("hash function size"), "hash function")
        return cls(context.read_snapshot(data), (equaliser, hasher))


@dataclass(frozen=True)
class SortedLongSerializer(TypeSerializer[int]):
    """8 bytes: the long with its sign bit flipped, so that bytes sort as values.

    Source: ``SortedLongSerializer`` of Flink 2.3.0, whose sink keeps changes by time with it.
    """

    snapshot_class: ClassVar[str] = (
        "org.apache.flink.table.runtime.operators.sink."
        "SortedLongSerializer$SortedLongSerializerSnapshot"
    )
    type_name: ClassVar[str] = "SortedLong"
    length: ClassVar[int] = 8

    def serialize(self, value: int, out: DataOutput) -> None:
        out.write_i64(value ^ _SIGN)

    def deserialize(self, data: DataInput) -> int:
        return data.read_i64("SortedLong") ^ _SIGN

    def java_hash(self, value: int) -> int:
        return long_java_hash(value)


READERS = readers_of(
    SortedLongSerializer,
    MetaSqnInfoSerializer,
    RowSqnInfoSerializer,
    SqnNodeSerializer,
    RowDataKeySerializer,
)
