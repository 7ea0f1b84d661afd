"""Counts one keyed state while its records are read in batches of columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import Ranges
from dstl_core.codec.columnar.keyed.decoder import NAMESPACE, TIMESTAMP, VALUE, StateDecoder
from dstl_core.codec.columnar.keyed.spans import SpanBatch
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.codec.keyed_records import RecordFormat, part_of
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TimerSerializer,
)
from dstl_core.codec.serializers.primitives import LongSerializer
from dstl_core.codec.serializers.runtime import TtlAwareSerializer, TtlSerializer
from dstl_core.codec.serializers.window_types import TimeWindowSerializer
from dstl_core.codec.state_meta import KeyedStateType
from dstl_core.errors import ColumnValueError, DstlError, NotInColumnsError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.operator_catalog import kind_of
from dstl_core.savepoint.report.count_options import CountOptions
from dstl_core.savepoint.report.largest import KeyNames, KeyTotals, Largest
from dstl_core.savepoint.report.value_counts import (
    AgeCounts,
    NumberCounts,
    TimeCounts,
    WindowCounts,
)
from dstl_core.state.columns.state_columns import namespace_type

COUNT_OPTIONS = ColumnOptions("utf16", "entries", "exact", "column", "null")
"""Columns that hold every value; one that needs Java is null."""
Counts = TypeVar("Counts", AgeCounts, TimeCounts, WindowCounts)
_MAX_NUMBERS = 32
_NO_VALUES = ("$row_kind", "seconds", "nanos")
"""Fields that stand for the kind of a row, and for a time."""


class StateCounts:
    """The figures of one state.

    Args:
        record_format: How its records are stored.
        key_groups: The key groups whose records are counted.
        watermark_ms: The watermark of the operator, if its state records it.
        options: What to count.
        ttl_ms: The time to live of the state, if it is known.
    """

    def __init__(
        self,
        record_format: RecordFormat,
        key_groups: KeyGroupRange,
        watermark_ms: int | None,
        options: CountOptions,
        ttl_ms: int | None,
    ) -> None:
        meta = record_format.meta
        self.name, self.kind = meta.name, kind_of(meta)
        self.key_groups = key_groups
        self.entries = np.zeros(len(key_groups), np.int64)
        """Entries by key group."""
        self.key_bytes = self.value_bytes = 0
        self.note: str | None = None
        """Why figures about keys or values are missing."""
        self._options = options
        self._is_single = _has_one_record_per_key(record_format)
        key_type = record_format.key_serializer
        if record_format.is_queue:
            key_type = part_of(meta, TimerSerializer).key
        self._names = KeyNames(key_type, show=options.show_keys)
        self._totals = KeyTotals(self._names)
        self._values = Largest()
        self._knows_keys = True
        event_ms = options.at_ms if watermark_ms is None else watermark_ms
        self._has_watermark = watermark_ms is not None
        self._is_list = record_format.kind is KeyedStateType.LIST
        self._elements = 0
        self._numbers: dict[str, NumberCounts] | None = {}
        self._ages: AgeCounts | None = None
        self._timers = self._windows = None
        if record_format.is_queue:
            self._timers = TimeCounts(options.at_ms if self.kind == "proc-timer" else event_ms)
            self._numbers = None
        elif _ttl_of(record_format) is not None:
            self._ages = AgeCounts(options.at_ms, ttl_ms)
        if not record_format.is_queue and _is_window(namespace_type(meta), watermark_ms):
            self._windows = WindowCounts(event_ms)

    # -------------------------------------------------------------------------------- counting

    def add(self, batch: SpanBatch, decoder: StateDecoder | None) -> None:
        """Adds records of this state. Without a decoder, keys and values are not looked into.

        Raises:
            FormatError: A record is damaged.
        """
        spans = batch.spans
        keys = spans[:, scan.KEY_END] - spans[:, scan.KEY_START]
        values = spans[:, scan.VALUE_END] - spans[:, scan.VALUE_START]
        self.key_bytes += int(keys.sum())
        self.value_bytes += int(values.sum())
        self._add_entries(batch.key_groups)
        try:
            if decoder is None:
                raise NotInColumnsError
            self._add_keys(batch, keys + values, values, decoder)
            self._add_columns(batch, keys + values, decoder)
        except (NotInColumnsError, ColumnValueError) as error:
            self._give_up(error)

    def _add_entries(self, key_groups: Int64s) -> None:
        # Of a million small files, each has few key groups.
        first = int(key_groups.min())
        entries = np.bincount(key_groups - first)
        start = first - self.key_groups.start_key_group
        self.entries[start : start + len(entries)] += entries

    def _give_up(self, error: DstlError) -> None:
        self._knows_keys = False
        self._numbers = self._ages = self._timers = self._windows = None
        if self.note is None:
            self.note = str(error) or "keys or values of this type are not read in columns"

    def _add_keys(
        self, batch: SpanBatch, sizes: Int64s, values: Int64s, decoder: StateDecoder
    ) -> None:
        spans = batch.spans
        ends: Int64s = spans[:, scan.KEY_END]
        starts: Int64s = spans[:, scan.KEY_START]
        if not self._is_single:
            ranges = decoder.key_ranges(batch)
            starts, ends = ranges.starts, ranges.ends
            self._totals.add(Ranges(starts, ends), sizes, batch.key_groups)

        def describe(row: int) -> dict[str, Any]:
            return {
                "key": self._names.of(int(starts[row]), int(ends[row])),
                "bytes": int(sizes[row]),
                "value_bytes": int(values[row]),
            }

        self._values.offer(sizes, describe)

    def _add_columns(self, batch: SpanBatch, sizes: Int64s, decoder: StateDecoder) -> None:
        available = decoder.columns
        wanted = set()
        if self._timers is not None:
            wanted.add(TIMESTAMP)
        if self._windows is not None:
            wanted.add(NAMESPACE)
        if VALUE in available and (self._is_list or _has_numbers(available[VALUE])):
            wanted.add(VALUE)
        if not wanted:
            return
        columns = decoder.decode(batch, wanted)
        if self._timers is not None:
            self._timers.add(_int64s(columns[TIMESTAMP]))
        if self._windows is not None:
            window = columns[NAMESPACE]
            is_slice = not pa.types.is_struct(window.type)
            starts, ends = (window, window) if is_slice else window.flatten()
            self._windows.add(_int64s(starts), _int64s(ends))
        if VALUE in columns:
            self._add_values(columns[VALUE], sizes)

    def _add_values(self, values: pa.Array, sizes: Int64s) -> None:
        shares: Int64s | None = sizes
        if self._is_list and pa.types.is_list(values.type):
            values, shares = values.flatten(), None  # bytes of one element are not known
            self._elements += len(values)
        if self._ages is not None:
            if values.null_count:
                kept = values.is_valid()
                shares = None if shares is None else shares[kept.to_numpy(zero_copy_only=False)]
                values = values.filter(kept)
            self._ages.add(_int64s(values.field("ts")), shares)
            values = values.field("v")
        if self._numbers is not None:
            for name, column in _numeric_columns("value", values):
                if name not in self._numbers and len(self._numbers) < _MAX_NUMBERS:
                    self._numbers[name] = NumberCounts(name)
                if name in self._numbers:
                    self._numbers[name].add(column)

    # --------------------------------------------------------------------------------- merging

    def finish(self) -> StateCounts:
        """Ends the counting of some key groups. Then it can be merged, and sent to a process."""
        self._totals.finish()
        return self

    def over(self, key_groups: KeyGroupRange) -> StateCounts:
        """These counts, to which those of other key groups can be added."""
        entries = np.zeros(len(key_groups), np.int64)
        start = self.key_groups.start_key_group - key_groups.start_key_group
        entries[start : start + len(self.entries)] = self.entries
        self.key_groups, self.entries = key_groups, entries
        return self

    def merge(self, later: StateCounts) -> None:
        """Adds the counts of key groups that come after these, and are among ``key_groups``; both
        are finished.
        """
        self.key_bytes += later.key_bytes
        self.value_bytes += later.value_bytes
        start = later.key_groups.start_key_group - self.key_groups.start_key_group
        self.entries[start : start + len(later.entries)] += later.entries
        self.note = self.note or later.note
        self._knows_keys &= later._knows_keys
        self._elements += later._elements
        self._totals.merge(later._totals)
        self._values.merge(later._values)
        self._numbers = self._merged_numbers(later)
        self._ages = _merged(self._ages, later._ages)
        self._timers = _merged(self._timers, later._timers)
        self._windows = _merged(self._windows, later._windows)

    def _merged_numbers(self, later: StateCounts) -> dict[str, NumberCounts] | None:
        if self._numbers is None or later._numbers is None:
            return None  # one of them has given up
        for name, numbers in later._numbers.items():
            if name in self._numbers:
                self._numbers[name].merge(numbers)
            elif len(self._numbers) < _MAX_NUMBERS:
                self._numbers[name] = numbers
        return self._numbers

    def __getstate__(self) -> dict[str, Any]:
        """What a process sends to another one: the counts, and no type of a key."""
        return {name: value for name, value in vars(self).items() if name != "_names"}

    # --------------------------------------------------------------------------------- figures

    def to_json(self) -> dict[str, Any]:
        """The figures. Spreads over key groups and subtasks are for the caller."""
        entries = int(self.entries.sum())
        by_bytes = self._totals.by_bytes
        keys: int | None = entries if self._is_single else self._totals.keys
        largest = [row for _, row in (self._values if self._is_single else by_bytes).rows]
        return {
            "name": self.name,
            "kind": self.kind,
            "entries": entries,
            "keys": keys if self._knows_keys else None,
            "elements": self._elements if self._is_list and self._knows_keys else None,
            "key_bytes": self.key_bytes,
            "value_bytes": self.value_bytes,
            "largest_keys": largest,
            "most_entries": [] if self._is_single else _rows(self._totals.by_entries),
            "largest_entries": [] if self._is_single else _rows(self._values),
            "numbers": [
                numbers.to_json(show_values=self._options.show_keys)
                for numbers in (self._numbers or {}).values()
            ],
            "ttl": None if self._ages is None else self._ages.to_json(),
            "timers": None if self._timers is None else self._relative(self._timers.to_json()),
            "windows": None if self._windows is None else self._relative(self._windows.to_json()),
            "note": self.note,
        }

    def _relative(self, figures: dict[str, Any]) -> dict[str, Any]:
        is_event = self._has_watermark and self.kind != "proc-timer"
        return figures | {"counts_from": "watermark" if is_event else "time of the snapshot"}


def _merged(one: Counts | None, later: Counts | None) -> Counts | None:
    """The counts of both; None if one of them has given up."""
    if one is None or later is None:
        return None
    one.merge(later)
    return one


def _rows(largest: Largest) -> list[dict[str, Any]]:
    return [row for _, row in largest.rows]


def _has_one_record_per_key(record_format: RecordFormat) -> bool:
    """Whether the stored key is the key alone."""
    if record_format.is_queue or record_format.kind is KeyedStateType.MAP:
        return False
    return record_format.namespace_serializer.length == 0


def _is_window(namespace: AnySerializer, watermark_ms: int | None) -> bool:
    """Whether a namespace is a window, or the end of a slice as in SQL's window operators, which
    also record their watermark.
    """
    is_slice = isinstance(namespace, LongSerializer) and watermark_ms is not None
    return is_slice or isinstance(namespace, TimeWindowSerializer)


def _ttl_of(record_format: RecordFormat) -> TtlSerializer | None:
    value: AnySerializer = record_format.meta.value_serializer
    if record_format.kind is KeyedStateType.LIST and isinstance(value, ListSerializer):
        value = value.element
    elif record_format.kind is KeyedStateType.MAP and isinstance(value, MapSerializer):
        value = value.value
    while isinstance(value, TtlAwareSerializer):
        value = value.inner
    return value if isinstance(value, TtlSerializer) else None


def _int64s(column: pa.Array) -> Int64s:
    numbers: Int64s = column.to_numpy(zero_copy_only=False)
    return numbers


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _has_numbers(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_numbers(each.type) for each in kind)
    return _is_number(kind)


def _numeric_columns(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The numeric fields of a column; a field of a null struct is null."""
    if pa.types.is_struct(column.type):
        for at, field in enumerate(column.type):
            if field.name not in _NO_VALUES:
                yield from _numeric_columns(f"{name}.{field.name}", pc.struct_field(column, [at]))
    elif _is_number(column.type):
        yield name, column
