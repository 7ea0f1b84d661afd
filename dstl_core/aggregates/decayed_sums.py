"""Sums in which old values count less: ``decayed_sum``.

The values of a key are lists in a reduced batch, and whole columns are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.aggregates.aggregate import Aggregate, Kept, check_kind
from dstl_core.aggregates.aggregate_merge import Columns, Merge
from dstl_core.aggregates.bounded_lists import lists_joined, owners_of
from dstl_core.aggregates.column_checks import NUMBERS, check_number, check_order, check_value
from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.aggregates.wide_sums import decayed, joined, tiers_of
from dstl_core.codec.declared_type import TypeLike
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError

_Floats = npt.NDArray[np.float64]
_TIMES = (Types.LONG, Types.INSTANT, Types.LOCAL_DATE_TIME)


@dataclass(frozen=True)
class decayed_sum(Aggregate):
    """A sum in which a value counts half after each half-life, as of the last time of its key,
    which is kept as ``<name>_time``. The values of a batch are not reduced for it.

    Args:
        column: Numbers, which are added up as doubles; rows without one do not count.
        half_life_ms: The half-life in milliseconds.
        event_time: Column of the time: a timestamp, or milliseconds; rows without one do not count.
        time_type: Type of the time.
    """

    column: str
    half_life_ms: float
    event_time: str
    time_type: TypeLike | None = field(default=None, kw_only=True)
    example: ClassVar = {
        "column": "amount",
        "half_life_ms": 86_400_000,
        "event_time": "paid_at",
        "time_type": "timestamp",
    }
    takes = NUMBERS

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_name("event_time", self.event_time)
        half_life = self._number("half_life_ms")
        if not 0 < half_life < inf:
            raise ConfigError(
                f"The decayed sum of {self.column!r} needs a half-life: expected a number of "
                f"milliseconds above 0, got {half_life}."
            )

    @property
    def order(self) -> tuple[str, ...]:
        return (self.event_time,)

    @property
    def kept(self) -> tuple[Kept, ...]:
        return (Kept(self.event_time, self.time_type, "time_type", of_order=True),)

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        [time] = kinds
        check_kind(_TIMES, name, time, "a time", "which is no time")
        return DecayedSum(uid, name, time, self.half_life_ms)


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

    def check(self, fields: Sequence[pa.Field]) -> None:
        value, time = fields
        check_order(self.where, time)
        check_number(self.where, value, self.kinds[0])
        check_value(self.where, time, self.kinds[1])

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        rows = rows.of(rows.column.cast(pa.float64(), safe=False)).present
        [time] = rows.orders
        rows = rows.where(time.is_valid())
        return rows.lists(rows.column, *rows.orders)

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return lists_joined(parts, numbers, keys)

    def merge(self, held: Columns, parts: Columns) -> Columns:
        present = np.flatnonzero(held[1].is_valid())
        owners = np.concatenate([present, owners_of(parts[1])])
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
                    pc.fill_null(tier, 0.0).to_numpy(zero_copy_only=False),
                    minlength=len(last),
                )
                for tier in tiers
            )
        total, overflowed = joined(pa.array(high), pa.array(low))
        if overflowed:
            raise self._overflow()
        some = pa.array(np.bincount(owners, minlength=len(last)) > 0)
        time = pa.array(last).cast(times.type)
        return [pc.if_else(some, total, None), pc.if_else(some, time, None)]

    def parts_of(self, held: Columns) -> Columns:
        is_valid = held[1].is_valid()
        offsets = np.concatenate([[0], np.cumsum(is_valid.to_numpy(zero_copy_only=False))])
        bounds = pa.array(offsets, pa.int32())
        return [pa.ListArray.from_arrays(bounds, each.filter(is_valid)) for each in held]
