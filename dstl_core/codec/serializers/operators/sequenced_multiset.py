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
from typing import Any, ClassVar, NamedTuple

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    JsonValue,
    SnapshotContext,
    SnapshotReader,
    TypeSerializer,
    check_snapshot_version,
    check_version,
    simple_reader,
    write_composite_header,
    write_nested,
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
class _SqnSerializer(TypeSerializer[SqnRange]):
    """Two i64."""

    parts: tuple[AnySerializer, ...]
    names: ClassVar[tuple[str, str]]
    length: ClassVar[int] = 16

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return self.parts

    def serialize(self, value: SqnRange, out: DataOutput) -> None:
        for serializer, number in zip(self.parts, value, strict=True):
            serializer.serialize(number, out)

    def deserialize(self, data: DataInput) -> SqnRange:
        return SqnRange(*(each.deserialize(data) for each in self.parts))

    def write_snapshot_payload(self, out: DataOutput) -> None:
        write_composite_header(out, 0)
        write_nested(out, self.parts)

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
class SqnNodeSerializer(TypeSerializer[SqnNode]):
    """Row, number, numbers of the previous row, the next row and the next equal row, timestamp."""

    parts: tuple[AnySerializer, ...]
    snapshot_class: ClassVar[str] = _LINKED + "NodeSerializer$NodeSerializerSnapshot"

    @property
    def type_name(self) -> str:
        return f"Node<{self.parts[0].type_name}>"

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return self.parts

    def serialize(self, value: SqnNode, out: DataOutput) -> None:
        for serializer, part in zip(self.parts, value, strict=True):
            serializer.serialize(part, out)

    def deserialize(self, data: DataInput) -> SqnNode:
        return SqnNode(*(each.deserialize(data) for each in self.parts))

    def write_snapshot_payload(self, out: DataOutput) -> None:
        write_composite_header(out, 0)
        write_nested(out, self.parts)

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
class RowDataKeySerializer(TypeSerializer[Any]):
    """A row. Its snapshot has the Java objects that compare and hash rows, each after its length,
    and then the snapshot of the row.
    """

    row: AnySerializer
    objects: tuple[bytes, bytes] = field(compare=False, repr=False)
    snapshot_class: ClassVar[str] = _LINKED + "RowDataKeySerializerSnapshot"
    snapshot_version: ClassVar[int] = 0

    @property
    def type_name(self) -> str:
        return self.row.type_name

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return (self.row,)

    def serialize(self, value: Any, out: DataOutput) -> None:
        self.row.serialize(value, out)

    def deserialize(self, data: DataInput) -> Any:
        return self.row.deserialize(data)

    def write_snapshot_payload(self, out: DataOutput) -> None:
        for raw in self.objects:
            out.write_i32(len(raw))
            out.write_bytes(raw)
        write_snapshot(out, self.row)

    def to_text(self, value: Any) -> JsonValue:
        return self.row.to_text(value)


def _read_row_key(data: DataInput, version: int, context: SnapshotContext) -> RowDataKeySerializer:
    check_snapshot_version(data, RowDataKeySerializer, version)
    equaliser = data.read_bytes(data.read_length("equaliser size"), "equaliser")
    hasher = data.read_bytes(data.read_length("hash function size"), "hash function")
    return RowDataKeySerializer(context.read_snapshot(data), (equaliser, hasher))


def _composite(kind: Any, parts: int) -> tuple[str, SnapshotReader]:
    def read(data: DataInput, version: int, context: SnapshotContext) -> AnySerializer:
        check_version(data, kind.snapshot_class, version, 3)
        composite: AnySerializer = kind(tuple(context.read_composite(data, 0, parts)))
        return composite

    return kind.snapshot_class, read


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


READERS: dict[str, SnapshotReader] = dict(
    [
        simple_reader(SortedLongSerializer()),
        _composite(MetaSqnInfoSerializer, 2),
        _composite(RowSqnInfoSerializer, 2),
        _composite(SqnNodeSerializer, 6),
    ]
)
READERS[RowDataKeySerializer.snapshot_class] = _read_row_key
