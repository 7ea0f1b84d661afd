"""Windows as namespaces: those of the DataStream API and those of SQL.

Source: ``TimeWindow.Serializer`` and ``GlobalWindow.Serializer`` of
``org.apache.flink.streaming.api.windowing.windows``, and ``TimeWindow.Serializer``,
``GlobalWindow.Serializer`` and ``CountWindow.Serializer`` of
``org.apache.flink.table.runtime.operators.window`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    JsonValue,
    OneByteSerializer,
    TypeSerializer,
    readers_of,
)
from dstl_core.codec.serializers.primitives import LongSerializer

_STREAM = "org.apache.flink.streaming.api.windowing.windows."
_SQL = "org.apache.flink.table.runtime.operators.window."


class TimeWindow(NamedTuple):
    """A range of time in milliseconds; ``end`` is exclusive."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        return self.end - 1


@dataclass(frozen=True)
class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    snapshot_class: ClassVar[str] = _STREAM + "TimeWindow$Serializer$TimeWindowSerializerSnapshot"
    type_name: ClassVar[str] = "TimeWindow"
    length: ClassVar[int] = 16

    def serialize(self, value: TimeWindow, out: DataOutput) -> None:
        out.write_i64(value.start)
        out.write_i64(value.end)

    def deserialize(self, data: DataInput) -> TimeWindow:
        return TimeWindow(data.read_i64("window start"), data.read_i64("window end"))

    def to_text(self, value: TimeWindow) -> JsonValue:
        return [value.start, value.end]


@dataclass(frozen=True)
class SqlTimeWindowSerializer(TimeWindowSerializer):
    snapshot_class: ClassVar[str] = _SQL + "TimeWindow$Serializer$TimeWindowSerializerSnapshot"
    type_name: ClassVar[str] = "SqlTimeWindow"


@dataclass(frozen=True)
class GlobalWindowSerializer(OneByteSerializer[str]):
    """One byte, 0. The value is the text ``global``: there is only one global window."""

    snapshot_class: ClassVar[str] = (
        _STREAM + "GlobalWindow$Serializer$GlobalWindowSerializerSnapshot"
    )
    type_name: ClassVar[str] = "GlobalWindow"
    noun: ClassVar[str] = "global window"
    constant: ClassVar[Any] = "global"


@dataclass(frozen=True)
class SqlGlobalWindowSerializer(GlobalWindowSerializer):
    snapshot_class: ClassVar[str] = _SQL + "GlobalWindow$Serializer$GlobalWindowSerializerSnapshot"
    type_name: ClassVar[str] = "SqlGlobalWindow"


@dataclass(frozen=True)
class CountWindowSerializer(LongSerializer):
    """The number of the window."""

    snapshot_class: ClassVar[str] = _SQL + "CountWindow$Serializer$CountWindowSerializerSnapshot"
    type_name: ClassVar[str] = "CountWindow"


READERS = readers_of(
    TimeWindowSerializer,
    SqlTimeWindowSerializer,
    GlobalWindowSerializer,
    SqlGlobalWindowSerializer,
    CountWindowSerializer,
)
