"""Aggregates of the rows of a key, for an ``AggregateOperator``.

Null values are passed over, as in SQL. What an aggregate keeps is plain value state: one state of
the aggregate's name, or several (``<name>_sum``, ``<name>_count``), which can be merged with those
of the next batch. The state does not depend on how rows are split into batches, but for the last
digits of floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Literal, get_args

from dstl_core.codec.declared_type import TypeLike
from dstl_core.errors import ConfigError

How = Literal[
    "count",
    "count_null",
    "sum",
    "min",
    "max",
    "first",
    "last",
    "min_by",
    "max_by",
    "avg",
    "variance",
    "stddev",
    "bool_and",
    "bool_or",
    "approx_count_distinct",
    "quantiles",
    "histogram",
    "collect_list",
    "collect_set",
    "last_values",
    "top",
    "value_counts",
    "decayed_sum",
]
ORDERED = ("first", "last", "min_by", "max_by", "collect_list", "last_values", "decayed_sum")
FIXED_TYPES: dict[str, str] = {
    "avg": "double",
    "variance": "double",
    "stddev": "double",
    "bool_and": "boolean",
    "bool_or": "boolean",
    "approx_count_distinct": "binary",
    "quantiles": "binary",
    "histogram": "bigint",
    "decayed_sum": "double",
}
"""The types of states that do not follow from the column. That of an average may be another one."""
DEFAULT_SIZES = {"approx_count_distinct": 12, "quantiles": 200}
_SIZES = {
    "approx_count_distinct": (4, 21),
    "quantiles": (8, 65_535),
    "collect_list": (1, 100_000),
    "collect_set": (1, 100_000),
    "last_values": (1, 100_000),
    "top": (1, 100_000),
    "value_counts": (1, 100_000),
}
"""The smallest and the largest size of those that have one."""


def check_how(how: str) -> None:
    """Raises ConfigError if there is no such aggregate."""
    if how not in get_args(How):
        raise ConfigError(f"An aggregate is one of {', '.join(get_args(How))}, got {how!r}.")


@dataclass(frozen=True)
class Aggregate:
    """One aggregate; the functions of this module make it.

    Args:
        how: Which one.
        column: What is aggregated; None counts rows.
        type: Type of the state, in any form; None: by the operator's ``schema``.
        order_by: The columns of the order, for those that have one.
        order_type: Type of the order's state; None: by the operator's ``schema``.
        keeps_order: Whether the order of the kept value is state, too.
        size: How much is kept: values of a list, or the size of a sketch.
        points: The probabilities of quantiles, where the buckets of a histogram meet, or the
            half-life of a decayed sum.

    Raises:
        ConfigError: There is no such aggregate, it lacks its column or its order, or its size or
            its points are out of range.
    """

    how: How
    column: str | None = None
    type: TypeLike | None = None
    order_by: tuple[str, ...] = ()
    order_type: TypeLike | None = None
    keeps_order: bool = True
    size: int = 0
    points: Sequence[float] = ()

    def __post_init__(self) -> None:
        check_how(self.how)
        if self.column is None and self.how != "count":
            raise ConfigError(f"The aggregate {self.how} needs a column.")
        if self.column is not None and not isinstance(self.column, str):
            raise ConfigError(
                f"The column of the aggregate {self.how} is wrong: expected the name of a column, "
                f"got {self.column!r}."
            )
        self._check_size()
        self._check_points()
        if self.how not in ORDERED:
            return
        self._check_order()

    def _check_order(self) -> None:
        wrong = [each for each in self.order_by if not isinstance(each, str)]
        if wrong:
            raise ConfigError(
                f"The order_by of the aggregate {self.how} of {self.column!r} is wrong: expected "
                f"names of columns, got {wrong[0]!r}."
            )
        if not self.order_by:
            raise ConfigError(
                f"The aggregate {self.how} of {self.column!r} needs an order; give order_by."
            )
        if self.keeps_order and len(self.order_by) > 1:
            raise ConfigError(
                f"The aggregate {self.how} of {self.column!r} keeps the order of one column, got "
                f"{', '.join(self.order_by)}; put them into one column, a string for one."
            )

    def _check_size(self) -> None:
        if self.how not in _SIZES:
            return
        least, most = _SIZES[self.how]
        if isinstance(self.size, bool) or not isinstance(self.size, int):
            raise ConfigError(
                f"The size of the aggregate {self.how} of {self.column!r} is a whole number, got "
                f"{self.size!r}."
            )
        if not least <= self.size <= most:
            raise ConfigError(
                f"The size of the aggregate {self.how} of {self.column!r} is out of range: "
                f"expected {least} to {most}, got {self.size}."
            )

    def _check_points(self) -> None:
        try:
            object.__setattr__(self, "points", tuple(float(each) for each in self.points))
        except (TypeError, ValueError):
            raise ConfigError(
                f"The points of the aggregate {self.how} of {self.column!r} are numbers, got "
                f"{self.points!r}."
            ) from None
        if self.how == "quantiles" and not (
            self.points and all(0 <= each <= 1 for each in self.points)
        ):
            raise ConfigError(
                f"The quantiles of {self.column!r} need probabilities: expected numbers from 0 to "
                f"1, got {list(self.points)}."
            )
        if self.how == "histogram" and not (
            self.points and all(one < other for one, other in pairwise((*self.points, inf)))
        ):
            raise ConfigError(
                f"The histogram of {self.column!r} needs the numbers where its buckets meet, each "
                f"larger than the one before, got {list(self.points)}."
            )
        if self.how == "decayed_sum" and not (len(self.points) == 1 and 0 < self.points[0] < inf):
            raise ConfigError(
                f"The decayed sum of {self.column!r} needs a half-life: expected a number of "
                f"milliseconds above 0, got {list(self.points)}."
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return self.order_by if self.column is None else (self.column, *self.order_by)


def count(column: str | None = None) -> Aggregate:
    """The number of rows, or of those that have a value in a column."""
    return Aggregate("count", column)


def count_null(column: str) -> Aggregate:
    """The number of rows without a value in a column."""
    return Aggregate("count_null", column)


def sum(column: str, type: TypeLike | None = None) -> Aggregate:
    """The sum. One that does not fit its type fails the epoch and names the state.

    Args:
        column: Numbers.
        type: ``"bigint"``, ``"double"``, ``"decimal(38, 2)"``, ..; by the schema: the widest of
            the column's kind.
    """
    return Aggregate("sum", column, type)


def min(column: str, type: TypeLike | None = None) -> Aggregate:
    """The smallest value."""
    return Aggregate("min", column, type)


def max(column: str, type: TypeLike | None = None) -> Aggregate:
    """The largest value; NaN is larger than any number, as in Spark."""
    return Aggregate("max", column, type)


def first(
    column: str,
    order_by: str | Sequence[str],
    type: TypeLike | None = None,
    *,
    order_type: TypeLike | None = None,
    keeps_order: bool = True,
) -> Aggregate:
    """The first value by an order. Of rows of one order, the smallest value.

    Args:
        column: The value; rows without one do not count.
        order_by: The column of the order; rows without one do not count.
        type: Of the value.
        order_type: Of the order, which is kept as ``<name>_order``.
        keeps_order: Without it nothing is kept of the order, which may then have several columns,
            nulls first: between batches, the first batch has the first value.
    """
    return Aggregate("first", column, type, _names(order_by), order_type, keeps_order)


def last(
    column: str,
    order_by: str | Sequence[str],
    type: TypeLike | None = None,
    *,
    order_type: TypeLike | None = None,
    keeps_order: bool = True,
) -> Aggregate:
    """The last value by an order. Of rows of one order, the largest value. Arguments as ``first``;
    without ``keeps_order`` the last batch has the last value.
    """
    return Aggregate("last", column, type, _names(order_by), order_type, keeps_order)


def min_by(
    column: str, order_by: str, type: TypeLike | None = None, *, order_type: TypeLike | None = None
) -> Aggregate:
    """The value, which may be null, of the row with the smallest order. As in Spark, but that of
    rows of one order it is the smallest value, null first.
    """
    return Aggregate("min_by", column, type, (order_by,), order_type)


def max_by(
    column: str, order_by: str, type: TypeLike | None = None, *, order_type: TypeLike | None = None
) -> Aggregate:
    """The value, which may be null, of the row with the largest order; of rows of one order it is
    the largest value.
    """
    return Aggregate("max_by", column, type, (order_by,), order_type)


def avg(column: str, type: TypeLike | None = None) -> Aggregate:
    """The average, as ``<name>_sum`` and ``<name>_count``.

    Args:
        column: Numbers.
        type: Of the sum; ``"double"`` by default.
    """
    return Aggregate("avg", column, FIXED_TYPES["avg"] if type is None else type)


def variance(column: str) -> Aggregate:
    """What variance and standard deviation are made of: ``<name>_count``, ``<name>_mean`` and
    ``<name>_m2``, the sum of the squares of the distances from the mean. The variance of a sample
    is ``m2 / (count - 1)``, that of a population ``m2 / count``.
    """
    return Aggregate("variance", column, FIXED_TYPES["variance"])


def stddev(column: str) -> Aggregate:
    """The standard deviation. Its states are those of ``variance``; an output has the standard
    deviation of a sample.
    """
    return Aggregate("stddev", column, FIXED_TYPES["stddev"])


def bool_and(column: str) -> Aggregate:
    """Whether all values are true."""
    return Aggregate("bool_and", column, FIXED_TYPES["bool_and"])


def bool_or(column: str) -> Aggregate:
    """Whether a value is true."""
    return Aggregate("bool_or", column, FIXED_TYPES["bool_or"])


def approx_count_distinct(
    column: str, lg_k: int = DEFAULT_SIZES["approx_count_distinct"]
) -> Aggregate:
    """The approximate number of distinct values. The state is an HLL sketch of Apache DataSketches,
    as Spark's ``hll_sketch_agg`` makes it.

    Args:
        column: Values of any simple type: no arrays, maps or structs. As in Spark, an empty string
            does not count.
        lg_k: Logarithm of the sketch's size, 4 to 21: with 12, a sketch has at most 4 KB, and two
            of three estimates are within 1.6 % of the truth.
    """
    fixed = FIXED_TYPES["approx_count_distinct"]
    return Aggregate("approx_count_distinct", column, fixed, size=lg_k)


def quantiles(
    column: str, probabilities: Sequence[float], k: int = DEFAULT_SIZES["quantiles"]
) -> Aggregate:
    """Quantiles, for example the median. The state is a KLL sketch of doubles of Apache
    DataSketches, as Spark's ``kll_sketch_agg_double`` makes it. Up to ``k`` values are exact.

    Args:
        column: Numbers; NaN does not count.
        probabilities: Which quantiles an output has, each from 0 to 1: ``[0.5, 0.99]``.
        k: Size of the sketch, 8 to 65535: with 200, the rank of a quantile is within 1.7 %.
    """
    return Aggregate("quantiles", column, FIXED_TYPES["quantiles"], size=k, points=probabilities)


def histogram(column: str, bounds: Sequence[float]) -> Aggregate:
    """The number of values in each bucket, as a list with one number more than there are bounds.

    Args:
        column: Numbers; NaN is larger than any other.
        bounds: Where the buckets meet, in ascending order. A value equal to a bound is in the upper
            bucket.
    """
    return Aggregate("histogram", column, FIXED_TYPES["histogram"], points=bounds)


def collect_list(
    column: str,
    limit: int,
    order_by: str,
    type: TypeLike | None = None,
    *,
    order_type: TypeLike | None = None,
) -> Aggregate:
    """The first values by an order, as a list in this order. Later values are dropped.

    Args:
        column: The values; rows without one do not count.
        limit: How many are kept, at most 100,000.
        order_by: The column of the order; rows without one do not count. Rows of one order come in
            the order of their values.
        type: Of a value.
        order_type: Of the order; the orders are kept as the list ``<name>_order``.
    """
    return Aggregate("collect_list", column, type, (order_by,), order_type, size=limit)


def last_values(
    column: str,
    limit: int,
    order_by: str,
    type: TypeLike | None = None,
    *,
    order_type: TypeLike | None = None,
) -> Aggregate:
    """The last values by an order, as a list, the last one first. Arguments as ``collect_list``."""
    return Aggregate("last_values", column, type, (order_by,), order_type, size=limit)


def collect_set(column: str, limit: int, type: TypeLike | None = None) -> Aggregate:
    """The smallest distinct values, as a sorted list. Larger values are dropped.

    Args:
        column: The values.
        limit: How many are kept, at most 100,000.
        type: Of a value.
    """
    return Aggregate("collect_set", column, type, size=limit)


def top(column: str, limit: int, type: TypeLike | None = None) -> Aggregate:
    """The largest values, as a list, the largest one first. Arguments as ``collect_set``."""
    return Aggregate("top", column, type, size=limit)


def value_counts(column: str, limit: int, type: TypeLike | None = None) -> Aggregate:
    """How often each value occurs, as a map. Spark does not reduce the values of a batch for it.

    Args:
        column: Texts, whole numbers, booleans, dates or timestamps.
        limit: How many distinct values a key may have, at most 100,000. One more fails the epoch.
        type: Of a value.
    """
    return Aggregate("value_counts", column, type, size=limit)


def decayed_sum(
    column: str, half_life_ms: float, event_time: str, *, time_type: TypeLike | None = None
) -> Aggregate:
    """A sum in which a value counts half after each half-life, as of the last time of its key,
    which is kept as ``<name>_time``. Spark does not reduce the values of a batch for it.

    Args:
        column: Numbers, which are added up as doubles; rows without one do not count.
        half_life_ms: The half-life in milliseconds.
        event_time: Column of the time: a timestamp, or milliseconds; rows without one do not count.
        time_type: Type of the time.
    """
    fixed = FIXED_TYPES["decayed_sum"]
    points = (half_life_ms,)
    return Aggregate("decayed_sum", column, fixed, (event_time,), time_type, points=points)


def _names(order_by: Any) -> tuple[str, ...]:
    return tuple(order_by) if isinstance(order_by, list | tuple) else (order_by,)
