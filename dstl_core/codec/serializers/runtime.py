"""Types that Flink's runtime uses inside state: the void namespace, timers, TTL wrappers, stream
elements, join buffers.

Source: ``VoidNamespaceSerializer``, ``TimerSerializer``, ``TtlStateFactory.TtlSerializer`` (both
packages), ``TtlAwareSerializer``, ``StreamElementSerializer`` and
``IntervalJoinOperator.BufferEntrySerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    CompositeSerializer,
    JsonValue,
    OneByteSerializer,
    SnapshotContext,
    WrapperSerializer,
    bad_value,
    read_composite_header,
    readers_of,
    write_snapshot,
)
from dstl_core.codec.serializers.primitives import LongSerializer

_SIGN_BIT = 1 << 63


@dataclass(frozen=True)
class VoidNamespaceSerializer(OneByteSerializer[None]):
    """One byte 00, although Flink declares its length as 0."""

    snapshot_class: ClassVar[str] = (
        "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot"
    )
    type_name: ClassVar[str] = "VoidNamespace"
    noun: ClassVar[str] = "void namespace"
    length: ClassVar[int] = 0


class Timer(NamedTuple):
    """A timer of a key; ``timestamp`` in milliseconds."""

    timestamp: int
    key: Any
    namespace: Any


@dataclass(frozen=True)
class TimerSerializer(CompositeSerializer[Timer]):
    """i64 timestamp with its sign bit flipped (so that bytes sort by time), key, namespace."""

    key: AnySerializer
    namespace: AnySerializer
    snapshot_class: ClassVar[str] = (
        "org.apache.flink.streaming.api.operators.TimerSerializerSnapshot"
    )
    kind: ClassVar[str] = "Timer"
    part_names: ClassVar[tuple[str, ...]] = ("key", "namespace")
    outer_version = 2

    def serialize(self, value: Timer, out: DataOutput) -> None:
        flipped = value.timestamp ^ -_SIGN_BIT
        out.write_i64(flipped)
        self.key.serialize(value.key, out)
        self.namespace.serialize(value.namespace, out)

    def deserialize(self, data: DataInput) -> Timer:
        timestamp = data.read_i64("timer timestamp") ^ -_SIGN_BIT
        return Timer(timestamp, self.key.deserialize(data), self.namespace.deserialize(data))

    def to_text(self, value: Timer) -> JsonValue:
        return {
            "ts": value.timestamp,
            "key": self.key.to_text(value.key),
            "ns": self.namespace.to_text(value.namespace),
        }


class TtlValue(NamedTuple):
    """A value with the time of its last access in milliseconds."""

    last_access: int
    value: Any


@dataclass(frozen=True)
class TtlSerializer(CompositeSerializer[TtlValue]):
    """i64 last access, then the value."""

    value: AnySerializer
    snapshot_class: ClassVar[str] = (
        "org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot"
    )
    outer_version = 2

    @property
    def type_name(self) -> str:
        return f"Ttl<{self.value.type_name}>"

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return (LongSerializer(), self.value)

    @property
    def length(self) -> int:
        return -1 if self.value.length < 0 else 8 + self.value.length

    def serialize(self, value: TtlValue, out: DataOutput) -> None:
        out.write_i64(value.last_access)
        self.value.serialize(value.value, out)

    def deserialize(self, data: DataInput) -> TtlValue:
        return TtlValue(data.read_i64("TTL timestamp"), self.value.deserialize(data))

    def to_text(self, value: TtlValue) -> JsonValue:
        return {"v": self.value.to_text(value.value), "ts": value.last_access}

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        at = data.position
        read_composite_header(data, cls.outer_version)
        timestamp, value = context.read_nested(data, 2)
        if timestamp != LongSerializer():
            raise bad_value("A TTL timestamp is not a Long", at, "Long", timestamp.type_name)
        return cls(value)


@dataclass(frozen=True)
class TtlSerializerV2(TtlSerializer):
    """The same format, for asynchronous state."""

    snapshot_class: ClassVar[str] = (
        "org.apache.flink.runtime.state.v2.ttl.TtlStateFactory$TtlSerializerSnapshot"
    )


@dataclass(frozen=True)
class TtlAwareSerializer(WrapperSerializer):
    """Flags whether its inner type is a TTL type; the bytes are those of the inner type."""

    is_ttl_enabled: bool
    inner: AnySerializer
    snapshot_class: ClassVar[str] = "org.apache.flink.runtime.state.ttl.TtlAwareSerializerSnapshot"
    snapshot_version: ClassVar[int] = 1

    @property
    def type_name(self) -> str:
        return self.inner.type_name

    def write_snapshot_payload(self, out: DataOutput) -> None:
        out.write_bool(self.is_ttl_enabled)
        write_snapshot(out, self.inner)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        return cls(data.read_bool("TTL enabled"), context.read_snapshot(data))


class StreamRecord(NamedTuple):
    """An element with an optional timestamp in milliseconds."""

    value: Any
    timestamp: int | None


class StreamMark(NamedTuple):
    """An element that is not a record: watermark (2), latency marker (3), stream status (4), ..."""

    tag: int
    raw: bytes


_MARK_BYTES = {2: 8, 3: 28, 4: 4, 5: 1, 6: 12}


@dataclass(frozen=True)
class StreamElementSerializer(CompositeSerializer[StreamRecord | StreamMark]):
    """u8 tag: 0 record with i64 timestamp, 1 record without, then the value; other tags are
    marks.
    """

    value: AnySerializer
    snapshot_class: ClassVar[str] = (
        "org.apache.flink.streaming.runtime.streamrecord.StreamElementSerializer$"
        "StreamElementSerializerSnapshot"
    )
    kind: ClassVar[str] = "StreamElement"
    part_names: ClassVar[tuple[str, ...]] = ("value",)
    outer_version = 2

    def serialize(self, value: StreamRecord | StreamMark, out: DataOutput) -> None:
        if isinstance(value, StreamMark):
            out.write_u8(value.tag)
            out.write_bytes(value.raw)
            return
        out.write_u8(0 if value.timestamp is not None else 1)
        if value.timestamp is not None:
            out.write_i64(value.timestamp)
        self.value.serialize(value.value, out)

    def deserialize(self, data: DataInput) -> StreamRecord | StreamMark:
        at = data.position
        tag = data.read_u8("stream element tag")
        if tag in _MARK_BYTES:
            return StreamMark(tag, data.read_bytes(_MARK_BYTES[tag], "stream mark"))
        if tag > 1:
            raise bad_value("A stream element has an unknown tag", at, "0..6", tag)
        timestamp = data.read_i64("timestamp") if tag == 0 else None
        return StreamRecord(self.value.deserialize(data), timestamp)

    def to_text(self, value: StreamRecord | StreamMark) -> JsonValue:
        if isinstance(value, StreamMark):
            return {"tag": value.tag, "$hex": value.raw.hex()}
        text = {"value": self.value.to_text(value.value)}
        return text if value.timestamp is None else text | {"ts": value.timestamp}


class BufferEntry(NamedTuple):
    """A buffered element of an interval join."""

    joined: bool
    value: Any


@dataclass(frozen=True)
class BufferEntrySerializer(CompositeSerializer[BufferEntry]):
    """bool joined, then the element."""

    value: AnySerializer
    snapshot_class: ClassVar[str] = (
        "org.apache.flink.streaming.api.operators.co.IntervalJoinOperator$"
        "BufferEntrySerializerSnapshot"
    )
    kind: ClassVar[str] = "BufferEntry"
    part_names: ClassVar[tuple[str, ...]] = ("value",)
    outer_version = 2

    def serialize(self, value: BufferEntry, out: DataOutput) -> None:
        out.write_bool(value.joined)
        self.value.serialize(value.value, out)

    def deserialize(self, data: DataInput) -> BufferEntry:
        return BufferEntry(data.read_bool("has been joined"), self.value.deserialize(data))

    def to_text(self, value: BufferEntry) -> JsonValue:
        return {"value": self.value.to_text(value.value), "joined": value.joined}


READERS = readers_of(
    VoidNamespaceSerializer,
    TimerSerializer,
    StreamElementSerializer,
    BufferEntrySerializer,
    TtlSerializer,
    TtlSerializerV2,
    TtlAwareSerializer,
)
