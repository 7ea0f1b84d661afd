"""How often each value of a key occurs: ``value_counts``.

The values of a key are lists in a reduced batch, and whole columns are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.aggregates.aggregate import Typed, check_kind
from dstl_core.aggregates.aggregate_merge import Columns, Merge
from dstl_core.aggregates.bounded_lists import lists_joined, owners_of
from dstl_core.aggregates.column_checks import WHOLE
from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.codec.columnar.types.input import one_array
from dstl_core.codec.columnar.types.java_decimals import largest_scale, with_scale
from dstl_core.codec.declared_type import TypeLike
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError

_COUNTED = (
    Types.BOOLEAN,
    *WHOLE,
    Types.STRING,
    Types.LOCAL_DATE,
    Types.LOCAL_DATE_TIME,
    Types.INSTANT,
)


@dataclass(frozen=True)
class value_counts(Typed):
    """How often each value occurs, as a map. The values of a batch are not reduced for it.

    Args:
        column: Texts, whole numbers, booleans, dates or timestamps.
        limit: How many distinct values a key may have, at most 100,000. One more fails the epoch.
        type: Of a value.
    """

    column: str
    limit: int
    type: TypeLike | None = None
    example: ClassVar = {"column": "shop", "limit": 1000, "type": "string"}
    may_change = ("limit",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_size("limit")

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        [kind] = kinds
        check_kind(_COUNTED, name, kind, "counts of values", "which cannot be the key of a map")
        return CountsByValue(uid, name, kind, size=self.limit)


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
        maps = pa.MapArray.from_arrays(
            pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32()),
            one_array(table.column("value")),
            one_array(table.column("count_sum")),
        )
        return [pc.if_else(pa.array(sizes > 0), maps, None)]


def _entries(maps: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array, pa.Array]:
    """The position of the map of each entry, and the keys and the values of the entries."""
    pairs = pa.StructArray.from_arrays([maps.keys, maps.items], ["value", "count"])
    entries = pa.ListArray.from_arrays(maps.offsets, pairs)
    entry = pc.list_flatten(entries)
    return owners_of(entries), entry.field(0), entry.field(1)
