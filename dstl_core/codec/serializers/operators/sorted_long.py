"""A long whose bytes sort as its value: Flink 2.3's sink keeps changes by time with it.

Source: ``SortedLongSerializer`` of Flink 2.3.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import SnapshotReader, TypeSerializer, simple_reader
from dstl_core.codec.serializers.primitives import long_java_hash

_SIGN = -(1 << 63)


@dataclass(frozen=True)
class SortedLongSerializer(TypeSerializer[int]):
    """8 bytes: the long with its sign bit flipped."""

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


READERS: dict[str, SnapshotReader] = dict([simple_reader(SortedLongSerializer())])
