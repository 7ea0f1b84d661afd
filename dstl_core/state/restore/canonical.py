"""Opens canonical key groups. It reads only the header and the wanted key groups."""

from __future__ import annotations

from collections.abc import Iterator

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import read_section
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.snappy_frames import decompress_frames
from dstl_core.codec.state_meta import KeyedBackendHeader, read_keyed_header
from dstl_core.errors import FormatError, TruncatedDataError, error_context
from dstl_core.model.handle import (
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    StreamStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.tables.keyed_tables import KeyedTables
from dstl_core.storage.handle_resolver import HandleResolver

_HEADER_BYTES = 1 << 20
"""More than headers have. One with an unknown serializer is only read from its exact bytes."""
KeyGroupsHandle = KeyGroupsSavepointStateHandle | KeyGroupsStateHandle


def read_stream_header(
    handle: KeyGroupsHandle, resolver: HandleResolver, registry: SerializerRegistry
) -> KeyedBackendHeader:
    """Reads the header of a stream, and little more of it.

    The handle of a subtask may have only the last key groups of a large stream.
    """
    stream = handle.stream
    end = min((each for each in handle.offsets.offsets if each), default=stream.state_size)
    with error_context(location=resolver.describe(stream)):
        size = min(end, _HEADER_BYTES)
        while True:
            try:
                return read_keyed_header(DataInput(resolver.read(stream, 0, size)), registry)
            except TruncatedDataError:
                if size == end:
                    raise
                size = min(end, 16 * size)


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


def load_canonical(
    state: KeyedTables,
    handle: KeyGroupsHandle,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> None:
    """Loads the wanted key groups of a handle into the tables of a state."""
    header = read_stream_header(handle, resolver, registry)
    tables = [state.table(meta, header.key_serializer) for meta in header.states]
    with error_context(location=resolver.describe(handle.stream)):
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
