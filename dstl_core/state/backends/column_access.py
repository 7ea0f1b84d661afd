"""Keyed state of many keys at a time, as Arrow columns, on any backend.

Compiled programs encode and decode keys and values a column at a time. One call to the store reads
or writes a whole batch; only the look-up inside the store is per row. A batch accesses its keys in
the order of the rows, and logs the same changes as the same accesses one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.decoder import VALUE, SpanProgram
from dstl_core.codec.columnar.keyed.encoder import EncodeProgram
from dstl_core.codec.columnar.keyed.sections import Section
from dstl_core.codec.columnar.keyed.spans import Source, SpanBatch
from dstl_core.codec.columnar.types.input import Column, one_array
from dstl_core.codec.columnar.types.layouts import Layout
from dstl_core.codec.columnar.types.output_columns import ArrowAllocator
from dstl_core.codec.columnar.types.type_layouts import (
    bounded_layout,
    layout_of,
    list_state_layout,
)
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.errors import ConfigError, FormatError
from dstl_core.state.backends.current_key import CurrentKey
from dstl_core.state.backends.keyed_access import State, ValueState
from dstl_core.state.backends.keyed_collections import ListState, null_element
from dstl_core.state.held.added_elements import append_elements
from dstl_core.state.held.key_batch import KeyPlaces, Places, bytes_list
from dstl_core.state.tables.state_table import ListTable, ValueTable
from dstl_core.state.tables.ttl import TtlPolicy, unwrap


class _Columns:
    """Base class that computes the places of keys.

    Raises:
        NotInColumnsError: The type of the keys has no columnar form.
    """

    def __init__(self, backend: CurrentKey, state: State[Any]) -> None:
        self._backend = backend
        self._table = state.table
        self._ttl: TtlPolicy | None = state.ttl
        self._find = KeyPlaces(
            backend.key_serializer,
            self._table.meta.namespace_serializer,
            backend.key_group_range,
            backend.number_of_key_groups,
        )
        self.key_type: pa.DataType = self._find.key_type

    def places(self, keys: Column, namespaces: pa.Array | None = None) -> Places:
        """Where the entries of keys are, in namespaces if the state has them.

        Raises:
            ConfigError: A key is null, or belongs to another subtask.
        """
        return self._find.find(keys, namespaces)

    def _clean_up(self) -> None:
        if self._ttl is not None:
            self._backend.clean_up(self._table, self._ttl)


class ValueColumns(_Columns):
    """The values of many keys of one value state; null means "no value".

    Raises:
        NotInColumnsError: A type has no columnar form.
    """

    def __init__(self, backend: CurrentKey, state: ValueState) -> None:
        super().__init__(backend, state)
        self._values: ValueTable = state.table
        serializer = _without_ttl(state.table.meta.value_serializer, self._ttl)
        what = f"A value of state {state.table.meta.name!r}"
        self._decode = BytesDecoder(bounded_layout(serializer), what)
        self._encode = EncodeProgram([(VALUE, bounded_layout(serializer))])
        self.value_type: pa.DataType = self._decode.arrow_type

    def get(self, keys: Column) -> pa.Array:
        """The value of each key; null for a key without a value, also if the state has a default.

        Raises:
            ConfigError: A key is null, or belongs to another subtask.
            FormatError: A stored value is damaged.
        """
        return self.get_at(self.places(keys))

    def get_at(self, places: Places) -> pa.Array:
        """As ``get``, for places of ``places``. Raises FormatError: a stored value is damaged."""
        raw = self._values.get_many(places.key_groups, places.scopes)
        if self._ttl is not None:
            raw = self._seen(places, raw, self._ttl)
        return self._decode.column(raw)

    def put(self, keys: Column, values: Column) -> None:
        """Stores the value of each key; null clears it. The last value of a repeated key is kept.

        Raises:
            ConfigError: As ``get``, or columns of different lengths; nothing was changed.
            ColumnValueError: The values do not fit their type; nothing was changed.
        """
        self.put_at(self.places(keys), values)

    def put_at(self, places: Places, values: Column, *, distinct: bool = False) -> None:
        """As ``put``, for places of ``places``; ``distinct`` if no place comes twice, which is
        faster. Raises as above.
        """
        column = one_array(values)
        if len(column) != len(places):
            raise ConfigError(
                f"The columns of a batch differ in length: {len(places)} keys, {len(column)} "
                f"values."
            )
        set_values = column.drop_null()
        raw: list[Any] = bytes_list(self._encode.encode({VALUE: set_values}, len(set_values)))
        if self._ttl is not None:
            raw = [self._ttl.wrap(each) for each in raw]
        if column.null_count:
            present = iter(raw)
            valid = column.is_valid().to_pylist()
            raw = [next(present) if each else None for each in valid]
        self._store(places, raw, distinct=distinct)
        self._clean_up()

    def clear_at(self, places: Places) -> None:
        """Removes the values of some places, none of which comes twice."""
        self._store(places, [None] * len(places), distinct=True)

    def _store(
        self, places: Places, raw: Sequence[bytes | None], *, distinct: bool = False
    ) -> None:
        self._values.put_many(places.key_groups, places.scopes, raw)
        logger = self._backend.logger
        if logger is None:
            return
        if distinct:
            logger.values_written(self._values, places.key_groups, places.scopes, raw)
        else:
            logger.values_updated(self._values, places.key_groups, places.scopes)

    def _seen(self, places: Places, raw: list[bytes | None], ttl: TtlPolicy) -> list[bytes | None]:
        expired = [each is not None and ttl.is_expired(each) for each in raw]
        if any(expired):
            self._store(places.where(expired), [None] * sum(expired))
        seen = [None if each is None else unwrap(each) for each in raw]
        if not ttl.returns_expired:
            seen = [None if gone else each for gone, each in zip(expired, seen, strict=True)]
        if ttl.updates_on_read:
            alive = [
                value is not None and not gone for gone, value in zip(expired, raw, strict=True)
            ]
            again = [ttl.wrap(each) for each in compress(seen, alive) if each is not None]
            self._store(places.where(alive), again)
        return seen


class ListColumns(_Columns):
    """The lists of many keys of one list state.

    Raises:
        NotInColumnsError: A type has no columnar form.
    """

    def __init__(self, backend: CurrentKey, state: ListState) -> None:
        super().__init__(backend, state)
        self._lists: ListTable = state.table
        layout = layout_of(_without_ttl(state.table.element, self._ttl))
        self.element_type: pa.DataType = layout.arrow_type
        self._encode = EncodeProgram([(VALUE, layout)])

    def add(self, keys: Column, elements: Column) -> None:
        """Appends the element of each row to the list of its key, in the order of the rows.

        Raises:
            ConfigError: A key or element is null, a key belongs to another subtask, or the columns
                differ in length; nothing was changed.
            ColumnValueError: The elements do not fit their type; nothing was changed.
        """
        places, column = self.places(keys), one_array(elements)
        if len(column) != len(places):
            raise ConfigError(
                f"The columns of a batch differ in length: {len(places)} keys, {len(column)} "
                f"elements."
            )
        if column.null_count:
            raise null_element(self._lists.meta.name)
        raw = bytes_list(self._encode.encode({VALUE: column}, len(column)))
        if self._ttl is not None:
            raw = [self._ttl.wrap(each) for each in raw]
        added: dict[tuple[int, bytes], list[bytes]] = {}
        where = zip(places.key_groups, places.scopes, strict=True)
        for place, element in zip(where, raw, strict=True):
            added_here = added.get(place)
            if added_here is None:
                added[place] = [element]
            else:
                added_here.append(element)
        groups, scopes = [place[0] for place in added], [place[1] for place in added]
        append_elements(self._lists, groups, scopes, list(added.values()))
        logger = self._backend.logger
        if logger is not None:
            logger.logged_batch(
                self._lists.meta,
                StateChangeOperation.ADD_ELEMENT,
                places.key_groups,
                places.scopes,
                raw,
            )
        self._clean_up()


class WholeLists(_Columns):
    """The whole lists of many keys of one list state without time to live; null means "no list".

    Raises:
        NotInColumnsError: A type has no columnar form.
    """

    def __init__(self, backend: CurrentKey, state: ListState) -> None:
        super().__init__(backend, state)
        self._lists: ListTable = state.table
        stored = list_state_layout(state.table.element)
        self.list_type: pa.ListType = stored.arrow_type
        self._decode = BytesDecoder(stored, f"A list of state {state.table.meta.name!r}")
        self._encode = EncodeProgram([(VALUE, stored)])
        counted = layout_of(state.table.meta.value_serializer)
        self._encode_change = EncodeProgram([(VALUE, counted)])

    def get_at(self, places: Places) -> pa.Array:
        """The list of each place. Raises FormatError: a stored list is damaged."""
        return self._decode.column(self._lists.get_many(places.key_groups, places.scopes))

    def put_at(self, places: Places, lists: pa.Array) -> None:
        """Replaces the lists of distinct places; an empty list or null removes one."""
        is_filled = pc.fill_null(pc.greater(pc.list_value_length(lists), 0), False)
        written = lists.filter(is_filled)
        raw = iter(bytes_list(self._encode.encode({VALUE: written}, len(written))))
        chosen = is_filled.to_pylist()
        self._lists.put_many(
            places.key_groups, places.scopes, [next(raw) if each else None for each in chosen]
        )
        logger = self._backend.logger
        if logger is None:
            return
        kept, gone = places.where(chosen), places.where([not each for each in chosen])
        changes = bytes_list(self._encode_change.encode({VALUE: written}, len(written)))
        for operation, where, operands in (
            (StateChangeOperation.SET, kept, changes),
            (StateChangeOperation.CLEAR, gone, [b""] * len(gone)),
        ):
            if len(where):
                logger.logged_batch(
                    self._lists.meta, operation, where.key_groups, where.scopes, operands
                )


def _without_ttl(serializer: AnySerializer, ttl: TtlPolicy | None) -> AnySerializer:
    if ttl is not None and isinstance(serializer, TtlSerializer):
        return serializer.value
    return serializer


class BytesDecoder:
    """Converts the bytes of values to a column.

    Args:
        layout: The type of the values.
        what: What a value is, for errors.
    """

    def __init__(self, layout: Layout, what: str) -> None:
        self._program = SpanProgram([(VALUE, layout)], scan.VALUE_START, ArrowAllocator())
        self._what = what
        self.arrow_type: pa.DataType = self._program.arrow_type(VALUE)

    def column(self, raw: Sequence[bytes | None]) -> pa.Array:
        """A column of the values; None becomes null. Raises FormatError: a value is damaged."""
        present = [each for each in raw if each is not None]
        data = b"".join(present)
        source = Source(data, [Section(0, 0, len(data), 0)])
        ends = np.cumsum(np.fromiter(map(len, present), np.int64, len(present)))
        spans = np.zeros((len(present), scan.SPAN_WORDS), np.int64)
        spans[1:, scan.VALUE_START] = ends[:-1]
        spans[:, scan.VALUE_END] = ends
        spans[:, (scan.VALUE_START, scan.VALUE_END)] += source.base
        columns, failure = self._program.run(SpanBatch(spans, source), {VALUE}, len(present))
        if failure is not None:
            raise FormatError(
                f"{self._what} is damaged", field="value", got=present[failure.row][:64].hex()
            )
        if len(present) == len(raw):
            return columns[VALUE]
        is_valid = np.fromiter((each is not None for each in raw), np.bool_, len(raw))
        return columns[VALUE].take(pa.array(np.cumsum(is_valid) - 1, mask=~is_valid))
