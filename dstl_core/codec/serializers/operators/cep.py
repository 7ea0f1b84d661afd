"""State of pattern matching: CEP and SQL's MATCH_RECOGNIZE.

    nfaStateName                               VALUE  NFAState
    sharedBuffer-events                        MAP    EventId -> Lockable<event>
    sharedBuffer-entries-with-lockable-edges   MAP    NodeId  -> Lockable<SharedBufferNode>

Events, nodes and edges have reference counts: an edit that drops one must also drop its references.

Source: ``NFAStateSerializer``, ``DeweyNumber``, ``EventId``, ``NodeId``, ``SharedBufferEdge``,
``SharedBufferNodeSerializer`` and ``Lockable`` of ``org.apache.flink.cep.nfa``, Flink 2.2.1.
Not supported: the serializers of Flink before 1.8, whose snapshots are refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    CompositeSerializer,
    JsonValue,
    SnapshotContext,
    TypeSerializer,
    read_composite_header,
    readers_of,
)
from dstl_core.codec.serializers.strings import read_string_value, write_string_value

_NFA = "org.apache.flink.cep.nfa."
_BUFFER = _NFA + "sharedbuffer."
_LEAST_STATE = 14
"""Size of a match without names, versions and events."""


@dataclass(frozen=True)
class DeweyNumberSerializer(TypeSerializer[tuple[int, ...]]):
    """i32 count, i32 digits."""

    snapshot_class: ClassVar[str] = (
        _NFA + "DeweyNumber$DeweyNumberSerializer$DeweyNumberSerializerSnapshot"
    )
    type_name: ClassVar[str] = "DeweyNumber"

    def serialize(self, value: tuple[int, ...], out: DataOutput) -> None:
        out.write_i32(len(value))
        for digit in value:
            out.write_i32(digit)

    def deserialize(self, data: DataInput) -> tuple[int, ...]:
        count = data.read_count("Dewey number", 4)
        return tuple(data.read_i32("digit of a Dewey number") for _ in range(count))

    def to_text(self, value: tuple[int, ...]) -> JsonValue:
        return ".".join(map(str, value))


class EventId(NamedTuple):
    """The number of an event among those with the same time, and that time in milliseconds."""

    id: int
    timestamp: int


@dataclass(frozen=True)
class EventIdSerializer(TypeSerializer[EventId]):
    """i32 id, i64 timestamp."""

    snapshot_class: ClassVar[str] = _BUFFER + "EventId$EventIdSerializer$EventIdSerializerSnapshot"
    type_name: ClassVar[str] = "EventId"
    length: ClassVar[int] = 12

    def serialize(self, value: EventId, out: DataOutput) -> None:
        out.write_i32(value.id)
        out.write_i64(value.timestamp)

    def deserialize(self, data: DataInput) -> EventId:
        return EventId(data.read_i32("event id"), data.read_i64("event time"))

    def to_text(self, value: EventId) -> JsonValue:
        return {"id": value.id, "ts": value.timestamp}


class NodeId(NamedTuple):
    """An event in a stage of the pattern."""

    event: EventId
    page: str | None


@dataclass(frozen=True)
class NodeIdSerializer(CompositeSerializer[NodeId | None]):
    """Byte 0 for null; otherwise byte 1, the event's id, the name of the stage."""

    event: AnySerializer
    snapshot_class: ClassVar[str] = _BUFFER + "NodeId$NodeIdSerializer$NodeIdSerializerSnapshot"
    type_name: ClassVar[str] = "NodeId"
    part_names: ClassVar[tuple[str, ...]] = ("event",)

    def serialize(self, value: NodeId | None, out: DataOutput) -> None:
        out.write_bool(value is not None)
        if value is not None:
            self.event.serialize(value.event, out)
            write_string_value(out, value.page)

    def deserialize(self, data: DataInput) -> NodeId | None:
        if not data.read_bool("has a node"):
            return None
        return NodeId(self.event.deserialize(data), read_string_value(data))

    def to_text(self, value: NodeId | None) -> JsonValue:
        if value is None:
            return None
        return {"event": self.event.to_text(value.event), "page": value.page}


class SharedBufferEdge(NamedTuple):
    """An edge to the previous event, for runs of a version."""

    target: NodeId | None
    version: tuple[int, ...]


@dataclass(frozen=True)
class SharedBufferEdgeSerializer(CompositeSerializer[SharedBufferEdge]):
    """The target's id, the version."""

    node: AnySerializer
    version: AnySerializer
    snapshot_class: ClassVar[str] = (
        _BUFFER + "SharedBufferEdge$SharedBufferEdgeSerializer$SharedBufferEdgeSerializerSnapshot"
    )
    type_name: ClassVar[str] = "SharedBufferEdge"
    part_names: ClassVar[tuple[str, ...]] = ("node", "version")

    def serialize(self, value: SharedBufferEdge, out: DataOutput) -> None:
        self.node.serialize(value.target, out)
        self.version.serialize(value.version, out)

    def deserialize(self, data: DataInput) -> SharedBufferEdge:
        return SharedBufferEdge(self.node.deserialize(data), self.version.deserialize(data))

    def to_text(self, value: SharedBufferEdge) -> JsonValue:
        return {
            "target": self.node.to_text(value.target),
            "version": self.version.to_text(value.version),
        }


class Lockable(NamedTuple):
    """A value and the number of references to it."""

    references: int
    value: Any


@dataclass(frozen=True)
class LockableSerializer(CompositeSerializer[Lockable]):
    """i32 number of references, then the value."""

    element: AnySerializer
    snapshot_class: ClassVar[str] = _BUFFER + "LockableTypeSerializerSnapshot"
    kind: ClassVar[str] = "Lockable"
    part_names: ClassVar[tuple[str, ...]] = ("element",)

    def serialize(self, value: Lockable, out: DataOutput) -> None:
        out.write_i32(value.references)
        self.element.serialize(value.value, out)

    def deserialize(self, data: DataInput) -> Lockable:
        return Lockable(data.read_i32("number of references"), self.element.deserialize(data))

    def to_text(self, value: Lockable) -> JsonValue:
        return {"references": value.references, "value": self.element.to_text(value.value)}


@dataclass(frozen=True)
class SharedBufferNodeSerializer(CompositeSerializer[list[Lockable]]):
    """i32 count, then edges with reference counts."""

    edge: AnySerializer
    snapshot_class: ClassVar[str] = _BUFFER + "SharedBufferNodeSerializerSnapshotV2"
    type_name: ClassVar[str] = "SharedBufferNode"
    part_names: ClassVar[tuple[str, ...]] = ("edge",)

    def serialize(self, value: list[Lockable], out: DataOutput) -> None:
        out.write_i32(len(value))
        for edge in value:
            LockableSerializer(self.edge).serialize(edge, out)

    def deserialize(self, data: DataInput) -> list[Lockable]:
        count = data.read_count("edges of a node", 9)
        return [LockableSerializer(self.edge).deserialize(data) for _ in range(count)]

    def to_text(self, value: list[Lockable]) -> JsonValue:
        return [LockableSerializer(self.edge).to_text(each) for each in value]


class ComputationState(NamedTuple):
    """A partial or completed match. Times are in milliseconds; -1 means none."""

    state: str | None
    node: NodeId | None
    version: tuple[int, ...]
    start: int
    previous: int | None
    start_event: EventId | None


class NFAState(NamedTuple):
    """The matches of a key, in the order of the file."""

    partial: list[ComputationState]
    completed: list[ComputationState]


@dataclass(frozen=True)
class NFAStateSerializer(CompositeSerializer[NFAState]):
    """Partial and completed matches: i32 count, then each as state, node, version, i64 start, i64
    previous time (in newer snapshots), bool, and the event of the start if it is true.
    """

    version: AnySerializer
    node: AnySerializer
    event: AnySerializer
    outer_version: int = 2
    with_previous: bool = True
    snapshot_class: ClassVar[str] = _NFA + "NFAStateSerializerSnapshot"
    type_name: ClassVar[str] = "NFAState"
    part_names: ClassVar[tuple[str, ...]] = ("version", "node", "event")

    def serialize(self, value: NFAState, out: DataOutput) -> None:
        for matches in value:
            out.write_i32(len(matches))
            for match in matches:
                write_string_value(out, match.state)
                self.node.serialize(match.node, out)
                self.version.serialize(match.version, out)
                out.write_i64(match.start)
                if self.with_previous:
                    out.write_i64(-1 if match.previous is None else match.previous)
                out.write_bool(match.start_event is not None)
                if match.start_event is not None:
                    self.event.serialize(match.start_event, out)

    def deserialize(self, data: DataInput) -> NFAState:
        return NFAState(self._matches(data), self._matches(data))

    def _matches(self, data: DataInput) -> list[ComputationState]:
        count = data.read_count("matches", _LEAST_STATE)
        return [
            ComputationState(
                read_string_value(data),
                self.node.deserialize(data),
                self.version.deserialize(data),
                data.read_i64("start of a match"),
                data.read_i64("previous time of a match") if self.with_previous else None,
                self.event.deserialize(data) if data.read_bool("has a start event") else None,
            )
            for _ in range(count)
        ]

    def write_outer_fields(self, out: DataOutput) -> None:
        if self.outer_version >= 2:
            out.write_bool(self.with_previous)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        outer = read_composite_header(data, 1, 2)
        with_previous = data.read_bool("has previous times") if outer == 2 else False
        dewey, node, event = context.read_nested(data, 3)
        return cls(dewey, node, event, outer, with_previous)

    def to_text(self, value: NFAState) -> JsonValue:
        return {
            "partial": [self._text(each) for each in value.partial],
            "completed": [self._text(each) for each in value.completed],
        }

    def _text(self, value: ComputationState) -> JsonValue:
        event = value.start_event
        return {
            "state": value.state,
            "node": self.node.to_text(value.node),
            "version": self.version.to_text(value.version),
            "start": value.start,
            "previous": value.previous,
            "start_event": None if event is None else self.event.to_text(event),
        }


READERS = readers_of(
    DeweyNumberSerializer,
    EventIdSerializer,
    NodeIdSerializer,
    SharedBufferEdgeSerializer,
    SharedBufferNodeSerializer,
    LockableSerializer,
    NFAStateSerializer,
)
