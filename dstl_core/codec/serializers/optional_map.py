"""Maps inside snapshots with optional keys and values: fields of POJOs, registrations of Kryo.

    i64 0x4F2C69A3D70, i32 n, n x (utf name, bool has key [i32 len, bytes], bool has value
    [i32 len, bytes])

The frames have lengths, so a reader can skip their content.
Source: ``LinkedOptionalMapSerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    SnapshotContext,
    write_snapshot,
)
from dstl_core.codec.serializers.unknown import read_with_unknown
from dstl_core.errors import FormatError

OPTIONAL_MAP_MAGIC = 0x4F2C69A3D70


class OptionalEntry(NamedTuple):
    """One entry; ``key`` holds the bytes of its frame, None if it is missing."""

    name: str
    key: bytes | None
    value: bytes | None


class OptionalSnapshot(NamedTuple):
    """One entry whose value is a serializer snapshot."""

    name: str
    key: bytes | None
    serializer: AnySerializer | None


def _read_names(data: DataInput) -> int:
    at = data.position
    magic = data.read_i64("optional map magic")
    if magic != OPTIONAL_MAP_MAGIC:
        raise FormatError(
            "An optional map has a wrong magic number",
            offset=at,
            expected=f"{OPTIONAL_MAP_MAGIC:x}",
            got=f"{magic & (1 << 64) - 1:x}",
        )
    return data.read_count("optional map size", 4)


def _read_frame(data: DataInput, field: str) -> bytes | None:
    if not data.read_bool(f"has {field}"):
        return None
    return data.read_bytes(data.read_length(f"{field} size"), field)


def read_optional_map(data: DataInput) -> tuple[OptionalEntry, ...]:
    """Reads the entries, with their frames as bytes."""
    return tuple(
        OptionalEntry(data.read_utf("name"), _read_frame(data, "key"), _read_frame(data, "value"))
        for _ in range(_read_names(data))
    )


def write_optional_map(out: DataOutput, entries: Sequence[OptionalEntry]) -> None:
    out.write_i64(OPTIONAL_MAP_MAGIC)
    out.write_i32(len(entries))
    for entry in entries:
        out.write_utf(entry.name)
        for frame in (entry.key, entry.value):
            out.write_bool(frame is not None)
            if frame is not None:
                out.write_sized(frame)


def read_optional_snapshots(
    data: DataInput, context: SnapshotContext
) -> tuple[OptionalSnapshot, ...]:
    """Reads the entries, with a serializer snapshot in each value frame."""
    entries = []
    for _ in range(_read_names(data)):
        name = data.read_utf("name")
        key = _read_frame(data, "key")
        serializer = None
        if data.read_bool("has value"):
            frame = data.sub_input(data.read_length("value size"), "value")
            serializer = read_with_unknown(
                frame, context, lambda inner, known: known.read_snapshot(inner)
            )
        entries.append(OptionalSnapshot(name, key, serializer))
    return tuple(entries)


def write_optional_snapshots(out: DataOutput, entries: Sequence[OptionalSnapshot]) -> None:
    frames = []
    for entry in entries:
        raw = None
        if entry.serializer is not None:
            inner = DataOutput()
            write_snapshot(inner, entry.serializer)
            raw = inner.to_bytes()
        frames.append(OptionalEntry(entry.name, entry.key, raw))
    write_optional_map(out, frames)
