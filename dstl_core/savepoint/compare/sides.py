"""The records of one snapshot that are compared with those of another one, a bounded part at a
time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from dstl_core.codec.columnar.keyed.decoder import StateDecoder
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import AnySerializer, OpaqueValue
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import NotInColumnsError, SavepointError, UnreadableValueError
from dstl_core.model.checkpoint import KEY_DECIMALS, DeclaredDecimals
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.compare.large_maps import BothParts, MapParts, held_parts, parts_of
from dstl_core.savepoint.compare.parted_records import PartedRecords, by_scope
from dstl_core.savepoint.read.entries import EVENT_TIMER, KeyedEntry, TimerEntry
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.stored_records import (
    Records,
    StateBatch,
    held_records,
    is_large,
    scope_decoder,
    state_batches,
    stored_size,
)
from dstl_core.state.backends.timers import EVENT_TIMERS, PROCESSING_TIMERS
from dstl_core.state.columns.state_columns import is_kind
from dstl_core.state.tables.keyed_state import types_of

Line = dict[str, Any]

Sides = list["Side | None"]
Entries = Generator[tuple["Side | None", "Side | None"], None, None]


@dataclass(frozen=True)
class LargeMap:
    """A map that is too large to be held.

    Args:
        place: The place of its state.
        has: Whether the first snapshot has the map, and the second one.
        entries: Some entries at a time, the same ones of both snapshots. They are read once.
    """

    place: int
    has: tuple[bool, bool]
    entries: Entries


def held_together(
    one: StateReader, two: StateReader, first: KeyGroupRange, second: KeyGroupRange
) -> Iterator[tuple[Sides, Sides] | LargeMap]:
    """The records of all states of both snapshots, as many at a time as memory should hold: some
    key groups, a part of the keys of one, or a part of a map. Only key groups with other keys in
    the other snapshot are never divided.
    """
    if first != second or not (one.is_large(first) or two.is_large(second)):
        yield one.sides(one.batches(first)), two.sides(two.batches(second))
        return
    for key_group in first:
        own = KeyGroupRange(key_group, key_group)
        if not (one.is_large(own) or two.is_large(own)):
            yield one.sides(one.batches(own)), two.sides(two.batches(own))
        else:
            yield from _divided(one, two, key_group, one.size(own) + two.size(own))


def _divided(
    one: StateReader, two: StateReader, key_group: int, size: int
) -> Iterator[tuple[Sides, Sides] | LargeMap]:
    count, maps = parts_of(size), one.maps_like(two)
    with closing(one.parted(key_group, count)) as a, closing(two.parted(key_group, count)) as b:
        whole = sum(a.size(at) + b.size(at) for at in range(count))
        for at in range(count):
            for part in held_parts(BothParts(a, b, at, whole), maps):
                if isinstance(part, BothParts):
                    yield one.sides(part.a.part(part.at)), two.sides(part.b.part(part.at))
                else:
                    yield LargeMap(part.place, part.has, _entries(one, two, part))


def _entries(one: StateReader, two: StateReader, large: MapParts) -> Entries:
    for part in large.entries():
        before, after = one.sides(part.a.part(part.at)), two.sides(part.b.part(part.at))
        yield before[large.place], after[large.place]


@dataclass
class StateReader:
    """Reads the states of an operator of one snapshot; None for those that it lacks."""

    operator: OperatorSnapshot | None
    infos: list[StateInfo | None]

    def maps_like(self, other: StateReader) -> frozenset[int]:
        """The places of the map states whose entries have the same types in another snapshot, or
        are in one alone.
        """
        key_types = [
            side.operator.key_type.serializer
            for side in (self, other)
            if side.operator is not None and side.operator.key_type is not None
        ]
        if key_types[:1] != key_types[-1:]:
            return frozenset()
        places = set()
        for place, infos in enumerate(zip(self.infos, other.infos, strict=True)):
            both = [info.meta for info in infos if info is not None]
            if all(is_kind(meta, KeyedStateType.MAP) for meta in both):
                types = [types_of(meta.as_key_value()) for meta in both]
                if types[0] == types[-1]:
                    places.add(place)
        return frozenset(places)

    @property
    def _metas(self) -> list[StateMetaInfoSnapshot]:
        if self.operator is None or self.operator.key_type is None:
            return []
        return [info.meta for info in self.infos if info is not None]

    def size(self, key_groups: KeyGroupRange) -> int:
        """Stored bytes of key groups, if it is known that they are many."""
        return stored_size(self.operator, key_groups) if self._metas and self.operator else 0

    def is_large(self, key_groups: KeyGroupRange) -> bool:
        return bool(self._metas and self.operator and is_large(self.operator, key_groups))

    def batches(self, key_groups: KeyGroupRange) -> Iterator[StateBatch]:
        """The records of all states, with the places of the states in ``infos``."""
        if not self._metas or self.operator is None:
            return
        places = [place for place, info in enumerate(self.infos) if info is not None]
        try:
            for batch in state_batches(self.operator, self._metas, key_groups):
                yield replace(batch, place=places[batch.place])
        except NotInColumnsError as error:
            raise SavepointError(
                f"State {error.context.get('state')!r} of operator {self.operator.label!r} cannot "
                f"be compared: keys of type {error.type_name} have no readable end."
            ) from error

    def parted(self, key_group: int, count: int) -> PartedRecords:
        """The records of a large key group, in files."""

        def decoder(place: int, prefix_bytes: int) -> StateDecoder:
            info = self.infos[place]
            assert self.operator is not None and self.operator.key_type is not None
            assert info is not None  # it has records
            return scope_decoder(info.meta, self.operator.key_type.serializer, prefix_bytes)

        own = KeyGroupRange(key_group, key_group)
        return PartedRecords(self.batches(own), decoder, key_group, count, by_scope(count))

    def sides(self, batches: Iterable[StateBatch]) -> Sides:
        """The records of each state; None for one that the snapshot lacks."""
        operator = self.operator
        if operator is None or operator.key_type is None:
            return [None for _ in self.infos]
        known, key_type = operator.decimals, operator.key_type.serializer
        sides: Sides = []
        for info, records in zip(self.infos, held_records(batches, len(self.infos)), strict=True):
            if info is None:
                sides.append(None)
                continue
            decimals, of_keys = known.get(info.name), known.get(KEY_DECIMALS)
            sides.append(Side(operator, info, key_type, records, decimals, of_keys))
        return sides


@dataclass
class Side:
    """The records of a state in some key groups of one snapshot."""

    operator: OperatorSnapshot
    info: StateInfo
    key_type: AnySerializer
    records: Records
    decimals: DeclaredDecimals | None
    """What was declared of decimals in values, and in keys."""
    key_decimals: DeclaredDecimals | None

    def show_alike(self, other: Side) -> None:
        """Shows decimals as they are stored where the other side declares another type: another
        number of digits is no difference of a value.
        """
        if self.decimals != other.decimals:
            self.decimals = other.decimals = None
        if self.key_decimals != other.key_decimals:
            self.key_decimals = other.key_decimals = None

    @property
    def is_map(self) -> bool:
        return is_kind(self.info.meta, KeyedStateType.MAP)

    @property
    def types(self) -> tuple[Any, Any]:
        return self.key_type, types_of(self.info.meta.as_key_value())

    def line(self, rows: Iterable[int]) -> Line | None:
        """The entry of some records, in the form of ``dstl dump``."""
        rows = list(rows)
        if not rows:
            return None
        meta = self.info.meta.as_key_value()
        record_format = RecordFormat(meta, self.key_type)
        key_group = self.records.key_group(rows[0])
        if meta.is_queue:
            return self._timer(record_format, rows[0], key_group).to_line()
        pairs = []
        for row in rows:
            try:
                record = self.records.decode(row, record_format)
            except UnreadableValueError:
                return self._opaque(record_format, rows, key_group)
            pairs.append((record.user_key, record.value))
        return KeyedEntry(
            self.operator.label,
            self.info.kind,
            self.info.name,
            record.key,
            key_group,
            record.namespace,
            pairs if self.is_map else record.value,
            self.key_type,
            meta.namespace_serializer,
            meta.value_serializer,
            self.decimals,
            self.key_decimals,
            self.operator.forms,
        ).to_line()

    def _opaque(self, record_format: RecordFormat, rows: list[int], key_group: int) -> Line:
        """An entry whose value only Java can read, with the bytes of the value."""
        meta = record_format.meta
        raw = b"".join(sorted(self.records.value_bytes(row) for row in rows))
        key, namespace = self.records.decode_scope(rows[0], record_format)
        return KeyedEntry(
            self.operator.label,
            self.info.kind,
            self.info.name,
            key,
            key_group,
            namespace,
            OpaqueValue(meta.value_serializer.opaque_class, raw),
            self.key_type,
            meta.namespace_serializer,
            meta.value_serializer,
            key_decimals=self.key_decimals,
            forms=self.operator.forms,
        ).to_line()

    def _timer(self, record_format: RecordFormat, row: int, key_group: int) -> TimerEntry:
        timer = self.records.decode(row, record_format).value
        event = self.info.kind == EVENT_TIMER
        key_type, namespace_type = record_format.meta.value_serializer.nested
        return TimerEntry(
            self.operator.label,
            self.info.kind,
            self.info.name.removeprefix(EVENT_TIMERS if event else PROCESSING_TIMERS),
            timer.key,
            key_group,
            timer.namespace,
            timer.timestamp,
            key_type,
            namespace_type,
            self.key_decimals,
            self.operator.forms,
        )
