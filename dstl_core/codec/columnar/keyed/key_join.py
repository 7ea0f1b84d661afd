"""Joins several states to one row per key, by the bytes of their keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, Ranges
from dstl_core.codec.columnar.keyed.decoder import (
    KEY,
    NAMESPACE,
    TIMESTAMP,
    USER_KEY,
    VALUE,
    SpanProgram,
    StateDecoder,
)
from dstl_core.codec.columnar.keyed.spans import BYTES_PER_BATCH, ROWS_PER_BATCH, SpanBatch
from dstl_core.codec.columnar.types.layouts import Rest
from dstl_core.codec.columnar.types.output_columns import ArrowAllocator
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.type_layouts import ColumnOptions, layout_of
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ColumnValueError


class KeyJoin:
    """Joins the records of whole key groups.

    Args:
        key_serializer: The type of the keys.
        decoders: Decoders of the states that become columns, by state id.
        options: Representation of types as columns.
        namespace_serializer: The type of the namespaces, to join by key and namespace. None joins
            by key alone, for states whose namespaces are void.
    """

    def __init__(
        self,
        key_serializer: AnySerializer,
        decoders: Mapping[int, StateDecoder],
        options: ColumnOptions,
        namespace_serializer: AnySerializer | None = None,
    ) -> None:
        self._decoders = decoders
        self._with_namespace = namespace_serializer is not None
        roots = [(KEY, layout_of(key_serializer, options)), ("rest", Rest())]
        if namespace_serializer is not None:
            roots.insert(1, (NAMESPACE, layout_of(namespace_serializer, options)))
        self._keys = SpanProgram(roots, scan.KEY_START, ArrowAllocator())

    def rows(self, batch: SpanBatch, wanted: set[int], *, keys: bool) -> Iterator[JoinedRows]:
        """Yields the rows of all key groups in a batch, with a bounded number of rows at a time.

        Args:
            batch: All records of some key groups.
            wanted: States whose columns are built; the keys of all states make rows.
            keys: Whether to build the key column.
        """
        states = batch.states
        starts = np.empty(len(batch), np.int64)
        ends = np.empty(len(batch), np.int64)
        for state, decoder in self._decoders.items():
            is_of_state = states == state
            records = batch.take(is_of_state)
            ranges = (
                decoder.scope_ranges(records)
                if self._with_namespace
                else decoder.key_ranges(records)
            )
            starts[is_of_state], ends[is_of_state] = ranges.starts, ranges.ends
        index = ByteIndex(Ranges(starts, ends))
        parts = {
            state: _part(decoder, batch, states == state, index)
            for state, decoder in self._decoders.items()
            if state in wanted
        }
        key_spans = batch.spans[index.firsts].copy()
        key_spans[:, scan.KEY_START] = starts[index.firsts]
        key_groups = batch.key_groups[index.firsts]
        for first, last in _slices(batch, index):
            columns = {state: part.column(first, last) for state, part in parts.items()}
            key_columns = self._key_columns(batch, key_spans[first:last]) if keys else {}
            yield JoinedRows(last - first, key_columns, columns, key_groups[first:last])

    def _key_columns(self, batch: SpanBatch, spans: Int64s) -> dict[str, pa.Array]:
        records = SpanBatch(np.ascontiguousarray(spans), batch.source)
        columns, failure = self._keys.run(records, {KEY, NAMESPACE}, len(records))
        if failure is not None:
            # The bytes are already checked, so only the options can cause a failure.
            state = int(records.states[failure.row])
            self._decoders[state].decode(records.take(slice(failure.row, failure.row + 1)), {KEY})
        return columns


@dataclass(frozen=True)
class JoinedRows:
    """Rows of a join.

    They have the columns of the key (``KEY``, ``NAMESPACE``) and those of the states by id. A state
    is null where the key does not have it.
    """

    count: int
    keys: Mapping[str, pa.Array]
    columns: Mapping[int, pa.Array]
    key_groups: Int64s


def _slices(batch: SpanBatch, index: ByteIndex) -> Iterator[tuple[int, int]]:
    """Ranges of rows with a bounded number of rows and of bytes."""
    sizes = batch.spans[:, scan.VALUE_END] - batch.spans[:, scan.KEY_START]
    total = np.cumsum(np.bincount(index.numbers, sizes, len(index)))
    first, done = 0, 0.0
    while first < len(index):
        most = int(np.searchsorted(total, done + BYTES_PER_BATCH, "right"))
        last = min(max(most, first + 1), first + ROWS_PER_BATCH, len(index))
        yield first, last
        first, done = last, float(total[last - 1])


@dataclass(frozen=True)
class _Single:
    """A state with one record per key. ``latest[row]`` is the index of that record, or -1."""

    decoder: StateDecoder
    batch: SpanBatch
    latest: Int64s

    def column(self, first: int, last: int) -> pa.Array:
        records = self.latest[first:last]
        present = records >= 0
        values = self.decoder.decode(self.batch.take(records[present]), {VALUE})[VALUE]
        if present.all():
            return values
        at = np.cumsum(present) - 1
        return values.take(pa.array(at, mask=~present))


@dataclass(frozen=True)
class _Grouped:
    """A state with any number of records per key, sorted by row.

    The records of a row are ``order[bounds[row] : bounds[row + 1]]``.
    """

    decoder: StateDecoder
    batch: SpanBatch
    order: Int64s
    bounds: Int64s

    def column(self, first: int, last: int) -> pa.Array:
        bounds = self.bounds[first : last + 1]
        records = self.batch.take(self.order[bounds[0] : bounds[-1]])
        arrow_type = self.decoder.joined_type
        columns = self.decoder.decode(records, {USER_KEY, VALUE, TIMESTAMP})
        if TIMESTAMP in columns:
            child = columns[TIMESTAMP]
        else:
            child = _entries(arrow_type, columns[USER_KEY], columns[VALUE])
        offsets = pa.py_buffer((bounds - bounds[0]).astype(np.int32))
        absent = bounds[1:] == bounds[:-1]
        bitmap = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
        return pa.Array.from_buffers(
            arrow_type, last - first, [bitmap, offsets], int(absent.sum()), 0, [child]
        )


def _entries(arrow_type: pa.DataType, keys: pa.Array, values: pa.Array) -> pa.Array:
    if not pa.types.is_map(arrow_type):
        return pa.StructArray.from_arrays([keys, values], fields=list(arrow_type.value_type))
    if keys.null_count:
        raise ColumnValueError(
            "Map state has a null user key, which a map column cannot hold; read it with "
            "maps=entries, or in flat form."
        )
    fields = [arrow_type.key_field, arrow_type.item_field]
    return pa.StructArray.from_arrays([keys, values], fields=fields)


def _part(
    decoder: StateDecoder, batch: SpanBatch, rows: Int64s, index: ByteIndex
) -> _Single | _Grouped:
    numbers = index.numbers[rows]
    records = batch.take(rows)
    if decoder.is_grouped:
        order = np.argsort(numbers, kind="stable")
        bounds = np.zeros(len(index) + 1, np.int64)
        np.cumsum(np.bincount(numbers, minlength=len(index)), out=bounds[1:])
        return _Grouped(decoder, records, order, bounds)
    latest = np.full(len(index), -1, np.int64)
    latest[numbers] = np.arange(len(numbers))
    return _Single(decoder, records, latest)
