"""Reads key groups in the heap backend's native form as stored rows: compiled ``heap_native``.

A program finds the places of namespace, key and value of every entry; the rest is copying. The
record-wise code reads or refuses the types that the program does not support.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import Ranges
from dstl_core.codec.columnar.keyed.places import (
    Items,
    PlacedRecords,
    PlaceProgram,
    addresses,
    items_of,
    joined_items,
    joined_parts,
    pairs_of,
    passed,
    passed_timer,
    take,
)
from dstl_core.codec.columnar.keyed.spans import Source, SpanBatch
from dstl_core.codec.columnar.types.layouts import AddressLayout, Layout, Repeated, Rest, Struct
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_records import RecordFormat, part_of
from dstl_core.codec.serializers import ListSerializer, MapSerializer, TimerSerializer
from dstl_core.codec.snappy_frames import decompress_frames, frames_end
from dstl_core.codec.state_meta import KeyedBackendHeader, KeyedStateType
from dstl_core.errors import NotInColumnsError

_ENTRIES, _REACHED = "entries", "reached"


@dataclass(frozen=True)
class StoredKeyGroup:
    """The part of ``data`` that holds a key group."""

    key_group: int
    start: int
    end: int


def read_heap_rows(
    data: bytes, parts: Sequence[StoredKeyGroup], header: KeyedBackendHeader
) -> list[PlacedRecords]:
    """The records of each state, by state id.

    Raises:
        NotInColumnsError: Only the record-wise code can read these bytes.
    """
    reader = _HeapReader(header)
    if header.compressed:
        return reader.read_compressed(data, parts)
    return reader.read_plain(data, parts)


class _HeapReader:
    """Reads states in their stored order: first the first state of every key group, and so on."""

    def __init__(self, header: KeyedBackendHeader) -> None:
        if any(meta.as_key_value() is not meta for meta in header.states):
            raise NotInColumnsError
        self._formats = [RecordFormat(meta, header.key_serializer) for meta in header.states]
        self._programs = [PlaceProgram(_roots(each)) for each in self._formats]
        self._found: list[list[PlacedRecords]] = [[] for _ in header.states]

    def read_plain(self, data: bytes, parts: Sequence[StoredKeyGroup]) -> list[PlacedRecords]:
        source = Source(data, ())
        raw = np.frombuffer(data or b"\0", np.uint8)
        groups = np.array([each.key_group for each in parts], np.int64)
        ends = np.array([each.end for each in parts], np.int64)
        at = np.array([each.start for each in parts], np.int64)
        if not np.array_equal(_numbers(raw, at, ends, 4), groups):
            raise NotInColumnsError
        at += 4
        seen = np.zeros((len(self._formats), len(parts)), np.bool_)
        for _ in self._formats:
            ids = _numbers(raw, at, ends, 2)
            for state in np.unique(ids):
                rows = np.flatnonzero(ids == state)
                if state >= len(self._formats) or seen[state, rows].any():
                    raise NotInColumnsError
                seen[state, rows] = True
                starts, ends_of_rows = source.base + at[rows] + 2, source.base + ends[rows]
                at[rows] = (
                    self._read(int(state), groups[rows], starts, ends_of_rows, source) - source.base
                )
        if not np.array_equal(at, ends):
            raise NotInColumnsError
        return self._result()

    def read_compressed(self, data: bytes, parts: Sequence[StoredKeyGroup]) -> list[PlacedRecords]:
        bodies: list[list[tuple[int, bytes]]] = [[] for _ in self._formats]
        for part in parts:
            stream = DataInput(data, part.start, part.end)
            if stream.read_i32("key group") != part.key_group:
                raise NotInColumnsError
            missing = set(range(len(self._formats)))
            while missing:
                raw = stream.peek(stream.position)
                size = frames_end(raw, 0, len(raw))
                stream.read_bytes(size, "compressed state")
                body = decompress_frames(raw, 0, size)
                state = int.from_bytes(body[:2], "big")
                if state not in missing:
                    raise NotInColumnsError
                missing.remove(state)
                bodies[state].append((part.key_group, body))
            stream.expect_end("a key group")
        for state, records in enumerate(bodies):
            source = Source(b"".join(body for _, body in records), ())
            bounds = source.base + np.cumsum(
                [0, *(len(body) for _, body in records)], dtype=np.int64
            )
            groups = np.array([key_group for key_group, _ in records], np.int64)
            reached = self._read(state, groups, bounds[:-1] + 2, bounds[1:], source)
            if not np.array_equal(reached, bounds[1:]):
                raise NotInColumnsError
        return self._result()

    def _result(self) -> list[PlacedRecords]:
        return [PlacedRecords.concatenated(each) for each in self._found]

    def _read(
        self, state: int, groups: Int64s, starts: Int64s, ends: Int64s, source: Source
    ) -> Int64s:
        """Reads one state of some key groups; returns its end in each of them."""
        spans = np.zeros((len(groups), scan.SPAN_WORDS), np.int64)
        spans[:, scan.VALUE_START], spans[:, scan.VALUE_END] = starts, ends
        if (starts > ends).any():
            raise NotInColumnsError
        columns = self._programs[state].run(SpanBatch(spans, source))
        entries = Items.of(columns[_ENTRIES])
        rows = _stored(self._formats[state], entries, columns[_ENTRIES].values)
        rows.key_groups = groups[entries.rows[rows.key_groups]]
        rows.kept.append(source)
        self._found[state].append(rows)
        return addresses(columns[_REACHED])


def _numbers(raw: npt.NDArray[np.uint8], at: Int64s, ends: Int64s, size: int) -> Int64s:
    """Reads unsigned numbers of ``size`` bytes."""
    if (at + size > ends).any():
        raise NotInColumnsError
    numbers = np.zeros(len(at), np.int64)
    for byte in range(size):
        numbers = numbers << 8 | raw[at + byte]
    return numbers


# ---------------------------------------------------------------------------------- one state


def _roots(record_format: RecordFormat) -> list[tuple[str, Layout]]:
    """The layout of all entries of a state in a key group, and of the position after them."""
    meta = record_format.meta
    entry: list[tuple[str, Layout]] = [("start", AddressLayout())]
    if record_format.is_queue:
        entry.append(("timer", passed_timer(part_of(meta, TimerSerializer))))
    else:
        entry += [
            ("namespace", passed(record_format.namespace_serializer)),
            ("key_start", AddressLayout()),
            ("key", passed(record_format.key_serializer)),
            ("value_start", AddressLayout()),
            ("value", _value(record_format)),
        ]
    entry.append(("end", AddressLayout()))
    return [(_ENTRIES, Repeated(Struct(entry), 1)), (_REACHED, AddressLayout()), ("rest", Rest())]


def _value(record_format: RecordFormat) -> Layout:
    meta = record_format.meta
    match record_format.kind:
        case KeyedStateType.LIST:
            element = part_of(meta, ListSerializer).element
            return items_of(passed(element), max(1, element.length))
        case KeyedStateType.MAP:
            return pairs_of(part_of(meta, MapSerializer))
        case _:
            return passed(meta.value_serializer)


def _stored(record_format: RecordFormat, entries: Items, structs: Any) -> PlacedRecords:
    """The records of some entries; ``key_groups`` has the key group of each entry."""
    parts = entries.parts
    every = np.arange(len(parts["start"]))
    if record_format.is_queue:
        nothing = Ranges(parts["start"], parts["start"])
        return PlacedRecords(Ranges(parts["start"], parts["end"]), nothing, every)
    kept: list[Any] = []
    key = Ranges(parts["key_start"], parts["value_start"])
    namespace = Ranges(parts["start"], parts["key_start"])
    lengths = 2 if record_format.is_ambiguous else 0
    if record_format.kind is KeyedStateType.LIST:
        items = Items.of(structs.field("value"))
        rows = np.flatnonzero(items.counts)
        scopes = joined_parts([take(key, rows), take(namespace, rows)], kept, lengths=lengths)
        firsts = np.append(items.firsts[:-1][rows], items.firsts[-1])
        elements = Ranges(items.parts["start"], items.parts["end"])
        return PlacedRecords(scopes, joined_items(elements, firsts, kept), rows, kept)
    if record_format.kind is KeyedStateType.MAP:
        items = Items.of(structs.field("value"))
        rows = items.rows
        user_key = Ranges(items.parts["start"], items.parts["middle"])
        keys = [take(key, rows), take(namespace, rows), user_key]
        values = Ranges(items.parts["middle"], items.parts["end"])
        return PlacedRecords(joined_parts(keys, kept, lengths=lengths), values, rows, kept)
    values = Ranges(parts["value_start"], parts["end"])
    return PlacedRecords(joined_parts([key, namespace], kept, lengths=lengths), values, every, kept)
