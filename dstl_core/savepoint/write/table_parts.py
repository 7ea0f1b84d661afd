"""Takes files of RocksDB apart by state, and puts them together: by header and MANIFEST alone.

A state is a column family. Its table files depend neither on its name nor on their own numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.codec.sst.manifest import changed_manifest, joined_manifest, read_manifest
from dstl_core.codec.state_meta import KeyedBackendHeader, write_keyed_header
from dstl_core.errors import error_context
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    IncrementalRemoteKeyedStateHandle,
    StreamStateHandle,
)
from dstl_core.state.restore.rocksdb import (
    CURRENT,
    current_manifest,
    file_number,
    read_meta_header,
    table_name,
    table_number,
)
from dstl_core.storage.handle_resolver import HandleResolver

Kept = Callable[[StreamStateHandle], StreamStateHandle]
"""Gives the new handle of a stream that stays as it is."""
Names = Mapping[str, str | None]
"""The new names of states; None leaves a state out, and the others stay as they are."""


def part_of(
    handle: IncrementalRemoteKeyedStateHandle,
    names: Names,
    resolver: HandleResolver,
    registry: SerializerRegistry,
    label: str,
) -> IncrementalRemoteKeyedStateHandle:
    """The handle with another header and another MANIFEST, and without files of what is gone.

    Args:
        handle: The handle.
        names: What becomes of its states.
        resolver: Reads its header and its MANIFEST.
        registry: Reads the header.
        label: Names the two in the new handle, which has them inline.

    Raises:
        FormatError: One of them is damaged, or two states would have the same name.
    """
    header = read_meta_header(handle, resolver, registry)
    place = current_manifest(handle, resolver)
    stream = dict(handle.shared + handle.private)[place]
    dropped = {name for name, new in names.items() if new is None}
    renamed = {name: new for name, new in names.items() if new is not None}
    with error_context(location=resolver.describe(stream)):
        raw = resolver.read(stream)
        gone = {
            table_name(number)
            for number, family in read_manifest(raw).family_of_file.items()
            if family.name in dropped
        }
        manifest = changed_manifest(raw, renamed, dropped)
        read_manifest(manifest)  # what is written can be read
    replaced = {place: ByteStreamStateHandle(f"{label}-{place}", manifest)}
    left = (meta for meta in header.states if meta.name not in dropped)
    states = tuple(replace(meta, name=renamed.get(meta.name, meta.name)) for meta in left)
    new_header = header_bytes(replace(header, states=states))
    return replace(
        handle,
        meta_stream=ByteStreamStateHandle(f"{label}-meta", new_header),
        shared=tuple((n, replaced.get(n, each)) for n, each in handle.shared if n not in gone),
        private=tuple((n, replaced.get(n, each)) for n, each in handle.private if n not in gone),
    )


@dataclass(frozen=True)
class TablePart:
    """A handle whose states go into another one.

    Args:
        handle: The handle.
        kept: Gives the new handle of each of its table files.
    """

    handle: IncrementalRemoteKeyedStateHandle
    kept: Kept


def joined_handle(
    parts: Sequence[TablePart],
    header: KeyedBackendHeader,
    resolver: HandleResolver,
    add_stream: Callable[[bytes], StreamStateHandle],
) -> IncrementalRemoteKeyedStateHandle:
    """One handle with the states of several ones, which have the same key groups.

    Args:
        parts: The handles. The table files of the first one keep their numbers.
        header: The states of the new handle. One that no part has is empty.
        resolver: Reads the MANIFESTs.
        add_stream: Stores the new header and the new MANIFEST.

    Raises:
        FormatError: A MANIFEST is damaged, or two parts have a state of the same name.
    """
    first = parts[0]
    place = current_manifest(first.handle, resolver)
    shared, private = list[tuple[str, StreamStateHandle]](), list[tuple[str, StreamStateHandle]]()
    manifests: list[tuple[bytes, dict[int, int]]] = []
    top = max(file_number(name) for name, _ in first.handle.shared + first.handle.private)
    for part in parts:
        handle = part.handle
        streams = dict(handle.shared + handle.private)
        stream = streams[current_manifest(handle, resolver)]
        with error_context(location=resolver.describe(stream)):
            raw = resolver.read(stream)
            live = sorted(read_manifest(raw).family_of_file)
        shift = 0 if part is first else top
        numbers = {number: number + shift for number in live}
        manifests.append((raw, numbers))
        top = max([top, *numbers.values()])
        for old, new in ((handle.shared, shared), (handle.private, private)):
            for name, old_stream in old:
                number = numbers.get(table_number(name))
                if number is not None:
                    new.append((table_name(number), part.kept(old_stream)))
                elif part is first and table_number(name) < 0 and name not in (place, CURRENT):
                    new.append((name, part.kept(old_stream)))  # OPTIONS
    manifest = joined_manifest(manifests, [meta.name for meta in header.states])
    read_manifest(manifest)  # what is written can be read
    private += [(place, add_stream(manifest)), (CURRENT, add_stream(f"{place}\n".encode()))]
    return replace(
        first.handle,
        meta_stream=add_stream(header_bytes(header)),
        shared=tuple(shared),
        private=tuple(private),
        state_handle_id=str(uuid4()),
    )


def header_bytes(header: KeyedBackendHeader) -> bytes:
    """A header as a stream of its own."""
    out = DataOutput()
    write_keyed_header(out, header)
    return out.to_bytes()
