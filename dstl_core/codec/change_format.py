"""Changelog segments: the change sets of one or more writers in one file.

    segment    := u8 compressed (0 or 1), body             (one Snappy-framed stream if 1)
    body       := change set*                              (no count, no trailer)
    change set := i32 n, n groups
    group      := i32 n, i32 key group (-1 = metadata), n (i32 length, bytes)

The metadata group comes first, then the data groups in the iteration order of Java's ``HashMap``,
so that our bytes equal Flink's. Offsets count bytes of the uncompressed body, after the flag.
Source: ``StateChangeFormat`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.snappy_frames import (
    MAX_UNPACKED_BYTES,
    Allocate,
    decompress_all_frames,
)
from dstl_core.errors import FormatError
from dstl_core.model.change import META_KEY_GROUP, StateChange

PLAIN_FLAG = b"\x00"
COMPRESSED_FLAG = b"\x01"

_CROWDED_BUCKET = 8
_SMALLEST_TABLE_WITH_TREES = 64


def write_change_set(out: DataOutput, changes: Sequence[StateChange]) -> None:
    """Writes one set of changes, given in append order."""
    groups: dict[int, list[bytes]] = {}
    for change in changes:
        groups.setdefault(change.key_group, []).append(change.change)
    last_is_new = bool(changes) and len(groups[changes[-1].key_group]) == 1
    write_groups(out, groups, last_is_new=last_is_new)


def write_groups(
    out: DataOutput, groups: Mapping[int, Sequence[bytes]], *, last_is_new: bool
) -> None:
    """Writes one change set, group by group in order of first use.

    ``last_is_new``: see ``java_hash_map_order``.
    """
    out.write_i32(len(groups))
    for key_group in java_hash_map_order(list(groups), last_is_new=last_is_new):
        payloads = groups[key_group]
        out.write_i32(len(payloads))
        out.write_i32(key_group)
        for payload in payloads:
            out.write_sized(payload)


def java_hash_map_order(key_groups: Sequence[int], *, last_is_new: bool) -> list[int]:
    """The iteration order of a Java ``HashMap`` that got these keys by ``computeIfAbsent``.

    Metadata comes first. The other key groups are ordered by bucket, and inside a bucket the latest
    key comes first. Java turns a bucket of eight or more entries, in a table of 64 or more buckets,
    into a tree; that order is different. Readers never depend on the order of groups.

    Args:
        key_groups: Distinct key groups, in order of first use.
        last_is_new: Whether the last call added the last key. ``computeIfAbsent`` grows the table
            at its start, so the table has not yet grown for that key.
    """
    capacity = _java_hash_map_capacity(key_groups, last_is_new)
    buckets: dict[int, list[int]] = {}
    for key_group in reversed(key_groups):
        if key_group != META_KEY_GROUP:
            buckets.setdefault(_bucket(key_group, capacity), []).append(key_group)
    ordered = [key_group for bucket in sorted(buckets) for key_group in buckets[bucket]]
    return [META_KEY_GROUP, *ordered] if META_KEY_GROUP in key_groups else ordered


def _java_hash_map_capacity(key_groups: Sequence[int], last_is_new: bool) -> int:
    capacity = 16
    sizes: Counter[int] = Counter()
    for size, key_group in enumerate(key_groups):
        if size > capacity * 3 // 4:
            capacity *= 2
            sizes = Counter(_bucket(each, capacity) for each in key_groups[:size])
        bucket = _bucket(key_group, capacity)
        sizes[bucket] += 1
        if sizes[bucket] >= _CROWDED_BUCKET and capacity < _SMALLEST_TABLE_WITH_TREES:
            capacity *= 2
            sizes = Counter(_bucket(each, capacity) for each in key_groups[: size + 1])
    if not last_is_new and len(key_groups) > capacity * 3 // 4:
        capacity *= 2
    return capacity


def _bucket(key_group: int, capacity: int) -> int:
    """The bucket of an Integer's hash: ``(h ^ h >>> 16) & (capacity - 1)``."""
    code = key_group & 0xFFFFFFFF
    return (code ^ code >> 16) & (capacity - 1)


def segment_body(
    segment: bytes | memoryview, size: int | None = None, allocate: Allocate = bytearray
) -> memoryview:
    """The uncompressed body of a segment, without a copy if the segment is not compressed.

    Flag 1 means compressed. Every other flag means uncompressed, as in Flink.

    Args:
        segment: The whole segment file.
        size: Of the body, as the handle has it; None if no handle says it.
        allocate: Makes the memory of the body.

    Raises:
        FormatError: The segment is damaged, or has another size.
    """
    if not len(segment):
        raise FormatError("A changelog segment is empty", offset=0, expected="a flag byte")
    view = memoryview(segment)
    body = view[1:]
    if view[0] == COMPRESSED_FLAG[0]:
        most = MAX_UNPACKED_BYTES if size is None else size
        body = decompress_all_frames(view, 1, allocate, most)
    if size is not None and len(body) != size:
        raise FormatError(
            "A changelog segment has the wrong size",
            expected=f"{size} bytes uncompressed",
            got=len(body),
        )
    return body


def check_inside(body: bytes | memoryview, offset: int) -> None:
    """Raises FormatError if no change set can start at ``offset`` of an uncompressed body."""
    if not 0 <= offset < len(body):
        raise FormatError(
            "A change set lies outside its segment",
            offset=offset,
            expected=f"< {len(body)}",
            got=offset,
        )


def read_change_set(body: bytes | memoryview, offset: int) -> Iterator[StateChange]:
    """Yields the changes of the change set at ``offset`` of an uncompressed body.

    This is the reference decoder: ``columnar.changes.sets`` reads the same bytes into columns.
    """
    check_inside(body, offset)
    # DataInput also works on a memoryview, so a large segment is not copied.
    data = DataInput(cast(bytes, body), offset)
    for _ in range(data.read_count("groups", 8)):
        count_at = data.position
        count = data.read_i32("changes")
        at = data.position
        key_group = data.read_i32("key group")
        if key_group < META_KEY_GROUP:
            raise FormatError("A key group is negative", offset=at, expected=">= -1", got=key_group)
        if not 0 <= count <= data.remaining // 4:
            raise FormatError(
                "A count does not fit into the data",
                offset=count_at,
                field="changes",
                expected=f"0..{data.remaining // 4}",
                got=count,
            )
        for _ in range(count):
            change = data.read_bytes(data.read_length("change length"))
            yield StateChange(key_group, bytes(change))
