"""Replays a changelog on stored rows, by columns: the compiled form of ``StateTable.apply``.

Every change becomes events: a record is put or removed, or a scope (key and namespace) is cleared.
The last event of a record decides, unless its scope is cleared later. Merges of namespaces use the
record-wise code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dstl_core.codec.change_payload import StateChangeOperation as Operation
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.kernels.change_rows import (
    EVENT_WORDS,
    IS_PUT,
    KEY_END,
    KEY_START,
    ORDER,
    SCOPE_END,
    VALUE_END,
    VALUE_START,
    place_events,
)
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, Ranges, last_rows
from dstl_core.codec.columnar.keyed.decoder import StateDecoder
from dstl_core.codec.columnar.keyed.places import (
    Items,
    PlacedRecords,
    PlaceProgram,
    addresses,
    concatenated,
    items_of,
    joined_items,
    joined_parts,
    pairs_of,
    passed,
    passed_timer,
    take,
)
from dstl_core.codec.columnar.keyed.spans import Source, SpanBatch
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.layouts import AddressLayout, Layout, Rest
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.scratch import scratch_words
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS
from dstl_core.codec.keyed_records import RecordFormat, part_of
from dstl_core.codec.serializers import ListSerializer, MapSerializer, TimerSerializer
from dstl_core.codec.state_meta import KeyedStateType
from dstl_core.errors import NotInColumnsError

_NO_FLAG = np.zeros(1, np.uint8)
"""Precedes the value of a pair that is not null."""
_NULL_FLAG = np.ones(1, np.uint8)
"""The whole value of a pair whose value is null."""
_WHOLE = (Operation.SET, Operation.SET_INTERNAL)
_BASE_ORDER = 0


@dataclass
class _Events:
    """Events of one kind. ``order`` gives their sequence; a clear comes before the puts of the same
    change.
    """

    keys: list[Ranges] = field(default_factory=list)
    scopes: list[Ranges] = field(default_factory=list)
    values: list[Ranges] = field(default_factory=list)
    key_groups: list[Int64s] = field(default_factory=list)
    orders: list[Int64s] = field(default_factory=list)

    def add(
        self, keys: Ranges, scopes: Ranges, values: Ranges, key_groups: Int64s, orders: Int64s
    ) -> None:
        self.keys.append(keys)
        self.scopes.append(scopes)
        self.values.append(values)
        self.key_groups.append(key_groups)
        self.orders.append(orders)

    def place(self, words: Int64s, cursors: Int64s, first: int, *, is_put: bool) -> None:
        """Moves the events to their key groups. Scopes start with their keys."""
        while self.keys:
            key, scope, value = self.keys.pop(0), self.scopes.pop(0), self.values.pop(0)
            order, groups = self.orders.pop(0), self.key_groups.pop(0)
            parts = (key.starts, key.ends, value.starts, value.ends, scope.ends, order)
            columns = [np.ascontiguousarray(part, np.int64) for part in parts]
            groups = np.ascontiguousarray(groups, np.int64)
            places = np.array([address_of(column) for column in columns], np.int64)
            place_events(
                address_of(places),
                address_of(groups),
                len(groups),
                int(is_put),
                first,
                address_of(cursors),
                address_of(words),
            )


@dataclass(frozen=True)
class _Placed:
    """All events by key group: ``words`` of ``change_rows``, and where each key group starts."""

    words: Int64s
    bounds: Int64s
    first: int

    def part(self, first: int, last: int) -> _EventRun:
        """The events of some key groups, in each of them by order."""
        start, stop = int(self.bounds[first - self.first]), int(self.bounds[last + 1 - self.first])
        words = self.words[start:stop]
        bounds = self.bounds[first - self.first : last + 2 - self.first]
        groups = np.repeat(np.arange(first, last + 1), np.diff(bounds))
        steps = np.diff(words[:, ORDER])
        steps[bounds[1:-1][(bounds[1:-1] > start) & (bounds[1:-1] < stop)] - start - 1] = 0
        if (steps < 0).any():
            words = words[np.lexsort((words[:, ORDER], groups))]
        return _EventRun(np.ascontiguousarray(words.T), groups)


@dataclass(frozen=True)
class _EventRun:
    """Some events: one line for each word, and their key groups."""

    lines: Int64s
    key_groups: Int64s

    @property
    def keys(self) -> Ranges:
        return Ranges(self.lines[KEY_START], self.lines[KEY_END])

    @property
    def scopes(self) -> Ranges:
        return Ranges(self.lines[KEY_START], self.lines[SCOPE_END])

    @property
    def values(self) -> Ranges:
        return Ranges(self.lines[VALUE_START], self.lines[VALUE_END])

    @property
    def orders(self) -> Int64s:
        orders: Int64s = self.lines[ORDER]
        return orders

    @property
    def is_put(self) -> Any:
        return self.lines[IS_PUT] != 0


class StateReplay:
    """Replays changes on one state: first the rows of the base, then changes in order.

    Raises:
        NotInColumnsError: Only the record-wise code can replay this state.
    """

    def __init__(self, record_format: RecordFormat, prefix_bytes: int) -> None:
        self._format = record_format
        self._prefix_bytes = prefix_bytes
        self._programs: dict[Operation, PlaceProgram] = {}
        self._kept: list[Any] = []
        self._puts, self._removals, self._clears = _Events(), _Events(), _Events()
        self._decoder = StateDecoder(record_format, prefix_bytes, EXACT_OPTIONS)

    @property
    def _is_list(self) -> bool:
        return self._format.kind is KeyedStateType.LIST

    @property
    def _is_map(self) -> bool:
        return self._format.kind is KeyedStateType.MAP

    def add_base(self, batch: SpanBatch) -> None:
        """Adds records of the base, before all changes.

        Raises:
            FormatError: A stored key is damaged.
        """
        spans = batch.spans
        keys = Ranges(spans[:, scan.KEY_START], spans[:, scan.KEY_END])
        values = Ranges(spans[:, scan.VALUE_START], spans[:, scan.VALUE_END])
        scopes = keys if self._format.is_queue else self._decoder.scope_ranges(batch)
        orders = np.full(len(batch), _BASE_ORDER, np.int64)
        self._kept.append(batch.source)
        self._puts.add(keys, scopes, values, batch.key_groups, orders)

    def check_base(self) -> None:
        """Raises if a key occurs twice. Call it before changes are added."""
        if self._format.is_queue:
            return
        keys = concatenated(self._puts.keys)
        if len(last_rows(keys, _joined(self._puts.key_groups))) != len(keys):
            raise NotInColumnsError

    # ------------------------------------------------------------------------------- changes

    def add_changes(self, operation: Operation, batch: SpanBatch, orders: Int64s) -> None:
        """Adds changes of one operation.

        Args:
            operation: Operation of all changes.
            batch: The bytes after the state id, as values of spans.
            orders: Ascending numbers above 0, at least two apart.
        """
        self._kept.append(batch.source)
        program = self._programs.get(operation)
        if program is None:
            program = PlaceProgram(change_roots(self._format, operation))
            self._programs[operation] = program
        columns = program.run(batch)
        groups = batch.key_groups
        starts = np.ascontiguousarray(batch.spans[:, scan.VALUE_START])
        ends = np.ascontiguousarray(batch.spans[:, scan.VALUE_END])
        if self._format.is_queue:
            self._queue_changes(operation, columns, groups, orders, Ranges(starts, ends))
            return
        key = Ranges(starts, addresses(columns["key_end"]))
        namespace = Ranges(key.ends, addresses(columns["namespace_end"]))
        scopes = self._scopes(key, namespace)
        if operation is Operation.CLEAR or (self._is_list and operation in _WHOLE):
            self._clears.add(scopes, scopes, scopes, groups, orders)
        if operation is Operation.CLEAR:
            return
        rest = Ranges(namespace.ends, ends)
        if self._is_map:
            self._map_changes(operation, columns, (key, namespace, rest), batch, orders)
        elif self._is_list and operation is not Operation.ADD_ELEMENT:
            items = Items.of(columns["items"])
            rows, scopes_of_items = items.rows, take(scopes, items.rows)
            elements = Ranges(items.parts["start"], items.parts["end"])
            self._puts.add(
                scopes_of_items, scopes_of_items, elements, groups[rows], orders[rows] + 1
            )
        else:
            self._puts.add(scopes, scopes, rest, groups, orders + 1)

    def _scopes(self, key: Ranges, namespace: Ranges) -> Ranges:
        """Key and namespace in the form of stored keys."""
        if self._format.is_ambiguous:
            return joined_parts([key, namespace], self._kept, lengths=2)
        return Ranges(key.starts, namespace.ends)

    def _queue_changes(
        self,
        operation: Operation,
        columns: dict[str, pa.Array],
        groups: Int64s,
        orders: Int64s,
        every: Ranges,
    ) -> None:
        if operation is Operation.REMOVE_ELEMENT:
            self._removals.add(every, every, every, groups, orders + 1)
            return
        items = Items.of(columns["items"])
        rows = items.rows
        elements = Ranges(items.parts["start"], items.parts["end"])
        nothing = Ranges(elements.starts, elements.starts)
        self._puts.add(elements, elements, nothing, groups[rows], orders[rows] + 1)

    def _map_changes(
        self,
        operation: Operation,
        columns: dict[str, pa.Array],
        parts: tuple[Ranges, Ranges, Ranges],
        batch: SpanBatch,
        orders: Int64s,
    ) -> None:
        key, namespace, rest = parts
        groups = batch.key_groups
        rows: Any = slice(None)
        if operation is Operation.ADD:
            items = Items.of(columns["items"])
            rows = items.rows
            user_keys = Ranges(items.parts["start"], items.parts["middle"])
            values = _with_one_null(Ranges(items.parts["middle"], items.parts["end"]), batch.source)
        else:
            user_keys = Ranges(rest.starts, addresses(columns["user_key_end"]))
            flag = np.full(len(rest), address_of(_NO_FLAG), np.int64)
            values = Ranges(user_keys.ends, rest.ends)
            if operation is not Operation.REMOVE_ELEMENT:
                values = joined_parts([Ranges(flag, flag + 1), values], self._kept)
        key, namespace = take(key, rows), take(namespace, rows)
        lengths = 2 if self._format.is_ambiguous else 0
        keys = joined_parts([key, namespace, user_keys], self._kept, lengths=lengths)
        sizes = user_keys.ends - user_keys.starts
        scopes = Ranges(keys.starts, keys.ends - sizes)
        target = self._removals if operation is Operation.REMOVE_ELEMENT else self._puts
        target.add(keys, scopes, values, groups[rows], orders[rows] + 1)

    # -------------------------------------------------------------------------------- result

    @property
    def events(self) -> int:
        """Number of events so far."""
        return sum(map(len, [*self._puts.keys, *self._removals.keys]))

    def finish(self, first: int, last: int) -> None:
        """Ends the replay of the key groups ``first`` to ``last``. ``rows`` gives the result."""
        sizes = np.zeros(last - first + 2, np.int64)
        for groups in (*self._puts.key_groups, *self._removals.key_groups):
            sizes[1:] += np.bincount(groups - first, minlength=last - first + 1)
        bounds = np.cumsum(sizes)
        words = scratch_words(int(bounds[-1]), EVENT_WORDS)
        cursors = bounds[:-1].copy()
        self._puts.place(words, cursors, first, is_put=True)
        self._removals.place(words, cursors, first, is_put=False)
        self._done = _Placed(words, bounds, first)

    def rows(self, first: int, last: int) -> PlacedRecords:
        """The rows of the key groups ``first`` to ``last`` that remain after the replay."""
        events = self._done.part(first, last)
        alive = self._after_clears(events, first, last)
        if self._is_list:
            numbers = _numbered(events.keys, events.key_groups)
            order = np.argsort(numbers, kind="stable")
            return self._lists(
                order[alive[order]], numbers, events.keys, events.values, events.key_groups
            )
        newest = last_rows(events.keys, events.key_groups)
        newest = newest[(alive & events.is_put)[newest]]
        return PlacedRecords(
            take(events.keys, newest),
            take(events.values, newest),
            events.key_groups[newest],
            self._kept,
        )

    def _after_clears(self, events: _EventRun, first: int, last: int) -> Any:
        """Whether the scope of each event is not cleared after it."""
        clears = self._clears
        groups = _joined(clears.key_groups)
        here = np.flatnonzero((groups >= first) & (groups <= last))
        if not len(here):
            return np.ones(len(events.orders), np.bool_)
        cleared = take(concatenated(clears.scopes), here)
        every = np.concatenate([groups[here], events.key_groups])
        numbers = _numbered(concatenated([cleared, events.scopes]), every)
        latest = np.full(int(numbers.max()) + 1, -1, np.int64)
        np.maximum.at(latest, numbers[: len(here)], _joined(clears.orders)[here])
        return events.orders > latest[numbers[len(here) :]]

    def _lists(
        self, order: Int64s, numbers: Int64s, keys: Ranges, values: Ranges, groups: Int64s
    ) -> PlacedRecords:
        """One record for each list, with all elements added to it."""
        firsts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        heads = order[firsts]
        bounds = np.append(firsts, len(order))
        joined = joined_items(take(values, order), bounds, self._kept)
        return PlacedRecords(take(keys, heads), joined, groups[heads], self._kept)


def _with_one_null(values: Ranges, source: Source) -> Ranges:
    """Flags and values, with one flag for all nulls: every byte except 0 means null."""
    data = np.frombuffer(source.data or b"\0", np.uint8)
    is_null = data[values.starts - source.base] != 0
    null = address_of(_NULL_FLAG)
    return Ranges(np.where(is_null, null, values.starts), np.where(is_null, null + 1, values.ends))


def _joined(parts: list[Int64s]) -> Int64s:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _numbered(keys: Ranges, key_groups: Int64s) -> Int64s:
    """Numbers the keys without gaps; equal bytes in the same key group get the same number."""
    index = ByteIndex(keys)
    if np.array_equal(key_groups[index.firsts][index.numbers], key_groups):
        return index.numbers
    numbers: Int64s = np.unique(index.numbers << 16 | key_groups, return_inverse=True)[1]
    return numbers


def change_roots(record_format: RecordFormat, operation: Operation) -> list[tuple[str, Layout]]:
    """The parts of a change after its state id, as roots of a ``PlaceProgram``.

    Raises:
        NotInColumnsError: A kernel cannot read such changes.
    """
    meta = record_format.meta
    if record_format.is_queue:
        timer = passed_timer(part_of(meta, TimerSerializer))
        match operation:
            case Operation.ADD_ELEMENT:
                return [("items", items_of(timer, 1))]
            case Operation.REMOVE_ELEMENT:
                return [("timer", timer)]
            case _:
                raise NotInColumnsError
    scope: list[tuple[str, Layout]] = [
        ("key", passed(record_format.key_serializer)),
        ("key_end", AddressLayout()),
        ("namespace", passed(record_format.namespace_serializer)),
        ("namespace_end", AddressLayout()),
    ]
    if operation is Operation.CLEAR:
        return scope
    return [*scope, *_operands(record_format, operation)]


def _operands(record_format: RecordFormat, operation: Operation) -> list[tuple[str, Layout]]:
    meta = record_format.meta
    match record_format.kind, operation:
        case KeyedStateType.LIST, Operation.ADD_ELEMENT:
            return [("rest", Rest())]
        case KeyedStateType.LIST, Operation.SET | Operation.SET_INTERNAL | Operation.ADD:
            element = part_of(meta, ListSerializer).element
            return [("items", items_of(passed(element), max(1, element.length)))]
        case KeyedStateType.MAP, Operation.ADD:
            return [("items", pairs_of(part_of(meta, MapSerializer)))]
        case KeyedStateType.MAP, (
            Operation.ADD_OR_UPDATE_ELEMENT | Operation.ADD_ELEMENT | Operation.REMOVE_ELEMENT
        ):
            user_key = passed(part_of(meta, MapSerializer).key)
            roots = [("user_key", user_key), ("user_key_end", AddressLayout())]
            return roots if operation is Operation.REMOVE_ELEMENT else [*roots, ("rest", Rest())]
        case ((KeyedStateType.LIST | KeyedStateType.MAP), _):
            raise NotInColumnsError
        case _, Operation.SET | Operation.SET_INTERNAL:
            return [("rest", Rest())]
        case _:
            raise NotInColumnsError
