"""Replays a large changelog into tables, with the changes of a state in batches.

A kernel finds the parts of the changes. Per change, Python only slices byte strings and calls the
store. The kernel reads all changes but merges of namespaces and whole maps. Others go to
``StateTable.apply``, and so do damaged changes: their error comes from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dstl_core.codec.change_payload import MetadataChange, read_change
from dstl_core.codec.change_payload import StateChangeOperation as Operation
from dstl_core.codec.columnar.changes.change_spans import HEAD_BYTES, ChangeSpans, change_spans
from dstl_core.codec.columnar.changes.replay import change_roots
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.places import Items, PlaceProgram, addresses
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.errors import NotInColumnsError
from dstl_core.state.tables.queue_table import QueueTable
from dstl_core.state.tables.state_table import (
    ListTable,
    MapTable,
    StateTable,
    ValueTable,
    join_elements,
)

Changes = tuple[int, ChangeSpans | MetadataChange]
"""A state id with its description, or with its changes in their order."""

_OPERATIONS = {
    ValueTable: (Operation.SET, Operation.SET_INTERNAL, Operation.CLEAR),
    MapTable: (
        Operation.ADD_OR_UPDATE_ELEMENT,
        Operation.ADD_ELEMENT,
        Operation.REMOVE_ELEMENT,
        Operation.CLEAR,
    ),
    ListTable: (
        Operation.ADD_ELEMENT,
        Operation.ADD,
        Operation.SET,
        Operation.SET_INTERNAL,
        Operation.CLEAR,
    ),
    QueueTable: (Operation.ADD_ELEMENT, Operation.REMOVE_ELEMENT),
}
"""The operations that are applied in batches."""
_WHOLE = [each.value for each in (Operation.SET, Operation.SET_INTERNAL, Operation.CLEAR)]
"""The operations that replace a list."""
_CLEAR, _REMOVE = Operation.CLEAR.value, Operation.REMOVE_ELEMENT.value


def changes_of(batch: pa.RecordBatch, registry: SerializerRegistry) -> Iterator[Changes]:
    """Splits a batch of ``CHANGE_SCHEMA`` into descriptions of states, and changes between them.

    Raises:
        FormatError: A record has no operation and state id, or a description is damaged.
    """
    for part in change_spans(batch):
        if isinstance(part, ChangeSpans):
            for state_id in np.unique(part.ids).tolist():
                yield state_id, part.take(np.flatnonzero(part.ids == state_id))
            continue
        change = read_change(part, registry)
        if isinstance(change, MetadataChange):
            yield change.state_id, change


class TableReplay:
    """Replays changes on one table."""

    def __init__(self, table: StateTable[Any], registry: SerializerRegistry) -> None:
        self._table = table
        self._registry = registry
        self._format = RecordFormat(table.meta, table.codec.key_serializer)
        self._programs: dict[Operation, PlaceProgram] = {}

    def apply(self, changes: ChangeSpans) -> None:
        """Applies changes in their order.

        Raises:
            FormatError: A change is damaged.
        """
        spans, base = changes.batch.spans, changes.batch.source.base
        starts, ends = spans[:, scan.VALUE_START] - base, spans[:, scan.VALUE_END] - base
        first = int(starts.min()) - HEAD_BYTES
        data = bytes(memoryview(changes.batch.source.data)[first : int(ends.max())])
        starts, ends = starts - first, ends - first
        try:
            self._by_columns(changes, data, starts, ends, base + first)
        except NotInColumnsError:
            self._one_by_one(changes, data, starts, ends)

    def _by_columns(
        self, changes: ChangeSpans, data: bytes, starts: Int64s, ends: Int64s, base: int
    ) -> None:
        """Applies the changes, or raises NotInColumnsError and changes nothing."""
        table = self._table
        if table.lost or changes.batch.key_groups.min() < 0:
            raise NotInColumnsError
        if isinstance(table, QueueTable):
            self._elements(table, changes, data, (starts, ends), base)
            return
        scope_ends, key_ends = ends.copy(), ends.copy()
        lists: list[tuple[Int64s, Items]] = []
        for code in np.unique(changes.operations).tolist():
            rows = np.flatnonzero(changes.operations == code)
            places = self._program(code).run(changes.batch.take(rows))
            scope_ends[rows] = addresses(places["namespace_end"]) - base
            if "user_key_end" in places:
                key_ends[rows] = addresses(places["user_key_end"]) - base
            if "items" in places:
                lists.append((rows, Items.of(places["items"])))
        _check_ends(changes.operations == _CLEAR, scope_ends, ends)
        _check_ends(changes.operations == _REMOVE, key_ends, ends)
        key_groups = changes.batch.key_groups.tolist()
        scopes = _slices(data, starts, scope_ends)
        if isinstance(table, MapTable):
            pairs = _slices(data, scope_ends, key_ends), _slices(data, key_ends, ends)
            _apply_pairs(table, changes.operations.tolist(), key_groups, scopes, *pairs)
            return
        values: list[bytes | None] = [*_slices(data, scope_ends, ends)]
        if isinstance(table, ListTable):
            for rows, items in lists:
                _join_lists(values, rows, items, data, base)
            _apply_lists(table, changes.operations.tolist(), key_groups, scopes, values)
            return
        for row in np.flatnonzero(changes.operations == _CLEAR).tolist():
            values[row] = None
        table.put_many(key_groups, scopes, values)

    def _elements(
        self,
        table: QueueTable,
        changes: ChangeSpans,
        data: bytes,
        places: tuple[Int64s, Int64s],
        base: int,
    ) -> None:
        """As ``_by_columns``, for the elements of a queue: the last change of an element holds."""
        parts = []
        for code in np.unique(changes.operations).tolist():
            rows = np.flatnonzero(changes.operations == code)
            columns = self._program(code).run(changes.batch.take(rows))
            if code == _REMOVE:
                parts.append((rows, places[0][rows], places[1][rows]))
            else:
                items = Items.of(columns["items"])
                starts, ends = items.parts["start"] - base, items.parts["end"] - base
                parts.append((rows[items.rows], starts, ends))
        every, starts, ends = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(every, kind="stable")
        rows, elements = every[order], _slices(data, starts[order], ends[order])
        key_groups = changes.batch.key_groups[rows].tolist()
        is_gone = (changes.operations[rows] == _REMOVE).tolist()
        last = dict(zip(zip(key_groups, elements, strict=True), is_gone, strict=True))
        for (key_group, element), gone in last.items():
            if gone:
                table.remove(key_group, element)
        kept = [place for place, gone in last.items() if not gone]
        table.add_new([group for group, _ in kept], [element for _, element in kept])

    def _program(self, code: int) -> PlaceProgram:
        """The program that finds the parts of changes of one operation."""
        known = _OPERATIONS.get(type(self._table), ())
        operation = next((each for each in known if each.value == code), None)
        if operation is None:
            raise NotInColumnsError
        program = self._programs.get(operation)
        if program is None:
            program = PlaceProgram(change_roots(self._format, operation))
            self._programs[operation] = program
        return program

    def _one_by_one(self, changes: ChangeSpans, data: bytes, starts: Int64s, ends: Int64s) -> None:
        places = (starts - HEAD_BYTES).tolist(), ends.tolist(), changes.batch.key_groups.tolist()
        for start, end, key_group in zip(*places, strict=True):
            change = read_change(data[start:end], self._registry)
            if not isinstance(change, MetadataChange):
                self._table.apply(change.operation, key_group, change.body)


def _slices(data: bytes, starts: Int64s, ends: Int64s) -> list[bytes]:
    return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def _check_ends(rows: Any, places: Int64s, ends: Int64s) -> None:
    """Changes that have no value end after their key."""
    if not np.array_equal(places[rows], ends[rows]):
        raise NotInColumnsError


def _join_lists(
    values: list[bytes | None], rows: Int64s, items: Items, data: bytes, base: int
) -> None:
    """Sets the values of the rows of whole lists: their elements as stored, None if it is empty."""
    elements = _slices(data, items.parts["start"] - base, items.parts["end"] - base)
    bounds = items.firsts.tolist()
    for row, start, end in zip(rows.tolist(), bounds, bounds[1:], strict=False):
        values[row] = join_elements(elements[start:end]) if end > start else None


def _apply_lists(
    table: ListTable,
    operations: Sequence[int],
    key_groups: Sequence[int],
    scopes: Sequence[bytes],
    values: Sequence[bytes | None],
) -> None:
    """Applies changes of lists; values are the elements that a change adds."""
    rows = zip(operations, key_groups, scopes, values, strict=True)
    for operation, key_group, scope, value in rows:
        if operation in _WHOLE:
            table.group(key_group).pop(scope, None)
        if operation != _CLEAR and value is not None:
            table.add(key_group, scope, value)


def _apply_pairs(
    table: MapTable,
    operations: Sequence[int],
    key_groups: Sequence[int],
    scopes: Sequence[bytes],
    user_keys: Sequence[bytes],
    values: Sequence[bytes],
) -> None:
    """Applies changes of maps; values are without the flag of null."""
    rows = zip(operations, key_groups, scopes, user_keys, values, strict=True)
    for operation, key_group, scope, user_key, value in rows:
        group = table.group(key_group)
        if operation == _CLEAR:
            group.pop(scope, None)
        elif operation == _REMOVE:
            table.remove_pair(group, scope, user_key)
        else:
            group.setdefault(scope, {})[user_key] = b"\0" + value
