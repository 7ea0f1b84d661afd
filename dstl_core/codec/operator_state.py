"""Operator state: lists, union lists and broadcast maps of one subtask.

    stream    := i32 version, [bool compressed], i16 n, n list states, i16 n, n broadcast states,
                 elements
    broadcast := i32 n, n (key, value)

The offsets in the handle are the only way to find the elements: one offset for each element of a
list, and one for a whole broadcast state. In a compressed stream an offset points at the first
chunk of its element. There is nothing between elements, so each one ends where the next one starts.
Source: ``OperatorBackendSerializationProxy`` and ``DefaultOperatorStateBackendSnapshotStrategy`` of
Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import (
    AnySerializer,
    OpaqueValue,
    SerializerRegistry,
    SnapshotContext,
    deserialize_bounded,
)
from dstl_core.codec.serializers.unknown import read_with_unknown
from dstl_core.codec.snappy_frames import STREAM_IDENTIFIER, decompress_frames
from dstl_core.codec.state_meta import (
    KEY_SERIALIZER,
    OPERATOR_STATE_DISTRIBUTION_MODE,
    VALUE_SERIALIZER,
    BackendStateType,
    StateMetaInfoSnapshot,
    read_state_meta,
    write_state_meta,
)
from dstl_core.errors import FormatError, UnreadableValueError, UnsupportedVersionError
from dstl_core.model.handle import OperatorStateMetaInfo, OperatorStateMode

READABLE_VERSIONS = (5, 6)
WRITTEN_VERSION = 5
"""Version without compression; Flink 1.20 and later read it."""
_FIRST_WITH_COMPRESSION = 6


@dataclass(frozen=True)
class OperatorBackendHeader:
    """The header of operator state."""

    states: tuple[StateMetaInfoSnapshot, ...]
    compressed: bool

    def state(self, info: OperatorStateMetaInfo) -> StateMetaInfoSnapshot:
        """The description of a state that the handle lists.

        Raises:
            FormatError: The header does not describe the state.
        """
        broadcast = info.mode is OperatorStateMode.BROADCAST
        for state in self.states:
            is_broadcast = state.backend_state_type is BackendStateType.BROADCAST
            if state.name == info.name and is_broadcast == broadcast:
                return state
        raise FormatError(
            f"Operator state {info.name!r} is not described in its stream",
            expected=info.name,
            got=", ".join(state.name for state in self.states) or "none",
        )


def read_operator_header(
    raw: bytes, states: tuple[OperatorStateMetaInfo, ...], registry: SerializerRegistry
) -> OperatorBackendHeader:
    """Reads the header of a stream; ``states`` are the states that the handle lists."""
    used = [offset for state in states for offset in state.offsets]
    end = min(used, default=len(raw))
    if not 0 <= end <= len(raw):
        raise FormatError(
            "An element of operator state lies outside its stream",
            field="element offset",
            expected=f"0..{len(raw)}",
            got=end,
        )
    compressed = len(raw) > 4 and DataInput(raw).read_i32() >= _FIRST_WITH_COMPRESSION and raw[4]
    if compressed and raw[end - len(STREAM_IDENTIFIER) : end] == STREAM_IDENTIFIER:
        end -= len(STREAM_IDENTIFIER)
    data = DataInput(raw, 0, end)
    # After a change of parallelism, a handle may list only some of the states in the stream. So the
    # header may end before the first listed element.
    return read_with_unknown(data, SnapshotContext(registry), _read_header, exact=False)


def _read_header(data: DataInput, context: SnapshotContext) -> OperatorBackendHeader:
    version = data.read_i32("operator backend version")
    if version not in READABLE_VERSIONS:
        raise UnsupportedVersionError(
            "Operator state of this version cannot be read",
            offset=0,
            expected="5 or 6",
            got=version,
        )
    compressed = version >= _FIRST_WITH_COMPRESSION and data.read_bool("compressed")
    states = []
    for field in ("list states", "broadcast states"):
        at = data.position
        count = data.read_i16(f"number of {field}")
        if count < 0:
            raise FormatError(f"The number of {field} is negative", offset=at, got=count)
        states += [read_state_meta(data, context) for _ in range(count)]
    return OperatorBackendHeader(tuple(states), compressed)


class OperatorStateReader:
    """Reads the elements of one subtask's operator state.

    Args:
        raw: The whole stream.
        states: The states that the handle lists.
        registry: Reads the serializer snapshots.

    Raises:
        FormatError: The stream is damaged.
    """

    def __init__(
        self, raw: bytes, states: tuple[OperatorStateMetaInfo, ...], registry: SerializerRegistry
    ) -> None:
        self._raw = raw
        self.header = read_operator_header(raw, states, registry)
        used = sorted({offset for state in states for offset in state.offsets})
        self._ends = dict(pairwise([*used, len(raw)]))

    def _element(self, offset: int) -> tuple[bytes, int]:
        """The bytes of an element, and their offset in the stream (0 if they were compressed)."""
        end = self._ends[offset]
        if end > len(self._raw):
            raise FormatError(
                "An element of operator state lies outside its stream",
                offset=offset,
                expected=f"<= {len(self._raw)}",
                got=end,
            )
        part = self._raw[offset:end]
        if self.header.compressed:
            framed = STREAM_IDENTIFIER + part
            return decompress_frames(framed, 0, len(framed)), 0
        return part, offset

    def element_bytes(self, info: OperatorStateMetaInfo) -> list[bytes]:
        """The bytes of each element; for a broadcast state, one item with all its entries."""
        return [self._element(offset)[0] for offset in info.offsets]

    def elements(self, info: OperatorStateMetaInfo) -> list[Any]:
        """The elements of a list or union state; ``OpaqueValue`` where only Java can read them."""
        serializer = self.header.state(info).value_serializer
        return [deserialize_bounded(serializer, raw) for raw in self.element_bytes(info)]

    def pairs(self, info: OperatorStateMetaInfo) -> list[tuple[Any, Any]] | OpaqueValue:
        """The entries of a broadcast state."""
        meta = self.header.state(info)
        if len(info.offsets) != 1:
            raise FormatError(
                f"Broadcast state {info.name!r} has a wrong number of offsets",
                expected=1,
                got=len(info.offsets),
            )
        raw, _ = self._element(info.offsets[0])
        key, value = meta.serializer(KEY_SERIALIZER), meta.value_serializer
        data = DataInput(raw)
        try:
            pairs = [
                (key.deserialize(data), value.deserialize(data))
                for _ in range(data.read_count("broadcast entries", 1))
            ]
        except UnreadableValueError as error:
            name = f"Map<{key.type_name}, {value.type_name}>"
            return OpaqueValue(name, raw, error.what)
        data.expect_end(f"broadcast state {info.name!r}")
        return pairs

    def raw_elements(self, info: OperatorStateMetaInfo) -> list[bytes]:
        """The bytes of each element of a list or union state.

        After a change of parallelism, the handle may not list the element that follows. So the
        serializer decides where an element ends. An element that only Java can read ends where the
        next listed one starts.
        """
        serializer = self.header.state(info).value_serializer
        found = []
        for offset in info.offsets:
            raw, _ = self._element(offset)
            try:
                found.append(DataInput(raw).read_value(serializer))
            except UnreadableValueError:
                found.append(raw)
        return found

    def raw_pairs(self, info: OperatorStateMetaInfo) -> list[tuple[bytes, bytes]]:
        """The bytes of the entries of a broadcast state.

        Raises:
            UnreadableValueError: Only a Java class can separate the entries.
        """
        meta = self.header.state(info)
        data = DataInput(self._element(info.offsets[0])[0])
        key, value = meta.serializer(KEY_SERIALIZER), meta.value_serializer
        return [
            (data.read_value(key), data.read_value(value))
            for _ in range(data.read_count("broadcast entries", 1))
        ]


def list_state_meta(
    name: str, mode: OperatorStateMode, element: AnySerializer
) -> StateMetaInfoSnapshot:
    """The description of a list or union state."""
    return StateMetaInfoSnapshot(
        name,
        BackendStateType.OPERATOR,
        ((OPERATOR_STATE_DISTRIBUTION_MODE, mode.name),),
        ((VALUE_SERIALIZER, element),),
    )


def broadcast_state_meta(
    name: str, key: AnySerializer, value: AnySerializer
) -> StateMetaInfoSnapshot:
    """The description of a broadcast state."""
    return StateMetaInfoSnapshot(
        name,
        BackendStateType.BROADCAST,
        ((OPERATOR_STATE_DISTRIBUTION_MODE, OperatorStateMode.BROADCAST.name),),
        ((VALUE_SERIALIZER, value), (KEY_SERIALIZER, key)),
    )


def mode_of(meta: StateMetaInfoSnapshot) -> OperatorStateMode:
    """How the state is distributed over subtasks."""
    text = dict(meta.options).get(OPERATOR_STATE_DISTRIBUTION_MODE, "")
    try:
        return OperatorStateMode[text]
    except KeyError:
        raise FormatError(
            f"The distribution mode of operator state {meta.name!r} is unknown",
            expected=", ".join(mode.name for mode in OperatorStateMode),
            got=text,
        ) from None


OperatorStream = tuple[bytes, tuple[OperatorStateMetaInfo, ...]]
"""The stream of one subtask, and the entries of its handle that describe the states."""


def write_operator_stream(
    lists: Sequence[tuple[StateMetaInfoSnapshot, Sequence[bytes]]],
    broadcasts: Sequence[tuple[StateMetaInfoSnapshot, Sequence[tuple[bytes, bytes]]]],
) -> OperatorStream:
    """Writes list and union states with their elements, and broadcast states with their pairs."""
    out = DataOutput()
    out.write_i32(WRITTEN_VERSION)
    for metas in ([meta for meta, _ in lists], [meta for meta, _ in broadcasts]):
        out.write_i16(len(metas))
        for meta in metas:
            write_state_meta(out, meta)
    infos = []
    for meta, elements in lists:
        offsets = []
        for element in elements:
            offsets.append(out.position)
            out.write_bytes(element)
        infos.append(OperatorStateMetaInfo(meta.name, mode_of(meta), tuple(offsets)))
    for meta, pairs in broadcasts:
        infos.append(OperatorStateMetaInfo(meta.name, mode_of(meta), (out.position,)))
        out.write_i32(len(pairs))
        for key, value in pairs:
            out.write_bytes(key)
            out.write_bytes(value)
    return out.to_bytes(), tuple(infos)
