"""Timers of raw keyed state as records of queues, and back: compiled ``raw_timers``.

A queue has the time of a timer first, with another sign bit; raw keyed state has it last. All else
is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, Ranges
from dstl_core.codec.columnar.keyed.heap_rows import StoredKeyGroup
from dstl_core.codec.columnar.keyed.places import (
    Items,
    PlacedRecords,
    PlaceProgram,
    addresses,
    items_of,
    joined_parts,
    passed_raw_timer,
)
from dstl_core.codec.columnar.keyed.runs import Runs, runs_of
from dstl_core.codec.columnar.keyed.spans import Source, SpanBatch
from dstl_core.codec.columnar.keyed.sst_writer import sorted_rows
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.layouts import AddressLayout, Rest
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.raw_timers import StoredRun, read_service_types, read_services_count
from dstl_core.codec.serializers import SerializerRegistry, TimerSerializer
from dstl_core.errors import FormatError, NotInColumnsError
from dstl_core.model.key_group import KeyGroupRange

_DOMAINS = "event_time", "processing_time"
_REACHED = "reached"
_TIME_BYTES = 8
_LEAST_BYTES = 9
_SIGN = 0x80


@dataclass
class ServiceRows:
    """The timers of one service in some key groups, in its two domains; keys have the key group."""

    name: str
    element: TimerSerializer
    event_time: PlacedRecords
    processing_time: PlacedRecords


@dataclass
class _Service:
    """A service while it is read: the parts with its timers, and their inputs."""

    element: TimerSerializer
    program: PlaceProgram
    first: tuple[int, int]
    """The first part with it, and its place there."""
    rows: list[int] = field(default_factory=list)
    domains: dict[str, list[PlacedRecords]] = field(
        default_factory=lambda: {domain: [] for domain in _DOMAINS}
    )


def read_timer_rows(
    data: bytes, parts: Sequence[StoredKeyGroup], prefix_bytes: int, registry: SerializerRegistry
) -> list[ServiceRows]:
    """The timers of each service, in the order in which key groups name them first.

    Raises:
        NotInColumnsError: Only the record-wise code can read these bytes.
        FormatError: The data is damaged.
    """
    return _TimerReader(data, parts, prefix_bytes, registry).services()


class _TimerReader:
    """Reads the services by their place: the first one of every key group, and so on."""

    def __init__(
        self,
        data: bytes,
        parts: Sequence[StoredKeyGroup],
        prefix_bytes: int,
        registry: SerializerRegistry,
    ) -> None:
        self._source = Source(data, ())
        self._inputs = [DataInput(data, part.start, part.end) for part in parts]
        self._ends = np.array([part.end for part in parts], np.int64)
        self._groups = np.array([part.key_group for part in parts], np.int64)
        self._prefix_bytes = prefix_bytes
        self._registry = registry
        self._services: dict[str, _Service] = {}

    def services(self) -> list[ServiceRows]:
        counts = [read_services_count(stored) for stored in self._inputs]
        seen: set[tuple[str, int]] = set()
        for place in range(max(counts, default=0)):
            for part, count in enumerate(counts):
                if place < count:
                    name, element = read_service_types(self._inputs[part], self._registry)
                    if (name, part) in seen:
                        raise NotInColumnsError
                    seen.add((name, part))
                    self._expect(name, element, (part, place))
            for service in self._services.values():
                if service.rows:
                    self._read(service)
        for stored in self._inputs:
            stored.expect_end("the timers of a key group")
        in_order = sorted(self._services.items(), key=lambda item: item[1].first)
        return [
            ServiceRows(
                name,
                service.element,
                *(PlacedRecords.concatenated(service.domains[domain]) for domain in _DOMAINS),
            )
            for name, service in in_order
        ]

    def _expect(self, name: str, element: TimerSerializer, at: tuple[int, int]) -> None:
        service = self._services.get(name)
        if service is None:
            timers = items_of(passed_raw_timer(element), _LEAST_BYTES)
            again = items_of(passed_raw_timer(element), _LEAST_BYTES)
            roots = [*zip(_DOMAINS, (timers, again), strict=True), (_REACHED, AddressLayout())]
            program = PlaceProgram([*roots, ("rest", Rest())])
            service = self._services[name] = _Service(element, program, at)
        if service.element != element:
            raise NotInColumnsError
        service.first = min(service.first, at)
        service.rows.append(at[0])

    def _read(self, service: _Service) -> None:
        """Reads the timers of a service in the parts whose input stands at them."""
        rows, service.rows = service.rows, []
        spans = np.zeros((len(rows), scan.SPAN_WORDS), np.int64)
        base = self._source.base
        spans[:, scan.VALUE_START] = [base + self._inputs[row].position for row in rows]
        spans[:, scan.VALUE_END] = base + self._ends[rows]
        columns = service.program.run(SpanBatch(spans, self._source))
        for domain in _DOMAINS:
            items = Items.of(columns[domain])
            timers = Ranges(items.parts["start"], items.parts["end"])
            groups = self._groups[rows][items.rows]
            service.domains[domain].append(self._elements(timers, groups))
        for row, reached in zip(rows, addresses(columns[_REACHED]).tolist(), strict=True):
            self._inputs[row].rewind(reached - base)

    def _elements(self, timers: Ranges, groups: Int64s) -> PlacedRecords:
        """Records of a queue, of timers in raw form."""
        kept: list[Any] = []
        size = self._prefix_bytes
        stored = groups.astype(f">u{size}")
        starts = address_of(stored) + size * np.arange(len(groups))
        times = timers.ends - _TIME_BYTES
        parts = Ranges(starts, starts + size), Ranges(times, timers.ends)
        keys = joined_parts([*parts, Ranges(timers.starts, times)], kept)
        _flip(kept[0], keys.starts + size)
        nothing = Ranges(keys.ends, keys.ends)
        return PlacedRecords(keys, nothing, groups, kept)


def runs_of_timers(
    records: PlacedRecords, state: int, key_groups: KeyGroupRange, prefix_bytes: int
) -> Runs:
    """The runs of a queue: each timer once, in the order of the time.

    Args:
        records: At least one timer, of ``ServiceRows``.
        state: The id of the queue.
        key_groups: The key groups of the records.
        prefix_bytes: Bytes of a key group.
    """
    spans = records.spans
    spans[:, scan.TAG] = records.key_groups << 16
    spans = _in_order(spans, prefix_bytes)
    spans[:, scan.KEY_START] += prefix_bytes
    groups = spans[:, scan.TAG] >> 16
    buckets = groups - key_groups.start_key_group
    return runs_of(spans, state, buckets, groups, len(key_groups), prefix_bytes)


def stored_timers(spans: Int64s, prefix_bytes: int) -> Iterator[tuple[int, StoredRun]]:
    """The timers of each key group as raw keyed state has them.

    Args:
        spans: Records of a queue, with whole keys.
        prefix_bytes: Bytes of a key group.

    Raises:
        FormatError: A timer has no time.
    """
    spans = _in_order(spans, prefix_bytes)
    starts, ends = spans[:, scan.KEY_START] + prefix_bytes, spans[:, scan.KEY_END]
    shortest = int((ends - starts).min())
    if shortest < _TIME_BYTES:
        raise FormatError(
            "A timer is too short", field="timer", expected=f">= {_TIME_BYTES}", got=shortest
        )
    kept: list[Any] = []
    rest = Ranges(starts + _TIME_BYTES, ends)
    timers = joined_parts([rest, Ranges(starts, starts + _TIME_BYTES)], kept)
    _flip(kept[0], timers.ends - _TIME_BYTES)
    base, groups = address_of(kept[0]), spans[:, scan.TAG] >> 16
    bounds = [*np.flatnonzero(np.diff(groups, prepend=-1)).tolist(), len(groups)]
    for first, behind in pairwise(bounds):
        start, end = int(timers.starts[first]) - base, int(timers.ends[behind - 1]) - base
        yield int(groups[first]), StoredRun(behind - first, kept[0][start:end].tobytes())


def _flip(data: Any, times: Int64s) -> None:
    """Changes the sign bits of the times at these addresses."""
    data[times - address_of(data)] ^= _SIGN


def _in_order(spans: Int64s, prefix_bytes: int) -> Int64s:
    """Records with whole keys: each once, in the order of the keys."""
    distinct = ByteIndex(Ranges(spans[:, scan.KEY_START], spans[:, scan.KEY_END])).firsts
    spans = np.ascontiguousarray(spans[distinct])
    return np.ascontiguousarray(spans[sorted_rows(spans, prefix_bytes)])
