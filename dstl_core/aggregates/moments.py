"""Variance and standard deviation, from counts, means and sums of squared distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.aggregates.aggregate import Aggregate
from dstl_core.aggregates.aggregate_merge import Columns, Merge, floats_of, int64s_of
from dstl_core.aggregates.column_checks import NUMBERS, check_number
from dstl_core.aggregates.rows_of_keys import RowsOfKeys
from dstl_core.aggregates.wide_sums import SCALE, tiers_of
from dstl_core.codec.serializers import AnySerializer, Types


@dataclass(frozen=True)
class variance(Aggregate):
    """What variance and standard deviation are made of: ``<name>_count``, ``<name>_mean`` and
    ``<name>_m2``, the sum of the squares of the distances from the mean. The variance of a sample
    is ``m2 / (count - 1)``, that of a population ``m2 / count``.

    Args:
        column: Numbers.
    """

    column: str
    example: ClassVar = {"column": "amount"}
    takes = NUMBERS

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        return Moments(uid, name, root=False)


@dataclass(frozen=True)
class stddev(Aggregate):
    """The standard deviation. Its states are those of ``variance``; an output has the standard
    deviation of a sample.

    Args:
        column: Numbers.
    """

    column: str
    example: ClassVar = {"column": "amount"}
    takes = NUMBERS
    states_of = "variance"

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        return Moments(uid, name, root=True)


class Moments(Merge):
    """Count, mean and the sum of squared distances from it, merged by Chan's rule.

    A batch has them for each tier of ``wide_sums``, scaled in the upper one, and the sum of the
    values that are not finite. With such a value the mean is their sum, and there is no distance.
    """

    parts = ("count", "mean", "m2", "high_count", "high_mean", "high_m2", "not_finite")

    def __init__(self, uid: str, name: str, *, root: bool) -> None:
        states: dict[str, AnySerializer] = {
            "_count": Types.LONG,
            "_mean": Types.DOUBLE,
            "_m2": Types.DOUBLE,
        }
        super().__init__(uid, name, states)
        self._root = root

    def check(self, fields: Sequence[pa.Field]) -> None:
        check_number(self.where, fields[0], Types.DOUBLE)

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        rows = rows.of(rows.column.cast(pa.float64(), safe=False)).present
        is_finite = pc.is_finite(rows.column)
        high, low = (
            rows.of(tier).present for tier in tiers_of(pc.if_else(is_finite, rows.column, None))
        )
        high_moments = _moments_of(high)
        count = pc.subtract(rows.counts(), high_moments[0])
        not_finite = rows.where(pc.invert(is_finite)).sums()
        return [count, *_moments_of(low)[1:], *high_moments, not_finite]

    def merge(self, held: Columns, parts: Columns) -> Columns:
        old_count, old_mean, old_m2 = _moments(held)
        count, mean, m2 = _moments(parts[:3])
        high_count, high_mean, high_m2 = _moments(parts[3:6])
        old_is_finite = np.isfinite(old_mean)
        not_finite = parts[6].is_valid().to_numpy(zero_copy_only=False) | ~old_is_finite
        with np.errstate(invalid="ignore", over="ignore"):
            extra = np.where(old_is_finite, 0.0, old_mean) + floats_of(parts[6])
            total = (old_count, np.where(old_is_finite, old_mean, 0.0), old_m2)
            total = _both(total, (count, mean, m2))
            total = _both(total, (high_count, high_mean * SCALE, high_m2 * SCALE * SCALE))
        counts = total[0]
        means = np.where(not_finite, extra, total[1])
        distances = np.where(not_finite, np.nan, total[2])
        has_rows = pa.array(counts > 0)
        return [pc.if_else(has_rows, pa.array(each), None) for each in (counts, means, distances)]

    def parts_of(self, held: Columns) -> Columns:
        mean = held[1]
        not_finite = pc.if_else(pc.is_finite(mean), pa.scalar(None, pa.float64()), mean)
        finite = pc.if_else(pc.is_finite(mean), mean, 0.0)
        none = [pa.nulls(len(mean), each.type) for each in held]
        return [held[0], finite, held[2], *none, not_finite]

    @property
    def final_type(self) -> pa.DataType:
        return pa.float64()

    def final(self, held: Columns) -> pa.Array:
        """The variance or standard deviation of the sample; null for a single value."""
        count, _, m2 = held
        several = pc.if_else(pc.greater(count, 1), count, None).cast(pa.float64())
        variance = pc.divide(m2, pc.subtract(several, 1.0))
        return pc.sqrt(variance) if self._root else variance


_Moments = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Counts, means and sums of squared distances."""


def _moments(columns: Columns) -> _Moments:
    return int64s_of(columns[0]), floats_of(columns[1]), floats_of(columns[2])


def _moments_of(rows: RowsOfKeys) -> Columns:
    """Count, mean and sum of squared distances of finite doubles; no mean without a value."""
    count = rows.counts()
    mean = pc.divide(rows.sums(), count.cast(pa.float64()))
    distance = pc.subtract(rows.column, mean.take(pa.array(rows.numbers)))
    return [count, mean, rows.of(pc.multiply(distance, distance)).sums()]


def _both(one: _Moments, other: _Moments) -> _Moments:
    """The moments of the values of both, by Chan's rule. A difference of means may overflow."""
    (n, mean, m2), (new, new_mean, new_m2) = one, other
    total = n + new
    some = np.maximum(total, 1)
    delta = new_mean - mean
    moved = np.where(
        np.isfinite(delta),
        mean + delta * (new / some),
        mean * (n / some) + new_mean * (new / some),
    )
    both = (n > 0) & (new > 0)
    between = np.where(both, delta * (n * (new / some)) * delta, 0.0)
    return total, np.where(both, moved, np.where(n > 0, mean, new_mean)), m2 + new_m2 + between
