"""Types that Flink's runtime uses inside state: namespaces, timers, TTL wrappers.

Source: ``VoidNamespaceSerializer``, ``TimeWindow.Serializer``, ``TimerSerializer`` and
``TtlStateFactory.TtlSerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    JsonValue,
    SnapshotContext,
    TypeSerializer,
    check_snapshot_version,
    write_composite_header,
    write_nested,
)
from dstl_core.codec.serializers.primitives import LongSerializer
from dstl_core.errors import FormatError

_SIGN_BIT = 1 << 63


@dataclass(frozen=True)
class VoidNamespaceSerializer(TypeSerializer[None]):
    """One byte 00, although its declared length is 0."""

    snapshot_class: ClassVar[str] = (
        "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot"
    )
    type_name: ClassVar[str] = "VoidNamespace"
    length: ClassVar[int] = 0

    def serialize(self, value: None, out: DataOutput) -> None:
        out.write_u8(0)

    def deserialize(self, data: DataInput) -> None:
        at = data.position
        got = data.read_u8("void namespace")
        if got != 0:
            raise FormatError("A void namespace is not 0", offset=at, expected=0, got=got)


class TimeWindow(NamedTuple):
    """Milliseconds; ``end`` is not inside."""

    start: int
    end: int


@dataclass(frozen=True)
class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    snapshot_class: ClassVar[str] = (
        "org.apache.flink.streaming.api.windowing.windows."
        "TimeWindow$Serializer$TimeWindowSerializerSnapshot"
    )
    type_name: ClassVar[str] = "TimeWindow"
    length: ClassVar[int] = 16

    def serialize(self, value: TimeWindow, out: DataOutput) -> None:
        out.write_i64(value.start)
        out.write_i64(value.end)

    def deserialize(self, data: DataInput) -> TimeWindow:
        return TimeWindow(data.read_i64("window start"), data.read_i64("window end"))

    def to_text(self, value: TimeWindow) -> JsonValue:
        return [value.start, value.end]


class Timer(NamedTuple):
    """A timer of a key; ``timestamp`` in milliseconds."""

    timestamp: int
    key: Any
    namespace: Any


@dataclass(frozen=True)
class TimerSerializer(TypeSerializer[Timer]):
    """i64 timestamp with its sign bit flipped (so that bytes sort by time), key, namespace."""

    key: AnySerializer
    namespace: AnySerializer
    snapshot_class: ClassVar[str] = (
        "org.apache.flink.streaming.api.operators.TimerSerializerSnapshot"
    )

    @property
    def type_name(self) -> str:
        return f"Timer<{self.key.type_name}, {self.namespace.type_name}>"

    def serialize(self, value: Timer, out: DataOutput) -> None:
        flipped = value.timestamp ^ -_SIGN_BIT
        out.write_i64(flipped)
        self.key.serialize(value.key, out)
        self.namespace.serialize(value.namespace, out)

    def deserialize(self, data: DataInput) -> Timer:
        timestamp = data.read_i64("timer timestamp") ^ -_SIGN_BIT
        return Timer(timestamp, self.key.deserialize(data), self.namespace.deserialize(data))

    def write_snapshot_payload(self, out: DataOutput) -> None:
        write_composite_header(out, 2)
        write_nested(out, [self.key, self.namespace])

    def to_text(self, value: Timer) -> JsonValue:
        return {
            "ts": value.timestamp,
            "key": self.key.to_text(value.key),
            "ns": self.namespace.to_text(value.namespace),
        }


def read_timer_snapshot(data: DataInput, version: int, context: SnapshotContext) -> TimerSerializer:
    check_snapshot_version(data, TimerSerializer, version)
    return TimerSerializer(*context.read_composite(data, 2, 2))


class TtlValue(NamedTuple):
    """A value with the time of its last access in milliseconds."""

    last_access: int
    value: Any


@dataclass(frozen=True)
class TtlSerializer(TypeSerializer[TtlValue]):
    """i64 last access, then the value."""

    value: AnySerializer
    snapshot_class: ClassVar[str] = (
        "org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot"
    )

    @property
    def type_name(self) -> str:
        return f"Ttl<{self.value.type_name}>"

    def serialize(self, value: TtlValue, out: DataOutput) -> None:
        out.write_i64(value.last_access)
        self.value.serialize(value.value, out)

    def deserialize(self, data: DataInput) -> TtlValue:
        return TtlValue(data.read_i64("TTL timestamp"), self.value.deserialize(data))

    def write_snapshot_payload(self, out: DataOutput) -> None:
        write_composite_header(out, 2)
        write_nested(out, [LongSerializer(), self.value])

    def to_text(self, value: TtlValue) -> JsonValue:
        return {"v": self.value.to_text(value.value), "ts": value.last_access}


def read_ttl_snapshot(data: DataInput, version: int, context: SnapshotContext) -> TtlSerializer:
    check_snapshot_version(data, TtlSerializer, version)
    at = data.position
    timestamp, value = context.read_composite(data, 2, 2)
    if timestamp != LongSerializer():
        raise FormatError(
            "A TTL value has no Long timestamp", offset=at, expected="Long", got=timestamp.type_name
        )
    return TtlSerializer(value)
