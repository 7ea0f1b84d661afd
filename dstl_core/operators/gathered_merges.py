"""Merges of aggregates for which the values of a key are collected without reducing them.

The values are lists in a reduced batch, and whole columns are merged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.types.java_decimals import largest_scale, with_scale
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError
from dstl_core.operators.aggregate_merge import Columns, Merge
from dstl_core.operators.list_merges import lists_joined, owners_of
from dstl_core.operators.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.operators.wide_sums import decayed, joined, tiers_of
from dstl_core.state.held.key_batch import one_array

_Floats = npt.NDArray[np.float64]


class CountsByValue(Merge):
    """The number of occurrences of each value of a key, as a map.

    Args:
        uid: The uid of the operator, for errors.
        name: The name of the aggregate.
        kind: The type of a value.
        size: Maximum number of distinct values of a key.
    """

    parts = ("values",)

    def __init__(self, uid: str, name: str, kind: AnySerializer, *, size: int) -> None:
        super().__init__(uid, name, {"": Types.MAP(kind, Types.LONG)})
        self.kinds = (kind,)
        self._size = size

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        rows = rows.present
        return rows.lists(rows.column)

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return lists_joined(parts, numbers, keys)

    def merge(self, held: Columns, parts: Columns) -> Columns:
        [maps], [lists] = held, parts
        old_owners, old_values, old_counts = _entries(maps)
        owners, values = owners_of(lists), pc.list_flatten(lists)
        return self._added_up(
            len(maps),
            [old_owners, owners],
            self._comparable(old_values, values),
            [old_counts, pa.array(np.ones(len(owners), np.int64))],
        )

    def combined(self, one: Columns, other: Columns) -> Columns:
        owners, values, counts = zip(*(_entries(each) for [each] in (one, other)), strict=True)
        scale = max(map(largest_scale, values))
        return self._added_up(
            len(one[0]), owners, [with_scale(each, scale) for each in values], counts
        )

    def _added_up(
        self,
        keys: int,
        owners: Sequence[npt.NDArray[np.int64]],
        values: Sequence[pa.Array],
        counts: Sequence[pa.Array],
    ) -> Columns:
        """The counts of each of some keys, from counts of which several may be of one value."""
        table = pa.table(
            {
                "owner": np.concatenate(owners),
                "value": pa.concat_arrays(values),
                "count": pa.concat_arrays(counts),
            }
        )
        table = table.group_by(["owner", "value"]).aggregate([("count", "sum")])
        table = table.sort_by([("owner", "ascending"), ("value", "ascending")]).combine_chunks()
        sizes = np.bincount(table.column("owner").to_numpy(zero_copy_only=False), minlength=keys)
        if len(sizes) and sizes.max() > self._size:
            raise ConfigError(
                f"A key has {sizes.max():,} distinct values in state {self.name!r} of operator "
                f"{self.uid!r}: expected at most {self._size:,}, and nothing is committed; raise "
                f"the limit of the aggregate, or put values into fewer groups."
            )
        found = pa.MapArray.from_arrays(
            pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32()),
            one_array(table.column("value")),
            one_array(table.column("count_sum")),
        )
        return [pc.if_else(pa.array(sizes > 0), found, None)]


class DecayedSum(Merge):
    """A sum in which a value counts half after each half-life, as of the last time of its key.

    Args:
        uid: The uid of the operator, for errors.
        name: The name of the aggregate.
        time: The type of the time: milliseconds as a whole number, or a timestamp.
        half_life_ms: The half-life in milliseconds.
    """

    parts = ("values", "times")

    def __init__(self, uid: str, name: str, time: AnySerializer, half_life_ms: float) -> None:
        super().__init__(uid, name, {"": Types.DOUBLE, "_time": time})
        self.kinds = (Types.DOUBLE, time)
        self._half_life = half_life_ms

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        rows = rows.of(rows.column.cast(pa.float64(), safe=False)).present
        [time] = rows.orders
        rows = rows.where(time.is_valid())
        return rows.lists(rows.column, *rows.orders)

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return lists_joined(parts, numbers, keys)

    def merge(self, held: Columns, parts: Columns) -> Columns:
        there = np.flatnonzero(held[1].is_valid())
        owners = np.concatenate([there, owners_of(parts[1])])
        times = pa.concat_arrays(self._comparable(held[1].drop_null(), pc.list_flatten(parts[1])))
        values: _Floats = pa.concat_arrays(
            [held[0].filter(held[1].is_valid()), pc.list_flatten(parts[0])]
        ).to_numpy(zero_copy_only=False)
        numbers = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
        last = np.full(len(held[0]), np.iinfo(np.int64).min)
        np.maximum.at(last, owners, numbers)
        unit = self._half_life * (1000 if pa.types.is_timestamp(times.type) else 1)
        # A difference of longs may overflow, but not one of unsigned numbers.
        age = last[owners].view(np.uint64) - numbers.view(np.uint64)
        tiers = tiers_of(pa.array(decayed(values, age.astype(np.float64) / unit)))
        with np.errstate(invalid="ignore"):
            high, low = (
                np.bincount(
                    owners,
                    pc.fill_null(each, 0.0).to_numpy(zero_copy_only=False),
                    minlength=len(last),
                )
                for each in tiers
            )
        total, overflowed = joined(pa.array(high), pa.array(low))
        if overflowed:
            raise self._overflow()
        some = pa.array(np.bincount(owners, minlength=len(last)) > 0)
        time = pa.array(last).cast(times.type)
        return [pc.if_else(some, total, None), pc.if_else(some, time, None)]

    def parts_of(self, held: Columns) -> Columns:
        there = held[1].is_valid()
        offsets = np.concatenate([[0], np.cumsum(there.to_numpy(zero_copy_only=False))])
        bounds = pa.array(offsets, pa.int32())
        return [pa.ListArray.from_arrays(bounds, each.filter(there)) for each in held]


def _entries(maps: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array, pa.Array]:
    """The position of the map of each entry, and the keys and the values of the entries."""
    pairs = pa.StructArray.from_arrays([maps.keys, maps.items], ["value", "count"])
    entries = pa.ListArray.from_arrays(maps.offsets, pairs)
    found = pc.list_flatten(entries)
    return owners_of(entries), found.field(0), found.field(1)
