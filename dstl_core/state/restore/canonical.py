"""Opens canonical key groups. It reads only the header and the wanted key groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import read_section
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.snappy_frames import decompress_frames
from dstl_core.codec.state_meta import KeyedBackendHeader, read_keyed_header
from dstl_core.errors import FormatError, TruncatedDataError, error_context
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    StreamStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.tables.keyed_tables import KeyedTables
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.read_ahead import ReadRange

_HEADER_BYTES = 1 << 20
"""More than headers have. One with an unknown serializer is only read from its exact bytes."""
_HEADER_KEPT = 1 << 16
_READ_AT_ONCE = 1 << 20
"""A stream of this size is read as a whole where all of its key groups are wanted."""
KeyGroupsHandle = KeyGroupsSavepointStateHandle | KeyGroupsStateHandle
_HEADERS: WeakKeyDictionary[SerializerRegistry, tuple[int, bytes, KeyedBackendHeader]]
_HEADERS = WeakKeyDictionary()
"""The header that was read last with a registry. The streams of an operator mostly have one."""


def read_stream_header(
    handle: KeyGroupsHandle, resolver: HandleResolver, registry: SerializerRegistry
) -> KeyedBackendHeader:
    """Reads the header of a stream, and little more of it.

    The handle of a subtask may have only the last key groups of a large stream.
    """
    stream = handle.stream
    end = _end_of_header(handle)
    with error_context(location=resolver.describe(stream)):
        size = min(end, _HEADER_BYTES)
        while True:
            try:
                return _parsed_header(resolver.read_start(stream, size), registry)
            except TruncatedDataError:
                if size == end:
                    raise
                size = min(end, 16 * size)


def _end_of_header(handle: KeyGroupsHandle) -> int:
    """Where the header ends, or some bytes later."""
    first = (offset for offset in handle.offsets.offsets if offset)
    return min(first, default=handle.stream.state_size)


def _parsed_header(raw: bytes, registry: SerializerRegistry) -> KeyedBackendHeader:
    known = _HEADERS.get(registry)
    if known is not None and known[0] == registry.changes and known[1] == raw:
        return known[2]
    header = read_keyed_header(DataInput(raw), registry)
    if len(raw) <= _HEADER_KEPT:
        _HEADERS[registry] = registry.changes, raw, header
    return header


def held_stream(
    handle: KeyGroupsHandle, key_groups: KeyGroupRange, resolver: HandleResolver
) -> KeyGroupsHandle:
    """The handle with a stream in memory, if it is small and all of it is wanted: a file is then
    opened once.
    """
    stream, of_handle = handle.stream, handle.key_group_range
    is_wanted = of_handle.get_intersection(key_groups) == of_handle
    if not is_wanted or stream.state_size > _READ_AT_ONCE:
        return handle
    return replace(
        handle, stream=ByteStreamStateHandle(resolver.describe(stream), resolver.read(stream))
    )


def begin_key_groups(
    handle: KeyGroupsHandle, key_groups: KeyGroupRange, resolver: HandleResolver
) -> None:
    """Begins to read some key groups of a stream that is larger than what ``held_stream`` holds."""
    sections = handle.offsets.sections(handle.stream.state_size, key_groups)
    if sections and handle.stream.state_size > _READ_AT_ONCE:
        resolver.begin_start(handle.stream, min(_end_of_header(handle), _HEADER_BYTES))
        starts, ends = zip(*((start, end) for _, start, end in sections), strict=True)
        resolver.begin_reader(handle.stream, min(starts), max(ends))


def read_key_groups(
    offsets: KeyGroupRangeOffsets,
    stream: StreamStateHandle,
    key_groups: KeyGroupRange,
    resolver: HandleResolver,
    *,
    zero_is_empty: bool = True,
) -> Iterator[tuple[int, DataInput]]:
    """Yields ``(key group, its bytes)`` of every wanted key group that has an offset.

    An offset of 0 means an empty key group, unless ``zero_is_empty`` is false. In raw keyed state
    -1 means an empty key group, and 0 is a valid offset.
    """
    wanted = sorted(offsets.sections(stream.state_size, key_groups, zero_is_empty=zero_is_empty))
    if not wanted:
        return
    start = min(first for _, first, _ in wanted)
    stop = max(last for _, _, last in wanted)
    raw = resolver.read(stream, start, stop)
    for key_group, first, last in wanted:
        yield key_group, DataInput(raw, first - start, last - start)


def sections_reader(
    stream: StreamStateHandle, sections: Sequence[tuple[int, int, int]], resolver: HandleResolver
) -> ReadRange:
    """What reads the sections ``(key group, start, end)`` of a stream, one after the other."""
    first = min((start for _, start, _ in sections), default=0)
    return resolver.reader(stream, first, max((end for _, _, end in sections), default=0))


def load_canonical(
    state: KeyedTables,
    handle: KeyGroupsHandle,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> None:
    """Loads the wanted key groups of a handle into the tables of a state."""
    place = resolver.describe(handle.stream)
    handle = held_stream(handle, state.key_groups, resolver)
    with error_context(location=place):
        header = read_stream_header(handle, resolver, registry)
        tables = [state.table(meta, header.key_serializer) for meta in header.states]
        for key_group, data in read_key_groups(
            handle.offsets, handle.stream, state.key_groups, resolver
        ):
            section = data
            if header.compressed:
                raw = data.peek(data.position)
                section = DataInput(decompress_frames(raw, 0, len(raw)))
            prefix = key_group.to_bytes(state.prefix_bytes, "big")
            for record in read_section(section, len(tables)):
                # No subtask would find the record under another key group.
                if not record.key.startswith(prefix):
                    raise FormatError(
                        "A record is in the section of another key group",
                        offset=record.offset,
                        expected=f"key group {key_group}",
                        got=f"key group {int.from_bytes(record.key[: state.prefix_bytes], 'big')}",
                    )
                tables[record.state_id].load_record(key_group, record.key, record.value)
