"""The number of values in each bucket: ``histogram``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.aggregates.aggregate import Aggregate
from dstl_core.aggregates.aggregate_merge import Columns, Merge
from dstl_core.aggregates.bounded_lists import lists_joined, owners_of
from dstl_core.aggregates.column_checks import NUMBERS, check_number
from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError


@dataclass(frozen=True)
class histogram(Aggregate):
    """The number of values in each bucket, as a list with one number more than there are bounds.

    Args:
        column: Numbers; NaN is larger than any other.
        bounds: Where the buckets meet, in ascending order. A value equal to a bound is in the upper
            bucket.
    """

    column: str
    bounds: Sequence[float]
    example: ClassVar = {"column": "amount", "bounds": [10, 100, 1000]}
    takes = NUMBERS

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = self._numbers("bounds")
        if not (numbers and all(one < other for one, other in pairwise((*numbers, inf)))):
            raise ConfigError(
                f"The histogram of {self.column!r} needs the numbers where its buckets meet, each "
                f"larger than the one before, got {list(numbers)}."
            )

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        return HistogramMerge(uid, name, self.bounds)


class HistogramMerge(Merge):
    """The number of values in each bucket. A batch has the buckets that are not empty."""

    parts = ("buckets", "counts")

    def __init__(self, uid: str, name: str, bounds: Sequence[float]) -> None:
        super().__init__(uid, name, {"": Types.LIST(Types.LONG)})
        self.bounds = tuple(bounds)

    def check(self, fields: Sequence[pa.Field]) -> None:
        check_number(self.where, fields[0], Types.DOUBLE)

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        rows = rows.of(rows.column.cast(pa.float64(), safe=False)).present
        # NaN is larger than any bound.
        where = np.searchsorted(np.array(self.bounds), rows.column.to_numpy(), side="right")
        pairs = np.stack([rows.numbers, where], axis=1)
        places, counts = np.unique(pairs, axis=0, return_counts=True)
        of_buckets = RowsOfKeys(places[:, 0], rows.keys)
        return of_buckets.lists(pa.array(places[:, 1], pa.int32()), pa.array(counts))

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return lists_joined(parts, numbers, keys)

    def merge(self, held: Columns, parts: Columns) -> Columns:
        buckets = len(self.bounds) + 1
        total = np.zeros((len(held[0]), buckets), np.int64)
        for numbers, counts in (self.parts_of(held), parts):
            where, what = (pc.list_flatten(each).to_numpy() for each in (numbers, counts))
            np.add.at(total, (owners_of(numbers), where), what)
        offsets = np.arange(0, total.size + 1, buckets).astype(np.int32)
        empty = pa.array(~total.any(axis=1))
        return [pa.ListArray.from_arrays(pa.array(offsets), pa.array(total.ravel()), mask=empty)]

    def parts_of(self, held: Columns) -> Columns:
        buckets, stored = len(self.bounds) + 1, held[0]
        is_valid = stored.is_valid().to_numpy(zero_copy_only=False)
        sizes = pc.list_value_length(stored.drop_null())
        if not pc.all(pc.equal(sizes, buckets), min_count=0).as_py():
            raise ConfigError(
                f"The state {self.name!r} of operator {self.uid!r} has another number of "
                f"buckets than the histogram, {buckets}; keep its bounds, or give the "
                f"aggregate another name."
            )
        bounds = pa.array(np.concatenate([[0], np.cumsum(is_valid * buckets)]), pa.int32())
        numbers = pa.array(np.tile(np.arange(buckets, dtype=np.int32), int(is_valid.sum())))
        counts = pc.list_flatten(stored)
        return [pa.ListArray.from_arrays(bounds, each) for each in (numbers, counts)]
