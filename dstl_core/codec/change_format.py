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

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.snappy_frames import decompress_frames
from dstl_core.errors import FormatError
from dstl_core.model.change import META_KEY_GROUP, StateChange

PLAIN_FLAG = b"\x00"
COMPRESSED_FLAG = b"\x01"


def write_change_set(out: DataOutput, changes: Iterable[StateChange]) -> None:
    """Writes one set of changes in append order."""
    groups: dict[int, list[bytes]] = {}
    for change in changes:
        groups.setdefault(change.key_group, []).append(change.change)
    write_groups(out, groups)


def write_groups(out: DataOutput, groups: Mapping[int, Sequence[bytes]]) -> None:
    """Writes one set whose groups come in the order in which they were first seen."""
    out.write_i32(len(groups))
    for key_group in java_hash_map_order(list(groups)):
        payloads = groups[key_group]
        out.write_i32(len(payloads))
        out.write_i32(key_group)
        for payload in payloads:
            out.write_i32(len(payload))
            out.write_bytes(payload)


def java_hash_map_order(key_groups: list[int]) -> list[int]:
    """Metadata first, then the order in which a ``HashMap`` that got these keys by
    ``computeIfAbsent`` in this order iterates: by bucket, later ones first inside a bucket.
    """
    capacity = 16
    while len(key_groups) > capacity * 3 // 4:
        capacity *= 2
    buckets: dict[int, list[int]] = {}
    for key_group in key_groups:
        if key_group != META_KEY_GROUP:
            buckets.setdefault((key_group ^ key_group >> 16) & (capacity - 1), []).insert(
                0, key_group
            )
    ordered = [key_group for bucket in sorted(buckets) for key_group in buckets[bucket]]
    return [META_KEY_GROUP, *ordered] if META_KEY_GROUP in key_groups else ordered


def segment_body(segment: bytes | memoryview) -> memoryview:
    """The uncompressed body, not copied if it is plain. Every flag but 1 means plain, as Flink
    reads it.
    """
    if not len(segment):
        raise FormatError("A changelog segment is empty", offset=0, expected="a flag byte")
    view = memoryview(segment)
    if view[0] == COMPRESSED_FLAG[0]:
        return memoryview(decompress_frames(view, 1, len(view)))
    return view[1:]


def read_change_set(body: bytes, offset: int) -> Iterator[StateChange]:
    """Yields the changes of the one set at ``offset`` of an uncompressed body."""
    if not 0 <= offset < len(body):
        raise FormatError(
            "A change set lies outside its segment",
            offset=offset,
            expected=f"< {len(body)}",
            got=offset,
        )
    data = DataInput(body, offset)
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
            yield StateChange(key_group, data.read_bytes(data.read_length("change length")))
