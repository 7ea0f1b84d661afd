"""Finds the parts of values in bytes: programs that output addresses instead of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.kernels import instructions as i
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.kernels.join import join_items, join_parts
from dstl_core.codec.columnar.keyed.byte_index import Ranges
from dstl_core.codec.columnar.keyed.decoder import SpanProgram
from dstl_core.codec.columnar.keyed.spans import SpanBatch
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.layouts import (
    AddressLayout,
    Fixed,
    Layout,
    NoColumn,
    Nullable,
    Repeated,
    Struct,
)
from dstl_core.codec.columnar.types.output_columns import ArrowAllocator
from dstl_core.codec.columnar.types.program import Code, Int64s
from dstl_core.codec.columnar.types.scratch import SPARE_BYTES
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS, layout_of
from dstl_core.codec.serializers import AnySerializer, MapSerializer, TimerSerializer
from dstl_core.errors import NotInColumnsError


class Passed(NoColumn):
    """A value that is read and checked, but not stored in a column."""

    def __init__(self, inner: Layout) -> None:
        self._inner = inner

    def register(self, code: Code) -> None:
        self._inner.register(code)

    def emit(self, code: Code) -> None:
        self._inner.emit(code)

    def emit_null(self, code: Code) -> None:
        self._inner.emit_null(code)


def passed(serializer: AnySerializer) -> Layout:
    """The layout that reads a value without a column.

    Raises:
        NotInColumnsError: Values of the type have no readable end.
    """
    return Passed(layout_of(serializer, EXACT_OPTIONS))


def passed_timer(timer: TimerSerializer) -> Layout:
    """The layout that reads a queue element without a column."""
    time = Passed(Fixed(pa.int64(), i.FLIP8, 8))
    fields = [("time", time), ("key", passed(timer.key)), ("namespace", passed(timer.namespace))]
    return Passed(Struct(fields))


def passed_raw_timer(timer: TimerSerializer) -> Layout:
    """The layout that reads a timer of raw keyed state without a column."""
    time = Passed(Fixed(pa.int64(), i.FLIP8, 8))
    fields = [("key", passed(timer.key)), ("namespace", passed(timer.namespace)), ("time", time)]
    return Passed(Struct(fields))


def items_of(item: Layout, item_bytes: int) -> Repeated:
    """A count and that number of items; outputs the place of each item."""
    places = Struct([("start", AddressLayout()), ("item", item), ("end", AddressLayout())])
    return Repeated(places, item_bytes)


def pairs_of(serializer: MapSerializer) -> Repeated:
    """A count and the pairs of a map; outputs the places of user keys, and of values with flag."""
    value = Nullable(layout_of(serializer.value, EXACT_OPTIONS))
    pair = Struct(
        [
            ("start", AddressLayout()),
            ("key", passed(serializer.key)),
            ("middle", AddressLayout()),
            ("value", Passed(value)),
            ("end", AddressLayout()),
        ]
    )
    return Repeated(pair, 1)


class PlaceProgram:
    """Finds places in values. Roots that are places, or lists of places, become its columns."""

    def __init__(self, roots: Sequence[tuple[str, Layout]]) -> None:
        self._names = {name for name, layout in roots if not isinstance(layout, NoColumn)}
        self._program = SpanProgram(roots, scan.VALUE_START, ArrowAllocator())

    def run(self, batch: SpanBatch) -> dict[str, pa.Array]:
        """The places in the value of each span.

        Raises:
            NotInColumnsError: The program does not support the bytes.
        """
        columns, failure = self._program.run(batch, self._names, len(batch))
        if failure is not None:
            raise NotInColumnsError
        return columns


def addresses(column: pa.Array) -> Int64s:
    """A column of places as a NumPy array."""
    numbers: Int64s = column.to_numpy(zero_copy_only=False)
    return numbers


@dataclass(frozen=True)
class Items:
    """The items of some rows. Row ``i`` has the items ``firsts[i] : firsts[i + 1]``."""

    firsts: Int64s
    parts: dict[str, Int64s]

    @classmethod
    def of(cls, column: pa.Array) -> Items:
        firsts = np.asarray(column.offsets).astype(np.int64)
        structs = column.values
        kept = [each.name for each in structs.type if not pa.types.is_null(each.type)]
        return cls(firsts, {name: addresses(structs.field(name)) for name in kept})

    @property
    def counts(self) -> Int64s:
        return np.diff(self.firsts)

    @property
    def rows(self) -> Int64s:
        return np.repeat(np.arange(len(self.firsts) - 1), self.counts)


# ----------------------------------------------------------------------------- putting together


@dataclass
class PlacedRecords:
    """Records in canonical form.

    The keys of the spans start after the key group, and the tags are not set. ``kept`` keeps the
    bytes alive.
    """

    keys: Ranges
    values: Ranges
    key_groups: Int64s
    kept: list[Any] = field(default_factory=list)

    @classmethod
    def concatenated(cls, parts: Sequence[PlacedRecords]) -> PlacedRecords:
        return cls(
            concatenated([each.keys for each in parts]),
            concatenated([each.values for each in parts]),
            np.concatenate([np.empty(0, np.int64), *(each.key_groups for each in parts)]),
            [each.kept for each in parts],
        )

    @property
    def spans(self) -> Int64s:
        spans = np.zeros((len(self.key_groups), scan.SPAN_WORDS), np.int64)
        spans[:, scan.KEY_START], spans[:, scan.KEY_END] = self.keys.starts, self.keys.ends
        spans[:, scan.VALUE_START], spans[:, scan.VALUE_END] = self.values.starts, self.values.ends
        return spans


def take(ranges: Ranges, rows: Any) -> Ranges:
    return Ranges(ranges.starts[rows], ranges.ends[rows])


def concatenated(parts: Sequence[Ranges]) -> Ranges:
    """Concatenates ranges of several arrays."""
    nothing = np.empty(0, np.int64)
    return Ranges(
        np.concatenate([nothing, *(each.starts for each in parts)]),
        np.concatenate([nothing, *(each.ends for each in parts)]),
    )


def joined_parts(parts: Sequence[Ranges], kept: list[Any], *, lengths: int = 0) -> Ranges:
    """Concatenates the parts of each row.

    The first ``lengths`` parts are each followed by their length, as in stored keys. The new memory
    is added to ``kept``.
    """
    rows = len(parts[0])
    places = np.empty((rows, len(parts), 2), np.int64)
    for at, part in enumerate(parts):
        places[:, at, 0], places[:, at, 1] = part.starts, part.ends
    sizes = places[:, :, 1] - places[:, :, 0]
    total = int(sizes.sum())
    for at in range(lengths):
        digits = 1 + (sizes[:, at] >> 8 != 0) + (sizes[:, at] >> 16 != 0) + (sizes[:, at] >> 24 > 0)
        total += int(digits.sum())
    data, bounds = _room(total, rows, kept)
    join_parts(address_of(places), len(parts), rows, lengths, address_of(data), address_of(bounds))
    return Ranges(bounds[:-1], bounds[1:])


def joined_items(items: Ranges, firsts: Int64s, kept: list[Any]) -> Ranges:
    """Joins the items of each row with a comma; every row has at least one item."""
    rows = len(firsts) - 1
    starts, ends = np.ascontiguousarray(items.starts), np.ascontiguousarray(items.ends)
    total = int((ends - starts).sum()) + len(items) - rows
    data, bounds = _room(total, rows, kept)
    join_items(
        address_of(starts),
        address_of(ends),
        address_of(firsts),
        rows,
        i.LIST_DELIMITER,
        address_of(data),
        address_of(bounds),
    )
    return Ranges(bounds[:-1], bounds[1:])


def _room(size: int, rows: int, kept: list[Any]) -> tuple[Any, Int64s]:
    data = np.empty(size + SPARE_BYTES, np.uint8)
    kept.append(data)
    return data, np.empty(rows + 1, np.int64)
