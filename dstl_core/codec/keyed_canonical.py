"""The canonical form of keyed state, which savepoints use with every state backend.

    stream  := header, one section per non-empty key group, ascending
    section := ( u16 state id, record+ )* u16 FFFF     (a Snappy-framed stream if compressed)
    record  := i32 length, stored key, i32 length, value

The high bit of the first byte of a stored key marks the last record of a run; the next u16 is a
state id or the end. The handle holds the offset of each section, 0 for an empty key group.
Source: ``FullSnapshotAsyncWriter`` and ``FullSnapshotRestoreOperation`` of Flink 2.2.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.snappy_frames import compress_frames
from dstl_core.codec.state_meta import KeyedBackendHeader, write_keyed_header
from dstl_core.errors import FormatError, InvariantViolation
from dstl_core.model.handle import KeyGroupRangeOffsets
from dstl_core.model.key_group import KeyGroupRange

END_OF_KEY_GROUP_MARK = 0xFFFF
END_OF_SECTION = END_OF_KEY_GROUP_MARK.to_bytes(2, "big")
_LENGTH = struct.Struct(">i")
FIRST_BIT_MASK = 0x80


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record of a section. ``key`` does not contain the mark of the last record."""

    state_id: int
    key: bytes
    value: bytes
    offset: int
    """Offset of the record, for error messages."""


def read_section(data: DataInput, state_count: int) -> Iterator[StoredRecord]:
    """Yields the records of one key group's section, up to and including its end mark."""
    while (state_id := read_state_id(data, state_count)) is not None:
        last = False
        while not last:
            at = data.position
            key = data.read_bytes(data.read_length("key length"), "key")
            if not key:
                raise FormatError("A stored key is empty", offset=at, field="key length")
            last = key[0] & FIRST_BIT_MASK != 0
            if last:
                key = bytes((key[0] & ~FIRST_BIT_MASK,)) + key[1:]
            value = data.read_bytes(data.read_length("value length"), "value")
            yield StoredRecord(state_id, key, value, at)


def read_state_id(data: DataInput, state_count: int) -> int | None:
    """The state of the next run, or None at the end of the section."""
    at = data.position
    state_id = data.read_u16("state id")
    if state_id == END_OF_KEY_GROUP_MARK:
        return None
    if state_id >= state_count:
        raise FormatError(
            "A state id is not in the header",
            offset=at,
            field="state id",
            expected=f"< {state_count}",
            got=state_id,
        )
    return state_id


def write_section(runs: Iterable[tuple[int, Iterable[tuple[bytes, bytes]]]]) -> bytes:
    """Writes the section of one key group; ``runs`` are ``(state id, (stored key, value) pairs)``.

    Returns:
        The bytes; empty if no run has a record.
    """
    parts: list[bytes] = []
    length = _LENGTH.pack
    for state_id, records in runs:
        start = len(parts)
        parts.append(state_id.to_bytes(2, "big"))
        for key, value in records:
            parts += (length(len(key)), key, length(len(value)), value)
        if len(parts) == start + 1:
            parts.pop()
            continue
        last = parts[-3]
        parts[-3] = bytes((last[0] | FIRST_BIT_MASK,)) + last[1:]
    if not parts:
        return b""
    parts.append(END_OF_SECTION)
    return b"".join(parts)


def write_canonical_stream(
    header: KeyedBackendHeader,
    key_groups: KeyGroupRange,
    sections: Mapping[int, bytes],
) -> tuple[bytes, KeyGroupRangeOffsets]:
    """Writes a whole stream; ``sections`` maps key groups to bytes.

    Returns:
        The stream, and the offset of each key group for the handle.
    """
    out = DataOutput()
    write_keyed_header(out, header)
    offsets = []
    for key_group in key_groups:
        section = sections.get(key_group, b"")
        offsets.append(out.position if section else 0)
        out.write_bytes(compress_frames(section) if header.compressed and section else section)
    strangers = [key_group for key_group in sections if not key_groups.contains(key_group)]
    if strangers:
        raise InvariantViolation(f"key group {strangers[0]} is outside {key_groups}")
    return out.to_bytes(), KeyGroupRangeOffsets(key_groups, tuple(offsets))


def stream_of_sections(
    header: KeyedBackendHeader, sections: bytes | memoryview, offsets: KeyGroupRangeOffsets
) -> tuple[bytes, KeyGroupRangeOffsets]:
    """A whole stream, of sections as ``runs.sections_of`` writes them: offsets count from 1."""
    out = DataOutput()
    write_keyed_header(out, header)
    shift = out.position - 1
    placed = tuple(offset and offset + shift for offset in offsets.offsets)
    stream = b"".join((out.to_bytes(), memoryview(sections)[1:]))
    return stream, KeyGroupRangeOffsets(offsets.key_group_range, placed)
