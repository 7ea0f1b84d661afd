"""Opens canonical key groups: only the header and the bytes of the wanted key groups are read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.snappy_frames import decompress_frames
from dstl_core.codec.state_meta import KeyedBackendHeader, read_keyed_header
from dstl_core.errors import FormatError, error_context
from dstl_core.model.handle import KeyGroupsSavepointStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.storage.handle_resolver import HandleResolver


def read_canonical_header(
    handle: KeyGroupsSavepointStateHandle,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> KeyedBackendHeader:
    """The header alone: what stands before the first section."""
    first = min((offset for offset in handle.offsets.offsets if offset), default=None)
    with error_context(location=resolver.describe(handle.stream)):
        return read_keyed_header(DataInput(resolver.read(handle.stream, 0, first)), registry)


def open_canonical(
    handle: KeyGroupsSavepointStateHandle,
    key_groups: KeyGroupRange,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> tuple[KeyedBackendHeader, Iterator[tuple[int, DataInput]]]:
    """The header, and ``(key group, section)`` of every non-empty key group that is wanted."""
    header = read_canonical_header(handle, resolver, registry)
    return header, _sections(handle, key_groups, header, resolver)


def _sections(
    handle: KeyGroupsSavepointStateHandle,
    key_groups: KeyGroupRange,
    header: KeyedBackendHeader,
    resolver: HandleResolver,
) -> Iterator[tuple[int, DataInput]]:
    size = handle.stream.state_size
    ends = _section_ends(handle.offsets.offsets, size)
    wanted = [
        (key_group, offset)
        for key_group, offset in handle.offsets.items()
        if offset and key_groups.contains(key_group)
    ]
    if not wanted:
        return
    start = min(offset for _, offset in wanted)
    stop = max(ends[offset] for _, offset in wanted)
    with error_context(location=resolver.describe(handle.stream)):
        if stop > size or start >= stop:
            raise FormatError(
                "A key group lies outside its stream",
                field="key-group offset",
                expected=f"< {size}",
                got=start,
            )
        raw = resolver.read(handle.stream, start, stop)
        for key_group, offset in wanted:
            begin, end = offset - start, ends[offset] - start
            if header.compressed:
                yield key_group, DataInput(decompress_frames(raw, begin, end))
            else:
                yield key_group, DataInput(raw, begin, end)


def _section_ends(offsets: tuple[int, ...], size: int) -> dict[int, int]:
    """Where the section at each offset in use ends at the latest."""
    bounds = [*sorted({offset for offset in offsets if offset}), size]
    return dict(pairwise(bounds))
