"""Operator state: lists, union lists and broadcast maps of one subtask.

    stream    := i32 version, [bool compressed], i16 n, n list states, i16 n, n broadcast states,
                 elements
    broadcast := i32 n, n (key, value)

The offsets in the handle are the only way to find the elements: one offset for each element of a
list, and one for a whole broadcast state. In a compressed stream an offset points at the first
chunk of its element. There is nothing between elements, so each one ends where the next one starts.
Source: ``OperatorBackendSerializationProxy`` and ``DefaultOperatorStateBackendSnapshotStrategy`` of
Flink 2.2.1.

Flink 1.18.0 and 1.18.1 do not flush the compressor before they note the offset of an element. So an
offset is that of the chunk in which the element starts, and all elements that start in one chunk
have the same offset. Elements still follow each other without a gap, in the order of the states in
the header. Later versions give each element chunks of its own; they read such a stream without
an error, and take the first element of a chunk for each of its offsets (FLINK-34063).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Protocol

from dstl_core.cached_property import cached_property
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import (
    AnySerializer,
    OpaqueValue,
    SerializerRegistry,
    SnapshotContext,
    deserialize_bounded,
)
from dstl_core.codec.serializers.unknown import read_with_unknown
from dstl_core.codec.snappy_frames import (
    MAX_CHUNK_DATA,
    MAX_UNPACKED_BYTES,
    STREAM_IDENTIFIER,
    chunk_sizes,
    decompress_frames,
)
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
_LONGEST_KEPT = 1 << 20
"""Bytes of a header that is kept to be compared with the next one."""


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


class OperatorHeaders:
    """Reads the headers of the streams of one operator.

    Those of its subtasks mostly have the same bytes, which are parsed once: with thousands of
    subtasks, that is most of the work on small operator state.
    """

    def __init__(self) -> None:
        self._last: tuple[bytes, SerializerRegistry, OperatorBackendHeader] | None = None

    def read(
        self, raw: bytes, states: tuple[OperatorStateMetaInfo, ...], registry: SerializerRegistry
    ) -> OperatorBackendHeader:
        """Reads a header; ``states`` are the states that the handle lists."""
        stored = raw[: _header_end(raw, states)]
        last = self._last
        if last is not None and last[0] == stored and last[1] is registry:
            return last[2]
        header = _parsed_header(stored, registry)
        if len(stored) <= _LONGEST_KEPT:
            self._last = stored, registry, header
        return header


def _header_end(raw: bytes, states: tuple[OperatorStateMetaInfo, ...]) -> int:
    """Where the header ends at the latest."""
    end = min((min(state.offsets) for state in states if state.offsets), default=len(raw))
    if not 0 <= end <= len(raw):
        raise FormatError(
            "An element of operator state lies outside its stream",
            field="element offset",
            expected=f"0..{len(raw)}",
            got=end,
        )
    if _is_compressed(raw) and raw[end - len(STREAM_IDENTIFIER) : end] == STREAM_IDENTIFIER:
        end -= len(STREAM_IDENTIFIER)
    return end


def _parsed_header(stored: bytes, registry: SerializerRegistry) -> OperatorBackendHeader:
    # After a change of parallelism, a handle may list only some of the states in the stream. So the
    # header may end before the first listed element.
    context = SnapshotContext(registry)
    return read_with_unknown(DataInput(stored), context, _read_header, exact=False)


def _is_compressed(raw: bytes) -> bool:
    """What the first bytes say, without the rest of the header."""
    return len(raw) > 4 and DataInput(raw).read_i32() >= _FIRST_WITH_COMPRESSION and raw[4] != 0


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


class _ElementReader(Protocol):
    """Reads one element, which thereby finds its end."""

    def deserialize(self, data: DataInput) -> object: ...


def _shares_chunks(raw: bytes, states: Sequence[OperatorStateMetaInfo]) -> bool:
    """Whether elements of a compressed stream may share chunks.

    Then every chunk but the last one is full. A stream with a chunk for each element looks like
    that, too, if all elements but the last fill their chunks; both ways to read it are right.

    Args:
        raw: The stream.
        states: The states that the handle lists.

    Raises:
        FormatError: A chunk is damaged.
    """
    offsets = [offset for state in states for offset in state.offsets]
    if len(offsets) < 2 or not 0 <= min(offsets) < len(raw):
        return False
    sizes = (size for _, size in chunk_sizes(raw, min(offsets)))
    return all(size == MAX_CHUNK_DATA for size, _ in pairwise(sizes))


class _SharedChunks:
    """Reads the elements of a stream that share chunks, one after the other.

    Args:
        raw: The stream.
        start: The smallest offset of an element.

    Raises:
        FormatError: A chunk is damaged.
    """

    def __init__(self, raw: bytes, start: int) -> None:
        framed = STREAM_IDENTIFIER + raw[start:]
        self._data = DataInput(decompress_frames(framed, 0, len(framed)))
        self._places: dict[int, tuple[int, int]] = {}
        """First and last position of the data of the chunk at an offset."""
        first = 0
        for offset, size in chunk_sizes(raw, start):
            self._places[offset] = first, first + size
            first += size

    def is_at_start(self, offset: int) -> bool:
        """Whether the next element is the first one of the chunk at its offset, so that every
        version of Flink finds it.
        """
        return self._places.get(offset, (-1, -1))[0] == self._data.position

    def next(self, offset: int, reader: _ElementReader) -> bytes:
        """The bytes of the next element.

        Args:
            offset: The offset of the element in the handle.
            reader: Reads the element.

        Raises:
            FormatError: The element does not start in the chunk at its offset.
            UnreadableValueError: Only a Java class knows where the element ends.
        """
        start = self._data.position
        first, last = self._places.get(offset, (-1, -1))
        if not first <= start <= last:
            raise FormatError(
                "An element of operator state does not start in the chunk at its offset; the "
                "handle lists only some of the elements that share chunks",
                offset=offset,
                expected=f"bytes {first}..{last} of the data",
                got=start,
            )
        return self._data.read_value(reader)

    def expect_end(self) -> None:
        """Raises: FormatError: The handle lists only some of the elements."""
        self._data.expect_end("the elements of operator state that share chunks")


class OperatorStateReader:
    """Reads the elements of one subtask's operator state.

    Args:
        raw: The whole stream.
        states: The states that the handle lists.
        registry: Reads the serializer snapshots.
        headers: Reads the headers of several streams.

    Raises:
        FormatError: The stream is damaged.
    """

    def __init__(
        self,
        raw: bytes,
        states: tuple[OperatorStateMetaInfo, ...],
        registry: SerializerRegistry,
        headers: OperatorHeaders | None = None,
    ) -> None:
        self._raw = raw
        self._states = states
        self.header = (headers or OperatorHeaders()).read(raw, states, registry)
        self._misplaced: set[str] = set()

    @cached_property
    def _starts(self) -> list[int]:
        """The offsets of all elements, in order. A stream may have tens of millions of them."""
        return sorted(offset for state in self._states for offset in state.offsets)

    def _end_of(self, offset: int) -> int:
        """Where an element ends: at the next one, or with the stream."""
        at = bisect_right(self._starts, offset)
        return self._starts[at] if at < len(self._starts) else len(self._raw)

    @cached_property
    def shares_chunks(self) -> bool:
        """Whether an offset may not say where its element starts."""
        return self.header.compressed and _shares_chunks(self._raw, self._states)

    @cached_property
    def _in_order(self) -> dict[tuple[str, OperatorStateMode], list[bytes]]:
        """The elements of each listed state, read one after the other."""
        chunks = _SharedChunks(self._raw, self._starts[0])
        listed = {(info.name, info.mode): info for info in self._states}
        by_state: dict[tuple[str, OperatorStateMode], list[bytes]] = {key: [] for key in listed}
        for meta in self.header.states:
            key = meta.name, mode_of(meta)
            reader: _ElementReader = meta.value_serializer
            if key[1] is OperatorStateMode.BROADCAST:
                reader = _BroadcastReader(meta.serializer(KEY_SERIALIZER), meta.value_serializer)
            for offset in listed[key].offsets if key in listed else ():
                if not chunks.is_at_start(offset):
                    self._misplaced.add(meta.name)
                by_state[key].append(chunks.next(offset, reader))
        chunks.expect_end()
        return by_state

    def misplaced(self) -> frozenset[str]:
        """The states with elements that do not start where their offset says. Flink 1.19 and later
        read another element in their place.

        Raises:
            FormatError: The stream is damaged.
            UnreadableValueError: Only a Java class knows where an element ends.
        """
        if self.shares_chunks:
            self._in_order  # noqa: B018  # reading them is the test
        return frozenset(self._misplaced)

    def _element(self, offset: int) -> bytes:
        """The bytes of an element that has chunks, or a place, of its own."""
        end = self._end_of(offset)
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
            return decompress_frames(framed, 0, len(framed))
        return part

    def element_bytes(self, info: OperatorStateMetaInfo) -> list[bytes]:
        """The bytes of each element; for a broadcast state, one item with all its entries.

        Raises:
            UnreadableValueError: Elements share chunks, and only a Java class knows where one ends.
        """
        return list(self._bytes_of(info))

    def _bytes_of(self, info: OperatorStateMetaInfo) -> Iterable[bytes]:
        """As ``element_bytes``, one after the other."""
        if self.shares_chunks:
            return self._in_order[info.name, info.mode]
        self._check_size(info)
        return map(self._element, info.offsets)

    def _check_size(self, info: OperatorStateMetaInfo) -> None:
        """Checks how large the elements are together, before one is read.

        An offset of eight bytes may stand for an element of any size, more than once.
        """
        limit = max(MAX_UNPACKED_BYTES, len(self._raw))
        total = sum(
            len(list(equal)) * self._element_size(offset)
            for offset, equal in groupby(sorted(info.offsets))
        )
        if total > limit:
            raise FormatError(
                f"The elements of operator state {info.name!r} are too large together",
                expected=f"<= {limit} bytes unpacked",
                got=total,
            )

    def _element_size(self, offset: int) -> int:
        end = min(self._end_of(offset), len(self._raw))
        if self.header.compressed:
            return sum(size for _, size in chunk_sizes(self._raw[offset:end], 0))
        return max(end - offset, 0)

    def elements(self, info: OperatorStateMetaInfo) -> list[Any]:
        """The elements of a list or union state; ``OpaqueValue`` where only Java can read them."""
        serializer = self.header.state(info).value_serializer
        return [deserialize_bounded(serializer, raw) for raw in self._bytes_of(info)]

    def pairs(self, info: OperatorStateMetaInfo) -> list[tuple[Any, Any]] | OpaqueValue:
        """The entries of a broadcast state."""
        meta = self.header.state(info)
        if len(info.offsets) != 1:
            raise FormatError(
                f"Broadcast state {info.name!r} has a wrong number of offsets",
                expected=1,
                got=len(info.offsets),
            )
        [raw] = self.element_bytes(info)
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
        elements = []
        for raw in self._bytes_of(info):
            try:
                elements.append(DataInput(raw).read_value(serializer))
            except UnreadableValueError:
                elements.append(raw)
        return elements

    def raw_pairs(self, info: OperatorStateMetaInfo) -> list[tuple[bytes, bytes]]:
        """The bytes of the entries of a broadcast state.

        Raises:
            UnreadableValueError: Only a Java class can separate the entries.
        """
        meta = self.header.state(info)
        data = DataInput(self.element_bytes(info)[0])
        key, value = meta.serializer(KEY_SERIALIZER), meta.value_serializer
        return [
            (data.read_value(key), data.read_value(value))
            for _ in range(data.read_count("broadcast entries", 1))
        ]


@dataclass(frozen=True)
class _BroadcastReader:
    """Reads a whole broadcast state."""

    key: AnySerializer
    value: AnySerializer

    def deserialize(self, data: DataInput) -> None:
        for _ in range(data.read_count("broadcast entries", 1)):
            self.key.deserialize(data)
            self.value.deserialize(data)


def own_places(
    raw: bytes, states: tuple[OperatorStateMetaInfo, ...], registry: SerializerRegistry
) -> OperatorStream | None:
    """The stream with a place of its own for each element; None if it has that already.

    Raises:
        FormatError: The stream is damaged.
        UnreadableValueError: Only a Java class knows where an element ends.
    """
    if not (_is_compressed(raw) and _shares_chunks(raw, states)):
        return None
    reader = OperatorStateReader(raw, states, registry)
    lists, broadcasts = [], []
    for info in states:
        meta = reader.header.state(info)
        if info.mode is OperatorStateMode.BROADCAST:
            broadcasts.append((meta, reader.raw_pairs(info)))
        else:
            lists.append((meta, reader.raw_elements(info)))
    return write_operator_stream(lists, broadcasts)


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
