"""How two columns vary together: ``corr`` and ``covar_samp``, of the rows with both values."""

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
from dstl_core.codec.serializers import AnySerializer, Types

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class OfPairs(Aggregate):
    """An aggregate of two columns of numbers, in doubles."""

    column: str
    other: str
    example: ClassVar = {"column": "amount", "other": "discount"}
    is_relative: ClassVar[bool]
    """Whether an output has the covariance over both standard deviations."""
    takes = NUMBERS

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_name("other", self.other)

    @property
    def values(self) -> tuple[str, ...]:
        return (*super().values, self.other)

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        return Comoments(uid, name, is_relative=self.is_relative)


@dataclass(frozen=True)
class corr(OfPairs):
    """Pearson's correlation of two columns. The states are ``<name>_count``, ``<name>_mean`` and
    ``<name>_other_mean``, and the sums of products of the distances from them: ``<name>_m2``,
    ``<name>_other_m2`` and ``<name>_comoment``. No value for one row, or for equal values.

    Args:
        column: Numbers; rows without one do not count.
        other: The other column of numbers; rows without one do not count.
    """

    is_relative = True


@dataclass(frozen=True)
class covar_samp(OfPairs):
    """The covariance of a sample of two columns, which is ``comoment / (count - 1)``. Its states
    are those of ``corr``.

    Args:
        column: Numbers; rows without one do not count.
        other: The other column of numbers; rows without one do not count.
    """

    is_relative = False
    states_of = "corr"


class Comoments(Merge):
    """Counts, means and sums of products of distances from them, merged by Chan's rule.

    If a value is not finite, or a square does not fit a double, all sums of products are NaN.
    """

    parts = ("count", "mean", "other_mean", "m2", "other_m2", "comoment")

    def __init__(self, uid: str, name: str, *, is_relative: bool) -> None:
        doubles = dict.fromkeys((f"_{part}" for part in self.parts[1:]), Types.DOUBLE)
        super().__init__(uid, name, {"_count": Types.LONG, **doubles})
        self._is_relative = is_relative

    def check(self, fields: Sequence[pa.Field]) -> None:
        for field in fields:
            check_number(self.where, field, Types.DOUBLE)

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        one, other = (
            column.cast(pa.float64(), safe=False) for column in (rows.column, *rows.orders)
        )
        both = pc.and_(one.is_valid(), other.is_valid())
        pairs = RowsOfKeys(rows.numbers, rows.keys, one, [other]).where(both)
        count, keys = pairs.counts(), pa.array(pairs.numbers)
        columns = (pairs.column, *pairs.orders)
        with np.errstate(over="ignore", invalid="ignore"):
            means = [_means(pairs.of(column), count) for column in columns]
            one, other = (
                pc.subtract(column, mean.take(keys))
                for column, mean in zip(columns, means, strict=True)
            )
            products = [pc.multiply(*pair) for pair in ((one, one), (other, other), (one, other))]
            return [count, *means, *(pairs.of(product).sums() for product in products)]

    def merge(self, held: Columns, parts: Columns) -> Columns:
        count, new = int64s_of(held[0]), int64s_of(parts[0])
        total = count + new
        share = new / np.maximum(total, 1)
        both = (count > 0) & (new > 0)
        means: list[_Floats] = []
        deltas: list[_Floats] = []
        with np.errstate(over="ignore", invalid="ignore"):
            for old_mean, new_mean in (map(floats_of, pair) for pair in _pairs(held, parts, 1, 3)):
                delta = new_mean - old_mean
                moved = np.where(
                    np.isfinite(delta),
                    old_mean + delta * share,
                    old_mean * (1 - share) + new_mean * share,
                )
                means.append(np.where(both, moved, np.where(count > 0, old_mean, new_mean)))
                deltas.append(np.where(both, delta, 0.0))
            one, other = deltas
            factors = ((one, one), (other, other), (one, other))
            products = [
                floats_of(old) + floats_of(part) + first * (count * share) * second
                for (old, part), (first, second) in zip(
                    _pairs(held, parts, 3, 6), factors, strict=True
                )
            ]
        fits = np.isfinite(products).all(axis=0)
        products = [np.where(fits, product, np.nan) for product in products]
        some = pa.array(total > 0)
        return [pc.if_else(some, pa.array(each), None) for each in (total, *means, *products)]

    @property
    def final_type(self) -> pa.DataType:
        return pa.float64()

    def final(self, held: Columns) -> pa.Array:
        """The correlation, or the covariance of the sample; null for a single row."""
        count, _, _, m2, other_m2, comoment = held
        several = pc.greater(count, 1)
        if not self._is_relative:
            fewer = pc.subtract(pc.if_else(several, count, None).cast(pa.float64()), 1.0)
            return pc.divide(comoment, fewer)
        varies = pc.and_(pc.not_equal(m2, 0.0), pc.not_equal(other_m2, 0.0))
        relative = pc.divide(pc.divide(comoment, pc.sqrt(m2)), pc.sqrt(other_m2))
        return pc.if_else(pc.and_(several, varies), relative, None)


def _means(rows: RowsOfKeys, count: pa.Array) -> pa.Array:
    """The mean of each key, exact for equal values; null for a key without a value."""
    keys = pa.array(rows.numbers)
    divisor = count.cast(pa.float64()).take(keys)
    least = rows.extremes(largest=False)
    above = pc.subtract(rows.column, least.take(keys))
    # Each value is divided, because a sum of values may overflow.
    means = pc.add(least, rows.of(pc.divide(above, divisor)).sums())
    of_values = rows.of(pc.divide(rows.column, divisor)).sums()
    return pc.if_else(pc.is_finite(means), means, of_values)


def _pairs(held: Columns, parts: Columns, start: int, end: int) -> list[tuple[pa.Array, pa.Array]]:
    """Some states, each with its part."""
    return list(zip(held[start:end], parts[start:end], strict=True))
